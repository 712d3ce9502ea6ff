"""Augmentation of whole batches: all registered augmentations, and `compose`, which applies several in order.

An augmentation is a function `(x, y, draw, num_classes) -> (x, y)`. Images are [batch, channel, height,
width] in [0, 1], signals [batch, channel, length]; targets are class indices [batch] or soft targets
[batch, classes]. What happens to a sample depends on the draw's key and the sample's index alone, except
where the ingredient is registered with `depends_on_batch=True` (mixing, and filling with the batch mean).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from apoint.data.augmentation_colour import colour_jitter
from apoint.data.augmentation_common import Augmentation
from apoint.data.augmentation_geometry import affine, crop, flip
from apoint.data.augmentation_mixing import cut_mix, cut_out, mix_up
from apoint.data.augmentation_noise import noise
from apoint.data.augmentation_photos import mix_or_cut, random_erasing, random_resized_crop
from apoint.data.augmentation_random import rand_augment
from apoint.data.augmentation_signals import signal_scale, signal_shift
from apoint.data.streams import Draw
from apoint.registry import registry, split_spec
from apoint.settings import Spec

__all__ = [
    "Augmentation",
    "affine",
    "colour_jitter",
    "compose",
    "crop",
    "cut_mix",
    "cut_out",
    "flip",
    "mix_or_cut",
    "mix_up",
    "noise",
    "rand_augment",
    "random_erasing",
    "random_resized_crop",
    "signal_scale",
    "signal_shift",
]


def compose(specs: Sequence[Spec]) -> Augmentation:
    """Augmentations applied in order, each with its own draws.

    The draws are named by position and name, so the same augmentation may appear twice, and appending
    one does not change the results of those before it. An empty list returns the batch unchanged.
    """
    known = registry("augmentation")
    names = [f"{position}-{split_spec(spec, 'augmentation')[0]}" for position, spec in enumerate(specs)]
    steps: list[tuple[str, Augmentation]] = [
        (name, known.build(spec)) for name, spec in zip(names, specs, strict=True)
    ]

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        for name, step in steps:
            x, y = step(x, y, draw.child(name), num_classes)
        return x, y

    return apply
