"""What probes cost in training: whole runs with and without them, and whether they keep to their budget.

The usual probes (`signal` and `gradients` every 100 steps), and eight dear ones asked for at every tenth
step, which the budget has to thin out. Each arm trains the same recipe from nothing, in turn, in one thread;
the best of several rounds counts. The budget is 5 % in all cases.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from apoint.engine import train
from apoint.probes.observer import DEFAULT_PROBES
from bench.timing import interleaved, table

COMMON: dict[str, Any] = {"optimizer": {"name": "adamw", "lr": 1e-3}, "evaluate_every": "100%"}
CASES: dict[str, dict[str, Any]] = {
    "MLP 64-64-64-10, digits, batch 32, 3,200 steps": {
        "data": "digits",
        "model": {"name": "mlp", "width": 64, "depth": 2},
        "batch_size": 32,
        "epochs": 72,
    },
    "CNN, procedural 16x16, batch 64, 600 steps": {
        "data": {"name": "procedural"},
        "model": {"name": "cnn"},
        "batch_size": 64,
        "steps": 600,
    },
    "ResNet-20, procedural 16x16, batch 32, 300 steps": {
        "data": {"name": "procedural"},
        "model": {"name": "resnet20"},
        "batch_size": 32,
        "steps": 300,
    },
}
DEAR = ("fisher", "hessian-trace", "noise", "sharpness", "spectrum", "signal", "gradients", "dead-units")
ARMS: dict[str, dict[str, str]] = {
    "no probes": {},
    "the usual": DEFAULT_PROBES,
    "eight, every 10 steps": dict.fromkeys(DEAR, "10 steps"),
}


def run(recipe: dict[str, Any], probes: dict[str, str]) -> Callable[[], None]:
    """One training with some probes."""

    def once() -> None:
        with tempfile.TemporaryDirectory() as place:
            train({**COMMON, **recipe, "probes": probes}, runs_root=place, threads=1)

    return once


def main() -> None:
    """Print seconds, and what each arm takes beyond training without probes."""
    for title, recipe in CASES.items():
        seconds = interleaved({name: run(recipe, probes) for name, probes in ARMS.items()}, rounds=3)
        base = seconds["no probes"]
        rows = [(name, f"{value:6.2f} s  {value / base - 1:+.1%}") for name, value in seconds.items()]
        table(f"Probes within a budget of 5 %: {title}", rows)


if __name__ == "__main__":
    main()
