"""The per-layer trace of the Fisher matrix of a batch: against its plain gradient, and against peers.

Times are best of several interleaved rounds in one thread. Peers run in their own environment and process, so
that they are compared through the plain gradient, which is timed beside each: `x` is times that gradient. The
spread is that of the trace of the whole model over rounds with other draws, relative to its mean.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from apoint.probes.fisher import fisher_trace
from bench.compare_speed import peer_python
from bench.peers.fisher_peers import make
from bench.timing import interleaved, table

CASES = {
    "mlp": "MLP 784-512-512-10, batch 128",
    "cnn": "CNN of 3 convolutions, 1x28x28, batch 64",
}


def ours(name: str) -> dict[str, Any]:
    """Seconds of a gradient and of the probe, and the traces for some seeds."""
    model, inputs = make(name)
    targets = torch.randint(10, (len(inputs),))

    def gradient() -> None:
        model.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()

    arms = {"gradient": gradient, "apoint": lambda: fisher_trace(model, inputs)}
    traces = [fisher_trace(model, inputs, seed=seed).value for seed in range(10)]
    return {"seconds": interleaved(arms, rounds=25), "traces": {"apoint": traces}}


def peers(name: str) -> dict[str, Any] | None:
    """The same of the peers, or None if they are not there."""
    python = peer_python()
    if python is None:
        return None
    script = Path(__file__).parent / "peers" / "fisher_peers.py"
    done = subprocess.run([str(python), str(script), name], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def main() -> None:
    """Print milliseconds, multiples of the gradient, and our share of each peer's time."""
    torch.set_num_threads(1)
    for name, title in CASES.items():
        measured = [ours(name), peers(name)]
        seconds = measured[0]["seconds"]
        multiple = seconds["apoint"] / seconds["gradient"]
        rows = []
        for found in measured:
            for arm, value in (found or {"seconds": {}})["seconds"].items():
                against = value / found["seconds"]["gradient"]
                shown = f"{value * 1e3:8.2f} ms  {against:5.2f}x"
                if arm in found["traces"] and arm != "gradient":
                    traces = found["traces"][arm]
                    spread = statistics.stdev(traces) / statistics.mean(traces)
                    shown += f"  trace {statistics.mean(traces):.1f}, spread {spread:.0%}"
                if arm not in ("gradient", "apoint"):
                    shown += f"; ours takes {multiple / against:.2f} of its time"
                rows.append((arm, shown))
        table(f"Fisher trace per layer, labels drawn once: {title}", rows)


if __name__ == "__main__":
    main()
