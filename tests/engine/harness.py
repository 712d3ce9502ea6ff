"""Training in processes that can be killed, and comparing what they leave.

A fork server imports PyTorch once; each training process is then a fork that starts in milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from apoint.engine import checkpoint, train
from apoint.engine.checkpoint import Checkpoint
from apoint.store import Run

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["apoint.engine", "apoint.data", "apoint.models", "sklearn.datasets"])

SMALL = {
    "digits": {"name": "digits", "limit": 320},
    "chars": {"name": "python-docs", "context": 16, "stride": 64, "limit": 320},
}
RECIPES: dict[str, dict[str, Any]] = {
    "mlp-dropout": {
        "data": SMALL["digits"],
        "model": {"name": "mlp", "width": 32, "dropout": 0.3, "input_dropout": 0.1},
        "optimizer": {"name": "adamw", "lr": 3e-3},
        "schedule": {"name": "cosine", "warmup": "10 steps"},
        "batch_size": 16,
        "epochs": 6,
    },
    "cnn-batch-norm-augmentation": {
        "data": {**SMALL["digits"], "validation": 0.2},
        "augment": ["flip", {"name": "crop", "padding": 1}, {"name": "mix-up", "alpha": 0.2}],
        "deficits": [{"name": "blur", "end": "2 epochs"}],
        "model": {"name": "cnn", "width": 8, "depth": 2, "norm": "batch", "dropout": 0.1},
        "optimizer": {"name": "momentum", "form": "sum", "lr": 0.05},
        "early_stop": {"metric": "validation_loss", "patience": 50},
        "batch_size": 16,
        "epochs": 6,
    },
    "transformer-accumulation-average": {
        "data": SMALL["chars"],
        "model": {"name": "char-transformer", "depth": 2, "width": 16, "num_heads": 2, "dropout": 0.1,
                  "stochastic_depth": 0.2},
        "optimizer": {"name": "adamw", "lr": 3e-3},
        "clip": {"name": "norm", "limit": 1.0},
        "average": {"decay": 0.995, "begin": "5%"},
        "accumulate": 3,
        "batch_size": 16,
        "epochs": 4,
    },
}  # fmt: skip


def _work(recipe: dict[str, Any], root: str, options: dict[str, Any], log: str) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    try:
        train(recipe, seed=3, runs_root=root, say=lambda text: print(text, file=sys.stderr), **options)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        sys.exit(getattr(error, "exit_code", 1))


def start(recipe: dict[str, Any], root: Path, **options: Any) -> Any:
    """A training process; what it says goes to `root.log`."""
    process = CONTEXT.Process(target=_work, args=(recipe, str(root), options, f"{root}.log"))
    process.start()
    return process


def finish(recipe: dict[str, Any], root: Path, **options: Any) -> float:
    """Train to the end in a process; returns the seconds it took."""
    begin = time.perf_counter()
    process = start(recipe, root, **options)
    process.join(120)
    assert process.exitcode == 0, Path(f"{root}.log").read_text()
    return time.perf_counter() - begin


def kill_after(process: Any, seconds: float) -> bool:
    """SIGKILL a process after a while; whether it was still alive."""
    process.join(seconds)
    alive = process.exitcode is None
    if alive:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    return alive


def outcome(root: Path) -> tuple[Checkpoint, list[dict[str, Any]]]:
    """What a run ended with: its last checkpoint and its metrics without the times."""
    (folder,) = (path for path in root.iterdir() if path.is_dir())
    run = Run(folder)
    assert run.state == "finished"
    saved = checkpoint.newest(folder, lambda text: None)
    assert saved is not None
    rows = [
        {key: value for key, value in row.items() if key not in ("time", "seconds")} for row in run.metrics
    ]
    return saved, rows


def difference(one: tuple[Checkpoint, Any], other: tuple[Checkpoint, Any]) -> str:
    """The first thing in which two outcomes differ, to the bit; empty if nothing does."""
    for group, tensors in one[0].tensors.items():
        for name, tensor in tensors.items():
            twin = other[0].tensors[group][name]
            if tensor.numpy().tobytes() != twin.numpy().tobytes():
                return f"{group} {name}"
    states = [dict(side[0].state["progress"], seconds=0) for side in (one, other)]
    if states[0] != states[1]:
        return f"progress: {states}"
    return "" if one[1] == other[1] else "metrics"
