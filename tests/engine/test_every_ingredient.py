"""Every registered ingredient is a switch in a recipe: a replica is built with it and takes steps."""

import math
from typing import Any

import pytest

from apoint.engine import assemble, training_step
from apoint.recipe import load_recipe
from apoint.registry import registry
from tests.models.cases import all_cases

IMAGES = {"name": "procedural", "num_train": 60, "num_test": 20, "size": 16, "channels": 3}
DATA: dict[str, dict[str, Any]] = {
    "image": IMAGES,
    "signal": {"name": "mnist-1d", "num_samples": 100},
    "vector": {"name": "moons", "num_samples": 60},
    "tokens": {"name": "python-docs", "context": 8, "limit": 40},
}
SMALL: dict[str, dict[str, Any]] = {
    "vit": {"depth": 2, "width": 16, "num_heads": 2},
    "char-transformer": {"depth": 2, "width": 16, "num_heads": 2},
    "lstm-lm": {"width": 16},
}
CASES = all_cases()
BASE: dict[str, Any] = {
    "data": DATA["image"],
    "model": {"name": "mlp", "width": 8, "depth": 1},
    "optimizer": {"name": "adamw"},
    "batch_size": 10,
    "steps": 20,
}
# What an ingredient needs beside its name.
NEEDS: dict[tuple[str, str], dict[str, Any]] = {
    ("schedule", "piecewise"): {"points": [["0%", 1.0], ["100%", 0.5]]},
    ("norm", "group"): {"num_groups": 4},
    ("init", "fixup"): {},
}


def steps(changes: dict[str, Any], count: int = 3) -> list[float]:
    """The losses of a replica's first steps."""
    replica = assemble(load_recipe({**BASE, **changes})[0])
    return [training_step(replica, step) for step in range(count)]


def spec(kind: str, name: str) -> dict[str, Any]:
    return {"name": name, **NEEDS.get((kind, name), {})}


def names(kind: str) -> list[str]:
    return list(registry(kind))


@pytest.mark.parametrize("name", names("optimizer"))
def test_optimizers(name: str) -> None:
    assert all(map(math.isfinite, steps({"optimizer": spec("optimizer", name)})))


@pytest.mark.parametrize("name", names("schedule"))
def test_schedules(name: str) -> None:
    assert all(map(math.isfinite, steps({"schedule": spec("schedule", name)})))


@pytest.mark.parametrize("name", names("clip"))
def test_clips(name: str) -> None:
    assert all(map(math.isfinite, steps({"clip": spec("clip", name)})))


@pytest.mark.parametrize("name", names("activation"))
def test_activations(name: str) -> None:
    assert all(map(math.isfinite, steps({"model": {**BASE["model"], "activation": name}})))


@pytest.mark.parametrize("model", ["mlp", "cnn", "residual-mlp", "resnet20", "vit"])
@pytest.mark.parametrize("name", names("norm"))
def test_norms(name: str, model: str) -> None:
    settings = {"name": model, **SMALL.get(model, {}), "norm": spec("norm", name), "width": 16}
    assert all(map(math.isfinite, steps({"model": settings}, 2)))


@pytest.mark.parametrize("name", names("init"))
def test_inits(name: str) -> None:
    model = {"name": "residual-mlp", "width": 8, "depth": 2, "norm": "none", "fixup": name == "fixup"}
    assert all(map(math.isfinite, steps({"model": model, "init": spec("init", name)})))


@pytest.mark.parametrize("name", names("feed-forward"))
def test_feed_forwards(name: str) -> None:
    model = {"name": "vit", **SMALL["vit"], "feed_forward": name}
    assert all(map(math.isfinite, steps({"model": model})))


@pytest.mark.parametrize("name", names("loss"))
def test_losses(name: str) -> None:
    tasks = registry("loss")[name].traits["tasks"]
    data = {"name": "teacher", "num_samples": 60} if "regression" in tasks else DATA["vector"]
    assert all(map(math.isfinite, steps({"loss": name, "data": data})))


@pytest.mark.parametrize("name", names("augmentation"))
def test_augmentations(name: str) -> None:
    data = DATA["signal"] if name.startswith("signal") else DATA["image"]
    assert all(map(math.isfinite, steps({"data": data, "augment": [spec("augmentation", name)]})))


@pytest.mark.parametrize("name", names("deficit"))
def test_deficits_change_the_batches_while_they_last(name: str) -> None:
    changes = {"deficits": [{"name": name, "end": "50%"}]}
    assert all(map(math.isfinite, steps(changes)))
    assert steps(changes, 1) != steps({}, 1)


@pytest.mark.parametrize("name", CASES)
def test_models_take_every_kind_of_data_they_claim(name: str) -> None:
    """Of members of a family, which are the family with other numbers, only those that are small."""
    case = CASES[name]
    images = {**IMAGES, "size": max(IMAGES["size"], case.image[1]), "channels": case.image[0]}
    for kind in registry("model")[name].traits["inputs"]:
        data = images if kind == "image" else DATA[kind]
        assert all(map(math.isfinite, steps({"model": {"name": name, **case.settings}, "data": data}, 2))), (
            kind
        )


MICRO = [name for name in names("model") if name.endswith("-micro")]


@pytest.mark.parametrize("name", MICRO)
def test_micro_models_take_a_step_on_small_images(name: str) -> None:
    assert all(map(math.isfinite, steps({"model": name, "data": {**IMAGES, "size": 32}}, 1)))


def test_a_different_choice_makes_a_difference() -> None:
    base = steps({})
    for changes in (
        {"optimizer": "lion"},
        {"schedule": {"name": "linear", "start": 0.1, "end": 1.0}},
        {"clip": {"name": "norm", "limit": 1e-3}},
        {"model": {**BASE["model"], "activation": "tanh"}},
        {"model": {**BASE["model"], "norm": "layer"}},
        {"init": "orthogonal"},
        {"loss": "brier"},
        {"augment": ["flip"]},
    ):
        assert steps(changes) != base, changes
