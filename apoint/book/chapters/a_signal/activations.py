"""A5: activations, their shapes, and the units that a ReLU lets die."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.nn.activations import activation
from apoint.settings import Spec

Array = np.ndarray[Any, Any]
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772  # Klambauer et al. (2017), appendix
FORMULAS: dict[str, tuple[Spec, Callable[[Array], Array]]] = {
    "sigmoid": ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    "tanh": ("tanh", lambda x: (np.exp(x) - np.exp(-x)) / (np.exp(x) + np.exp(-x))),
    "arctan": ("arctan", lambda x: np.arctan2(x, 1)),
    "ReLU": ("relu", lambda x: np.where(x > 0, x, 0)),
    "leaky ReLU": ({"name": "leaky-relu", "slope": 0.1}, lambda x: np.where(x > 0, x, 0.1 * x)),
    "ELU": ("elu", lambda x: np.where(x > 0, x, np.exp(x) - 1)),
    "CELU, α = 2": ({"name": "celu", "alpha": 2.0}, lambda x: np.where(x > 0, x, 2 * (np.exp(x / 2) - 1))),
    "SELU": ("selu", lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * (np.exp(x) - 1))),
    "softplus": ("softplus", lambda x: np.log(1 + np.exp(x))),
    "squareplus": ("squareplus", lambda x: (x + np.sqrt(x**2 + 4)) / 2),
    "Swish, β = 2": ({"name": "swish", "beta": 2.0}, lambda x: x / (1 + np.exp(-2 * x))),
    "Mish": ("mish", lambda x: x * np.tanh(np.log(1 + np.exp(x)))),
}
ODD = ("tanh", "arctan")
FIGURE = (("Saturating", ("sigmoid", "tanh", "arctan")), ("Rectifying", ("ReLU", "leaky ReLU")))
LATER = ("ELU", "CELU, α = 2", "SELU", "softplus", "squareplus", "Swish, β = 2", "Mish")


@claim(
    "A5",
    "Activations and which of them are odd",
    kind="shape",
    statement=r"""
    Twelve activations have the formulas of their papers. Tanh and arctan are odd, $f(-x)=-f(x)$. The sigmoid
    $\sigma(x)=1/(1+e^{-x})$ is not: $\sigma(-x)=1-\sigma(x)$, so that $\sigma-\frac12$ is odd.
    """,
    refuted_by="a value that differs from its formula, or an odd part that is not there, by more than "
    "rounding",
    seconds={"quick": 0.1, "standard": 0.5},
    planted={"middle": 0.0},
    erratum=Erratum(
        quote="des fonctions d'activation impaire comme la fonction sigmoid ou tangente hyperbolique",
        place="notes 1.1.2",
        written="the sigmoid is an odd function, as tanh is",
        corrected=r"$\sigma(x)-\frac12=\frac12\tanh\frac x2$ is odd; $\sigma$ itself has $\sigma(0)=\frac12$",
        why=r"The argument for odd activations does not reach the sigmoid: its outputs have the mean "
        r"$\frac12$ and not 0, so that $\mathbb{E}[\sigma(z)^2]\ge\frac14$ however small $z$ is, and the "
        r"variance of a deep sigmoid network neither falls to 0 nor is kept by Glorot's rule.",
    ),
    details=r"""
    The formulas are written out anew in the check and compared with the product's activations in float64. The
    figure draws the course's pairs first, then the later ones.
    """,
    references=(
        "Clevert, Unterthiner and Hochreiter (2015), Fast and accurate deep network learning by ELUs",
        "Barron (2017), Continuously differentiable exponential linear units",
        "Klambauer, Unterthiner, Mayr and Hochreiter (2017), Self-normalizing neural networks",
        "Barron (2021), Squareplus: a softplus-like algebraic rectifier",
        "Ramachandran, Zoph and Le (2017), Searching for activation functions",
        "Misra (2019), Mish: a self regularized non-monotonic activation function",
    ),
)
def shapes(run: Running, middle: float = 0.5) -> Evidence:
    """Formulas against the product, and oddness; `middle` is what is taken off the sigmoid first."""
    x = np.linspace(-12, 12, run.pick(2001, 20001))
    values = {name: _values(spec, x) for name, (spec, _) in FORMULAS.items()}
    numbers = [
        at_most(f"largest error of {name}", float(np.abs(values[name] - formula(x)).max()), 1e-11)
        for name, (_, formula) in FORMULAS.items()
    ]
    numbers += [_odd(name, values[name]) for name in ODD]
    numbers.append(_odd("the sigmoid less its middle", values["sigmoid"] - middle))
    return Evidence(numbers, [_odd("sigmoid", values["sigmoid"])], [_picture()])


def _values(spec: Spec, x: Array) -> Array:
    with torch.no_grad():
        return np.asarray(activation(spec).double()(torch.from_numpy(x)).numpy())


def _odd(name: str, values: Array) -> Number:
    return at_most(f"largest |f(x) + f(-x)| of {name}", float(np.abs(values + values[::-1]).max()), 1e-12)


def _picture() -> Picture:
    x = np.linspace(-4, 4, 161)
    panels = []
    for title, names in (*FIGURE, ("Later ones", LATER)):
        lines = [Series(name, x.tolist(), _values(FORMULAS[name][0], x).tolist()) for name in names]
        panels.append(Panel(title, "x", "f(x)", lines))
    return Picture("Activations, computed by the product; no estimates.", panels, "notes fig. 1.2")


@claim(
    "A5b",
    "Dead units",
    kind="direction",
    statement=r"""
    A ReLU unit whose $z$ is negative for every example gets the gradient 0 exactly and, in the first layer,
    never changes again: it is dead. Steps that are too large make such units by the dozen. The same steps
    throw units of a leaky ReLU to the negative side too, and there every one of them has a gradient and goes
    on learning.
    """,
    refuted_by="a silent ReLU unit of the first layer that has a gradient or changes; few silent units after "
    "large steps; or silent leaky units without a gradient",
    seconds={"quick": 2, "standard": 35},
    planted={"below": 0.1},
    details=r"""
    One hidden layer of 64 units on handwritten digits, full-batch gradient descent. Ten steps with a rate of
    3, far too large, are followed by small ones with a rate of 0.1. A unit is silent if its $z$ is at most 0
    on all examples; its change is that of its incoming weights over the small steps, relative to their
    length. Means and standard errors are over networks. To learn on is not to come back: the remark of the
    record says how few of the silent leaky units are positive for some example at the end. They work as
    linear units of a small slope.
    """,
    references=(
        "Maas, Hannun and Ng (2013), Rectifier nonlinearities improve neural network acoustic models",
        "Lu, Shin, Su and Karniadakis (2019), Dying ReLU and initialization",
    ),
)
def dead_units(run: Running, below: float = 0.0) -> Evidence:
    """Large steps, then small ones; `below` gives the units said to be ReLUs a slope below 0."""
    rectified, leaky = _lives(run, below), _lives(run, 0.1)
    numbers = [
        at_least("ReLU units silenced by large steps, of 64", *_mean(rectified.silent, 3.0)),
        same("of these, units with a gradient", sum(rectified.moved), 0),
        same("of these, units that come back", sum(rectified.back), 0),
        at_most("of these, largest change by small steps", max(rectified.change), 0.0),
        at_least("leaky units silenced by the same steps, of 64", *_mean(leaky.silent, 3.0)),
        same("of these, units without a gradient", sum(leaky.silent) - sum(leaky.moved), 0),
        at_least("of these, smallest change by small steps", min(leaky.change), 1e-4),
    ]
    remark = f"Of {sum(leaky.silent)} silent leaky units {sum(leaky.back)} came back above 0."
    return Evidence(numbers, remark=remark)


@dataclass
class _Lives:
    """What became of silent units: lists over networks.

    Attributes:
        silent: How many there were after the large steps.
        moved: How many of them had a gradient.
        back: How many of them were positive for some example in the end.
        change: The largest change of one of them, for ReLU, and the smallest, for a leaky ReLU.
    """

    silent: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    back: list[int] = field(default_factory=list)
    change: list[float] = field(default_factory=list)


def _mean(values: list[int], bound: float) -> tuple[float, float, float]:
    """The mean, the bound it shall meet, and its standard error."""
    return float(np.mean(values)), bound, float(np.std(values, ddof=1) / len(values) ** 0.5)


def _lives(run: Running, slope: float) -> _Lives:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.from_numpy(pixels[:600] / 16.0).float(), torch.from_numpy(labels[:600])
    lives = _Lives()
    for number in range(run.pick(4, 20)):
        net = _network(slope, run.generator(f"network {number}"))  # the same start for both activations
        first = net[0]
        assert isinstance(first, nn.Linear)
        _descend(net, x, y, 10, 3.0)
        dead, start = _silent(first, x), first.weight.detach().clone()
        gradient = _descend(net, x, y, 1, 0.1)
        _descend(net, x, y, run.pick(150, 1000), 0.1)
        change = (first.weight.detach() - start)[dead].norm(dim=1) / start[dead].norm(dim=1)
        lives.silent.append(int(dead.sum()))
        lives.moved.append(int((gradient[dead].abs().sum(1) > 0).sum()))
        lives.back.append(int((~_silent(first, x))[dead].sum()))
        lives.change.append(float(change.min() if slope else change.max()))
    return lives


def _network(slope: float, generator: torch.Generator) -> nn.Sequential:
    first, last = nn.Linear(64, 64), nn.Linear(64, 10)
    for layer in (first, last):
        layer.weight.data.normal_(0, (2 / 64) ** 0.5, generator=generator)
        layer.bias.data.zero_()
    return nn.Sequential(first, nn.LeakyReLU(slope), last)


def _silent(first: nn.Linear, x: Tensor) -> Tensor:
    with torch.no_grad():
        highest: Tensor = first(x).amax(0)
    return highest <= 0


def _descend(net: nn.Sequential, x: Tensor, y: Tensor, steps: int, rate: float) -> Tensor:
    """Plain gradient descent; returns the last gradient of the first layer's weights."""
    parameters = list(net.parameters())
    for _ in range(steps):
        gradients = torch.autograd.grad(nn.functional.cross_entropy(net(x), y), parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.data -= rate * gradient
    return gradients[0]
