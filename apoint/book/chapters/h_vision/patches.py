"""H4: how many patches an image has, and how many numbers each of them."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from apoint.book.claim import exercise
from apoint.book.evidence import Number, same


@exercise(
    "llm 1",
    "H4",
    question=r"""
    An image of $H\times W$ pixels is cut into square patches of $P\times P$ pixels, with $P$ dividing both
    sides. (1) How many patches are there? (2) Each patch is laid out as one row of numbers: how many numbers
    has the whole sequence for an image in grey? (3) And for an image with $C$ channels? (4) What are the
    numbers for $(H,W,C)=(6,8,3)$ and $P=2$?
    """,
    hints=(
        r"How many patches lie along each side?",
        r"No pixel is lost and none is used twice.",
    ),
    solution=r"""
    (1) $H/P$ patches lie along one side and $W/P$ along the other: $N=HW/P^2$. (2) Each has $P^2$ numbers, so
    that the sequence has $N\cdot P^2=HW$: the pixels in another order. (3) Each patch has $P^2C$ numbers, the
    sequence $HWC$. (4) $N=48/4=12$ patches of $4\cdot3=12$ numbers, 144 in all.
    """,
    planted={"channels_forgotten": True},
)
def image_in_patches(channels_forgotten: bool = False) -> list[Number]:
    """The formulas against patches that PyTorch cuts out of images, and that the pixels are all there."""
    numbers = []
    for height, width, channels, side in ((6, 8, 3, 2), (28, 28, 1, 7), (224, 224, 3, 16)):
        pixels = torch.arange(height * width * channels).double().view(1, channels, height, width)
        patches = F.unfold(pixels, side, stride=side)[0].T  # [N, P²C]
        size = side**2 * (1 if channels_forgotten else channels)
        name = f"of an image ({height}, {width}, {channels}) with P = {side}"
        numbers += [
            same(f"patches {name}", len(patches), height * width // side**2),
            same(f"numbers in each {name}", patches.shape[1], size),
            same(f"different pixels in all {name}", len(torch.unique(patches)), height * width * channels),
        ]
    return numbers
