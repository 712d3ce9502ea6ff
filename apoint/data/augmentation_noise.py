"""Gaussian noise for whole batches; each sample's noise depends on the draw's key and its index alone.

`Draw.normal` gives the same guarantee, with 64-bit arithmetic and the Box-Muller transform: right for a
few numbers per sample, slow for one per pixel. Here 48 random bits per sample from the draw key a 32-bit
hash of the pixel's index, which processors vectorise, and the inverse error function makes it normal.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from apoint.data.augmentation_common import Augmentation, require_numbers
from apoint.data.streams import Draw
from apoint.registry import register
from apoint.settings import NotTruth

Deviation = Annotated[float, NotTruth, Field(ge=0, le=1e30)]
"""A standard deviation that fits in float32."""

_GOLDEN = 0x9E3779B9 - (1 << 32)  # odd, 2^32 divided by the golden ratio, as a signed word
_MIX_1, _MIX_2 = 0x7FEB352D, 0x846CA68B - (1 << 32)  # Wellons' low-bias 32-bit mixer


def _shift_right(words: Tensor, places: int) -> Tensor:
    """A logical shift: torch's `>>` keeps the sign bit, so the bits shifted in are cleared."""
    return (words >> places).bitwise_and_((1 << (32 - places)) - 1)


def hashed_words(first_B: Tensor, second_B: Tensor, count: int) -> Tensor:
    """Random 32-bit words [B, count] from two random words per sample and each word's index.

    The second word enters between the two multiplications, so that samples whose first words happen to
    be neighbours in the sequence of indices still share nothing.
    """
    place = torch.arange(1, count + 1, dtype=torch.int32, device=first_B.device).mul_(_GOLDEN)
    words = first_B[:, None] + place
    words.bitwise_xor_(_shift_right(words, 16)).mul_(_MIX_1)
    words.bitwise_xor_(second_B[:, None])
    words.bitwise_xor_(_shift_right(words, 15)).mul_(_MIX_2)
    return words.bitwise_xor_(_shift_right(words, 16))


def normal_noise(draw: Draw, *shape: int) -> Tensor:
    """Standard normal numbers of shape (batch, *shape), float32, none beyond 5.3 in magnitude."""
    bits_B2 = (draw.uniform(2) * 2**24).to(torch.int32) * _GOLDEN
    words = hashed_words(bits_B2[:, 0], bits_B2[:, 1], math.prod(shape))
    # 24 bits as the midpoints of 2^24 equal parts of (−1, 1): symmetric, and never ±1.
    uniform = words.bitwise_right_shift_(8).to(torch.float32).add_(0.5).mul_(2.0**-23)
    return uniform.erfinv_().mul_(math.sqrt(2)).view(-1, *shape)


def add_noise(x: Tensor, std: float, draw: Draw) -> Tensor:
    """x + std·ε with ε standard normal; images stay within [0, 1]."""
    noisy = torch.add(x, normal_noise(draw, *x.shape[1:]).to(x.dtype), alpha=std)
    return noisy.clamp_(0, 1) if x.dim() == 4 else noisy


@register("augmentation", "noise", inputs=("image", "signal", "vector"), depends_on_batch=False)
def noise(*, std: Deviation = 0.05) -> Augmentation:
    """Add Gaussian noise to every input number.

    To first order, equal to a penalty std²/2 · ‖∂f/∂x‖² on the network's slope:
    x′ = x + std·ε with ε ~ N(0, 1), independent for each number. Images are clamped to [0, 1] afterwards;
    signals are not.

    Args:
        std: Standard deviation of the noise, in units of the input (images are in [0, 1]).

    Reference:
        Bishop (1995), Training with noise is equivalent to Tikhonov regularization.
    """

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_numbers(x, "augmentation 'noise'")
        return (add_noise(x, std, draw) if std > 0 else x), y

    return apply
