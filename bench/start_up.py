"""How long the command line takes to answer, against importing what it must not import."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench.timing import interleaved, table


def main() -> None:
    """Print seconds of start-up."""
    apoint = Path(sys.executable).parent / "apoint"

    def run(*command: str) -> object:
        return subprocess.run(command, capture_output=True, check=True)

    best = interleaved(
        {
            "apoint --help": lambda: run(str(apoint), "--help"),
            "apoint runs --help": lambda: run(str(apoint), "runs", "--help"),
            "python -c pass": lambda: run(sys.executable, "-c", "pass"),
            "python -c 'import torch'": lambda: run(sys.executable, "-c", "import torch"),
        },
        rounds=5,
        clock=time.perf_counter,
    )
    table("Start-up (best of 5)", [(name, f"{seconds:.3f} s") for name, seconds in best.items()])
