"""What a check returns: numbers, each with a requirement and whether it is met.

A requirement is met, not met or, if the number is an estimate whose error extends past the bound, not
decided. The functions below make the usual kinds; each takes the name of the number first, as it appears on
the card.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from apoint.book.picture import Picture
from apoint.verdict import Verdict

SIGMAS = 3.0  # how many standard errors from a bound an estimate must be to count


@dataclass(frozen=True)
class Number:
    """A number and its requirement.

    Attributes:
        name: What it is, in a few words.
        value: The number.
        requirement: What it must be, in words that follow the value: `at most 0.25`.
        holds: Whether it meets the requirement; None if that is not decided.
        error: Its standard error, if it is an estimate.
        remark: What else a reader should know about it.
    """

    name: str
    value: float
    requirement: str
    holds: bool | None
    error: float | None = None
    remark: str = ""

    def __post_init__(self) -> None:
        """Convert NumPy's booleans to Python's, because `is False` does not recognise them."""
        object.__setattr__(self, "value", float(self.value))
        object.__setattr__(self, "holds", None if self.holds is None else bool(self.holds))
        object.__setattr__(self, "error", None if self.error is None else float(self.error))

    def to_plain(self) -> dict[str, Any]:
        """Convert to values that JSON can hold; non-finite numbers become strings."""
        plain = asdict(self)
        for key in ("value", "error"):
            if plain[key] is not None and not math.isfinite(plain[key]):
                plain[key] = str(plain[key])
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Number:
        """Convert back from `to_plain`."""
        error = plain["error"]
        return cls(
            **{**plain, "value": float(plain["value"]), "error": None if error is None else float(error)}
        )


def at_most(name: str, value: float, bound: float, error: float | None = None, remark: str = "") -> Number:
    """The number must not exceed a bound."""
    return Number(name, float(value), f"at most {bound:.6g}", _below(value, bound, error), error, remark)


def at_least(name: str, value: float, bound: float, error: float | None = None, remark: str = "") -> Number:
    """The number must reach a bound."""
    return Number(name, float(value), f"at least {bound:.6g}", _below(-value, -bound, error), error, remark)


def between(
    name: str, value: float, low: float, high: float, error: float | None = None, remark: str = ""
) -> Number:
    """The number must be within an interval."""
    sides = (_below(-value, -low, error), _below(value, high, error))
    return Number(name, float(value), f"between {low:.6g} and {high:.6g}", all_hold(sides), error, remark)


def close(
    name: str, value: float, expected: float, relative: float = 0.0, absolute: float = 0.0, remark: str = ""
) -> Number:
    """The number must equal another up to rounding, or a tolerance that the check justifies."""
    allowed = max(relative * abs(expected), absolute)
    holds = abs(value - expected) <= allowed
    words = f"{expected:.8g}" + (f" ± {allowed:.1g}" if allowed else " exactly")
    return Number(name, float(value), words, holds, None, remark)


def agrees(name: str, value: float, error: float, expected: float, remark: str = "") -> Number:
    """An estimate must agree with its expected value within its errors.

    Agreement of an estimate whose error is as large as what it estimates says nothing, and counts so.
    """
    near = abs(value - expected) <= SIGMAS * error
    vague = error > 0.25 * abs(expected) if expected else False
    return Number(name, float(value), f"{expected:.6g}", None if near and vague else near, error, remark)


def same(name: str, value: int | bool, expected: int | bool, remark: str = "") -> Number:
    """A count, or a yes (1) or no (0), must equal the expected one."""
    words = ("yes" if expected else "no") if isinstance(expected, bool) else f"{expected}"
    return Number(name, float(value), words, int(value) == int(expected), None, remark)


def ruled(name: str, verdict: Verdict, *wanted: str) -> Number:
    """The verdict of a comparison must be one of those named; the number is its effect.

    An undecided comparison counts as not decided, never as a failure.
    """
    holds = None if verdict.outcome == "undecided" else verdict.outcome in wanted
    low, high = verdict.interval
    said = f"{verdict.outcome}, 95 % interval {low:.3g} to {high:.3g} over {verdict.pairs} pairs"
    return Number(name, float(verdict.effect), " or ".join(wanted), holds, None, said)


def all_hold(states: Iterable[bool | None]) -> bool | None:
    """Return False if any is false, else None if any is unknown, else True."""
    known = list(states)
    if any(state is False for state in known):
        return False
    return None if any(state is None for state in known) else True


def _below(value: float, bound: float, error: float | None) -> bool | None:
    if math.isnan(value):
        return False
    if error and abs(value - bound) < SIGMAS * error:
        return None
    return value <= bound


@dataclass(frozen=True)
class Evidence:
    """What a check found.

    Attributes:
        numbers: Those of the statement that should be true: as given, or as the erratum corrects it.
        as_written: Those of the statement as the source has it, if there is an erratum.
        pictures: What to draw.
        remark: What else a reader should know.
        would_take: What it would take to decide what is not decided here.
    """

    numbers: Sequence[Number]
    as_written: Sequence[Number] = ()
    pictures: Sequence[Picture] = field(default_factory=tuple)
    remark: str = ""
    would_take: str = ""
