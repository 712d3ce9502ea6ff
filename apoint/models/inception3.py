"""Inception v3: blocks of branches whose large filters are factorised into small and narrow ones.

Shapes: B batch, C channels, H height, W width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.alexnet import check_smallest
from apoint.models.cnn import GlobalAverage, NormPlacement
from apoint.models.inceptions import InceptionNet, Scaled
from apoint.models.resnet import check_space, named
from apoint.models.shapes import Size, has_norm, space_of
from apoint.nn.dropout import Dropout
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Positive, Rate

Step = tuple[int, tuple[int, int]]
"""A convolution: its output channels, and the height and width of its filters."""

POOLED = (32, 64, 64)
"""Channels of the pooled branch of each block of the first stage."""
FACTORED = (128, 160, 160, 192)
"""Channels inside the branches of each block of the second stage."""
_MOST = (len(POOLED), len(FACTORED), 2)
_ONE, _THREE, _FIVE, _ACROSS, _DOWN = (1, 1), (3, 3), (5, 5), (1, 7), (7, 1)


class InceptionV3(InceptionNet):
    """Stem, three stages of blocks, global average pooling, linear layer; optionally one auxiliary head.

    The second and third stages begin with a block that halves the resolution. The auxiliary head comes after
    the second stage; for what it does in training, see `InceptionNet`. With the usual weight w = 0.4, the sum
    of the weights by which the loss is divided is 1.4.
    """

    family = "inception3"


class Branches(nn.Module):
    """Branches on the same feature maps, concatenated along the channels.

    Args:
        branches: The branches by name, in the order of their channels.
    """

    def __init__(self, **branches: nn.Module) -> None:
        super().__init__()
        for name, branch in branches.items():
            self.add_module(name, branch)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """The channels of all branches."""
        return torch.cat([branch(x_BCHW) for branch in self.children()], 1)


@dataclass(frozen=True)
class Design(Scaled):
    """The settings that all parts of a network share; builds the parts from them."""

    def layer(self, before: int, step: Step, stride: int = 1, *, padded: bool | None = None) -> nn.Sequential:
        """A convolution with norm and activation; with stride 1 it is padded to keep the spatial size.

        `before` is scaled to this network's width; the step's channels are the published ones.
        """
        after, size = self.wide(step[0]), step[1]
        is_padded = stride == 1 if padded is None else padded
        padding = (size[0] // 2, size[1] // 2) if is_padded else (0, 0)
        bias = not has_norm(self.norm)
        return named(
            convolution=nn.Conv2d(before, after, size, stride, padding, bias=bias), **self.after(after)
        )

    def chain(self, before: int, *steps: Step, stride: int = 1, ends: Sequence[Step] = ()) -> nn.Sequential:
        """A chain of convolutions, the last with a stride; or followed by two side by side."""
        parts: dict[str, nn.Module] = {}
        for number, step in enumerate(steps, 1):
            parts[f"layer{number}"] = self.layer(before, step, stride if number == len(steps) else 1)
            before = self.wide(step[0])
        if ends:
            across, down = (self.layer(before, step) for step in ends)
            parts[f"layer{len(steps) + 1}"] = Branches(across=across, down=down)
        return named(**parts)

    def pooled(self, before: int, channels: int) -> nn.Sequential:
        """3×3 average pooling, counting the zeros outside the image, and a 1×1 convolution."""
        return named(pool=nn.AvgPool2d(3, 1, padding=1), project=self.layer(before, (channels, _ONE)))

    def stem(self, in_channels: int) -> tuple[nn.Sequential, int]:
        """Five convolutions and two poolings: from 299×299 positions to 35×35."""
        narrow, wide, wider = self.wide(32), self.wide(64), self.wide(80)
        return named(
            layer1=self.layer(in_channels, (32, _THREE), 2),
            layer2=self.layer(narrow, (32, _THREE), padded=False),
            layer3=self.layer(narrow, (64, _THREE)),
            pool3=nn.MaxPool2d(3, 2),
            layer4=self.layer(wide, (80, _ONE)),
            layer5=self.layer(wider, (192, _THREE), padded=False),
            pool5=nn.MaxPool2d(3, 2),
        ), self.wide(192)

    def first_stage(self, before: int, depth: int) -> tuple[nn.Sequential, int]:
        """Blocks on 35×35 positions: 5×5 filters, and two 3×3 in a row."""
        parts: dict[str, nn.Module] = {}
        for number, pooled in enumerate(POOLED[:depth]):
            parts[str(number)] = Branches(
                direct=self.layer(before, (64, _ONE)),
                short=self.chain(before, (48, _ONE), (64, _FIVE)),
                long=self.chain(before, (64, _ONE), (96, _THREE), (96, _THREE)),
                pooled=self.pooled(before, pooled),
            )
            before = sum(map(self.wide, (64, 64, 96, pooled)))
        return named(**parts), before

    def second_stage(self, before: int, depth: int) -> tuple[nn.Sequential, int]:
        """A halving block, and blocks on 17×17 positions whose filters are rows and columns of 7."""
        parts: dict[str, nn.Module] = {
            "reduce": Branches(
                short=self.layer(before, (384, _THREE), 2),
                long=self.chain(before, (64, _ONE), (96, _THREE), (96, _THREE), stride=2),
                pooled=nn.MaxPool2d(3, 2),
            )
        }
        before += self.wide(384) + self.wide(96)
        for number, inside in enumerate(FACTORED[:depth]):
            across, down = (inside, _ACROSS), (inside, _DOWN)
            parts[str(number)] = Branches(
                direct=self.layer(before, (192, _ONE)),
                short=self.chain(before, (inside, _ONE), across, (192, _DOWN)),
                long=self.chain(before, (inside, _ONE), down, across, down, (192, _ACROSS)),
                pooled=self.pooled(before, 192),
            )
            before = 4 * self.wide(192)
        return named(**parts), before

    def third_stage(self, before: int, depth: int) -> tuple[nn.Sequential, int]:
        """A halving block, and blocks on 8×8 positions that end in rows and columns side by side."""
        across, down = (192, _ACROSS), (192, _DOWN)
        parts: dict[str, nn.Module] = {
            "reduce": Branches(
                short=self.chain(before, (192, _ONE), (320, _THREE), stride=2),
                long=self.chain(before, (192, _ONE), across, down, (192, _THREE), stride=2),
                pooled=nn.MaxPool2d(3, 2),
            )
        }
        before += self.wide(320) + self.wide(192)
        ends = ((384, (1, 3)), (384, (3, 1)))
        for number in range(depth):
            parts[str(number)] = Branches(
                direct=self.layer(before, (320, _ONE)),
                short=self.chain(before, (384, _ONE), ends=ends),
                long=self.chain(before, (448, _ONE), (384, _THREE), ends=ends),
                pooled=self.pooled(before, 192),
            )
            before = self.wide(320) + 4 * self.wide(384) + self.wide(192)
        return named(**parts), before

    def auxiliary(self, before: int, num_classes: int, places: int) -> nn.Sequential:
        """A head inside the network, on feature maps with at least `places` positions in each direction.

        With fewer than 17 positions, the published pooling would leave less than the next 5×5 filters need.
        """
        return named(
            pool=nn.AvgPool2d(5, 3) if places >= 17 else nn.AdaptiveAvgPool2d(5),
            layer1=self.layer(before, (128, _ONE)),
            layer2=self.layer(self.wide(128), (768, _FIVE), padded=False),
            readout=GlobalAverage(),
            head=nn.Linear(self.wide(768), num_classes),
        )


@register("model", "inception-v3", course="H1", inputs=("image",))
def inception_v3(
    in_channels: int = 3,
    num_classes: int = 1000,
    input_size: Size = 299,
    *,
    depths: tuple[Count, ...] = _MOST,
    width: Count = 32,
    activation: ActivationSpec = "relu",
    norm: NormSpec = {"name": "batch", "eps": 1e-3},  # noqa: B006 - settings are never changed in place
    norm_placement: NormPlacement = "before",
    dropout: Rate = 0.5,
    auxiliary: bool = False,
    auxiliary_weight: Positive = 0.4,
) -> InceptionV3:
    """Inception v3: blocks of branches whose large filters are factorised into small and narrow ones.

    A block has four branches on the same input: a 1×1 convolution, a short and a long chain of convolutions,
    and 3×3 average pooling followed by a 1×1 convolution. In the first stage the chains have one 5×5 or two
    3×3 filters; in the second, 7×7 is factorised into 1×7 and 7×1; in the third, chains end in 1×3 and 3×1
    side by side. The second and third stages begin with a block that halves the resolution by strides and
    pooling. Each convolution is followed by norm and activation, and has a bias only if there is no norm.
    Images need at least 75×75 pixels. There is no `-micro` member; a small network of this kind is
    `googlenet-micro`.

    As built, weights are normal with standard deviation 0.1, in the auxiliary head's 5×5 convolution 0.01 and
    in its linear layer 0.001, truncated at ±2. Without a norm, signals would grow from layer to layer, so
    convolutions then have He normal initialisation over fan-in, with biases of 0.

    With the auxiliary head, each row of the output in training comes from one of the two heads, drawn for
    each example; for any loss, the expected loss is the weighted sum of both divided by the sum of the
    weights. See `InceptionNet` for the reason, and for `all_logits`, which returns the logits of both heads
    for a custom training loop. For images of less than 299 pixels, the auxiliary head's first pooling brings
    any size to 5×5 positions.

    Args:
        depths: The number of blocks of each stage, not counting those that halve the resolution, at most 3, 4
            and 2; these are the first of the published blocks.
        width: The number of channels after the first convolution; all others scale with it.
        activation: The activation.
        norm: The norm of each convolution.
        norm_placement: Whether the norm comes `before` or `after` the activation.
        dropout: The probability of dropping a feature of the head's input.
        auxiliary: Whether there is one more head in training, after the second stage.
        auxiliary_weight: The weight w of the loss of the auxiliary head; that of the main one is 1.

    Reference: Szegedy et al. (2016), Rethinking the Inception architecture for computer vision.
    """
    check_space("inception-v3", input_size)
    check_smallest("inception-v3", input_size, lambda length: _halved(_places(length)))
    _check_depths(depths)
    design = Design(activation, norm, norm_placement, dropout, width / 32)
    stem, channels = design.stem(in_channels)
    first, channels = design.first_stage(channels, depths[0])
    second, inside = design.second_stage(channels, depths[1])
    third, channels = design.third_stage(inside, depths[2])
    head = nn.Linear(channels, num_classes)
    places = min(map(_places, space_of(input_size)))
    heads = [design.auxiliary(inside, num_classes, places)] if auxiliary else []
    after = (depths[1],) if auxiliary else ()
    model = InceptionV3(
        stem, nn.Sequential(first, second, third), Dropout(dropout), head, heads, after, auxiliary_weight
    )
    _draw(model, has_norm(norm))
    return model


def _halved(length: int) -> int:
    """The length after windows of 3 with stride 2, without padding."""
    return (length - 3) // 2 + 1


def _places(length: int) -> int:
    """The length after the stem and the first and second stages: 17 for 299."""
    stem = _halved(_halved(_halved(length) - 2) - 2)
    return _halved(stem)


def _check_depths(depths: Sequence[int]) -> None:
    too_many = len(depths) == 3 and any(map(int.__gt__, depths, _MOST))
    if len(depths) != 3 or too_many:
        raise UsageError(
            f"model 'inception-v3': depths must be three numbers, at most 3, 4 and 2, got {tuple(depths)}"
        )


def _draw(model: InceptionV3, is_normalised: bool) -> None:
    deviations = {"auxiliary.0.layer2.convolution": 0.01, "auxiliary.0.head": 0.001}
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d) and not is_normalised:
            nn.init.normal_(module.weight, std=math.sqrt(2 / module.weight[0].numel()))
            assert module.bias is not None
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.trunc_normal_(module.weight, std=deviations.get(name, 0.1), a=-2, b=2)
