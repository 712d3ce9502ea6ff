"""Lipschitz, smoothness and strong convexity constants of named functions and of linear models.

f is L-Lipschitz if |f(y) − f(x)| ≤ L·‖y − x‖, β-smooth if its gradient is β-Lipschitz, and μ-strongly convex
if f − μ‖x‖²/2 is convex. A constant that does not exist is infinite.

Reference: Bubeck (2015), Convex optimization: algorithms and complexity, sections 3.1, 3.2 and 3.4;
Böhning (1992), Multinomial logistic regression algorithm, for the softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from apoint.errors import UnknownNameError, UsageError


@dataclass(frozen=True)
class Regular:
    """A function of one variable and its constants over the whole line.

    Attributes:
        name: Its name.
        function: Applied to each element of a tensor.
        lipschitz: L; infinite if its slope is not bounded.
        smoothness: β; infinite if its slope jumps or its curvature is not bounded.
        convexity: μ; 0 if it is convex but not strongly.
        minimum: f*, its lowest value; minus infinity if there is none.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    lipschitz: float
    smoothness: float
    convexity: float
    minimum: float


def named(name: str, scale: float = 1.0) -> Regular:
    """A named function of one variable x, multiplied by a scale s, with its constants.

    - `quadratic`: s·x²/2 — β = μ = s;
    - `absolute`: s·|x| — L = s;
    - `huber`: s·x²/2 for |x| ≤ 1, s·(|x| − 1/2) beyond — L = β = s;
    - `softplus`: s·ln(1 + eˣ), the logistic loss of a margin −x — L = s, β = s/4;
    - `logcosh`: s·ln cosh x — L = β = s;
    - `hinge`: s·max(0, 1 − x) — L = s;
    - `squared-hinge`: s·max(0, 1 − x)²/2 — β = s;
    - `quartic`: s·x⁴ — neither L nor β, strictly convex and not strongly.

    Args:
        name: One of these.
        scale: s, above 0.
    """
    if name not in _NAMED:
        raise UnknownNameError("function", name, list(_NAMED))
    if not (scale > 0 and math.isfinite(scale)):
        raise UsageError(f"named: a scale must be positive and finite, got {scale:g}")
    function, lipschitz, smoothness, convexity = _NAMED[name]
    return Regular(
        name,
        lambda x: scale * function(x),
        scale * lipschitz,
        scale * smoothness,
        scale * convexity,
        0.0,
    )


def least_squares(inputs: np.ndarray) -> tuple[float, float]:
    """β and μ of ‖Xw − y‖²/(2n) in w: the largest and smallest eigenvalue of XᵀX/n.

    Args:
        inputs: X, [examples n, features].
    """
    eigenvalues = np.linalg.eigvalsh(_gram(inputs))
    return float(eigenvalues[-1]), max(float(eigenvalues[0]), 0.0)


def logistic_regression(inputs: np.ndarray, penalty: float = 0.0) -> tuple[float, float]:
    """β and L of the mean logistic loss of margins y·⟨x, w⟩ with the penalty λ‖w‖²/2, in w.

    β = λ_max(XᵀX)/(4n) + λ, attained at w = 0, since σ'(0) = 1/4 is the largest slope of the sigmoid.
    L = the mean length of an example; infinite with a penalty. L is a bound: labels decide whether it is
    approached.

    Args:
        inputs: X, [examples n, features].
        penalty: λ, at least 0.
    """
    if not penalty >= 0:
        raise UsageError(f"logistic_regression: a penalty must be at least 0, got {penalty:g}")
    beta = float(np.linalg.eigvalsh(_gram(inputs))[-1]) / 4 + penalty
    lengths = np.linalg.norm(np.asarray(inputs, dtype=np.float64), axis=1)
    return beta, math.inf if penalty else float(lengths.mean())


def softmax_regression(inputs: np.ndarray, classes: int) -> float:
    """A bound on β of the mean cross-entropy of logits Wx in W: λ_max(XᵀX)/(2n).

    The Hessian of the log-sum-exp is diag(p) − ppᵀ, whose largest eigenvalue is at most 1/2; for two classes
    this is attained at W = 0.

    Args:
        inputs: X, [examples n, features].
        classes: Number of classes, at least 2; the bound is the same for all.
    """
    if classes < 2:
        raise UsageError(f"softmax_regression: there must be at least 2 classes, got {classes}")
    return float(np.linalg.eigvalsh(_gram(inputs))[-1]) / 2


def measured_lipschitz(function: Callable[[Tensor], Tensor], points: np.ndarray) -> float:
    """The largest |f(y) − f(x)|/|y − x| over neighbours of a grid: a lower bound on L there.

    Args:
        function: A function of one variable, applied to each element.
        points: An increasing grid.
    """
    x = torch.from_numpy(np.asarray(points, dtype=np.float64))
    with torch.no_grad():
        return float((function(x).diff() / x.diff()).abs().max())


def measured_smoothness(function: Callable[[Tensor], Tensor], points: np.ndarray) -> float:
    """The largest |f'(y) − f'(x)|/|y − x| over neighbours of a grid: a lower bound on β there.

    Args:
        function: A function of one variable, applied to each element; its slope comes from autograd.
        points: An increasing grid.
    """
    x = torch.from_numpy(np.asarray(points, dtype=np.float64)).requires_grad_()
    (slope,) = torch.autograd.grad(function(x).sum(), x)
    return float((slope.diff() / x.detach().diff()).abs().max())


def _gram(inputs: np.ndarray) -> np.ndarray:
    x = np.asarray(inputs, dtype=np.float64)
    if x.ndim != 2 or not len(x) or not np.isfinite(x).all():
        raise UsageError(
            f"inputs must be a finite table [examples, features], got the shape {np.shape(inputs)}"
        )
    return np.asarray(x.T @ x / len(x))


def _huber(x: Tensor) -> Tensor:
    size = x.abs()
    return torch.where(size <= 1, x.square() / 2, size - 0.5)


def _logcosh(x: Tensor) -> Tensor:
    size = x.abs()
    return size + torch.log1p(torch.exp(-2 * size)) - math.log(2)


def _softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


# function, L, β, μ
_NAMED: dict[str, tuple[Callable[[Tensor], Tensor], float, float, float]] = {
    "quadratic": (lambda x: x.square() / 2, math.inf, 1.0, 1.0),
    "absolute": (torch.abs, 1.0, math.inf, 0.0),
    "huber": (_huber, 1.0, 1.0, 0.0),
    "softplus": (_softplus, 1.0, 0.25, 0.0),
    "logcosh": (_logcosh, 1.0, 1.0, 0.0),
    "hinge": (lambda x: torch.relu(1 - x), 1.0, math.inf, 0.0),
    "squared-hinge": (lambda x: torch.relu(1 - x).square() / 2, math.inf, 1.0, 0.0),
    "quartic": (lambda x: x**4, math.inf, math.inf, 0.0),
}
