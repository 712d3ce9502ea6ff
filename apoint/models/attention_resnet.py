"""Attention-augmented residual networks: some channels of a convolution come from attention instead.

Shapes: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from torch import nn

from apoint.errors import UsageError
from apoint.models.members import register_member
from apoint.models.resnet import (
    Block,
    Design,
    Placement,
    ResNet,
    Stem,
    check_space,
    draw_he_over_outputs,
)
from apoint.models.shapes import Size, space_of
from apoint.nn.augmented import AugmentedConvolution, ImageAttention, PoolAttention, halved
from apoint.nn.dropout import Dropout, Mode
from apoint.nn.residual import Residual
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Positive, Rate, Share, WholeNumber

Space = tuple[int, int]


class AttentionResNet(ResNet):
    """A residual network with an `AugmentedConvolution` in each block of its last stages."""

    family = "attention_resnet"


@dataclass(frozen=True)
class Augmentation:
    """How a block's convolution is augmented: the channel shares and the settings of attention."""

    key_share: float
    value_share: float
    least_key: int
    num_heads: int
    relative: bool
    pool_attention: PoolAttention

    def key_channels(self, channels: int) -> int:
        """The size of keys, a multiple of the number of heads: the channel share, or the minimum per head."""
        return self.num_heads * max(self.least_key, int(self.key_share * channels) // self.num_heads)

    def value_channels(self, channels: int) -> int:
        """The channels that attention makes: a multiple of the number of heads, at least one per head."""
        return self.num_heads * max(1, int(self.value_share * channels) // self.num_heads)

    def augmented(self, convolution: nn.Conv2d, space: Space) -> AugmentedConvolution:
        """An augmented convolution of the same shape, for inputs of this spatial size."""
        channels = convolution.out_channels
        if self.value_channels(channels) >= channels:
            raise UsageError(
                f"model 'attention-resnet': {self.num_heads} heads with value_share={self.value_share:g} "
                f"leave nothing of a convolution of {channels} channels; lower num_heads or value_share, or "
                f"raise width"
            )
        return AugmentedConvolution(
            convolution.in_channels,
            channels,
            convolution.kernel_size[0],
            self.key_channels(channels),
            self.value_channels(channels),
            self.num_heads,
            space,
            stride=convolution.stride[0],
            pool_attention=self.pool_attention,
            relative=self.relative,
            bias=convolution.bias is not None,
        )

    def apply(self, branch: nn.Module, space: Space) -> None:
        """Augment the first 3×3 convolution of a block's branch, in place."""
        for name, part in branch.named_children():
            if isinstance(part, nn.Conv2d):
                if part.kernel_size == (3, 3):
                    setattr(branch, name, self.augmented(part, space))
                    return
                space = after_stride(space, part.stride[0])


@register("model", "attention-resnet", course="H2", inputs=("image",))
def attention_resnet(
    in_channels: int = 3,
    num_classes: int = 1000,
    input_size: Size = 224,
    *,
    block: Block = "bottleneck",
    depths: tuple[Count, ...] = (3, 4, 6, 3),
    width: Count = 64,
    stem: Stem = "large",
    stride_on: Literal["3x3", "1x1"] = "3x3",
    augmented_stages: WholeNumber = 3,
    key_share: Share = 0.2,
    value_share: Share = 0.1,
    least_key: Count = 20,
    num_heads: Count = 8,
    relative: bool = True,
    pool_attention: PoolAttention = "before",
    activation: ActivationSpec = "relu",
    norm: NormSpec = "batch",
    placement: Placement = "post",
    dropout: Rate = 0.0,
    stochastic_depth: Rate = 0.0,
    stochastic_depth_mode: Mode = "batch",
    layer_scale: Positive | None = None,
) -> AttentionResNet:
    """A residual network in which self-attention computes some channels of each block's convolution.

    Like `resnet`, but in the last `augmented_stages` stages the 3×3 convolution of a bottleneck, or the first
    convolution of a basic block, is an `AugmentedConvolution`: of its C channels, υC come from self-attention
    between all positions, whose keys have max(κC, k·heads) dimensions, with κ = `key_share`, k = `least_key`
    and υ = `value_share`. Attention has learned vectors for the distances in height and width, shared by its
    heads. They are built for `input_size`; smaller images work too, larger ones do not.

    From the paper: one augmented convolution in each block, κ = 2υ = 0.2, 8 heads, at least 20 dimensions in
    a head's key, concatenation before the norm, 3×3 average pooling that halves the resolution before
    attention where memory is short, and no attention at the 56×56 positions of the first stage. Our reading:
    channel counts are rounded down to multiples of the number of heads, that pooling is used alongside a
    convolution of stride 2, and linear maps have no bias where a norm follows. Members with basic blocks have
    κ = υ = 0.25 by default; the one with 18 layers is not in the paper. As built, convolutions have He normal
    initialisation over fan-out, and attention has Glorot initialisation.

    Args:
        block: The kind of block: `basic` or `bottleneck`.
        depths: The number of blocks of each stage.
        width: The number of channels after the stem; a bottleneck's outputs have four times as many.
        stem: `large` downsamples by four at once; `small` keeps the size, for images of a few dozen pixels.
        stride_on: Which convolution of a bottleneck has the stride.
        augmented_stages: How many of the last stages have attention; 0 makes a plain residual network.
        key_share: κ, the size of queries and keys as a share of the convolution's channels.
        value_share: υ, the share of the convolution's channels that attention makes.
        least_key: The minimum size of a head's key, for any `key_share`.
        num_heads: The number of heads.
        relative: Whether attention has vectors for the distances between positions.
        pool_attention: Alongside a convolution of stride 2, whether the resolution is halved `before` or
            `after` attention; `after` costs 16 times as much.
        activation: The activation.
        norm: The norm after (`post`) or before (`pre`) each convolution.
        placement: `post`, as in the first paper on residual networks, or `pre`, with an untouched shortcut.
        dropout: The probability of dropping a feature of the head's input.
        stochastic_depth: The probability of skipping the last branch; linearly lower for earlier branches.
        stochastic_depth_mode: Whether to draw once per `batch`, which saves time, or once per `sample`.
        layer_scale: The initial value of the learned per-channel factors of each branch; none by default.

    Reference: Bello et al. (2019), Attention augmented convolutional networks.
    """
    check_space("attention-resnet", input_size)
    design = Design(
        block, stride_on, activation, norm, placement, stochastic_depth, stochastic_depth_mode, layer_scale
    )
    augmentation = Augmentation(key_share, value_share, least_key, num_heads, relative, pool_attention)
    space = cast(Space, space_of(input_size))
    if stem == "large":
        space = after_stride(after_stride(space, 2), 2)

    def augment(made: Residual, stage: int, stride: int) -> None:
        nonlocal space
        if stage >= len(depths) - augmented_stages:
            augmentation.apply(made.branch, space)
        space = after_stride(space, stride)

    stages, channels = design.stages(depths, width, change=augment)
    head = nn.Linear(channels, num_classes)
    first, last = design.stem(in_channels, width, stem), design.last(channels)
    model = AttentionResNet(first, stages, last, Dropout(dropout), head)
    draw(model)
    return model


def after_stride(space: Space, stride: int) -> Space:
    """The spatial size after a stride of 1 or 2."""
    return space if stride == 1 else (halved(space[0]), halved(space[1]))


def draw(model: nn.Module) -> None:
    """Initialise convolutions with He normal over fan-out, and attention layers with their own scheme."""
    draw_he_over_outputs(model)
    for module in model.modules():
        if isinstance(module, ImageAttention):
            module.reset_parameters()


for _layers, _block, _depths in (
    (18, "basic", (2, 2, 2, 2)),
    (34, "basic", (3, 4, 6, 3)),
    (50, "bottleneck", (3, 4, 6, 3)),
    (101, "bottleneck", (3, 4, 23, 3)),
    (152, "bottleneck", (3, 8, 36, 3)),
):
    register_member(
        attention_resnet,
        f"attention-resnet{_layers}",
        f"The attention-augmented residual network of {_layers} layers for photographs.",
        course="H2",
        fixed={"block": _block, "depths": _depths, "width": 64},
        defaults={"key_share": 0.25, "value_share": 0.25} if _block == "basic" else {},
    )

register_member(
    attention_resnet,
    "attention-resnet-micro",
    "An attention-augmented residual network for images of 28 or 32 pixels that trains within minutes.",
    course="H2",
    fixed={"block": "basic", "depths": (1, 1, 1)},
    defaults={
        "num_classes": 10,
        "input_size": 32,
        "width": 16,
        "stem": "small",
        "augmented_stages": 2,
        "key_share": 0.5,
        "value_share": 0.25,
        "least_key": 8,
        "num_heads": 2,
    },
)
