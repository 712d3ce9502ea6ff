"""Augmentations of one-dimensional signals: shift in time, scale in amplitude.

Legend: B batch, C channel, L length.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from apoint.data.augmentation_common import (
    Augmentation,
    centred,
    per_sample,
    require_signals,
    whole_numbers,
)
from apoint.data.streams import Draw
from apoint.errors import UsageError
from apoint.registry import register
from apoint.settings import WholeNumber

ScaleRange = Annotated[float, Field(ge=0, le=1)]


def shift_signals(x: Tensor, shift_B: Tensor, edges: Literal["roll", "zeros"]) -> Tensor:
    """Shift signals to the right by whole samples, wrapping around or with zeros coming in."""
    length = x.shape[2]
    source_BL = torch.arange(length, device=x.device) - shift_B[:, None]
    moved = x.gather(2, source_BL.remainder(length)[:, None, :].expand_as(x))
    if edges == "roll":
        return moved
    outside_BL = (source_BL < 0) | (source_BL >= length)
    return moved.masked_fill_(outside_BL[:, None, :], 0)


@register("augmentation", "signal-shift", inputs=("signal",), depends_on_batch=False)
def signal_shift(*, shift: WholeNumber = 4, edges: Literal["roll", "zeros"] = "roll") -> Augmentation:
    """Shift signals in time by a random number of samples.

    Teaches invariance to shifts in time: x′[t] = x[t − a] with a uniform on the whole numbers
    −shift … shift; values that leave at one end come in at the other (`roll`, as in `torch.roll`), or zeros
    come in.

    Args:
        shift: The largest shift, in samples of the signal; must be less than its length.
        edges: The values that come in at the end: `roll` for the signal's other end, or `zeros`.

    Reference:
        Um et al. (2017), Data augmentation of wearable sensor data for Parkinson's disease monitoring using
        convolutional neural networks.
    """

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_signals(x, "augmentation 'signal-shift'")
        if shift >= x.shape[2]:
            raise UsageError(
                f"augmentation 'signal-shift': shift must be less than the signal's length, "
                f"got {shift} for signals of length {x.shape[2]}; use a smaller shift"
            )
        return shift_signals(x, whole_numbers(draw.uniform(), 2 * shift + 1) - shift, edges), y

    return apply


@register("augmentation", "signal-scale", inputs=("signal",), depends_on_batch=False)
def signal_scale(*, scale: ScaleRange = 0.1) -> Augmentation:
    """Multiply signals by a random factor.

    Teaches invariance to amplitude: x′ = f·x with f uniform on [1−scale, 1+scale], one factor for all
    channels of a sample. The paper draws f from a normal distribution with mean 1; the bounded one cannot
    flip a signal's sign.

    Args:
        scale: The largest relative change of amplitude, at most 1.

    Reference:
        Um et al. (2017), Data augmentation of wearable sensor data for Parkinson's disease monitoring using
        convolutional neural networks.
    """

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_signals(x, "augmentation 'signal-scale'")
        return x * per_sample(1 + centred(draw.uniform(), scale), x), y

    return apply
