"""Receptive fields: against the closed form, against gradients, and rule by rule."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from apoint.errors import UsageError
from apoint.models import create
from apoint.models.receptive import receptive_field, receptive_fields
from apoint.nn.attention import SelfAttention
from apoint.nn.residual import LayerScale


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def bounds(function, shape=(2, 12, 12)):
    """First and last pixel and stride along the height."""
    field = receptive_field(Apply(function), shape)[0]
    return field.low, field.high, field.stride


# -- the closed form ------------------------------------------------------------------------------------

LAYERS = st.lists(
    st.tuples(
        st.integers(1, 5), st.integers(1, 2), st.integers(1, 2), st.booleans(),
        st.sampled_from(["convolution", "depthwise", "max", "average"]),
    ),
    min_size=1, max_size=4,
)  # fmt: skip


@settings(max_examples=40)
@given(LAYERS)
def test_chains_of_windows_have_the_closed_form(layers):
    parts, field, stride, side = [], 1, 1, 384
    for size, step, dilation, is_padded, kind in layers:
        dilation = 1 if kind == "average" else dilation
        field += (size - 1) * dilation * stride
        stride *= step
        padding = min(size // 2, (size - 1) * dilation) if is_padded else 0
        parts.append(
            {
                "convolution": lambda p=padding, k=size, s=step, d=dilation: nn.Conv2d(2, 2, k, s, p, d),
                "depthwise": lambda p=padding, k=size, s=step, d=dilation: nn.Conv2d(2, 2, k, s, p, d, 2),
                "max": lambda p=padding, k=size, s=step, d=dilation: nn.MaxPool2d(k, s, p, d),
                "average": lambda p=padding, k=size, s=step, d=dilation: nn.AvgPool2d(k, s, p),
            }[kind]()
        )
    for axis in receptive_field(nn.Sequential(*parts).to("meta"), (2, side, side)):
        assert axis.size == field
        assert axis.stride in (stride, None)


def test_two_small_filters_see_as_far_as_a_large_one_with_fewer_parameters():
    channels = 8
    for number, size in ((2, 5), (3, 7)):
        small = nn.Sequential(*(nn.Conv2d(channels, channels, 3, bias=False) for _ in range(number)))
        large = nn.Conv2d(channels, channels, size, bias=False)
        shape = (channels, 20, 20)
        assert receptive_field(small, shape) == receptive_field(large, shape)
        weights = [sum(weight.numel() for weight in model.parameters()) for model in (small, large)]
        assert weights == [9 * number * channels**2, size**2 * channels**2]


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # VGG-16 and AlexNet as in Araujo, Norris and Sim (2019), Computing receptive fields, table 1
        ("vgg16", {"stages.0": 6, "stages.1": 16, "stages.2": 44, "stages.3": 100, "stages.4": 212}),
        ("alexnet", {"features": 195}),
        ("resnet18", {"stem": 11, "stages.0": 43, "stages.1": 99, "stages.2": 211, "stages.3": 435}),
        ("resnet20", {"stem": 3, "stages.0": 15, "stages.1": 37, "stages.2": 81}),
        ("vit-tiny-patch16", {"patch_embedding": 16, "blocks.0": math.inf}),
        # Two windows of 7 patches of 4 pixels, one shifted by half: 14 patches; then on maps half as large.
        ("swin-tiny", {"patches": 4, "stages.0": 56, "stages.1": 168, "stages.2": math.inf}),
        ("convnext-tiny", {"stem": 4, "stages.0": 4 + 3 * 6 * 4, "readout": math.inf, "": math.inf}),
    ],
)
def test_fields_of_known_networks(name, expected):
    with torch.device("meta"):
        model = create(name)
    size = 32 if name == "resnet20" else 224
    fields = receptive_fields(model, (3, size, size))
    assert {part: fields[part][0].size for part in expected} == expected
    assert all(height == width for height, width in fields.values())


# -- gradients ------------------------------------------------------------------------------------------


def positive(model: nn.Module) -> nn.Module:
    """With weights that cancel nothing: every path from a pixel to an output counts."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.uniform_(0.5, 1.5).mul_(0.1)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.fill_(1.0)
            if isinstance(module, LayerScale):
                module.factor.fill_(1.0)
    return model.double().eval()


def stages_of(name: str, size: int, **facts) -> nn.Module:
    model = create(name, in_channels=1, num_classes=2, input_size=size, **facts)
    if name == "cnn":
        return model.body
    return nn.Sequential(model.stem, model.stages)


def small_vgg() -> nn.Module:
    layers = []
    for before, after in ((1, 3), (3, 4)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(after, after, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)]
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("build", "size"),
    [
        (lambda: stages_of("resnet20", 128), 128),
        (lambda: stages_of("resnet-micro", 64), 64),
        (lambda: stages_of("convnext-micro", 176), 176),
        (lambda: stages_of("cnn", 80, pool="average"), 80),
        (small_vgg, 48),
    ],
    ids=["resnet20", "resnet-micro", "convnext-micro", "cnn", "vgg"],
)
def test_the_gradient_of_the_middle_output_has_this_support(build, size):
    torch.manual_seed(0)
    model = positive(build())
    height, width = receptive_field(model, (1, size, size))
    image = torch.rand(1, 1, size, size, dtype=torch.float64, requires_grad=True)
    maps = model(image)
    half = maps.shape[2] // 2
    for output in (half - 1, half, half + 1):  # which of them is in the middle depends on padding
        (gradient,) = torch.autograd.grad(maps[0, :, output, half].sum(), image, retain_graph=True)
        rows = gradient[0, 0].abs().amax(1).nonzero().flatten()
        if (rows.min(), rows.max()) == (height.low, height.high):
            break
    else:
        pytest.fail(f"no output depends on exactly the rows {height.low} to {height.high}")
    middle = (size - 1) / 2
    assert abs((height.low + height.high) / 2 - middle) <= height.stride
    assert width.size == height.size


# -- rule by rule ---------------------------------------------------------------------------------------


def convolved(x):
    return F.conv2d(x, torch.ones(2, 2, 3, 3, device=x.device))


RULES = {
    "element by element": (lambda x: x.relu() * 2 + 1, (5, 5, 1)),
    "in place": (lambda x: convolved(x).relu_().add_(1), (4, 6, 1)),
    "union of two": (lambda x: convolved(x) + x[:, :, 1:-1, 1:-1], (4, 6, 1)),
    "shifted": (lambda x: x + x.roll(2, 2), (3, 5, 1)),
    "joined channels": (lambda x: torch.cat([x, torch.zeros_like(x)], 1), (5, 5, 1)),
    "joined with a wider one": (lambda x: torch.cat([convolved(x), x[:, :, 1:-1, 1:-1]], 1), (4, 6, 1)),
    "stacked": (lambda x: torch.stack([convolved(x), x[:, :, 1:-1, 1:-1]]).sum(0), (4, 6, 1)),
    "every second": (lambda x: x[:, :, ::2, ::2], (6, 6, 2)),
    "every second, then a window": (lambda x: convolved(x[:, :, ::2, ::2]), (4, 8, 2)),
    "padded": (lambda x: F.pad(x, (1, 1, 1, 1)), (5, 5, 1)),
    "channels last": (lambda x: F.layer_norm(convolved(x).permute(0, 2, 3, 1), (2,)), (4, 6, 1)),
    "flattened and back": (lambda x: x.flatten(2).transpose(1, 2).reshape(1, 12, 12, 2), (5, 5, 1)),
    "patches": (lambda x: x.reshape(1, 2, 4, 3, 12).sum(3), (3, 5, 3)),
    "halves": (lambda x: x.chunk(2, 1)[0] + x.split([1, 1], 1)[1] + x.unbind(1)[0][:, None], (5, 5, 1)),
    "mean over the width": (lambda x: x.mean(3), (5, 5, 1)),
    "softmax over channels": (lambda x: x.softmax(1), (5, 5, 1)),
    "products of activations": (lambda x: x.flatten(2).transpose(1, 2) @ x.flatten(2), (0, 11, 1)),
    "local response": (lambda x: F.local_response_norm(x, 3), (5, 5, 1)),
    "adaptive pooling": (lambda x: F.adaptive_avg_pool2d(x, 4), (3, 5, 3)),
    "adaptive, the same size": (lambda x: F.adaptive_avg_pool2d(x, 12), (5, 5, 1)),
    "adaptive, uneven": (lambda x: F.adaptive_max_pool2d(x, 5), (4, 7, 2)),
    "ceiled pooling": (lambda x: F.max_pool2d(x, 5, 5, ceil_mode=True), (5, 9, 5)),
}
EVERYTHING = {  # an interval without ends
    "mean over space": lambda x: x.mean((2, 3)),
    "flat, then linear": lambda x: F.linear(x.flatten(1), torch.ones(3, 288, device=x.device)),
    "largest over space": lambda x: x.amax((2, 3)),
    "group norm": lambda x: F.group_norm(x, 1),
    "instance norm": lambda x: F.instance_norm(x),
    "softmax over places": lambda x: x.flatten(2).softmax(-1),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.flatten(2).transpose(1, 2)] * 3),
    "picked by number": lambda x: x[:, :, torch.zeros(3, dtype=torch.long, device=x.device)],
    "pooled to one": lambda x: F.adaptive_max_pool2d(x, 1),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", RULES)
def test_a_rule(name, device):
    function, expected = RULES[name]
    with torch.device(device):
        module = Apply(function)
        module.weight = nn.Parameter(torch.zeros(1))
        field = receptive_field(module, (2, 12, 12))[0]
    assert (field.low, field.high, field.stride) == expected


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", EVERYTHING)
def test_what_sees_everything(name, device):
    module = Apply(EVERYTHING[name])
    module.weight = nn.Parameter(torch.zeros(1, device=device))
    assert receptive_field(module, (2, 12, 12))[0].size == math.inf


def test_attention_within_windows_sees_its_window():
    class Windows(SelfAttention):
        def forward(self, x):
            tiles = x.permute(0, 2, 3, 1).reshape(1, 3, 4, 3, 4, 2).transpose(2, 3).reshape(9, 16, 2)
            out = super().forward(tiles)
            return out.reshape(1, 3, 3, 4, 4, 2).transpose(2, 3).reshape(1, 12, 12, 2)

    for device in ("cpu", "meta"):
        field, _ = receptive_field(Windows(2, 1, causal=False).to(device), (2, 12, 12))
        assert (field.low, field.high, field.stride) == (4, 7, 1)


def test_groups_keep_channels_apart():
    def apart(x):  # one channel shifted, the other not; then each alone
        x = torch.cat([x[:, :1].roll(5, 2), x[:, 1:]], 1)
        return F.conv2d(x, torch.ones(2, 1, 3, 3), padding=1, groups=2)[:, 1:]

    assert bounds(apart) == (4, 6, 1)


def test_windows_go_on_over_the_edge_even_on_a_map_of_one_place():
    model = nn.Sequential(nn.Conv2d(2, 2, 4, 4), nn.Conv2d(2, 2, 3, padding=1))
    field = receptive_field(model, (2, 4, 4))[0]
    assert (field.low, field.high, field.size) == (-4, 7, 12)


def test_signals_have_one_axis():
    model = nn.Sequential(nn.Conv1d(2, 4, 5), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(4, 4, 3))
    (field,) = receptive_field(model, (2, 40))
    assert (field.size, field.stride) == (5 + 1 + 2 * 2, 2)


def test_the_axes_are_told_apart():
    height, width = receptive_field(nn.Conv2d(1, 1, (3, 5), (2, 1)), (1, 20, 30))
    assert (height.size, height.stride, width.size, width.stride) == (3, 2, 5, 1)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (
            lambda x: F.conv_transpose2d(x, torch.ones(2, 2, 3, 3)),
            "transposed convolutions cannot be followed",
        ),
        (lambda x: torch.zeros(2), "the output does not depend on the input"),
        (lambda x: torch.fft.fft(x).real, "cannot be followed"),
        (lambda x: torch.ones(12)[x.long()], "picking by what depends on the input cannot be followed"),
    ],
)
def test_what_cannot_be_followed_is_said(function, sentence):
    with pytest.raises(UsageError, match=sentence):
        bounds(function)


def test_only_images_and_signals():
    with pytest.raises(UsageError, match=r"of images and signals, got examples of shape \(4,\)"):
        receptive_field(nn.Linear(4, 4), (4,))


def test_writing_into_a_part_is_refused():
    def written(x):
        out = torch.zeros_like(x)
        out[:, :1] = x[:, :1]
        return out

    with pytest.raises(UsageError, match="writing into a part"):
        bounds(written)
