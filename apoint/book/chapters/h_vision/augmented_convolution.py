"""H2: a convolution with attention beside it, against its definition place by place."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_most, same
from apoint.book.running import Running
from apoint.models.receptive import receptive_field
from apoint.nn.augmented import AugmentedConvolution, ImageAttention

HEADS, KEY, VALUE = 2, 3, 2


@claim(
    "H2",
    "Attention beside a convolution",
    kind="identity",
    statement=r"""
    An attention-augmented convolution gives some of its channels to attention over the whole image: for each
    head place $i$ gathers $\sum_j\mathrm{softmax}_j(l_{ij})\,v_j$ with
    $$l_{ij}=\frac{q_i\cdot\bigl(k_j+r^W_{j_x-i_x}+r^H_{j_y-i_y}\bigr)}{\sqrt{D}},$$
    where $r^H$ and $r^W$ are learned for each distance in rows and columns and shared by the heads. What was
    local sees everything, and still knows where things are.
    """,
    refuted_by="an output that differs from the sums written out by more than rounding, or a field that is "
    "not the whole image",
    seconds={"quick": 0.5, "standard": 3},
    planted={"factor": 1.05},
    details=r"""
    The layer computes the relative parts for rows and columns apart, in $O(HW(H+W))$, and never stores a
    matrix of all pairs; the check does, pair by pair with loops over places in double precision.
    Whether attention beside a convolution makes a better network is another question, which no claim answers.
    """,
    references=("Bello et al. (2019), Attention augmented convolutional networks, section 3",),
)
def augmented(run: Running, factor: float = 1.0) -> Evidence:
    """The layer against loops over pairs of places; `factor` multiplies what depends on distance."""
    numbers, generator = [], run.generator()
    for height, width in ((3, 4), (4, 2)):
        layer = ImageAttention(3, HEADS * KEY, HEADS * VALUE, HEADS, (height, width)).double()
        for parameter in layer.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        image = torch.randn(1, 3, height, width, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            gap = float((layer(image) - _by_pairs(layer, image, factor)).abs().max())
        numbers.append(at_most(f"largest difference, image of {height}×{width}", gap, 1e-12))
    whole = AugmentedConvolution(3, 8, 3, HEADS * KEY, HEADS * VALUE, HEADS, (12, 12)).to("meta")
    field = receptive_field(whole, (3, 12, 12))[0]
    numbers.append(same("sees the whole image", math.isinf(field.size), True))
    return Evidence(numbers)


def _by_pairs(layer: ImageAttention, image: Tensor, factor: float) -> Tensor:
    """The definition with loops over heads and pairs of places."""
    height, width = image.shape[-2:]
    assert layer.relative_heights is not None
    assert layer.relative_widths is not None
    mapped = layer.qkv(image)[0]
    places = [(y, x) for y in range(height) for x in range(width)]
    gathered = torch.zeros(HEADS * VALUE, height, width, dtype=image.dtype)
    keys, values = mapped[HEADS * KEY : 2 * HEADS * KEY], mapped[2 * HEADS * KEY :]
    for head in range(HEADS):
        own, given = slice(head * KEY, (head + 1) * KEY), slice(head * VALUE, (head + 1) * VALUE)
        for y, x in places:
            logits = torch.stack(
                [
                    mapped[own, y, x]
                    @ (
                        keys[own, below, right]
                        + factor * layer.relative_widths[right - x + width - 1]
                        + factor * layer.relative_heights[below - y + height - 1]
                    )
                    for below, right in places
                ]
            )
            weights = (logits / math.sqrt(KEY)).softmax(0)
            for weight, (below, right) in zip(weights, places, strict=True):
                gathered[given, y, x] += weight * values[given, below, right]
    out: Tensor = layer.output(gathered[None])
    return out
