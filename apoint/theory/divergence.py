"""The Kullback-Leibler divergence of discrete and Gaussian distributions, and its second-order expansion.

All in nats. Reference: Cover and Thomas (2006), Elements of information theory, chapters 2 and 8; Amari and
Nagaoka (2000), Methods of information geometry, for the expansion by the Fisher matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import rel_entr, xlogy
from torch import Tensor

from apoint.errors import UsageError

Array = np.ndarray[Any, Any]
_SUM_TOLERANCE = 1e-6  # probabilities may come from a softmax in float32


def entropy(p: ArrayLike) -> float:
    """H(P) = -Σ p_i ln p_i, with 0 ln 0 = 0.

    Args:
        p: Probabilities that add up to 1.
    """
    probabilities = _law("p", p)
    return float(-xlogy(probabilities, probabilities).sum())


def cross_entropy(p: ArrayLike, q: ArrayLike) -> float:
    """H(P, Q) = -Σ p_i ln q_i, infinite where q_i = 0 < p_i; never below H(P) (Gibbs).

    Args:
        p: The distribution under which the mean is taken.
        q: The distribution whose code lengths -ln q_i are averaged.
    """
    first, second = _laws(p, q)
    with np.errstate(divide="ignore"):
        return float(-xlogy(first, second).sum())


def kullback_leibler(p: ArrayLike, q: ArrayLike) -> float:
    """D(P‖Q) = Σ p_i ln(p_i / q_i), with 0 ln 0 = 0, and infinite where q_i = 0 < p_i.

    Never negative, 0 only for P = Q (Gibbs' inequality), and not symmetric.

    Args:
        p: The true distribution P.
        q: The distribution Q used in its place.
    """
    first, second = _laws(p, q)
    return float(rel_entr(first, second).sum())


def smoothed(p: ArrayLike, epsilon: float) -> Array:
    """(p_i + ε)/(1 + nε): the distribution with ε added to each of its n probabilities.

    D between smoothed distributions is finite for any supports, at the cost of a bias that goes to 0 with ε
    where D was finite, and of a value of about p_i ln(1/ε) where it was not.

    Args:
        p: Probabilities that add up to 1.
        epsilon: ε, above 0.
    """
    probabilities = _law("p", p)
    if not (epsilon > 0 and np.isfinite(epsilon)):
        raise UsageError(f"smoothed: epsilon must be positive and finite, got {epsilon:g}")
    return np.asarray((probabilities + epsilon) / (1 + len(probabilities) * epsilon))


def gaussian_kullback_leibler(
    mean: ArrayLike, covariance: ArrayLike, other_mean: ArrayLike, other_covariance: ArrayLike
) -> float:
    """D(N(μ, Σ)‖N(ν, T)) = ½(tr(T⁻¹Σ) + (ν-μ)ᵀT⁻¹(ν-μ) - d + ln det T - ln det Σ).

    Args:
        mean: μ, of d numbers.
        covariance: Σ, [d, d], positive definite.
        other_mean: ν.
        other_covariance: T, [d, d], positive definite.
    """
    first, second = (np.atleast_1d(np.asarray(m, dtype=np.float64)) for m in (mean, other_mean))
    root = _cholesky("covariance", covariance, len(first))
    other_root = _cholesky("other_covariance", other_covariance, len(first))
    if first.shape != second.shape:
        raise UsageError(f"both means must have as many entries, got {len(first)} and {len(second)}")
    ratio = np.linalg.solve(other_root, root)
    shift = np.linalg.solve(other_root, second - first)
    logarithms = 2 * (np.log(np.diag(other_root)).sum() - np.log(np.diag(root)).sum())
    return float(0.5 * ((ratio**2).sum() + shift @ shift - len(first) + logarithms))


def fisher_matrix(log_probabilities: Callable[[Tensor], Tensor], parameters: Tensor) -> Tensor:
    """F = Σ_i p_i ∇ln p_i ∇ln p_iᵀ of a discrete distribution with parameters θ, [n, n].

    Args:
        log_probabilities: From θ to ln p_1(θ) … ln p_m(θ), for all m outcomes.
        parameters: θ, [n].
    """
    probabilities = log_probabilities(parameters).detach().exp()
    total = float(probabilities.sum())
    if not abs(total - 1) <= _SUM_TOLERANCE:
        raise UsageError(f"fisher_matrix: the probabilities of all outcomes must add up to 1, got {total:g}")
    scores: Tensor = torch.func.jacrev(log_probabilities)(parameters)
    return scores.T @ (probabilities[:, None] * scores)


def second_order(fisher: Tensor | ArrayLike, step: Tensor | ArrayLike) -> float:
    """½ δᵀFδ: D(P_θ‖P_(θ+δ)) up to terms of third order in δ. Note the factor ½.

    Args:
        fisher: F at θ, [n, n].
        step: δ, [n].
    """
    matrix, move = np.asarray(fisher, dtype=np.float64), np.asarray(step, dtype=np.float64)
    if matrix.shape != (move.size, move.size):
        raise UsageError(
            f"second_order: a step of {move.size} numbers needs a matrix [{move.size}, {move.size}], got "
            f"{list(matrix.shape)}"
        )
    return float(0.5 * move @ matrix @ move)


def _laws(p: ArrayLike, q: ArrayLike) -> tuple[Array, Array]:
    first, second = _law("p", p), _law("q", q)
    if first.shape != second.shape:
        raise UsageError(f"p and q must have as many outcomes, got {len(first)} and {len(second)}")
    return first, second


def _law(name: str, p: ArrayLike) -> Array:
    values = np.asarray(p, dtype=np.float64)
    if values.ndim != 1 or not values.size or not np.all(values >= 0):
        raise UsageError(f"{name} must be a list of probabilities from 0 on, got {values.tolist()}")
    if not abs(values.sum() - 1) <= _SUM_TOLERANCE:
        raise UsageError(f"{name} must add up to 1, got {values.sum():.8g}")
    return np.asarray(values / values.sum())


def _cholesky(name: str, matrix: ArrayLike, size: int) -> Array:
    values = np.atleast_2d(np.asarray(matrix, dtype=np.float64))
    if values.shape != (size, size) or not np.allclose(values, values.T):
        raise UsageError(f"{name} must be a symmetric [{size}, {size}] matrix, got {list(values.shape)}")
    try:
        return np.asarray(np.linalg.cholesky(values))
    except np.linalg.LinAlgError:
        smallest = float(np.linalg.eigvalsh(values)[0])
        raise UsageError(f"{name} must be positive definite, and has the eigenvalue {smallest:.3g}") from None
