"""G2: SiLU and GELU against ReLU: smooth, not monotone, and alive on the negative side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import brentq, minimize_scalar
from scipy.special import lambertw
from scipy.stats import norm
from torch import Tensor, nn

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, agrees, at_least, at_most, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.nn.activations import activation

NAMES = {"ReLU": "relu", "SiLU": "silu", "GELU": "gelu"}
SMOOTH = ("SiLU", "GELU")
UNITS = 32


def _lowest() -> dict[str, tuple[float, float]]:
    """Places and values of the minima, from the zeros of the slopes written out.

    That of x·σ(x) is where 1 + x(1 - σ(x)) = 0, so that x = -1 - W(1/e) with Lambert's W, and the value there
    is -W(1/e). That of x·Φ(x) is where Φ(x) + x·φ(x) = 0, which has no such form.
    """
    lambert = float(lambertw(math.exp(-1)).real)
    zero = float(brentq(lambda x: norm.cdf(x) + x * norm.pdf(x), -2, 0, xtol=1e-12))
    return {"SiLU": (-1 - lambert, -lambert), "GELU": (zero, zero * float(norm.cdf(zero)))}


@claim(
    "G2",
    "SiLU and GELU are smooth and not monotone",
    kind="shape",
    statement=r"""
    $\operatorname{SiLU}(x)=x\sigma(x)$ is the mean of $x$ under a mask that keeps it with the probability
    $\mathbb{P}(X\le x)$ for a logistic $X$. SiLU and GELU have a continuous derivative on the whole line, and
    ReLU does not, whose slope jumps from 0 to 1. Both fall before they rise, with their minima at $-1.2785$
    and $-0.7518$.
    """,
    refuted_by="a slope that jumps at 0, a minimum at another place or none, or a mean of masked inputs "
    "other than $x\\sigma(x)$",
    seconds={"quick": 0.5, "standard": 5},
    planted={"stand_in": "relu"},
    details=r"""
    The jump of the slope at a point is measured by difference quotients on both of its sides, ever nearer to
    it. Where a function falls it has a negative slope: the share of $[-5,0]$ on which it does is 0 for a
    monotone one. The figure is that of the course, with slopes beside it.
    """,
    references=(
        "Hendrycks and Gimpel (2016), Gaussian error linear units (GELUs)",
        "Elfwing, Uchibe and Doya (2017), Sigmoid-weighted linear units",
    ),
)
def smooth_and_bent(run: Running, stand_in: str = "") -> Evidence:
    """Jumps, minima and means of masks; `stand_in` takes another activation's place for both."""
    numbers = [close("jump of ReLU's slope at 0", _jump(_function("relu")), 1.0, absolute=1e-9)]
    for name in SMOOTH:
        function = _function(stand_in or NAMES[name])
        numbers.append(at_most(f"jump of the slope of {name} at 0", _jump(function), 1e-5))
        found = minimize_scalar(
            lambda x, f=function: f(x), bounds=(-4, 1), method="bounded", options={"xatol": 1e-10}
        )
        place, value = _lowest()[name]
        numbers.append(close(f"place of the minimum of {name}", float(found.x), place, absolute=1e-6))
        numbers.append(close(f"minimum of {name}", float(found.fun), value, absolute=1e-6))
    count, random = run.pick(200_000, 5_000_000), run.random()
    silu = _function(stand_in or "silu")
    for place in (-1.5, 0.8):
        masked = place * (random.logistic(size=count) <= place)
        error = float(masked.std() / count**0.5)
        numbers.append(
            agrees(f"mean under a logistic mask, x = {place:g}", float(masked.mean()), error, silu(place))
        )
    return Evidence(numbers, pictures=[_picture()])


def _function(name: str) -> Callable[[float], float]:
    module = activation(name).double()
    return lambda x: float(module(torch.tensor(x, dtype=torch.float64)))


def _jump(function: Callable[[float], float], step: float = 1e-6) -> float:
    """The slope just right of 0 less that just left of it."""
    right = (function(2 * step) - function(step)) / step
    left = (function(-step) - function(-2 * step)) / step
    return abs(right - left)


def _picture() -> Picture:
    x = torch.linspace(-4, 3, 281, dtype=torch.float64)
    values, slopes = [], []
    for label, name in NAMES.items():
        place = x.clone().requires_grad_()
        y = activation(name).double()(place)
        (slope,) = torch.autograd.grad(y.sum(), place)
        values.append(Series(label, x.tolist(), y.tolist()))
        slopes.append(Series(label, x.tolist(), slope.tolist()))
    panels = [Panel("Functions", "x", "f(x)", values), Panel("Their slopes", "x", "f'(x)", slopes)]
    return Picture("Computed by the product; no estimates.", panels, "llm 2.1, figure of ReLU, SiLU and GELU")


@claim(
    "G2b",
    "Where ReLU dies, SiLU and GELU do not",
    kind="direction",
    statement=r"""
    Move the biases of a hidden layer so far down that every unit is negative for every example. ReLU units
    then have no gradient, and the network never learns more than its last bias can; with SiLU or GELU in
    their place every unit has a gradient, small and not zero, and the network learns.
    """,
    refuted_by="a ReLU unit with a gradient, a SiLU or GELU unit without one, or a network with SiLU or GELU "
    "whose accuracy stays near chance",
    seconds={"quick": 4, "standard": 10},
    planted={"smooth": ("relu",)},
    details=r"""
    One hidden layer of 32 units on handwritten digits; each unit's bias is set so that its largest $z$ over
    the examples is $-\frac12$; then 150 steps of full-batch descent with a rate of 2. How far down one may go
    is no small print: the slope of SiLU falls as $|x|e^{-|x|}$ and that of GELU as $e^{-x^2/2}$, so that in
    float32 GELU's is 0 below about $-14$, and a GELU unit thrown that far is as dead as a ReLU.
    """,
    references=("Hendrycks and Gimpel (2016), Gaussian error linear units (GELUs)",),
)
def after_a_shock(run: Running, smooth: tuple[str, ...] = ("silu", "gelu")) -> Evidence:
    """Networks with silenced units learn or not; `smooth` names the activations said to go on learning."""
    networks, remarks = run.pick(3, 20), []
    dead = [_recover("relu", run.generator(f"network {n}")) for n in range(networks)]
    numbers = [
        same("ReLU units with a gradient", sum(life.moved for life in dead), 0),
        same("ReLU units that return", sum(life.back for life in dead), 0),
        at_most("best accuracy with ReLU", max(life.accuracy for life in dead), 0.2),
    ]
    for name in smooth:
        alive = [_recover(name, run.generator(f"network {n}")) for n in range(networks)]
        moved, back = sum(life.moved for life in alive), sum(life.back for life in alive)
        numbers.append(same(f"silenced units with a gradient, {name}", moved, UNITS * networks))
        numbers.append(at_least(f"worst accuracy, {name}", min(life.accuracy for life in alive), 0.5))
        remarks.append(f"{back} of {UNITS * networks} with {name}")
    far = torch.tensor(-15.0, requires_grad=True)
    (slope,) = torch.autograd.grad(nn.functional.gelu(far), far)
    numbers.append(close("slope of GELU at -15 in float32", float(slope), 0.0))
    return Evidence(
        numbers, remark=f"Units that are positive for some example in the end: {', '.join(remarks)}."
    )


@dataclass(frozen=True)
class _Life:
    """What became of silenced units.

    Attributes:
        moved: How many had a gradient at first.
        back: How many are positive for some example in the end.
        accuracy: Of the network in the end, on the examples it was trained on.
    """

    moved: int
    back: int
    accuracy: float


def _recover(name: str, generator: torch.Generator) -> _Life:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.from_numpy(pixels[:500] / 16.0).float(), torch.from_numpy(labels[:500])
    first, last = nn.Linear(64, UNITS), nn.Linear(UNITS, 10)
    for layer in (first, last):
        layer.weight.data.normal_(0, (2 / layer.in_features) ** 0.5, generator=generator)
        layer.bias.data.zero_()
    first.bias.data = -0.5 - first(x).detach().amax(0)
    net = nn.Sequential(first, activation(name), last)
    moved = int((_step(net, x, y).abs().sum(1) > 0).sum())
    for _ in range(150):
        _step(net, x, y)
    with torch.no_grad():
        highest: Tensor = first(x).amax(0)
        right: Tensor = (net(x).argmax(1) == y).float()
    return _Life(moved, int((highest > 0).sum()), float(right.mean()))


def _step(net: nn.Sequential, x: Tensor, y: Tensor) -> Tensor:
    """A step of plain descent; returns the gradient of the first layer's weights."""
    parameters = list(net.parameters())
    gradients = torch.autograd.grad(nn.functional.cross_entropy(net(x), y), parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.data -= 2.0 * gradient
    return gradients[0]
