"""GoogLeNet: exact counts, a block branch by branch, auxiliary heads and what a plain loss makes of them."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from apoint.errors import UsageError
from apoint.models import count_parameters, create
from apoint.nn.dropout import set_rate
from apoint.nn.losses import loss

SMALL = {"num_classes": 5, "input_size": 64, "width": 8, "depths": (1, 3, 1), "dropout": 0.0}


def shaken(model):
    """In float64 and evaluation, with every weight and running average away from its start."""
    model, generator = model.double(), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(0.2 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64))
    return model.eval()


def small(**settings):
    torch.manual_seed(0)
    return shaken(create("googlenet", **{**SMALL, **settings}))


def images(count=2, size=64):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, size, size, dtype=torch.float64, generator=generator).requires_grad_()


@pytest.mark.parametrize(
    ("name", "main", "with_auxiliary"),
    [
        ("googlenet", 6_624_904, 13_004_888),
        ("googlenet-paper", 6_998_552, 13_378_280),
        ("googlenet-5x5", 7_005_832, 13_385_816),
    ],
)
def test_parameters(name, main, with_auxiliary):
    with torch.device("meta"):
        assert count_parameters(create(name)) == main
        assert count_parameters(create(name, auxiliary=True)) == with_auxiliary


def test_feature_maps_have_the_sizes_of_the_paper_s_table():
    """At a quarter of its channels, to be quick."""
    model, x = create("googlenet", width=16).eval(), torch.zeros(1, 3, 224, 224)
    sizes = [tuple((x := part(x)).shape[1:]) for part in (model.stem, *model.stages)]
    assert sizes == [(48, 28, 28), (120, 14, 14), (208, 7, 7), (256, 7, 7)]


# -- by hand ---------------------------------------------------------------------------------------------


def convolved(x, weight, bias):
    """A convolution that keeps the size, as a sum over the places of the filter."""
    size, (height, width) = weight.shape[-1], x.shape[2:]
    x = F.pad(x, (size // 2,) * 4)
    out = 0 if bias is None else bias.view(1, -1, 1, 1)
    for row in range(size):
        for column in range(size):
            seen = x[:, :, row : row + height, column : column + width]
            out = out + torch.einsum("bchw,oc->bohw", seen, weight[:, :, row, column])
    return out


def layer(x, weights, place):
    """A convolution with its batch norm, if it has one, and the ramp."""
    x = convolved(x, weights[f"{place}.convolution.weight"], weights.get(f"{place}.convolution.bias"))
    if f"{place}.norm.weight" in weights:
        mean, variance, scale, shift = (
            weights[f"{place}.norm.{part}"].view(1, -1, 1, 1)
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        x = (x - mean) / (variance + 1e-3).sqrt() * scale + shift
    return x.clamp_min(0)


def largest_neighbours(x):
    """The largest of the 3×3 places around each, by looking at nine shifted copies."""
    height, width = x.shape[2:]
    x = F.pad(x, (1, 1, 1, 1), value=-torch.inf)
    shifts = [x[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return torch.stack(shifts).amax(0)


def block_by_hand(x, weights, place):
    branches = [
        layer(x, weights, f"{place}direct"),
        layer(layer(x, weights, f"{place}medium.reduce"), weights, f"{place}medium.convolve"),
        layer(layer(x, weights, f"{place}large.reduce"), weights, f"{place}large.convolve"),
        layer(largest_neighbours(x), weights, f"{place}pooled.project"),
    ]
    channels = sum(branch.shape[1] for branch in branches)
    out, before = x.new_zeros(len(x), channels, *x.shape[2:]), 0
    for branch in branches:
        out[:, before : before + branch.shape[1]] = branch
        before += branch.shape[1]
    return out


@pytest.mark.parametrize(
    ("settings", "size"), [({}, 3), ({"variant": "paper"}, 5), ({"variant": "paper", "norm": "none"}, 5)]
)
def test_a_block_is_its_branches_with_their_gradient(settings, size):
    block = small(**settings).stages[1][1]
    assert block.large.convolve.convolution.kernel_size == (size, size)
    x = torch.randn(2, block.direct.convolution.in_channels, 6, 7, dtype=torch.float64).requires_grad_()
    ours, theirs = block(x), block_by_hand(x, block.state_dict(), "")
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)]
    assert gradients[0].abs().max() > 1e-6
    torch.testing.assert_close(*gradients)


def response(a):
    """Local response norm by its formula: n = 5, k = 2, α = 10⁻⁴, β = 3/4."""
    count = a.shape[1]
    sums = [sum(a[:, i] ** 2 for i in range(max(0, c - 2), min(count, c + 3))) for c in range(count)]
    return a / (2 + 1e-4 * torch.stack(sums, 1)) ** 0.75


def network_by_hand(model, x, variant, norm):
    weights = model.state_dict()
    has_response = variant == "paper" and norm == "none"
    # A convolution of stride 2 is one of stride 1 of which every second place is kept.
    x = F.max_pool2d(layer(x, weights, "stem.layer1")[:, :, ::2, ::2], 3, 2, ceil_mode=True)
    x = response(x) if has_response else x
    x = layer(layer(x, weights, "stem.layer2"), weights, "stem.layer3")
    x = F.max_pool2d(response(x) if has_response else x, 3, 2, ceil_mode=True)
    x = F.max_pool2d(block_by_hand(x, weights, "stages.0.0."), 3, 2, ceil_mode=True)
    for number in range(3):
        x = block_by_hand(x, weights, f"stages.1.{number}.")
    x = F.max_pool2d(x, 3 if variant == "paper" else 2, 2, ceil_mode=True)
    x = block_by_hand(x, weights, "stages.2.0.").mean((2, 3))
    return x @ weights["head.weight"].T + weights["head.bias"]


BATCH = {"name": "batch", "eps": 1e-3}


@pytest.mark.parametrize(("variant", "norm"), [("torchvision", BATCH), ("paper", BATCH), ("paper", "none")])
def test_a_network_is_its_formula_with_its_gradient(variant, norm):
    model, x = small(variant=variant, norm=norm), images(size=80)
    ours, theirs = model(x), network_by_hand(model, x, variant, norm)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)]
    assert gradients[0].abs().max() > 1e-9
    torch.testing.assert_close(*gradients)


def test_the_default_norm_has_the_epsilon_of_public_weights():
    assert {m.eps for m in small().modules() if isinstance(m, nn.BatchNorm2d)} == {1e-3}


# -- auxiliary heads -------------------------------------------------------------------------------------


def with_heads(**settings):
    model = small(auxiliary=True, auxiliary_dropout=0.0, norm="none", **settings)
    return model.train()


def test_auxiliary_heads_stand_where_the_paper_has_them():
    """After blocks 4a and 4d, of 512 and 528 channels."""
    with torch.device("meta"):
        model = create("googlenet", auxiliary=True)
    assert model.auxiliary_after == (0, 3)
    assert [head.layer.convolution.in_channels for head in model.auxiliary] == [512, 528]
    assert [head.linear.in_features for head in model.auxiliary] == [2048, 2048]
    assert {head.dropout.rate for head in model.auxiliary} == {0.7}


def test_an_auxiliary_head_is_its_formula():
    model, x = with_heads(), images()
    weights = model.state_dict()
    at = model.stages[1][0](model.stages[0](model.stem(x)))
    y = layer(F.adaptive_avg_pool2d(at, 4), weights, "auxiliary.0.layer").flatten(1)
    y = (y @ weights["auxiliary.0.linear.weight"].T + weights["auxiliary.0.linear.bias"]).relu()
    y = y @ weights["auxiliary.0.head.weight"].T + weights["auxiliary.0.head.bias"]
    torch.testing.assert_close(model.all_logits(x)[1], y)


def test_in_evaluation_there_is_the_main_head_alone():
    model, x = with_heads().eval(), images()
    plain = small(norm="none")
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("auxiliary")})
    assert torch.equal(model(x), plain(x))
    assert torch.equal(model(x), model.all_logits(x)[0])


def test_in_training_each_row_is_that_of_one_head_with_the_right_probability():
    model, x = with_heads(auxiliary_weight=0.3), images(3)
    torch.manual_seed(5)
    with torch.no_grad():
        heads = torch.stack(model.all_logits(x))
        drawn = torch.stack([model._drawn(tuple(heads)) for _ in range(3000)])
        assert torch.equal(model.eval()(x), heads[0])
    which = (drawn[:, None] == heads).all(-1)  # [draws, heads, examples]
    assert (which.sum(1) == 1).all()
    shares = which.double().mean((0, 2))
    wanted = torch.tensor([1.0, 0.3, 0.3], dtype=torch.float64) / 1.6
    torch.testing.assert_close(shares, wanted, atol=0.02, rtol=0)
    # Examples are drawn for apart from one another.
    assert 0.4 < (which[:, 0, 0] == which[:, 0, 1]).double().mean() < 0.65


@pytest.mark.parametrize("name", ["cross-entropy", "brier"])
def test_the_expected_loss_and_gradient_are_the_paper_s_weighted_sum(name):
    """Exactly: by summing over all 3² choices of heads for two examples, times their probabilities."""
    model, x, y = with_heads(auxiliary_weight=0.3), images(), torch.tensor([1, 4])
    measure, probabilities = loss(name), [1 / 1.6, 0.3 / 1.6, 0.3 / 1.6]
    heads = model.all_logits(x)
    expected = 0
    for first in range(3):
        for second in range(3):
            rows = torch.stack([heads[first][0], heads[second][1]])
            expected = expected + probabilities[first] * probabilities[second] * measure(rows, y).mean()
    wanted = sum(w * measure(z, y).mean() for w, z in zip((1, 0.3, 0.3), heads, strict=True)) / 1.6
    torch.testing.assert_close(expected, wanted)
    weights = list(model.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(expected, weights, retain_graph=True),
        torch.autograd.grad(wanted, weights),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_the_mean_gradient_of_many_draws_is_that_of_the_weighted_sum():
    model, x, y = with_heads(), images(4), torch.tensor([1, 4, 0, 2])
    weight = model.stages[0][0].direct.convolution.weight
    heads = model.all_logits(x)
    wanted = sum(
        w * F.cross_entropy(z, y) for w, z in zip((1, 0.3, 0.3), heads, strict=True)
    ) / 1.6  # fmt: skip
    (wanted,) = torch.autograd.grad(wanted, weight, retain_graph=True)
    torch.manual_seed(0)
    drawn = sum(F.cross_entropy(model._drawn(heads), y) for _ in range(2000)) / 2000
    (drawn,) = torch.autograd.grad(drawn, weight)
    assert (drawn - wanted).norm() < 0.1 * wanted.norm()


def test_training_reaches_every_parameter_of_all_heads():
    model = with_heads()
    torch.manual_seed(0)
    loss("cross-entropy")(model(images(16)), torch.arange(16) % 5).mean().backward()
    unreached = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert unreached == []


def test_dropout_of_auxiliary_heads_has_a_knob_of_its_own():
    model, x = with_heads(), images()
    calm = model.all_logits(x)
    assert set_rate(model, "auxiliary_dropout", 0.5) == 2
    main, *others = model.all_logits(x)
    assert torch.equal(main, calm[0])
    assert not any(torch.equal(a, b) for a, b in zip(others, calm[1:], strict=True))


def test_replicas_with_auxiliary_heads_can_be_stacked():
    models = [with_heads(), with_heads()]
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter.mul_(1.1)
    stacked, buffers = torch.func.stack_module_state(models)
    shell, x = copy.deepcopy(models[0]), images().detach()

    def call(weights, constants):
        return torch.func.functional_call(shell, (weights, constants), (x,))

    out = torch.func.vmap(call, randomness="different")(stacked, buffers)
    for rows, model in zip(out, models, strict=True):
        heads = torch.stack(model.all_logits(x))
        assert torch.isclose(rows, heads).all(-1).any(0).all()


# -- the rest --------------------------------------------------------------------------------------------


def test_weights_as_built():
    torch.manual_seed(0)
    model = create("googlenet", depths=(1, 1, 1))
    weight = model.stages[1][0].medium.convolve.convolution.weight
    assert weight.std().item() == pytest.approx(0.01, rel=0.02)
    plain = create("googlenet", depths=(1, 3, 1), norm="none", auxiliary=True)
    weight = plain.stages[1][0].medium.convolve.convolution.weight
    fan = weight[0].numel()
    assert weight.var().item() == pytest.approx(1 / fan, rel=0.02)
    assert weight.abs().max().item() <= (3 / fan) ** 0.5
    zeros = [name for name, p in plain.named_parameters() if name.endswith("bias") and not p.any()]
    assert zeros == ["auxiliary.0.head.bias", "auxiliary.1.head.bias", "head.bias"]


def test_without_norms_signals_do_not_vanish():
    """With deviation 0.01 they would: what the head reads would be a trillionth."""
    torch.manual_seed(0)
    model = create("googlenet-paper", num_classes=5, input_size=64).eval()
    features = model.readout(model.stages(model.stem(torch.randn(2, 3, 64, 64))))
    assert 0.01 < features.std().item() < 100


@pytest.mark.parametrize(
    ("variant", "stem", "size"),
    [
        ("torchvision", "large", 15),
        ("paper", "large", 31),
        ("torchvision", "small", 4),
        ("paper", "small", 8),
    ],
)
def test_the_smallest_images_work_and_smaller_ones_do_not(variant, stem, size):
    model = small(variant=variant, stem=stem, input_size=size)
    assert model(images(size=size)).shape == (2, 5)
    with pytest.raises(RuntimeError, match="Output size is too small"):
        model(images(size=size - 1))
    with pytest.raises(UsageError, match=f"images need at least {size}×{size} pixels"):
        small(variant=variant, stem=stem, input_size=size - 1)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"input_size": (12,)}, "model 'googlenet': takes images, got an input_size of 12"),
        (
            {"input_size": 8},
            "poolings leave nothing of an input_size of 8×8; with these settings images need at least 15×15",
        ),
        ({"depths": (2, 5)}, r"depths must be three numbers, at most 2, 5 and 2, got \(2, 5\)"),
        ({"depths": (2, 6, 2)}, r"depths must be three numbers, at most 2, 5 and 2, got \(2, 6, 2\)"),
        (
            {"depths": (1, 2, 1), "auxiliary": True},
            "auxiliary heads need at least 3 blocks in the second stage, and depths has 2; raise it, or "
            "write auxiliary: false",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        create("googlenet", **settings)


def test_the_micro_member_sees_small_images_of_one_channel():
    model = create("googlenet-micro", in_channels=1, input_size=28)
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 10)
    assert count_parameters(model) < 200_000
