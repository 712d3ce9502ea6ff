"""The words of a fleet: a task, a group of tasks, how a task ended, and where a fleet stands."""

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
        """Where its record goes."""
        return run_folder(root, self.recipe, self.seed)


@dataclass(frozen=True)
class Ended:
    """How a task ended.

    Attributes:
        task: The task.
        folder: Its run folder.
        state: `finished` or `diverged`.
        reason: Why it did not finish, in a sentence; empty if it did.
        seconds: What its training took, of one core, as its record tells.
        cached: Whether it was there already.
    """

    task: Task
    folder: Path
    state: Outcome
    reason: str
    seconds: float
    cached: bool


@dataclass(frozen=True)
class Group:
    """Tasks that one process trains together: one task as it is, several stacked.

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
    """Where a fleet stands, for whoever watches it.

    Attributes:
        done: Tasks that have ended, those from the cache included.
        total: Tasks in all.
        cached: Tasks that were there already.
        failed: Tasks that diverged.
        running: Replicas in training just now.
        seconds: Since this call of `train` began.
        remaining_seconds: What is probably left; None while nobody can tell.
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
    """Hears and sees nothing: what `say` and `watch` are by default."""
