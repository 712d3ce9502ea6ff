"""I9: clipping by norm slows every coordinate down when one of them dominates the gradient."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from apoint.book.chapters.i_updates.paths import Gradient, gradient_of, path
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.optim import clip_by_norm, clip_by_value
from apoint.optim.descent import gradient_descent

LIMIT, RATE = 1.0, 0.5
SIZES = (10.0, 30.0, 100.0)
STEPS = 400
WAYS = {"norm": clip_by_norm, "value": clip_by_value}


@claim(
    "I9b",
    "One large coordinate slows the others down",
    kind="size",
    statement=r"""
    Let one coordinate of the gradient keep the size $G$, far above the limit $\alpha$. Clipping by norm
    multiplies all coordinates by $\alpha/\|g\|\approx\alpha/G$, so that the others learn $G/\alpha$ times as
    slowly as they would. Clipping by value limits the large one alone and leaves their rate as it is.
    """,
    refuted_by="a rate of the other coordinate that differs from $\\alpha/G$ of its own rate by more than a "
    "thousandth, one that clipping by value changes, or a regression with targets in unlike units whose "
    "small targets clipping by norm does not leave behind",
    seconds={"quick": 2, "standard": 4},
    planted={"factor": 1.06},
    details=r"""
    On $f(x,y)=G|x|+\frac12y^2$ the first coordinate swings about 0 and never gives way. While $y$ is small,
    a step at rate $\eta$ multiplies it by $1-\eta\alpha/\sqrt{G^2+y^2}$ with the norm clipped, by $1-\eta$
    with values clipped. The check reads the rate $-\ln(y_{t+1}/y_t)$ at the end of the path against
    $-\ln(1-\eta\alpha/G)$; `factor` multiplies the latter.

    A case from practice: linear regression of four targets, one of which is given in a unit that makes it
    100 times as large and whose noise keeps its gradient large. By norm, the error of the three others is
    hardly reduced after the same number of steps; by value it is. Bars, set beforehand: by value at most a
    tenth of the initial error is left on each of several draws, by norm at least half. Rescaling the
    target, or a rate of its own for each coordinate as in Adam, cures the cause.
    """,
    references=(
        "Pascanu, Mikolov and Bengio (2013), On the difficulty of training recurrent neural networks",
    ),
)
def dominated(run: Running, factor: float = 1.0) -> Evidence:
    """Rates of the small coordinate under both ways of clipping; `factor` multiplies the expected one."""
    numbers: list[Number] = []
    lines = []
    for size in SIZES:
        for name in WAYS:
            walked = path(gradient_descent, _clipped(size, name), [0.3, 0.5], STEPS, lr=RATE)[:, 1]
            share = LIMIT / size if name == "norm" else 1.0
            expected = -factor * math.log1p(-RATE * share)
            end = STEPS if name == "norm" else 20  # by then nothing is left to be seen of the small one
            rate = float(-np.log(walked[end] / walked[end - 1]))
            numbers.append(
                close(f"rate of the small coordinate by {name}, G = {size:g}", rate, expected, 1e-3)
            )
            if name == "norm" or size == SIZES[0]:
                label = f"by norm, G = {size:g}" if name == "norm" else "by value, any G"
                seen = slice(0, 40 if name == "value" else STEPS + 1, 1 if name == "value" else 4)
                places = np.arange(STEPS + 1)[seen]
                lines.append(Series(label, places.tolist(), np.maximum(walked[seen], 1e-6).tolist()))
    left = {name: [_regression(run.generator(f"{seed}"), name) for seed in range(5)] for name in WAYS}
    numbers.append(at_most("error left by value, the worst of five draws", max(left["value"]), 0.1))
    numbers.append(at_least("error left by norm, the best of five draws", min(left["norm"]), 0.5))
    panel = Panel("The small coordinate", "step", "|y|", lines, y_log=True)
    caption = "Descent at rate 0.5 with the limit 1, beside a coordinate whose gradient keeps the size G."
    return Evidence(numbers, pictures=[Picture(caption, [panel])])


def _clipped(size: float, name: str) -> Gradient:
    """The clipped gradient of G|x| + y²/2."""
    slope = gradient_of(lambda place: size * place[0].abs() + place[1].square() / 2)
    return lambda place: WAYS[name](slope(place), LIMIT)


def _regression(generator: torch.Generator, name: str) -> float:
    """What is left of the squared error of three targets, beside one that is 100 times as large."""
    inputs = torch.randn(200, 5, generator=generator, dtype=torch.float64)
    truth = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    unit = torch.tensor([100.0, 1.0, 1.0, 1.0], dtype=torch.float64)

    def gradient(weights: Tensor) -> Tensor:
        """Of one draw of noisy targets, as a batch has it."""
        noise = torch.randn(200, 4, generator=generator, dtype=torch.float64)
        misses = inputs @ (weights.view(5, 4) - truth * unit) - noise * unit
        return WAYS[name]((inputs.T @ misses / 200).flatten(), LIMIT)

    walked = path(gradient_descent, gradient, [0.0] * 20, 60, lr=0.2)
    first, last = (
        ((row.reshape(5, 4) - (truth * unit).numpy())[:, 1:] ** 2).sum() for row in walked[[0, -1]]
    )
    return float(last / first)
