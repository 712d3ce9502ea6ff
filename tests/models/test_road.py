"""The road from ResNet to ConvNeXt: both ends by count and output, each step by its definition."""

import itertools
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from apoint.errors import UsageError
from apoint.models import count_parameters, create
from apoint.models.resnet_to_convnext import OTHER_KERNELS, steps

ROAD = steps()
END = ROAD[-1].settings
RESNET50, CONVNEXT_TINY = 25_557_032, 28_589_128


def shaken(model):
    """In double precision with every weight and running average away from its start, in evaluation."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in [*model.double().parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64))
    return model.eval()


def images(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def on_meta(**settings):
    with torch.device("meta"):
        return create("resnet-to-convnext", **settings).eval()


# -- both ends -------------------------------------------------------------------------------------------

RENAMED = {
    "resnet": ((r"stages\.(\d+)\.(\d+)\.", r"stages.\1.blocks.\2."),),
    "convnext": (
        (r"branch\.depthwise", "branch.convolution1"),
        (r"branch\.norm", "branch.norm1"),
        (r"branch\.linear1", "branch.convolution2"),
        (r"branch\.linear2", "branch.convolution3"),
    ),
}


def copied(source, road, family):
    """The road's network with the weights of another, by name; a linear layer becomes a 1×1 convolution."""
    wanted, given = road.state_dict(), {}
    for name, value in source.state_dict().items():
        for pattern, there in RENAMED[family]:
            name = re.sub(pattern, there, name)
        assert value.numel() == wanted[name].numel(), name
        given[name] = value.reshape(wanted[name].shape)
    road.double().load_state_dict(given)
    return road.eval()


@pytest.mark.parametrize(
    ("family", "settings", "source", "size"),
    [
        ("resnet", {}, {"width": 4, "depths": (1, 2)}, 32),
        ("resnet", {}, {"width": 6, "depths": (2, 1, 1)}, 40),
        ("resnet", {}, {}, 32),  # the whole ResNet-50
        ("convnext", END, {"width": 6, "depths": (1, 1)}, 32),
        ("convnext", END, {"width": 12, "depths": (2, 2, 6)}, 40),
        ("convnext", END, {}, 32),  # the whole ConvNeXt-T
    ],
)
def test_ends_are_the_networks_by_output_and_gradient(family, settings, source, size):
    torch.manual_seed(0)
    facts = {"num_classes": 5, "input_size": size}
    other = shaken(create(family, **facts, **source))
    lengths = {}
    if source:  # the road's depths and widths are those of its beginning
        factor = 1 if family == "resnet" else 3 / 2
        lengths = {"width": int(source["width"] / factor), "depths": source["depths"]}
    road = copied(other, create("resnet-to-convnext", **facts, **settings, **lengths), family)
    assert count_parameters(road) == count_parameters(other)
    x = images(2 if source else 1, 3, size, size).requires_grad_()
    ours, theirs = road(x), other(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)]
    assert gradients[1].abs().max() > 0
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9 * gradients[1].abs().max().item())


def test_ends_by_count():
    assert count_parameters(on_meta()) == RESNET50
    assert count_parameters(on_meta(**END)) == CONVNEXT_TINY


# -- the steps between -----------------------------------------------------------------------------------


def multiply_adds(**settings):
    with FlopCounterMode(display=False) as counter:
        on_meta(**settings)(torch.empty(1, 3, 224, 224, device="meta"))
    return counter.get_total_flops() / 2e9


@pytest.mark.parametrize("step", ROAD, ids=lambda step: step.name)
def test_multiply_adds_are_those_of_the_papers_table(step):
    got = multiply_adds(**step.settings)
    if step.name == "layer norm":  # the table has 4.46, which cannot be: no convolution changes
        assert got == pytest.approx(4.15, abs=0.005)
    elif step.name == "separate down-sampling":  # 4.49 there: norms counted
        assert got == pytest.approx(step.multiply_adds, rel=0.01)
    elif step.multiply_adds is not None:
        assert got == pytest.approx(step.multiply_adds, abs=0.0055)


@pytest.mark.parametrize("kernel_size", OTHER_KERNELS)
def test_multiply_adds_with_other_kernels(kernel_size):
    seven = next(step for step in ROAD if "kernel_size" in step.change)
    got = multiply_adds(**{**seven.settings, "kernel_size": kernel_size})
    assert got == pytest.approx(OTHER_KERNELS[kernel_size][1], abs=0.005)


def test_steps_are_cumulative_and_each_but_the_training_changes_the_network():
    assert ROAD[0].settings == ROAD[0].change == ROAD[1].change == {}
    for before, after in itertools.pairwise(ROAD):
        assert after.settings == {**before.settings, **after.change}
    networks = [repr(on_meta(**step.settings)) for step in ROAD]
    assert networks[0] == networks[1]
    assert len(set(networks)) == len(ROAD) - 1
    best = max(step.accuracy for step in ROAD if step.accuracy is not None)
    assert best == 81.97


@pytest.mark.parametrize("step", ROAD, ids=lambda step: step.name)
def test_every_step_can_be_trained(step):
    torch.manual_seed(0)
    model = create("resnet-to-convnext-micro", in_channels=1, input_size=28, **step.settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, labels = torch.randn(8, 1, 28, 28), torch.arange(8)
    losses = []
    for _ in range(3):
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.any() for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def convolved(x, weight, bias, stride):
    """A convolution in loops over its output; few input channels mean groups."""
    (channels, per_group, size, _), reach = weight.shape, weight.shape[-1] // 2
    group = channels // (x.shape[1] // per_group)
    padded = F.pad(x, [reach] * 4)
    height, width = ((length - 1) // stride + 1 for length in x.shape[2:])
    maps = []
    for channel in range(channels):
        first = channel // group * per_group
        for i in range(height):
            for j in range(width):
                top, left = i * stride, j * stride
                seen = padded[:, first : first + per_group, top : top + size, left : left + size]
                maps.append(
                    (seen * weight[channel]).sum((1, 2, 3)) + (bias[channel] if bias is not None else 0)
                )
    return torch.stack(maps, 1).view(len(x), channels, height, width)


def block_by_hand(block, x, spatial, stride, active, sum_active, gelu):
    """A block from its weights: which convolution looks over space, which are followed by an activation."""
    weights = block.state_dict()

    def norm(x, name):
        if f"{name}.weight" not in weights:
            return x
        if f"{name}.running_mean" in weights:
            mean, variance = (weights[f"{name}.running_{part}"].view(1, -1, 1, 1) for part in ("mean", "var"))
            root = (variance + 1e-5).sqrt()
        else:
            mean = x.mean(1, keepdim=True)
            root = (x.var(1, keepdim=True, unbiased=False) + 1e-6).sqrt()
        return (x - mean) / root * weights[f"{name}.weight"].view(1, -1, 1, 1) + weights[f"{name}.bias"].view(
            1, -1, 1, 1
        )

    def act(x):
        return x * torch.special.ndtr(x) if gelu else x.clamp(min=0)

    y = x
    for number in (1, 2, 3):
        name = f"branch.convolution{number}"
        moved = stride if number == spatial else 1
        y = norm(
            convolved(y, weights[f"{name}.weight"], weights.get(f"{name}.bias"), moved),
            f"branch.norm{number}",
        )
        y = act(y) if number in active else y
    if "shortcut.convolution.weight" in weights:
        x = convolved(
            x, weights["shortcut.convolution.weight"], weights.get("shortcut.convolution.bias"), stride
        )
        x = norm(x, "shortcut.norm")
    return act(x + y) if sum_active else x + y


@pytest.mark.parametrize(
    ("name", "spatial", "active", "norms"),
    [
        ("ResNet-50", 2, (1, 2), (1, 2, 3)),
        ("depthwise convolution", 2, (1, 2), (1, 2, 3)),
        ("inverted bottleneck", 2, (1, 2), (1, 2, 3)),
        ("depthwise convolution first", 1, (1, 2), (1, 2, 3)),
        ("GELU", 1, (1, 2), (1, 2, 3)),
        ("fewer activations", 1, (2,), (1, 2, 3)),
        ("fewer norms", 1, (2,), (1,)),
        ("layer norm", 1, (2,), (1,)),
    ],
)
@pytest.mark.parametrize("stride", [1, 2])
def test_blocks_are_their_formula_with_their_gradient(name, spatial, active, norms, stride):
    """The second stage's first block halves space, its second does not."""
    settings = next(step.settings for step in ROAD if step.name == name)
    torch.manual_seed(0)
    model = shaken(create("resnet-to-convnext", width=2, depths=(2, 2), input_size=16, **settings))
    block = model.stages[1].blocks[0 if stride == 2 else 1]
    assert tuple(n for n in (1, 2, 3) if hasattr(block.branch, f"norm{n}")) == norms
    channels = block.branch.convolution1.in_channels
    x = images(2, channels, 5, 5).requires_grad_()
    sum_active = len(active) > 1
    ours = block(x)
    theirs = block_by_hand(
        block, x, spatial, stride, active, sum_active, settings.get("activation") == "gelu"
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)))


def test_norms_that_come_with_separate_downsampling():
    """One after the stem of patches, one before each down-sampling, one after the mean (section 2.6)."""
    before, after = (on_meta(**{**END, "separate_downsampling": separate}) for separate in (False, True))
    assert isinstance(before.norm, nn.Identity)
    assert isinstance(after.norm, nn.LayerNorm)
    assert [hasattr(model.stem, "norm") for model in (before, after)] == [False, True]
    assert [hasattr(stage, "downsampling") for stage in after.stages] == [False, True, True, True]
    assert not [name for name, _ in before.named_modules() if "downsampling" in name]
    assert not [name for name, _ in after.named_modules() if "shortcut" in name and "." in name]


def test_a_bias_stands_where_no_batch_norm_would_take_it_off():
    model = on_meta(**{**END, "norm": "batch"})
    convolutions = [
        (name, module.bias is not None)
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d)
    ]
    for name, has_bias in convolutions:
        assert has_bias == (name != "stem.convolution" and not name.endswith("convolution1")), name


@pytest.mark.parametrize("order", ["before", "after"])
def test_norms_before_or_after_the_activation(order):
    parts = list(dict(create("resnet-to-convnext-micro", norm_placement=order).stem.named_children()))
    pair = ["norm", "activation"] if order == "before" else ["activation", "norm"]
    assert parts == ["convolution", *pair]


def test_stage_ratio_and_width_of_the_small_road():
    model = create("resnet-to-convnext-micro", stage_ratio=True, wider=True)
    assert [len(stage.blocks) for stage in model.stages] == [1, 1, 3]
    assert model.stem.convolution.out_channels == 24


def test_what_is_refused():
    with pytest.raises(UsageError, match="'resnet-to-convnext': takes images, got an input_size of 12"):
        create("resnet-to-convnext", input_size=(12,))
    with pytest.raises(UsageError, match=r"kernel_size must be odd, .* got 8; take 7 or 9"):
        create("resnet-to-convnext", kernel_size=8)
    with pytest.raises(UsageError, match="divide space by 8, which leaves nothing of an input_size of 6×6"):
        create("resnet-to-convnext-micro", input_size=6)
