"""Timing that can be trusted on a shared machine: arms interleaved, the best of several rounds each."""

from __future__ import annotations

import time
from collections.abc import Callable


def interleaved(
    arms: dict[str, Callable[[], object]], rounds: int = 9, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """The best time of each arm in seconds; in every round each arm runs once, in turn.

    The default clock counts this process's own processor time, which other work on a shared machine
    disturbs least; it is right for arms that run in one thread of this process.
    """
    best = dict.fromkeys(arms, float("inf"))
    for arm in arms.values():
        arm()
    for _ in range(rounds):
        for name, arm in arms.items():
            begin = clock()
            arm()
            best[name] = min(best[name], clock() - begin)
    return best


def table(title: str, rows: list[tuple[str, str]]) -> None:
    """Print a small table."""
    print(f"\n{title}")
    width = max(len(left) for left, _ in rows) + 2
    for left, right in rows:
        print(f"  {left:<{width}}{right}")
