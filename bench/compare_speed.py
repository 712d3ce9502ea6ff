"""Time to the same verdict: `apoint compare` against good practice written out, whole processes, wall clock.

The question is whether a learning rate of 1e-4 is worse than 1e-3 for a small network on Fashion-MNIST. The
practice scripts (`bench/peers/practice.py`, `practice_lightning.py`) train ten seeds an arm and test after
each epoch; `apoint compare` pairs the seeds, trains them side by side and stops when it may. Each arm is a
process of its own, started from nothing, in turn; every round is told, with the seconds of the wall clock and
those of all processors, which other work on the machine hardly changes.

How many pairs a comparison takes depends on its seeds, so that each round has its own first seed. With
APOINT_BENCH_BEFORE set to the path of an older checkout, its `apoint compare` is timed in the same rounds.

Many short rounds tell more than few long ones, since the speed of a shared machine changes within minutes. So
two seeds an arm are trained by the practices, whose runs all take the same time, and the time of training
(not that of the start) is multiplied by five. Python's caches of compiled files are allowed, as anywhere.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = int(os.environ.get("APOINT_BENCH_ROUNDS", "3"))
FIRST_ROUND = int(os.environ.get("APOINT_BENCH_FIRST_ROUND", "1"))  # to go on with other first seeds
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


def _environment(checkout: str = "") -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": checkout} if checkout else kept


def ours(model: str, first_seed: int, *more: str, checkout: str = "") -> tuple[float, dict[str, Any]]:
    """Seconds of `apoint compare` in an empty folder, and its result; `checkout` is another version."""
    with tempfile.TemporaryDirectory() as place:
        recipe = Path(place) / "base.yaml"
        recipe.write_text(json.dumps({**RECIPE, "epochs": EPOCHS[model], "model": MODELS[model]}))
        arguments = ["compare", str(recipe), "--change", "optimizer.lr=1e-4", "--runs-root", f"{place}/runs"]
        seeds = ["--first-seed", str(first_seed)]
        command = [sys.executable, "-m", "apoint", *arguments, *seeds, *more, "--json"]
        begin = time.perf_counter()
        environment = _environment(checkout)
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=place)
        return time.perf_counter() - begin, json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Print seconds and ratios."""
    folder = fashion_folder()
    if folder is None:
        print("\nTime to the same verdict: skipped, Fashion-MNIST is not on this machine")
        return
    print(f"\nTime to the same verdict (best of {ROUNDS} interleaved rounds)")
    for model in os.environ.get("APOINT_BENCH_MODELS", ",".join(MODELS)).split(","):
        arms = _arms(model, folder)
        taken: dict[str, list[float]] = {name: [] for name in arms}
        worked: dict[str, list[float]] = {name: [] for name in arms}
        found: dict[str, dict[str, Any]] = {}
        for turn in range(FIRST_ROUND, FIRST_ROUND + ROUNDS):
            for name, arm in arms.items():
                before = _processor_seconds()
                seconds, found[name] = arm(1000 * turn)
                taken[name].append(seconds)
                worked[name].append(_processor_seconds() - before)
                pairs = f", {found[name]['verdict']['pairs']} pairs" if "verdict" in found[name] else ""
                told = f"{seconds:.1f} s, {worked[name][-1]:.1f} s of processors{pairs}"
                print(f"  round {turn}, {model}, {name}: {told}", flush=True)
        for name in arms:
            row = _row(min(taken[name]), min(taken["apoint"]), found[name])
            wall, processors = statistics.fmean(taken[name]), statistics.fmean(worked[name])
            means = f"mean {wall:.1f} s, {processors:.1f} s of processors"
            print(f"  {model + ', ' + name:<26}{row}; {means}", flush=True)


def _processor_seconds() -> float:
    """What all processes that were started and have ended took, on all processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


Arm = Callable[[int], tuple[float, dict[str, Any]]]


def _arms(model: str, folder: Path) -> dict[str, Arm]:
    """What is timed, each a function of the round's first seed."""
    arms: dict[str, Arm] = {
        "apoint": lambda seed: ours(model, seed),
        "apoint, last 2": lambda seed: ours(model, seed, "--last", "2"),
    }
    before = os.environ.get("APOINT_BENCH_BEFORE")
    if before:
        arms["apoint before"] = lambda seed: ours(model, seed, checkout=before)
    if os.environ.get("APOINT_BENCH_ALONE"):
        return arms
    arms |= {
        "practice, tensors": lambda _: practice("practice.py", model, folder),
        "practice, transform": lambda _: practice("practice.py", model, folder, "--feed", "transform"),
    }
    if peer_python() is not None:
        arms["Lightning"] = lambda _: practice("practice_lightning.py", model, folder)
    return arms


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
