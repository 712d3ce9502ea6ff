"""Swin: a transformer over windows that shift from block to block, in stages that halve the resolution.

Shapes: B batch, H height, W width, E model dimension, G windows, N heads, T positions of a window, D features
of a head (E = N·D).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.members import register_member
from apoint.models.resnet import check_space, named
from apoint.models.shapes import Size, space_of
from apoint.nn.activations import activation as build_activation
from apoint.nn.dropout import Dropout, Mode, StochasticDepth
from apoint.nn.norms import norm as build_norm
from apoint.nn.residual import LayerScale, Residual
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Positive, Rate, Spec

Placement = Literal["pre", "post"]
Padding = Literal["seen", "hidden"]
Sides = tuple[int, int]


def filled_up(x: Tensor, multiples: Sides, first_axis: int) -> Tensor:
    """Pad a map with zeros below and to the right, so that its sides are multiples of these numbers.

    Height is the axis `first_axis`, width the next.
    """
    below, right = (-x.shape[first_axis + axis] % multiples[axis] for axis in (0, 1))
    behind = [0, 0] * (x.dim() - first_axis - 2)
    return F.pad(x, [*behind, 0, right, 0, below]) if below or right else x


class Tiling(NamedTuple):
    """Windows over a map of positions, cyclically shifted.

    Attributes:
        space: Height and width of the map.
        window: Height and width of a window.
        shift: The number of positions by which the windows are shifted down and to the right.
    """

    space: Sides
    window: Sides
    shift: Sides

    @property
    def padded(self) -> Sides:
        """The sides of the map, padded to whole windows."""
        rows, columns = (-(-side // window) * window for side, window in zip(*self[:2], strict=True))
        return rows, columns

    @property
    def counts(self) -> Sides:
        """The number of windows down and across."""
        return self.padded[0] // self.window[0], self.padded[1] // self.window[1]

    def laid(self, x_BHWE: Tensor) -> Tensor:
        """The map, padded with zeros to whole windows and rolled so that the windows begin at 0."""
        x_BHWE = filled_up(x_BHWE, self.window, first_axis=1)
        if any(self.shift):
            x_BHWE = x_BHWE.roll((-self.shift[0], -self.shift[1]), (1, 2))
        return x_BHWE

    def cut(self, x_BHWF: Tensor, num_parts: int, num_heads: int) -> Tensor:
        """Cut a laid-out map with `num_parts`·E features into windows and heads: [parts, B, G, N, T, D]."""
        (down, across), (height, width) = self.counts, self.window
        batch, size = x_BHWF.shape[0], x_BHWF.shape[-1] // (num_parts * num_heads)
        tiles = x_BHWF.reshape(batch, down, height, across, width, num_parts, num_heads, size)
        parts = tiles.permute(5, 0, 1, 3, 6, 2, 4, 7)
        return parts.reshape(num_parts, batch, down * across, num_heads, height * width, size)

    def joined(self, x_BGNTD: Tensor) -> Tensor:
        """Join windows and heads into a map again, undoing roll and padding."""
        (down, across), (height, width) = self.counts, self.window
        batch, _, num_heads, _, size = x_BGNTD.shape
        tiles = x_BGNTD.reshape(batch, down, across, num_heads, height, width, size)
        x_BHWE = tiles.permute(0, 1, 4, 2, 5, 3, 6).reshape(batch, *self.padded, num_heads * size)
        if any(self.shift):
            x_BHWE = x_BHWE.roll(self.shift, (1, 2))
        return x_BHWE[:, : self.space[0], : self.space[1]] if self.padded != self.space else x_BHWE


def tiled(space: Sides, window: int, shift: int, padding: Padding) -> Tiling:
    """The windows over a map of this size; an axis that one window covers is not shifted.

    With hidden padding, a window is never larger than the map.
    """
    sides = [min(side, window) if padding == "hidden" else window for side in space]
    shifts = [shift if side > window else 0 for side in space]
    return Tiling(space, (sides[0], sides[1]), (shifts[0], shifts[1]))


@functools.lru_cache(maxsize=32)
def unseen(tiling: Tiling, hide_padding: bool, device: torch.device, dtype: torch.dtype) -> Tensor | None:
    """The mask added to scores, [G, 1, T, T]: 0, and -∞ where a position must not attend to another.

    Within a window of a rolled map, positions attend to each other only if they were neighbours before: along
    each axis, both or neither wrapped around the edge. If padding is hidden, positions in the image attend
    only to each other. None if all positions of all windows attend to each other.
    """
    if not any(tiling.shift) and not (hide_padding and tiling.padded != tiling.space):
        return None
    regions = []
    for side, padded, shift in zip(tiling.space, tiling.padded, tiling.shift, strict=True):
        place = torch.arange(padded, device=device)
        came_around = place >= padded - shift
        outside = (place + shift) % padded >= side
        regions.append(2 * came_around.long() + (outside if hide_padding else 0))
    region_HW = 4 * regions[0][:, None] + regions[1]
    region_GT = tiling.cut(region_HW[None, :, :, None], 1, 1).flatten(0, 3).flatten(1)
    apart_GTT = region_GT[:, :, None] != region_GT[:, None, :]
    zeros = torch.zeros(apart_GTT.shape, device=device, dtype=dtype)
    return zeros.masked_fill(apart_GTT, -math.inf)[:, None]


@functools.lru_cache(maxsize=32)
def relative_positions(sides: Sides, window: int, device: torch.device) -> Tensor:
    """The rows of the bias table for all pairs of positions in a window, [T, T].

    For a query at (i, j) and a key at (k, l) it is row (i - k + M - 1)·(2M - 1) + (j - l + M - 1), where M is
    `window`, the largest side that the table covers.
    """
    rows, columns = (torch.arange(side, device=device) for side in sides)
    down = (rows[:, None] - rows + window - 1) * (2 * window - 1)
    right = columns[:, None] - columns + window - 1
    return (down[:, None, :, None] + right[None, :, None, :]).flatten(2).flatten(0, 1)


def _kept(make: Any, like: Tensor, *arguments: Any) -> Any:
    """The result of a cached function; bypasses the cache for stand-in tensors, as in tracing."""
    if torch.compiler.is_compiling() or type(like) not in (Tensor, nn.Parameter):
        return make.__wrapped__(*arguments)
    with torch.inference_mode(False):  # cached tensors must also work in training
        return make(*arguments)


class WindowAttention(nn.Module):
    """Multi-head self-attention within windows, softmax(QKᵀ/√D + bias)·V, from [B, H, W, E] to the same.

    The bias of a pair of positions is learned for each head and depends on their difference in rows and in
    columns. This uses elementary operations: PyTorch's fused kernel computes no gradient for a bias, and its
    fallback takes a fifth longer than these.

    Args:
        model_dim: The size E of a position's vector, input and output.
        num_heads: The number N of heads; it must divide `model_dim`.
        window: The side M of a window.
        shift: The shift of the windows, along both axes.
        padding: Whether positions attend to the zeros that pad windows.
        dropout: The probability of dropping an attention weight.
    """

    def __init__(
        self, model_dim: int, num_heads: int, window: int, shift: int, padding: Padding, dropout: float
    ) -> None:
        super().__init__()
        self.num_heads, self.window, self.shift, self.padding = num_heads, window, shift, padding
        self.qkv = nn.Linear(model_dim, 3 * model_dim)
        self.bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, num_heads))
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(model_dim, model_dim)

    def forward(self, x_BHWE: Tensor) -> Tensor:
        """Replace each position by a weighted mean over its window, for each head, then a linear map."""
        space = (x_BHWE.shape[1], x_BHWE.shape[2])
        tiling = tiled(space, self.window, self.shift, self.padding)
        qkv_BHWF = self.qkv(tiling.laid(x_BHWE))
        query_BGNTD, key_BGNTD, value_BGNTD = tiling.cut(qkv_BHWF, 3, self.num_heads)
        scores_BGNTT = query_BGNTD @ key_BGNTD.transpose(-2, -1)
        scale = query_BGNTD.shape[-1] ** -0.5
        weights_BGNTT = torch.add(self.bias(tiling), scores_BGNTT, alpha=scale).softmax(-1)
        mixed: Tensor = self.output(tiling.joined(self.dropout(weights_BGNTT) @ value_BGNTD))
        return mixed

    def bias(self, tiling: Tiling) -> Tensor:
        """The bias added to scores: relative positions only, [N, T, T]; with a mask, [G, N, T, T]."""
        table = self.bias_table
        place_TT = _kept(relative_positions, table, tiling.window, self.window, table.device)
        bias_NTT = table[place_TT].permute(2, 0, 1)
        mask = _kept(unseen, table, tiling, self.padding == "hidden", table.device, table.dtype)
        return bias_NTT if mask is None else bias_NTT + mask

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return (
            f"num_heads={self.num_heads}, window={self.window}, shift={self.shift}, padding={self.padding!r}"
        )


class PatchMerging(nn.Module):
    """2×2 neighbours concatenated, a norm, and a linear map to twice the features: [B, H/2, W/2, 2E].

    Their order is that of the public weights: top left, bottom left, top right, bottom right. Odd sides are
    padded with zeros below and to the right.

    Args:
        model_dim: The number E of input features.
        norm: The norm's spec.
    """

    def __init__(self, model_dim: int, norm: Spec) -> None:
        super().__init__()
        self.norm = build_norm(norm, 4 * model_dim)
        self.reduction = nn.Linear(4 * model_dim, 2 * model_dim, bias=False)

    def forward(self, x_BHWE: Tensor) -> Tensor:
        """Merge the neighbours."""
        x_BHWE = filled_up(x_BHWE, (2, 2), first_axis=1)
        batch, height, width, features = x_BHWE.shape
        tiles = x_BHWE.reshape(batch, height // 2, 2, width // 2, 2, features)
        together = tiles.permute(0, 1, 3, 4, 2, 5).reshape(batch, height // 2, width // 2, 4 * features)
        merged: Tensor = self.reduction(self.norm(together))
        return merged


class PatchEmbedding(nn.Module):
    """Images [B, C, H, W] cut into patches, each mapped linearly and normalised: [B, H/P, W/P, E].

    Args:
        in_channels: The number C of channels.
        model_dim: The model dimension E.
        patch_size: The side P; images are padded with zeros below and to the right.
        norm: The norm's spec.
    """

    def __init__(self, in_channels: int, model_dim: int, patch_size: int, norm: Spec) -> None:
        super().__init__()
        self.projection = nn.Conv2d(in_channels, model_dim, patch_size, patch_size)
        self.norm = build_norm(norm, model_dim)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """The patches' vectors."""
        size = self.projection.kernel_size[0]
        x_BCHW = filled_up(x_BCHW, (size, size), first_axis=2)
        patches_BHWE: Tensor = self.norm(self.projection(x_BCHW).permute(0, 2, 3, 1))
        return patches_BHWE


class Swin(nn.Module):
    """Patches, stages of blocks over windows, global average pooling, linear layer.

    Args:
        patches: Maps images to [B, H, W, E].
        dropout: Applied to the embedded patches.
        stages: The stages; all but the first begin with patch merging.
        last: Applied between the last block and the mean.
        head: The final linear layer.
        input_size: The sides of the images it was built for; it also takes others.
    """

    family = "swin"

    def __init__(
        self,
        patches: PatchEmbedding,
        dropout: Dropout,
        stages: nn.Sequential,
        last: nn.Module,
        head: nn.Linear,
        input_size: tuple[int, ...],
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.patches = patches
        self.dropout = dropout
        self.stages = stages
        self.last = last
        self.head = head

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """One logit for each class."""
        x_BHWE = self.last(self.stages(self.dropout(self.patches(x_BCHW))))
        logits: Tensor = self.head(x_BHWE.flatten(1, 2).mean(1))
        return logits


@dataclass(frozen=True)
class Design:
    """The settings that all blocks of a network share; builds the network's parts from them."""

    window: int
    padding: Padding
    expansion: float
    activation: Spec
    norm: Spec
    placement: Placement
    dropout: float
    stochastic_depth: float
    stochastic_depth_mode: Mode
    layer_scale: float | None

    def block(self, width: int, num_heads: int, shift: int, depth_share: float) -> nn.Sequential:
        """One block: attention over windows, then feed-forward."""
        hidden = max(1, int(self.expansion * width))
        attention = named(
            windows=WindowAttention(width, num_heads, self.window, shift, self.padding, self.dropout),
            dropout=Dropout(self.dropout),
            scale=self.scale(width),
        )
        feed_forward = named(
            expand=nn.Linear(width, hidden),
            activation=build_activation(self.activation),
            hidden_dropout=Dropout(self.dropout),
            contract=nn.Linear(hidden, width),
            dropout=Dropout(self.dropout),
            scale=self.scale(width),
        )
        return named(
            attention=self.residual(attention, width, depth_share),
            feed_forward=self.residual(feed_forward, width, depth_share),
        )

    def scale(self, width: int) -> LayerScale | None:
        """The learned factors at the end of a branch, if there are any."""
        return None if self.layer_scale is None else LayerScale(width, self.layer_scale)

    def residual(self, branch: nn.Module, width: int, depth_share: float) -> Residual:
        """A branch with its norm and its stochastic depth."""
        return Residual(
            branch,
            norm=build_norm(self.norm, width),
            placement=self.placement,
            drop=StochasticDepth(self.stochastic_depth, depth_share, self.stochastic_depth_mode),
        )

    def stages(self, width: int, depths: tuple[int, ...], num_heads: tuple[int, ...]) -> nn.Sequential:
        """All stages; every other block has shifted windows."""
        number, stages = 0, []
        for stage, (depth, heads) in enumerate(zip(depths, num_heads, strict=True)):
            blocks = []
            for position in range(depth):
                number += 1
                shift = position % 2 * (self.window // 2)
                blocks.append(self.block(width * 2**stage, heads, shift, number / sum(depths)))
            merging = PatchMerging(width * 2 ** (stage - 1), self.norm) if stage else None
            stages.append(named(merging=merging, blocks=nn.Sequential(*blocks)))
        return nn.Sequential(*stages)


@register("model", "swin", course="H5", inputs=("image",))
def swin(
    in_channels: int = 3,
    num_classes: int = 1000,
    input_size: Size = 224,
    *,
    patch_size: Count = 4,
    width: Count = 96,
    depths: tuple[Count, ...] = (2, 2, 6, 2),
    num_heads: tuple[Count, ...] = (3, 6, 12, 24),
    window: Count = 7,
    padding: Padding = "seen",
    expansion: Positive = 4.0,
    activation: ActivationSpec = "gelu",
    norm: NormSpec = "layer",
    placement: Placement = "pre",
    dropout: Rate = 0.0,
    stochastic_depth: Rate = 0.0,
    stochastic_depth_mode: Mode = "batch",
    layer_scale: Positive | None = None,
) -> Swin:
    """A transformer over windows of M×M positions, which shift by M/2 in every other block.

    An image is cut into patches; each stage after the first merges 2×2 neighbours, so that the resolution
    halves and the features double. A position attends to those in its window, with a learned bias for each
    difference in rows and columns, so the cost grows with the number of windows and not with its square.
    Shifted windows wrap around the edges of the map, but no position attends across an edge.

    Images of any size and shape work, including sizes other than the one the network was built for. Maps are
    padded below and to the right with zeros to whole windows, and then shifted. With `padding: seen` the
    zeros take part as keys and values, as in torchvision, in Hugging Face's version and in the authors'
    detectors; with `hidden` a position attends only to positions in the image. This makes no difference where
    the sides of all maps are multiples of M, as they are at 224 pixels with M = 7 and at 384 with M = 12.

    A map smaller than a window is one window, which is not shifted. torchvision pads it with zeros, and so
    does `seen`: it is the default because it gives the same results as torchvision with torchvision's
    weights, at any size. The authors' classifier and timm shrink the window when the network is built, and
    with it the bias table; `hidden` gives the same with the middle of the whole table, so weights fit at any
    size. timm shifts before it pads, so its logits differ from both where windows need padding.

    As built, linear maps and position biases are drawn with standard deviation 0.02 and other biases are 0,
    as the authors do; the patch embedding has PyTorch's initialisation. The authors train with a stochastic
    depth of 0.2 (T), 0.3 (S) and 0.5 (B) on ImageNet; here it is 0 unless a recipe sets it.

    Args:
        patch_size: The side of a patch.
        width: The number of features in the first stage; it doubles in each following stage.
        depths: The number of blocks of each stage.
        num_heads: The number of attention heads of each stage; each must divide the stage's features.
        window: The side M of a window, in positions.
        padding: Whether positions attend to the zeros that pad windows: `seen` or `hidden`.
        expansion: The size of the feed-forward's hidden layer, as a multiple of the features.
        activation: The activation of the hidden layer.
        norm: The norm of each branch, of the patch embedding and of each patch merging.
        placement: Whether the norm is inside the branch (`pre`, with one more at the end) or applied to the
            sum (`post`).
        dropout: The probability of dropping an embedded, a hidden or an output unit, or an attention weight.
        stochastic_depth: The probability of skipping the last block's branches; linearly lower for earlier
            blocks.
        stochastic_depth_mode: Whether to draw once per `batch`, which saves time, or once per `sample`.
        layer_scale: The initial value of the learned per-feature factors of each branch; none by default.

    Reference: Liu et al. (2021), Swin transformer: hierarchical vision transformer using shifted windows.
    """
    check_space("swin", input_size)
    _check_heads(width, depths, num_heads)
    design = Design(
        window,
        padding,
        expansion,
        activation,
        norm,
        placement,
        dropout,
        stochastic_depth,
        stochastic_depth_mode,
        layer_scale,
    )
    last_width = width * 2 ** (len(depths) - 1)
    model = Swin(
        PatchEmbedding(in_channels, width, patch_size, norm),
        Dropout(dropout),
        design.stages(width, depths, num_heads),
        build_norm(norm, last_width) if placement == "pre" else nn.Identity(),
        nn.Linear(last_width, num_classes),
        space_of(input_size),
    )
    draw_narrow(model)
    return model


def _check_heads(width: int, depths: tuple[int, ...], num_heads: tuple[int, ...]) -> None:
    if len(depths) != len(num_heads) or not depths:
        raise UsageError(
            f"model 'swin': depths and num_heads must have one number for each stage, got {len(depths)} and "
            f"{len(num_heads)}"
        )
    for stage, heads in enumerate(num_heads):
        features = width * 2**stage
        if features % heads:
            divisors = [str(number) for number in range(1, features + 1) if features % number == 0]
            raise UsageError(
                f"model 'swin': num_heads of stage {stage + 1} must divide its {features} features, got "
                f"{heads}; choose one of {', '.join(divisors)}"
            )


def draw_narrow(model: nn.Module) -> None:
    """Initialise as the authors do: linear maps and position biases with std 0.02, other biases 0.

    Their normal distribution is truncated at ±2, a hundred standard deviations away, which has no effect.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, WindowAttention):
            nn.init.normal_(module.bias_table, std=0.02)


for _size, _width, _depth, _heads in (
    ("tiny", 96, 6, 3),
    ("small", 96, 18, 3),
    ("base", 128, 18, 4),
    ("large", 192, 18, 6),
):
    register_member(
        swin,
        f"swin-{_size}",
        f"Swin of the paper's size {_size[0].upper()}.",
        course="H5",
        fixed={
            "width": _width,
            "depths": (2, 2, _depth, 2),
            "num_heads": tuple(_heads * 2**stage for stage in range(4)),
        },
    )

register_member(
    swin,
    "swin-micro",
    "Swin for images of 28 or 32 pixels that trains within minutes.",
    course="H5",
    fixed={"depths": (2, 2), "num_heads": (2, 4)},
    defaults={"num_classes": 10, "input_size": 32, "width": 64, "window": 4},
)
