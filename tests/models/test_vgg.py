"""VGG: exact counts, the network in plain torch, and the argument for small filters."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from apoint.errors import UsageError
from apoint.models import count_parameters, create

COUNTS = {
    "vgg11": 132_863_336,
    "vgg11-bn": 132_868_840,
    "vgg13": 133_047_848,
    "vgg13-bn": 133_053_736,
    "vgg16": 138_357_544,
    "vgg16-bn": 138_365_992,
    "vgg19": 143_667_240,
    "vgg19-bn": 143_678_248,
}
SMALL = {"num_classes": 5, "input_size": 16, "depths": (1, 2, 1), "width": 4, "hidden": 6, "pooled": 2}


def small(**settings):
    torch.manual_seed(0)
    model = create("vgg", **{**SMALL, **settings}).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(0.3 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64))
    return model.eval()


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameters(name, count):
    with torch.device("meta"):
        assert count_parameters(create(name)) == count


def by_loops(x, weight, bias):
    """A 3×3 convolution as a sum over the nine places of the filter."""
    height, width = x.shape[2:]
    x = F.pad(x, (1, 1, 1, 1))
    out = bias.view(1, -1, 1, 1).expand(len(x), -1, height, width)
    for row in range(3):
        for column in range(3):
            seen = x[:, :, row : row + height, column : column + width]
            out = out + torch.einsum("bchw,oc->bohw", seen, weight[:, :, row, column])
    return out


def by_hand(model, x, norm, placement):
    """The network of `SMALL` with plain functions; batch norms by their formula."""
    weights, number = model.state_dict(), 0

    def normalised(x, name):
        mean, variance, scale, shift = (
            weights[f"{name}.{part}"].view(1, -1, 1, 1)
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-5).sqrt() * scale + shift

    for stage, depth in enumerate((1, 2, 1)):
        for _ in range(depth):
            number += 1
            place = f"stages.{stage}"
            weight, bias = (weights[f"{place}.convolution{number}.{kind}"] for kind in ("weight", "bias"))
            x = by_loops(x, weight, bias)
            steps = [torch.relu]
            if norm == "batch":
                steps.insert(placement == "after", lambda x, n=f"{place}.norm{number}": normalised(x, n))
            for step in steps:
                x = step(x)
        tiles = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))
        x = tiles.amax((3, 5))
    x = x.flatten(1)
    for name in ("hidden.linear1", "hidden.linear2"):
        x = (x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]).relu()
    return x @ weights["head.weight"].T + weights["head.bias"]


@pytest.mark.parametrize(("norm", "placement"), [("none", "before"), ("batch", "before"), ("batch", "after")])
def test_a_network_is_its_formula_with_its_gradient(norm, placement):
    model = small(norm=norm, norm_placement=placement)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64, generator=generator).requires_grad_()
    ours, theirs = model(x), by_hand(model, x, norm, placement)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)]
    assert gradients[0].abs().max() > 1e-6
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("stacked", "size"), [(2, 5), (3, 7)])
def test_stacked_small_filters_see_as_far_as_a_large_one_with_fewer_weights(stacked, size):
    """The paper's argument: what one output depends on, found by its gradient; and weights per channels."""
    width = 6
    small_ones = nn.Sequential(*(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(stacked)))
    large = nn.Conv2d(width, width, size, padding=size // 2, bias=False)
    seen = []
    for layers in (small_ones, large):
        for parameter in layers.parameters():
            nn.init.uniform_(parameter, 0.1, 1.0)
        x = torch.ones(1, width, 15, 15, requires_grad=True)
        layers(x)[0, 0, 7, 7].backward()
        seen.append(x.grad[0].sum(0) > 0)
    assert seen[0].sum().item() == size**2
    assert torch.equal(*seen)
    assert (
        count_parameters(small_ones)
        == 9 * stacked * width**2
        < count_parameters(large)
        == (size * width) ** 2
    )


def test_channels_double_up_to_eight_times_the_width():
    with torch.device("meta"):
        model = create("vgg", width=8)
    last = [[m for m in stage if isinstance(m, nn.Conv2d)][-1] for stage in model.stages]
    assert [convolution.out_channels for convolution in last] == [8, 16, 32, 64, 64]


def test_weights_as_built():
    torch.manual_seed(0)
    model = create("vgg", depths=(1, 1), width=64, hidden=256, pooled=1)
    assert model.stages[1].convolution2.weight.std().item() == pytest.approx((2 / (9 * 128)) ** 0.5, rel=0.02)
    assert model.hidden.linear2.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert not any(p.any() for name, p in model.named_parameters() if name.endswith("bias"))


def test_dropout_is_the_paper_s_by_default_and_comes_after_the_activation():
    names = [name for name, _ in small().hidden.named_children()]
    assert names == [f"{part}{number}" for number in (1, 2) for part in ("linear", "activation", "dropout")]
    assert {small().hidden.dropout1.rate, small().hidden.dropout2.rate} == {0.5}


@pytest.mark.parametrize("size", [(8, 8), (11, 30)])
def test_any_size_that_leaves_something_works(size):
    assert small(input_size=size)(torch.randn(1, 3, *size, dtype=torch.float64)).shape == (1, 5)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"input_size": (12,)}, "model 'vgg': takes images, got an input_size of 12"),
        (
            {"input_size": (64, 31)},
            "model 'vgg': poolings leave nothing of an input_size of 64×31; with these settings images need "
            "at least 32×32 pixels",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        create("vgg16", **settings)


def test_the_micro_member_sees_small_images_of_one_channel():
    model = create("vgg-micro", in_channels=1, input_size=28)
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 10)
    assert count_parameters(model) < 200_000
