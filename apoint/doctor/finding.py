"""A finding: what is wrong, where, how far from healthy, why, and the change to try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["note", "warning", "severe"]
"""Note: worth knowing, training may be fine. Warning: training is worse for it. Severe: training
cannot work like this."""
STAGES = ("run", "data", "loss", "code", "signal", "gradients", "optimisation", "generalisation")
"""The order in which an experienced engineer looks: earlier stages can explain later ones."""
Range = tuple[float | None, float | None]
State = Literal["ran", "skipped", "failed"]
"""Skipped: nothing to look at, no time in a quick inspection, or an earlier finding explains what it would
show. Failed: it could not be done."""


@dataclass(frozen=True)
class StageState:
    """Whether a stage of the examination ran, and if not, why."""

    state: State = "ran"
    why: str = ""


@dataclass(frozen=True)
class Treatment:
    """What to change.

    Attributes:
        words: The change in a sentence.
        recipe: The change as dotted paths of a recipe with their new values, ready for `apoint compare`.
        code: The change as lines of PyTorch.
        recipe_file: The recipe to change.
    """

    words: str
    recipe: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    recipe_file: str = "base.yaml"

    @property
    def command(self) -> str:
        """The command that tests the change by a comparison; empty if no recipe can express it."""
        changes = " ".join(f"--change {path}={_written(value)}" for path, value in self.recipe.items())
        return f"apoint compare {_written(self.recipe_file)} {changes}" if changes else ""

    def __str__(self) -> str:
        return self.words


def _written(value: Any) -> str:
    text = (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
    return f"'{text}'" if any(mark in text for mark in " {}[],:") else text


def range_words(healthy: Range) -> str:
    """A healthy range in words; empty if there is none."""
    low, high = healthy
    if low is None and high is None:
        return ""
    if low is None:
        return f"healthy: at most {high:.3g}"
    if high is None:
        return f"healthy: at least {low:.3g}"
    return f"healthy: {low:.3g} to {high:.3g}"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a model, its data or its training.

    Attributes:
        code: A stable identifier, such as `dead-units`.
        symptom: What was observed, as a sentence with the number.
        value: The number.
        healthy: The range of the number in healthy training runs, (low, high).
        cause: Why it happens and what effect it has.
        treatment: What to change.
        level: How severe it is.
        confidence: How sure the doctor is, from 0 to 1: of the patients in the clinic for which the code was
            raised, the share that had the fault; if that is not known, the rule's own confidence.
        stage: The stage of the examination that raised it.
        layer: The layer it concerns; empty if it concerns no single layer.
        course: The course items behind it.
        unit: The unit of the value.
        quantity: What the value is, in a few words, if the symptom does not show it; empty otherwise.
        place: The line of the user's code, or the module, where an error was raised; empty otherwise.
        details: More facts, by name: the error, shapes and types of inputs, targets and outputs.
    """

    code: str
    symptom: str
    value: float
    healthy: Range
    cause: str
    treatment: Treatment
    level: Level = "warning"
    confidence: float = 0.9
    stage: str = ""
    layer: str = ""
    course: tuple[str, ...] = ()
    unit: str = ""
    quantity: str = ""
    place: str = ""
    details: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        where = f" in {self.layer}" if self.layer else ""
        return f"{self.code}{where}: {self.symptom} {self.cause} {self.treatment}"

    @property
    def healthy_words(self) -> str:
        """The healthy range in words."""
        words = range_words(self.healthy)
        return f"{self.quantity}: {self.value:.3g}; {words}" if self.quantity and words else words

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values for JSON."""
        from apoint.probes.reading import plain

        kept = {name: plain(getattr(self, name)) for name in self.__dataclass_fields__ if name != "treatment"}
        treatment = {
            "words": self.treatment.words,
            "recipe": plain(dict(self.treatment.recipe)),
            "code": self.treatment.code,
            "command": self.treatment.command,
        }
        return {**kept, "treatment": treatment}
