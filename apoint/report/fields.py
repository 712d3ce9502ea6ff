"""Values from JSON, read with tolerance: a value of unexpected shape counts as absent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from apoint.store.lines import NOT_FINITE

Json = Mapping[str, Any]


def number(value: Any) -> float:
    """The number, even if it is written as text because it is not finite; NaN for anything else."""
    if isinstance(value, bool):
        return math.nan
    if isinstance(value, int | float):
        return float(value)
    return NOT_FINITE.get(value, math.nan) if isinstance(value, str) else math.nan


def whole(value: Any, otherwise: int = 0) -> int:
    """The whole number, or `otherwise`."""
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def maybe_whole(value: Any) -> int | None:
    """The whole number, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: Any) -> str:
    """The text, or an empty one."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Json:
    """The object, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Any]:
    """The list, or an empty one."""
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def numbers(value: Any) -> tuple[float, ...]:
    """The numbers of a list."""
    return tuple(number(each) for each in items(value))


def wholes(value: Any) -> tuple[int, ...]:
    """The whole numbers of a list."""
    return tuple(each for each in items(value) if maybe_whole(each) is not None)


def texts(value: Any) -> tuple[str, ...]:
    """The texts of a list; what is not text becomes empty, so that positions are kept."""
    return tuple(text(each) for each in items(value))


def interval(value: Any) -> tuple[float, float]:
    """The two ends of an interval; NaN where they are not known."""
    ends = numbers(value)
    return (ends[0], ends[1]) if len(ends) == 2 else (math.nan, math.nan)


def first_known(values: Iterable[float]) -> float:
    """The first that is not NaN."""
    return next((value for value in values if not math.isnan(value)), math.nan)
