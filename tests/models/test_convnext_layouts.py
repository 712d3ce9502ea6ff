"""Weights of ConvNeXt in the names of timm, torchvision, the paper's repository and Hugging Face."""

import pytest
import torch
from torch import nn

from apoint.errors import UsageError
from apoint.models import create, load_weights, save_weights
from apoint.models.layouts import layouts_of, to_theirs
from apoint.models.layouts.convnext import PREPROCESSING
from tests.models.foreign import assert_keys, assert_undone
from tests.models.keys import key_lines, known_keys

KEYS = known_keys("convnext")
LAYOUTS = ["apoint", "timm", "timm-convolutional", "torchvision", "facebook", "huggingface"]


def small(**settings):
    """A small network with every weight away from its start, in evaluation."""
    torch.manual_seed(0)
    facts = {"in_channels": 3, "num_classes": 5, "input_size": 32}
    model = create("convnext", **{**facts, "width": 8, "depths": (1, 2, 1), "layer_scale": 0.5, **settings})
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.mark.parametrize("place", KEYS)
def test_names_shapes_and_types_are_those_of_the_library(place):
    layout, name = place.split("/")
    with torch.device("meta"):  # timm's smallest is no member here, but its weights have a place
        atto = {"width": 40, "depths": (2, 2, 6, 2)}
        model = create("convnext", **atto) if name == "atto" else create(name)
    assert_keys(model, layout, KEYS[place])


def test_names_and_shapes_are_those_of_the_papers_repository():
    model = small(depths=(1, 1))
    weights, unnamed = to_theirs(model, layouts_of(model)["facebook"])
    assert unnamed == []
    shapes = {
        "downsample_layers.0.0.weight": (8, 3, 4, 4),
        "downsample_layers.0.0.bias": (8,),
        "downsample_layers.0.1.weight": (8,),
        "downsample_layers.0.1.bias": (8,),
        "downsample_layers.1.0.weight": (8,),
        "downsample_layers.1.0.bias": (8,),
        "downsample_layers.1.1.weight": (16, 8, 2, 2),
        "downsample_layers.1.1.bias": (16,),
        "norm.weight": (16,),
        "norm.bias": (16,),
        "head.weight": (5, 16),
        "head.bias": (5,),
    }
    for stage, channels in ((0, 8), (1, 16)):
        shapes |= {
            f"stages.{stage}.0.gamma": (channels,),
            f"stages.{stage}.0.dwconv.weight": (channels, 1, 7, 7),
            f"stages.{stage}.0.dwconv.bias": (channels,),
            f"stages.{stage}.0.norm.weight": (channels,),
            f"stages.{stage}.0.norm.bias": (channels,),
            f"stages.{stage}.0.pwconv1.weight": (4 * channels, channels),
            f"stages.{stage}.0.pwconv1.bias": (4 * channels,),
            f"stages.{stage}.0.pwconv2.weight": (channels, 4 * channels),
            f"stages.{stage}.0.pwconv2.bias": (channels,),
        }
    assert key_lines(weights) == sorted(f"{name}\t{shape}\tfloat32" for name, shape in shapes.items())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_there_and_back(layout, tmp_path):
    model, other = small(), small()
    for parameter in other.parameters():
        nn.init.ones_(parameter)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(model(images), other(images))
    save_weights(model, tmp_path / "w.safetensors", layout)
    report = load_weights(other, tmp_path / "w.safetensors")
    assert report.layout == layout
    assert report.matched == list(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    torch.testing.assert_close(model(images), other(images), rtol=0, atol=1e-5)


def test_translation_is_undone_by_its_inverse():
    model = small()
    assert list(layouts_of(model)) == LAYOUTS
    assert_undone(model)


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_another_size_of_images_and_another_number_of_classes(layout, tmp_path):
    """No weight depends on the size of images; a head for other classes is left as it was built."""
    model, other = small(), small(num_classes=9, input_size=(48, 64))
    built = other.head.weight.clone()
    save_weights(model, tmp_path / "w.safetensors", layout)
    report = load_weights(other, tmp_path / "w.safetensors")
    assert (report.left, report.resized) == (["head.weight", "head.bias"], {})
    assert torch.equal(other.head.weight, built)
    assert torch.equal(
        other.stages[2].blocks[0].branch.linear1.weight, model.stages[2].blocks[0].branch.linear1.weight
    )
    assert other(torch.randn(1, 3, 48, 64)).shape == (1, 9)


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path):
    save_weights(small(), tmp_path / "w.safetensors", "timm")
    other = small(width=16)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(UsageError, match=r"stem\.convolution\.weight is 8×3×4×4 in the file and 16×3×4×4"):
        load_weights(other, tmp_path / "w.safetensors")
    assert all(torch.equal(before[name], value) for name, value in other.state_dict().items())
    with pytest.raises(UsageError, match=r"the model has no stages\.0\.blocks\.0\.gamma"):
        load_weights(small(layer_scale=None), tmp_path / "w.safetensors", layout="timm")


@pytest.mark.parametrize(
    ("name", "layout", "size", "resized", "interpolation"),
    [
        ("convnext_tiny.fb_in1k.safetensors", "timm", 224, 256, "bicubic"),
        ("convnext_base.fb_in22k_ft_in1k_384.safetensors", "timm", 384, 384, "bicubic"),
        ("convnext_tiny.in12k_ft_in1k.safetensors", "timm", 224, 235, "bicubic"),
        ("convnext_tiny-983f1562.safetensors", "torchvision", 224, 236, "bilinear"),
        ("convnext_small-0c510722.safetensors", "torchvision", 224, 230, "bilinear"),
        ("convnext_base-6075fbad.safetensors", "torchvision", 224, 232, "bilinear"),
        ("convnext_large-ea097f82.safetensors", "torchvision", 224, 232, "bilinear"),
        ("convnext_tiny_1k_224_ema.safetensors", "facebook", 224, 256, "bicubic"),
        ("convnext_base_22k_1k_384.safetensors", "facebook", 384, 384, "bicubic"),
        ("model.safetensors", "huggingface", 224, 256, "bicubic"),
    ],
)
def test_preprocessing_that_belongs_to_a_file(name, layout, size, resized, interpolation, tmp_path):
    save_weights(small(), tmp_path / name, layout)
    found = load_weights(small(), tmp_path / name).preprocessing
    assert (found.size, found.interpolation) == (size, interpolation)
    assert int(found.size / found.crop_share) == resized
    assert found.mean == PREPROCESSING["timm"].mean == (0.485, 0.456, 0.406)
