"""Every registered ingredient in a stack: it trains as alone, or there is a reason why it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from apoint.engine import training_step
from apoint.engine.stacked import CannotStackError, Stack, stacked_step
from apoint.registry import registry
from tests.engine.stacked.cases import IMAGES, build, distance, kinds, state
from tests.models.cases import Case, all_cases

DATA: dict[str, dict[str, Any]] = {
    "image": IMAGES,
    "signal": {"name": "mnist-1d", "num_samples": 60},
    "vector": {"name": "moons", "num_samples": 60},
    "tokens": {"name": "python-docs", "context": 8, "limit": 40},
}
CASES = all_cases()
BASE: dict[str, Any] = {
    "data": DATA["vector"],
    "model": {"name": "mlp", "width": 8, "depth": 1},
    "optimizer": {"name": "sgd", "lr": 0.01},
    "batch_size": 10,
    "steps": 20,
}
NEEDS: dict[tuple[str, str], dict[str, Any]] = {
    ("schedule", "piecewise"): {"points": [["0%", 1.0], ["100%", 0.5]]},
    ("norm", "group"): {"num_groups": 2},
}
CANNOT: dict[str, str] = {}
"""Models that cannot be stacked as they come, with a part of the reason; there are none."""


def agree(changes: dict[str, Any], steps: int = 2) -> None:
    """Two replicas come to the same alone and stacked, in float64."""
    recipe = {**BASE, **changes}
    alone, stack = build(recipe, range(2), double=True), Stack(build(recipe, range(2), double=True))
    for step in range(steps):
        losses = [training_step(replica, step) for replica in alone]
        assert list(stacked_step(stack, step).losses.values()) == pytest.approx(losses, rel=1e-9)
    for row, replica in enumerate(alone):
        mine, its = state(stack.give_back(row)), state(replica)
        assert max(distance(mine, its, kind) for kind in kinds(its)) < 1e-8


def spec(kind: str, name: str) -> dict[str, Any]:
    return {"name": name, **NEEDS.get((kind, name), {})}


@pytest.mark.parametrize("name", CASES)
def test_models(name: str) -> None:
    for kind in registry("model")[name].traits["inputs"]:
        data = images(CASES[name]) if kind == "image" else DATA[kind]
        changes = {"model": {"name": name, **CASES[name].settings}, "data": data}
        if name not in CANNOT:
            agree(changes, steps=1)
            continue
        with pytest.raises(CannotStackError, match=CANNOT[name]):
            agree(changes)


def images(case: Case) -> dict[str, Any]:
    """Images as small as the model takes them."""
    return {**IMAGES, "size": max(IMAGES["size"], case.image[1]), "channels": case.image[0]}


@pytest.mark.parametrize("name", registry("activation"))
def test_activations(name: str) -> None:
    agree({"model": {**BASE["model"], "activation": name}})


@pytest.mark.parametrize("norm", ["batch", {"name": "group", "num_groups": 1}, "none"], ids=str)
def test_norms_of_one_channel(norm: str | dict[str, Any]) -> None:
    """Then the weights of all replicas can be seen as one vector without lying in a row."""
    model = {"name": "cnn", "width": 1, "depth": 1, "norm": norm}
    agree({"model": model, "data": {**DATA["image"], "size": 8}})


@pytest.mark.parametrize("model", ["mlp", "cnn", "residual-mlp", "resnet20", "vit"])
@pytest.mark.parametrize("name", registry("norm"))
def test_norms(name: str, model: str) -> None:
    settings = {"name": model, "norm": spec("norm", name), "width": 4}
    settings |= {"depth": 1, "num_heads": 2} if model == "vit" else {}
    agree({"model": settings, "data": IMAGES}, steps=1)


@pytest.mark.parametrize("name", registry("optimizer"))
def test_optimizers(name: str) -> None:
    agree({"optimizer": {"name": name, "weight_decay": 0.1}}, steps=6)


@pytest.mark.parametrize("name", registry("clip"))
def test_clips(name: str) -> None:
    settings = {} if name == "none" else {"limit": 0.01}
    agree({"clip": {"name": name, **settings}})


@pytest.mark.parametrize("name", registry("schedule"))
def test_schedules(name: str) -> None:
    agree({"schedule": spec("schedule", name)})


@pytest.mark.parametrize("name", registry("loss"))
def test_losses(name: str) -> None:
    tasks = registry("loss")[name].traits["tasks"]
    agree(
        {
            "loss": name,
            "data": {"name": "teacher", "num_samples": 60} if "regression" in tasks else DATA["vector"],
        }
    )


@pytest.mark.parametrize("name", registry("feed-forward"))
def test_feed_forwards(name: str) -> None:
    agree({"model": {"name": "vit", **CASES["vit"].settings, "feed_forward": name}, "data": IMAGES}, steps=1)


@pytest.mark.parametrize("name", registry("augmentation"))
def test_augmentations(name: str) -> None:
    data = DATA["signal"] if name.startswith("signal") else DATA["image"]
    agree({"data": data, "augment": [name]}, steps=1)


@pytest.mark.parametrize("name", registry("deficit"))
def test_deficits(name: str) -> None:
    agree({"data": DATA["image"], "deficits": [{"name": name, "end": "50%"}]}, steps=1)
