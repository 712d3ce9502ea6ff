"""Tolerant reading of a report's plain values: numbers even if written as words, tables as rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apoint.doctor import ranges
from apoint.report import fields
from apoint.report.words import short

_WORDS = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf}
Ends = tuple[float | None, float | None]


def number(value: Any) -> float:
    """The number, even if it is written as a word because it is not finite; NaN for anything else."""
    return _WORDS[value] if isinstance(value, str) and value in _WORDS else fields.number(value)


def maybe_number(value: Any) -> float | None:
    """The number, or None if none was written."""
    return None if value is None else number(value)


def ends(low: Any, high: Any) -> Ends:
    """The ends of a healthy range; None for an open end."""
    found = [None if value is None else number(value) for value in (low, high)]
    lower, upper = (None if value is None or not math.isfinite(value) else value for value in found)
    return lower, upper


def healthy_of(sign: str) -> Ends:
    """The healthy range of a sign; (None, None) if it is not calibrated."""
    return ends(*ranges.healthy(sign)) if sign in ranges.table() else (None, None)


def range_words(healthy: Ends) -> str:
    """A healthy range in words; empty if there is none."""
    low, high = healthy
    if low is not None and high is not None:
        return f"{short(low)} to {short(high)}"
    if low is not None:
        return f"at least {short(low)}"
    return f"at most {short(high)}" if high is not None else ""


@dataclass(frozen=True)
class Operation:
    """One row of the table of operations: its signal, and the gradient that flows back to it."""

    name: str
    kind: str
    depth: int
    mean: float
    deviation: float
    second_moment: float
    spread: float
    zeros: float
    saturation: float | None
    gradient_norm: float | None


def operations(report: Mapping[str, Any]) -> list[Operation]:
    """What the probe `signal` saw, in execution order; empty if it was not read."""
    table = _table(report, "signal", "operations")
    columns = {name: fields.items(column) for name, column in table.items()}

    def cell(column: str, place: int) -> Any:
        values = columns.get(column, ())
        return values[place] if place < len(values) else None

    return [
        Operation(
            name=str(name),
            kind=fields.text(cell("kind", place)),
            depth=fields.whole(cell("depth", place)),
            mean=number(cell("mean", place)),
            deviation=math.sqrt(max(number(cell("variance", place)), 0.0)),
            second_moment=number(cell("second_moment", place)),
            spread=number(cell("spread", place)),
            zeros=number(cell("zeros", place)),
            saturation=maybe_number(cell("saturation", place)),
            gradient_norm=maybe_number(cell("gradient_norm", place)),
        )
        for place, name in enumerate(columns.get("name", ()))
    ]


def dead_shares(report: Mapping[str, Any]) -> dict[str, float]:
    """The share of dead units of each activation, by its name."""
    table = _table(report, "dead-units", "activations")
    pairs = zip(fields.items(table.get("name")), fields.items(table.get("dead")), strict=False)
    return {str(name): number(share) for name, share in pairs if share is not None}


def _table(report: Mapping[str, Any], probe: str, name: str) -> fields.Json:
    reading = fields.mapping(fields.mapping(report.get("readings")).get(probe))
    return fields.mapping(fields.mapping(reading.get("details")).get(name))


def failed_stages(report: Mapping[str, Any]) -> list[str]:
    """The stages that should have run and could not."""
    stages = fields.mapping(report.get("stages")).items()
    return [name for name, stage in stages if fields.mapping(stage).get("state") == "failed"]


def count_levels(findings: Any) -> dict[str, int]:
    """The number of findings at each level, the worst first."""
    levels = [fields.text(fields.mapping(finding).get("level")) for finding in fields.items(findings)]
    return {level: levels.count(level) for level in ("severe", "warning", "note")}
