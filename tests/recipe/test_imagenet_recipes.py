"""The recipes for ImageNet: their numbers are the published ones, and what they ask for trains."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from apoint.data import Facts
from apoint.engine import Replica, assemble, training_step
from apoint.engine.replica import _registered_model, flat_parameters, shape_facts
from apoint.models import create, save_weights
from apoint.models.depth import layer_rates
from apoint.recipe import Recipe, load_recipe

FOLDER = Path(__file__).parents[2] / "recipes"
NAMES = ["resnet50", "vit-small", "swin-tiny", "convnext-tiny", "finetune-vit-base"]
# From the sources named in the recipes: batch, epochs, warm-up, peak, start and end of the rate, decay,
# stochastic depth, probability of erasing, alphas of mix-up and cut-mix, decay of the average, limit of norm.
PUBLISHED: dict[str, tuple[float | None, ...]] = {
    "resnet50": (1024, 600, 5, 0.5, 5e-3, 0.0, 2e-5, 0.0, 0.1, 0.2, 1.0, 0.999966, None),
    "vit-small": (1024, 300, 5, 1e-3, 1e-6, 1e-5, 0.05, 0.1, 0.25, 0.8, 1.0, 0.99996, None),
    "swin-tiny": (1024, 300, 20, 1e-3, 1e-6, 1e-5, 0.05, 0.2, 0.25, 0.8, 1.0, None, 5.0),
    "convnext-tiny": (4096, 300, 20, 4e-3, 0.0, 1e-6, 0.05, 0.1, 0.25, 0.8, 1.0, 0.9999, None),
    "finetune-vit-base": (1024, 100, 5, 2e-3, 0.0, 1e-6, 0.05, 0.1, 0.25, 0.8, 1.0, None, None),
}


def recipe(name: str, changes: dict[str, Any] | None = None) -> Recipe:
    return load_recipe(FOLDER / f"imagenet-{name}.yaml", changes)[0]


def augmentation(made: Recipe, name: str) -> dict[str, Any]:
    (found,) = [each for each in made.augment if each["name"] == name]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_are_the_published_ones(name: str) -> None:
    made = recipe(name)
    peak, schedule, mixing = made.optimizer["lr"], made.schedule, augmentation(made, "mix-or-cut")
    found = (
        made.batch_size,
        made.epochs,
        float(schedule["warmup"].removesuffix(" epochs")),
        peak,
        peak * schedule["start"],
        peak * schedule["floor"],
        made.optimizer["l2"] or made.optimizer["weight_decay"],
        made.model["stochastic_depth"],
        augmentation(made, "random-erasing")["probability"],
        mixing["mix_alpha"],
        mixing["cut_alpha"],
        made.average.decay if made.average else None,
        made.clip.get("limit"),
    )
    assert list(found) == [
        value if value is None else pytest.approx(value, rel=1e-6) for value in PUBLISHED[name]
    ]
    assert made.loss["label_smoothing"] == 0.1
    assert (mixing["cut_share"], mixing["per"], mixing["probability"]) == (0.5, "batch", 1.0)
    assert made.init == {"name": "as-built"}
    assert made.layer_decay == (0.65 if name.startswith("finetune") else None)


def test_the_learning_rates_follow_the_batch_as_published() -> None:
    assert recipe("vit-small").optimizer["lr"] == 5e-4 * 1024 / 512
    assert recipe("swin-tiny").optimizer["lr"] == 5e-4 * 1024 / 512
    assert recipe("finetune-vit-base").optimizer["lr"] == 5e-4 * 1024 / 256
    every_32 = 1 - 2e-5 * 1024 * 32 / 600
    average = recipe("resnet50").average
    assert average is not None
    assert average.decay == pytest.approx(every_32 ** (1 / 32), abs=5e-7)


def test_the_crop_and_the_random_operations() -> None:
    for name in NAMES[1:]:
        crop, random = (augmentation(recipe(name), each) for each in ("random-resized-crop", "rand-augment"))
        assert (crop["smallest"], crop["largest"], crop["stretch"]) == (0.08, 1.0, pytest.approx(4 / 3))
        assert random == {
            "name": "rand-augment",
            "num_operations": 2,
            "magnitude": 9.0,
            "deviation": 0.5,
            "probability": 0.5,
        }


@pytest.mark.parametrize("name", NAMES)
def test_decay_and_rates_fall_on_the_right_parameters(name: str) -> None:
    made = recipe(name)
    with torch.device("meta"):
        facts = Facts("image", "classification", (3, 224, 224), 1000, tuple(map(str, range(1000))))
        model = _registered_model(made, facts, shape_facts(facts, made.loss["name"]))
    parameters = flat_parameters(made, model)
    decayed = [slot for slot in parameters.slots if slot.start < parameters.boundary]
    if name != "resnet50":
        assert all(len(slot.size) > 1 for slot in decayed), "nothing of one dimension decays"
        assert not any("position" in slot.name or "token" in slot.name for slot in decayed)
    rates = {slot.name: slot.rate for slot in parameters.slots}
    if made.layer_decay is None:
        assert set(rates.values()) == {1.0}
    else:
        assert rates == layer_rates(model, 0.65)
        assert min(rates.values()) == pytest.approx(0.65**13)


def test_layer_decay_published_for_groups_is_another_number_for_blocks() -> None:
    """ConvNeXt's 0.8 for 12 groups, against one layer for each block, as timm counts (vision.md, 4.3)."""
    with torch.device("meta"):
        tiny, small = create("convnext-tiny"), create("convnext-small")
    assert min(layer_rates(tiny, 0.8).values()) == pytest.approx(0.0144, abs=5e-5)
    assert min(layer_rates(small, 0.8).values()) == pytest.approx(0.00026, abs=5e-6)
    assert min(layer_rates(small, 0.925).values()) == pytest.approx(0.8**13, rel=0.02)


MICRO = {
    "resnet50": "resnet-micro",
    "vit-small": "vit-micro",
    "swin-tiny": "swin-micro",
    "convnext-tiny": "convnext-micro",
    "finetune-vit-base": "vit-micro",
}


def small(name: str) -> Replica:
    """The recipe on small images, with the smallest model of the family."""
    data = {"name": "procedural", "size": 32, "channels": 3, "num_train": 64, "num_test": 16}
    model = {key: value for key, value in recipe(name).model.items() if key.startswith("stochastic_depth")}
    changes = {
        "data": data,
        "model": {**model, "name": MICRO[name]},
        "batch_size": 16,
        "accumulate": 2,
        "epochs": 21,
        "weights": None,
    }
    return assemble(recipe(name, changes))


@pytest.mark.parametrize("name", NAMES)
def test_what_the_recipe_asks_for_trains(name: str) -> None:
    replica = small(name)
    before = replica.parameters.weights_P.clone()
    assert all(math.isfinite(training_step(replica, step)) for step in range(3))
    assert not torch.equal(before, replica.parameters.weights_P)
    assert (replica.average_P is not None) is (replica.recipe.average is not None)


def test_fine_tuning_begins_with_weights_from_a_file_as_the_recipe_says(tmp_path: Path) -> None:
    torch.manual_seed(0)
    pretrained = create("vit-micro", num_classes=7, input_size=32)
    save_weights(pretrained, tmp_path / "pretrained.safetensors")
    changes = {
        "data": {"name": "procedural", "size": 32, "channels": 3, "num_train": 64, "num_test": 16},
        "model": "vit-micro",
        "batch_size": 16,
        "accumulate": 2,
    }
    replica = assemble(recipe("finetune-vit-base", changes), folder=tmp_path)
    mine, theirs = replica.model.state_dict(), pretrained.state_dict()
    same = [name for name, value in theirs.items() if torch.equal(mine[name], value)]
    assert sorted(set(theirs) - set(same)) == ["head.bias", "head.weight"]
    assert len({slot.rate for slot in replica.parameters.slots}) > 3
    assert math.isfinite(training_step(replica, 0))
