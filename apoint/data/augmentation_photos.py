"""Augmentations from recipes for photographs: random resized crops, random erasing, mix-up or cut-mix.

Legend: B batch, C channel, H height, W width, T attempts, K classes.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from apoint.data.augmentation_common import (
    Augmentation,
    box_mask,
    paste,
    require_images,
    soft_targets,
    whole_numbers,
)
from apoint.data.augmentation_mixing import Per, area_mask, beta_sampler, mix_targets, partners_and_numbers
from apoint.data.augmentation_noise import hashed_words
from apoint.data.streams import Draw
from apoint.errors import UsageError
from apoint.registry import register
from apoint.settings import Positive, Share

ATTEMPTS = 10  # as in torchvision and timm
Stretch = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Boxes = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Tops, lefts, heights and widths of boxes in pixels, and which of them fit."""


def random_boxes(
    uniform_BN: Tensor, area: tuple[float, float], stretch: float, size: tuple[int, int]
) -> Boxes:
    """A box in each image, with a uniform share of the area and a log-uniform aspect ratio.

    Computed from 2T + 2 uniform numbers per sample: T attempts at area and aspect ratio, of which the first
    that fits into the image counts, and the position.

    Args:
        uniform_BN: The uniform numbers.
        area: The least and the largest share of the image.
        stretch: The largest ratio of width to height, and of height to width.
        size: Height and width of the image.
    """
    height, width = size
    share_BT, ratio_BT = uniform_BN[:, :ATTEMPTS], uniform_BN[:, ATTEMPTS : 2 * ATTEMPTS]
    pixels_BT = (area[0] + (area[1] - area[0]) * share_BT) * (height * width)
    ratio_BT = torch.exp((2 * ratio_BT - 1) * math.log(stretch))
    wide_BT = (pixels_BT * ratio_BT).sqrt().round().long().clamp(min=1)
    high_BT = (pixels_BT / ratio_BT).sqrt().round().long().clamp(min=1)
    fits_BT = (wide_BT <= width) & (high_BT <= height)
    first_B1 = fits_BT.to(torch.uint8).argmax(1, keepdim=True)
    high_B, wide_B = high_BT.gather(1, first_B1)[:, 0], wide_BT.gather(1, first_B1)[:, 0]
    top_B = _place(uniform_BN[:, -2], height - high_B)
    left_B = _place(uniform_BN[:, -1], width - wide_B)
    return top_B, left_B, high_B, wide_B, fits_BT.any(1)


def _place(uniform_B: Tensor, free_B: Tensor) -> Tensor:
    """Uniform whole numbers 0 … free."""
    return (uniform_B * (free_B + 1)).long().clamp(min=0)


def enlarge_boxes(x: Tensor, top_B: Tensor, left_B: Tensor, high_B: Tensor, wide_B: Tensor) -> Tensor:
    """Enlarge each image's box to the image's size, bilinearly; nothing outside the box is read."""
    row_BH = _positions(top_B, high_B, x.shape[2], x.dtype)
    column_BW = _positions(left_B, wide_B, x.shape[3], x.dtype)
    shape = (len(x), x.shape[2], x.shape[3])
    across_BHW, along_BHW = column_BW[:, None, :].expand(shape), row_BH[:, :, None].expand(shape)
    grid_BHW2 = torch.stack((across_BHW, along_BHW), dim=-1)
    return F.grid_sample(x, grid_BHW2, mode="bilinear", padding_mode="border", align_corners=True)


def _positions(first_B: Tensor, length_B: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """Where the result's pixels are read, in grid_sample's [−1, 1] from the first pixel to the last."""
    centre_H = (torch.arange(size, device=first_B.device, dtype=dtype) + 0.5) / size
    inside_BH = (centre_H * length_B[:, None] - 0.5).clamp(min=0)
    inside_BH = torch.minimum(inside_BH, (length_B[:, None] - 1).to(dtype)) + first_B[:, None]
    return inside_BH * (2 / max(size - 1, 1)) - 1


def _check_areas(name: str, smallest: float, largest: float) -> None:
    if not 0 < smallest <= largest:
        raise UsageError(
            f"augmentation {name!r}: smallest must be above 0 and not above largest, got {smallest:g} and "
            f"{largest:g}"
        )


@register("augmentation", "random-resized-crop", inputs=("image",), depends_on_batch=False)
def random_resized_crop(
    *, smallest: Share = 0.08, largest: Share = 1.0, stretch: Stretch = 4 / 3
) -> Augmentation:
    """Crop a box of random size and aspect ratio from each image and enlarge it to the image's size.

    The usual crop for photographs. The box has a share of the area uniform on [smallest, largest] and
    width/height log-uniform on [1/stretch, stretch]; after ten attempts without a box that fits, the whole
    image is kept. Like torchvision's `RandomResizedCrop`, except that the result has the image's own size, so
    that a model sees one size in training and evaluation; bilinear.

    Args:
        smallest: The least share of the image's area; 0.08 for ImageNet.
        largest: The largest share of the image's area.
        stretch: The largest ratio of the box's width to its height, and of its height to its width.

    Reference:
        Szegedy et al. (2015), Going deeper with convolutions, section 6.
    """
    _check_areas("random-resized-crop", smallest, largest)

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_images(x, "augmentation 'random-resized-crop'")
        height, width = x.shape[2:]
        uniform = draw.uniform(2 * ATTEMPTS + 2)
        *box, fits_B = random_boxes(uniform, (smallest, largest), stretch, (height, width))
        whole = (0, 0, height, width)
        own = [torch.where(fits_B, value_B, other) for value_B, other in zip(box, whole, strict=True)]
        return enlarge_boxes(x, *own), y

    return apply


def uniform_pixels(draw: Draw, *shape: int) -> Tensor:
    """Uniform float32 numbers in [0, 1), (batch, *shape), each sample's a function of its index."""
    bits_B2 = (draw.uniform(2) * 2**24).to(torch.int32) * (0x9E3779B9 - (1 << 32))
    words = hashed_words(bits_B2[:, 0], bits_B2[:, 1], math.prod(shape))
    return (words >> 8).bitwise_and_(2**24 - 1).to(torch.float32).mul_(2.0**-24).view(-1, *shape)


@register("augmentation", "random-erasing", inputs=("image",), depends_on_batch=False)
def random_erasing(
    *,
    probability: Share = 0.25,
    smallest: Share = 0.02,
    largest: Share = 1 / 3,
    stretch: Stretch = 10 / 3,
    fill: Literal["noise", "zero"] = "noise",
) -> Augmentation:
    """Cover a box of random size and aspect ratio in some images with noise.

    Like cut-out, with boxes that vary. The box has a share of the area uniform on [smallest, largest] and
    width/height log-uniform on [1/stretch, stretch]; after ten attempts without a box that fits, the image
    is left unchanged. `noise` is uniform on [0, 1], independent for each number, as in the paper; timm draws
    it from a normal distribution.

    Args:
        probability: The probability that an image gets a box; 0.25 for the vision transformers of 2021.
        smallest: The least share of the image's area.
        largest: The largest share of the image's area.
        stretch: The largest ratio of the box's width to its height, and of its height to its width.
        fill: The content of the box: `noise`, or `zero`.

    Reference:
        Zhong et al. (2020), Random erasing data augmentation.
    """
    _check_areas("random-erasing", smallest, largest)

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_images(x, "augmentation 'random-erasing'")
        size = (x.shape[2], x.shape[3])
        uniform = draw.uniform(2 * ATTEMPTS + 3)
        top_B, left_B, high_B, wide_B, fits_B = random_boxes(
            uniform[:, 1:], (smallest, largest), stretch, size
        )
        chosen_B = fits_B & (uniform[:, 0] < probability)
        mask_BHW = box_mask(top_B, left_B, high_B, wide_B, size) & chosen_B[:, None, None]
        noisy = fill == "noise"
        filling = uniform_pixels(draw.child("fill"), *x.shape[1:]).to(x.dtype) if noisy else x.new_zeros(1)
        return paste(x, filling, mask_BHW), y

    return apply


@register("augmentation", "mix-or-cut", inputs=("image",), depends_on_batch=True)
def mix_or_cut(
    *,
    mix_alpha: Positive = 0.8,
    cut_alpha: Positive = 1.0,
    cut_share: Share = 0.5,
    per: Per = "batch",
    probability: Share = 1.0,
) -> Augmentation:
    """Mix-up or cut-mix, one of the two at a time.

    Used in the recipes of vision transformers: with probability `cut_share` a box is replaced as in
    `cut-mix`, otherwise images are averaged as in `mix-up`, and targets are mixed in the same proportion. In
    timm the partner is the sample at the mirrored position in the batch; here it comes from a random
    permutation.

    Args:
        mix_alpha: Shape of mix-up's Beta distribution.
        cut_alpha: Shape of cut-mix's Beta distribution.
        cut_share: The probability of cut-mix; the rest is mix-up.
        per: Whether everything is drawn for each `sample` or once for the `batch`.
        probability: The probability that a sample (or the batch) is mixed at all.

    Reference:
        Touvron et al. (2021), Training data-efficient image transformers, table 9.
    """
    mix_beta, cut_beta = beta_sampler(mix_alpha), beta_sampler(cut_alpha)

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_images(x, "augmentation 'mix-or-cut'")
        y_BK = soft_targets(y, num_classes, x.dtype, "augmentation 'mix-or-cut'")
        size = (x.shape[2], x.shape[3])
        partner_B, uniform = partners_and_numbers(draw, per, 5)
        mixed_B = uniform[:, 1] < probability
        cut_B = uniform[:, 4] < cut_share
        share_B = torch.where(cut_B, cut_beta(uniform[:, 0]), mix_beta(uniform[:, 0]))
        share_B = share_B.masked_fill(~mixed_B, 1.0)
        row_B, column_B = whole_numbers(uniform[:, 2], size[0]), whole_numbers(uniform[:, 3], size[1])
        mask_BHW = area_mask(share_B, row_B, column_B, size).to(x.dtype)
        kept_B = torch.where(cut_B, 1 - mask_BHW.mean((1, 2)), share_B.to(x.dtype))
        weight_BHW = torch.where(cut_B[:, None, None], mask_BHW, 1 - share_B.to(x.dtype)[:, None, None])
        mixed = torch.lerp(x, x.index_select(0, partner_B), weight_BHW[:, None])
        return mixed, mix_targets(y_BK, partner_B, kept_B)

    return apply
