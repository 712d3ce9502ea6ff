"""Training that begins with weights from a file: what is loaded, what stays, and what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from apoint.engine import train
from apoint.engine.replica import assemble
from apoint.errors import UsageError
from apoint.models import create, save_weights
from apoint.recipe import Recipe, load_recipe

NETWORK = {"name": "resnet", "block": "basic", "depths": [1], "width": 4, "stem": "small"}
RECIPE: dict[str, Any] = {
    "data": {"name": "digits", "limit": 200},
    "model": NETWORK,
    "steps": 3,
    "batch_size": 16,
}
WRITTEN = (
    "data: {name: digits, limit: 200}\nsteps: 3\nbatch_size: 16\nweights: {file: w.safetensors}\n"
    "model: {name: resnet, block: basic, depths: [1], width: 4, stem: small}\n"
)


def published(folder: Path, classes: int = 7, layout: str = "timm") -> Any:
    torch.manual_seed(5)
    settings = {**NETWORK, "depths": (1,)}
    name = settings.pop("name")
    model = create(name, in_channels=1, num_classes=classes, input_size=8, **settings)
    save_weights(model, folder / "w.safetensors", layout)
    return model


def begun(folder: Path, **weights: Any) -> Any:
    recipe = Recipe.load({**RECIPE, "weights": {"file": "w.safetensors", **weights}})
    return assemble(recipe, 0, folder=folder).model


def test_training_begins_with_the_weights_of_the_file(tmp_path: Path) -> None:
    source, model = published(tmp_path), begun(tmp_path)
    assert torch.equal(model.stem.convolution.weight, source.stem.convolution.weight)
    assert model.head.out_features == 10


def test_a_head_of_its_own_may_begin_smaller(tmp_path: Path) -> None:
    published(tmp_path)
    whole, half, none = (begun(tmp_path, head_scale=scale).head.weight for scale in (1.0, 0.5, 0.0))
    assert torch.equal(half, whole / 2)
    assert not none.any()


def test_a_head_that_is_in_the_file_is_not_scaled(tmp_path: Path) -> None:
    source = published(tmp_path, classes=10)
    assert torch.equal(begun(tmp_path, head_scale=0.0).head.weight, source.head.weight)


def test_the_file_is_part_of_what_a_run_is(tmp_path: Path) -> None:
    published(tmp_path)
    (tmp_path / "r.yaml").write_text(WRITTEN)
    options = {"runs_root": tmp_path / "runs"}
    first = train(tmp_path / "r.yaml", seed=0, **options)
    assert train(tmp_path / "r.yaml", seed=0, **options).env["key"] == first.env["key"]
    published(tmp_path, classes=8)
    with pytest.raises(UsageError, match="code"):
        train(tmp_path / "r.yaml", seed=0, **options)


def test_what_was_loaded_is_said_and_the_run_does_not_need_it_any_more(tmp_path: Path) -> None:
    published(tmp_path)
    (tmp_path / "r.yaml").write_text(WRITTEN)
    said: list[str] = []
    run = train(tmp_path / "r.yaml", runs_root=tmp_path / "runs", say=said.append)
    (sentence,) = [each for each in said if "w.safetensors" in each]
    assert sentence.startswith("begins with w.safetensors: ")
    assert "layout of timm; left as built: head" in sentence
    assert sentence in run.env["notes"]
    (tmp_path / "w.safetensors").unlink()
    assert run.model().head.out_features == 10


def test_without_weights_the_fingerprint_is_what_it_was() -> None:
    recipe, _ = load_recipe(RECIPE)
    assert "weights" not in recipe.canonical()
    assert recipe.init == Recipe.load({**RECIPE, "init": "he"}).init
    assert Recipe.load({**RECIPE, "weights": {"file": "w.pth"}}).init == {"name": "as-built"}


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({"file": "nowhere.pth"}, "names 'nowhere.pth', and there is no such file"),
        ({"file": "w.safetensors", "layout": "keras"}, "unknown layout 'keras'"),
        ({"file": "w.safetensors", "layout": "huggingface"}, "does not fit ResNet: the file lacks"),
    ],
)
def test_what_does_not_fit(weights: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    published(tmp_path)
    with pytest.raises(UsageError, match=sentence):
        begun(tmp_path, **weights)


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({}, "weights.file"),
        ({"file": "a", "head_scale": -1}, "head_scale"),
        ({"file": "a", "heads": 2}, "heads"),
    ],
)
def test_what_a_recipe_may_say(weights: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Recipe.load({**RECIPE, "weights": weights})
