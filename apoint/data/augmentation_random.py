"""Rand-augment: a few operations on each image, drawn from a list, at one common strength.

An operation is a function of images in [0, 1] and one signed level in [−1, 1] per image. The magnitude of the
level sets the strength of the operation, its sign the direction, if there is one. Each operation is applied
to all images that drew it at once.

Legend: B batch, C channel, H height, W width, N operations in a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from apoint.data.augmentation_colour import change_brightness, change_contrast, change_saturation
from apoint.data.augmentation_common import Augmentation, per_sample, require_images, whole_numbers
from apoint.data.streams import Draw
from apoint.registry import register
from apoint.settings import NonNegative, NotTruth, Share

Operation = Callable[[Tensor, Tensor], Tensor]
OperationCount = Annotated[int, NotTruth, Field(ge=1, le=100)]
Magnitude = Annotated[float, Field(ge=0, le=10)]
LEVELS = 255
ROTATION, SHEAR, SHIFT, COLOUR, ADDED = math.radians(30), 0.3, 0.45, 0.9, 110 / 255
"""Values at level 1: 30 degrees, a shear of 0.3, 45 % of a side, a factor of 1 ± 0.9, 110 grey levels."""
GREY = 0.5
"""The value of pixels from outside the image."""


def warp(x: Tensor, map_B23: Tensor) -> Tensor:
    """Read images bilinearly at the positions of a linear map, in pixels (across, down) from the centre."""
    height, width = x.shape[2:]
    to_units = x.new_tensor([[1, height / width, 2 / width], [width / height, 1, 2 / height]])
    grid_BHW2 = F.affine_grid(map_B23.to(x.dtype) * to_units, list(x.shape), align_corners=False)
    read = F.grid_sample(x - GREY, grid_BHW2, mode="bilinear", padding_mode="zeros", align_corners=False)
    return read.add_(GREY).clamp_(0, 1)


def _maps(level_B: Tensor, **entries: Tensor) -> Tensor:
    """Identity maps [B, 2, 3] with some entries, such as `a01`, replaced."""
    maps = torch.eye(2, 3, dtype=level_B.dtype, device=level_B.device).repeat(len(level_B), 1, 1)
    for name, value_B in entries.items():
        maps[:, int(name[1]), int(name[2])] = value_B
    return maps


def rotate(x: Tensor, level_B: Tensor) -> Tensor:
    """Rotate about the centre."""
    cosine_B, sine_B = (level_B * ROTATION).cos(), (level_B * ROTATION).sin()
    return warp(x, _maps(level_B, a00=cosine_B, a01=-sine_B, a10=sine_B, a11=cosine_B))


def shear_across(x: Tensor, level_B: Tensor) -> Tensor:
    """Shift rows against each other; the middle one stays."""
    return warp(x, _maps(level_B, a01=level_B * SHEAR))


def shear_along(x: Tensor, level_B: Tensor) -> Tensor:
    """Shift columns against each other; the middle one stays."""
    return warp(x, _maps(level_B, a10=level_B * SHEAR))


def move_across(x: Tensor, level_B: Tensor) -> Tensor:
    """Shift to the left or right."""
    return warp(x, _maps(level_B, a02=level_B * SHIFT * x.shape[3]))


def move_along(x: Tensor, level_B: Tensor) -> Tensor:
    """Shift up or down."""
    return warp(x, _maps(level_B, a12=level_B * SHIFT * x.shape[2]))


def stretch_contrast(x: Tensor, level_B: Tensor) -> Tensor:
    """Stretch each channel to the range from 0 to 1; a constant channel is unchanged."""
    least, most = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    spread = most - least
    return torch.where(spread > 0, (x - least) / spread.clamp_min(1e-12), x).clamp_(0, 1)


def equalise(x: Tensor, level_B: Tensor) -> Tensor:
    """Spread grey levels so that equal ranges hold equally many pixels; channel by channel, as in Pillow."""
    bytes_ = (x * LEVELS).round().long().flatten(2)
    counts = torch.zeros(*bytes_.shape[:2], 256, dtype=torch.int64, device=x.device)
    counts.scatter_add_(2, bytes_, torch.ones_like(bytes_))
    brightest = bytes_.amax(2, keepdim=True)
    step = (bytes_.shape[2] - counts.gather(2, brightest)) // LEVELS
    below = counts.cumsum(2) - counts
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=LEVELS)
    spread = table.gather(2, bytes_).view_as(x).to(x.dtype) / LEVELS
    return torch.where((step > 0)[..., None], spread, x)


def invert(x: Tensor, level_B: Tensor) -> Tensor:
    """Swap light and dark."""
    return 1 - x


def posterise(x: Tensor, level_B: Tensor) -> Tensor:
    """Keep the highest bits of each grey level, from four at level 0 down to one."""
    bits_B = (4 - (level_B.abs() * 4).long()).clamp(min=1)
    step = per_sample(2 ** (8 - bits_B), x)
    bytes_ = (x * LEVELS).round()
    return (bytes_ - bytes_.remainder(step)) / LEVELS


def solarise(x: Tensor, level_B: Tensor) -> Tensor:
    """Invert pixels that are at least as bright as 1 − level."""
    return torch.where(x >= 1 - per_sample(level_B.abs(), x), 1 - x, x)


def brighten_dark(x: Tensor, level_B: Tensor) -> Tensor:
    """Brighten pixels darker than the middle, up to white."""
    return torch.where(x < 128 / LEVELS, (x + ADDED * per_sample(level_B.abs(), x)).clamp(max=1), x)


def change_sharpness(x: Tensor, level_B: Tensor) -> Tensor:
    """Multiply each pixel's distance from a mean with its eight neighbours by a factor; the edge stays."""
    channels, (height, width) = x.shape[1], x.shape[2:]
    if min(height, width) < 3:
        return x
    kernel = x.new_ones(channels, 1, 3, 3)
    kernel[:, :, 1, 1] = 5
    smooth = x.clone()
    smooth[:, :, 1:-1, 1:-1] = F.conv2d(x, kernel / 13, groups=channels)
    return torch.lerp(smooth, x, per_sample(_factor(level_B), x)).clamp_(0, 1)


def _factor(level_B: Tensor) -> Tensor:
    return 1 + COLOUR * level_B


OPERATIONS: dict[str, Operation] = {
    "stretch-contrast": stretch_contrast,
    "equalise": equalise,
    "invert": invert,
    "rotate": rotate,
    "posterise": posterise,
    "solarise": solarise,
    "brighten-dark": brighten_dark,
    "saturation": lambda x, level_B: change_saturation(x, _factor(level_B)),
    "contrast": lambda x, level_B: change_contrast(x, _factor(level_B)),
    "brightness": lambda x, level_B: change_brightness(x, _factor(level_B)),
    "sharpness": change_sharpness,
    "shear-across": shear_across,
    "shear-along": shear_along,
    "move-across": move_across,
    "move-along": move_along,
}


@register("augmentation", "rand-augment", inputs=("image",), depends_on_batch=False)
def rand_augment(
    *,
    num_operations: OperationCount = 2,
    magnitude: Magnitude = 9.0,
    deviation: NonNegative = 0.5,
    probability: Share = 0.5,
) -> Augmentation:
    """A few operations on each image, drawn at random from fifteen, at one common strength.

    Two numbers replace the search for a policy. Each of `num_operations` times, an image draws one of:
    contrast stretching, histogram equalisation, inversion, rotation, fewer bits, solarising, brightening of
    dark parts, saturation, contrast, brightness, sharpness, shear or shift in either direction. Its level is
    (magnitude + deviation·ε)/10 with ε ~ N(0, 1), clamped to [0, 1], with a random sign where there are two
    directions; level 1 means 30 degrees, a shear of 0.3, 45 % of a side, a factor of 1 ± 0.9. These are the
    operations and ranges of timm's `rand-m9-mstd0.5-inc1`, except that images are sheared about their centre,
    that at least one bit is kept, and that the outside of an image is grey.

    Args:
        num_operations: The number of operations drawn for an image, applied one after the other.
        magnitude: Their common strength, from 0 to 10.
        deviation: The standard deviation of the strength.
        probability: The probability that a drawn operation is applied.

    Reference:
        Cubuk et al. (2020), RandAugment: practical automated data augmentation with a reduced search space.
    """
    operations = list(OPERATIONS.values())

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_images(x, "augmentation 'rand-augment'")
        uniform_BN3, normal_BN = draw.uniform(num_operations, 3), draw.normal(num_operations).to(x.dtype)
        level_BN = ((magnitude + deviation * normal_BN) / 10).clamp(0, 1)
        level_BN = torch.where(uniform_BN3[..., 1] < 0.5, -level_BN, level_BN)
        chosen_BN = whole_numbers(uniform_BN3[..., 0], len(operations))
        chosen_BN = chosen_BN.masked_fill(uniform_BN3[..., 2] >= probability, -1)
        x = x.contiguous()
        for level_B, chosen_B in zip(level_BN.unbind(1), chosen_BN.unbind(1), strict=True):
            x = _applied(x, level_B, chosen_B, operations)
        return x, y

    return apply


def _applied(x: Tensor, level_B: Tensor, chosen_B: Tensor, operations: list[Operation]) -> Tensor:
    """A copy of the batch with each image's drawn operation applied; −1 is none."""
    done = x.clone()
    for number in sorted({*chosen_B.tolist()} - {-1}):
        rows = (chosen_B == number).nonzero().squeeze(1)
        done.index_copy_(0, rows, operations[number](x.index_select(0, rows), level_B.index_select(0, rows)))
    return done
