"""The terms of a fleet: a task, a group of tasks, how a task ended, and the state of a fleet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from apoint.engine.api import Options, run_folder
from apoint.recipe import Document, Recipe

Outcome = Literal["finished", "diverged"]


@dataclass(frozen=True, eq=False)
class Task:
    """One replica to train.

    Attributes:
        recipe: What to train.
        document: The document that the recipe came from.
        seed: Which replica of it.
    """

    recipe: Recipe
    document: Document
    seed: int

    def folder(self, root: Path) -> Path:
        """The run folder of the task."""
        return run_folder(root, self.recipe, self.seed)


@dataclass(frozen=True)
class Ended:
    """How a task ended.

    Attributes:
        task: The task.
        folder: Its run folder.
        state: `finished` or `diverged`.
        reason: Why it did not finish, in a sentence; empty if it did.
        seconds: Its training time on one core, according to its record.
        cached: Whether the result existed already.
    """

    task: Task
    folder: Path
    state: Outcome
    reason: str
    seconds: float
    cached: bool


@dataclass(frozen=True)
class Group:
    """Tasks that one process trains together: a single task alone, several stacked.

    Attributes:
        number: Unique among the groups of a fleet.
        tasks: Its members; all of one recipe.
        options: How to train them.
        place: Where a stack keeps its checkpoint while it trains; None for one task.
    """

    number: int
    tasks: tuple[Task, ...]
    options: Options
    place: Path | None = None


@dataclass(frozen=True)
class FleetMoment:
    """The state of a fleet, as passed to `watch`.

    Attributes:
        done: Tasks that have ended, including those from the cache.
        total: The total number of tasks.
        cached: Tasks that had a result already.
        failed: Tasks that diverged.
        running: Replicas currently in training.
        seconds: Seconds since this call of `train` began.
        remaining_seconds: Estimated seconds left; None while unknown.
        progress: The share of all work that is done, from 0 to 1.
    """

    done: int
    total: int
    cached: int
    failed: int
    running: int
    seconds: float
    remaining_seconds: float | None
    progress: float


def silent(_: Any) -> None:
    """Do nothing: the default for `say` and `watch`."""
