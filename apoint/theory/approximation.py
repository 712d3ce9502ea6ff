"""Networks with one hidden layer that approximate a given function, by construction and by fitting.

A network with one hidden layer is x ↦ c₀ + Σ_j c_j σ(w_j·x + b_j). With a continuous σ such networks come
uniformly close to every continuous function on a compact set if and only if σ is not a polynomial.

References: Cybenko (1989), Approximation by superpositions of a sigmoidal function; Leshno, Lin, Pinkus and
Schocken (1993), Multilayer feedforward networks with a nonpolynomial activation function can approximate any
function; Pinkus (1999), Approximation theory of the MLP model in neural networks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from apoint.errors import UsageError

Function = Callable[[Tensor], Tensor]
Target = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ShallowNetwork:
    """One hidden layer and one output: x ↦ c₀ + Σ_j c_j σ(w_j·x + b_j), in float64.

    Attributes:
        activation: σ, applied to each element of a tensor.
        weights: The w_j, [width, inputs].
        biases: The b_j, [width].
        outer: The c_j, [width].
        offset: c₀.
    """

    activation: Function
    weights: np.ndarray
    biases: np.ndarray
    outer: np.ndarray
    offset: float = 0.0

    @property
    def width(self) -> int:
        """The number of hidden neurons."""
        return len(self.outer)

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """The values at points, [count, inputs], or [count] if there is one input."""
        before = _columns(points) @ self.weights.T + self.biases
        return np.asarray(self.offset + hidden(self.activation, before) @ self.outer)


def hidden(activation: Function, before: np.ndarray) -> np.ndarray:
    """Apply an activation to an array in float64."""
    with torch.no_grad():
        return np.asarray(activation(torch.from_numpy(np.asarray(before, np.float64))).numpy())


def relu_interpolant(target: Target, low: float, high: float, pieces: int) -> ShallowNetwork:
    """The ReLU network that joins the values of a function at equally spaced points by straight lines.

    f(x) = g(t₀) + Σ_j (s_j − s_{j−1}) max(x − t_j, 0) with knots t_j = low + j·h, slopes s_j of the chords
    and s_{−1} = 0: one neuron for each piece.

    Args:
        target: g, applied to an array of points.
        low: The left end of the interval.
        high: Its right end.
        pieces: Number of straight pieces, at least 1.
    """
    _check_interval(low, high, pieces, "pieces")
    knots = np.linspace(low, high, pieces + 1)
    values = np.asarray(target(knots), float)
    slopes = np.diff(values) / np.diff(knots)
    outer = np.diff(slopes, prepend=0.0)
    return ShallowNetwork(torch.relu, np.ones((pieces, 1)), -knots[:-1], outer, float(values[0]))


def interpolation_bound(spacing: float, curvature: float) -> float:
    """Error bound for interpolation by straight lines: h² · max|g''| / 8.

    Args:
        spacing: h, the distance between knots.
        curvature: The largest |g''| on the interval.
    """
    _check_sizes(spacing=spacing, curvature=curvature)
    return spacing**2 * curvature / 8


def sigmoid_steps(
    target: Target, low: float, high: float, steps: int, sharpness: float = 20.0
) -> ShallowNetwork:
    """A staircase of sigmoids that takes a function's value in the middle of each of its steps.

    f(x) = g(m₀) + Σ_{j≥1} (g(m_j) − g(m_{j−1})) s(β(x − t_j)/h), where s is the logistic sigmoid, t_j the
    points where one step of width h meets the next and m_j the middles of the steps: steps − 1 neurons.

    Args:
        target: g, applied to an array of points.
        low: The left end of the interval.
        high: Its right end.
        steps: Number of steps, at least 1.
        sharpness: β, above 0; larger values make each step steeper.
    """
    _check_interval(low, high, steps, "steps")
    _check_sizes(sharpness=sharpness)
    width = (high - low) / steps
    values = np.asarray(target(low + width * (np.arange(steps) + 0.5)), float)
    slope = sharpness / width
    edges = low + width * np.arange(1, steps)
    return ShallowNetwork(
        torch.sigmoid, np.full((steps - 1, 1), slope), -slope * edges, np.diff(values), float(values[0])
    )


def step_bound(width: float, lipschitz: float, sharpness: float = 20.0) -> float:
    """Error bound for `sigmoid_steps`: L·h·(1 + 1/(exp(β/2) − 1)).

    L·h/2 for vertical steps of width h, L·h/2 for the nearest step, where a sigmoid may be half a jump away
    from vertical, and L·h·exp(−βk/2) for the k-th nearest of the others.

    Args:
        width: h, of a step.
        lipschitz: L, the largest |g'| on the interval.
        sharpness: β of the sigmoids.
    """
    _check_sizes(width=width, lipschitz=lipschitz, sharpness=sharpness)
    return lipschitz * width * (1 + 1 / math.expm1(sharpness / 2))


def fit_random_features(
    activation: Function,
    points: np.ndarray,
    values: np.ndarray,
    width: int,
    random: np.random.Generator,
    scale: float = 1.0,
) -> ShallowNetwork:
    """A network with a random hidden layer and an output layer fitted by least squares.

    w_j is normal with standard deviation `scale`, and b_j = −w_j·x for a point x drawn from those given, so
    that each neuron turns somewhere among the points.

    Args:
        activation: σ.
        points: Where the function is known, [count, inputs] or [count].
        values: Its values there, [count].
        width: Number of hidden neurons, at least 1.
        random: Draws the hidden layer.
        scale: Standard deviation of the hidden weights, above 0.
    """
    columns = _columns(points)
    _check_whole(width, 1, "width")
    _check_sizes(scale=scale)
    weights = scale * random.standard_normal((width, columns.shape[1]))
    biases = -(weights * columns[random.integers(len(columns), size=width)]).sum(1)
    features = np.column_stack([np.ones(len(columns)), hidden(activation, columns @ weights.T + biases)])
    # Columns of equal size, so that the cut-off for small singular values means the same for each.
    sizes = np.maximum(np.linalg.norm(features, axis=0), np.finfo(float).tiny)
    outer = np.linalg.lstsq(features / sizes, np.asarray(values, float), rcond=1e-13)[0] / sizes
    return ShallowNetwork(activation, weights, biases, outer[1:], float(outer[0]))


def polynomial_powers(inputs: int, degree: int) -> np.ndarray:
    """The exponents of all monomials up to a total degree, [monomials, inputs]."""
    _check_whole(inputs, 1, "inputs")
    _check_whole(degree, 0, "degree")
    powers = itertools.product(range(degree + 1), repeat=inputs)
    return np.array([one for one in powers if sum(one) <= degree])


def best_polynomial_error(
    points: np.ndarray, values: np.ndarray, degree: int, norm: str = "uniform"
) -> float:
    """How far the best polynomial of a total degree is from given values.

    A network with one hidden layer and a polynomial activation of degree p is itself a polynomial of degree
    p, however wide it is: it cannot do better than this. The uniform error is computed by a linear programme.

    Args:
        points: Where the values are known, [count, inputs] or [count].
        values: The values, [count].
        degree: p, at least 0.
        norm: `uniform` for the largest error, `root mean square` for that of least squares.
    """
    columns = _columns(points)
    values = np.asarray(values, float)
    basis = np.prod(columns[:, None, :] ** polynomial_powers(columns.shape[1], degree)[None], axis=2)
    if norm == "root mean square":
        rest = values - basis @ np.linalg.lstsq(basis, values, rcond=None)[0]
        return float(np.sqrt(np.mean(rest**2)))
    if norm != "uniform":
        raise UsageError(f"a norm must be 'uniform' or 'root mean square', got {norm!r}")
    ones = np.ones((len(values), 1))
    solved = linprog(
        np.append(np.zeros(basis.shape[1]), 1.0),
        A_ub=np.block([[basis, -ones], [-basis, -ones]]),
        b_ub=np.concatenate([values, -values]),
        bounds=[(None, None)] * basis.shape[1] + [(0, None)],
    )
    return float(solved.fun)


def _columns(points: np.ndarray) -> np.ndarray:
    points = np.asarray(points, float)
    return points[:, None] if points.ndim == 1 else points


def _check_interval(low: float, high: float, count: int, name: str) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"an interval must have finite ends, the left one first; got {low:g} to {high:g}")
    _check_whole(count, 1, name)


def _check_whole(value: int, least: int, name: str) -> None:
    if isinstance(value, bool) or int(value) != value or value < least:
        raise UsageError(f"{name} must be a whole number from {least} on, got {value}")


def _check_sizes(**sizes: float) -> None:
    for name, value in sizes.items():
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"{name} must be positive and finite, got {value:g}")
