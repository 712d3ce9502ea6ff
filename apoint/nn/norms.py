"""Normalisation layers: batch, layer, root mean square and group norm, for vectors, sequences and images.

`norm("layer", 64)` builds one. Each comes in two layouts. `features`: the features are the last axis,
[B, F] or [B, T, F]. `channels`: they are the second, [B, C, *space] with `num_dims` spatial axes. Where
PyTorch has the module, it is used or subclassed. In all formulas γ (`weight`) and β (`bias`) are learned, one
pair for each feature, and start at 1 and 0.

Shapes: B batch, T positions, F features, C channels, N vectors (batch times positions).
"""

from __future__ import annotations

from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from apoint.errors import UnknownNameError, UsageError
from apoint.registry import register, registry
from apoint.settings import Count, Positive, Share, Spec

Layout = Literal["features", "channels"]
Over = Literal["all", "channels"]


def norm(spec: Spec, num_features: int, layout: Layout = "features", num_dims: int = 0) -> nn.Module:
    """Build a normalisation layer from its name, or from `{name: …, setting: value}`.

    Args:
        spec: The name, optionally with settings; `none` gives `nn.Identity`.
        num_features: The number of features or channels.
        layout: `features` for [B, F] and [B, T, F], `channels` for [B, C, *space].
        num_dims: The number of spatial axes in the layout `channels`: 0, 1 or 2.
    """
    _check_layout(num_features, layout, num_dims)
    made: nn.Module = registry("norm").build(spec, num_features, layout, num_dims)
    return made


def _check_layout(num_features: int, layout: Layout, num_dims: int) -> None:
    if layout not in get_args(Layout):
        raise UnknownNameError("layout", layout, get_args(Layout), where="norm")
    if num_features < 1:
        raise UsageError(f"norm: num_features must be at least 1, got {num_features}")
    if layout == "channels" and num_dims not in (0, 1, 2):
        raise UsageError(f"norm: num_dims must be 0, 1 or 2 axes of space, got {num_dims}")
    if layout == "features" and num_dims != 0:
        raise UsageError(
            f"norm: num_dims counts the axes of space of the layout 'channels'; leave it at 0 in the layout "
            f"'features', got {num_dims}"
        )


class FeatureBatchNorm(nn.BatchNorm1d):
    """Batch norm of the last axis: each feature over the batch and, in sequences, over the positions."""

    def forward(self, x: Tensor) -> Tensor:
        x_NF = x.reshape(-1, x.shape[-1])
        if self.training and len(x_NF) < 2:
            raise UsageError(
                f"norm 'batch': a batch in training needs at least 2 examples to take a variance over, got "
                f"{len(x_NF)}; use larger batches, drop the incomplete last one, or take the norm 'layer'"
            )
        return super().forward(x_NF).view(x.shape)


class ChannelLayerNorm(nn.LayerNorm):
    """Layer norm of [B, C, *space]: over the whole sample, or over the channels at each position."""

    def __init__(self, num_channels: int, over: Over, eps: float, affine: bool, bias: bool) -> None:
        super().__init__(num_channels, eps, elementwise_affine=affine, bias=bias)
        self.over = over

    def forward(self, x: Tensor) -> Tensor:
        if self.over == "all":
            return F.group_norm(x, 1, self.weight, self.bias, self.eps)
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, over={self.over}"


class ChannelRMSNorm(nn.RMSNorm):
    """Root-mean-square norm of [B, C, *space]: over the whole sample, or the channels at each position."""

    def __init__(self, num_channels: int, over: Over, eps: float, affine: bool) -> None:
        super().__init__(num_channels, eps, elementwise_affine=affine)
        self.over = over

    def forward(self, x: Tensor) -> Tensor:
        if self.over == "channels":
            return super().forward(x.movedim(1, -1)).movedim(-1, 1)
        scaled = F.rms_norm(x, x.shape[1:], eps=self.eps)
        if self.weight is None:
            return scaled
        return scaled * self.weight.view(-1, *[1] * (x.dim() - 2))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, over={self.over}"


class FeatureGroupNorm(nn.GroupNorm):
    """Group norm of the last axis, each position separately."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reshape(-1, x.shape[-1])).view(x.shape)


@register("norm", "none")
def none(num_features: int, layout: Layout = "features", num_dims: int = 0) -> nn.Module:
    """No normalisation.

    Reference: `torch.nn.Identity`.
    """
    return nn.Identity()


@register("norm", "batch", course="J1 J2")
def batch(
    num_features: int,
    layout: Layout = "features",
    num_dims: int = 0,
    *,
    momentum: Share = 0.1,
    eps: Positive = 1e-5,
    affine: bool = True,
) -> nn.Module:
    """Batch norm: each feature with the mean and variance of the batch, z = γ(x - μ)/√(v + ε) + β.

    Allows higher learning rates and less dropout; needs batches that are not small. μ and v are taken over
    the batch and over positions or space, if any; v divides by the number m of these values. In evaluation,
    running averages replace both: average ← (1 - ρ)·average + ρ·new, starting from 0 and 1, where the new
    variance divides by m - 1. As in PyTorch, ρ is the weight of the *newest* batch, not that of the past; the
    paper instead averages over the training set after training.

    Args:
        momentum: The weight ρ of the newest batch in the running averages.
        eps: The ε added to the variance.
        affine: Whether to learn γ and β.

    Reference: Ioffe and Szegedy (2015), Batch normalization: accelerating deep network training.
    """
    if layout == "channels" and num_dims > 0:
        kind = nn.BatchNorm1d if num_dims == 1 else nn.BatchNorm2d
        return kind(num_features, eps, momentum, affine)
    return FeatureBatchNorm(num_features, eps, momentum, affine)


@register("norm", "layer", course="J3 J5")
def layer(
    num_features: int,
    layout: Layout = "features",
    num_dims: int = 0,
    *,
    eps: Positive = 1e-5,
    affine: bool = True,
    bias: bool = True,
    over: Over = "all",
) -> nn.Module:
    """Layer norm: each example with its own mean and variance, z = γ(x - μ)/√(v + ε) + β.

    Independent of the batch, the same in training and evaluation. In the layout `features`, μ and v are
    those of the features of one position. In the layout `channels`, they are taken over channels and space
    (Ba et al.), or over the channels at each position (ConvNeXt). There is one pair of γ and β for each
    channel, while PyTorch's `LayerNorm((C, H, W))` has one for each channel and position.

    Args:
        eps: The ε added to the variance.
        affine: Whether to learn γ, and β if `bias` is also true.
        bias: Whether to learn β too.
        over: What is normalised together in images: `all` of an example, or its `channels` at each position.
            Vectors and the positions of a sequence are normalised over their features either way.

    Reference: Ba, Kiros and Hinton (2016), Layer normalization.
    """
    if layout == "channels":
        return ChannelLayerNorm(num_features, over, eps, affine, bias)
    return nn.LayerNorm(num_features, eps, affine, bias)


@register("norm", "rms", course="J4 J5")
def rms(
    num_features: int,
    layout: Layout = "features",
    num_dims: int = 0,
    *,
    eps: Positive = 1e-6,
    affine: bool = True,
    over: Over = "all",
) -> nn.Module:
    """Root-mean-square norm: layer norm without subtracting the mean, z = γ·x/√(mean(x²) + ε).

    Cheaper than layer norm, and as good where the rescaling is what helps. There is no β. The mean is taken
    over the same numbers as in `layer`. PyTorch's default ε is the machine epsilon; here it is a setting.

    Args:
        eps: The ε added to the mean of the squares.
        affine: Whether to learn γ.
        over: What is normalised together in images: `all` of an example, or its `channels` at each position.
            Vectors and the positions of a sequence are normalised over their features either way.

    Reference: Zhang and Sennrich (2019), Root mean square layer normalization.
    """
    if layout == "channels":
        return ChannelRMSNorm(num_features, over, eps, affine)
    return nn.RMSNorm(num_features, eps, affine)


@register("norm", "group", course="J3")
def group(
    num_features: int,
    layout: Layout = "features",
    num_dims: int = 0,
    *,
    num_groups: Count = 8,
    eps: Positive = 1e-5,
    affine: bool = True,
) -> nn.Module:
    """Group norm: like layer norm, over groups of features, z = γ(x - μ)/√(v + ε) + β.

    Independent of the batch, and close to batch norm in quality on images. Features are split in order into G
    groups of equal size; μ and v are taken over a group and, in the layout `channels`, over space; in
    sequences each position is normalised separately. The paper uses G = 32, for wide networks.

    Args:
        num_groups: The number G of groups; it must divide the number of features.
        eps: The ε added to the variance.
        affine: Whether to learn γ and β.

    Reference: Wu and He (2018), Group normalization.
    """
    has_space = layout == "channels" and num_dims > 0
    _check_groups(num_features, num_groups, smallest=1 if has_space else 2)
    kind = nn.GroupNorm if has_space else FeatureGroupNorm
    return kind(num_groups, num_features, eps, affine)


def _check_groups(num_features: int, num_groups: int, smallest: int) -> None:
    """Check the groups: a group of one number, without space to average over, would be normalised to zero."""
    choices = [n for n in range(1, num_features // smallest + 1) if num_features % n == 0]
    if num_groups in choices:
        return
    rule = "" if smallest == 1 else f" and leave at least {smallest} of them in a group"
    fix = f"choose one of {', '.join(map(str, choices))}" if choices else "choose another norm"
    raise UsageError(
        f"norm 'group': num_groups must divide the {num_features} features{rule}, got {num_groups}; {fix}"
    )
