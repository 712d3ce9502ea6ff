"""H1: convolutions move with the image; they do not ignore where it is."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, at_least, at_most
from apoint.book.running import Running

SIDE, SHIFT = 16, (3, 5)


@claim(
    "H1d",
    "Convolutions are equivariant, not invariant",
    kind="identity",
    statement=r"""
    With a stride of 1 and a border that wraps around, a convolution and the activation after it commute with
    every translation $T$: $f(Tx)=Tf(x)$. Only a mean over all places after them is invariant:
    $g(Tx)=g(x)$. A stride of $s$ keeps this for shifts by multiples of $s$ alone, and a linear layer on the
    flattened maps loses it altogether.
    """,
    refuted_by="a shifted image whose maps differ from the shifted maps by more than rounding, a pooled "
    "output that differs, or a strided or flattened one that does not",
    seconds={"quick": 0.2, "standard": 1},
    planted={"padding": "zeros"},
    erratum=Erratum(
        written="Convolutional networks exploit the invariance under translation.",
        corrected="Convolutions are equivariant under translation: their output moves with the input. A "
        "pooling over all places makes it invariant.",
        why="The maps of a shifted image are the shifted maps, and so differ from those of the image. For a "
        "class that is welcome only at the end; for finding where an object is, not at all.",
        quote="exploiter l'invariance par translation",
        place="theory 2.2",
    ),
    details=r"""
    Random images and filters in double precision, three layers with ReLU. The border matters: zeros around
    the image, as nearly all networks have, break equivariance near the edge, which is the planted error.
    """,
    references=("Zhang (2019), Making convolutional networks shift-invariant again",),
)
def moves_with_the_image(run: Running, padding: str = "circular") -> Evidence:
    """Shifted images against shifted maps; `padding` is what stands around the image."""
    generator = run.generator()
    images = torch.randn(run.pick(4, 40), 3, SIDE, SIDE, generator=generator, dtype=torch.float64)
    filters = [
        torch.randn(8, before, 3, 3, generator=generator, dtype=torch.float64) / (3 * before**0.5)
        for before in (3, 8, 8)
    ]

    def maps(x: Tensor, stride: int = 1) -> Tensor:
        for place, weight in enumerate(filters):
            around = (
                F.pad(x, (1, 1, 1, 1), mode="circular") if padding == "circular" else F.pad(x, (1, 1, 1, 1))
            )
            x = F.conv2d(around, weight, stride=stride if place == 0 else 1).relu()
        return x

    weight = torch.randn(10, 8 * SIDE * SIDE, generator=generator, dtype=torch.float64) / SIDE
    shifted, plain = _shift(images), maps(images)
    moved = maps(shifted)
    numbers: list[Number] = [
        at_most("maps of the shifted less shifted maps", _gap(moved, _shift(plain)), 1e-12),
        at_most("the same after a mean over all places", _gap(moved.mean((2, 3)), plain.mean((2, 3))), 1e-12),
        at_most(
            "stride 2, shift by 2: the same after a mean",
            _gap(maps(images.roll((2, 4), (2, 3)), 2).mean((2, 3)), maps(images, 2).mean((2, 3))),
            1e-12,
        ),
        at_least(
            "stride 2, shift by an odd number",
            _gap(maps(shifted, 2).mean((2, 3)), maps(images, 2).mean((2, 3))),
            1e-3,
        ),
        at_least(
            "a linear layer on flattened maps",
            _gap(moved.flatten(1) @ weight.T, plain.flatten(1) @ weight.T),
            1e-2,
        ),
    ]
    written = [at_most("maps of the shifted less maps of the image", _gap(moved, plain), 1e-12)]
    return Evidence(numbers, as_written=written)


def _shift(x: Tensor) -> Tensor:
    return x.roll(SHIFT, (2, 3))


def _gap(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().max())
