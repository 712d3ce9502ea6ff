"""The recipes and the changes to them, and how they are trained."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apoint.engine import Options
from apoint.engine.fleet import Fleet, Task
from apoint.engine.measure import larger_is_better
from apoint.store import Run
from apoint.trials import make_arm
from apoint.trials.arms import Arm

ROOT = Path(__file__).parent.parent.parent
NUMBERS = Path(__file__).parent / "numbers.json"
NUM_SEEDS, KEPT = 64, 5
TEST_SIZES = {"digits-mlp": 359, "fixup-residual-mlp": 359, "spirals-mlp": 200, "mnist-1d-cnn": 1000,
              "procedural-resnet20": 1000}  # fmt: skip
CONSTANT: dict[str, Any] = {"schedule": "constant", "average": {"decay": 0.98}}
STEP: dict[str, Any] = {"schedule": {"name": "step", "milestones": ["50%", "75%"], "factor": 0.1}}
SMALL_CNN: dict[str, Any] = {"model.width": 16, "model.depth": 3}


@dataclass(frozen=True)
class Case:
    """A recipe and the changes to it that are judged.

    Attributes:
        recipe: The name of its file.
        schedule: What its learning rate does, in a word.
        changes: By name; the last one changes next to nothing.
        shared: What makes the recipe short, in every arm.
        metric: The number compared.
        improving: Whether training is stopped while the metric still improves.
    """

    recipe: str
    schedule: str
    changes: dict[str, dict[str, Any]]
    shared: dict[str, Any] = field(default_factory=dict)
    metric: str = "test_accuracy"
    improving: bool = False

    @property
    def kind(self) -> str:
        """Which of three situations its last evaluations are in."""
        if self.improving:
            return "still improving"
        return "constant rate" if self.schedule == "constant" else "falling rate"

    @property
    def higher(self) -> bool:
        """Whether a higher number is better."""
        return larger_is_better(self.metric)

    def arms(self) -> dict[str, Arm]:
        """The recipe and its changes, by name."""
        source = ROOT / "recipes" / f"{self.recipe}.yaml"
        every = {"baseline": {}, **self.changes}
        return {name: make_arm(name, source, {**self.shared, **changes}) for name, changes in every.items()}


def _rate(value: float) -> dict[str, Any]:
    return {"optimizer.lr": value}


CASES = {
    "digits, cosine": Case(
        "digits-mlp", "cosine",
        {"width 32": {"model.width": 32}, "no dropout": {"model.dropout": 0.0}, "lr +1 %": _rate(2.02e-3)},
        {"epochs": 10},
    ),
    "digits, constant": Case(
        "digits-mlp", "constant",
        {"lr 5e-4": _rate(5e-4), "no dropout": {"model.dropout": 0.0}, "lr +1 %": _rate(2.02e-3)},
        {"epochs": 10, **CONSTANT},
    ),
    "digits with SGD, stopped early": Case(
        "digits-mlp", "constant",
        {"lr 0.03": _rate(0.03), "width 64": {"model.width": 64}, "lr +1 %": _rate(0.0202)},
        {"epochs": 6, "optimizer": {"name": "momentum", "lr": 0.02, "momentum": 0.9}, **CONSTANT},
        improving=True,
    ),
    "fixup, cosine": Case(
        "fixup-residual-mlp", "cosine",
        {"lr 3e-3": _rate(3e-3), "depth 3": {"model.depth": 3}, "lr +1 %": _rate(1.01e-3)},
        {"epochs": 8, "model.depth": 6},
    ),
    "spirals, 30 epochs": Case(
        "spirals-mlp", "constant",
        {"width 64": {"model.width": 64}, "lr 4e-3": _rate(4e-3), "lr +1 %": _rate(5.05e-3)},
        {"epochs": 30, **CONSTANT},
    ),
    "spirals, 60 epochs": Case(
        "spirals-mlp", "constant",
        {"width 16": {"model.width": 16}, "lr 1e-2": _rate(1e-2), "lr +1 %": _rate(5.05e-3)},
        {"epochs": 60, **CONSTANT},
    ),
    "mnist-1d, steps": Case(
        "mnist-1d-cnn", "step",
        {"kernel 3": {"model.kernel_size": 3}, "lr 1e-3": _rate(1e-3), "lr +1 %": _rate(3.03e-3)},
        {"epochs": 10, **SMALL_CNN, **STEP},
    ),
    "mnist-1d, constant": Case(
        "mnist-1d-cnn", "constant",
        {"kernel 3": {"model.kernel_size": 3}, "lr 1e-3": _rate(1e-3), "lr +1 %": _rate(3.03e-3)},
        {"epochs": 10, **SMALL_CNN, **CONSTANT},
    ),
    "teacher, cosine": Case(
        "teacher-regression", "cosine",
        {"width 32": {"model.width": 32}, "momentum 0.95": {"optimizer.momentum": 0.95},
         "lr +1 %": _rate(0.0505)},
        {"epochs": 20}, "test_rmse",
    ),
    "teacher, constant": Case(
        "teacher-regression", "constant",
        {"width 32": {"model.width": 32}, "lr 0.03": _rate(0.03), "lr +1 %": _rate(0.0505)},
        {"epochs": 40, **CONSTANT}, "test_rmse",
    ),
    "characters, stopped early": Case(
        "chars-lstm", "constant",
        {"lr 4e-3": _rate(4e-3), "width 40": {"model.width": 40}, "lr +1 %": _rate(3.03e-3)},
        {"steps": 150, "evaluate_every": "10%", "model.width": 48, "data.context": 16, "data.stride": 256,
         **CONSTANT},
        "test_bits_per_character", improving=True,
    ),
    "images, steps": Case(
        "procedural-resnet20", "step",
        {"width 12": {"model.width": 12}, "no crops": {"augment": []}, "lr +1 %": _rate(0.101)},
        {"epochs": 8, "model": {"name": "cnn", "depth": 3, "width": 8}, **STEP},
    ),
}  # fmt: skip


# -- training ------------------------------------------------------------------------------------------------


def train(root: str = "runs", num_seeds: int = NUM_SEEDS) -> None:
    """Train what is missing, and write what every replica gave.

    Args:
        root: Where runs go; what is there already is not trained again.
        num_seeds: How many replicas of every arm.
    """
    found: dict[str, Any] = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    with Fleet(Options(runs_root=root), backend="pool+stacked", stack=16) as fleet:
        for name, case in CASES.items():
            arms = case.arms()
            tasks = [Task(arm.recipe, arm.document, s) for arm in arms.values() for s in range(num_seeds)]
            tails = [_tail(Run(ended.folder), case.metric) for ended in fleet.train(tasks)]
            chunks = [tails[start : start + num_seeds] for start in range(0, len(tails), num_seeds)]
            found[name] = dict(zip(arms, chunks, strict=True))
            NUMBERS.write_text(json.dumps(found, separators=(",", ":")).replace("]],", "]],\n") + "\n")
            print(name, flush=True)


def _tail(run: Run, metric: str) -> list[float]:
    """The last evaluations of a finished replica; then the last of its averaged weights, if it has them."""
    run.check()
    split, _, name = metric.partition("_")
    values = run.metrics.series(metric)[1][-KEPT:]
    averaged = f"{split}_average_{name}"
    if averaged in run.metrics.names:
        values = [*values, run.metrics.last(averaged)]
    return [float(f"{value:.6g}") for value in values]
