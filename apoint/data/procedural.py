"""The package's own image dataset, generated on the fly, with adjustable difficulty and spatial frequencies.

A class is a texture (a sum of three oriented waves) seen through a blob with its own outline. A sample is
that picture shifted and rotated, with its waves out of phase and its contrast lowered, overlaid with
another class's texture and with noise. Every sample is a function of (seed, split, index), so a larger
dataset begins with the smaller one.

Legend: N samples, K classes, V waves, C channel, H height, W width, P pixels = H·W.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from apoint.data.augmentation_common import centred, whole_numbers
from apoint.data.augmentation_noise import normal_noise
from apoint.data.core import Facts, Source, Split
from apoint.data.memory import Amount, refuse_too_large
from apoint.data.streams import Draw, key
from apoint.errors import UsageError
from apoint.registry import register
from apoint.settings import NonNegative, Positive, Share, WholeNumber

Side = Annotated[int, Field(ge=8, le=16384)]
NumClasses = Annotated[int, Field(ge=2, le=100_000)]
Frequency = Literal["low", "mixed", "high"] | Positive

_NUM_WAVES = 3
_NUM_LOBES = 3  # Fourier terms of a blob's outline, of 2, 3 and 4 lobes
_CHUNK = 2048  # samples drawn at a time, which bounds memory


@dataclass(frozen=True)
class Prototypes:
    """The parameters that define each class.

    Attributes:
        cycles_KV: Spatial frequency of each wave, in cycles per image.
        angle_KV: Its direction, in radians.
        phase_KV: Its phase at the image's centre, in radians.
        colour_KVC: Its amplitude in each channel.
        lobe_size_KJ: Size of each Fourier term of the blob's outline.
        lobe_angle_KJ: Its phase, in radians.
    """

    cycles_KV: Tensor
    angle_KV: Tensor
    phase_KV: Tensor
    colour_KVC: Tensor
    lobe_size_KJ: Tensor
    lobe_angle_KJ: Tensor


def frequency_band(frequency: str | float, size: int) -> tuple[float, float]:
    """The lowest and highest spatial frequency, in cycles per image."""
    highest = 3 * size / 8
    if isinstance(frequency, str):
        return {"low": (1.0, size / 8), "mixed": (1.0, highest), "high": (size / 4, highest)}[frequency]
    if frequency > size / 2:
        raise UsageError(
            f"dataset 'procedural': frequency must be at most half of size, which is {size / 2:g} cycles per "
            f"image, got {frequency:g}; waves beyond it cannot be drawn, so lower it or raise size"
        )
    return float(frequency), float(frequency)


def draw_prototypes(seed: int, num_classes: int, channels: int, band: tuple[float, float]) -> Prototypes:
    """The classes for a seed; a class stays the same if more are added."""
    draw = Draw(key(seed, "procedural-class"), torch.arange(num_classes))
    wave_KV4 = draw.child("waves").uniform(_NUM_WAVES, 4)
    colour_KVC = 0.5 + 0.5 * draw.child("colours").uniform(_NUM_WAVES, channels)
    lobe_KJ2 = draw.child("outline").uniform(_NUM_LOBES, 2)
    low, high = band
    return Prototypes(
        cycles_KV=low * (high / low) ** wave_KV4[:, :, 0],
        angle_KV=math.pi * wave_KV4[:, :, 1],
        phase_KV=2 * math.pi * wave_KV4[:, :, 2],
        colour_KVC=colour_KVC / colour_KVC.sum(1, keepdim=True),
        lobe_size_KJ=0.25 * lobe_KJ2[:, :, 0],
        lobe_angle_KJ=2 * math.pi * lobe_KJ2[:, :, 1],
    )


def moved_grid(size: int, turn_N: Tensor, shift_N2: Tensor) -> tuple[Tensor, Tensor]:
    """Each pixel's position in the class's picture: across and down from its centre, in shares of a side."""
    line = (torch.arange(size) + 0.5) / size - 0.5
    down_P, across_P = (part.reshape(-1) for part in torch.meshgrid(line, line, indexing="ij"))
    across_NP, down_NP = across_P - shift_N2[:, :1], down_P - shift_N2[:, 1:]
    cosine_N, sine_N = turn_N.cos()[:, None], turn_N.sin()[:, None]
    return cosine_N * across_NP + sine_N * down_NP, cosine_N * down_NP - sine_N * across_NP


def textures(
    known: Prototypes, label_N: Tensor, across_NP: Tensor, down_NP: Tensor, step_NV: Tensor
) -> Tensor:
    """The waves of each sample's class at each pixel, with phases shifted by `step`: [N, C, P] in [−1, 1]."""
    total = across_NP.new_zeros(len(label_N), known.colour_KVC.shape[2], across_NP.shape[1])
    for wave in range(_NUM_WAVES):
        angle_N = known.angle_KV[label_N, wave]
        cycles_N = known.cycles_KV[label_N, wave]
        along_NP = angle_N.cos()[:, None] * across_NP + angle_N.sin()[:, None] * down_NP
        phase_N = known.phase_KV[label_N, wave] + step_NV[:, wave]
        wave_NP = torch.cos(2 * math.pi * cycles_N[:, None] * along_NP + phase_N[:, None])
        total.addcmul_(known.colour_KVC[label_N, wave][:, :, None], wave_NP[:, None])
    return total


def blobs(known: Prototypes, label_N: Tensor, across_NP: Tensor, down_NP: Tensor) -> Tensor:
    """The soft mask of each sample's class, [N, P]: 1 inside its outline, 0 outside, steep in between."""
    radius_NP = torch.hypot(across_NP, down_NP)
    around_NP = torch.atan2(down_NP, across_NP)
    edge_NP = torch.full_like(radius_NP, 0.38)
    for term in range(_NUM_LOBES):
        size_N, start_N = known.lobe_size_KJ[label_N, term], known.lobe_angle_KJ[label_N, term]
        edge_NP += 0.38 * size_N[:, None] * torch.cos((term + 2) * around_NP + start_N[:, None])
    return torch.sigmoid((edge_NP - radius_NP) * 40)


def draw_images(
    known: Prototypes, draw: Draw, label_N: Tensor, size: int, difficulty: float, noise: float
) -> Tensor:
    """One image per label, uint8 [N, C, H, W]; see `procedural` for the effect of the difficulty."""
    channels = known.colour_KVC.shape[2]
    reach = math.sqrt(difficulty)
    uniform = draw.uniform(6)
    shift_N2 = centred(uniform[:, :2], 0.15 * reach)
    turn_N = centred(uniform[:, 2], 0.2 * math.pi * reach)
    step_NV = centred(draw.child("phase").uniform(_NUM_WAVES), 0.4 * math.pi * reach)
    contrast_N = 1 - uniform[:, 3] * (0.2 + 0.6 * reach)
    overlay_N = 0.4 * reach * uniform[:, 4]
    num_classes = len(known.cycles_KV)
    other_N = (label_N + 1 + whole_numbers(uniform[:, 5], num_classes - 1)) % num_classes
    place = moved_grid(size, turn_N, shift_N2)
    own_NCP = textures(known, label_N, *place, step_NV)
    foreign_NCP = textures(known, other_N, *place, step_NV)
    seen_NCP = torch.lerp(own_NCP, foreign_NCP, overlay_N[:, None, None])
    picture_NCP = blobs(known, label_N, *place)[:, None] * seen_NCP * contrast_N[:, None, None]
    std = 0.02 + noise * reach
    grain_NCP = normal_noise(draw.child("noise"), channels, size * size)
    grey_NCP = 0.5 + 0.45 * picture_NCP + std * grain_NCP
    return (grey_NCP.clamp_(0, 1) * 255).round_().to(torch.uint8).view(-1, channels, size, size)


@register("dataset", "procedural")
def procedural(
    *,
    num_classes: NumClasses = 10,
    num_train: Amount = 4000,
    num_test: Amount = 1000,
    size: Side = 16,
    channels: Amount = 1,
    difficulty: Share = 0.3,
    frequency: Frequency = "mixed",
    noise: NonNegative = 0.2,
    seed: WholeNumber = 0,
) -> Source:
    """Textured blobs in any number of classes, with adjustable difficulty and spatial frequency.

    For quick experiments without a download on what a network does with coarse or fine detail: a blur by 4
    keeps about half of the contrast of `low` and 4 % of that of `high`. A class is the sum of three waves of
    random direction, phase and colour, seen through a blob of random outline. With r = √difficulty, a sample
    is shifted by up to 0.15·r of the image and rotated by up to 36°·r, its waves are shifted in phase by up
    to 72°·r, its contrast is lowered by up to 20 % + 60 %·r, up to 40 %·r of its texture is another class's,
    and Gaussian noise of standard deviation 0.02 + noise·r is added. Class sizes differ by at most one
    sample.

    Test accuracy in percent at difficulty 0 / 0.3 / 0.6 / 0.9 with the other settings at their defaults, mean
    over seeds 0, 1, 2; chance is 10. scikit-learn's MLP (one layer of 128, 25 epochs): 100 / 87 / 49 / 28;
    its logistic regression: 100 / 83 / 45 / 26; 5 nearest neighbours: 100 / 88 / 35 / 17; a convolutional
    network of three layers after 8 epochs: 100 / 97 / 72 / 45. With frequency `high` the MLP falls to
    100 / 64 / 18 / 12 and the convolutional network to 100 / 91 / 51 / 27.

    Args:
        num_classes: Number of classes.
        num_train: Number of training images; a larger set begins with the smaller one.
        num_test: Number of test images.
        size: Height and width in pixels.
        channels: Number of channels; with 3 the textures are coloured.
        difficulty: From 0 (almost a template match) to 1 (close to chance for most methods).
        frequency: Detail of the textures: `low` (1 to size/8 cycles per image), `high` (size/4 to 3·size/8),
            `mixed` (1 to 3·size/8, log-uniform), or a number of cycles per image for all waves.
        noise: Standard deviation of the pixel noise that difficulty 1 adds, for images in [0, 1].
        seed: Selects the classes and the samples.

    Reference:
        None: the dataset is this package's own.
    """
    numbers = (num_train + num_test + num_classes) * channels * size * size
    refuse_too_large(4 * numbers, "dataset 'procedural'")
    band = frequency_band(frequency, size)
    known = draw_prototypes(seed, num_classes, channels, band)

    def split(name: str, count: int) -> Split:
        index = torch.arange(count)
        label = index % num_classes
        parts = [
            draw_images(
                known, Draw(key(seed, f"procedural-{name}"), rows), label[rows], size, difficulty, noise
            )
            for rows in torch.split(index, _CHUNK)
        ]
        return Split(torch.cat(parts), label)

    names = tuple(f"texture {label}" for label in range(num_classes))
    facts = Facts("image", "classification", (channels, size, size), num_classes, names)
    return Source(facts, split("train", num_train), split("test", num_test))
