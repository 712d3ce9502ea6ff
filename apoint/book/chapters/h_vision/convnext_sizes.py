"""H6: the five sizes of ConvNeXt."""

from __future__ import annotations

import torch

from apoint.book.chapters.h_vision.published import accuracies
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, close
from apoint.book.running import Running
from apoint.models.counting import count
from apoint.models.creation import create

COURSE = {"tiny": 29, "small": 50, "base": 89, "large": 198, "xlarge": 350}
WIDTHS = {"tiny": 96, "small": 96, "base": 128, "large": 192, "xlarge": 256}


@claim(
    "H6",
    "Sizes of ConvNeXt",
    kind="size",
    statement=r"""
    ConvNeXt-T, S, B, L and XL have 29, 50, 89, 198 and 350 million parameters. A block of width $d$ has
    $8d^2+58d$: a depthwise convolution of $7\times7$ with its bias $(49+1)d$, a norm $2d$, two maps
    $d\to4d\to d$ with biases $8d^2+5d$, and the factors of layer scale $d$.
    """,
    refuted_by="a network as built whose parameters round to another number of millions, or a block that has "
    "another number",
    seconds={"quick": 0.5, "standard": 0.5},
    planted={"factor": 1.05},
    details=r"""
    The networks are built without memory and counted with their last norm and a head for a thousand classes.
    """,
    references=("Liu et al. (2022), A ConvNet for the 2020s, table 1",),
)
def convnext_sizes(run: Running, factor: float = 1.0) -> Evidence:
    """Counted parameters, whole and of one block; `factor` multiplies the numbers of the statement."""
    numbers = []
    for size, millions in COURSE.items():
        width = WIDTHS[size]
        depths = (3, 3, 9, 3) if size == "tiny" else (3, 3, 27, 3)
        with torch.device("meta"):
            counts = count(create("convnext", depths=depths, width=width), (3, 224, 224))
        whole = counts.whole.parameters / 1e6
        numbers.append(close(f"ConvNeXt-{size}, millions", whole, factor * millions, absolute=0.5))
        stage = next(part for part in counts.parts if part.name == "stages.0")
        block = factor * (8 * width**2 + 58 * width)
        numbers.append(close(f"ConvNeXt-{size}, parameters of a block", stage.parameters / 3, block))
    return Evidence(numbers, pictures=[accuracies()])
