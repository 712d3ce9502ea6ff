"""What a probe returns: a number, its uncertainty, how it was obtained, how much it covers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from apoint.errors import UsageError

Status = Literal["computed", "estimated", "undefined"]
"""Computed: exact for the batch given. Estimated: from samples, with an uncertainty. Undefined: no number."""


@dataclass(frozen=True)
class Reading:
    """One measurement of a model.

    Attributes:
        probe: The name of the probe.
        value: The number for the whole model; None if undefined.
        how: How it was obtained, in words: `exact`, `estimated from 64 examples`, or why it is undefined.
        status: `computed`, `estimated` or `undefined`.
        unit: The unit of the value; empty for a pure number.
        uncertainty: The standard error of the value, where it is an estimate.
        per_layer: The number for each layer, by its name in the model.
        per_layer_uncertainty: Their standard errors, where they are estimates.
        coverage: The share of the trainable parameters that the value covers; 1 where parameters play no
            part.
        details: Further numbers by name: a curve as a list, a table as a dictionary of lists.
        notes: Sentences that a reader of the number should know.
    """

    probe: str
    value: float | None
    how: str
    status: Status
    unit: str = ""
    uncertainty: float | None = None
    per_layer: Mapping[str, float] = field(default_factory=dict)
    per_layer_uncertainty: Mapping[str, float] = field(default_factory=dict)
    coverage: float = 1.0
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert (self.value is None) == (self.status == "undefined"), f"{self.probe}: a value, or a reason"
        assert self.how, f"{self.probe}: a reading says how it was obtained"
        assert 0 <= self.coverage <= 1, f"{self.probe}: coverage {self.coverage}"

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.probe}: undefined, {self.how}"
        spread = "" if self.uncertainty is None else f" ± {self.uncertainty:.2g}"
        unit = f" {self.unit}" if self.unit else ""
        covered = "" if self.coverage == 1 else f", {self.coverage:.0%} of the parameters"
        return f"{self.probe}: {self.value:.4g}{spread}{unit} ({self.how}{covered})"

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values for JSON; numbers that are not finite become strings."""
        names = [name for name in self.__dataclass_fields__ if name not in ("details", "notes")]
        kept = {name: plain(getattr(self, name)) for name in names}
        return {**kept, "details": plain(self.details), "notes": list(self.notes)}


def undefined(probe: str, why: str, **fields: Any) -> Reading:
    """A reading without a number.

    Args:
        probe: The name of the probe.
        why: The reason, such as `the model has no trainable parameters`.
        **fields: Further fields of the reading.
    """
    return Reading(probe, None, why, "undefined", **{"coverage": 0.0, **fields})


def plain(value: Any) -> Any:
    """Convert a value to what JSON can hold: numbers, strings, lists and dictionaries."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise UsageError(f"a reading holds numbers and texts, not {type(value).__name__}")
