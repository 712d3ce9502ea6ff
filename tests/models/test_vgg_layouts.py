"""Weights of VGG from torchvision and timm: names, round trips, other sizes and numbers of classes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from apoint.errors import UnknownNameError, UsageError
from apoint.models import create, load_weights, save_weights
from apoint.models.layouts import layouts_of
from tests.models.foreign import assert_keys, assert_there_and_back, assert_undone
from tests.models.keys import known_keys

KEYS = known_keys("vgg")


def small(**settings):
    facts = {"num_classes": 5, "input_size": 28, "depths": (1, 2), "width": 4, "hidden": 6}
    return create("vgg", **{**facts, **settings}).eval()


@pytest.mark.parametrize("place", KEYS)
def test_names_shapes_and_types_are_those_of_the_library(place):
    layout, name = place.split("/")
    with torch.device("meta"):
        model = create(name)
    assert_keys(model, layout, KEYS[place])


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("layout", ["apoint", "timm", "torchvision"])
def test_there_and_back(layout, norm, tmp_path):
    model, other = small(norm=norm), small(norm=norm)
    assert_there_and_back(model, other, layout, tmp_path, torch.randn(2, 3, 28, 28))


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_translation_is_undone_by_its_inverse(norm):
    model = small(norm=norm)
    assert_undone(model)


def public_features(norm):
    """The convolutions of `small` in one sequence, as both libraries have them."""
    layers = []
    for before, after, pool in ((3, 4, True), (4, 8, False), (8, 8, True)):
        layers.append(nn.Conv2d(before, after, 3, padding=1))
        layers.extend([nn.BatchNorm2d(after)] * (norm == "batch"))
        layers.append(nn.ReLU())
        layers.extend([nn.MaxPool2d(2)] * pool)
    return nn.Sequential(*layers)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_logits_of_a_network_from_torchvision_are_unchanged(norm, tmp_path):
    classifier = [nn.Linear(392, 6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 6), nn.ReLU(), nn.Dropout()]
    theirs = nn.ModuleDict(
        {"features": public_features(norm), "classifier": nn.Sequential(*classifier, nn.Linear(6, 5))}
    ).eval()
    torch.save(theirs.state_dict(), tmp_path / "vgg.pth")
    ours, images = small(norm=norm), torch.randn(2, 3, 40, 40)
    report = load_weights(ours, tmp_path / "vgg.pth")
    assert report.layout == "torchvision"
    wanted = theirs["classifier"](F.adaptive_avg_pool2d(theirs["features"](images), 7).flatten(1))
    torch.testing.assert_close(ours(images), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_logits_of_a_network_from_timm_are_unchanged(norm, tmp_path):
    """Its linear layers are convolutions, the first over 7×7 places."""
    pre_logits = nn.ModuleDict({"fc1": nn.Conv2d(8, 6, 7), "fc2": nn.Conv2d(6, 6, 1)})
    head = nn.ModuleDict({"fc": nn.Linear(6, 5)})
    theirs = nn.ModuleDict({"features": public_features(norm), "pre_logits": pre_logits, "head": head}).eval()
    torch.save(theirs.state_dict(), tmp_path / "vgg.pth")
    ours, images = small(norm=norm), torch.randn(2, 3, 28, 28)
    report = load_weights(ours, tmp_path / "vgg.pth")
    assert report.layout == "timm"
    hidden = pre_logits["fc2"](pre_logits["fc1"](theirs["features"](images)).relu()).relu()
    torch.testing.assert_close(ours(images), head["fc"](hidden.flatten(1)), rtol=1e-5, atol=1e-5)
    assert report.preprocessing is not None
    assert report.preprocessing.mean == (0.485, 0.456, 0.406)


@pytest.mark.parametrize("layout", ["timm", "torchvision"])
def test_another_size_and_number_of_classes(layout, tmp_path):
    model = small()
    save_weights(model, tmp_path / "w.safetensors", layout)
    other = small(num_classes=3, input_size=50)
    report = load_weights(other, tmp_path / "w.safetensors")
    assert report.left == ["head.weight", "head.bias"]
    assert torch.equal(other.hidden.linear1.weight, model.hidden.linear1.weight)
    assert other(torch.randn(1, 3, 50, 50)).shape == (1, 3)


@pytest.mark.parametrize(
    "settings", [{"norm": "batch", "norm_placement": "after"}, {"norm": "layer"}, {"pooled": 3}]
)
def test_networks_that_no_library_has_are_saved_in_our_layout_only(settings, tmp_path):
    assert list(layouts_of(small(**settings))) == ["apoint"]
    with pytest.raises(UnknownNameError, match="torchvision"):
        save_weights(small(**settings), tmp_path / "w.safetensors", "torchvision")


def test_weights_with_norms_do_not_fit_a_network_without(tmp_path):
    save_weights(small(norm="batch"), tmp_path / "w.safetensors", "torchvision")
    with pytest.raises(UsageError, match=r"does not fit VGG: the file lacks features\.3\.weight"):
        load_weights(small(), tmp_path / "w.safetensors")
