"""Small fleets, and what they leave behind."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from apoint.engine import checkpoint
from apoint.engine.fleet import Task
from apoint.recipe import load_recipe
from apoint.store import Run
from tests.engine.harness import RECIPES, difference

TINY: dict[str, Any] = {
    "name": "tiny",
    "data": {"name": "digits", "limit": 160},
    "model": {"name": "mlp", "width": 16, "depth": 1, "dropout": 0.1},
    "optimizer": {"name": "adamw", "lr": 5e-3},
    "batch_size": 16,
    "epochs": 2,
}
DIVERGING = {"optimizer": {"name": "sgd", "lr": 1e30}, "model.dropout": 0.0}


def tasks_of(
    recipe: dict[str, Any] | str, seeds: Iterable[int], changes: dict[str, Any] | None = None
) -> list[Task]:
    """Replicas of a recipe, or of one of the harness's recipes by name."""
    values = {**RECIPES[recipe], "name": recipe} if isinstance(recipe, str) else recipe
    loaded, document = load_recipe(values, changes)
    return [Task(loaded, document, seed) for seed in seeds]


def record(folder: Path) -> tuple[Any, list[dict[str, Any]], list[dict[str, Any]]]:
    """What a finished run left: its last checkpoint, its metrics and its events, without the times."""
    run = Run(folder)
    assert run.state == "finished", run.status
    saved = checkpoint.newest(folder, lambda text: None)
    assert saved is not None
    rows = [{k: v for k, v in row.items() if k not in ("time", "seconds")} for row in run.metrics]
    events = [{k: v for k, v in event.items() if k != "time"} for event in run.events]
    return saved, rows, events


def disagreement(one: Path, other: Path, events: bool = True) -> str:
    """The first thing in which two runs differ, to the bit; empty if nothing does."""
    first, second = record(one), record(other)
    return difference(first[:2], second[:2]) or ("events" if events and first[2] != second[2] else "")


def ends(folder: Path) -> list[str]:
    """The states with which a run ended, one for each time."""
    seal = Run(folder).seal
    return [seal.state] if seal else []
