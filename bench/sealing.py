"""What the seal of a run costs: while it trains, when it ends, and when it is taken from the cache.

The training is of the smallest perceptron, from a recipe to a finished run folder. Without the seal means: no
running digest of the rows, and no `seal.json` at the end. Verifying is what a comparison does to each replica
that is there already.
"""

from __future__ import annotations

import hashlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from apoint.engine import train
from apoint.store import Run, lines
from apoint.store import writer as writers
from bench.timing import paired_ratio, table

RECIPE: dict[str, Any] = {
    "name": "smallest",
    "data": {"name": "digits", "limit": 320},
    "model": {"name": "mlp", "width": 8, "depth": 1},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "batch_size": 32,
    "epochs": 200,
}
REPLICAS = 300


class _NoDigest:
    """Hashes nothing."""

    def update(self, data: bytes) -> None:
        pass

    def hexdigest(self) -> str:
        return ""


@contextmanager
def unsealed() -> Iterator[None]:
    """Training as it would be without a seal."""
    with (
        mock.patch.object(lines, "hashlib", SimpleNamespace(sha256=_NoDigest)),
        mock.patch.object(writers.RunWriter, "_seal", return_value=None),
    ):
        yield


class _TimedDigest:
    """SHA-256 that adds up the time it takes."""

    seconds = 0.0

    def __init__(self, data: bytes = b"") -> None:
        self._digest = hashlib.sha256(data)

    def update(self, data: bytes) -> None:
        begin = time.perf_counter()
        self._digest.update(data)
        _TimedDigest.seconds += time.perf_counter() - begin

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def inside(root: Path, runs: int = 15) -> float:
    """The share of a training's time that passes in the digest of its rows and in sealing, median of runs.

    A difference of two trainings scatters by percents on a shared machine; this does not, but it leaves out
    what the seal may do to the rest, such as to the processor's caches.
    """
    shares, sealing = [], writers.RunWriter._seal

    def timed(writer: writers.RunWriter, state: str, known: Mapping[str, Any]) -> None:
        begin = time.perf_counter()
        sealing(writer, state, known)
        _TimedDigest.seconds += time.perf_counter() - begin

    for _ in range(runs):
        shutil.rmtree(root, ignore_errors=True)
        _TimedDigest.seconds, begin = 0.0, time.perf_counter()
        with (
            mock.patch.object(lines, "hashlib", SimpleNamespace(sha256=_TimedDigest)),
            mock.patch.object(writers.RunWriter, "_seal", timed),
        ):
            train(RECIPE, runs_root=root)
        shares.append(_TimedDigest.seconds / (time.perf_counter() - begin))
    return statistics.median(shares)


def arm(root: Path, sealed: bool) -> Callable[[], None]:
    """Train one replica from nothing."""

    def run() -> None:
        shutil.rmtree(root, ignore_errors=True)
        if sealed:
            train(RECIPE, runs_root=root)
        else:
            with unsealed():
                train(RECIPE, runs_root=root)

    return run


def verifying(root: Path) -> float:
    """The mean milliseconds of verifying a cached replica, the best of five rounds."""
    run = train(RECIPE, runs_root=root / "one")
    copies = [shutil.copytree(run.folder, root / f"copy-{number}") for number in range(REPLICAS)]
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for folder in copies:
            Run(folder).result("test_accuracy")
        best = min(best, (time.perf_counter() - begin) / REPLICAS)
    return 1000 * best


def main() -> None:
    """Print the share of a training that the seal takes, and the time of verifying."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        ratio, low, high = paired_ratio(arm(root / "a", True), arm(root / "b", False))
        added, least, most = (f"{100 * (each - 1):+.2f} %" for each in (ratio, low, high))
        rows = [
            ("the seal adds", f"{added} (95 % interval {least} to {most})"),
            ("inside the seal's own code", f"{100 * inside(root / 'c'):.2f} %"),
            (f"verifying one of {REPLICAS} cached replicas", f"{verifying(root):.2f} ms"),
        ]
    table("The seal of a run: 2,000 steps of the smallest perceptron with its whole record", rows)


if __name__ == "__main__":
    main()
