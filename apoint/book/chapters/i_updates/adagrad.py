"""I3: AdaGrad moves all coordinates alike, and slows down."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from apoint.book.chapters.i_updates.paths import difference, gradient_of, heights, path, torch_path, track
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.optim.adaptive import adagrad
from apoint.optim.descent import gradient_descent

STARTS = ((1.5, 1.5), (-1.8, 0.6))


def bowl(place: Tensor) -> Tensor:
    """The course's function, x² + 3y²."""
    return place[0].square() + 3 * place[1].square()


@claim(
    "I3",
    "AdaGrad treats coordinates alike, and slows down",
    kind="shape",
    statement=r"""
    AdaGrad divides each coordinate's gradient by the root of the sum of its squares so far. So the path
    does not depend on how steep a coordinate is: on $x^2+3y^2$ from a point with $x=y$ it stays on $x=y$,
    where descent bends towards $y=0$. And since the sum can only grow it slows down: under a constant
    gradient step $t$ has the length $\eta/\sqrt t$.
    """,
    refuted_by="a path that leaves the diagonal by more than rounding, or steps that do not fall as the "
    "root of "
    "their number",
    seconds={"quick": 0.3},
    planted={"exponent": -1.0},
    details=r"""
    The two starts are not printed in the course; ours are (1.5, 1.5) and (−1.8, 0.6), rate 0.4, ten steps.
    The number $\varepsilon$ in the denominator breaks the likeness by about its own size, $10^{-10}$.
    """,
    references=("Duchi, Hazan and Singer (2011), Adaptive subgradient methods, JMLR 12",),
)
def alike_and_slower(run: Running, exponent: float = -0.5) -> Evidence:
    """Paths on x² + 3y² and steps under a constant gradient; `exponent` is the power expected."""
    slope = gradient_of(bowl)
    paths = [path(adagrad, slope, start, 10, lr=0.4) for start in STARTS]
    plain = path(gradient_descent, slope, STARTS[0], 10, lr=0.1)
    theirs = torch_path(lambda params: torch.optim.Adagrad(params, lr=0.4), slope, STARTS[0], 10)
    constant = path(adagrad, lambda place: torch.full_like(place, 7.0), [0.0], 100, lr=0.4)
    lengths = -np.diff(constant[:, 0])
    power = float(np.polyfit(np.log(np.arange(1, 101)), np.log(lengths), 1)[0])
    numbers: list[Number] = [
        at_most("path less PyTorch's", difference(paths[0], theirs), 1e-12),
        at_most("AdaGrad's distance from x = y", float(np.abs(np.diff(paths[0], axis=1)).max()), 1e-8),
        at_least("descent's distance from x = y", float(np.abs(np.diff(plain, axis=1)).max()), 0.3),
        close("power of the steps under a constant gradient", power, exponent, 0, 1e-6),
        close("first of them", float(lengths[0]), 0.4, 1e-8),
    ]
    tracks = [track(f"from {start}", places) for start, places in zip(STARTS, paths, strict=True)]
    tracks.append(track("plain descent, rate 0.1", plain))
    plane = Panel(
        "Ten steps", "x (no unit)", "y (no unit)", tracks, field=heights(bowl, 2.0, "x² + 3y² (no unit)")
    )
    steps = Series("AdaGrad, rate 0.4", range(1, 101), lengths.tolist())
    slow = Panel("Constant gradient", "step", "length of the step (no unit)", [steps], x_log=True, y_log=True)
    caption = (
        "Left: the course's function from two starts. Right: steps shrink although the gradient does not."
    )
    return Evidence(numbers, pictures=[Picture(caption, [plane, slow], "weights 1.2")])
