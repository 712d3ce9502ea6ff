"""Time limits as people write them, and the looks that fit into one."""

from __future__ import annotations

import re

from apoint.errors import UsageError

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PATTERN = re.compile(r"^\s*([0-9]*\.?[0-9]+)\s*(s|m|min|h|d)\s*$")
FEWEST_PAIRS = 6  # below, no distribution-free statement can reach an error rate of 5 %


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
    """Up to four looks, evenly spaced, that end at what can be afforded.

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
    looks = {max(FEWEST_PAIRS, round(last * share)) for share in (0.25, 0.5, 0.75, 1.0)}
    return tuple(sorted(looks))
