"""Convolutions alongside self-attention over the whole image, with relative positions.

Shapes: B batch, C channels, H height, W width, P = HW pixels, N heads, D size of a head's keys, V size of its
values.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.errors import UsageError

PoolAttention = Literal["before", "after"]
"""Where the spatial size is halved alongside a convolution of stride 2: before attention, or after."""


class ImageAttention(nn.Module):
    """Multi-head self-attention between all pixels of an image, with relative positions.

    For each head, with q, k, v the linear maps of the pixels i = (i_y, i_x) and D the size of a key:

        out_i = Σ_j softmax_j(l_ij) v_j,    l_ij = q_i·(k_j + r^W_{j_x - i_x} + r^H_{j_y - i_y}) / √D

    and then a linear map of the joined heads. r^H (`relative_heights`) and r^W (`relative_widths`) are
    learned for each distance, 2H - 1 and 2W - 1 of them, and shared by the heads. Without `relative`, both
    are left out, and permuting the pixels permutes the output in the same way.

    The relative parts cost O(HW(H + W)): q_i·r^H_{y - i_y} is the same for all pixels of row y. They are
    appended to q_i, for all rows and columns, and each key is extended by a one-hot code of its row and
    column, so that l_ij is the product of two vectors of size D + H + W. PyTorch's fused kernel can then be
    used, and nothing of size (HW)² is stored. On CPU it does not support `vmap`: see
    `apoint.nn.elementary_attention`.

    Args:
        in_channels: The channels of the image.
        key_channels: The size of queries and keys, all heads together: D·N.
        value_channels: The size of values, all heads together, and the channels of the output: V·N.
        num_heads: The number N of heads.
        space: The height and width for which there are relative positions; smaller images use the middle.
        relative: Whether to use relative positions.
        bias: Whether the linear maps have a bias.

    Reference: Bello et al. (2019), Attention augmented convolutional networks, section 3.1.
    """

    def __init__(
        self,
        in_channels: int,
        key_channels: int,
        value_channels: int,
        num_heads: int,
        space: tuple[int, int],
        *,
        relative: bool = True,
        bias: bool = False,
    ) -> None:
        super().__init__()
        for name, channels in (("key_channels", key_channels), ("value_channels", value_channels)):
            if num_heads < 1 or channels < 1 or channels % num_heads:
                raise UsageError(
                    f"ImageAttention: {name} must be a multiple of num_heads={num_heads}, got {channels}"
                )
        self.num_heads, self.space = num_heads, space
        self.sizes = (key_channels, key_channels, value_channels)
        self.qkv = nn.Conv2d(in_channels, sum(self.sizes), 1, bias=bias)
        self.output = nn.Conv2d(value_channels, value_channels, 1, bias=bias)
        head = key_channels // num_heads
        self.relative_heights = nn.Parameter(torch.empty(2 * space[0] - 1, head)) if relative else None
        self.relative_widths = nn.Parameter(torch.empty(2 * space[1] - 1, head)) if relative else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw as the paper's code does: Glorot's scheme, and relative positions with variance 1/D."""
        for layer in (self.qkv, self.output):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        for table in (self.relative_heights, self.relative_widths):
            if table is not None:
                nn.init.normal_(table, std=table.shape[1] ** -0.5)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """What each pixel gathers from all pixels."""
        height, width = x_BCHW.shape[-2:]
        parts = self.qkv(x_BCHW).split(self.sizes, dim=1)
        query_BNHWD, key_BNHWD, value_BNHWV = (
            part.unflatten(1, (self.num_heads, -1)).permute(0, 1, 3, 4, 2) for part in parts
        )
        scale = query_BNHWD.shape[-1] ** -0.5
        if self.relative_heights is not None and self.relative_widths is not None:
            self._check_fits(height, width)
            across = relative_logits(query_BNHWD, self.relative_heights, axis=0)
            along = relative_logits(query_BNHWD, self.relative_widths, axis=1)
            query_BNHWD = torch.cat([query_BNHWD, across, along], dim=-1)
            places = rows_and_columns(height, width, key_BNHWD).expand(*key_BNHWD.shape[:-1], -1)
            key_BNHWD = torch.cat([key_BNHWD, places], dim=-1)
        heads_BNPV = attend(
            query_BNHWD.flatten(2, 3), key_BNHWD.flatten(2, 3), value_BNHWV.flatten(2, 3), scale
        )
        # Move pixels before heads again: each head's V channels are adjacent, and channels are last in
        # memory, as the engine keeps images. A reshape alone would mix pixels with channels.
        gathered_BPC = heads_BNPV.transpose(1, 2).flatten(2)
        image_BHWC = gathered_BPC.view(len(x_BCHW), height, width, gathered_BPC.shape[-1])
        mixed: Tensor = self.output(image_BHWC.permute(0, 3, 1, 2))
        return mixed

    def _check_fits(self, height: int, width: int) -> None:
        if height > self.space[0] or width > self.space[1]:
            raise UsageError(
                f"ImageAttention: has relative positions for images up to {self.space[0]}×{self.space[1]}, "
                f"got {height}×{width}; build the model for a larger input_size, or with relative: false"
            )

    def extra_repr(self) -> str:
        """The settings, for printing."""
        relative = self.relative_heights is not None
        return f"num_heads={self.num_heads}, space={self.space}, relative={relative}"


def relative_logits(query_BNHWD: Tensor, table: Tensor, axis: Literal[0, 1]) -> Tensor:
    """q_i·r_{z - i} for all z along one axis of space, height (0) or width (1): [B, N, H, W, length].

    Row m of the table belongs to the distance m - (largest distance); an axis shorter than the table is built
    for uses the middle of the table.
    """
    length, largest = query_BNHWD.shape[2 + axis], (len(table) + 1) // 2 - 1
    middle = table[largest - length + 1 : largest + length]
    # Window s holds the distances s - length + 1 … s; pixel i uses those from -i on: window length - 1 - i.
    windows_ZDZ = middle.unfold(0, length, 1).flip(0)
    return torch.einsum(("bnhwd,hdz->bnhwz", "bnhwd,wdz->bnhwz")[axis], query_BNHWD, windows_ZDZ)


def rows_and_columns(height: int, width: int, like: Tensor) -> Tensor:
    """For each pixel, its row and its column, one-hot: [H, W, H + W]."""
    rows = torch.eye(height, dtype=like.dtype, device=like.device)
    columns = torch.eye(width, dtype=like.dtype, device=like.device)
    both = (rows[:, None].expand(-1, width, -1), columns[None].expand(height, -1, -1))
    return torch.cat(both, dim=-1)


def attend(query_BNPE: Tensor, key_BNPE: Tensor, value_BNPV: Tensor, scale: float) -> Tensor:
    """softmax(scale·QKᵀ)·V; values are zero-padded to the size of the keys, as the fused kernel needs."""
    missing = key_BNPE.shape[-1] - value_BNPV.shape[-1]
    padded = F.pad(value_BNPV, (0, missing)) if missing > 0 else value_BNPV
    out_BNPE = F.scaled_dot_product_attention(query_BNPE, key_BNPE, padded, scale=scale)
    return out_BNPE[..., : value_BNPV.shape[-1]]


class AugmentedConvolution(nn.Module):
    """A convolution whose last output channels come from self-attention over the whole image instead.

    `ImageAttention` computes `value_channels` of the outputs, and the convolution computes the others. With a
    stride of 2, attention runs on an image halved by a mean over 3×3 pixels (`before`), or on the full image
    with its output halved (`after`), at 16 times the cost. The mean does not count pixels outside the image.

    Args:
        in_channels: The channels of the input.
        out_channels: The channels of the output.
        kernel_size: The size of the convolution's kernel; odd.
        key_channels: The size of queries and keys, all heads together.
        value_channels: The number of outputs that come from attention; fewer than `out_channels`.
        num_heads: The number of heads.
        space: The height and width of the inputs, which limits the relative positions.
        stride: 1 or 2.
        pool_attention: Where the spatial size is halved for attention if the stride is 2.
        relative: Whether attention uses relative positions.
        bias: Whether the convolution and the linear maps of attention have a bias.

    Reference: Bello et al. (2019), Attention augmented convolutional networks, section 3.2. Their text has
        the mean over 3×3 places, before attention, to save memory.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        key_channels: int,
        value_channels: int,
        num_heads: int,
        space: tuple[int, int],
        *,
        stride: int = 1,
        pool_attention: PoolAttention = "before",
        relative: bool = True,
        bias: bool = False,
    ) -> None:
        super().__init__()
        _check_augmentation(out_channels, kernel_size, value_channels, stride, pool_attention)
        self.pool_attention = pool_attention
        self.convolution = nn.Conv2d(
            in_channels,
            out_channels - value_channels,
            kernel_size,
            stride,
            padding=kernel_size // 2,
            bias=bias,
        )
        self.pool = nn.AvgPool2d(3, 2, padding=1, count_include_pad=False) if stride == 2 else None
        if self.pool is not None and pool_attention == "before":
            space = (halved(space[0]), halved(space[1]))
        self.attention = ImageAttention(
            in_channels, key_channels, value_channels, num_heads, space, relative=relative, bias=bias
        )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Channels of the convolution, then those of attention."""
        return torch.cat([self.convolution(x_BCHW), self._attended(x_BCHW)], dim=1)

    def _attended(self, x_BCHW: Tensor) -> Tensor:
        if self.pool is None:
            attended: Tensor = self.attention(x_BCHW)
        elif self.pool_attention == "before":
            attended = self.attention(self.pool(x_BCHW))
        else:
            attended = self.pool(self.attention(x_BCHW))
        return attended

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return f"pool_attention={self.pool_attention!r}"


def halved(length: int) -> int:
    """The length of an axis after a stride of 2."""
    return (length + 1) // 2


def _check_augmentation(
    out_channels: int, kernel_size: int, value_channels: int, stride: int, pool_attention: str
) -> None:
    if value_channels >= out_channels:
        raise UsageError(
            f"AugmentedConvolution: value_channels must leave some of out_channels={out_channels} to the "
            f"convolution, got {value_channels}"
        )
    if kernel_size % 2 == 0:
        raise UsageError(f"AugmentedConvolution: kernel_size must be odd, got {kernel_size}")
    if stride not in (1, 2):
        raise UsageError(f"AugmentedConvolution: stride must be 1 or 2, got {stride}")
    if pool_attention not in get_args(PoolAttention):
        raise UsageError(
            f"AugmentedConvolution: pool_attention must be 'before' or 'after', got {pool_attention!r}"
        )
