"""`apoint.compare` from Python: it tunes as the command line does, and draws what it knows when stopped."""

import signal
from pathlib import Path
from typing import Any

import pytest

import apoint
from apoint.engine.fleet import Fleet
from apoint.engine.signals import TrainingInterruptedError

SMALL = {
    "data": {"name": "digits", "limit": 200, "validation": 0.2},
    "model": {"name": "mlp", "width": 8, "depth": 1},
    "epochs": 1,
    "batch_size": 40,
}


def test_both_arms_can_be_tuned_first(tmp_path: Path) -> None:
    verdict = apoint.compare(
        SMALL, changes={"model.width": 9}, tune="lr", tune_budget=3, runs_root=tmp_path, backend="loop",
        max_pairs=6, margin=0.3,
    )  # fmt: skip
    (folder,) = (tmp_path / "comparisons").iterdir()
    assert (folder / "tuning.json").exists()
    assert (folder / "report.html").exists()
    assert verdict.pairs == 6


def test_what_was_known_when_it_was_stopped_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, called = Fleet.train, []

    def stopped(fleet: Fleet, tasks: Any) -> Any:
        if len(called) == 1:
            raise TrainingInterruptedError(signal.SIGINT, "stopped")
        called.append(tasks)
        return train(fleet, tasks)

    monkeypatch.setattr(Fleet, "train", stopped)
    with pytest.raises(TrainingInterruptedError):
        apoint.compare(
            SMALL,
            changes={"optimizer.lr": 1.1e-3},
            runs_root=tmp_path,
            backend="loop",
            looks=(6, 12),
            margin=1e-4,
        )
    (folder,) = (tmp_path / "comparisons").iterdir()
    assert "was interrupted" in (folder / "report.html").read_text()
