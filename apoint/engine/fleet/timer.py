"""Timings of the recipes of a fleet: each is measured once, in a time bounded by what there is to do."""

from __future__ import annotations

from collections.abc import Sequence

from apoint.engine.api import Options
from apoint.engine.fleet.choose import START_SECONDS, Work
from apoint.engine.fleet.probe import MOST_STACKED, Timing, time_alone, time_stacked
from apoint.engine.fleet.task import Task

STACKED_SECONDS = 1.2  # at most, for the stacks of all recipes together
STACKED_SHARE = 0.03  # of the work predicted
LONG_SECONDS, LONG_WORK = 2.5, 600.0  # where there is work for so long, more of it
LEAST_SECONDS = 0.05  # a stack that can be watched for less is not worth trying


class Timer:
    """Times recipes and remembers.

    Args:
        options: How replicas would be trained.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._timings: dict[str, Timing] = {}
        self._tried: set[str] = set()

    def work(self, tasks: Sequence[Task], stacked: bool, start_seconds: float | None) -> Work:
        """What there is to do, with the timings of all recipes.

        Args:
            tasks: What is to be trained.
            stacked: Whether stacks are to be considered.
            start_seconds: How long workers take to start: None if nobody knows yet.
        """
        recipes: dict[str, list[Task]] = {}
        for task in tasks:
            recipes.setdefault(task.recipe.fingerprint, []).append(task)
        for fingerprint, same in recipes.items():
            if fingerprint not in self._timings:
                share = 1 / len(recipes)
                self._timings[fingerprint] = time_alone(same[0], self._options, share, len(same))
        if stacked:
            self._time_stacks(recipes)
        counted = [(self._timings[fingerprint], len(same)) for fingerprint, same in recipes.items()]
        return Work(counted, START_SECONDS if start_seconds is None else start_seconds)

    def seconds(self, task: Task) -> float | None:
        """What a replica takes alone, if it was measured."""
        timing = self._timings.get(task.recipe.fingerprint)
        return timing.alone if timing else None

    def _time_stacks(self, recipes: dict[str, list[Task]]) -> None:
        whole = sum(self._timings[fingerprint].alone * len(same) for fingerprint, same in recipes.items())
        most = LONG_SECONDS if whole > LONG_WORK else STACKED_SECONDS
        allowed = min(most, STACKED_SHARE * whole) / len(recipes)
        for fingerprint, same in recipes.items():
            if len(same) > 1 and fingerprint not in self._tried and allowed >= LEAST_SECONDS:
                self._tried.add(fingerprint)
                self._time_stack(fingerprint, same, allowed)

    def _time_stack(self, fingerprint: str, tasks: Sequence[Task], allowed: float) -> None:
        """Measure two sizes, as large as fit into the time."""
        timing = self._timings[fingerprint]
        most = min(MOST_STACKED, len(tasks))
        largest = max((size for size in range(2, most + 1) if cost(timing, size) < allowed), default=0)
        for size in sorted({max(2, largest // 4), largest} if largest else ()):
            if not timing.refusal:
                timing = time_stacked(timing, tasks[:size], self._options, allowed / 4)
        self._timings[fingerprint] = timing


def cost(timing: Timing, size: int) -> float:
    """What trying a stack costs at most: building it, a rehearsal of it and of two replicas, two steps."""
    return size * timing.building_seconds + (3 * size + 2) * timing.step_seconds
