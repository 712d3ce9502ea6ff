"""Probes in a recipe: the run is the same bit for bit, the readings are in its folder, and it resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from apoint.engine import Options, train
from apoint.engine.fleet import Fleet, Task
from apoint.errors import UnknownNameError, UsageError
from apoint.recipe import Recipe, load_recipe
from apoint.registry import registry
from apoint.store import Run

RECIPE: dict[str, Any] = {
    "data": {"name": "digits", "limit": 320, "validation": 0.1},
    "model": {"name": "mlp", "width": 16, "dropout": 0.2, "norm": "batch"},
    "batch_size": 32,
    "steps": 20,
}
PROBES = {"signal": "every 5 steps", "dead-units": "every 1 epoch", "path": 10, "distance": 10, "budget": 1.0}


def weights(run: Run) -> dict[str, torch.Tensor]:
    return dict(run.model().state_dict())


def test_a_run_is_the_same_with_and_without(tmp_path: Path) -> None:
    recipe = {**RECIPE, "steps": 300}  # long enough for every probe to have its turn
    plain = train(recipe, runs_root=tmp_path / "plain")
    watched = train({**recipe, "probes": PROBES}, runs_root=tmp_path / "watched")
    assert plain.fingerprint == watched.fingerprint, "what is measured is not part of what is trained"
    for name, tensor in weights(plain).items():
        assert torch.equal(tensor, weights(watched)[name]), name
    assert _values(plain) == _values(watched)
    assert watched.probes == ["dead-units", "distance", "path", "signal"]
    assert plain.probes == []


def _values(run: Run) -> list[Any]:
    kept = ("step", "split", "loss", "accuracy")
    return [{key: row[key] for key in kept if key in row} for row in run.metrics]


def test_all_probes_at_once(tmp_path: Path) -> None:
    everything = dict.fromkeys([*registry("probe"), *registry("track")], 10) | {"budget": 1.0}
    recipe = {**RECIPE, "model": {"name": "cnn", "depth": 2, "width": 4}, "batch_size": 16}
    plain = train(recipe, runs_root=tmp_path / "plain")
    watched = train({**recipe, "probes": everything}, runs_root=tmp_path / "watched")
    for key, tensor in weights(plain).items():
        assert torch.equal(tensor, weights(watched)[key]), key
    assert watched.probes


def test_readings_are_in_the_folder(tmp_path: Path) -> None:
    run = train({**RECIPE, "steps": 400, "probes": {**PROBES, "budget": 0.5}}, runs_root=tmp_path)
    rows = run.readings("signal")
    assert rows[0]["step"] == 0
    assert all(row["step"] % 5 == 0 for row in rows)
    assert rows[0]["status"] == "computed"
    assert rows[0]["epoch"] == 0
    assert rows[0]["per_layer"]
    with pytest.raises(UnknownNameError, match="fisher"):
        run.readings("fisher")


def test_it_goes_on_after_an_interruption(tmp_path: Path) -> None:
    """The way travelled is the same as without the interruption."""
    recipe = {**RECIPE, "steps": 60, "probes": {"path": 20, "distance": 20, "budget": 1.0}}
    whole = train(recipe, runs_root=tmp_path / "whole")

    class EnoughError(Exception):
        pass

    def stop(moment: Any) -> None:
        if moment.step >= 30:
            raise EnoughError

    with pytest.raises(EnoughError):
        train(recipe, runs_root=tmp_path / "cut", checkpoint_every="10 steps", watch=stop)
    cut = train(recipe, runs_root=tmp_path / "cut")
    for probe in ("path", "distance"):
        one, two = whole.readings(probe)[-1], cut.readings(probe)[-1]
        assert one["step"] == two["step"] == 60
        assert one["value"] == pytest.approx(two["value"], rel=1e-12)


def test_a_recipe_says_what_is_wrong(tmp_path: Path) -> None:
    for probes, sentence in (
        ({"fisherman": "1 epoch"}, "unknown probe 'fisherman'"),
        ({"signal": "sometimes"}, "cannot read 'sometimes'"),
        ({"signal": {"every": "1 epoch", "colour": 1}}, "colour"),
        ({"budget": 3}, "share of the training time"),
        ("signal", "must map probes"),
    ):
        with pytest.raises(UsageError, match=sentence):
            load_recipe({**RECIPE, "probes": probes})


def test_the_recipe_keeps_what_is_measured() -> None:
    recipe, _ = load_recipe({**RECIPE, "probes": {"signal": "every 100 steps", "budget": "5%"}})
    assert recipe.probes["signal"]["every"] == "100 steps"
    assert recipe.probes["budget"] == 0.05
    assert Recipe(**recipe.model_dump()).probes == recipe.probes


def test_replicas_with_probes_are_not_stacked(tmp_path: Path) -> None:
    recipe, document = load_recipe({**RECIPE, "probes": {"signal": 5, "budget": 1.0}})
    with Fleet(Options(runs_root=tmp_path), backend="stacked") as fleet:
        ended = fleet.train([Task(recipe, document, seed) for seed in (0, 1)])
    assert {each.state for each in ended} == {"finished"}
    assert all(Run(each.folder).probes == ["signal"] for each in ended)
