import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apoint.store import Run, RunWriter

MakeRun = Callable[..., Run]


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Syncing matters to a machine that loses power, not to these tests; one of them looks for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Makes a run folder with a falling test loss and a rising accuracy."""

    def make(
        name: str = "digits", fingerprint: str = "3f2a1b", seed: int = 0, steps: int = 5, ended: bool = True
    ) -> Run:
        folder = tmp_path / "runs" / f"{name}-{fingerprint}-s{seed}"
        env = {"key": {"recipe": fingerprint, "seed": seed}}
        writer = RunWriter.create(folder, f"name: {name}\n", f"name: {name}  # line 1\n", env)
        for step in range(1, steps + 1):
            writer.metric(step=step, epoch=step / 2, split="test", loss=1 / step, accuracy=1 - 1 / (step + 1))
        writer.status("finished" if ended else "running", step=steps, total_steps=steps)
        writer.close()
        return Run(folder)

    return make


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RunWriter]:
    with RunWriter.create(
        tmp_path / "runs" / "digits-3f2a1b-s0", "name: digits\n", "name: digits\n", {}
    ) as opened:
        yield opened
