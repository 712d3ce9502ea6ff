"""Replicas for claims that need more than a verdict: curves, weights at several steps, rates that diverge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from apoint.book.running import Running
from apoint.data import Data
from apoint.engine import Options
from apoint.engine.fleet import Fleet, Task
from apoint.engine.replica import build_model, load_data
from apoint.store import Run
from apoint.trials import make_arm


def train(run: Running, recipe: Mapping[str, Any], seeds: Iterable[int]) -> list[Run | None]:
    """A run for each seed; None where it diverged."""
    arm = make_arm("baseline", recipe)
    with Fleet(Options(runs_root=run.folder), "stacked", run.workers, stack=8) as fleet:
        ended = fleet.train([Task(arm.recipe, arm.document, seed) for seed in seeds])
    return [Run(one.folder) if one.state == "finished" else None for one in ended]


def start_of(recipe: Mapping[str, Any], seed: int) -> tuple[nn.Module, Data]:
    """The model of a replica before its first step, and its data."""
    made = make_arm("baseline", recipe).recipe
    found = load_data(made, seed, None, Path())
    return build_model(made, found.facts, seed, Path()), found
