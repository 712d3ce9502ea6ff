"""ConvNeXt: a convolutional network with the proportions of a transformer, T to XL, and one for small images.

Shapes: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.cnn import GlobalAverage
from apoint.models.members import register_member
from apoint.models.resnet import check_space, named
from apoint.models.shapes import Size, has_norm, space_of, written
from apoint.nn.activations import activation as build_activation
from apoint.nn.dropout import Dropout, Mode, StochasticDepth
from apoint.nn.norms import norm as build_norm
from apoint.nn.residual import LayerScale, Residual
from apoint.registry import register, split_spec
from apoint.settings import ActivationSpec, Count, NormSpec, Positive, Rate, Spec

Placement = Literal["pre", "post"]
LAYER_NORM: Spec = {"name": "layer", "eps": 1e-6}
"""The published norm; its ε is smaller than PyTorch's default."""


class ConvNeXt(nn.Module):
    """Stem, stages of residual blocks, global average pooling, norm, linear layer.

    Args:
        stem: Maps images to the first feature maps.
        stages: The stages, each with down-sampling (except the first) and blocks.
        norm: Applied to the pooled features, before the head.
        dropout: Applied to the head's input.
        head: The final linear layer.
    """

    family = "convnext"

    def __init__(
        self, stem: nn.Module, stages: nn.Sequential, norm: nn.Module, dropout: Dropout, head: nn.Linear
    ) -> None:
        super().__init__()
        self.stem = stem
        self.stages = stages
        self.readout = GlobalAverage()
        self.norm = norm
        self.dropout = dropout
        self.head = head

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """One logit for each class."""
        features_BC = self.norm(self.readout(self.stages(self.stem(x_BCHW))))
        logits: Tensor = self.head(self.dropout(features_BC))
        return logits


class Branch(nn.Module):
    """γ · W₂ f(W₁ N(D(x))): a depthwise convolution over space, then two linear layers at each position.

    The linear layers need the channels as the last axis. The stem's norm leaves feature maps in this memory
    format, and the convolutions keep it, so the two permutations here do not move data.

    Args:
        channels: The number of channels, of input and output.
        hidden: The number of channels between the linear layers.
        kernel_size: The side of the depthwise convolution D.
        norm: N, over the channels of each position; None leaves it out.
        activation: f.
        scale: γ; None leaves it out.
    """

    def __init__(
        self,
        channels: int,
        hidden: int,
        kernel_size: int,
        norm: nn.Module | None,
        activation: nn.Module,
        scale: nn.Module | None,
    ) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel_size, padding=kernel_size // 2, groups=channels)
        self.norm = norm
        self.linear1 = nn.Linear(channels, hidden)
        self.activation = activation
        self.linear2 = nn.Linear(hidden, channels)
        self.scale = scale

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """What a block adds to its input."""
        y_BHWC: Tensor = self.depthwise(x_BCHW).permute(0, 2, 3, 1)
        if self.norm is not None:
            y_BHWC = self.norm(y_BHWC)
        y_BHWC = self.linear2(self.activation(self.linear1(y_BHWC)))
        if self.scale is not None:
            y_BHWC = self.scale(y_BHWC)
        return y_BHWC.permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Design:
    """The settings that all blocks of a network share; builds the network's parts from them."""

    kernel_size: int
    expansion: int
    activation: Spec
    norm: Spec
    placement: Placement
    stochastic_depth: float
    stochastic_depth_mode: Mode
    layer_scale: float | None

    def map_norm(self, channels: int) -> nn.Module | None:
        """The norm of feature maps, if there is one."""
        return norm_of_places(self.norm, channels) if has_norm(self.norm) else None

    def stem(self, in_channels: int, channels: int, patch_size: int) -> nn.Sequential:
        """A linear map of each patch, as a convolution with stride equal to its kernel size, and a norm."""
        return named(
            convolution=nn.Conv2d(in_channels, channels, patch_size, patch_size), norm=self.map_norm(channels)
        )

    def downsampling(self, before: int, after: int) -> nn.Sequential:
        """A norm and a 2×2 convolution of stride 2."""
        return named(norm=self.map_norm(before), convolution=nn.Conv2d(before, after, 2, 2))

    def residual(self, channels: int, depth_share: float) -> Residual:
        """One block."""
        inside = has_norm(self.norm) and self.placement == "pre"
        branch = Branch(
            channels,
            self.expansion * channels,
            self.kernel_size,
            build_norm(self.norm, channels) if inside else None,
            build_activation(self.activation),
            None if self.layer_scale is None else LayerScale(channels, self.layer_scale),
        )
        return Residual(
            branch,
            norm=self.map_norm(channels) if self.placement == "post" else None,
            placement="post",
            drop=StochasticDepth(self.stochastic_depth, depth_share, self.stochastic_depth_mode),
        )

    def stages(self, depths: tuple[int, ...], width: int) -> nn.Sequential:
        """All stages; each but the first halves the resolution and doubles the channels."""
        number, stages = 0, []
        for stage, depth in enumerate(depths):
            channels, blocks = width * 2**stage, []
            for _ in range(depth):
                number += 1
                blocks.append(self.residual(channels, number / sum(depths)))
            down = self.downsampling(channels // 2, channels) if stage > 0 else None
            stages.append(named(downsampling=down, blocks=nn.Sequential(*blocks)))
        return nn.Sequential(*stages)


def norm_of_places(spec: Spec, channels: int) -> nn.Module:
    """A norm of feature maps [B, C, H, W]; a norm over features is over the channels of each position.

    By default a layer norm of images is over the whole image; here the default is the channels.
    """
    name, settings = split_spec(spec, "norm")
    if name in ("layer", "rms"):
        spec = {"over": "channels", **settings, "name": name}
    return build_norm(spec, channels, "channels", 2)


@register("model", "convnext", course="H6", inputs=("image",))
def convnext(
    in_channels: int = 3,
    num_classes: int = 1000,
    input_size: Size = 224,
    *,
    depths: tuple[Count, ...] = (3, 3, 9, 3),
    width: Count = 96,
    patch_size: Count = 4,
    kernel_size: Count = 7,
    expansion: Count = 4,
    activation: ActivationSpec = "gelu",
    norm: NormSpec = LAYER_NORM,
    placement: Placement = "pre",
    dropout: Rate = 0.0,
    stochastic_depth: Rate = 0.0,
    stochastic_depth_mode: Mode = "batch",
    layer_scale: Positive | None = 1e-6,
) -> ConvNeXt:
    """A convolutional network with the proportions of a transformer, in stages that halve the resolution.

    A block is x + γ·W₂ f(W₁ N(D(x))): D is a depthwise convolution, N the norm over the channels of each
    position, f the activation; W₁ and W₂ are linear layers, γ the learned factors of layer scale. Between
    stages there are a norm and a 2×2 convolution of stride 2. As built, weights follow the paper: a normal
    distribution with standard deviation 0.02, and biases of zero.

    Args:
        depths: The number of blocks of each stage.
        width: The number of channels of the first stage; each following stage has twice as many.
        patch_size: The side of the patches that the stem maps to one position each.
        kernel_size: The side of the depthwise convolution D, an odd number.
        expansion: The number of channels between W₁ and W₂, as a multiple of the block's channels.
        activation: The activation f.
        norm: The norm N, also after the stem, between stages and before the head.
        placement: `pre` puts N in the branch, as published; `post` applies it to the sum of input and branch.
        dropout: The probability of dropping a feature of the head's input.
        stochastic_depth: The probability of skipping the last branch; linearly lower for earlier branches.
        stochastic_depth_mode: Whether to draw once per `batch`, which saves time, or once per `sample`.
        layer_scale: The initial value of the learned per-channel factors γ of each branch; null for none.

    Reference: Liu et al. (2022), A ConvNet for the 2020s.
    """
    check_space("convnext", input_size)
    check_kernel("convnext", kernel_size)
    check_reach("convnext", input_size, patch_size * 2 ** (len(depths) - 1))
    design = Design(
        kernel_size,
        expansion,
        activation,
        norm,
        placement,
        stochastic_depth,
        stochastic_depth_mode,
        layer_scale,
    )
    last = width * 2 ** (len(depths) - 1)
    model = ConvNeXt(
        design.stem(in_channels, width, patch_size),
        design.stages(depths, width),
        build_norm(norm, last),
        Dropout(dropout),
        nn.Linear(last, num_classes),
    )
    draw_normal(model)
    return model


def check_kernel(name: str, kernel_size: int) -> None:
    """Raise if the kernel has no centre."""
    if kernel_size % 2 == 0:
        raise UsageError(
            f"model {name!r}: kernel_size must be odd, so that there is a middle and the size of space is "
            f"kept, got {kernel_size}; take {kernel_size - 1} or {kernel_size + 1}"
        )


def check_reach(name: str, input_size: Size, divisor: int) -> None:
    """Raise if images would shrink to nothing before the last stage."""
    if min(space_of(input_size)) < divisor:
        raise UsageError(
            f"model {name!r}: stem and stages divide space by {divisor}, which leaves nothing of an "
            f"input_size of {written(input_size)}; take larger images, smaller patches or fewer stages"
        )


def draw_normal(model: nn.Module) -> None:
    """Initialise as published: standard deviation 0.02, truncated at ±2, which is never reached; biases 0."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


for _size, _depths, _width in (
    ("tiny", (3, 3, 9, 3), 96),
    ("small", (3, 3, 27, 3), 96),
    ("base", (3, 3, 27, 3), 128),
    ("large", (3, 3, 27, 3), 192),
    ("xlarge", (3, 3, 27, 3), 256),
):
    register_member(
        convnext,
        f"convnext-{_size}",
        f"The {_size} ConvNeXt, with {sum(_depths)} blocks of {_width} to {8 * _width} channels.",
        course="H6",
        fixed={"depths": _depths, "width": _width},
    )

register_member(
    convnext,
    "convnext-micro",
    "A ConvNeXt for images of 28 or 32 pixels that trains within minutes.",
    course="H6",
    fixed={"depths": (1, 1, 2)},
    defaults={"num_classes": 10, "input_size": 32, "width": 24, "patch_size": 2, "layer_scale": 1.0},
)
