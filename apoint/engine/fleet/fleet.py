"""The fleet: reuse the replicas that exist, and train the rest in the fastest way."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from apoint.data.loading import DatasetCache, use_dataset_cache
from apoint.engine import custom
from apoint.engine.api import Options
from apoint.engine.fleet.backend import Backend
from apoint.engine.fleet.call import Call
from apoint.engine.fleet.choose import ExecutionPlan, Prediction
from apoint.engine.fleet.dispatch import Dispatch
from apoint.engine.fleet.groups import compose, place_of
from apoint.engine.fleet.in_process import InProcessBackend
from apoint.engine.fleet.machine import cores
from apoint.engine.fleet.planner import Planner
from apoint.engine.fleet.pool import Pool
from apoint.engine.fleet.recall import Recall, is_begun_alone
from apoint.engine.fleet.task import Ended, FleetMoment, Group, Task, silent
from apoint.engine.fleet.work import Stacker
from apoint.engine.signals import StopRequest, TrainingInterruptedError, listening
from apoint.errors import UnknownNameError, UsageError

BACKENDS = ("auto", "loop", "pool", "stacked", "pool+stacked", "ray")


class Fleet:
    """Trains many replicas; use it in a `with` statement, so that its processes end with it.

    Args:
        options: How to train each replica; always with one thread, so that every backend gives the same bits.
        backend: `loop`, `pool`, `stacked`, `pool+stacked`, `ray`, or `auto`: the fastest.
        workers: How many processes; by default one per core.
        stack: The maximum number of replicas in one computation; by default chosen for the number of tasks.
        say: Called with messages for the user, each once.
        watch: Called with the state of the fleet, at most a few times a second.
        files: The user's Python files that register ingredients; the workers run them too.
        stacker: Trains several sessions in one computation; by default `apoint.engine.stacked`'s.
        **cluster: Settings of the backend `ray`.

    Attributes:
        sentence: How replicas were last trained, and why.
    """

    def __init__(
        self,
        options: Options | None = None,
        backend: str = "auto",
        workers: int | None = None,
        stack: int | None = None,
        say: Callable[[str], None] = silent,
        watch: Callable[[FleetMoment], None] = silent,
        files: Sequence[str | Path] = (),
        stacker: Stacker | None = None,
        **cluster: Any,
    ) -> None:
        options = options or Options()
        cluster = {name: value for name, value in cluster.items() if value not in (None, False)}
        _check(options, backend, workers, stack, cluster)
        self.options = replace(options, threads=1, fresh=False)
        self.backend, self.stack, self.workers = backend, stack, workers or cores()
        self.sentence = ""
        self._fresh, self._begun = options.fresh, set[Path]()
        self._files = tuple(str(custom.locate(str(file), Path.cwd())) for file in files)
        self._say, self._watch, self._said = say, watch, set[str]()
        self._stacker, self._cluster_settings, self._asked_workers = stacker, cluster, workers
        self._kept = DatasetCache()
        self._planner = Planner(self.options, backend, self.workers, stack)
        self._pool: Pool | None = None
        self._cluster: Backend | None = None
        self._number = 0

    @property
    def width(self) -> int:
        """About how many replicas are in training at a time; it does not depend on measurements."""
        processes = 1 if self.backend in ("loop", "stacked") else self.workers
        return processes * ((self.stack or 8) if "stacked" in self.backend else 1)

    @property
    def processes(self) -> list[int]:
        """The process ids of the current worker processes."""
        return self._pool.processes if self._pool else []

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the fleet's processes; they restart if the fleet is used again."""
        for backend in (self._pool, self._cluster):
            if backend is not None:
                backend.stop()

    def use_dataset_cache(self) -> contextlib.AbstractContextManager[DatasetCache]:
        """Inside this context, loaded data is the data that the fleet trains on, so that it is read once."""
        return use_dataset_cache(self._kept)

    def settle(self, way: ExecutionPlan, sentence: str) -> None:
        """Train in this way from now on, regardless of later measurements.

        What was begun in one way then continues in the same way, bit for bit, even after an interruption.
        """
        self.backend, self.workers = way.backend, way.workers
        self.stack = way.stack if "stacked" in way.backend else None
        self._planner.settled = way, sentence

    # -- training ------------------------------------------------------------------------------------------

    def train(self, tasks: Iterable[Task], on_end: Callable[[Ended], None] | None = None) -> list[Ended]:
        """Train the tasks that have no result yet; return how each task ended, in the order given.

        Every result is in its run folder as soon as it exists, so nothing is lost if this is interrupted, and
        the same call resumes from there.

        Args:
            tasks: What to train.
            on_end: Called with how a task ended, as soon as it ends.

        Raises:
            TrainingError: The code of a task raised an exception.
            FaultError: The machine failed: storage, memory, a lost process.
        """
        asked = list(tasks)
        unique = list({task.folder(self.options.root): task for task in asked}.values())
        call = Call(self.options.root, self._tell, self._watch, on_end)
        with use_dataset_cache(self._kept), listening() as stop:
            missing, busy = self._look(unique, call)
            call.begin([*missing, *busy])
            if missing or busy:
                self._train(unique, missing, busy, call, stop)
            elif not self.sentence:
                self.sentence = nothing_to_train(unique)
        call.tick(force=True)
        return [replace(call.results[task.folder(self.options.root)], task=task) for task in asked]

    def _train(
        self, unique: list[Task], missing: list[Task], busy: list[Task], call: Call, stop: StopRequest
    ) -> None:
        way = self._decide(unique, [*missing, *busy])
        call.weigh(self._planner.timer.seconds)
        groups = self._groups(unique, missing, way.stack)
        held = [self._group((task,)) for task in busy]
        dispatch = Dispatch(self._backend(way), groups, held, call, lambda tasks: self._free(tasks, call))
        signal_number = dispatch.run(stop)
        done = len(call.results)
        if done < len(unique):
            raise TrainingInterruptedError(
                signal_number or stop.signal_number,
                f"stopped with {done} of {len(unique)} replicas done; checkpoints of the others are saved, "
                "and the same command resumes from there",
            )
        _remove(group.place for group in groups if group.place)

    def plan(self, tasks: Iterable[Task], begin: bool = False) -> Prediction:
        """Predict what training these tasks costs by timing a few steps; nothing is trained or kept.

        Args:
            tasks: What would be trained.
            begin: Whether they will be trained, so that workers should start in the meantime.
        """
        unique = list({task.folder(self.options.root): task for task in tasks}.values())
        with use_dataset_cache(self._kept):
            recall = Recall(self.options)
            missing = [task for task in unique if self._fresh or not recall.standing(task).ended]
            if missing:
                on_sure = self._begin if begin else silent
                return self._planner.predict(missing, self._start_seconds(), on_sure)
        return Prediction("loop", 1, 1, 0.0, 0, nothing_to_train(unique))

    # -- existing results ----------------------------------------------------------------------------------

    def _look(self, tasks: Sequence[Task], call: Call) -> tuple[list[Task], list[Task]]:
        """Take what has ended; return the tasks to train and those that other processes are training."""
        recall = Recall(self.options)
        missing, busy = [], []
        for task in tasks:
            standing = recall.standing(task)
            folder = task.folder(self.options.root)
            anew = self._fresh and folder not in self._begun and standing.state != "new"
            if standing.state == "busy":
                busy.append(task)
                self._tell(f"{folder} is being trained by another process; waiting for it")
            elif standing.ended and not anew:
                call.take(standing.ended)
            else:
                missing.append(task)
                if standing.state == "damaged":
                    self._tell(
                        f"{folder} is damaged: {standing.differences[0]}. It is renamed to a name "
                        "that ends in .old-1 or so, and trained again"
                    )
                elif standing.differences:
                    self._tell_of_other_key(standing.differences[0])
                if standing.differences or anew:
                    recall.set_aside(task, standing)
                self._begun.add(folder)
        return missing, busy

    def _free(self, tasks: tuple[Task, ...], call: Call) -> tuple[Task, ...] | None:
        """Return the held tasks that are still to be trained; None if another process still trains any."""
        recall = Recall(self.options)
        if any(recall.standing(task).state == "busy" for task in tasks):
            return None
        missing, busy = self._look(tasks, call)  # one may have become busy since
        left = (*missing, *busy)
        call.found([task for task in tasks if task not in left])
        return left

    def _tell_of_other_key(self, difference: str) -> None:
        part = difference.split(" ", 1)[0]
        self._tell(
            f"runs under another key are renamed to names that end in .old-1 and so on, and trained again: "
            f"{difference}",
            once=f"other key: {part}",
        )

    def _tell(self, sentence: str, once: str = "") -> None:
        """Pass a message to the user, unless it was shown before."""
        if (once or sentence) not in self._said:
            self._said.add(once or sentence)
            self._say(sentence)

    # -- how to train --------------------------------------------------------------------------------------

    def _decide(self, unique: list[Task], missing: list[Task]) -> ExecutionPlan:
        way, self.sentence = self._planner.decide(unique, missing, self._start_seconds(), self._begin)
        self._tell(self.sentence, once=f"way: {way}")
        return way

    def _start_seconds(self) -> float | None:
        if self._pool is None:
            return None
        return 0.0 if self._pool.processes else self._pool.start_seconds

    def _groups(self, unique: list[Task], missing: list[Task], stack: int) -> list[Group]:
        """The missing tasks, in groups; a replica that was begun alone resumes alone."""
        recall = Recall(self.options)
        wanted = set(missing)
        groups = []
        for members in compose(unique, stack):
            present = [task for task in members if task in wanted]
            alone = [task for task in present if len(members) == 1 or is_begun_alone(recall.standing(task))]
            groups += [self._group((task,)) for task in alone]
            if together := tuple(task for task in present if task not in alone):
                place = place_of(self.options.root, map(recall.key, members))
                groups.append(self._group(together, place))
        return groups

    def _group(self, tasks: tuple[Task, ...], place: Path | None = None) -> Group:
        self._number += 1
        return Group(self._number, tasks, self.options, place)

    def _backend(self, way: ExecutionPlan) -> Backend:
        if not way.has_processes:
            self.close()
            return InProcessBackend(self._kept, self._stacker)
        if way.backend == "ray":
            from apoint.engine.fleet.ray import RayBackend

            settings = {"files": self._files, "workers": self._asked_workers, **self._cluster_settings}
            self._cluster = self._cluster or RayBackend(**settings)
            return self._cluster
        return self._pool_of(way.workers)

    def _pool_of(self, workers: int) -> Pool:
        if self._pool is None:
            self._pool = Pool(workers, self._kept, self._files, self._stacker)
        self._pool.capacity = workers
        return self._pool

    def _begin(self, workers: int) -> None:
        """Start workers before it is known whether they are the best way, since finding out takes as long."""
        self._pool_of(workers).begin()


def nothing_to_train(tasks: Sequence[Task]) -> str:
    """The message of a fleet that has nothing to do."""
    return f"fleet: nothing to train, all {len(tasks)} replicas are there already"


def _check(
    options: Options, backend: str, workers: int | None, stack: int | None, cluster: dict[str, Any]
) -> None:
    """Refuse settings that make no sense, before anything is started."""
    if backend not in BACKENDS:
        raise UnknownNameError("backend of a fleet", backend, BACKENDS)
    for name, value in (("workers", workers), ("stack", stack)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UsageError(f"{name} of a fleet must be a whole number of at least 1, got {value!r}")
    if options.threads not in (None, 1):
        raise UsageError(
            f"a fleet trains each replica with one thread, so that every backend gives the same bits; got "
            f"threads {options.threads}: leave it out, and set workers instead"
        )
    if options.inexact:
        raise UsageError(
            "a fleet takes only replicas with the same key for the same, so inexact has no meaning; leave it "
            "out"
        )
    if cluster and backend != "ray":
        raise UsageError(
            f"{next(iter(cluster))} is a setting of the backend ray, and the backend is {backend}"
        )


def _remove(places: Iterable[Path]) -> None:
    """Remove the folders that stacks kept while they trained."""
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):  # others are still there
            place.parent.rmdir()
