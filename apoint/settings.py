"""The types of settings: numbers with bounds, lengths with units, names of ingredients.

An ingredient's builder annotates its keyword-only parameters with these, and the registry makes a
checked settings class from the signature. So a bound is written once, where the number is used.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from apoint.errors import UsageError
from apoint.units import Duration


class Schedulable:
    """Marks a number that a recipe may also put on a schedule (`{name: cosine, …}`)."""


class IngredientOf:
    """Marks a setting that names another ingredient: `relu`, or `{name: leaky-relu, slope: 0.2}`.

    Args:
        kind: The kind of that ingredient.
        beside: Settings of that ingredient that are written next to its name here, not inside it.
    """

    def __init__(self, kind: str, beside: tuple[str, ...] = ()) -> None:
        self.kind, self.beside = kind, beside


def _read_length(raw: Any) -> Duration:
    try:
        return Duration.parse(raw)
    except UsageError as error:  # pydantic collects ValueError only with its plain message
        raise ValueError(str(error)) from None


def _refuse_truth(raw: Any) -> Any:
    if isinstance(raw, bool):  # Python counts true as 1; a recipe that says `steps: true` is mistaken
        raise ValueError(f"must be a number, got {raw!r}")
    return raw


NotTruth = BeforeValidator(_refuse_truth)
Positive = Annotated[float, NotTruth, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, NotTruth, Field(ge=0, allow_inf_nan=False)]
Real = Annotated[float, NotTruth, Field(allow_inf_nan=False)]
Share = Annotated[float, NotTruth, Field(ge=0, le=1)]
Momentum = Annotated[float, NotTruth, Field(ge=0, lt=1)]
"""A decay rate of a running average: 1 would never forget."""
Count = Annotated[int, NotTruth, Field(ge=1, lt=2**63)]
WholeNumber = Annotated[int, NotTruth, Field(ge=0, lt=2**63)]

Rate = Annotated[float, Field(ge=0, lt=1), Schedulable()]
"""A probability of dropping something; may be put on a schedule."""

Length = Annotated[
    Duration,
    BeforeValidator(_read_length),
    PlainSerializer(str),
    WithJsonSchema({"type": ["string", "number"], "examples": ["5%", "500 steps", "2 epochs", 0.05]}),
]
"""A length of training with its unit; see `apoint.units.Duration`."""

Spec = str | dict[str, Any]
"""How a recipe names an ingredient: by name, or by name and settings."""
ActivationSpec = Annotated[Spec, IngredientOf("activation")]
NormSpec = Annotated[Spec, IngredientOf("norm")]
OptimizerSpec = Annotated[Spec, IngredientOf("optimizer", beside=("lr", "weight_decay", "l2"))]
"""An optimizer inside another one, which has the learning rate and the decay."""
