"""G1: GELU, exact and as the mean of a mask."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, at_most
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.nn.activations import activation

PLACES = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0)


@claim(
    "G1",
    "GELU as the mean of a mask",
    kind="identity",
    statement=r"""
    Multiply $x$ by 1 with probability $\Phi(x)=\mathbb{P}(X\le x)$, $X\sim\mathcal{N}(0,1)$, and by 0
    otherwise: a dropout that keeps large inputs. The mean of the result is
    $$\operatorname{GELU}(x)=x\,\Phi(x)=\frac x2\left(1+\operatorname{erf}\frac{x}{\sqrt2}\right).$$
    """,
    refuted_by="a mean of masked inputs that differs from the formula by more than three standard errors, or "
    "an activation `gelu` that differs from it by more than rounding",
    seconds={"quick": 0.2, "standard": 1},
    planted={"factor": 1.05},
    details=r"""
    The masks are drawn from their definition, by comparing $x$ with a draw of $X$, and not from $\Phi$; and
    once more by the ingredient `stochastic-gelu` in training. Drawing $X$ from the logistic law instead gives
    $x\sigma(x)$, which is SiLU (row G2). GPT-2's approximation by a tanh is not exact, and the check says by
    how much. The gradient of a masked input is the mask, of mean $\Phi(x)$, and not GELU's slope
    $\Phi(x)+x\varphi(x)$: the mean of a function's slope is not the slope of its mean when the mask's law
    depends on $x$.
    """,
    references=("Hendrycks and Gimpel (2016), Gaussian error linear units (GELUs)",),
)
def mean_of_masks(run: Running, factor: float = 1.0) -> Evidence:
    """Masks by comparison with draws of X; `factor` multiplies the formula."""
    count, random = run.pick(200_000, 5_000_000), run.random()
    x = np.linspace(-10, 10, 4001)
    formula = np.array([factor * 0.5 * one * (1 + math.erf(one / math.sqrt(2))) for one in x])
    ours = activation("gelu").double()(torch.from_numpy(x)).numpy()
    numbers = [at_most("largest error of the activation gelu", float(np.abs(ours - formula).max()), 1e-14)]
    means, errors = [], []
    for place in PLACES:
        masked = place * (random.normal(size=count) <= place)
        means.append(float(masked.mean()))
        errors.append(float(masked.std() / count**0.5))
        expected = factor * 0.5 * place * (1 + math.erf(place / math.sqrt(2)))
        numbers.append(agrees(f"mean of masked inputs, x = {place:g}", means[-1], errors[-1], expected))
    numbers += _ingredient(run, factor)
    rough = activation({"name": "gelu", "approximate": "tanh"}).double()(torch.from_numpy(x)).numpy()
    numbers.append(
        at_most("largest error of the approximation by tanh", float(np.abs(rough - formula).max()), 1e-3)
    )
    return Evidence(numbers, pictures=[_picture(means, errors, count)])


def _ingredient(run: Running, factor: float) -> list[Number]:
    """The ingredient in training, whose masks come from torch's default generator, and its slope."""
    count = run.pick(100_000, 1_000_000)
    x = torch.full((count,), 0.7, dtype=torch.float64, requires_grad=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.generator("ingredient").initial_seed())
        y = activation("stochastic-gelu").train()(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    kept = factor * 0.5 * (1 + math.erf(0.7 / math.sqrt(2)))
    steep = kept + 0.7 * math.exp(-0.245) / math.sqrt(2 * math.pi)
    y = y.detach()
    error, slope_error = float(y.std() / count**0.5), float(slope.std() / count**0.5)
    return [
        agrees("mean of stochastic-gelu in training, x = 0.7", float(y.mean()), error, 0.7 * kept),
        agrees("mean of its slope, x = 0.7", float(slope.mean()), slope_error, kept),
        at_least("slope of GELU less that mean", steep - float(slope.mean()), 0.1, slope_error),
    ]


def _picture(means: list[float], errors: list[float], count: int) -> Picture:
    x = np.linspace(-4, 4, 161)
    curve = F.gelu(torch.from_numpy(x)).tolist()
    spread = 2 * np.array(errors)
    low, high = (np.array(means) - spread).tolist(), (np.array(means) + spread).tolist()
    dots = Series("mean of masked inputs", PLACES, means, low, high, "points")
    panel = Panel("GELU and masks", "x", "f(x)", [Series("GELU", x.tolist(), curve), dots])
    return Picture(f"Dots: means of {count:,} masked inputs, with two standard errors.", [panel])
