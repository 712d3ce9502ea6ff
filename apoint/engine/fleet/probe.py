"""Time a recipe: a few steps alone, a few steps stacked, one evaluation; the rest is calculated.

Nothing is left where the user's runs are, and the time spent is a small share of the work to come.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from apoint.engine.api import Options, Session
from apoint.engine.arithmetic import exact_arithmetic
from apoint.engine.fleet.machine import forget_peak, resident_memory
from apoint.engine.fleet.task import Task, silent
from apoint.engine.measure import evaluate
from apoint.engine.replica import Replica, borrowed_randomness, rehearse
from apoint.engine.step import training_step
from apoint.errors import ApointError, DivergedError
from apoint.store import write_atomically

Clock = Callable[[], float]
ALONE_SECONDS = 0.5  # at most, for the steps of all recipes together
ALONE_SHARE = 0.02  # of the predicted work
EVALUATION_SECONDS = 0.2
MOST_STEPS = 50
WARM_SECONDS = 0.3  # a step that takes longer is not much slower the first time
READ_SECONDS = 1.5  # the first build may take this long because it reads the data, which happens once
SHORT_SECONDS = 1.5  # shorter work is not worth more than a few steps of probing
SYNCS_OF_A_RUN, SYNCS_OF_AN_EVALUATION, SYNC_SECONDS = 30, 2, 0.003
MOST_STACKED = 32
ON_TRIAL = 2  # first steps of a stack, which are recorded and compared and so slower than the rest


@dataclass(frozen=True)
class Timing:
    """What a replica of a recipe costs on one core.

    Attributes:
        step_seconds: One step.
        evaluation_seconds: One evaluation of all splits that are evaluated, until its numbers are on disk.
        building_seconds: Building it.
        sync_seconds: The time the disk takes to make a small file durable.
        total_steps: Its number of steps.
        evaluations: How often it is evaluated.
        memory_bytes: The memory it needs in addition to the process.
        stacked_bytes: The memory that each replica of a stack needs.
        stacked: Seconds of one step by the number of replicas in one computation, as far as measured.
        evaluated: Seconds of one evaluation of such a stack, likewise.
        refusal: Why it cannot be stacked; empty if it can, or if it was not tried.
    """

    step_seconds: float
    evaluation_seconds: float
    building_seconds: float
    sync_seconds: float
    total_steps: int
    evaluations: int
    memory_bytes: int
    stacked_bytes: int = 0
    stacked: Mapping[int, float] = field(default_factory=dict)
    evaluated: Mapping[int, float] = field(default_factory=dict)
    refusal: str = ""

    @property
    def opening_seconds(self) -> float:
        """Seconds to build it, its folder and its last checkpoint."""
        return self.building_seconds + SYNCS_OF_A_RUN * self.sync_seconds

    @property
    def alone(self) -> float:
        """Seconds to train one replica."""
        steps = self.total_steps * self.step_seconds
        return self.opening_seconds + steps + self.evaluations * self.evaluation_seconds

    def together(self, size: int) -> float:
        """Seconds to train a stack; sizes between measured ones are interpolated linearly."""
        step = along({1: self.step_seconds, **self.stacked}, size)
        evaluation = along({1: self.evaluation_seconds, **self.evaluated}, size)
        return size * self.opening_seconds + self.total_steps * step + self.evaluations * evaluation


def along(points: Mapping[int, float], size: int) -> float:
    """The value at a size, interpolated linearly between points; beyond them, along the last segment.

    With one point, the value is proportional to the size.
    """
    known = sorted(points.items())
    highest = itertools.accumulate((value for _, value in known), max)  # more replicas never take less
    known = [(place, value) for (place, _), value in zip(known, highest, strict=True)]
    pairs = list(itertools.pairwise(known if len(known) > 1 else [(0, 0.0), *known]))
    (low, at_low), (high, at_high) = next((pair for pair in pairs if size <= pair[1][0]), pairs[-1])
    return at_low + (at_high - at_low) * (size - low) / (high - low)


def time_alone(task: Task, options: Options, share_of_time: float, replicas: int) -> Timing:
    """Time a replica of a recipe trained alone.

    Args:
        task: One of its replicas.
        options: How it would be trained.
        share_of_time: The share of the probe's time that this recipe may use.
        replicas: How many there will be, which bounds the time worth spending.
    """
    from apoint.engine.stacked import predicted_memory

    session = Session(task.recipe, task.document, task.seed, options, silent)
    clock = clock_of(session.device)
    with exact_arithmetic(session.threads, session.device), borrowed_randomness(0):
        before = resident_memory()[0]
        forget_peak()
        replica, building = _built(session, clock)
        total = replica.horizon.total_steps
        limit = ALONE_SECONDS * share_of_time
        step = _step_seconds(replica, limit, ALONE_SHARE * replicas * total, clock)
        every = max(1, round(task.recipe.evaluate_every.as_steps(replica.horizon)))
        evaluations = math.ceil(total / every)
        guess = building + (SYNCS_OF_A_RUN + SYNCS_OF_AN_EVALUATION * evaluations) * SYNC_SECONDS
        is_short = replicas * (total * step + guess) < SHORT_SECONDS
        sync = SYNC_SECONDS if is_short else sync_seconds(options.root)
        evaluation = 0.0 if is_short else _evaluation_seconds(replica, step, clock)
        memory = max(predicted_memory(replica, 1), resident_memory()[1] - before)
    return Timing(
        step_seconds=step,
        evaluation_seconds=evaluation + SYNCS_OF_AN_EVALUATION * sync,
        building_seconds=building,
        sync_seconds=sync,
        total_steps=total,
        evaluations=evaluations,
        memory_bytes=memory,
    )


def clock_of(device: torch.device) -> Clock:
    """The clock to time with: on CPU the process time, which other processes do not lengthen."""
    return time.process_time if device.type == "cpu" else time.perf_counter


def _built(session: Session, clock: Clock) -> tuple[Replica, float]:
    """The replica, and the seconds that building it takes once everything it needs is imported and read."""
    seconds: list[float] = []
    while not seconds or (len(seconds) < 2 and seconds[0] < READ_SECONDS):
        begin = clock()
        replica = session.assemble()
        rehearse(replica)
        seconds.append(clock() - begin)
    return replica, min(seconds)


def _step_seconds(replica: Replica, limit: float, share_of_steps: float, clock: Clock) -> float:
    """Median time of the steps that fit into `limit`, or into the time of `share_of_steps` steps if less."""

    def step(number: int) -> bool:
        try:
            training_step(replica, number)
        except DivergedError:
            return False
        return True

    most = replica.horizon.total_steps
    first = timed_steps(step, most, 0.0, clock)
    if not first:
        return 0.0
    rest = timed_steps(step, most, min(limit, share_of_steps * first[-1]), clock)
    return statistics.median(rest or first)


def timed_steps(
    step: Callable[[int], bool], most: int, seconds: float, clock: Clock, least: int = 3
) -> list[float]:
    """The seconds of each step, made one after another until the time is up or a step fails.

    At least `least` steps are made even if the time is up, unless they are slow.
    """
    times: list[float] = []
    for number in range(min(MOST_STEPS, most)):
        begin = clock()
        if not step(number):
            break
        times.append(clock() - begin)
        spent = sum(times)
        if spent > seconds and (len(times) >= least or spent > WARM_SECONDS):
            break
    return times


def _evaluation_seconds(replica: Replica, step_seconds: float, clock: Clock) -> float:
    """Seconds of one evaluation, extrapolated from a part of each split that is evaluated."""
    per_example = step_seconds / replica.recipe.batch_size / 2  # forward pass only; to bound the part
    rows = max(16, min(512, int(EVALUATION_SECONDS / max(per_example, 1e-9))))
    seconds = 0.0
    for name, split in replica.data.splits.items():
        if name == "train":
            continue
        part = split.take(slice(0, rows))
        begin = clock()
        prepare, task = replica.stream.prepare, replica.data.facts.task
        evaluate(replica.model, part, task, replica.loss, prepare, replica.device)
        seconds += (clock() - begin) * len(split) / len(part)
    return seconds * (2 if replica.recipe.average else 1)


def sync_seconds(root: Path) -> float:
    """How long the disk below `root` takes to make a small file durable."""
    place = next(folder for folder in (root.absolute(), *root.absolute().parents) if folder.is_dir())
    times = []
    with contextlib.suppress(OSError, ApointError), tempfile.TemporaryDirectory(dir=place) as folder:
        for number in range(3):
            begin = time.perf_counter()
            write_atomically(Path(folder) / str(number), "x" * 256)  # which syncs the file and its folder
            times.append((time.perf_counter() - begin) / 2)
    return statistics.median(times or [0.0])


def time_stacked(timing: Timing, tasks: Sequence[Task], options: Options, seconds: float) -> Timing:
    """Add to a timing the seconds of tasks stacked in one computation, or why they cannot be stacked.

    Args:
        timing: What is known about the recipe.
        tasks: The replicas, all of this recipe.
        options: How they would be trained.
        seconds: How long to make steps at most, once the replicas are built.
    """
    from apoint.engine import stacked

    stacked.keep_freed_memory()
    sessions = [Session(task.recipe, task.document, task.seed, options, silent) for task in tasks]
    clock = clock_of(sessions[0].device)
    with exact_arithmetic(1, sessions[0].device), borrowed_randomness(0):
        try:
            stack = stacked.Stack([session.assemble() for session in sessions])
        except stacked.CannotStackError as error:
            return replace(timing, refusal=error.reason)
        memory = stacked.predicted_memory(stack.replicas[0], 1)

        def step(number: int) -> bool:
            return not stacked.stacked_step(stack, number).failures

        times = timed_steps(step, timing.total_steps, seconds, clock, ON_TRIAL + 2)
        evaluation = _stacked_evaluation(stack, timing, seconds, clock) if stack.replicas else None
    size = len(tasks)
    if times:
        middle = statistics.median(times[ON_TRIAL:] or times[-1:])
        timing = replace(timing, stacked=_lower(timing.stacked, size, middle), stacked_bytes=memory)
    if evaluation is not None:
        timing = replace(timing, evaluated=_lower(timing.evaluated, size, evaluation))
    return timing


def _lower(known: Mapping[int, float], size: int, seconds: float) -> dict[int, float]:
    """Add a measurement to the known ones; the lowest per size counts."""
    return {**known, size: min(seconds, known.get(size, seconds))}


def _stacked_evaluation(stack: Any, timing: Timing, seconds: float, clock: Clock) -> float | None:
    """Seconds of one evaluation of a stack; None if it is not expected to fit into the time."""
    from apoint.engine.stacked import stacked_evaluate

    sync = SYNCS_OF_AN_EVALUATION * timing.sync_seconds
    if stack.num_replicas * (timing.evaluation_seconds - sync) > seconds:
        return None
    begin = clock()
    for name in stack.replicas[0].data.splits:
        if name != "train":
            stacked_evaluate(stack, name)
    spent = (clock() - begin) * (2 if stack.average is not None else 1)
    return spent + float(stack.num_replicas) * sync
