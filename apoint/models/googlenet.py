"""GoogLeNet (Inception v1): blocks that work at several scales at once, and auxiliary heads.

Shapes: B batch, C channels or classes, H height, W width.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.alexnet import Stem, check_smallest, local_response_norm
from apoint.models.cnn import NormPlacement
from apoint.models.inceptions import InceptionNet, Scaled
from apoint.models.members import register_member
from apoint.models.resnet import check_space, named
from apoint.models.shapes import Size, has_norm
from apoint.nn.dropout import Dropout
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Positive, Rate

Variant = Literal["torchvision", "paper"]
Widths = tuple[int, int, int, int, int, int]

# Channels of the branches of each block: 1×1; before and after 3×3; before and after 5×5; after pooling.
BLOCKS: tuple[tuple[Widths, ...], ...] = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)
_MOST = tuple(len(blocks) for blocks in BLOCKS)


class Inception(nn.Module):
    """Four branches on the same feature maps, concatenated along the channels.

    Args:
        direct: The branch of one 1×1 convolution.
        medium: A 1×1 convolution that reduces the channels, and a 3×3 one.
        large: A 1×1 convolution that reduces the channels, and a 5×5 one (3×3 in torchvision's weights).
        pooled: 3×3 max pooling, and a 1×1 convolution.
    """

    def __init__(self, direct: nn.Module, medium: nn.Module, large: nn.Module, pooled: nn.Module) -> None:
        super().__init__()
        self.direct = direct
        self.medium = medium
        self.large = large
        self.pooled = pooled

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """The channels of all branches."""
        return torch.cat(
            [self.direct(x_BCHW), self.medium(x_BCHW), self.large(x_BCHW), self.pooled(x_BCHW)], 1
        )


class GoogLeNet(InceptionNet):
    """Stem, stages of inception blocks, global average pooling, linear layer; optionally two auxiliary heads.

    The stages are three sequences of blocks; the first two end with pooling. For what auxiliary heads do in
    training, see `InceptionNet`; with the paper's two of weight w = 0.3, the sum of the weights by which the
    loss is divided is 1.6.
    """

    family = "googlenet"


@dataclass(frozen=True)
class Design(Scaled):
    """The settings that all parts of a network share; builds the parts from them."""

    variant: Variant

    def layer(self, before: int, after: int, size: int, stride: int = 1) -> nn.Sequential:
        """A convolution that keeps the spatial size except for its stride, with norm and activation."""
        bias = not has_norm(self.norm)
        convolution = nn.Conv2d(before, after, size, stride, padding=size // 2, bias=bias)
        return named(convolution=convolution, **self.after(after))

    def inception(self, before: int, widths: Widths) -> Inception:
        """A block with this many input channels."""
        direct, medium_inside, medium, large_inside, large, pooled = map(self.wide, widths)
        size = 5 if self.variant == "paper" else 3
        return Inception(
            self.layer(before, direct, 1),
            named(reduce=self.layer(before, medium_inside, 1), convolve=self.layer(medium_inside, medium, 3)),
            named(reduce=self.layer(before, large_inside, 1), convolve=self.layer(large_inside, large, size)),
            named(pool=nn.MaxPool2d(3, 1, padding=1), project=self.layer(before, pooled, 1)),
        )

    def stem(self, in_channels: int, kind: Stem) -> tuple[nn.Sequential, int]:
        """Large: 7×7, 1×1 and 3×3 convolutions and two poolings; small: 3×3 and one pooling."""
        inner, after = self.wide(64), self.wide(192)
        if kind == "small":
            return named(layer1=self.layer(in_channels, after, 3), pool1=_pool(3)), after
        has_response = self.variant == "paper" and not has_norm(self.norm)
        return named(
            layer1=self.layer(in_channels, inner, 7, 2),
            pool1=_pool(3),
            response1=local_response_norm() if has_response else None,
            layer2=self.layer(inner, inner, 1),
            layer3=self.layer(inner, after, 3),
            response3=local_response_norm() if has_response else None,
            pool3=_pool(3),
        ), after

    def stages(self, before: int, depths: Sequence[int]) -> tuple[nn.Sequential, list[list[int]]]:
        """The stages, and the number of output channels of each block."""
        made, channels = [], []
        for stage, depth in enumerate(depths):
            parts: OrderedDict[str, nn.Module] = OrderedDict()
            channels.append(list[int]())
            for number, widths in enumerate(BLOCKS[stage][:depth]):
                parts[str(number)] = self.inception(before, widths)
                before = sum(self.wide(widths[place]) for place in (0, 2, 4, 5))
                channels[-1].append(before)
            if stage < 2:
                # Public weights belong to a network whose last pooling is over 2×2 positions.
                parts["pool"] = _pool(2 if stage == 1 and self.variant == "torchvision" else 3)
            made.append(nn.Sequential(parts))
        return nn.Sequential(*made), channels

    def auxiliary(self, before: int, num_classes: int, rate: float) -> nn.Sequential:
        """A head inside the network: average pooling to 4×4, a 1×1 convolution, two linear layers."""
        inner, hidden = self.wide(128), self.wide(1024)
        return named(
            pool=nn.AdaptiveAvgPool2d(4),
            layer=self.layer(before, inner, 1),
            flatten=nn.Flatten(),
            linear=nn.Linear(inner * 16, hidden),
            activation=self.activated(),
            dropout=Dropout(rate, knob="auxiliary_dropout"),
            head=nn.Linear(hidden, num_classes),
        )


def _pool(size: int) -> nn.MaxPool2d:
    """Max pooling over size × size positions with stride 2; a partial window at the edge counts too."""
    return nn.MaxPool2d(size, 2, ceil_mode=True)


@register("model", "googlenet", course="H1", inputs=("image",))
def googlenet(
    in_channels: int = 3,
    num_classes: int = 1000,
    input_size: Size = 224,
    *,
    variant: Variant = "torchvision",
    depths: tuple[Count, ...] = _MOST,
    width: Count = 64,
    stem: Stem = "large",
    activation: ActivationSpec = "relu",
    norm: NormSpec = {"name": "batch", "eps": 1e-3},  # noqa: B006 - settings are never changed in place
    norm_placement: NormPlacement = "before",
    dropout: Rate = 0.2,
    auxiliary: bool = False,
    auxiliary_weight: Positive = 0.3,
    auxiliary_dropout: Rate = 0.7,
) -> GoogLeNet:
    """GoogLeNet: blocks of convolutions of several sizes side by side, in three stages.

    A block has four branches on the same input: a 1×1 convolution; a 3×3 and a 5×5 one, each after a 1×1
    convolution that reduces the channels; and 3×3 pooling followed by a 1×1 convolution. The result has the
    channels of all four. Each convolution is followed by norm and activation, and has a bias only if there is
    no norm. In the `torchvision` variant, that of the public weights, the 5×5 convolution is 3×3 instead, and
    the last pooling is over 2×2 positions instead of 3×3. In the `paper` variant with norm `none`, local
    response norms surround the stem's later convolutions, with AlexNet's constants, since the paper gives
    none. As built, weights are normal with standard deviation 0.01, truncated at ±2, as in public code.
    Without a norm, signals would vanish over 22 layers, so weights are then drawn as in Caffe's version:
    uniform with variance 1/fan-in, and biases 0.2 except in the heads.

    With auxiliary heads, each row of the output in training comes from one of the heads, drawn for each
    example; for any loss, the expected loss is the paper's weighted sum divided by the sum of the weights.
    See `InceptionNet` for the reason, and for `all_logits`, which returns the logits of all heads for a
    custom training loop.

    Args:
        variant: `torchvision`, as in public weights, or `paper`.
        depths: The number of blocks of each stage, at most 2, 5 and 2: the first of the published ones.
        width: The number of channels after the first convolution; all others scale with it.
        stem: `large` downsamples by eight; `small`, a 3×3 convolution and pooling, by two, for images of a
            few dozen pixels.
        activation: The activation.
        norm: The norm of each convolution; none in the paper.
        norm_placement: Whether the norm comes `before` or `after` the activation.
        dropout: The probability of dropping a feature of the head's input.
        auxiliary: Whether there are two more heads in training, after the first and after the last but one
            block of the second stage.
        auxiliary_weight: The weight w of the loss of each auxiliary head; that of the main one is 1.
        auxiliary_dropout: The probability of dropping a hidden unit of an auxiliary head.

    Reference: Szegedy et al. (2015), Going deeper with convolutions.
    """
    check_space("googlenet", input_size)
    check_smallest("googlenet", input_size, lambda length: _left(length, stem, variant))
    _check_depths(depths, auxiliary)
    design = Design(activation, norm, norm_placement, dropout, width / 64, variant)
    first, channels = design.stem(in_channels, stem)
    stages, widths = design.stages(channels, depths)
    after = (0, depths[1] - 2) if auxiliary else ()
    heads = [design.auxiliary(widths[1][place], num_classes, auxiliary_dropout) for place in after]
    head = nn.Linear(widths[2][-1], num_classes)
    model = GoogLeNet(first, stages, Dropout(dropout), head, heads, after, auxiliary_weight)
    _draw(model, has_norm(norm))
    return model


def _left(length: int, stem: Stem, variant: Variant) -> int:
    """The length after convolutions and poolings; 0 if a pooling gets fewer than two positions."""
    if stem == "large":
        length = (length + 1) // 2
    for size in (3,) * (3 if stem == "large" else 2) + (3 if variant == "paper" else 2,):
        length = max(0, math.ceil((length - size) / 2) + 1)
    return length


def _check_depths(depths: Sequence[int], auxiliary: bool) -> None:
    too_many = len(depths) == 3 and any(map(int.__gt__, depths, _MOST))
    if len(depths) != 3 or too_many:
        raise UsageError(
            f"model 'googlenet': depths must be three numbers, at most 2, 5 and 2, got {tuple(depths)}"
        )
    if auxiliary and depths[1] < 3:
        raise UsageError(
            f"model 'googlenet': auxiliary heads need at least 3 blocks in the second stage, and depths has "
            f"{depths[1]}; raise it, or write auxiliary: false"
        )


def _draw(model: GoogLeNet, is_normalised: bool) -> None:
    heads = {model.head, *(module for name, module in model.auxiliary.named_modules() if "head" in name)}
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            if is_normalised:
                nn.init.trunc_normal_(module.weight, std=0.01, a=-2, b=2)
            else:
                bound = math.sqrt(3 / module.weight[0].numel())
                nn.init.uniform_(module.weight, -bound, bound)
                assert module.bias is not None
                nn.init.constant_(module.bias, 0.0 if module in heads else 0.2)


register_member(
    googlenet,
    "googlenet-paper",
    "GoogLeNet as in its paper: 5×5 convolutions, no batch norm, local response norm.",
    course="H1",
    fixed={"variant": "paper", "depths": _MOST, "width": 64, "norm": "none"},
    defaults={"dropout": 0.4},
)

register_member(
    googlenet,
    "googlenet-5x5",
    "GoogLeNet with batch norm and the paper's 5×5 convolutions.",
    course="H1",
    fixed={"variant": "paper", "depths": _MOST, "width": 64},
)

register_member(
    googlenet,
    "googlenet-micro",
    "GoogLeNet for images of 28 or 32 pixels that trains within minutes.",
    course="H1",
    fixed={"variant": "paper", "depths": (1, 3, 1)},
    defaults={"num_classes": 10, "input_size": 32, "width": 8, "stem": "small"},
)
