"""Residual networks for photographs: ResNet-18, 34, 50, 101, 152, and one for small images.

Shapes: B batch, C channels, H height, W width.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.cnn import GlobalAverage
from apoint.models.members import register_member
from apoint.models.shapes import Size, has_norm, space_of, written
from apoint.nn.activations import activation as build_activation
from apoint.nn.dropout import Dropout, Mode, StochasticDepth
from apoint.nn.norms import norm as build_norm
from apoint.nn.residual import LayerScale, Residual
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Positive, Rate, Spec

Block = Literal["basic", "bottleneck"]
Stem = Literal["large", "small"]
Placement = Literal["post", "pre"]
EXPANSION = {"basic": 1, "bottleneck": 4}


Change = Callable[[Residual, int, int], None]


def _nothing(block: Residual, stage: int, stride: int) -> None:
    """Leave a block unchanged."""


class ResNet(nn.Module):
    """Stem, stages of residual blocks, global average pooling, linear layer.

    Args:
        stem: Maps images to the first feature maps.
        stages: The stages, each a sequence of blocks.
        last: Applied between the last block and the mean.
        dropout: Applied to the head's input.
        head: The final linear layer.
    """

    family = "resnet"

    def __init__(
        self, stem: nn.Module, stages: nn.Sequential, last: nn.Module, dropout: Dropout, head: nn.Linear
    ) -> None:
        super().__init__()
        self.stem = stem
        self.stages = stages
        self.last = last
        self.readout = GlobalAverage()
        self.dropout = dropout
        self.head = head

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """One logit for each class."""
        features_BC = self.readout(self.last(self.stages(self.stem(x_BCHW))))
        logits: Tensor = self.head(self.dropout(features_BC))
        return logits


def named(**modules: nn.Module | None) -> nn.Sequential:
    """A sequence of named modules; the names appear in the weights' names, and None is left out."""
    return nn.Sequential(OrderedDict((name, part) for name, part in modules.items() if part is not None))


@dataclass(frozen=True)
class Design:
    """The settings that all blocks of a network share; builds the network's parts from them."""

    block: Block
    stride_on: Literal["3x3", "1x1"]
    activation: Spec
    norm: Spec
    placement: Placement
    stochastic_depth: float
    stochastic_depth_mode: Mode
    layer_scale: float | None

    def convolution(self, before: int, after: int, size: int, stride: int = 1) -> nn.Conv2d:
        """A convolution that keeps the spatial size except for its stride."""
        return nn.Conv2d(before, after, size, stride, padding=size // 2, bias=not has_norm(self.norm))

    def normalised(self, channels: int) -> nn.Module | None:
        """The norm, if there is one."""
        return build_norm(self.norm, channels, "channels", 2) if has_norm(self.norm) else None

    def activated(self, in_place: bool = False) -> nn.Module:
        """The activation; in place only where nothing else needs its input."""
        made = build_activation(self.activation)
        if isinstance(made, nn.ReLU):
            made.inplace = in_place
        return made

    def stem(self, in_channels: int, width: int, kind: Stem) -> nn.Sequential:
        """Large: a 7×7 convolution and pooling, each with stride 2; small: a 3×3 convolution."""
        size, stride = (7, 2) if kind == "large" else (3, 1)
        post = self.placement == "post"
        return named(
            convolution=self.convolution(in_channels, width, size, stride),
            norm=self.normalised(width) if post else None,
            activation=self.activated(in_place=True) if post else None,
            pool=nn.MaxPool2d(3, 2, padding=1) if kind == "large" else None,
        )

    def stages(
        self, depths: tuple[int, ...], width: int, total: int | None = None, change: Change = _nothing
    ) -> tuple[nn.Sequential, int]:
        """Stages of residual blocks; the later ones halve the resolution and double the channels.

        Args:
            depths: The number of blocks of each stage.
            width: The number of channels before the first stage.
            total: The number of blocks in the whole network, for stochastic depth; by default, these blocks.
            change: Called with each new block, the number of its stage and its stride.

        Returns:
            The stages, and the number of channels after them.
        """
        before, number, stages = width, 0, []
        for stage, depth in enumerate(depths):
            after, blocks = width * 2**stage * EXPANSION[self.block], []
            for position in range(depth):
                number += 1
                stride = 2 if stage > 0 and position == 0 else 1
                made = self.residual(before, after, stride, number / (total or sum(depths)))
                change(made, stage, stride)
                blocks.append(made)
                before = after
            stages.append(nn.Sequential(*blocks))
        return nn.Sequential(*stages), before

    def residual(self, before: int, after: int, stride: int, depth_share: float) -> Residual:
        """One block, from `before` channels to `after`."""
        return Residual(
            self.branch(before, after, stride),
            shortcut=self.shortcut(before, after, stride),
            drop=StochasticDepth(self.stochastic_depth, depth_share, self.stochastic_depth_mode),
            activation=self.activated() if self.placement == "post" else None,
        )

    def branch(self, before: int, after: int, stride: int) -> nn.Sequential:
        """The convolutions of a block with their norms and activations, all by name."""
        inner = after // EXPANSION[self.block]
        if self.block == "basic":
            shapes = [(before, inner, 3, stride), (inner, after, 3, 1)]
        else:
            first, second = (1, stride) if self.stride_on == "3x3" else (stride, 1)
            shapes = [(before, inner, 1, first), (inner, inner, 3, second), (inner, after, 1, 1)]
        parts: dict[str, nn.Module | None] = {}
        for number, shape in enumerate(shapes, 1):
            convolution = {f"convolution{number}": self.convolution(*shape)}
            if self.placement == "pre":
                parts[f"norm{number}"] = self.normalised(shape[0])
                parts[f"activation{number}"] = self.activated()
                parts |= convolution
            else:
                parts |= convolution
                parts[f"norm{number}"] = self.normalised(shape[1])
                last = number == len(shapes)
                parts[f"activation{number}"] = None if last else self.activated(in_place=True)
        parts["scale"] = None if self.layer_scale is None else LayerScale(after, self.layer_scale, "channels")
        return named(**parts)

    def shortcut(self, before: int, after: int, stride: int) -> nn.Module | None:
        """A 1×1 convolution where the shape changes, and its norm."""
        if before == after and stride == 1:
            return None
        norm = self.normalised(after) if self.placement == "post" else None
        return named(convolution=self.convolution(before, after, 1, stride), norm=norm)

    def last(self, channels: int) -> nn.Module:
        """Norm and activation before the pooling, if blocks begin with them."""
        if self.placement == "post":
            return nn.Identity()
        return named(norm=self.normalised(channels), activation=self.activated())


@register("model", "resnet", course="H1", inputs=("image",))
def resnet(
    in_channels: int = 3,
    num_classes: int = 1000,
    input_size: Size = 224,
    *,
    block: Block = "bottleneck",
    depths: tuple[Count, ...] = (3, 4, 6, 3),
    width: Count = 64,
    stem: Stem = "large",
    stride_on: Literal["3x3", "1x1"] = "3x3",
    activation: ActivationSpec = "relu",
    norm: NormSpec = "batch",
    placement: Placement = "post",
    dropout: Rate = 0.0,
    stochastic_depth: Rate = 0.0,
    stochastic_depth_mode: Mode = "batch",
    layer_scale: Positive | None = None,
) -> ResNet:
    """A residual network for photographs, in stages that halve the resolution and double the channels.

    A block is f(s(x) + B(x)) with f the activation and s the identity, or a 1×1 convolution with a norm where
    the shape changes. B is two 3×3 convolutions (`basic`), or 1×1, 3×3 and 1×1 with a quarter of the channels
    inside (`bottleneck`), each with a norm. With `placement: pre`, norm and activation come before each
    convolution, and once more at the end. As built, weights are initialised as in the paper's code: He normal
    over fan-out.

    Args:
        block: The kind of block: `basic` or `bottleneck`.
        depths: The number of blocks of each stage.
        width: The number of channels after the stem; a bottleneck's outputs have four times as many.
        stem: `large` downsamples by four at once; `small` keeps the size, for images of a few dozen pixels.
        stride_on: Which convolution of a bottleneck has the stride: the `1x1` of the paper, or the `3x3` of
            public weights ("v1.5").
        activation: The activation f.
        norm: The norm after (`post`) or before (`pre`) each convolution.
        placement: `post`, as in the first paper, or `pre`, with an untouched shortcut path from end to end.
        dropout: The probability of dropping a feature of the head's input.
        stochastic_depth: The probability of skipping the last branch; linearly lower for earlier branches.
        stochastic_depth_mode: Whether to draw once per `batch`, which saves time, or once per `sample`.
        layer_scale: The initial value of the learned per-channel factors of each branch; none by default.

    Reference: He et al. (2016), Deep residual learning for image recognition.
    """
    check_space("resnet", input_size)
    design = Design(
        block, stride_on, activation, norm, placement, stochastic_depth, stochastic_depth_mode, layer_scale
    )
    stages, channels = design.stages(depths, width)
    head = nn.Linear(channels, num_classes)
    first, last = design.stem(in_channels, width, stem), design.last(channels)
    model = ResNet(first, stages, last, Dropout(dropout), head)
    draw_he_over_outputs(model)
    return model


def check_space(name: str, input_size: Size) -> None:
    """Raise if the input is not an image."""
    if len(space_of(input_size)) != 2:
        raise UsageError(f"model {name!r}: takes images, got an input_size of {written(input_size)}")


def draw_he_over_outputs(model: nn.Module) -> None:
    """Initialise convolutions as public residual networks do: He normal over fan-out."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            fan = module.kernel_size[0] * module.kernel_size[1] * module.out_channels // module.groups
            nn.init.normal_(module.weight, std=math.sqrt(2 / fan))


for _layers, _block, _depths in (
    (18, "basic", (2, 2, 2, 2)),
    (34, "basic", (3, 4, 6, 3)),
    (50, "bottleneck", (3, 4, 6, 3)),
    (101, "bottleneck", (3, 4, 23, 3)),
    (152, "bottleneck", (3, 8, 36, 3)),
):
    register_member(
        resnet,
        f"resnet{_layers}",
        f"The residual network of {_layers} layers for photographs.",
        course="H1",
        fixed={"block": _block, "depths": _depths, "width": 64},
    )

register_member(
    resnet,
    "resnet-micro",
    "A residual network for images of 28 or 32 pixels that trains within minutes.",
    course="H1",
    fixed={"block": "basic", "depths": (1, 1, 1)},
    defaults={"num_classes": 10, "input_size": 32, "width": 16, "stem": "small"},
)
