"""Weights of AlexNet from torchvision: names, round trips, other numbers of classes."""

import pytest
import torch
from torch import nn

from apoint.errors import UsageError
from apoint.models import create, load_weights, save_weights
from tests.models.foreign import assert_keys, assert_there_and_back, assert_undone
from tests.models.keys import known_keys

KEYS = known_keys("alexnet")


def small(**settings):
    facts = {"num_classes": 5, "input_size": 64, "widths": (4, 8, 12, 8, 4), "hidden": 6, "pooled": 2}
    return create("alexnet", **{**facts, **settings}).eval()


@pytest.mark.parametrize("place", KEYS)
def test_names_shapes_and_types_are_those_of_the_library(place):
    layout, name = place.split("/")
    with torch.device("meta"):
        model = create(name)
    assert_keys(model, layout, KEYS[place])


@pytest.mark.parametrize("layout", ["apoint", "torchvision"])
def test_there_and_back(layout, tmp_path):
    model, other = small(), small()
    assert_there_and_back(model, other, layout, tmp_path, torch.randn(2, 3, 64, 64))


def test_translation_is_undone_by_its_inverse():
    model = small()
    assert_undone(model)


def torchvision_like():
    """A network with the modules of torchvision's in their order, so that its names are those."""
    features = nn.Sequential(
        nn.Conv2d(3, 4, 11, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(4, 8, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(8, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
    )
    classifier = nn.Sequential(
        nn.Dropout(), nn.Linear(16, 6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 5)
    )
    return nn.ModuleDict({"features": features, "classifier": classifier}).eval()


def test_logits_of_a_converted_network_are_unchanged(tmp_path):
    theirs, ours, images = torchvision_like(), small(), torch.randn(2, 3, 100, 100)
    torch.save(theirs.state_dict(), tmp_path / "alexnet.pth")
    report = load_weights(ours, tmp_path / "alexnet.pth")
    assert report.layout == "torchvision"
    pooled = nn.functional.adaptive_avg_pool2d(theirs["features"](images), 2)
    wanted = theirs["classifier"](pooled.flatten(1))
    torch.testing.assert_close(ours(images), wanted, rtol=1e-5, atol=1e-5)
    assert report.preprocessing is not None
    assert report.preprocessing.mean == (0.485, 0.456, 0.406)
    assert (report.preprocessing.size, report.preprocessing.crop_share) == (224, 0.875)


def test_another_number_of_classes_leaves_the_head(tmp_path):
    save_weights(small(), tmp_path / "w.safetensors", "torchvision")
    other = small(num_classes=3, input_size=80)
    report = load_weights(other, tmp_path / "w.safetensors")
    assert report.left == ["head.weight", "head.bias"]
    assert other(torch.randn(1, 3, 80, 80)).shape == (1, 3)


def test_what_torchvision_does_not_have_is_not_saved_in_its_layout(tmp_path):
    with pytest.raises(UsageError, match=r"'torchvision' has no place for features\.norm1\.weight"):
        save_weights(small(norm="batch"), tmp_path / "w.safetensors", "torchvision")
    assert not list(tmp_path.iterdir())


def test_weights_of_one_variant_do_not_fit_the_other(tmp_path):
    save_weights(small(), tmp_path / "w.safetensors", "torchvision")
    with pytest.raises(
        UsageError, match=r"features\.convolution2\.weight is 8×4×5×5 in the file and 8×2×5×5"
    ):
        load_weights(small(variant="2012"), tmp_path / "w.safetensors")
