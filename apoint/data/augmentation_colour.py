"""Augmentation of colours: brightness, contrast, saturation and hue of whole batches of images.

Each change is a small function of images in [0, 1] and one number per image, and clamps its result to
[0, 1], as Pillow does.

Legend: B batch, C channel, H height, W width.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from apoint.data.augmentation_common import Augmentation, centred, per_sample, require_images
from apoint.data.streams import Draw
from apoint.errors import UsageError
from apoint.registry import register
from apoint.settings import NonNegative

Turn = Annotated[float, Field(ge=0, le=0.5)]
_LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey: ITU-R BT.601, as in Pillow


def grey(x: Tensor) -> Tensor:
    """Luma of RGB images, [B, 1, H, W]; for any other number of channels, the mean over channels."""
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    red, green, blue = x.unbind(1)
    return (_LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue)[:, None]


def change_brightness(x: Tensor, factor_B: Tensor) -> Tensor:
    """Multiply images by a factor."""
    return (x * per_sample(factor_B, x)).clamp_(0, 1)


def change_contrast(x: Tensor, factor_B: Tensor) -> Tensor:
    """Multiply the distance of each pixel from the image's mean grey by a factor."""
    mean = grey(x).mean((2, 3), keepdim=True)
    return torch.lerp(mean.expand_as(x), x, per_sample(factor_B, x)).clamp_(0, 1)


def change_saturation(x: Tensor, factor_B: Tensor) -> Tensor:
    """Multiply the distance of each pixel from its own grey by a factor."""
    return torch.lerp(grey(x).expand_as(x), x, per_sample(factor_B, x)).clamp_(0, 1)


def turn_hue(x: Tensor, turn_B: Tensor) -> Tensor:
    """Rotate the hue around the colour circle by a share of a full turn; value and saturation are kept.

    With v the largest of the three channels and c their range, a channel is v where the hue is within a
    sixth of a turn of that channel's own hue (red 0, green ⅓, blue ⅔), v − c beyond a third, and linear in
    between: v − c·clamp(d − 1, 0, 1), with d the distance on the circle in sixths of a turn.
    """
    red, green, blue = x.unbind(1)
    value_BHW = torch.maximum(torch.maximum(red, green), blue)
    range_BHW = value_BHW - torch.minimum(torch.minimum(red, green), blue)
    divisor = range_BHW.clamp_min(1e-12)  # grey has no hue; it has no effect since the range is 0
    # lerp by 0 or 1 selects exactly, several times as fast as torch.where; red comes last and wins ties.
    hue_BHW = (red - green).div_(divisor).add_(4)
    hue_BHW.lerp_((blue - red).div_(divisor).add_(2), (value_BHW == green).to(x.dtype))
    hue_BHW.lerp_((green - blue).div_(divisor), (value_BHW == red).to(x.dtype))
    hue_BHW.add_(6 * per_sample(turn_B, value_BHW))
    turned = torch.empty_like(x)
    for channel, own_hue in enumerate((0, 2, 4)):
        away_BHW = hue_BHW - own_hue
        away_BHW.sub_((away_BHW / 6).round_().mul_(6)).abs_().sub_(1).clamp_(0, 1)
        turned[:, channel] = value_BHW.addcmul(range_BHW, away_BHW, value=-1)
    return turned


@register("augmentation", "colour-jitter", inputs=("image",), depends_on_batch=False)
def colour_jitter(
    *,
    brightness: NonNegative = 0.2,
    contrast: NonNegative = 0.2,
    saturation: NonNegative = 0.0,
    hue: Turn = 0.0,
) -> Augmentation:
    """Change brightness, contrast, saturation and hue of images at random.

    Teaches invariance to lighting and camera. For the first three, a factor f is uniform on
    [max(0, 1−s), 1+s] with s the setting, and x′ = f·x + (1−f)·g, where g is black, the image's mean
    grey, or each pixel's grey; hue rotates around the colour circle by a share of a turn uniform on
    [−hue, hue]. Results are clamped to [0, 1] after each change. Like torchvision's `ColorJitter`, except
    that the order is fixed, as listed. Saturation and hue need three channels; otherwise they raise an error.

    Args:
        brightness: The largest relative change of brightness.
        contrast: The largest relative change of contrast.
        saturation: The largest relative change of saturation; needs colour images if above 0.
        hue: The largest rotation of the hue, at most half a circle; needs colour images if above 0.

    Reference:
        Howard (2013), Some improvements on deep convolutional neural network based image classification.
    """
    ranges = (brightness, contrast, saturation)
    changes = (change_brightness, change_contrast, change_saturation)

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_images(x, "augmentation 'colour-jitter'")
        _require_colour(x, saturation, hue)
        uniform = draw.uniform(4)
        for column, (change, radius) in enumerate(zip(changes, ranges, strict=True)):
            if radius > 0:
                least = max(0.0, 1 - radius)
                x = change(x, least + uniform[:, column] * (1 + radius - least))
        return (turn_hue(x, centred(uniform[:, 3], hue)) if hue > 0 else x), y

    return apply


def _require_colour(x: Tensor, saturation: float, hue: float) -> None:
    asked = " and ".join(name for name, value in (("saturation", saturation), ("hue", hue)) if value > 0)
    if asked and x.shape[1] != 3:
        raise UsageError(
            f"augmentation 'colour-jitter': {asked} above 0 needs images of 3 channels (red, green, blue), "
            f"got {x.shape[1]}; set {asked} to 0"
        )
