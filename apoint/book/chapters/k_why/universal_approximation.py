"""K1: one hidden layer comes as close as one likes to any continuous function, unless σ is a polynomial."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, between, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import approximation

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512)
FINE = np.linspace(0.0, 1.0, 20_011)  # no multiple of a spacing that is used, so that it falls between knots
SHARPNESS = 12.0


def _wave(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.sin(2 * np.pi * x) + 0.5 * np.cos(6 * np.pi * x))


STEEPEST = 2 * np.pi + 0.5 * 6 * np.pi  # bounds on |g'| and |g''| of the wave, term by term
MOST_CURVED = (2 * np.pi) ** 2 + 0.5 * (6 * np.pi) ** 2


def _pointed(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.abs(x - 1 / np.pi))  # continuous with infinite slope at a point that is no knot


def _distance(network: approximation.ShallowNetwork, target: Callable[[np.ndarray], np.ndarray]) -> float:
    return float(np.abs(network(FINE) - target(FINE)).max())


def _slope(widths: np.ndarray, errors: list[float]) -> float:
    return float(np.polyfit(np.log(widths), np.log(errors), 1)[0])


@claim(
    "K1",
    "One hidden layer, built by hand",
    kind="bound",
    statement=r"""
    On an interval one hidden layer of $N$ neurons comes as close as one likes to any continuous $g$, and one
    can write the weights down. A ReLU network joins values of $g$ at distance $h$ by straight lines,
    $$f(x)=g(t_0)+\sum_{j}(s_j-s_{j-1})\max(x-t_j,0),\qquad \sup|f-g|\le\frac{h^2}{8}\sup|g''|,$$
    and, where $g$ is only continuous, $\sup|f-g|\le\omega(h)$, its modulus of continuity. A staircase of
    sigmoids of sharpness $\beta$ has $\sup|f-g|\le h\sup|g'|\left(1+\frac{1}{e^{\beta/2}-1}\right)$.
    """,
    refuted_by="an error above its bound at any width, or an error of a smooth function that does not fall "
    "as $N^{-2}$ for the lines and as $N^{-1}$ for the steps",
    seconds={"quick": 1, "standard": 1},
    planted={"factor": 0.95},
    details=r"""
    The theorem says that a network exists for each $\varepsilon$ and not how wide it is; a construction says
    both. Between two knots the lines are a weighted mean of two values of $g$, neither further from $g(x)$
    than $\omega(h)$; Rolle's theorem gives the second bound. The error is the largest over 20,011 points
    that do not coincide with the knots.
    """,
    references=(
        "Cybenko (1989), Approximation by superpositions of a sigmoidal function",
        "Pinkus (1999), Approximation theory of the MLP model in neural networks, Acta Numerica 8",
    ),
)
def built_by_hand(run: Running, factor: float = 1.0) -> Evidence:
    """Networks are written down and measured; `factor` multiplies the bounds."""
    widths = np.array(WIDTHS)
    built = {
        "lines": [approximation.relu_interpolant(_wave, 0.0, 1.0, n) for n in WIDTHS],
        "lines, √|x − 1/π|": [approximation.relu_interpolant(_pointed, 0.0, 1.0, n) for n in WIDTHS],
        "steps": [approximation.sigmoid_steps(_wave, 0.0, 1.0, n + 1, SHARPNESS) for n in WIDTHS],
    }
    bounds = {
        "lines": [approximation.interpolation_bound(1 / n, MOST_CURVED) for n in WIDTHS],
        "lines, √|x − 1/π|": list(widths**-0.5),  # |√u − √v| ≤ √|u − v|
        "steps": [approximation.step_bound(1 / (n + 1), STEEPEST, SHARPNESS) for n in WIDTHS],
    }
    numbers, lines = [], []
    for name, networks in built.items():
        target = _pointed if "√" in name else _wave
        errors = [_distance(network, target) for network in networks]
        worst = float(np.max(np.array(errors) / bounds[name])) / factor
        numbers.append(at_most(f"{name}: largest error as a share of its bound", worst, 1.0))
        if name != "lines, √|x − 1/π|":
            # The last widths: before, one piece spans more than a wave.
            slope, power = _slope(widths[3:], errors[3:]), -2.0 if name == "lines" else -1.0
            numbers.append(between(f"{name}: power of N in the error", slope, power - 0.1, power + 0.1))
        lines += [
            Series(name, WIDTHS, errors, style="points"),
            Series("", WIDTHS, bounds[name], style="dashed"),
        ]
    panel = Panel("Networks written down", "hidden neurons N", "largest error", lines, x_log=True, y_log=True)
    caption = "Dots: the largest error on the interval, exact up to rounding; dashed: the bound of each."
    return Evidence(numbers, pictures=[Picture(caption, [panel])])


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "ReLU": torch.relu,
    "tanh": torch.tanh,
    "sine": torch.sin,
    "GELU": F.gelu,
    "z²": lambda z: z**2,
    "z³ − z": lambda z: z**3 - z,
}
DEGREES = {"z²": 2, "z³ − z": 3}
FITTED_WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512)


def _surface(points: np.ndarray) -> np.ndarray:
    return np.asarray(np.sin(3 * points[:, 0]) * np.cos(2 * points[:, 1]) + 0.3 * points[:, 0] * points[:, 1])


def _grid(side: int) -> np.ndarray:
    line = np.linspace(-1.0, 1.0, side)
    return np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)


@claim(
    "K1b",
    "Any activation but a polynomial",
    kind="shape",
    statement=r"""
    One hidden layer comes uniformly close to every continuous function on a compact set exactly if its
    activation $\sigma$ is no polynomial. If $\sigma$ is one of degree $p$, every network
    $\sum_j c_j\,\sigma(w_j\cdot x+b_j)$ is a polynomial of degree $p$ whatever its width, and keeps at least
    the error of the best of these.
    """,
    refuted_by="a polynomial activation whose error falls below that of the best polynomial of its degree, "
    "or another activation whose error does not fall far below it as the width grows",
    seconds={"quick": 3, "standard": 40},
    planted={"polynomials": ("tanh", "z³ − z")},
    details=r"""
    The hidden layer is drawn and the output layer fitted by least squares, so that a fit shows what is
    possible and its failure proves nothing. Impossibility comes from elsewhere: the best uniform error of a
    polynomial of degree $p$ on the same points is the solution of a linear programme. With enough neurons
    the fit of a polynomial activation is the best polynomial of least squares itself. The target is
    $\sin(3x)\cos(2y)+0.3\,xy$ on a square.
    """,
    references=(
        "Leshno, Lin, Pinkus and Schocken (1993), Multilayer feedforward networks with a nonpolynomial "
        "activation function can approximate any function, Neural Networks 6",
    ),
)
def unless_polynomial(run: Running, polynomials: tuple[str, ...] = ("z²", "z³ − z")) -> Evidence:
    """Random hidden layers are fitted at growing widths; `polynomials` names those that must not succeed."""
    points, between_points = _grid(40), _grid(53)
    values, expected = _surface(points), _surface(between_points)
    draws, random = run.pick(3, 20), run.random()
    left = {d: approximation.best_polynomial_error(between_points, expected, d) for d in (2, 3)}
    numbers: list[Number] = []
    lines: list[Series] = []
    for name, activation in ACTIVATIONS.items():
        largest, mean_square = np.empty((2, len(FITTED_WIDTHS), draws))
        for place, width in enumerate(FITTED_WIDTHS):
            for draw in range(draws):
                fit = approximation.fit_random_features(activation, points, values, width, random, scale=1.5)
                largest[place, draw] = np.abs(fit(between_points) - expected).max()
                mean_square[place, draw] = np.mean((fit(points) - values) ** 2) ** 0.5
        middle = np.median(largest, 1).tolist()
        lines.append(
            Series(name, FITTED_WIDTHS, middle, largest.min(1).tolist(), largest.max(1).tolist(), "points")
        )
        numbers += _of_one(name, name in polynomials, largest, mean_square, left, points, values)
    levels = [left[d] for d in (2, 3)]
    for degree, level in zip((2, 3), levels, strict=True):
        ends = [FITTED_WIDTHS[0], FITTED_WIDTHS[-1]]
        lines.append(Series(f"best polynomial of degree {degree}", ends, [level] * 2, style="dashed"))
    panel = Panel("Fitted networks", "hidden neurons N", "largest error", lines, x_log=True, y_log=True)
    caption = f"The median over {draws} draws of the hidden layer, with the smallest and the largest of them."
    return Evidence(numbers, pictures=[Picture(caption, [panel])])


def _of_one(
    name: str,
    stuck: bool,
    largest: np.ndarray,
    mean_square: np.ndarray,
    left: dict[int, float],
    points: np.ndarray,
    values: np.ndarray,
) -> list[Number]:
    """What one activation must show."""
    degree = DEGREES.get(name, 3)
    if not stuck:
        # A tenth of what cubic polynomials leave is further than any small gain of luck or constants.
        return [
            at_most(f"{name}: largest error with 512 neurons", float(np.median(largest[-1])), left[3] / 10)
        ]
    best = approximation.best_polynomial_error(points, values, degree, "root mean square")
    # The best error and that of a fit are equal up to the solver's tolerance of 1e-7.
    return [
        at_least(
            f"{name}: smallest of its largest errors, all widths", float(largest.min()), left[degree] - 1e-7
        ),
        close(
            f"{name}: root mean square error, 512 neurons", float(mean_square[-1].max()), best, relative=1e-6
        ),
    ]
