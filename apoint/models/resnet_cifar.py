"""Residual networks for small images: 6n + 2 layers in three stages of n blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.cnn import GlobalAverage
from apoint.models.members import register_member
from apoint.models.shapes import Size, has_norm, space_of, written
from apoint.nn.activations import activation as build_activation
from apoint.nn.dropout import Dropout, Mode, StochasticDepth
from apoint.nn.norms import norm as build_norm
from apoint.nn.residual import LayerScale, Residual, ScalarBias
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Positive, Rate, Spec

Shortcut = Literal["A", "B", "none"]
Placement = Literal["post", "pre"]


class PaddingShortcut(nn.Module):
    """Option A: subsample by the stride and append channels of zeros; no parameters."""

    def __init__(self, extra_channels: int, stride: int) -> None:
        super().__init__()
        self.extra_channels, self.stride = extra_channels, stride

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """The subsampled input, followed by channels of zeros."""
        kept = x_BCHW[:, :, :: self.stride, :: self.stride]
        return F.pad(kept, (0, 0, 0, 0, 0, self.extra_channels))


class NoShortcut(nn.Module):
    """Zero instead of a shortcut: makes the plain network that a residual one is compared with."""

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """A zero that broadcasts to any shape."""
        return x_BCHW.new_zeros(())


class ResNetCifar(nn.Module):
    """Stem, three stages of residual blocks, global average pooling, linear layer.

    Args:
        stem: Maps images to the first feature maps.
        stages: The three stages, each a sequence of blocks.
        last: Applied between the last block and the mean.
        head: The final linear layer.
    """

    def __init__(self, stem: nn.Module, stages: nn.Module, last: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.stem = stem
        self.stages = stages
        self.last = last
        self.readout = GlobalAverage()
        self.head = head

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """One logit for each class."""
        features_BC = self.readout(self.last(self.stages(self.stem(x_BCHW))))
        logits: Tensor = self.head(features_BC)
        return logits


@dataclass(frozen=True)
class _Design:
    """The settings that all blocks of a network share; builds the network's parts from them."""

    shortcut: Shortcut
    activation: Spec
    norm: Spec
    placement: Placement
    dropout: float
    stochastic_depth: float
    stochastic_depth_mode: Mode
    fixup: bool
    layer_scale: float | None

    @property
    def bias(self) -> bool:
        return not (has_norm(self.norm) or self.fixup)

    def convolution(self, before: int, after: int, stride: int = 1) -> nn.Conv2d:
        return nn.Conv2d(before, after, 3, stride, padding=1, bias=self.bias)

    def normalised(self, channels: int) -> list[nn.Module]:
        """A norm; with Fixup, a scalar bias instead."""
        if self.fixup:
            return [ScalarBias()]
        return [build_norm(self.norm, channels, "channels", 2)] if has_norm(self.norm) else []

    def activated(self) -> list[nn.Module]:
        """An activation; with Fixup, also the scalar bias before the next layer."""
        return [build_activation(self.activation), *self.scalar()]

    def scalar(self) -> list[nn.Module]:
        return [ScalarBias()] if self.fixup else []

    def stem(self, in_channels: int, width: int) -> nn.Sequential:
        convolution = self.convolution(in_channels, width)
        if self.placement == "pre":
            return nn.Sequential(convolution)
        return nn.Sequential(convolution, *self.normalised(width), build_activation(self.activation))

    def block(self, before: int, after: int, stride: int, depth_share: float) -> Residual:
        post = self.placement == "post"
        return Residual(
            self._branch(before, after, stride),
            shortcut=self._shortcut(before, after, stride),
            drop=StochasticDepth(self.stochastic_depth, depth_share, self.stochastic_depth_mode),
            fixup=self.fixup,
            activation=build_activation(self.activation) if post else None,
        )

    def last(self, channels: int) -> nn.Sequential:
        if self.placement == "pre":
            return nn.Sequential(*self.normalised(channels), *self.activated())
        return nn.Sequential(*self.scalar())

    def scaled(self, channels: int) -> list[nn.Module]:
        return [] if self.layer_scale is None else [LayerScale(channels, self.layer_scale, "channels")]

    def _branch(self, before: int, after: int, stride: int) -> nn.Sequential:
        first, second = self.convolution(before, after, stride), self.convolution(after, after)
        between = [*self.normalised(after), build_activation(self.activation), Dropout(self.dropout)]
        between += self.scalar()
        if self.placement == "pre":  # with Fixup, Residual holds the branch's first and last scalar
            opening = [] if self.fixup else self.normalised(before)
            return nn.Sequential(*opening, *self.activated(), first, *between, second, *self.scaled(after))
        closing = [] if self.fixup else self.normalised(after)
        return nn.Sequential(first, *between, second, *closing, *self.scaled(after))

    def _shortcut(self, before: int, after: int, stride: int) -> nn.Module | None:
        if self.shortcut == "none":
            return NoShortcut()
        if before == after:
            return None
        if self.shortcut == "A":
            return PaddingShortcut(after - before, stride)
        projection = nn.Conv2d(before, after, 1, stride, bias=self.bias)
        norms = self.normalised(after) if self.placement == "post" and not self.fixup else []
        return nn.Sequential(projection, *norms)


@register("model", "resnet-cifar", course="C6 H1 A10", inputs=("image",))
def resnet_cifar(
    in_channels: int = 3,
    num_classes: int = 10,
    input_size: Size = 32,
    *,
    depth: Count = 20,
    shortcut: Shortcut = "A",
    width: Count = 16,
    activation: ActivationSpec = "relu",
    norm: NormSpec = "batch",
    placement: Placement = "post",
    dropout: Rate = 0.0,
    stochastic_depth: Rate = 0.0,
    stochastic_depth_mode: Mode = "batch",
    fixup: bool = False,
    layer_scale: Positive | None = None,
) -> ResNetCifar:
    """A residual network for small images, of 6n + 2 layers in three stages of n blocks.

    A block is f(s(x) + norm(conv(f(norm(conv(x)))))), with f the activation and s the identity; the second
    and third stages halve the resolution and double the channels in their first block, where s follows
    `shortcut`. With `placement: pre` a block is s(x) + conv(f(norm(conv(f(norm(x)))))), and norm and f follow
    the last one; unlike in the paper on it, s takes x itself in all blocks. Convolutions have a bias only
    without norm and Fixup.

    Args:
        depth: The number of layers with weights on the longest path, 6n + 2: 20, 32, 44, 56, 110, …
        shortcut: Where the shape changes: `A` subsamples and adds zeros, `B` is a 1×1 convolution and a norm.
            `none` leaves out all shortcuts, which makes a plain network.
        width: The number of channels of the first stage.
        activation: The activation f.
        norm: The norm after (`post`) or before (`pre`) each convolution.
        placement: `post`, as in the first paper, or `pre`, with an untouched shortcut path from end to end.
        dropout: The probability of dropping a unit between the two convolutions of a block.
        stochastic_depth: The probability of skipping the last branch; linearly lower for earlier branches.
        stochastic_depth_mode: Whether to draw once per `batch`, which saves time, or once per `sample`.
        fixup: Whether to replace norms and biases with Fixup's scalars; needs `norm: none`.
        layer_scale: The initial value of the learned per-channel factors of each branch; none by default.

    Reference: He et al. (2016), Deep residual learning for image recognition, section 4.2.
    """
    _check(input_size, depth, norm, fixup)
    if shortcut == "none" and stochastic_depth:
        raise UsageError("model 'resnet-cifar': stochastic_depth needs shortcuts; set shortcut to A or B")
    design = _Design(
        shortcut,
        activation,
        norm,
        placement,
        dropout,
        stochastic_depth,
        stochastic_depth_mode,
        fixup,
        layer_scale,
    )
    num_blocks = (depth - 2) // 2
    stages: list[nn.Module] = []
    before = width
    for stage in range(3):
        after = width * 2**stage
        blocks = []
        for number in range(num_blocks // 3):
            share = (stage * num_blocks // 3 + number + 1) / num_blocks
            blocks.append(design.block(before, after, stride=after // before, depth_share=share))
            before = after
        stages.append(nn.Sequential(*blocks))
    head = nn.Linear(before, num_classes)
    return ResNetCifar(design.stem(in_channels, width), nn.Sequential(*stages), design.last(before), head)


def _check(input_size: Size, depth: int, norm: Spec, fixup: bool) -> None:
    if len(space_of(input_size)) != 2 or min(space_of(input_size)) < 4:
        raise UsageError(
            f"model 'resnet-cifar': takes images of at least 4×4, since space is halved twice, got an "
            f"input_size of {written(input_size)}"
        )
    if depth < 8 or depth % 6 != 2:
        near = max(8, 6 * round((depth - 2) / 6) + 2)
        raise UsageError(
            f"model 'resnet-cifar': depth must be 6n + 2, such as 20, 32, 44, 56 or 110, got {depth}; "
            f"the nearest is {near}"
        )
    if fixup and has_norm(norm):
        raise UsageError("model 'resnet-cifar': fixup stands in for norms; set norm to none")


for _depth in (20, 32, 44, 56, 110, 1202):
    register_member(
        resnet_cifar,
        f"resnet{_depth}",
        f"The residual network of {_depth} layers for small images.",
        course="C6 H1 A10",
        fixed={"depth": _depth},
    )
