"""Augmentations that move pixels: flip, padded random crop, small affine maps.

Legend: B batch, C channel, H height, W width.
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
    Direction,
    centred,
    require_images,
    whole_numbers,
)
from apoint.data.streams import Draw
from apoint.errors import UsageError
from apoint.registry import register
from apoint.settings import NotTruth, Share

Degrees = Annotated[float, Field(ge=0, le=180)]
ScaleRange = Annotated[float, Field(ge=0, lt=1)]
Edges = Literal["zeros", "reflect"]
Padding = Annotated[int, NotTruth, Field(ge=0, le=4096)]


def flip_chosen(x: Tensor, chosen_B: Tensor, dimension: int) -> Tensor:
    """A copy of the batch with the chosen samples reversed along one dimension."""
    rows = chosen_B.nonzero().squeeze(1)
    flipped = x.clone()
    return flipped.index_copy_(0, rows, x.index_select(0, rows).flip(dimension))


@register("augmentation", "flip", inputs=("image",), depends_on_batch=False)
def flip(*, probability: Share = 0.5, direction: Direction = "horizontal") -> Augmentation:
    """Mirror images at random.

    For classes that mirroring does not change (animals, clothes), not for digits or letters. With
    probability p each image x becomes x′[i, j] = x[i, W−1−j] (horizontal) or x[H−1−i, j] (vertical);
    `both` decides on the two directions independently. Same as torchvision's `RandomHorizontalFlip`
    and `RandomVerticalFlip`, on the whole batch at once.

    Args:
        probability: The probability p that an image is mirrored, in each enabled direction.
        direction: `horizontal` (swaps left and right), `vertical` (top and bottom), or `both`.

    Reference:
        Krizhevsky, Sutskever, Hinton (2012), ImageNet classification with deep convolutional neural
        networks, section 4.1.
    """
    dimensions = {"horizontal": (3,), "vertical": (2,), "both": (3, 2)}[direction]

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_images(x, "augmentation 'flip'")
        chosen = draw.uniform(len(dimensions)) < probability
        for column, dimension in enumerate(dimensions):
            x = flip_chosen(x, chosen[:, column], dimension)
        return x, y

    return apply


def crop_padded(x: Tensor, top_B: Tensor, left_B: Tensor, padding: int, edges: Edges) -> Tensor:
    """Windows of the original size, cut out of the padded images at (top, left).

    Every window of the padded batch, at any offset, is one row of a strided view that takes no
    memory; selecting B·C of these rows copies each image line by line, without an index per pixel.
    """
    batch, channels, height, width = x.shape
    mode = "constant" if edges == "zeros" else edges
    padded = F.pad(x, (padding,) * 4, mode=mode).contiguous()
    stride, area = width + 2 * padding, (height + 2 * padding) * (width + 2 * padding)
    num_windows = padded.numel() - (height - 1) * stride - (width - 1)
    windows = padded.view(-1).as_strided((num_windows, height, width), (1, stride, 1))
    plane_BC = torch.arange(batch * channels, device=x.device).view(batch, channels) * area
    start_BC = plane_BC + (top_B * stride + left_B)[:, None]
    return windows.index_select(0, start_BC.view(-1)).view_as(x)


@register("augmentation", "crop", inputs=("image",), depends_on_batch=False)
def crop(*, padding: Padding = 4, edges: Edges = "zeros") -> Augmentation:
    """Pad images and crop a window of the original size at a random position.

    Teaches invariance to small translations. With padding p, the image is shifted by (a, b), where a
    and b are independent and uniform on the whole numbers −p … p; pixels from outside are zero or
    the mirrored image. Same as torchvision's `RandomCrop(size, padding=p)`, on the whole batch.

    Args:
        padding: Pixels p added on each side, at most the side of the image (one less with `reflect`); 4 is
            the usual choice for images of 32×32. 0 changes nothing.
        edges: Content of the padding: `zeros`, or `reflect` for the image mirrored at its outermost pixels.

    Reference:
        He, Zhang, Ren, Sun (2016), Deep residual learning for image recognition, section 4.2.
    """

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_images(x, "augmentation 'crop'")
        if padding == 0:
            return x, y
        most = min(x.shape[2:]) - (edges == "reflect")
        if padding > most:
            raise UsageError(
                f"augmentation 'crop': padding must be at most {most} with edges={edges!r} and images of "
                f"{x.shape[2]}×{x.shape[3]}, got {padding}; use a smaller padding"
            )
        top_B, left_B = whole_numbers(draw.uniform(2), 2 * padding + 1).unbind(1)
        return crop_padded(x, top_B, left_B, padding, edges), y

    return apply


def transform_images(x: Tensor, radians_B: Tensor, scale_B: Tensor, shift_B2: Tensor) -> Tensor:
    """Rotate images counter-clockwise about their centre, scale them, then shift by (right, down) pixels.

    Each pixel of the result is read bilinearly at its position under the inverse map; outside the image is
    zero.
    """
    height, width = x.shape[2:]
    cosine_B, sine_B = radians_B.cos() / scale_B, radians_B.sin() / scale_B
    right_B, down_B = shift_B2.unbind(1)
    # Rows of the inverse map in pixels from the centre, y pointing down; then to affine_grid's [−1, 1].
    across_B3 = torch.stack((cosine_B, -sine_B, sine_B * down_B - cosine_B * right_B), 1)
    along_B3 = torch.stack((sine_B, cosine_B, -sine_B * right_B - cosine_B * down_B), 1)
    to_units = x.new_tensor([[1, height / width, 2 / width], [width / height, 1, 2 / height]])
    theta_B23 = torch.stack((across_B3, along_B3), 1).to(x.dtype) * to_units
    grid_BHW2 = F.affine_grid(theta_B23, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid_BHW2, mode="bilinear", padding_mode="zeros", align_corners=False)


@register("augmentation", "affine", inputs=("image",), depends_on_batch=False)
def affine(*, degrees: Degrees = 10.0, scale: ScaleRange = 0.0, shift: Share = 0.0) -> Augmentation:
    """Rotate, scale and shift images by small random amounts.

    Each image is rotated about its centre by an angle uniform on [−degrees, degrees], scaled by a
    factor uniform on [1−scale, 1+scale], and shifted across and down by shares of its sides uniform on
    [−shift, shift]; pixels are interpolated bilinearly, with zeros outside the image. Differs from
    torchvision's `RandomAffine`: no shear, translation by fractions of a pixel, bilinear by default.

    Args:
        degrees: The largest angle, in degrees, in either direction.
        scale: The largest change of size: 0.1 makes images 10 % smaller to 10 % larger.
        shift: The largest translation as a share of the image's side.

    Reference:
        Simard, Steinkraus, Platt (2003), Best practices for convolutional neural networks applied to
        visual document analysis, section 2.
    """

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_images(x, "augmentation 'affine'")
        angle_B, size_B, across_B, down_B = draw.uniform(4).to(x.dtype).unbind(1)
        shift_B2 = torch.stack(
            (centred(across_B, shift * x.shape[3]), centred(down_B, shift * x.shape[2])), 1
        )
        radians_B = centred(angle_B, math.radians(degrees))
        return transform_images(x, radians_B, 1 + centred(size_B, scale), shift_B2), y

    return apply
