"""H5: attention within windows costs in proportion to the image; and the sizes of Swin."""

from __future__ import annotations

import torch
from torch import nn

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.models.counting import count
from apoint.models.creation import create
from apoint.models.receptive import receptive_field
from apoint.models.swin import WindowAttention
from apoint.nn.attention import SelfAttention

WIDTH, HEADS, WINDOW = 32, 4, 7
SIDES = (7, 14, 28, 56)


@claim(
    "H5",
    "Windows cost in proportion to the image",
    kind="identity",
    statement=r"""
    On a map of $h\times w$ positions of size $C$, attention between all of them takes
    $4hwC^2+2(hw)^2C$ multiply-adds, attention within windows of $M\times M$ takes $4hwC^2+2M^2hwC$: quadratic
    and linear in the number of positions. Windows that shift from block to block let Swin's blocks see beyond
    them. Swin-B has 88 million parameters and Swin-L 197.
    """,
    refuted_by="a count that differs from these formulas, a second block that sees no farther than the "
    "first, or other numbers of parameters",
    seconds={"quick": 1.5, "standard": 2},
    planted={"factor": 1.05},
    details=r"""
    Counted are the products of matrices as PyTorch is asked for them. A window covers $7\cdot4=28$ pixels of
    an image cut into patches of four, and two blocks, of which the second is shifted by half a window, cover
    two windows, 56 pixels: what a position sees, it sees through its neighbours' windows. The claim is about
    cost and reach; accuracies are not compared.
    """,
    references=("Liu et al. (2021), Swin transformer, equations 1 and 2 and table 1",),
)
def windows(run: Running, factor: float = 1.0) -> Evidence:
    """Counts of both kinds of attention on growing maps; `factor` multiplies what attention itself takes."""
    numbers, whole, windowed = [], [], []
    for side in SIDES:
        area = side**2
        everywhere = count(SelfAttention(WIDTH, HEADS, causal=False).to("meta"), (area, WIDTH))
        local = WindowAttention(WIDTH, HEADS, WINDOW, 0, "seen", 0.0).to("meta")
        within = count(local, (side, side, WIDTH))
        whole.append(everywhere.whole.multiply_adds)
        windowed.append(within.whole.multiply_adds)
        linear = 4 * area * WIDTH**2
        numbers += [
            close(f"attention between all, {side}×{side}", whole[-1], linear + factor * 2 * area**2 * WIDTH),
            close(
                f"within windows, {side}×{side}", windowed[-1], linear + factor * 2 * WINDOW**2 * area * WIDTH
            ),
        ]
    numbers += [*_fields(), *_sizes(factor)]
    positions = [side**2 for side in SIDES]
    panel = Panel(
        "Multiply-adds of one layer of attention",
        "positions",
        "multiply-adds",
        [Series("between all", positions, whole), Series("within windows of 7×7", positions, windowed)],
        x_log=True,
        y_log=True,
    )
    return Evidence(numbers, pictures=[Picture("Counted, for 32 features in 4 heads.", [panel])])


def _fields() -> list[Number]:
    """What a position in the middle sees before, after one and after two of Swin-T's blocks."""
    with torch.device("meta"):
        model = create("swin-tiny")
    patches, blocks = model.get_submodule("patches"), model.get_submodule("stages.0.blocks")
    numbers = []
    for taken, expected in enumerate((4, 28, 56)):
        parts = nn.Sequential(patches, *list(blocks.children())[:taken])
        seen = int(receptive_field(parts, (3, 224, 224))[0].size)
        numbers.append(same(f"pixels seen after {taken} blocks", seen, expected))
    return numbers


def _sizes(factor: float) -> list[Number]:
    numbers = []
    for name, millions in (("swin-tiny", 28), ("swin-small", 50), ("swin-base", 88), ("swin-large", 197)):
        with torch.device("meta"):
            parameters = sum(weight.numel() for weight in create(name).parameters())
        numbers.append(
            close(f"{name}, million parameters", parameters / 1e6, factor * millions, absolute=0.5)
        )
    return numbers
