"""Deficits of the training images, as in studies of critical periods; label deficits are re-exported.

A deficit is a function `(x, y, draw, strength, num_classes) -> (x, y)`; at strength 0 it returns its
inputs unchanged. The engine sets the window of epochs and the strength; the settings here only define the
kind of impairment. Where half an impairment makes sense, strength blends; otherwise it is a share of samples.

Legend: B batch, C channel, H height, W width.
"""

from __future__ import annotations

import functools
import math
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from apoint.data.augmentation_common import (
    Direction,
    box_mask,
    paste,
    require_images,
    require_numbers,
    whole_numbers,
)
from apoint.data.augmentation_geometry import transform_images
from apoint.data.augmentation_noise import add_noise, normal_noise
from apoint.data.deficits_common import Deficit, blended, shared_out
from apoint.data.deficits_labels import permuted_labels, random_labels
from apoint.data.streams import Draw
from apoint.errors import UsageError
from apoint.registry import register
from apoint.settings import NotTruth, Real, Share

__all__ = [
    "Deficit",
    "blur",
    "flip",
    "gaussian_blur",
    "missing",
    "noise",
    "permuted_labels",
    "random_labels",
    "rotation",
]

Sigma = Annotated[float, NotTruth, Field(gt=0, le=1000)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Deviation = Annotated[float, NotTruth, Field(gt=0, le=1e30)]
Part = Annotated[float, Field(gt=0, le=1)]
Place = Literal[
    "top",
    "bottom",
    "left",
    "right",
    "top-left",
    "top-right",
    "bottom-left",
    "bottom-right",
    "centre",
    "random",
]


@functools.lru_cache(maxsize=64)
def resampling_matrix(size: int, factor: float) -> Tensor:
    """The linear map [size, size] that shrinks a line of pixels by a factor and enlarges it again.

    Both steps are bilinear; shrinking averages over the pixels that merge (a triangle filter, as in Pillow).
    """
    small = max(1, round(size / factor))
    identity = torch.eye(size, dtype=torch.float64)[None, None]
    shrunk = F.interpolate(identity, size=(small, size), mode="bilinear", antialias=True)
    return F.interpolate(shrunk, size=(size, size), mode="bilinear", align_corners=False)[0, 0]


@functools.lru_cache(maxsize=64)
def gaussian_matrix(size: int, sigma: float) -> Tensor:
    """The linear map [size, size] that smooths a line of pixels, mirrored at its ends (… 1 0 | 0 1 2 …)."""
    radius = int(4 * sigma + 0.5)
    offset = torch.arange(-radius, radius + 1, dtype=torch.float64)
    weight = torch.exp(-0.5 * (offset / sigma) ** 2)
    target = torch.arange(size)[:, None].expand(-1, len(offset))
    source = (target + offset.long()).remainder(2 * size)
    source = torch.minimum(source, 2 * size - 1 - source)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return matrix.index_put_((target, source), (weight / weight.sum()).expand_as(source), accumulate=True)


def smooth(x: Tensor, along_HH: Tensor, across_WW: Tensor) -> Tensor:
    """A separable linear filter: one matrix applied to the columns, one to the rows of every image."""
    return along_HH.to(x) @ x @ across_WW.to(x).T


@register("deficit", "blur", course="B1", strength="blend")
def blur(*, factor: Factor = 4.0) -> Deficit:
    """Blur images by shrinking them and enlarging them again, like a cataract.

    The deficit of the experiments on critical periods. An image of H×W is resized to H/factor × W/factor
    (rounded, at least 1) with averaging, and back to H×W bilinearly: 32×32 → 8×8 → 32×32 at the paper's
    factor of 4. The paper does not say how it shrinks images; here it is done as in Pillow, without aliasing.
    Strength s blends: (1−s)·x + s·blurred.

    Args:
        factor: How many times smaller the intermediate image is; 1 changes nothing.

    Reference:
        Achille, Rovere, Soatto (2019), Critical learning periods in deep networks.
    """

    def impair(x: Tensor, draw: Draw) -> Tensor:
        require_images(x, "deficit 'blur'")
        return smooth(x, resampling_matrix(x.shape[2], factor), resampling_matrix(x.shape[3], factor))

    return blended("deficit 'blur'", impair)


@register("deficit", "gaussian-blur", course="B1", strength="blend")
def gaussian_blur(*, sigma: Sigma = 2.0) -> Deficit:
    """Blur images with a Gaussian filter.

    A smooth alternative to `blur` with a continuous cut-off: weights ∝ exp(−d²/(2·sigma²)) at distance d
    pixels, up to 4·sigma, with the image mirrored at its edges, as in scipy's `gaussian_filter`. Not in the
    paper. Strength s blends: (1−s)·x + s·blurred.

    Args:
        sigma: Standard deviation of the filter in pixels. 2 removes about as much as `blur` by 4: both halve
            waves about 11 pixels long.

    Reference:
        Vogelsang et al. (2018), Potential downside of high initial visual acuity, PNAS 115.
    """

    def impair(x: Tensor, draw: Draw) -> Tensor:
        require_images(x, "deficit 'gaussian-blur'")
        return smooth(x, gaussian_matrix(x.shape[2], sigma), gaussian_matrix(x.shape[3], sigma))

    return blended("deficit 'gaussian-blur'", impair)


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Rotate images counter-clockwise: exactly for multiples of 90°, else bilinearly with zeros outside."""
    quarters, rest = divmod(degrees % 360, 90)
    if rest == 0:
        return torch.rot90(x, int(quarters), (2, 3))
    radians_B = x.new_full((len(x),), math.radians(degrees))
    return transform_images(x, radians_B, torch.ones_like(radians_B), x.new_zeros(len(x), 2))


@register("deficit", "rotation", course="B1 B10", strength="share")
def rotation(*, degrees: Real = 90.0) -> Deficit:
    """Rotate all images by the same angle.

    A mild deficit: low-level statistics are unchanged, and networks recover from it. Multiples of 90°
    move pixels exactly (`torch.rot90`); other angles interpolate bilinearly about the centre, with zeros
    outside the image. Half a rotation would be two images in one, so strength is the share of images
    that are rotated.

    Args:
        degrees: The angle, counter-clockwise. 90 and 270 need square images.

    Reference:
        The course's notes, section 1.2; Achille, Rovere, Soatto (2019), Critical learning periods in deep
        networks.
    """

    def impair(x: Tensor, draw: Draw) -> Tensor:
        require_images(x, "deficit 'rotation'")
        if degrees % 180 == 90 and x.shape[2] != x.shape[3]:
            raise UsageError(
                f"deficit 'rotation': degrees={degrees:g} needs square images, got "
                f"{x.shape[2]}×{x.shape[3]}; use 180 or another dataset"
            )
        return rotate(x, degrees)

    return shared_out("deficit 'rotation'", impair)


@register("deficit", "flip", course="B1 B10", strength="share")
def flip(*, direction: Direction = "vertical") -> Deficit:
    """Flip all images, by default upside down.

    The paper's mild deficit: the network learns all it needs, about an upside-down world, and recovers.
    x′[i, j] = x[H−1−i, j]. Half a flip would be two images in one, so strength is the share of images that
    are flipped.

    Args:
        direction: `vertical` as in the paper, `horizontal` (swaps left and right), or `both`.

    Reference:
        Achille, Rovere, Soatto (2019), Critical learning periods in deep networks.
    """
    dimensions = {"horizontal": (3,), "vertical": (2,), "both": (2, 3)}[direction]

    def impair(x: Tensor, draw: Draw) -> Tensor:
        require_images(x, "deficit 'flip'")
        return x.flip(dimensions)

    return shared_out("deficit 'flip'", impair)


def missing_mask(place: Place, part: float, draw: Draw, size: tuple[int, int]) -> Tensor:
    """True where pixels are missing, [B, H, W]: a strip, a corner, or a box at the centre or anywhere."""
    height, width = size
    high = height if place in ("left", "right") else max(1, round(part * height))
    wide = width if place in ("top", "bottom") else max(1, round(part * width))
    if place == "random":
        uniform = draw.uniform(2)
        top_B = whole_numbers(uniform[:, 0], height - high + 1)
        left_B = whole_numbers(uniform[:, 1], width - wide + 1)
    else:
        top = (height - high) // 2 if place == "centre" else height - high if "bottom" in place else 0
        left = (width - wide) // 2 if place == "centre" else width - wide if "right" in place else 0
        top_B, left_B = torch.full_like(draw.index_B, top), torch.full_like(draw.index_B, left)
    return box_mask(top_B, left_B, torch.full_like(top_B, high), torch.full_like(left_B, wide), size)


@register("deficit", "missing", course="B1", strength="blend")
def missing(*, place: Place = "bottom", part: Part = 0.5, fill: Share = 0.0) -> Deficit:
    """Leave out a part of every image.

    The network cannot learn to use what it does not see. A strip (`top`, `bottom`, `left`, `right`), a
    corner, or a box (`centre`, or `random`: anywhere inside, redrawn for each image and epoch) covers `part`
    of the image's height, width or both, rounded to pixels and at least one. Not in the paper; the course
    adds incomplete images. Strength s blends: the part fades from its original content to the fill.

    Args:
        place: Which part is missing.
        part: The share of the side that is missing: 0.5 is a half for strips, a quadrant for corners.
        fill: The grey level in [0, 1] shown instead.

    Reference:
        The course's notes, section 1.2.
    """

    def impair(x: Tensor, draw: Draw) -> Tensor:
        require_images(x, "deficit 'missing'")
        mask_BHW = missing_mask(place, part, draw, (x.shape[2], x.shape[3]))
        return paste(x, x.new_full((1, 1, 1, 1), fill), mask_BHW)

    return blended("deficit 'missing'", impair)


@register("deficit", "noise", course="B1", strength="blend")
def noise(*, how: Literal["replace", "add"] = "replace", std: Deviation = 0.25) -> Deficit:
    """Replace images by noise (sensory deprivation), or add noise to them.

    With `replace`, as in the paper, nothing of the image is left: x′ = ½ + std·ε for images and std·ε for
    other inputs; with `add`, x′ = x + std·ε. ε ~ N(0, 1), independent for each number and redrawn in each
    epoch; images are clamped to [0, 1]. The paper does not give the distribution of its noise. Strength s
    blends: (1−s)·x + s·x′.

    Args:
        how: `replace` the input, or `add` to it.
        std: Standard deviation of the noise, in units of the input (images are in [0, 1]).

    Reference:
        Achille, Rovere, Soatto (2019), Critical learning periods in deep networks.
    """

    def impair(x: Tensor, draw: Draw) -> Tensor:
        require_numbers(x, "deficit 'noise'")
        if how == "add":
            return add_noise(x, std, draw)
        alone = normal_noise(draw, *x.shape[1:]).to(x.dtype).mul_(std)
        return alone.add_(0.5).clamp_(0, 1) if x.dim() == 4 else alone

    return blended("deficit 'noise'", impair)
