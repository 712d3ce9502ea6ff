"""Timing that can be trusted on a shared machine: arms interleaved, the best or the median of many."""

from __future__ import annotations

import statistics
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


def paired_ratio(
    arm: Callable[[], object], reference: Callable[[], object], pairs: int = 401
) -> tuple[float, float, float]:
    """How many times the reference's wall time an arm takes: the median over pairs, and its 95 % interval.

    For differences of about a percent, which the best of several rounds cannot resolve: the fastest rounds of
    two arms may lie minutes apart. The arms of a pair run in turn and change places in every pair.
    The interval is that of the sign test, which assumes nothing about how the machine is disturbed.
    """
    arm(), reference()
    ratios = []
    for turn in range(pairs):
        order = (arm, reference) if turn % 2 else (reference, arm)
        seconds = {}
        for each in order:
            begin = time.perf_counter()
            each()
            seconds[each] = time.perf_counter() - begin
        ratios.append(seconds[arm] / seconds[reference])
    ratios.sort()
    below = int(pairs / 2 - 1.96 * pairs**0.5 / 2)
    return statistics.median(ratios), ratios[below], ratios[-1 - below]


def table(title: str, rows: list[tuple[str, str]]) -> None:
    """Print a small table."""
    print(f"\n{title}")
    width = max(len(left) for left, _ in rows) + 2
    for left, right in rows:
        print(f"  {left:<{width}}{right}")
