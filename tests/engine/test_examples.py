"""Results of single examples at the last evaluation: what is kept, by both engines, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import apoint
from apoint.data import load
from apoint.engine import Trainer, examples
from apoint.engine.api import Options, Session
from apoint.engine.examples import why_not_kept
from apoint.engine.stacked import stack_session
from apoint.errors import DivergedError
from apoint.recipe import load_recipe
from apoint.store import Run, RunWriter
from apoint.store.layout import EXAMPLES

DIGITS: dict[str, Any] = {
    "name": "single",
    "data": {"name": "digits", "limit": 160, "validation": 0.1},
    "model": {"name": "mlp", "width": 8},
    "optimizer": {"name": "adamw", "lr": 3e-3},
    "average": {"decay": 0.9},
    "vary": ["init", "order", "split"],
    "batch_size": 32,
    "epochs": 2,
}
CHARS: dict[str, Any] = {
    "name": "chars",
    "data": {"name": "python-docs", "context": 8, "limit": 80, "test_share": 0.01},
    "model": {"name": "char-transformer", "depth": 1, "width": 8, "num_heads": 1},
    "batch_size": 16,
    "steps": 4,
}
TEACHER: dict[str, Any] = {
    "name": "teacher",
    "data": {"name": "teacher", "num_samples": 200},
    "model": {"name": "mlp", "width": 8},
    "loss": "huber",
    "batch_size": 16,
    "steps": 4,
}
ONE_OUTPUT: dict[str, Any] = {
    **TEACHER,
    "name": "one",
    "data": {"name": "moons", "num_samples": 200},
    "loss": "binary-cross-entropy",
}
ALL = {"digits": DIGITS, "chars": CHARS, "teacher": TEACHER, "one output": ONE_OUTPUT}


def stacked(root: Path, recipe: dict[str, Any], seeds: range = range(2)) -> list[Run]:
    options = Options(runs_root=root, threads=1)
    sessions = [Session(*load_recipe(recipe), seed, options, lambda text: None) for seed in seeds]
    return [outcome.run for outcome in stack_session(sessions, root / "stack")]


@pytest.mark.parametrize("name", ALL)
def test_their_mean_is_the_metric(name: str, tmp_path: Path) -> None:
    alone = apoint.train(ALL[name], seed=1, runs_root=tmp_path / "alone", threads=1)
    for run in (alone, *stacked(tmp_path / "stacked", ALL[name])):
        assert run.seal is not None
        assert run.problems() == []
        means = [each for each in run.seal.metrics if not each.endswith(("rmse", "explained"))]
        held_out = [each for each in means if not each.startswith("train_")]
        assert held_out
        for metric in held_out:
            found = run.examples(metric)
            assert found is not None, metric
            assert found.values.mean() == pytest.approx(run.seal.metrics[metric], rel=1e-6), metric
        assert run.examples("train_loss") is None
        assert run.examples("test_rmse") is None


def test_both_engines_write_the_same(tmp_path: Path) -> None:
    for seed, run in enumerate(stacked(tmp_path / "stacked", DIGITS)):
        alone = apoint.train(DIGITS, seed=seed, runs_root=tmp_path / "alone", threads=1)
        for metric in ("test_loss", "validation_loss", "test_average_loss"):
            mine, its = run.examples(metric), alone.examples(metric)
            assert mine is not None
            assert its is not None
            np.testing.assert_array_equal(mine.rows, its.rows)
            np.testing.assert_allclose(mine.values, its.values, rtol=2e-3, atol=2e-3)
        right = [each.examples("test_accuracy").values for each in (run, alone)]  # type: ignore[union-attr]
        assert (right[0] != right[1]).mean() < 0.01


def test_rows_say_which_examples_of_the_source_they_are(tmp_path: Path) -> None:
    runs = [apoint.train(DIGITS, seed=seed, runs_root=tmp_path) for seed in (0, 1)]
    drawn = []
    for seed, run in enumerate(runs):
        data = load("digits", seed=seed, validation=0.1, limit=160)
        for split in ("test", "validation"):
            found, rows = run.examples(f"{split}_loss"), data.splits[split].rows
            assert found is not None
            assert rows is not None
            assert found.rows is not None
            assert found.rows.tolist() == rows.tolist()
            drawn.append(set(rows.tolist()))
        assert not drawn[-1] & drawn[-2], "test and validation share no example"
        assert data.train.rows is None
    assert drawn[0] != drawn[2], "the seed draws the split"


@pytest.mark.parametrize("seed", [0, 5])
def test_rows_lead_back_to_the_source(seed: int) -> None:
    from apoint.data.embedded import digits

    source, data = digits().train, load("digits", seed=seed, validation=0.2)
    for split in (data.test, data.validation):
        assert split is not None
        assert split.rows is not None
        assert torch.equal(source.inputs[split.rows], split.inputs)
        assert torch.equal(source.targets[split.rows], split.targets)


def test_a_published_test_set_needs_no_rows(tmp_path: Path) -> None:
    images = {"name": "procedural", "num_train": 40, "num_test": 20, "size": 8, "channels": 3}
    recipe = {**CHARS, "name": "published", "data": images, "model": {"name": "mlp", "width": 8}}
    run = apoint.train(recipe, runs_root=tmp_path)
    found = run.examples("test_accuracy")
    assert found is not None
    assert found.rows is None


def test_a_run_that_stops_early_keeps_those_of_its_last_evaluation(tmp_path: Path) -> None:
    recipe = {
        **DIGITS,
        "name": "early",
        "optimizer": {"name": "adamw", "lr": 0.05},
        "early_stop": {"metric": "validation_loss", "patience": 1},
        "evaluate_every": "2 steps",
        "epochs": 20,
    }
    runs = stacked(tmp_path / "stacked", recipe, range(3))
    runs.append(apoint.train(recipe, runs_root=tmp_path / "alone"))
    for run in runs:
        assert run.seal is not None
        assert run.seal.step < run.seal.total_steps  # type: ignore[operator]
        found = run.examples("test_loss")
        assert found is not None
        assert found.values.mean() == pytest.approx(run.seal.metrics["test_loss"], rel=1e-6)


def test_a_run_that_diverges_has_none(tmp_path: Path) -> None:
    with pytest.raises(DivergedError):
        apoint.train(DIGITS, changes={"optimizer": {"name": "sgd", "lr": 1e30}}, runs_root=tmp_path)
    (folder,) = tmp_path.glob("single-*")
    assert not (folder / EXAMPLES).exists()
    assert Run(folder).examples("test_loss") is None


def test_large_splits_and_windows_that_overlap_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlapping = {**CHARS, "data": {**CHARS["data"], "stride": 4}}
    run = apoint.train(overlapping, runs_root=tmp_path / "text")
    assert not (run.folder / EXAMPLES).exists()
    text = load({"name": "python-docs", "context": 8, "stride": 4}, limit=80, test_share=0.01)
    assert "overlap" in why_not_kept("test_loss", text)
    data = load("digits")
    assert why_not_kept("test_accuracy", data) == ""
    assert "not a mean over examples" in why_not_kept("test_average_rmse", data)
    monkeypatch.setattr(examples, "MOST_EXAMPLES", 200)  # more than are held out for validation
    assert "359 examples are not kept" in why_not_kept("test_accuracy", data)
    run = apoint.train(DIGITS, runs_root=tmp_path / "digits")
    assert run.examples("test_loss") is None
    assert run.examples("validation_loss") is not None


@pytest.mark.parametrize("moment", ["before the checkpoint", "after the checkpoint"])
def test_a_run_killed_at_its_end_keeps_them(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = apoint.train(DIGITS, runs_root=tmp_path / "whole")

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    own_save, own_status = Trainer.save, RunWriter.status
    if moment == "before the checkpoint":
        monkeypatch.setattr(Trainer, "save", lambda self: die() if self.is_last else own_save(self))
    else:
        monkeypatch.setattr(
            RunWriter,
            "status",
            lambda self, state, **facts: die() if state == "finished" else own_status(self, state, **facts),
        )
    with pytest.raises(KeyboardInterrupt):
        apoint.train(DIGITS, runs_root=tmp_path / "killed", checkpoint_every="3 steps")
    monkeypatch.undo()
    again = apoint.train(DIGITS, runs_root=tmp_path / "killed")
    assert again.problems() == []
    assert (again.folder / EXAMPLES).read_bytes() == (whole.folder / EXAMPLES).read_bytes()


def test_training_is_the_same_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def numbers(run: Run) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if k not in ("time", "seconds")} for row in run.metrics]

    with_them = apoint.train(DIGITS, runs_root=tmp_path / "with")
    monkeypatch.setattr(examples, "MOST_EXAMPLES", 0)
    without = apoint.train(DIGITS, runs_root=tmp_path / "without")
    assert not (without.folder / EXAMPLES).exists()
    assert numbers(with_them) == numbers(without)
