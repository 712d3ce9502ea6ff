"""Time to the same verdict: `apoint compare` against good practice written out, whole processes, wall clock.

The question is whether a learning rate of 1e-4 is worse than 1e-3 for a small network on Fashion-MNIST. The
practice scripts (`bench/peers/practice.py`, `practice_lightning.py`) train ten seeds an arm and test after
each epoch; `apoint compare` pairs the seeds, trains them side by side and stops when it may. Each arm is a
process of its own, started from nothing, in turn; the best of several rounds counts, and every round is told.

Many short rounds tell more than few long ones, since the speed of a shared machine changes within minutes. So
two seeds an arm are trained by the practices, whose runs all take the same time, and the time of training
(not that of the start) is multiplied by five. Python's caches of compiled files are allowed, as anywhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROUNDS = int(os.environ.get("APOINT_BENCH_ROUNDS", "3"))
PEERS = Path(__file__).parent / "peers"
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"name": "mlp", "depth": 2, "width": 128},
    "cnn": {"name": "cnn", "depth": 3, "width": 8},
}
RECIPE: dict[str, Any] = {
    "data": "fashion-mnist",
    "optimizer": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01},
    "exempt_from_decay": [],
    "batch_size": 64,
}
# Long enough for a network to be worth comparing; at one epoch the perceptron's comparison is half start-up.
EPOCHS = {"mlp": 10, "cnn": 2}
SEEDS, TRAINED_SEEDS = 10, 2


def peer_python() -> Path | None:
    """The interpreter of the peers' own environment, if `make bench` could set it up."""
    python = Path(__file__).parent.parent / ".venv-bench" / "bin" / "python"
    return python if python.exists() else None


def fashion_folder() -> Path | None:
    """Where the four files of Fashion-MNIST are, or None."""
    from apoint.data.locate import find_folder

    names = [f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]
    return find_folder(["fashion-mnist", "FashionMNIST/raw", "fashion_mnist"], names)


def practice(script: str, model: str, folder: Path, *more: str) -> tuple[float, dict[str, Any]]:
    """Seconds of a practice script for ten seeds an arm, and what it found with fewer."""
    python = peer_python() or Path(sys.executable)
    length = ["--epochs", str(EPOCHS[model]), "--seeds", str(TRAINED_SEEDS)]
    command = [str(python), str(PEERS / script), "--data", str(folder), "--model", model, *length, *more]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PEERS, env=_environment())
    whole, found = time.perf_counter() - begin, json.loads(done.stdout.strip().splitlines()[-1])
    return whole + found["seconds"] * (SEEDS / TRAINED_SEEDS - 1), found


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def ours(model: str) -> tuple[float, dict[str, Any]]:
    """Seconds of `apoint compare` in an empty folder, and its result."""
    apoint = Path(sys.executable).parent / "apoint"
    with tempfile.TemporaryDirectory() as place:
        recipe = Path(place) / "base.yaml"
        recipe.write_text(json.dumps({**RECIPE, "epochs": EPOCHS[model], "model": MODELS[model]}))
        arguments = ["compare", str(recipe), "--change", "optimizer.lr=1e-4", "--runs-root", f"{place}/runs"]
        begin = time.perf_counter()
        command = [str(apoint), *arguments, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=_environment())
        return time.perf_counter() - begin, json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Print seconds and ratios."""
    folder = fashion_folder()
    if folder is None:
        print("\nTime to the same verdict: skipped, Fashion-MNIST is not on this machine")
        return
    print(f"\nTime to the same verdict (wall clock, best of {ROUNDS} interleaved rounds)")
    for model in MODELS:
        arms = {
            "apoint": lambda model=model: ours(model),
            "practice, tensors": lambda model=model: practice("practice.py", model, folder),
            "practice, transform": lambda model=model: practice(
                "practice.py", model, folder, "--feed", "transform"
            ),
        }
        if peer_python() is not None:
            arms["Lightning"] = lambda model=model: practice("practice_lightning.py", model, folder)
        best: dict[str, float] = dict.fromkeys(arms, float("inf"))
        found: dict[str, dict[str, Any]] = {}
        for turn in range(1, ROUNDS + 1):
            for name, arm in arms.items():
                seconds, found[name] = arm()
                best[name] = min(best[name], seconds)
                print(f"  round {turn} of {ROUNDS}, {model}, {name}: {seconds:.1f} s", flush=True)
        for name in arms:
            row = _row(best[name], best["apoint"], found[name])
            print(f"  {model + ', ' + name:<26}{row}", flush=True)


def _row(seconds: float, ours_seconds: float, found: dict[str, Any]) -> str:
    if "verdict" in found:
        verdict = found["verdict"]
        return (
            f"{seconds:7.1f} s         {verdict['outcome']} after {verdict['pairs']} pairs; {found['fleet']}"
        )
    first, second = found["means"]
    return f"{seconds:7.1f} s  {seconds / ours_seconds:5.1f}x  accuracy {first:.4f} and {second:.4f}"


if __name__ == "__main__":
    main()
