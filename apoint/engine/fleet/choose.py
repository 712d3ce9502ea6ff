"""The fastest way to train a fleet, predicted from timings of its recipes and reported with the numbers."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from apoint.engine.fleet.groups import even_sizes
from apoint.engine.fleet.probe import MOST_STACKED, Timing

START_SECONDS = 2.0  # until a worker is ready, if not measured yet: 1.8 s of imports
WORKER_BYTES = 230 * 2**20  # a worker's own memory before it trains anything
COMPANY = 1.1  # how much slower a core is while the others are busy too
WORTH = 0.95  # a more complex way must be this much faster
WIDER = 0.98  # and a larger stack this much, since it needs more of the shared cache
ORDER = ("loop", "stacked", "pool", "pool+stacked")


@dataclass(frozen=True)
class ExecutionPlan:
    """A backend with its worker count and stack size.

    Attributes:
        backend: `loop`, `stacked`, `pool`, `pool+stacked` or `ray`.
        workers: How many processes train.
        stack: The maximum number of replicas in one computation.
    """

    backend: str
    workers: int = 1
    stack: int = 1

    @property
    def has_processes(self) -> bool:
        """Whether it trains in separate processes."""
        return self.backend not in ("loop", "stacked")

    def __str__(self) -> str:
        if self.backend == "loop":
            return "loop"
        parts = [f"{self.backend.split('+')[0]} of {self.workers}"] if self.has_processes else []
        if self.backend == "ray":
            parts = ["ray"]
        return ", ".join([*parts, f"stacked by {self.stack}"] if self.stack > 1 else parts) or self.backend


@dataclass(frozen=True)
class Prediction:
    """What training some tasks will cost.

    Attributes:
        backend: How they will be trained.
        workers: In how many processes.
        stack: The maximum number of replicas in one computation.
        seconds: How long it will take.
        memory_bytes: How much memory, all processes together.
        sentence: All of this in one sentence.
        per_backend: The seconds of each way that was considered.
    """

    backend: str
    workers: int
    stack: int
    seconds: float
    memory_bytes: int
    sentence: str
    per_backend: Mapping[str, float] = field(default_factory=dict)

    @property
    def way(self) -> ExecutionPlan:
        """The backend with its worker count and stack size."""
        return ExecutionPlan(self.backend, self.workers, self.stack)


@dataclass(frozen=True)
class Work:
    """The work to do: how many replicas of each recipe, with its timing."""

    recipes: Sequence[tuple[Timing, int]]
    start_seconds: float = START_SECONDS

    @property
    def replicas(self) -> int:
        """The total number of replicas."""
        return sum(number for _, number in self.recipes)

    @property
    def stackable(self) -> bool:
        """Whether every recipe can be stacked, as far as this was tried."""
        return all(timing.stacked or number == 1 for timing, number in self.recipes)

    @property
    def refusal(self) -> str:
        """Why a recipe cannot be stacked; empty if all can, or if it was not tried."""
        return next((timing.refusal for timing, _ in self.recipes if timing.refusal), "")

    def groups(self, stack: int) -> list[float]:
        """The seconds of each group."""
        if stack == 1:
            return [timing.alone for timing, number in self.recipes for _ in range(number)]
        return [
            timing.together(size) if size > 1 else timing.alone
            for timing, number in self.recipes
            for size in even_sizes(number, stack)
        ]

    def seconds(self, way: ExecutionPlan) -> float:
        """How long a way will take."""
        groups = self.groups(way.stack)
        if not way.has_processes:
            return sum(groups)
        workers = min(way.workers, len(groups))
        return self.start_seconds + makespan(groups, workers) * (COMPANY if workers > 1 else 1.0)

    def memory(self, way: ExecutionPlan) -> int:
        """How much memory a way will need."""
        largest = max(timing.memory_bytes for timing, _ in self.recipes)
        if way.stack > 1:
            largest = max(largest, max(timing.stacked_bytes for timing, _ in self.recipes) * way.stack)
        if not way.has_processes:
            return largest
        return min(way.workers, len(self.groups(way.stack))) * (largest + WORKER_BYTES)


def makespan(durations: Iterable[float], workers: int) -> float:
    """When the last job ends if each goes, in this order, to the first free worker."""
    free = [0.0] * workers
    for duration in durations:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


def ways(work: Work, backend: str, workers: int, stack: int | None) -> list[ExecutionPlan]:
    """The ways to consider, the simplest first.

    Args:
        work: The work to do.
        backend: `auto`, or the one that the user chose.
        workers: The maximum number of processes.
        stack: The stack size that the user chose, or None.
    """
    here = [stack] if stack else stack_sizes(work, 1)
    shared = [stack] if stack else stack_sizes(work, workers)
    all_ways = [
        ExecutionPlan("loop"),
        *(ExecutionPlan("stacked", 1, size) for size in here),
        ExecutionPlan("pool", workers),
        *(ExecutionPlan("pool+stacked", workers, size) for size in shared),
        ExecutionPlan("ray", workers, stack or 1),
    ]
    if backend != "auto":
        return [way for way in all_ways if way.backend == backend]
    return [way for way in all_ways if way.backend in ORDER and _is_open(way, work)]


def _is_open(way: ExecutionPlan, work: Work) -> bool:
    """Whether to consider a way: whether it is possible and useful."""
    if "stacked" in way.backend and (way.stack == 1 or not work.stackable):
        return False
    return not way.has_processes or (way.workers > 1 and work.replicas > 1)


def stack_sizes(work: Work, workers: int) -> list[int]:
    """Stack sizes worth considering: all of a recipe's replicas at once, or divided evenly.

    Several recipes keep several workers busy even if each is one stack.
    """
    most = max(number for _, number in work.recipes)
    each = math.ceil(workers / len(work.recipes))  # the workers for one recipe, used if few
    shares = {workers, 2 * workers, *([each] if each <= 2 else [])}
    sizes = {default_stack(most, share) for share in shares}
    return sorted(size for size in sizes if size > 1) or [2]


def default_stack(replicas: int, workers: int) -> int:
    """The stack size that gives each worker one stack, up to a limit."""
    return min(MOST_STACKED, math.ceil(replicas / workers))


def choose(
    work: Work, considered: Sequence[ExecutionPlan], available_bytes: int | None, asked: bool = False
) -> Prediction:
    """The fastest way that fits into memory, with a sentence that explains it.

    Args:
        work: The work to do.
        considered: The ways to choose from, the simplest first.
        available_bytes: The available memory; None if unknown.
        asked: Whether the user chose the backend.
    """
    fitting, shortage = _within_memory(work, considered, available_bytes)
    seconds = {way: work.seconds(way) for way in fitting}
    best = fitting[0]
    for way in fitting[1:]:
        if seconds[way] < seconds[best] * (WIDER if way.backend == best.backend else WORTH):
            best = way
    return Prediction(
        backend=best.backend,
        workers=best.workers,
        stack=best.stack,
        seconds=seconds[best],
        memory_bytes=work.memory(best),
        sentence=_sentence(work, best, seconds, asked, shortage),
        per_backend={str(way): value for way, value in seconds.items()},
    )


def _within_memory(
    work: Work, considered: Sequence[ExecutionPlan], available: int | None
) -> tuple[list[ExecutionPlan], str]:
    """The ways that fit into memory, with fewer workers where needed, and a note about the shortage."""
    if available is None:
        return list(considered), ""
    fitting, shortage = [], ""
    for way in considered:
        smaller = way
        while work.memory(smaller) > available and smaller.workers > 1:
            smaller = ExecutionPlan(way.backend, smaller.workers - 1, way.stack)
        if work.memory(smaller) <= available:
            fitting.append(smaller)
        if smaller != way:
            shortage = (
                f"{way} would need {gigabytes(work.memory(way))} of the {gigabytes(available)} there are"
            )
    return fitting or [considered[0]], shortage


def _sentence(
    work: Work, best: ExecutionPlan, seconds: Mapping[ExecutionPlan, float], asked: bool, shortage: str
) -> str:
    replicas = f"{work.replicas} replica{'s' if work.replicas > 1 else ''}"
    takes = f"{replicas} will take about {format_duration(seconds[best])}"
    reason = f"as asked: {takes}" if asked else f"because {takes} that way{_others(best, seconds)}"
    notes = [f"{gigabytes(work.memory(best))} of memory"]
    notes += [f"not stacked, since {work.refusal}"] if work.refusal and not asked else []
    notes += [shortage] if shortage else []
    return f"fleet: {best}, {'; '.join([reason, *notes])}"


def _others(best: ExecutionPlan, seconds: Mapping[ExecutionPlan, float]) -> str:
    """The best way of each other backend, as part of the sentence."""
    rivals: dict[str, tuple[float, ExecutionPlan]] = {}
    for way, value in seconds.items():
        if way.backend != best.backend and value < rivals.get(way.backend, (math.inf, way))[0]:
            rivals[way.backend] = value, way
    shown = [f"{format_duration(value)} as {way}" for value, way in rivals.values()]
    return f", against {' and '.join(shown)}" if shown else ""


def format_duration(seconds: float) -> str:
    """Format a duration for display."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def gigabytes(amount: int) -> str:
    """Format an amount of memory for display."""
    return f"{amount / 1e9:.1f} GB" if amount >= 1e9 else f"{amount / 1e6:.0f} MB"
