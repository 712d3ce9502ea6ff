"""I1: gradient descent, and what a sample or a batch in its place keeps and loses."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from apoint.book.chapters.i_updates.paths import (
    Gradient,
    difference,
    gradient_of,
    heights,
    path,
    torch_path,
    track,
)
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.optim.descent import gradient_descent
from apoint.theory import stochastic


@claim(
    "I1",
    "A batch is right on average",
    kind="identity",
    statement=r"""
    Gradient descent takes $\theta_{t+1}=\theta_t-\eta\nabla\mathcal{L}(\theta_t)$; stochastic gradient
    descent puts the gradient of one of the $n$ observations in its place, mini-batch descent the mean of
    $b$ of them. Over the choice of the batch that gradient has the right mean, and a variance per
    coordinate of
    $$\frac{\sigma^2}{b}\cdot\frac{n-b}{n-1},$$
    with $\sigma^2$ the variance between observations: the whole data set has none.
    """,
    refuted_by="a mean over all batches that is not the whole gradient, or a variance other than the "
    "formula's",
    seconds={"quick": 1.8},
    planted={"factor": 1.05},
    details=r"""
    The check takes *every* batch of each size from ten observations of a regression, by automatic
    differentiation. Drawing with replacement would lose the factor $(n-b)/(n-1)$, and an epoch does not draw
    so. In the figure the three go from the same start: descent straight to the minimum, one observation at
    a time in a cloud around it whose size is set by $\eta$, batches in between.
    """,
    references=("Bottou, Curtis and Nocedal (2018), Optimization methods for large-scale machine learning",),
)
def batches(run: Running, factor: float = 1.0) -> Evidence:
    """All batches of a small regression; `factor` multiplies the variance of the formula."""
    random = run.random()
    inputs = torch.from_numpy(random.standard_normal((10, 2)) * [1.0, 0.5])
    labels = inputs @ torch.tensor([0.3, -0.2], dtype=torch.float64) + 0.5 * torch.from_numpy(
        random.standard_normal(10)
    )
    place = torch.tensor([1.0, -1.0], dtype=torch.float64)
    each = np.array([_slope(inputs, labels, [i])(place).numpy() for i in range(10)])
    whole = _slope(inputs, labels, list(range(10)))(place).numpy()
    spread = each.var(0)
    numbers: list[Number] = []
    for size in (1, 3, 5, 10):
        batches = itertools.combinations(range(10), size)
        found = np.array([_slope(inputs, labels, list(batch))(place).numpy() for batch in batches])
        bias = float(np.abs(found.mean(0) - whole).max())
        numbers.append(at_most(f"bias of batches of {size}", bias, 1e-13))
        ratio = float((found.var(0) / spread).mean())
        expected = factor * stochastic.batch_noise(1.0, size, 10)
        numbers.append(close(f"variance of batches of {size} over σ²", ratio, expected, 0, 1e-12))
    numbers += _on_a_square()
    return Evidence(numbers, pictures=[_picture(run, inputs, labels)])


def _slope(inputs: Tensor, labels: Tensor, batch: list[int]) -> Gradient:
    return gradient_of(lambda w: (inputs[batch] @ w - labels[batch]).square().mean() / 2)


def _on_a_square() -> list[Number]:
    """The course's first figure, f(x) = x²: each step multiplies x by 1 − 2η, in PyTorch too."""
    gradient = gradient_of(lambda x: x.square().sum())
    ours = path(gradient_descent, gradient, [3.0], 20, lr=0.1)
    expected = 3.0 * 0.8 ** np.arange(21)[:, None]
    theirs = torch_path(lambda params: torch.optim.SGD(params, lr=0.1), gradient, [3.0], 20)
    return [
        at_most("descent on x² against 3·0.8^t", difference(ours, expected), 1e-13),
        at_most("descent against PyTorch's", difference(ours, theirs), 1e-13),
    ]


def _picture(run: Running, inputs: Tensor, labels: Tensor) -> Picture:
    random, start, rate = run.random("paths"), [1.5, 1.8], 0.15

    def sampled(size: int) -> Gradient:
        def gradient(place: Tensor) -> Tensor:
            batch = random.choice(10, size, replace=False).tolist()
            return _slope(inputs, labels, batch)(place)

        return gradient

    tracks = [
        track("descent", path(gradient_descent, sampled(10), start, 80, lr=rate)),
        track("one at a time", path(gradient_descent, sampled(1), start, 80, lr=rate)),
        track("batches of 4", path(gradient_descent, sampled(4), start, 80, lr=rate)),
    ]
    under = heights(lambda w: (inputs @ w - labels).square().mean() / 2, 2.0, "loss (no unit)")
    panel = Panel("80 steps", "first weight (no unit)", "second weight (no unit)", tracks, field=under)
    caption = "Regression on ten observations: the same start and rate, the gradient of all, one or four."
    square = path(gradient_descent, gradient_of(lambda x: x.square().sum()), [3.0], 12, lr=0.1)[:, 0]
    places = np.linspace(-3.2, 3.2, 65)
    curve = Series("f(x) = x²", places.tolist(), (places**2).tolist())
    steps = Series("steps at rate 0.1", square.tolist(), (square**2).tolist(), style="points")
    return Picture(
        caption, [Panel("On x²", "x (no unit)", "f(x) (no unit)", [curve, steps]), panel], "weights 1"
    )
