"""AlexNet: exact counts, both variants in plain torch, towers apart, local response norm by its formula."""

import pytest
import torch
import torch.nn.functional as F

from apoint.errors import UsageError
from apoint.models import count_parameters, create
from apoint.models.alexnet import local_response_norm

SMALL = {"num_classes": 5, "input_size": 64, "widths": (4, 8, 12, 8, 4), "hidden": 6, "pooled": 2}


def on_meta(name, **settings):
    with torch.device("meta"):
        return create(name, **settings)


def small(**settings):
    torch.manual_seed(0)
    model = create("alexnet", **{**SMALL, **settings}).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(0.2 * torch.randn(tensor.shape, generator=generator, dtype=torch.float64))
    return model.eval()


def images(size=64):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 3, size, size, dtype=torch.float64, generator=generator).requires_grad_()


@pytest.mark.parametrize(
    ("name", "settings", "count"),
    [
        ("alexnet", {}, 61_100_840),
        ("alexnet-2012", {}, 60_965_224),
        ("alexnet-2012", {"towers": 1}, 62_378_344),
    ],
)
def test_parameters(name, settings, count):
    assert count_parameters(on_meta(name, **settings)) == count


def test_feature_maps_of_the_published_sizes():
    """Both papers' figures: 55×55 after the first convolution, 6×6 before the linear layers."""
    model = on_meta("alexnet-2012")
    x = torch.empty(1, 3, 224, 224, device="meta")
    assert model.features.convolution1(x).shape == (1, 96, 55, 55)
    assert model.features(x).shape == (1, 256, 6, 6)
    assert on_meta("alexnet").features(x).shape == (1, 256, 6, 6)


def response_by_loops(a):
    """The paper's formula, channel by channel: n = 5, k = 2, α = 10⁻⁴, β = 3/4."""
    out = []
    for c in range(a.shape[1]):
        near = range(max(0, c - 2), min(a.shape[1], c + 3))
        out.append(a[:, c] / (2 + 1e-4 * sum(a[:, i] ** 2 for i in near)) ** 0.75)
    return torch.stack(out, 1)


@pytest.mark.parametrize("channels", [3, 9])
def test_local_response_norm_is_its_formula_with_its_gradient(channels):
    generator = torch.Generator().manual_seed(2)
    a = 100 * torch.randn(2, channels, 3, 4, dtype=torch.float64, generator=generator)
    a.requires_grad_()
    ours, theirs = local_response_norm()(a), response_by_loops(a)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), a)[0] for y in (ours, theirs)))


def by_hand(model, x, variant):
    """The network with plain functions; in 2012's, two towers as separate convolutions."""
    weights = model.state_dict()
    for number in range(1, 6):
        weight, bias = (weights[f"features.convolution{number}.{kind}"] for kind in ("weight", "bias"))
        stride, padding = (4, 2) if number == 1 else (1, 2 if number == 2 else 1)
        if variant == "2012" and number in (2, 4, 5):
            half, own = x.shape[1] // 2, len(weight) // 2
            left = F.conv2d(x[:, :half], weight[:own], bias[:own], stride, padding)
            right = F.conv2d(x[:, half:], weight[own:], bias[own:], stride, padding)
            x = torch.cat([left, right], 1).relu()
        else:
            x = F.conv2d(x, weight, bias, stride, padding).relu()
        if variant == "2012" and number < 3:
            x = response_by_loops(x)
        if number in (1, 2, 5):
            x = F.max_pool2d(x, 3, 2)
    x = F.adaptive_avg_pool2d(x, 2).flatten(1)
    for name in ("hidden.linear1", "hidden.linear2"):
        x = F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"]).relu()
    return F.linear(x, weights["head.weight"], weights["head.bias"])


@pytest.mark.parametrize("variant", ["2014", "2012"])
def test_a_network_is_its_formula_with_its_gradient(variant):
    model, x = small(variant=variant), images()
    ours, theirs = model(x), by_hand(model, x, variant)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)]
    assert gradients[0].abs().max() > 1e-6
    torch.testing.assert_close(*gradients)


def test_towers_can_be_turned_off():
    assert small(variant="2012").features.convolution2.groups == 2
    assert small(variant="2012", towers=1).features.convolution2.groups == 1
    assert [m.groups for m in small(towers=2).features if hasattr(m, "groups")] == [1, 2, 1, 2, 2]


def test_poolings_overlap():
    pools = [m for m in small().features if isinstance(m, torch.nn.MaxPool2d)]
    assert [(pool.kernel_size, pool.stride) for pool in pools] == [(3, 2)] * 3


@pytest.mark.parametrize(("variant", "first"), [("2014", "dropout1"), ("2012", "linear1")])
def test_dropout_comes_before_or_after_hidden_layers(variant, first):
    model = create("alexnet", variant=variant, **SMALL)
    assert next(name for name, _ in model.hidden.named_children()) == first
    assert model.hidden.dropout1.rate == model.hidden.dropout2.rate == 0.5


def test_weights_of_2012_are_drawn_as_in_the_paper():
    torch.manual_seed(0)
    model = create("alexnet-2012", hidden=512, widths=(96, 256, 64, 64, 64))
    for part in (model.features.convolution2, model.hidden.linear2):
        assert part.weight.mean().item() == pytest.approx(0, abs=2e-4)
        assert part.weight.std().item() == pytest.approx(0.01, rel=0.02)
    ones = [name for name, p in model.named_parameters() if name.endswith("bias") and (p == 1).all()]
    zeros = [name for name, p in model.named_parameters() if name.endswith("bias") and (p == 0).all()]
    convolutions = [f"features.convolution{number}.bias" for number in (2, 4, 5)]
    assert ones == [*convolutions, "hidden.linear1.bias", "hidden.linear2.bias"]
    assert zeros == ["features.convolution1.bias", "features.convolution3.bias", "head.bias"]


def test_a_norm_takes_the_place_of_biases():
    model = create("alexnet", norm="batch", **SMALL)
    assert model.features.convolution1.bias is None
    names = [name for name, _ in model.features.named_children()]
    assert names[:4] == ["convolution1", "norm1", "activation1", "pool1"]
    after = create("alexnet", norm="batch", norm_placement="after", variant="2012", **SMALL)
    names = [name for name, _ in after.features.named_children()]
    assert names[:5] == ["convolution1", "activation1", "norm1", "response1", "pool1"]


@pytest.mark.parametrize("size", [63, 64, 100])
def test_any_size_that_leaves_something_works(size):
    assert small(input_size=size)(images(size)).shape == (2, 5)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"input_size": (12,)}, "model 'alexnet': takes images, got an input_size of 12"),
        (
            {"input_size": (200, 62)},
            "poolings leave nothing of an input_size of 200×62; with these settings images need at least "
            "63×63 pixels",
        ),
        (
            {"input_size": 14, "stem": "small"},
            "nothing of an input_size of 14×14; with these settings images need at least 15×15 pixels",
        ),
        ({"widths": (4, 4)}, "widths must name the channels of 5 convolutions, got 2 numbers"),
        (
            {"widths": (3, 4, 4, 4, 4), "towers": 2},
            "convolution 2 has 3 and 4 channels, which do not split into 2 towers; choose widths that do, or "
            "towers: 1",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        create("alexnet", **settings)


def test_the_micro_member_sees_small_images_of_one_channel():
    model = create("alexnet-micro", in_channels=1, input_size=28)
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 10)
    assert count_parameters(model) < 200_000
