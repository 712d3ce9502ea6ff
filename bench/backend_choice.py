"""Is the fleet's choice of backend right? Every backend is really run on six models, and the choice too.

For each model a fleet of replicas is trained from nothing by each backend and by `auto`, wall clock, workers'
start-up and the probe included. The figure is how much longer the choice took than the best of all.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from apoint.engine import Options
from apoint.engine.fleet import Fleet, Task
from apoint.recipe import load_recipe

REPLICAS = 16
ROUNDS = int(os.environ.get("APOINT_BENCH_ROUNDS", "2"))
BACKENDS = ("auto", "loop", "pool", "stacked", "pool+stacked")
CHARACTERS = {"name": "python-docs", "context": 32, "stride": 32, "limit": 2000}
CASES: dict[str, dict[str, Any]] = {
    "MLP 64-64-64-10, batch 32": {
        "data": "digits", "model": {"name": "mlp", "width": 64}, "batch_size": 32, "epochs": 20,
    },
    "MLP with dropout and batch norm": {
        "data": "digits", "model": {"name": "mlp", "width": 128, "norm": "batch", "dropout": 0.2},
        "batch_size": 32, "epochs": 20,
    },
    "MLP 256-512-512-10, batch 128": {
        "data": {"name": "procedural"}, "model": {"name": "mlp", "width": 512}, "batch_size": 128,
        "steps": 300, "evaluate_every": "100%",
    },
    "CNN 16x16, batch 64": {
        "data": {"name": "procedural"}, "model": {"name": "cnn", "depth": 3, "width": 8},
        "batch_size": 64, "steps": 250, "evaluate_every": "100%",
    },
    "Transformer, 2 layers of 32": {
        "data": CHARACTERS, "model": {"name": "char-transformer", "depth": 2, "width": 32, "num_heads": 2},
        "batch_size": 16, "steps": 250, "evaluate_every": "100%",
    },
    "ResNet-20, batch 32": {
        "data": {"name": "procedural"}, "model": {"name": "resnet20"}, "batch_size": 32, "steps": 60,
        "evaluate_every": "100%",
    },
}  # fmt: skip


def seconds(case: dict[str, Any], backend: str) -> tuple[float, str]:
    """How long a fleet takes, and what it said of its way."""
    recipe, document = load_recipe(case)
    tasks = [Task(recipe, document, seed) for seed in range(REPLICAS)]
    with tempfile.TemporaryDirectory() as place:
        begin = time.perf_counter()
        with Fleet(Options(runs_root=place), backend=backend) as fleet:
            fleet.train(tasks)
        return time.perf_counter() - begin, fleet.sentence


def main() -> None:
    """Print the seconds of each backend and the price of the choice."""
    print(f"\nChoice of backend, {REPLICAS} replicas (wall clock, best of {ROUNDS} interleaved rounds)")
    for title, case in CASES.items():
        best = dict.fromkeys(BACKENDS, float("inf"))
        said = ""
        for _ in range(ROUNDS):
            for backend in BACKENDS:
                took, sentence = seconds(case, backend)
                best[backend] = min(best[backend], took)
                said = sentence if backend == "auto" else said
        fastest = min(value for name, value in best.items() if name != "auto")
        shown = "  ".join(f"{name} {value:.1f} s" for name, value in best.items())
        chosen = said.removeprefix("fleet: ").partition(", because")[0]
        price = f"choice ({chosen}) {best['auto'] / fastest - 1:+.0%} of the best"
        print(f"  {title:<34}{shown}  {price}", flush=True)


if __name__ == "__main__":
    main()
