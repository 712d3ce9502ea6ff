"""How a fleet will train: as the user asked, or in the way that a short measurement finds fastest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from apoint.engine import environment
from apoint.engine.api import Options
from apoint.engine.fleet.choose import ExecutionPlan, Prediction, choose, default_stack, ways
from apoint.engine.fleet.groups import STACKS, compose, place_of
from apoint.engine.fleet.machine import available_memory
from apoint.engine.fleet.probe import MOST_STACKED
from apoint.engine.fleet.recall import Recall
from apoint.engine.fleet.task import Task, silent
from apoint.engine.fleet.timer import Timer
from apoint.errors import UsageError


class Planner:
    """Decides how to train.

    Args:
        options: How each replica is trained.
        backend: `auto`, or the one that the user chose.
        workers: The maximum number of processes.
        stack: The stack size that the user chose, or None.
    """

    def __init__(self, options: Options, backend: str, workers: int, stack: int | None) -> None:
        self.options, self.backend, self.workers, self.stack = options, backend, workers, stack
        self.timer = Timer(options)
        self.settled: tuple[ExecutionPlan, str] | None = None

    def decide(
        self,
        tasks: Sequence[Task],
        missing: Sequence[Task],
        start: float | None,
        begin: Callable[[int], None] = silent,
    ) -> tuple[ExecutionPlan, str]:
        """The way to train, and a sentence that explains it; nothing is measured if the user chose the way.

        Args:
            tasks: All tasks of the call.
            missing: Those that have no result yet.
            start: Seconds until workers are ready; None if unknown.
            begin: Called with the number of workers as soon as it is likely that there will be any.
        """
        if self.settled is not None:
            return self.settled
        if self.backend == "auto":
            return self._automatic(tasks, missing, start, begin)
        way = ExecutionPlan(self.backend, self.workers, self._stack(tasks))
        if way.has_processes:
            refuse_script(missing)
        return way, f"fleet: {way}, as asked"

    def _automatic(
        self,
        tasks: Sequence[Task],
        missing: Sequence[Task],
        start: float | None,
        begin: Callable[[int], None],
    ) -> tuple[ExecutionPlan, str]:
        begun = self.stack is None and self._begun_stack(tasks)
        if begun:
            way = ExecutionPlan("stacked", 1, begun)
            if len(compose(missing, begun)) > 1 and self._workers(missing) > 1:
                way = ExecutionPlan("pool+stacked", self.workers, begun)
            return way, f"fleet: {way}, to resume what was interrupted"
        if len(missing) == 1:
            return ExecutionPlan("loop"), "fleet: loop, because there is one replica to train"
        prediction = self.predict(missing, start, begin)
        return prediction.way, prediction.sentence

    def _stack(self, tasks: Sequence[Task]) -> int:
        """The stack size, from all tasks: those with a result count too, so that it stays the same."""
        if "stacked" not in self.backend:
            return self.stack or 1 if self.backend == "ray" else 1
        most = max(Counter(task.recipe.fingerprint for task in tasks).values())
        return self.stack or default_stack(most, self.workers if self.backend == "pool+stacked" else 1)

    def predict(
        self, missing: Sequence[Task], start: float | None, begin: Callable[[int], None] = silent
    ) -> Prediction:
        """Predict what training costs by timing a few steps."""
        stacks = "stacked" in self.backend or (self.backend == "auto" and self.stack != 1)
        workers = self._workers(missing)
        may_begin = self.backend == "auto" and workers > 1 and len(missing) > workers
        if may_begin:
            alone = self.timer.work(missing, False, start)
            fits = alone.memory(ExecutionPlan("pool", workers)) < (available_memory() or 0)
            if fits and self.timer.is_sure_of_workers(alone):
                begin(workers)
        work = self.timer.work(missing, stacks and len(missing) > 1, start, workers)
        considered = ways(work, self.backend, workers, self.stack)
        prediction = choose(work, considered, available_memory(), asked=self.backend != "auto")
        if may_begin and prediction.way.has_processes:
            begin(prediction.workers)
        return prediction

    def _workers(self, missing: Sequence[Task]) -> int:
        """How many processes to consider: one if replicas cannot leave this process, or share a device."""
        on_processor = environment.choose_device(self.options.device).type == "cpu"
        is_bound = not on_processor or script_ingredient(missing) is not None
        return 1 if self.backend == "auto" and is_bound else self.workers

    def _begun_stack(self, tasks: Sequence[Task]) -> int | None:
        """The size of the stacks that an interrupted fleet left for these tasks, to resume them."""
        if not (self.options.root / STACKS).is_dir():
            return None
        recall = Recall(self.options)
        keys = {id(task): recall.key(task) for task in tasks}
        for size in range(2, MOST_STACKED + 1):
            stacks = [group for group in compose(tasks, size) if len(group) > 1]
            places = (place_of(self.options.root, (keys[id(task)] for task in group)) for group in stacks)
            if any(place.is_dir() for place in places):
                return size
        return None


def script_ingredient(tasks: Sequence[Task]) -> str | None:
    """The name of a recipe that uses an ingredient registered by the running script itself, if any."""
    for recipe in {id(task.recipe): task.recipe for task in tasks}.values():
        if "__main__" in environment.foreign_modules(recipe.canonical()):
            return recipe.name
    return None


def refuse_script(tasks: Sequence[Task]) -> None:
    """Refuse to send ingredients of the running script to other processes, which do not have it."""
    name = script_ingredient(tasks)
    if name is not None:
        raise UsageError(
            f"recipe {name!r} uses an ingredient that the running script registers, and worker processes do "
            "not run the script; put it into a file of its own and name that with --use, or train with "
            "--engine loop"
        )
