"""A4: gradients that vanish or explode with depth, and the bound that says how fast they may."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from apoint.book.chapters.a_signal.measured import Signals, signals
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.settings import Spec
from apoint.theory import backpropagation

Function = Callable[[Tensor], Tensor]
SLACK = 1e-9  # rounding of a product of a few dozen factors


def _sigmoid_slope(z: Tensor) -> Tensor:
    return torch.sigmoid(z) * (1 - torch.sigmoid(z))


def _tanh_slope(z: Tensor) -> Tensor:
    return 1 - torch.tanh(z).square()


NETWORKS: dict[str, tuple[Function, Function, float]] = {
    "sigmoid": (torch.sigmoid, _sigmoid_slope, 0.25),
    "tanh": (torch.tanh, _tanh_slope, 1.0),
}
DEEP: dict[str, tuple[str, Spec]] = {
    "sigmoid, Glorot": ("sigmoid", "glorot"),
    "tanh, Glorot": ("tanh", "glorot"),
    "ReLU, He": ("relu", "he"),
    "ReLU, twice He's deviation": ("relu", {"name": "he", "gain": 2 * math.sqrt(2)}),
}


@claim(
    "A4",
    "Vanishing and exploding gradients",
    kind="bound",
    statement=r"""
    Let $\gamma=\max|f'|$, which is $\frac14$ for the sigmoid and 1 for tanh. Then, with the sizes of all
    entries,
    $$|\delta^l|\le\gamma^{L-l}\,|W^{l+1}|^{\top}\cdots|W^L|^{\top}\,|\delta^L|
    \le\gamma^{L-l+1}\,|W^{l+1}|^{\top}\cdots|W^L|^{\top}\left|\frac{\partial C}{\partial a^L}\right| ,$$
    and so $\|\delta^l\|\le\gamma^{L-l}\|W^{l+1}\|\cdots\|W^L\|\,\|\delta^L\|$. With sigmoids and weights that
    keep the length of a vector, errors lose at least a factor 4 in every layer.
    """,
    refuted_by="one error of one unit above its bound; or errors of a sigmoid network that lose less than a "
    "factor 4 per layer under Glorot's initialisation",
    seconds={"quick": 1, "standard": 10},
    planted={"factor": 0.95},
    erratum=Erratum(
        quote=r"Si l'on note $\gamma=\max_{x\in\mathbb{R}}f'(x)$ alors : $|\delta_j^l|\leq\gamma^{L-l+1}$ "
        r"[…]",
        place="notes 1.1.1",
        written=r"$|\delta^l_j|\le\gamma^{L-l+1}\left|\sum_kw^{l+1}_{k,j}\left(\cdots\left(\sum_kw^L_{k,j}"
        r"\delta^L_k\right)\cdots\right)\right|$",
        corrected=r"$|\delta^l_j|\le\gamma^{L-l}\sum_k|w^{l+1}_{k,j}|\left(\cdots\left(\sum_k|w^L_{k,j}|\,"
        r"|\delta^L_k|\right)\cdots\right)$",
        why=r"$\delta^L$ already holds the slope of the last layer, so that there are $L-l$ further slopes "
        r"and not $L-l+1$: a chain of single sigmoids near 0 exceeds the printed bound nearly four times. "
        r"And slopes differ from unit to unit: taken out of a signed sum, they let terms cancel that do not "
        r"cancel with them, so that the sizes belong inside the sums.",
    ),
    details=r"""
    The check draws chains of single neurons, where the bound is nearly attained, and small networks, where
    signs matter. The figure shows what happens in wide networks at the start of training: mean squares of
    $\delta^l$ relative to the last hidden layer, for four combinations of activation and initialisation. The
    band holds the middle 80 % of the networks drawn.
    """,
    references=(
        "Hochreiter (1991), Untersuchungen zu dynamischen neuronalen Netzen",
        "Glorot and Bengio (2010), Understanding the difficulty of training deep feedforward networks",
    ),
)
def bound_and_measured(run: Running, factor: float = 1.0) -> Evidence:
    """Errors of drawn networks against their bounds; `factor` multiplies the largest slope in these."""
    numbers, written = [], []
    for name, (function, slope, gamma) in NETWORKS.items():
        largest = backpropagation.largest_slope(function)
        numbers.append(close(f"largest slope of {name}", largest, gamma * factor, absolute=1e-7))
        for kind, sizes in (("chains", [1] * 7), ("networks", [4, 5, 3, 4, 2])):
            random = run.generator(f"{name} {kind}")
            ratios = [
                _ratios(_draw(sizes, function, slope, random), gamma * factor)
                for _ in range(run.pick(60, 2000))
            ]
            worst = [max(column) for column in zip(*ratios, strict=True)]
            numbers.append(at_most(f"largest error over bound, {name} {kind}", worst[0], 1 + SLACK))
            numbers.append(at_most(f"largest norm over bound, {name} {kind}", worst[1], 1 + SLACK))
            written.append(at_most(f"largest error over bound, {name} {kind}", worst[2], 1 + SLACK))
            if kind == "chains":  # a unit at 0 has the largest slope: the bound cannot be any smaller
                numbers.append(at_least(f"the bound is nearly attained, {name} {kind}", worst[0], 0.99))
    picture, measured = _deep(run)
    return Evidence([*numbers, *measured], written, [picture])


@dataclass(frozen=True)
class _Drawn:
    weights: list[Tensor]
    deltas: list[Tensor]


def _draw(sizes: list[int], function: Function, slope: Function, generator: torch.Generator) -> _Drawn:
    """One network with small inputs, where slopes are near their largest, and its errors."""
    pairs = list(itertools.pairwise(sizes))
    weights = [torch.randn(n, m, generator=generator, dtype=torch.float64) / math.sqrt(m) for m, n in pairs]
    biases = [-weight @ function(torch.zeros(weight.shape[1], dtype=torch.float64)) for weight in weights]
    inputs = 0.1 * torch.randn(1, sizes[0], generator=generator, dtype=torch.float64)
    passed = backpropagation.forward(weights, biases, function, inputs)
    pull = torch.randn(1, sizes[-1], generator=generator, dtype=torch.float64)
    return _Drawn(weights, backpropagation.backward(passed, weights, slope, pull).deltas)


def _ratios(drawn: _Drawn, gamma: float) -> tuple[float, float, float]:
    """The largest of errors over bounds by units, by norms, and by the bound as it is printed."""
    weights, deltas = drawn.weights, drawn.deltas
    bounds = backpropagation.delta_bounds(weights, gamma, deltas[-1])
    norms = backpropagation.norm_bounds(weights, gamma, float(deltas[-1].norm()))
    signed, printed = deltas[-1], list[Tensor]()
    for weight in reversed(weights[1:]):
        signed = gamma * (signed @ weight)
        printed.insert(0, (gamma * signed).abs())
    hidden = deltas[:-1]
    by_unit = max(float((d.abs() / b).max()) for d, b in zip(hidden, bounds[:-1], strict=True))
    by_norm = max(float(d.norm()) / b for d, b in zip(hidden, norms[:-1], strict=True))
    as_printed = max(float((d.abs() / b).max()) for d, b in zip(hidden, printed, strict=True))
    return by_unit, by_norm, as_printed


def _deep(run: Running) -> tuple[Picture, list[Number]]:
    """Errors by layer in wide deep networks, and what they lose in each."""
    width, depth, networks = run.pick(100, 300), 12, run.pick(12, 40)
    layers, lines, numbers = list(range(1, depth + 1)), [], []
    factors: dict[str, tuple[float, float]] = {}
    for name, (activation, init) in DEEP.items():
        found = signals(activation, init, [width] * (depth + 1), networks, run.generator(name))
        sizes = np.sqrt(found.backward / found.backward[:, -1:])
        lines.append(_line(name, layers, sizes))
        factors[name] = _factor(found)
    bound = [0.25 ** (depth - layer) for layer in layers]
    lines.append(Series("a factor 1/4 per layer", layers, bound, style="dashed"))
    for name, limit in (("sigmoid, Glorot", 0.25), ("tanh, Glorot", 1.0)):
        numbers.append(at_most(f"factor per layer, {name}", factors[name][0], limit, factors[name][1]))
    large = factors["ReLU, twice He's deviation"]
    numbers.append(at_least("factor per layer, ReLU with twice He's deviation", large[0], 1.5, large[1]))
    panel = Panel(
        "Errors on their way back", "layer", "root mean square of δ, last hidden layer = 1", lines, y_log=True
    )
    caption = (
        f"{networks} networks of {depth} hidden layers with {width} units each: mean over networks and the "
        "middle 80 %."
    )
    return Picture(caption, [panel], "notes 1.1.1"), numbers


def _line(name: str, layers: list[int], sizes: np.ndarray) -> Series:
    low, high = np.quantile(sizes, [0.1, 0.9], axis=0)
    return Series(name, layers, sizes.mean(0), low, high)


def _factor(found: Signals) -> tuple[float, float]:
    """By how much the errors change per layer, as a geometric mean over layers, with its standard error."""
    depth = found.backward.shape[1]
    logarithms = np.log(found.backward[:, 0] / found.backward[:, -1]) / (2 * (depth - 1))
    mean, error = logarithms.mean(), logarithms.std(ddof=1) / math.sqrt(len(logarithms))
    return float(np.exp(mean)), float(np.exp(mean) * error)
