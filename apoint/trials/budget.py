"""Time limits as people write them, and the looks that fit into one."""

from __future__ import annotations

import re

from apoint.errors import UsageError
from apoint.verdict import DEFAULT_LOOKS

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PATTERN = re.compile(r"^\s*([0-9]*\.?[0-9]+)\s*(s|m|min|h|d)\s*$")
FEWEST_PAIRS = DEFAULT_LOOKS[0]  # fewer cannot show how skewed the differences are
LATER_STEP = 8  # beyond the default looks


def seconds_of(text: str | float) -> float:
    """`90s`, `20m`, `1.5h` or a number of seconds, as seconds."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = float(text)
    else:
        match = _PATTERN.match(str(text))
        if not match:
            raise UsageError(f"cannot read {text!r} as a time; write it with its unit, such as 20m or 1.5h")
        seconds = float(match[1]) * _UNITS[match[2]]
    if not seconds > 0:
        raise UsageError(f"a time budget must be above 0, got {text!r}")
    return seconds


def looks_within(num_pairs: int, most: int = 32) -> tuple[int, ...]:
    """The default looks up to the affordable number of pairs, which is the last look.

    Args:
        num_pairs: How many pairs fit.
        most: More pairs than this are not planned for.
    """
    last = min(num_pairs, most)
    if last < FEWEST_PAIRS:
        raise UsageError(
            f"there is room for {num_pairs} pairs, and a verdict needs at least {FEWEST_PAIRS}; give more "
            "time, or shorten training"
        )
    usual = (*DEFAULT_LOOKS, *range(DEFAULT_LOOKS[-1] + LATER_STEP, last, LATER_STEP))
    return (*(n for n in usual if n < last), last)
