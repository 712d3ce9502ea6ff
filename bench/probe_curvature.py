"""The ends of the Hessian's spectrum: the probe `sharpness` against curvlinops' Hessian with scipy's `eigsh`.

The same network, weights, batch and tolerance, one thread, the process's own time; curvlinops runs in a
process of its own from the peers' environment, in turn with ours, and the best of the rounds counts. Both
are asked for the largest eigenvalue alone, and for both ends. The probe gives bounds and layers besides.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from apoint.probes.curvature import sharpness
from bench.compare_speed import peer_python
from bench.peers.curvature_peers import CASES, made
from bench.timing import interleaved, table

ROUNDS, TOLERANCE = 2, 1e-3
ENDS: tuple[Literal["largest", "both"], ...] = ("largest", "both")
SCRIPT = Path(__file__).parent / "peers" / "curvature_peers.py"


def peer(python: Path, name: str, ends: str) -> dict[str, Any] | None:
    """What curvlinops needs and finds; None if it is not there."""
    command = [str(python), str(SCRIPT), name, ends, str(TOLERANCE)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"curvlinops did not run: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def row(name: str, ends: Literal["largest", "both"]) -> tuple[str, str]:
    """One network, one or both ends."""
    model, inputs, targets = made(name)
    loss, python = nn.CrossEntropyLoss(), peer_python()
    ours, theirs, found = float("inf"), float("inf"), None

    def measure() -> object:
        return sharpness(model, (inputs, targets), loss, tolerance=TOLERANCE, ends=ends)

    def gradient() -> object:
        return torch.autograd.grad(loss(model(inputs), targets), list(model.parameters()))

    for _ in range(ROUNDS):
        times = interleaved({"probe": measure, "gradient": gradient}, rounds=3)
        ours = min(ours, times["probe"])
        found = peer(python, name, ends) if python else None
        theirs = min(theirs, found["seconds"]) if found else theirs
    reading = sharpness(model, (inputs, targets), loss, tolerance=TOLERANCE, ends=ends)
    shown = f"{ours * 1e3:.0f} ms, {reading.details['num_products']} products, "
    shown += f"{ours / times['gradient']:.0f} gradients; value {reading.value:.6g}"
    if found is None:
        return f"{name}, {ends}", f"{shown}; curvlinops is not there"
    shown += f"; curvlinops {theirs * 1e3:.0f} ms, {found['products']} products, value {found['value']:.6g}"
    return f"{name}, {ends}", f"{shown}; {theirs / ours:.1f}x as long"


def main() -> None:
    """Print milliseconds and ratios."""
    torch.set_num_threads(1)
    rows = [row(name, ends) for name in CASES for ends in ENDS]
    table(f"Ends of the Hessian's spectrum at tolerance {TOLERANCE:g} (one thread)", rows)


if __name__ == "__main__":
    main()
