"""The progress of a fleet, and an estimate of the remaining time.

The time left is the work left at the speed so far. Work is counted in replicas, weighted by the cost of a
replica of the recipe where that was measured; a replica that is halfway is half done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from apoint.engine.fleet.task import FleetMoment, Task


class Tally:
    """Counts what is done.

    Args:
        tasks: The tasks to train.
        cached: How many more had a result already.
        clock: Returns the time in seconds.
    """

    def __init__(
        self, tasks: Iterable[Task], cached: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tasks = list(tasks)
        self._weights = {id(task): 1.0 for task in self._tasks}
        self._shares = dict.fromkeys(self._weights, 0.0)
        self._inherited = dict.fromkeys(self._weights, 0.0)
        self._running: set[int] = set()
        self._clock, self._begun = clock, clock()
        self._trained_from: float | None = None
        self.done = self.cached = cached
        self.total = cached + len(self._weights)
        self.failed = 0

    def weigh(self, seconds: Callable[[Task], float | None]) -> None:
        """Weight tasks by their cost, if it is known for all."""
        known = {id(task): seconds(task) for task in self._tasks}
        if all(known.values()):
            self._weights = {place: value or 1.0 for place, value in known.items()}

    def begin(self, tasks: Iterable[Task]) -> None:
        """Mark tasks as in training from now on."""
        self._running |= {id(task) for task in tasks}
        if self._trained_from is None:
            self._trained_from = self._clock()

    def pause(self, tasks: Iterable[Task]) -> None:
        """Mark tasks as no longer in training."""
        self._running -= {id(task) for task in tasks}

    def inherit(self, task: Task, share: float) -> None:
        """Set the share of a task that was done before."""
        self._shares[id(task)] = self._inherited[id(task)] = share

    def step(self, task: Task, share: float) -> None:
        """Set the share of a task that is done."""
        self._shares[id(task)] = share
        self._inherited[id(task)] = min(self._inherited[id(task)], share)

    def end(self, task: Task, failed: bool = False) -> None:
        """Mark a task as ended."""
        self.pause([task])
        self._shares[id(task)] = 1.0
        self.done += 1
        self.failed += failed

    def moment(self) -> FleetMoment:
        """The current state of the fleet."""
        whole = sum(self._weights.values())
        reached = sum(weight * self._shares[place] for place, weight in self._weights.items())
        return FleetMoment(
            done=self.done,
            total=self.total,
            cached=self.cached,
            failed=self.failed,
            running=len(self._running),
            seconds=self._clock() - self._begun,
            remaining_seconds=self._remaining(whole - reached),
            progress=reached / whole if whole else 1.0,
        )

    def _remaining(self, left: float) -> float | None:
        if self.done == self.total:
            return 0.0
        if self._trained_from is None:
            return None
        gained = sum(
            weight * (self._shares[place] - self._inherited[place]) for place, weight in self._weights.items()
        )
        spent = self._clock() - self._trained_from
        return left / gained * spent if gained > 0 else None
