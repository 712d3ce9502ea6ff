"""Training lengths with units, and the horizon that converts them to shares of training.

A length is written `5%`, `500 steps`, `2 epochs`, or as a bare share such as `0.05`. A bare whole
number above 1 has no unit and is rejected, because `500` means steps to one reader and epochs to the
next.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from apoint.errors import UsageError

Unit = Literal["share", "steps", "epochs"]
_PATTERN = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(%|steps?|epochs?)?\s*$")
_RULE = "write a share such as 0.05 or '5%', or a length with its unit such as '500 steps' or '2 epochs'"


@dataclass(frozen=True)
class Horizon:
    """The length of a training run, used to convert steps and epochs to shares of it."""

    total_steps: int
    steps_per_epoch: float

    def __post_init__(self) -> None:
        if self.total_steps < 1 or self.steps_per_epoch <= 0:
            raise UsageError(
                f"Horizon: total_steps must be at least 1 and steps_per_epoch positive, "
                f"got {self.total_steps} and {self.steps_per_epoch}"
            )


@dataclass(frozen=True)
class Duration:
    """A length of training: a number and its unit."""

    value: float
    unit: Unit

    @classmethod
    def parse(cls, raw: Any) -> Duration:
        """Parse a length from `5%`, `500 steps`, `2 epochs`, `0.05`, or an existing `Duration`."""
        if isinstance(raw, Duration):
            return raw
        if isinstance(raw, bool):
            raise UsageError(f"a length of training cannot be {raw!r}; {_RULE}")
        match = _PATTERN.match(raw) if isinstance(raw, str) else None
        if match:
            number, word = float(match[1]), (match[2] or "").rstrip("s")
        elif isinstance(raw, int | float):
            number, word = float(raw), ""
        else:
            raise UsageError(f"cannot read {raw!r} as a length of training; {_RULE}")
        if not math.isfinite(number):
            raise UsageError(f"{raw!r} is not a finite length of training; {_RULE}")
        if word == "%":
            return cls._share(number / 100, raw)
        if word:
            return cls(number, "steps" if word == "step" else "epochs")
        return cls._share(number, raw)

    @classmethod
    def _share(cls, share: float, raw: Any) -> Duration:
        if not 0 <= share <= 1:
            raise UsageError(f"{raw!r} is not a share of training between 0 and 1; {_RULE}")
        return cls(share, "share")

    def __str__(self) -> str:
        if self.unit == "share":
            return f"{self.value * 100:.12g}%"
        number = f"{self.value:.12g}"
        return f"{number} {self.unit if self.value != 1 else self.unit[:-1]}"

    def as_share(self, horizon: Horizon | None, what: str = "length") -> float:
        """Return this length as a share of training; raise if it is longer than training."""
        if self.unit == "share":
            return self.value
        if horizon is None:
            raise UsageError(
                f"{what} of {self} needs the length of training: pass horizon=Horizon(total_steps=…, "
                f"steps_per_epoch=…), or write it as a share such as '5%'"
            )
        steps = self.as_steps(horizon)
        if steps > horizon.total_steps:
            epochs = horizon.total_steps / horizon.steps_per_epoch
            raise UsageError(
                f"{what} of {self} is longer than training, which has {horizon.total_steps} steps "
                f"({epochs:g} epochs); shorten it or train longer"
            )
        return steps / horizon.total_steps

    def as_steps(self, horizon: Horizon) -> float:
        """Return this length in steps, not necessarily a whole number."""
        if self.unit == "steps":
            return self.value
        if self.unit == "epochs":
            return self.value * horizon.steps_per_epoch
        return self.value * horizon.total_steps
