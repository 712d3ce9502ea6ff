"""The exact effect of weight decay on the error of a linear model on new data.

A teacher w* of d weights, each Gaussian with variance σ_w² (`prior`), labels N inputs x with d independent
coordinates of variance 1: y = w*·x + noise of variance σ² (`noise`). Ridge regression with the strength λ
(`decay`) minimises ‖y − X·w‖² + λ·‖w‖². The error is E‖w − w*‖², which is the error on a new input,
without the noise of its label.

References: Krogh and Hertz (1991), A simple weight decay can improve generalization; Hastie, Montanari,
Rosset and Tibshirani (2022), Surprises in high-dimensional ridgeless least squares interpolation.
"""

from __future__ import annotations

import math

import numpy as np

from apoint.errors import UsageError


def optimal_decay(noise: float, prior: float) -> float:
    """The strength with the smallest expected error, λ = σ²/σ_w², for any inputs.

    Each direction of the inputs contributes σ_w²·λ²/(s+λ)² + σ²·s/(s+λ)² to the error (`ridge_error`), and
    the same λ minimises this for every s.

    Args:
        noise: σ², at least 0.
        prior: σ_w², above 0.
    """
    _check("optimal_decay", 0.0, noise, prior)
    return noise / prior


def ridge_error(eigenvalues: np.ndarray, decay: float, noise: float, prior: float) -> float:
    """The expected error of ridge regression on given inputs, over teachers and label noise.

    Σ_i (σ_w²·λ² + σ²·s_i)/(s_i + λ)² with s_i the eigenvalues of X'X. For λ = 0 it is the limit, the error of
    the least-squares solution of smallest norm: a direction with s_i = 0 contributes σ_w².

    Args:
        eigenvalues: s_i, all d of them, at least 0.
        decay: λ, at least 0.
        noise: σ², at least 0.
        prior: σ_w², above 0.
    """
    _check("ridge_error", decay, noise, prior)
    values = np.asarray(eigenvalues, dtype=np.float64)
    if values.size == 0 or not np.all(values >= 0):
        raise UsageError("ridge_error: eigenvalues of X'X must be at least 0, and at least one of them")
    if decay == 0:
        return float(np.sum(np.where(values > 0, noise / np.where(values > 0, values, 1.0), prior)))
    return float(np.sum((prior * decay**2 + noise * values) / (values + decay) ** 2))


def least_squares_error(samples: int, dimension: int, noise: float, prior: float) -> float:
    """The expected error without decay, averaged over Gaussian inputs too: σ²·d/(N − d − 1) for N > d + 1.

    For N < d − 1 the solution of smallest norm has the error σ_w²·(d − N) + σ²·N/(d − N − 1). In between, for
    N = d − 1, d, d + 1, the expectation is infinite as soon as there is noise: the peak that decay removes.

    Args:
        samples: N, at least 1.
        dimension: d, at least 1.
        noise: σ², at least 0.
        prior: σ_w², above 0.
    """
    _check("least_squares_error", 0.0, noise, prior)
    _check_counts("least_squares_error", samples, dimension)
    lost = prior * max(dimension - samples, 0)
    if noise == 0:
        return lost
    spare = abs(samples - dimension) - 1
    return lost + noise * min(samples, dimension) / spare if spare > 0 else math.inf


def typical_ridge_error(samples: int, dimension: int, decay: float, noise: float, prior: float) -> float:
    """The error of ridge regression for large d at a fixed N/d, the same for all draws of the inputs.

    With κ = λ/d and the trace G = (1/d)·tr(X'X/d + κ)⁻¹, which solves κ·G² + (κ + N/d − 1)·G − 1 = 0, the
    error is d·(σ_w²·κ²·(−G') + (σ²/d)·(G + κ·G')), and σ²·G for the best λ.

    Args:
        samples: N, at least 1.
        dimension: d, at least 1.
        decay: λ, above 0.
        noise: σ², at least 0.
        prior: σ_w², above 0.
    """
    _check("typical_ridge_error", decay, noise, prior)
    _check_counts("typical_ridge_error", samples, dimension)
    if decay == 0:
        raise UsageError("typical_ridge_error: decay must be above 0; least_squares_error is for 0")
    ratio, kappa = samples / dimension, decay / dimension
    linear = kappa + ratio - 1
    root = math.sqrt(linear * linear + 4 * kappa)
    trace = 2 / (linear + root)  # the same as (root - linear)/(2·kappa), without its cancellation
    slope = -(trace * trace + trace) / (2 * kappa * trace + linear)
    return dimension * prior * kappa**2 * -slope + noise * (trace + kappa * slope)


def _check(who: str, decay: float, noise: float, prior: float) -> None:
    for name, value in (("decay", decay), ("noise", noise)):
        if not (value >= 0 and math.isfinite(value)):
            raise UsageError(f"{who}: {name} must be at least 0 and finite, got {value:g}")
    if not (prior > 0 and math.isfinite(prior)):
        raise UsageError(f"{who}: prior, the variance of the weights, must be above 0, got {prior:g}")


def _check_counts(who: str, samples: int, dimension: int) -> None:
    for name, value in (("samples", samples), ("dimension", dimension)):
        if int(value) != value or value < 1:
            raise UsageError(f"{who}: {name} must be a whole number from 1 on, got {value}")
