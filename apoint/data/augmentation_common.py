"""Shared by all augmentations: the contract, the input checks, and functions that turn draws into choices.

Legend: B batch, C channel, H height, W width, L length of a signal, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from apoint.data.streams import Draw
from apoint.errors import UsageError

Augmentation = Callable[[Tensor, Tensor, Draw, int], tuple[Tensor, Tensor]]
"""(inputs, targets, draw, num_classes) → (inputs, targets); never changes its inputs in place."""

Direction = Literal["horizontal", "vertical", "both"]


def require_images(x: Tensor, who: str) -> None:
    """Raise unless the input is a batch of floating-point images."""
    if x.dim() != 4 or not x.is_floating_point():
        raise UsageError(
            f"{who} needs images in floating point of shape [batch, channel, height, width], "
            f"got {described(x)}; remove it from the recipe or choose an image dataset"
        )


def require_signals(x: Tensor, who: str) -> None:
    """Raise unless the input is a batch of floating-point one-dimensional signals."""
    if x.dim() != 3 or not x.is_floating_point():
        raise UsageError(
            f"{who} needs signals in floating point of shape [batch, channel, length], "
            f"got {described(x)}; remove it from the recipe or choose a signal dataset"
        )


def require_numbers(x: Tensor, who: str) -> None:
    """Raise if the inputs are not floating-point numbers, such as tokens."""
    if not x.is_floating_point():
        raise UsageError(
            f"{who} needs inputs in floating point, got {described(x)}; "
            f"remove it from the recipe or choose a dataset of images or signals"
        )


def described(x: Tensor) -> str:
    """A tensor in words, for error messages."""
    return f"{str(x.dtype).removeprefix('torch.')} of shape {list(x.shape)}"


def per_sample(value_B: Tensor, like: Tensor) -> Tensor:
    """One number per sample, in the dtype of `like` and shaped to broadcast against it."""
    return value_B.to(like.dtype).view(-1, *[1] * (like.dim() - 1))


def whole_numbers(uniform: Tensor, count: int) -> Tensor:
    """Uniform numbers in [0, 1) as whole numbers 0 … count−1.

    The largest number a `Draw` gives is 1 − 2⁻²⁴; times a count up to 2²⁴ it rounds to less than the count.
    """
    return (uniform * count).long()


def centred(uniform: Tensor, radius: float) -> Tensor:
    """Uniform numbers in [0, 1) scaled to [−radius, radius)."""
    return (2 * uniform - 1) * radius


def soft_targets(y: Tensor, num_classes: int, dtype: torch.dtype, who: str) -> Tensor:
    """Class indices [B] as one-hot rows [B, K]; rows that are already soft are returned unchanged."""
    if y.dim() == 2 and y.is_floating_point():
        return y
    if y.dim() != 1 or y.is_floating_point():
        raise UsageError(
            f"{who} needs class indices [batch] or soft targets [batch, classes], got {described(y)}; "
            f"remove it from the recipe or choose a classification dataset"
        )
    return torch.zeros(len(y), num_classes, dtype=dtype, device=y.device).scatter_(1, y.long()[:, None], 1)


def box_mask(
    top_B: Tensor, left_B: Tensor, height_B: Tensor, width_B: Tensor, size: tuple[int, int]
) -> Tensor:
    """True inside each sample's box, of shape [B, H, W]; parts outside the image are cut off."""
    row_H = torch.arange(size[0], device=top_B.device)
    column_W = torch.arange(size[1], device=top_B.device)
    in_rows_BH = (row_H >= top_B[:, None]) & (row_H < (top_B + height_B)[:, None])
    in_columns_BW = (column_W >= left_B[:, None]) & (column_W < (left_B + width_B)[:, None])
    return in_rows_BH[:, :, None] & in_columns_BW[:, None, :]


def paste(x: Tensor, other: Tensor, mask_BHW: Tensor) -> Tensor:
    """`other` where the mask is true, `x` elsewhere, bit for bit.

    `torch.lerp` with weights 0 and 1 returns its endpoints exactly, and is several times as fast as
    `torch.where` with a mask that is broadcast over the channels.
    """
    return torch.lerp(x, other.expand_as(x), mask_BHW[:, None].to(x.dtype))
