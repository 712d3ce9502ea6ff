"""Timings of the recipes of a fleet: each is measured once, in a time bounded by the work to do."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from apoint.engine.api import Options
from apoint.engine.fleet.choose import COMPANY, START_SECONDS, Work, default_stack
from apoint.engine.fleet.probe import Timing, time_alone, time_stacked
from apoint.engine.fleet.task import Task
from apoint.recipe import Recipe

STACKED_SECONDS = 1.2  # at most, for the stacks of all recipes together
STACKED_SHARE = 0.03  # of the predicted work
LONG_SECONDS, LONG_WORK = 2.5, 600.0  # the higher limit, where there is this much work
SHORT_STARTS = 10  # stacks may be this many times as fast as one replica after another
SURE_SECONDS = 120.0
"""Work this long is shared among processes in any case, so they may start while it is measured. That disturbs
the measurements, so they are made twice in turn, and the better one counts."""
HEAVY_SECONDS, HEAVY_STEP = 8.0, 0.002
"""So is work as long as several worker starts, if its steps are heavy: a stack saves little there, since it
saves Python and not arithmetic, and would have to save more than all other processors together could do."""
LEAST_SECONDS = 0.05  # a stack that can be measured for less is not worth trying


class Timer:
    """Times recipes and remembers the results.

    Args:
        options: How replicas would be trained.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._timings: dict[str, Timing] = {}
        self._tried: set[str] = set()
        self._kinds: dict[int, tuple[Recipe, str]] = {}

    def work(
        self, tasks: Sequence[Task], stacked: bool, start_seconds: float | None, workers: int = 1
    ) -> Work:
        """The work to do, with the timings of all recipes.

        Args:
            tasks: The tasks to train.
            stacked: Whether to consider stacks.
            start_seconds: How long workers take to start; None if unknown.
            workers: How many processes may share the work, which determines the likely stack sizes.
        """
        recipes: dict[str, list[Task]] = {}
        for task in tasks:
            recipes.setdefault(task.recipe.fingerprint, []).append(task)
        kinds = {fingerprint: self._kind(same[0]) for fingerprint, same in recipes.items()}
        largest = {kinds[name]: same for name, same in sorted(recipes.items(), key=lambda item: len(item[1]))}
        for kind, same in largest.items():
            if kind not in self._timings:
                self._timings[kind] = time_alone(same[0], self._options, 1 / len(largest), len(same))
        counted = [(kinds[name], len(same)) for name, same in recipes.items()]
        start = START_SECONDS if start_seconds is None else start_seconds
        if stacked:
            whole = sum(self._timings[kind].alone * number for kind, number in counted)
            self._time_stacks(largest, whole, workers, start)
        return Work([(self._timings[kind], number) for kind, number in counted], start)

    def seconds(self, task: Task) -> float | None:
        """Seconds to train a replica alone, if measured."""
        timing = self._timings.get(self._kind(task))
        return timing.alone if timing else None

    def is_sure_of_workers(self, work: Work) -> bool:
        """Whether work will be shared among processes regardless of further measurements."""
        whole = sum(timing.alone * number for timing, number in work.recipes)
        is_heavy = all(timing.step_seconds > HEAVY_STEP for timing, _ in work.recipes)
        return whole > (HEAVY_SECONDS if is_heavy else SURE_SECONDS)

    def _kind(self, task: Task) -> str:
        """What recipes that take equally long have in common: all but the numbers of the optimizer.

        Whether such a number is 0 makes a difference, since much is then left out.
        """
        recipe = task.recipe
        if id(recipe) not in self._kinds:
            values = recipe.canonical()
            settings = values["optimizer"].items()
            signs = {name: bool(value) if isinstance(value, float) else value for name, value in settings}
            text = json.dumps({**values, "optimizer": signs}, sort_keys=True)
            self._kinds[id(recipe)] = recipe, text  # keeps the recipe alive, so that no other gets its id
        return self._kinds[id(recipe)][1]

    def _time_stacks(self, kinds: dict[str, list[Task]], whole: float, workers: int, start: float) -> None:
        most = LONG_SECONDS if whole > LONG_WORK else STACKED_SECONDS
        allowed = min(most, STACKED_SHARE * whole) / len(kinds)
        rounds = 2 if whole > SURE_SECONDS else 1
        for kind, same in kinds.items():
            if len(same) > 1 and kind not in self._tried and allowed >= LEAST_SECONDS:
                self._tried.add(kind)
                likely = likely_sizes(len(same), workers)
                if self._timings[kind].alone * len(same) < SHORT_STARTS * start:
                    likely.sort()  # the smallest is the cheapest to try and may show enough
                self._time_stack(kind, same, allowed, likely, rounds, _too_soon(start, workers) / len(kinds))

    def _time_stack(
        self,
        kind: str,
        tasks: Sequence[Task],
        allowed: float,
        likely: Sequence[int],
        rounds: int,
        too_soon: float,
    ) -> None:
        """Measure as many of the sizes that may be used as fit into the time; else the largest that fits.

        Measuring stops once some stacks turn out to finish too soon for workers to be worth starting: then
        there is little left to gain.

        A size between two measured ones is interpolated linearly, but the cost of a stack is not linear: it
        falls until the processor's cache is full and then rises. So the sizes that will be used are measured.
        """
        timing = self._timings[kind]
        fitting = [size for size in likely if cost(timing, size) < allowed]
        smaller = [size for size in range(2, min(likely, default=1)) if cost(timing, size) < allowed]
        sizes, left = fitting or smaller[-1:], allowed
        for size in sizes * rounds:
            if any(timing.together(known) * len(tasks) / known < too_soon for known in timing.stacked):
                break
            if not timing.refusal and cost(timing, size) < left:
                begin = time.perf_counter()
                timing = time_stacked(timing, tasks[:size], self._options, allowed / (2 * len(sizes)))
                left -= time.perf_counter() - begin
        self._timings[kind] = timing


def _too_soon(start: float, workers: int) -> float:
    """How long work must take here for workers to finish sooner: t = start + COMPANY * t / workers."""
    return start / (1 - COMPANY / workers) if workers > COMPANY else start


def likely_sizes(replicas: int, workers: int) -> list[int]:
    """Stack sizes worth considering, the likeliest first: divided among all workers, or in one stack."""
    shares = (workers, 2 * workers, 1, 2)
    return [size for size in dict.fromkeys(default_stack(replicas, share) for share in shares) if size > 1]


def cost(timing: Timing, size: int) -> float:
    """The maximum cost of trying a stack: building it, a rehearsal of it and of two replicas, two steps."""
    return size * timing.building_seconds + (3 * size + 2) * timing.step_seconds
