"""Inception v3: exact counts, each kind of block by its branches, the auxiliary head, the smallest images."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from apoint.errors import UsageError
from apoint.models import count, count_parameters, create
from apoint.nn.dropout import Dropout
from apoint.nn.losses import loss

SMALL = {"num_classes": 5, "input_size": 75, "width": 4, "depths": (1, 1, 1), "dropout": 0.0}


def small(**settings):
    """In float64 and evaluation, with every weight and running average away from its start."""
    torch.manual_seed(0)
    model, generator = create("inception-v3", **{**SMALL, **settings}).double(), torch.Generator()
    generator.manual_seed(3)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(0.2 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64))
    return model.eval()


def images(*shape):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def test_parameters():
    with torch.device("meta"):
        assert count_parameters(create("inception-v3")) == 23_834_568
        assert count_parameters(create("inception-v3", auxiliary=True)) == 27_161_264


def test_feature_maps_have_the_sizes_of_the_paper_s_table_and_its_work():
    with torch.device("meta"):
        model, x = create("inception-v3", auxiliary=True).eval(), torch.zeros(1, 3, 299, 299)
    sizes = [tuple((x := part(x)).shape[1:]) for part in (model.stem, *model.stages)]
    assert sizes == [(192, 35, 35), (288, 35, 35), (768, 17, 17), (2048, 8, 8)]
    # torchvision gives 5.71 thousand million multiply-adds.
    assert count(model, (3, 299, 299)).whole.multiply_adds == pytest.approx(5.713e9, rel=1e-3)


# -- by hand ---------------------------------------------------------------------------------------------


def layer(x, weights, place, padding=(0, 0), stride=1):
    """A convolution with its batch norm, if it has one, and the ramp."""
    weight, bias = weights[f"{place}.convolution.weight"], weights.get(f"{place}.convolution.bias")
    x = F.conv2d(x, weight, bias, stride, padding)
    if f"{place}.norm.weight" in weights:
        mean, variance, scale, shift = (
            weights[f"{place}.norm.{part}"].view(1, -1, 1, 1)
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        x = (x - mean) / (variance + 1e-3).sqrt() * scale + shift
    return x.clamp_min(0)


def chain(x, weights, place, *paddings, stride=1):
    """Layers one after another, the last with a stride."""
    for number, padding in enumerate(paddings, 1):
        last = number == len(paddings)
        x = layer(x, weights, f"{place}.layer{number}", padding, stride if last else 1)
    return x


def pooled(x, weights):
    """A ninth of the sum of nine shifted copies with zeros around them, and a 1×1 convolution."""
    height, width = x.shape[2:]
    around = F.pad(x, (1, 1, 1, 1))
    shifts = itertools.product(range(3), range(3))
    mean = sum(around[:, :, i : i + height, j : j + width] for i, j in shifts) / 9
    return layer(mean, weights, "pooled.project")


def largest(x):
    """The largest of 3×3 places every 2 places."""
    height, width = ((length - 3) // 2 * 2 + 1 for length in x.shape[2:])
    shifts = itertools.product(range(3), range(3))
    return torch.stack([x[:, :, i : i + height : 2, j : j + width : 2] for i, j in shifts]).amax(0)


SAME3, SAME5, ACROSS, DOWN, NONE = (1, 1), (2, 2), (0, 3), (3, 0), (0, 0)


def block_of_35(x, w):
    return [
        layer(x, w, "direct"),
        chain(x, w, "short", NONE, SAME5),
        chain(x, w, "long", NONE, SAME3, SAME3),
        pooled(x, w),
    ]


def reduction_to_17(x, w):
    return [
        layer(x, w, "short", stride=2),
        chain(x, w, "long", NONE, SAME3, NONE, stride=2),
        largest(x),
    ]


def block_of_17(x, w):
    return [
        layer(x, w, "direct"),
        chain(x, w, "short", NONE, ACROSS, DOWN),
        chain(x, w, "long", NONE, DOWN, ACROSS, DOWN, ACROSS),
        pooled(x, w),
    ]


def reduction_to_8(x, w):
    return [
        chain(x, w, "short", NONE, NONE, stride=2),
        chain(x, w, "long", NONE, ACROSS, DOWN, NONE, stride=2),
        largest(x),
    ]


def block_of_8(x, w):
    short, long = chain(x, w, "short", NONE), chain(x, w, "long", NONE, SAME3)
    return [
        layer(x, w, "direct"),
        layer(short, w, "short.layer2.across", (0, 1)),
        layer(short, w, "short.layer2.down", (1, 0)),
        layer(long, w, "long.layer3.across", (0, 1)),
        layer(long, w, "long.layer3.down", (1, 0)),
        pooled(x, w),
    ]


BLOCKS = {
    "stages.0.0": block_of_35,
    "stages.1.reduce": reduction_to_17,
    "stages.1.0": block_of_17,
    "stages.2.reduce": reduction_to_8,
    "stages.2.0": block_of_8,
}


@pytest.mark.parametrize("norm", [{"name": "batch", "eps": 1e-3}, "none"])
@pytest.mark.parametrize("place", BLOCKS)
def test_a_block_is_its_branches_with_its_gradients(place, norm):
    block = small(norm=norm).get_submodule(place)
    channels = next(m.in_channels for m in block.modules() if isinstance(m, nn.Conv2d))
    x = images(2, channels, 8, 11)
    weights = {**block.state_dict(), **dict(block.named_parameters())}
    ours, theirs = block(x), torch.cat(BLOCKS[place](x, weights), 1)
    torch.testing.assert_close(ours, theirs)
    wanted = [x, *block.parameters()]
    gradients = [torch.autograd.grad(y.square().sum(), wanted) for y in (ours, theirs)]
    for mine, other in zip(*gradients, strict=True):
        assert mine.abs().max() > 1e-6
        torch.testing.assert_close(mine, other)


def test_filters_have_the_published_sizes_and_widths():
    with torch.device("meta"):
        model = create("inception-v3")

    def shapes(place):
        part = model.get_submodule(place)
        return [(m.out_channels, *m.kernel_size) for m in part.modules() if isinstance(m, nn.Conv2d)]

    assert shapes("stem") == [(32, 3, 3), (32, 3, 3), (64, 3, 3), (80, 1, 1), (192, 3, 3)]
    assert shapes("stages.0.2.long") == [(64, 1, 1), (96, 3, 3), (96, 3, 3)]
    for number, inside in enumerate((128, 160, 160, 192)):
        assert shapes(f"stages.1.{number}.short") == [(inside, 1, 1), (inside, 1, 7), (192, 7, 1)]
        assert shapes(f"stages.1.{number}.long") == [
            (inside, 1, 1), (inside, 7, 1), (inside, 1, 7), (inside, 7, 1), (192, 1, 7)
        ]  # fmt: skip
    assert shapes("stages.2.1.long") == [(448, 1, 1), (384, 3, 3), (384, 1, 3), (384, 3, 1)]


def test_means_count_the_zeros_outside_of_the_image():
    """As public weights want it: a corner of ones has four of nine."""
    pools = [m for m in small().modules() if isinstance(m, nn.AvgPool2d)]
    assert len(pools) == 3
    for pool in pools:
        means = pool(torch.ones(1, 1, 4, 4))[0, 0]
        torch.testing.assert_close(means[0, 0], torch.tensor(4 / 9))
        torch.testing.assert_close(means[0, 1], torch.tensor(6 / 9))
        assert means[1, 1] == 1


def network_by_hand(model, x):
    weights, x = model.state_dict(), layer(x, model.state_dict(), "stem.layer1", stride=2)
    x = largest(layer(layer(x, weights, "stem.layer2"), weights, "stem.layer3", (1, 1)))
    x = largest(layer(layer(x, weights, "stem.layer4"), weights, "stem.layer5"))
    for place, block in BLOCKS.items():
        x = torch.cat(block(x, model.get_submodule(place).state_dict()), 1)
    return x.mean((2, 3)) @ weights["head.weight"].T + weights["head.bias"]


def test_a_network_is_its_formula_with_its_gradient():
    model, x = small(), images(2, 3, 120, 111)
    ours, theirs = model(x), network_by_hand(model, x)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)]
    assert gradients[0].abs().max() > 1e-9
    torch.testing.assert_close(*gradients)


def test_defaults_are_those_of_public_weights():
    with torch.device("meta"):
        model = create("inception-v3")
    assert {m.eps for m in model.modules() if isinstance(m, nn.BatchNorm2d)} == {1e-3}
    assert [m.rate for m in model.modules() if isinstance(m, Dropout)] == [0.5]
    assert list(model.stem.layer1._modules) == ["convolution", "norm", "activation"]


def test_the_norm_may_stand_after_the_activation_and_takes_the_bias_s_place():
    model = small(norm_placement="after")
    assert list(model.stages[1].reduce.short._modules) == ["convolution", "activation", "norm"]
    for norm, has_bias in (("layer", False), ("none", True)):
        convolutions = [m for m in small(norm=norm).modules() if isinstance(m, nn.Conv2d)]
        assert {m.bias is not None for m in convolutions} == {has_bias}


# -- the auxiliary head ----------------------------------------------------------------------------------


def with_head(**settings):
    return small(auxiliary=True, norm="none", **settings).train()


def test_the_auxiliary_head_is_its_formula():
    """At 299 pixels: means of 5×5 places every 3 places of 17×17, 1×1, 5×5, linear."""
    model = small(auxiliary=True, input_size=299)
    x = images(2, model.auxiliary[0].layer1.convolution.in_channels, 17, 17)
    weights = model.state_dict()
    means = [[x[:, :, i : i + 5, j : j + 5].mean((2, 3)) for j in range(0, 13, 3)] for i in range(0, 13, 3)]
    y = torch.stack([torch.stack(row, -1) for row in means], -2)
    y = layer(layer(y, weights, "auxiliary.0.layer1"), weights, "auxiliary.0.layer2")
    assert y.shape[2:] == (1, 1)
    y = y[:, :, 0, 0] @ weights["auxiliary.0.head.weight"].T + weights["auxiliary.0.head.bias"]
    torch.testing.assert_close(model.auxiliary[0](x), y)


def test_the_auxiliary_head_reads_what_the_second_stage_gives():
    model, x = with_head(depths=(1, 2, 1)), images(2, 3, 75, 75)
    main, other = model.all_logits(x)
    inside = model.stages[1](model.stages[0](model.stem(x)))
    torch.testing.assert_close(other, model.auxiliary[0](inside))
    torch.testing.assert_close(main, model.eval()(x))


@pytest.mark.parametrize(
    ("size", "pool"), [(299, nn.AvgPool2d), (298, nn.AdaptiveAvgPool2d), ((299, 150), nn.AdaptiveAvgPool2d)]
)
def test_the_auxiliary_head_of_smaller_images_has_a_pooling_that_leaves_enough(size, pool):
    model = small(auxiliary=True, input_size=size)
    assert isinstance(model.auxiliary[0].pool, pool)
    space = (size, size) if isinstance(size, int) else size
    with torch.no_grad():
        assert [logits.shape for logits in model.all_logits(images(1, 3, *space))] == [(1, 5), (1, 5)]


def test_in_evaluation_there_is_the_main_head_alone():
    model, x = with_head().eval(), images(2, 3, 75, 75)
    plain = small(norm="none")
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("auxiliary")})
    assert torch.equal(model(x), plain(x))


def test_in_training_each_row_is_that_of_one_head_with_the_right_probability():
    model, x = with_head(), images(2, 3, 75, 75)
    assert model.auxiliary_weight == 0.4
    torch.manual_seed(5)
    with torch.no_grad():
        heads = torch.stack(model.all_logits(x))
        assert not torch.isclose(heads[0], heads[1]).any()
        drawn = torch.stack([model(x) for _ in range(300)])
    which = torch.isclose(drawn[:, None], heads).all(-1)  # [draws, heads, examples]
    assert (which.sum(1) == 1).all()
    # Five deviations of a share of 600 draws.
    torch.testing.assert_close(which[:, 1].double().mean().item(), 0.4 / 1.4, atol=0.092, rtol=0)
    assert (which[:, 0, 0] != which[:, 0, 1]).any()


def test_the_expected_loss_and_gradient_are_the_weighted_sum():
    """Exactly: by summing over all 2² choices of heads for two examples, times their probabilities."""
    model, x, y = with_head(), images(2, 3, 75, 75), torch.tensor([1, 4])
    measure, probabilities, heads = loss("cross-entropy"), [1 / 1.4, 0.4 / 1.4], model.all_logits(x)
    expected = 0
    for first, second in itertools.product(range(2), range(2)):
        rows = torch.stack([heads[first][0], heads[second][1]])
        expected = expected + probabilities[first] * probabilities[second] * measure(rows, y).mean()
    wanted = (measure(heads[0], y).mean() + 0.4 * measure(heads[1], y).mean()) / 1.4
    torch.testing.assert_close(expected, wanted)
    weight = model.stages[0][0].direct.convolution.weight
    (ours,) = torch.autograd.grad(expected, weight, retain_graph=True)
    torch.testing.assert_close(ours, torch.autograd.grad(wanted, weight)[0])


def test_training_reaches_every_parameter_of_both_heads():
    model = small(auxiliary=True).train()
    torch.manual_seed(0)
    loss("cross-entropy")(model(images(16, 3, 75, 75)), torch.arange(16) % 5).mean().backward()
    unreached = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert unreached == []


# -- the rest --------------------------------------------------------------------------------------------


def test_weights_as_built():
    torch.manual_seed(0)
    model = create("inception-v3", depths=(1, 1, 1), auxiliary=True)
    deviations = {
        "stages.1.0.long.layer3.convolution": 0.1,
        "head": 0.1,
        "auxiliary.0.layer1.convolution": 0.1,
        "auxiliary.0.layer2.convolution": 0.01,
        "auxiliary.0.head": 0.001,
    }
    for place, deviation in deviations.items():
        weight = model.get_submodule(place).weight
        assert weight.std().item() == pytest.approx(deviation, rel=0.02), place
        assert abs(weight.mean().item()) < 0.02 * deviation, place


def test_without_norms_signals_neither_vanish_nor_explode():
    torch.manual_seed(0)
    model = create("inception-v3", num_classes=5, input_size=107, norm="none", width=16).eval()
    weight = model.stages[1][2].long.layer3.convolution.weight
    assert weight.var().item() == pytest.approx(2 / weight[0].numel(), rel=0.05)
    biases = [m.bias for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert not any(bias.any() for bias in biases)
    with torch.no_grad():
        features = model.readout(model.stages(model.stem(torch.randn(2, 3, 107, 107))))
    assert 0.01 < features.std().item() < 100


def test_the_smallest_images_work_and_smaller_ones_do_not():
    model = small()
    assert model(images(2, 3, 75, 75)).shape == (2, 5)
    assert small(input_size=(75, 130), in_channels=1)(images(2, 1, 75, 130)).shape == (2, 5)
    with pytest.raises(RuntimeError, match="size"):
        model(images(2, 3, 74, 75))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"input_size": (120,)}, "model 'inception-v3': takes images, got an input_size of 120"),
        (
            {"input_size": 74},
            "model 'inception-v3': poolings leave nothing of an input_size of 74×74; with these settings "
            "images need at least 75×75 pixels",
        ),
        (
            {"input_size": (299, 32)},
            "an input_size of 299×32; with these settings images need at least 75×75",
        ),
        (
            {"depths": (3, 4)},
            r"model 'inception-v3': depths must be three numbers, at most 3, 4 and 2, got \(3, 4\)",
        ),
        ({"depths": (3, 4, 3)}, r"depths must be three numbers, at most 3, 4 and 2, got \(3, 4, 3\)"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        create("inception-v3", **settings)
