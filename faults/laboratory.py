"""Small recipes, trained in processes that can be broken, and the command line with its output caught."""

from __future__ import annotations

import importlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apoint.engine import loop, train
from faults.breaking import Child, Left, in_child
from faults.group import Place, check
from tests.engine.harness import RECIPES, difference, outcome

__all__ = [
    "CADENCE",
    "RECIPES",
    "SHORT",
    "TINY",
    "cli",
    "difference",
    "outcome",
    "start_cli",
    "stop_at",
    "training",
]

STEPS = 26
SHORT: dict[str, dict[str, Any]] = {  # the recipes that resume exactly, cut to a third of a second
    name: {
        **{key: value for key, value in recipe.items() if key != "epochs"},
        "data": {**recipe["data"], "limit": 128},
        "steps": STEPS,
    }
    for name, recipe in RECIPES.items()
}
SHORT["stuck"] = {  # it does not improve, so that its patience runs out
    **SHORT["mlp-dropout"],
    "data": {**SHORT["mlp-dropout"]["data"], "validation": 0.2},
    "optimizer": {"name": "sgd", "lr": 1e-12},
    "early_stop": {"metric": "validation_accuracy", "patience": 50},
    "steps": STEPS,
}
CADENCE = {"checkpoint_every": "3 steps", "log_every": "5 steps"}  # saved amid the sums that are logged
TINY: dict[str, Any] = {
    "name": "tiny",
    "data": {"name": "digits", "limit": 160},
    "model": {"name": "mlp", "width": 16, "depth": 1},
    "optimizer": {"name": "adamw", "lr": 5e-3},
    "batch_size": 16,
    "epochs": 2,
}


def preload() -> None:
    """Import what the cases need, so that their processes find it there."""
    from apoint.registry import HOMES, registry

    for kind in HOMES:
        len(registry(kind))
    for name in ("train", "compare", "improve", "inspect", "runs", "export"):
        importlib.import_module(f"apoint.cli.{name}")
    for name in ("sklearn.datasets", "matplotlib.figure", "matplotlib.backends.backend_svg", "scipy.stats",
                 "scipy.optimize", "apoint.report", "apoint.engine.stacked", "apoint.doctor"):  # fmt: skip
        importlib.import_module(name)


def training(
    recipe: dict[str, Any], root: Path, before: Callable[[], object] | None = None, **options: Any
) -> Callable[[], None]:
    """Work for a child process: train seed 3 of a recipe, after breaking what is to be broken."""

    def work() -> None:
        if before:
            before()
        train(recipe, seed=3, runs_root=root, say=print, **{**CADENCE, **options})

    return work


def stop_at(step: int, way: str) -> Callable[[], None]:
    """Stops training just before an update: a signal that the process gets, or `error`."""

    def install() -> None:
        original = loop.training_step

        def stepping(replica: Any, number: int) -> float:
            if number == step:
                if way == "error":
                    raise RuntimeError("the step was made to fail")
                os.kill(os.getpid(), getattr(signal, way))
            return original(replica, number)

        loop.training_step = stepping

    return install


def same_end(place: Place, name: str, root: Path) -> None:
    """Fail unless a run ended with the bits of the unbroken one in `place.shared`."""
    found = difference(outcome(place.shared / name), outcome(root))
    check(not found, f"differs from the unbroken run in {found}")


def unbroken_runs(folder: Path) -> None:
    """Prepare: every short recipe trained without interruption."""
    for name, recipe in SHORT.items():
        in_child(training(recipe, folder / name), folder).expect(0)


def _command(arguments: list[str], before: Callable[[], object] | None) -> Callable[[], None]:
    def work() -> None:
        from apoint.cli import main

        if before:
            before()
        main(arguments)

    return work


def cli(
    folder: Path,
    *arguments: str,
    before: Callable[[], object] | None = None,
    seconds: float = 90,
    terminal: bool = False,
) -> Left:
    """A command of apoint in a process of its own; `before` breaks something in it first."""
    return Child(_command(list(arguments), before), folder, terminal).wait(seconds)


def start_cli(folder: Path, *arguments: str, before: Callable[[], object] | None = None) -> Child:
    """The same, without waiting for its end."""
    return Child(_command(list(arguments), before), folder)


def write_recipe(folder: Path, recipe: dict[str, Any], name: str = "tiny.yaml") -> Path:
    """A recipe as a file; JSON is YAML."""
    path = folder / name
    path.write_text(json.dumps(recipe))
    return path
