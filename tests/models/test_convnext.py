"""ConvNeXt: exact counts, the network by explicit loops, its settings and what it refuses."""

import math

import pytest
import torch
from torch import nn

from apoint.errors import UsageError
from apoint.models import count_parameters, create
from apoint.models.convnext import Branch

COUNTS = {
    "tiny": 28_589_128,
    "small": 50_223_688,
    "base": 88_591_464,
    "large": 197_767_336,
    "xlarge": 350_196_968,
}


def small(**settings):
    """A small network in double precision with every weight away from its start, in evaluation."""
    torch.manual_seed(0)
    facts = {"in_channels": 2, "num_classes": 3, "input_size": 12}
    model = create(
        "convnext", **{**facts, "width": 4, "depths": (1, 2), "patch_size": 2, "kernel_size": 5, **settings}
    ).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model.eval()


def images(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("size", "count"), COUNTS.items())
def test_parameters(size, count):
    with torch.device("meta"):
        assert count_parameters(create(f"convnext-{size}")) == count


# -- the definition, in loops ------------------------------------------------------------------------------


def patches_by_loops(x, weight, bias):
    """Each patch of the image times the weight, patch by patch: a convolution whose stride is its size."""
    side = weight.shape[-1]
    rows = [
        [
            (weight * x[b, :, i * side : (i + 1) * side, j * side : (j + 1) * side]).sum((1, 2, 3)) + bias
            for i in range(x.shape[2] // side)
            for j in range(x.shape[3] // side)
        ]
        for b in range(len(x))
    ]
    flat = torch.stack([torch.stack(places, 1) for places in rows])
    return flat.view(len(x), len(weight), x.shape[2] // side, x.shape[3] // side)


def depthwise_by_loops(x, weight, bias):
    """Each channel with its own kernel; what lies outside counts as zero."""
    (_, _, height, width), reach = x.shape, weight.shape[-1] // 2
    places = []
    for i in range(height):
        for j in range(width):
            total = bias.expand(len(x), -1)
            for di in range(-reach, reach + 1):
                for dj in range(-reach, reach + 1):
                    if 0 <= i + di < height and 0 <= j + dj < width:
                        total = total + x[:, :, i + di, j + dj] * weight[:, 0, di + reach, dj + reach]
            places.append(total)
    return torch.stack(places, -1).view(x.shape)


def norm_by_hand(x, weights, name, axis=1):
    """Over the channels at each place, with ε = 1e-6."""
    mean = x.mean(axis, keepdim=True)
    variance = ((x - mean) ** 2).mean(axis, keepdim=True)
    shape = [-1 if axis_of_x == axis else 1 for axis_of_x in range(x.dim())]
    return (x - mean) / (variance + 1e-6).sqrt() * weights[f"{name}.weight"].view(shape) + weights[
        f"{name}.bias"
    ].view(shape)


def branch_by_hand(x, weights, place, normalise=True):
    y = depthwise_by_loops(x, weights[f"{place}.depthwise.weight"], weights[f"{place}.depthwise.bias"])
    y = norm_by_hand(y, weights, f"{place}.norm") if normalise else y
    y = torch.einsum("oc,bchw->bohw", weights[f"{place}.linear1.weight"], y)
    y = y + weights[f"{place}.linear1.bias"].view(1, -1, 1, 1)
    y = y * (1 + torch.erf(y / math.sqrt(2))) / 2
    y = torch.einsum("oc,bchw->bohw", weights[f"{place}.linear2.weight"], y)
    y = y + weights[f"{place}.linear2.bias"].view(1, -1, 1, 1)
    return y * weights[f"{place}.scale.factor"].view(1, -1, 1, 1)


def network_by_hand(model, x, placement):
    weights = dict(model.named_parameters())
    x = patches_by_loops(x, weights["stem.convolution.weight"], weights["stem.convolution.bias"])
    x = norm_by_hand(x, weights, "stem.norm")
    for stage, parts in enumerate(model.stages):
        if stage > 0:
            place = f"stages.{stage}.downsampling"
            x = norm_by_hand(x, weights, f"{place}.norm")
            x = patches_by_loops(
                x, weights[f"{place}.convolution.weight"], weights[f"{place}.convolution.bias"]
            )
        for number in range(len(parts.blocks)):
            place = f"stages.{stage}.blocks.{number}"
            x = x + branch_by_hand(x, weights, f"{place}.branch", placement == "pre")
            x = norm_by_hand(x, weights, f"{place}.norm") if placement == "post" else x
    x = norm_by_hand(x.mean((2, 3)), weights, "norm")
    return x @ weights["head.weight"].T + weights["head.bias"]


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_network_is_its_formula_with_all_gradients(placement):
    model = small(placement=placement)
    x = images(2, 2, 12, 12).requires_grad_()
    ours, theirs = model(x), network_by_hand(model, x, placement)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    wanted = [x, *model.parameters()]
    gradients = [torch.autograd.grad(y.square().sum(), wanted) for y in (ours, theirs)]
    for got, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


def test_patches_of_the_stem_do_not_overlap():
    """A pixel reaches one place of the stem's convolution and no other."""
    stem = small(patch_size=3).stem.convolution
    x = images(1, 2, 12, 12).requires_grad_()
    out = stem(x)
    assert out.shape[2:] == (4, 4)
    reached = torch.autograd.grad(out[0, :, 1, 2].sum(), x)[0][0].abs().sum(0) > 0
    rows, columns = torch.meshgrid(torch.arange(12), torch.arange(12), indexing="ij")
    assert torch.equal(reached, (rows // 3 == 1) & (columns // 3 == 2))


def test_channels_of_the_depthwise_convolution_do_not_mix():
    layer = small().stages[0].blocks[0].branch.depthwise
    x = images(1, 4, 6, 6).requires_grad_()
    reached = torch.autograd.grad(layer(x)[0, 2].sum(), x)[0][0].abs().sum((1, 2)) > 0
    assert reached.tolist() == [False, False, True, False]


# -- settings --------------------------------------------------------------------------------------------


def test_weights_as_built_are_the_papers():
    torch.manual_seed(0)
    model = create("convnext", width=32, depths=(1, 1))
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            assert module.bias.eq(0).all()
            if module.weight.numel() > 2000:
                assert module.weight.std().item() == pytest.approx(0.02, rel=0.1)
                assert module.weight.abs().max() > 0.05  # the cut is at ±2, and not at two deviations
    factors = [value for name, value in model.named_parameters() if name.endswith("scale.factor")]
    assert len(factors) == 2
    assert all((factor == 1e-6).all() for factor in factors)


def test_without_factors_and_norms_their_parameters_are_gone():
    names = [name for name, _ in create("convnext-micro", layer_scale=None, norm="none").named_parameters()]
    assert not [name for name in names if "scale" in name or "norm" in name]


def test_a_layer_norm_of_maps_is_over_channels_unless_told_otherwise():
    norms = [create("convnext-micro", norm=spec).stem.norm for spec in ("layer", {"name": "rms"})]
    assert [norm.over for norm in norms] == ["channels", "channels"]
    assert create("convnext-micro", norm={"name": "layer", "over": "all"}).stem.norm.over == "all"
    assert isinstance(create("convnext-micro", norm="batch").stem.norm, nn.BatchNorm2d)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_permutations_in_blocks_move_nothing(memory_format):
    """Feature maps lie with channels last from the stem's norm on, whatever the order of the images."""
    model, seen = small(), []
    for module in model.modules():
        if isinstance(module, Branch):
            module.depthwise.register_forward_hook(
                lambda *call: seen.append(call[2].permute(0, 2, 3, 1).is_contiguous())
            )
    model(images(2, 2, 12, 12).to(memory_format=memory_format))
    assert seen == [True] * 3


@pytest.mark.parametrize("size", [(28, 28), (33, 45), (8, 64)])
def test_any_size_of_images_and_any_number_of_channels(size):
    model = create("convnext-micro", in_channels=1, input_size=size, num_classes=7)
    assert model(torch.randn(2, 1, *size)).shape == (2, 7)


def test_what_is_refused():
    with pytest.raises(UsageError, match="model 'convnext': takes images, got an input_size of 12"):
        create("convnext-tiny", input_size=(12,))
    with pytest.raises(UsageError, match=r"kernel_size must be odd, .* got 4; take 3 or 5"):
        create("convnext", kernel_size=4)
    with pytest.raises(
        UsageError, match="divide space by 32, which leaves nothing of an input_size of 28×28"
    ):
        create("convnext-tiny", input_size=28)
