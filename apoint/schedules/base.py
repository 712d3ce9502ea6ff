"""Schedules, the decorator that registers their builders, and the parsing of their lengths."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeAlias, cast

from pydantic import Field

from apoint.checking import checked_settings
from apoint.errors import UsageError
from apoint.registry import Ingredient, register, registry
from apoint.units import Duration, Horizon

if TYPE_CHECKING:
    # To a type checker, a length is what a caller may write. At run time it is the checked setting.
    Length: TypeAlias = Duration | str | float
else:
    from apoint.settings import Length

P = ParamSpec("P")

ShrinkFactor = Annotated[float, Field(gt=0, le=1)]
"""A factor that shrinks a value or leaves it unchanged."""

ROUNDING = 1e-10
"""Two moments of training closer than this are the same moment.

Progress k / T and a boundary such as three times 10%, or a third printed as 33.3333333333%, mean the same
moment but differ by rounding; a jump must not come a step late because of that. A step is longer than this
in any training below 10¹⁰ steps.
"""


@dataclass(frozen=True, eq=False, repr=False)
class Schedule:
    """A number that depends only on the progress of training.

    Attributes:
        curve: The value at each progress in [0, 1].
        description: The call that made it; this is its `repr`.
    """

    curve: Callable[[float], float]
    description: str = "Schedule(…)"

    def __call__(self, progress: float) -> float:
        """The value at `progress`, the share of training that is done."""
        if not -ROUNDING <= progress <= 1 + ROUNDING:
            raise UsageError(
                f"{self!r}: progress must be between 0 and 1, got {progress!r}; update k of T is at k / T"
            )
        return float(self.curve(min(max(float(progress), 0.0), 1.0)))

    def __repr__(self) -> str:
        return self.description

    def values(self, num_steps: int) -> list[float]:
        """The value at each of `num_steps` updates; the end of training, p = 1, comes after the last."""
        if num_steps < 1:
            raise UsageError(f"{self!r}: num_steps must be at least 1, got {num_steps!r}")
        return [self(step / num_steps) for step in range(num_steps)]


def register_schedule(
    name: str, *, course: str = ""
) -> Callable[[Callable[P, Schedule]], Callable[P, Schedule]]:
    """Decorator: `register` for builders of schedules that are also called directly.

    A direct call gets the same checks as a recipe, every error names the schedule, and the schedule prints
    as the call that made it.
    """

    def keep(build: Callable[P, Schedule]) -> Callable[P, Schedule]:
        @functools.wraps(build)
        def checked(horizon: Horizon | None = None, **settings: Any) -> Schedule:
            entry = registry("schedule")[name]
            _check_horizon(horizon, entry)
            values = checked_settings(entry, settings)
            try:
                made = cast(Callable[..., Schedule], build)(horizon, **values)
            except UsageError as error:
                raise UsageError(f"schedule {name!r}: {error}") from None
            return replace(made, description=_as_call(build.__name__, entry, values))

        return cast(Callable[P, Schedule], register("schedule", name, course=course)(checked))

    return keep


def _check_horizon(horizon: Any, entry: Ingredient) -> None:
    """Reject a positional argument that was meant for a setting: `constant(0.5)`."""
    if horizon is not None and not isinstance(horizon, Horizon):
        setting = next(iter(entry.setting_parameters))
        raise UsageError(
            f"schedule {entry.name!r}: horizon must be Horizon(total_steps=…, steps_per_epoch=…) or absent, "
            f"got {horizon!r}; write settings by name, such as {setting}={horizon!r}"
        )


def _as_call(function: str, entry: Ingredient, values: dict[str, Any]) -> str:
    """`cosine(floor=0.1, warmup='5%')`: the settings that are not at their defaults."""
    defaults = {key: default for key, (_, default, _) in entry.setting_parameters.items()}
    told = [
        f"{key}={_written(value)}"
        for key, value in values.items()
        if _written(value) != _written(defaults[key])
    ]
    return f"{function}({', '.join(told)})"


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_written(item) for item in value)}]"
    return repr(str(value)) if isinstance(value, Duration) else repr(value)


def share_of_training(length: Length, horizon: Horizon | None, what: str) -> float:
    """A length as a share of training; `what` is the name of the setting, for the error message."""
    duration = Duration.parse(length)
    share = duration.as_share(horizon, what)
    if not 0 <= share <= 1:  # a Duration made in code is not limited to what a recipe may write
        raise UsageError(f"{what} must be between 0% and 100% of training, got {duration}")
    return share


def some_of_training(length: Length, horizon: Horizon | None, what: str) -> float:
    """A length as a share of training that is greater than 0."""
    share = share_of_training(length, horizon, what)
    if share <= ROUNDING:
        raise UsageError(f"{what} must be longer than nothing, got {Duration.parse(length)}")
    return share


def moments_in_order(lengths: Sequence[Length], horizon: Horizon | None, what: str) -> list[float]:
    """Lengths from the beginning of training as shares of it; each must come after the one before."""
    shares = [share_of_training(length, horizon, f"{what}.{i}") for i, length in enumerate(lengths)]
    for i, (before, after) in enumerate(pairwise(shares)):
        if after <= before + ROUNDING:
            late, early = Duration.parse(lengths[i]), Duration.parse(lengths[i + 1])
            raise UsageError(f"{what} must be in order, got {early} after {late}")
    return shares
