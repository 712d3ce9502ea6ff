"""Residual networks for photographs: exact counts, the formula in plain torch, weights from elsewhere."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from apoint.errors import UsageError
from apoint.models import count_parameters, create, load_weights, save_weights
from tests.models.foreign import assert_keys, assert_undone
from tests.models.keys import known_keys

COUNTS = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160, 152: 60_192_808}
KEYS = known_keys("resnet")


def on_meta(name, **settings):
    with torch.device("meta"):
        return create(name, **settings)


def shaken(model):
    """With every weight and running average away from its start, in evaluation."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.rand(tensor.shape, generator=generator))
    return model.eval()


def small(**settings):
    torch.manual_seed(0)
    facts = {"in_channels": 3, "num_classes": 5, "input_size": 32}
    return shaken(create("resnet", **{**facts, "width": 4, "depths": (2, 1), **settings}))


@pytest.mark.parametrize(("layers", "count"), COUNTS.items())
def test_parameters(layers, count):
    assert count_parameters(on_meta(f"resnet{layers}")) == count


def test_where_the_stride_stands_changes_no_parameter_but_the_output():
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    paper, public = small(stride_on="1x1"), small(stride_on="3x3")
    assert count_parameters(paper) == count_parameters(public)
    assert not torch.allclose(paper(images), public(images))


def by_hand(model, x, stride_on):
    """A bottleneck network with plain functions; batch norms by their formula."""
    weights = model.state_dict()

    def norm(x, name):
        mean, variance = weights[f"{name}.running_mean"], weights[f"{name}.running_var"]
        scale = weights[f"{name}.weight"] / (variance + 1e-5).sqrt()
        return (x - mean.view(1, -1, 1, 1)) * scale.view(1, -1, 1, 1) + weights[f"{name}.bias"].view(
            1, -1, 1, 1
        )

    x = F.conv2d(x, weights["stem.convolution.weight"], stride=2, padding=3)
    x = F.max_pool2d(norm(x, "stem.norm").relu(), 3, 2, 1)
    for stage, blocks in enumerate(model.stages):
        for number in range(len(blocks)):
            place = f"stages.{stage}.{number}"
            stride = 2 if stage and not number else 1
            first, second = (stride, 1) if stride_on == "1x1" else (1, stride)
            y = norm(
                F.conv2d(x, weights[f"{place}.branch.convolution1.weight"], stride=first),
                f"{place}.branch.norm1",
            )
            y = F.conv2d(y.relu(), weights[f"{place}.branch.convolution2.weight"], stride=second, padding=1)
            y = norm(y, f"{place}.branch.norm2").relu()
            y = norm(F.conv2d(y, weights[f"{place}.branch.convolution3.weight"]), f"{place}.branch.norm3")
            if f"{place}.shortcut.convolution.weight" in weights:
                x = F.conv2d(x, weights[f"{place}.shortcut.convolution.weight"], stride=stride)
                x = norm(x, f"{place}.shortcut.norm")
            x = (x + y).relu()
    return F.linear(x.mean((2, 3)), weights["head.weight"], weights["head.bias"])


@pytest.mark.parametrize("stride_on", ["3x3", "1x1"])
def test_a_bottleneck_network_is_its_formula_with_its_gradient(stride_on):
    model = small(stride_on=stride_on).double()
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x.requires_grad_()
    ours, theirs = model(x), by_hand(model, x, stride_on)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)))


def test_before_activation_the_path_is_untouched():
    """With branches of zeros, blocks with `placement: pre` are the identity where the shape stays."""
    model = create("resnet", block="basic", depths=(3,), width=4, stem="small", placement="pre")
    with torch.no_grad():
        for block in model.stages[0]:
            block.branch.convolution2.weight.zero_()
    x = torch.randn(2, 4, 8, 8)
    assert torch.equal(model.stages[0](x), x)


def test_as_built_variance_of_gradients_is_that_of_he_over_outputs():
    weight = create("resnet", depths=(1,), width=64).stages[0][0].branch.convolution2.weight
    assert weight.std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)


def test_signals_are_refused():
    with pytest.raises(UsageError, match="model 'resnet': takes images, got an input_size of 12"):
        create("resnet18", input_size=(12,))


# -- other people's weights ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", KEYS)
def test_names_shapes_and_types_are_those_of_the_library(place):
    layout, name = place.split("/")
    model = on_meta(name)
    assert_keys(model, layout, KEYS[place])


@pytest.mark.parametrize("layout", ["apoint", "timm", "torchvision", "huggingface"])
@pytest.mark.parametrize("block", ["basic", "bottleneck"])
def test_there_and_back(layout, block, tmp_path):
    model, other = small(block=block), small(block=block)
    nn.init.ones_(other.head.weight)
    save_weights(model, tmp_path / "w.safetensors", layout)
    report = load_weights(other, tmp_path / "w.safetensors")
    assert report.layout == layout or {report.layout, layout} == {"timm", "torchvision"}
    assert report.matched == list(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(model(images), other(images))


def test_translation_is_undone_by_its_inverse():
    model = small()
    assert_undone(model)


def test_what_a_layout_does_not_know_is_not_saved_in_it(tmp_path):
    with pytest.raises(UsageError, match=r"'timm' has no place for stages\.0\.0\.branch\.scale\.factor"):
        save_weights(small(layer_scale=0.1), tmp_path / "w.safetensors", "timm")
    assert not list(tmp_path.iterdir())
