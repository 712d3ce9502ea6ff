"""Stochastic gradient descent: what a step, a fixed rate, falling rates and mini-batches guarantee.

The loss 𝓛 is β-smooth, not necessarily convex. The gradient of one draw is unbiased, and its mean squared
length is at most σ² + ‖∇𝓛(θ)‖²: σ² bounds its variance, which a mean over n_B independent draws divides by
n_B. Δ = `gap` is 𝓛(θ₀) − 𝓛*.

Reference: Bottou, Curtis and Nocedal (2018), Optimization methods for large-scale machine learning, section
4; Ghadimi and Lan (2013), Stochastic first- and zeroth-order methods for nonconvex stochastic programming.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from apoint.errors import UsageError


def step_bound(
    loss: float, squared_gradient: float, rate: float, smoothness: float, noise: float, batch: int = 1
) -> float:
    """𝓛(θ) − (η − βη²/2)·‖∇𝓛(θ)‖² + βη²σ²/(2n_B): the expected loss after one step is at most this.

    Args:
        loss: 𝓛(θ).
        squared_gradient: ‖∇𝓛(θ)‖².
        rate: η.
        smoothness: β.
        noise: σ², the variance of one draw's gradient.
        batch: n_B.
    """
    _check("step_bound", rate=rate, smoothness=smoothness, batch=batch)
    _not_negative("step_bound", noise=noise)
    bend = smoothness * rate**2 / 2
    return loss - (rate - bend) * squared_gradient + bend * noise / batch


def plateau(rate: float, smoothness: float, noise: float, batch: int = 1) -> float:
    """ηβσ²/n_B: long-run upper bound on the mean squared gradient with a fixed rate η ≤ 1/β.

    A quadratic of curvature β attains it at η = 1/β; see `quadratic_plateau`.

    Args:
        rate: η, at most 1/β.
        smoothness: β.
        noise: σ².
        batch: n_B.
    """
    _check("plateau", rate=rate, smoothness=smoothness, batch=batch)
    _not_negative("plateau", noise=noise)
    _refuse_fast("plateau", rate, smoothness)
    return rate * smoothness * noise / batch


def fixed_rate_bound(
    rate: float, smoothness: float, noise: float, gap: float, steps: int, batch: int = 1
) -> float:
    """ηβσ²/n_B + 2Δ/(ηT): the mean of E‖∇𝓛(θ_t)‖² over t = 0 … T − 1 is at most this, for η ≤ 1/β.

    Args:
        rate: η, at most 1/β.
        smoothness: β.
        noise: σ².
        gap: Δ.
        steps: T.
        batch: n_B.
    """
    _check("fixed_rate_bound", steps=steps)
    _not_negative("fixed_rate_bound", gap=gap)
    return plateau(rate, smoothness, noise, batch) + 2 * gap / (rate * steps)


def best_rate(smoothness: float, noise: float, gap: float, steps: int, batch: int = 1) -> float:
    """η = min(1/β, √(2Δ·n_B/(βσ²T))): the fixed rate with the lowest bound after T steps.

    Args:
        smoothness: β.
        noise: σ².
        gap: Δ.
        steps: T.
        batch: n_B.
    """
    _check("best_rate", smoothness=smoothness, gap=gap, steps=steps, batch=batch)
    _not_negative("best_rate", noise=noise)
    if noise == 0:
        return 1 / smoothness
    return min(1 / smoothness, math.sqrt(2 * gap * batch / (smoothness * noise * steps)))


def steps_needed(smoothness: float, noise: float, gap: float, level: float, batch: int = 1) -> int:
    """The T after which the bound for a fixed rate, the best for that T, is at most a given level.

    The smallest T with `fixed_rate_bound`(`best_rate`) ≤ level, found by doubling and bisection.

    Args:
        smoothness: β.
        noise: σ².
        gap: Δ.
        level: Target mean squared gradient.
        batch: n_B.
    """
    _check("steps_needed", smoothness=smoothness, gap=gap, level=level, batch=batch)

    def reached(steps: int) -> bool:
        rate = best_rate(smoothness, noise, gap, steps, batch)
        return fixed_rate_bound(rate, smoothness, noise, gap, steps, batch) <= level

    high = 1
    while not reached(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def falling_rate_bound(
    rates: Sequence[float], smoothness: float, noise: float, gap: float, batch: int = 1
) -> float:
    """(2Δ + βσ²/n_B·Ση²)/Ση: bounds the mean of E‖∇𝓛(θ_t)‖² with weights η_t, for rates up to 1/β.

    It goes to 0 if Ση diverges and Ση² does not, and more generally if Ση² grows more slowly than Ση.

    Args:
        rates: η₀ … η_{T−1}.
        smoothness: β.
        noise: σ².
        gap: Δ.
        batch: n_B.
    """
    etas = np.asarray(rates, dtype=np.float64)
    if etas.ndim != 1 or not len(etas) or not (etas > 0).all():
        raise UsageError("falling_rate_bound: rates must be positive, one for each step, and at least one")
    _check("falling_rate_bound", smoothness=smoothness, batch=batch)
    _not_negative("falling_rate_bound", noise=noise, gap=gap)
    _refuse_fast("falling_rate_bound", float(etas.max()), smoothness)
    return float((2 * gap + smoothness * noise / batch * (etas**2).sum()) / etas.sum())


def quadratic_plateau(rate: float, curvatures: Sequence[float], noise: float, batch: int = 1) -> float:
    """The exact long-run mean squared gradient on a quadratic with additive noise.

    Σ_k ηλ_k·s²/(2 − ηλ_k) with s² = σ²/(d·n_B) in each of the d directions, since
    E x² ← (1 − ηλ)²·E x² + η²s². For one direction of curvature β it is half of `plateau` for small rates
    and all of it at η = 1/β.

    Args:
        rate: η, below 2/max λ.
        curvatures: λ_k, above 0.
        noise: σ², of the whole vector, spread evenly over the directions.
        batch: n_B.
    """
    _check("quadratic_plateau", rate=rate, batch=batch)
    product = rate * np.asarray(curvatures, dtype=np.float64)
    if not ((product > 0) & (product < 2)).all():
        raise UsageError(
            f"quadratic_plateau: rate times curvature must be between 0 and 2, got {product.min():g} to "
            f"{product.max():g}"
        )
    return float((product / (2 - product)).sum() * noise / (len(product) * batch))


def batch_noise(noise: float, batch: int, population: int | None = None) -> float:
    """The variance of a mini-batch gradient: σ²/n_B, and σ²·(n − n_B)/(n_B(n − 1)) without replacement.

    Args:
        noise: σ², the variance of one draw's gradient over the whole data.
        batch: n_B.
        population: n, if drawn without replacement.
    """
    _check("batch_noise", batch=batch)
    if population is None:
        return noise / batch
    if not batch <= population:
        raise UsageError(
            f"batch_noise: without replacement a batch holds at most the {population} examples, got {batch}"
        )
    return 0.0 if population == 1 else noise / batch * (population - batch) / (population - 1)


# -- problems ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FiniteSum:
    """A mean of n losses φ(z_i; i) of linear predictions z_i = ⟨x_i, θ⟩, with its constants.

    Attributes:
        name: Its name.
        inputs: x, [n, dimension].
        loss: φ for a table of predictions [chains, n], with the same shape.
        slope: φ' with respect to z, the same.
        smoothness: A bound on β: max φ'' times the largest eigenvalue of XᵀX/n.
        minimum: A lower bound on 𝓛.
    """

    name: str
    inputs: np.ndarray
    loss: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]
    smoothness: float
    minimum: float = 0.0

    def value(self, weights: np.ndarray) -> np.ndarray:
        """𝓛 of each row of weights."""
        return np.asarray(self.loss(weights @ self.inputs.T).mean(1))

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """∇𝓛 of each row of weights."""
        return np.asarray(self.slope(weights @ self.inputs.T) @ self.inputs / len(self.inputs))

    def variance(self, weights: np.ndarray) -> np.ndarray:
        """E‖∇ℓ_i‖² − ‖∇𝓛‖² of each row of weights, over all n examples."""
        squares = (self.inputs**2).sum(1)
        second = (self.slope(weights @ self.inputs.T) ** 2 * squares).mean(1)
        return np.asarray(second - (self.gradient(weights) ** 2).sum(1))


@dataclass(frozen=True)
class Course:
    """The history of chains of stochastic gradient descent.

    Attributes:
        squared: ‖∇𝓛(θ_t)‖² at t = 0 … T − 1, [T, chains].
        noise: The largest variance of one draw's gradient that any chain saw.
        gap: 𝓛(θ₀) minus the lower bound on 𝓛.
    """

    squared: np.ndarray
    noise: float
    gap: float


def run_chains(
    problem: FiniteSum,
    start: np.ndarray,
    rates: Sequence[float],
    chains: int,
    random: np.random.Generator,
    batch: int = 1,
) -> Course:
    """Run independent chains of stochastic gradient descent from one start, with replacement.

    Args:
        problem: The problem to minimise.
        start: θ₀.
        rates: η of each step.
        chains: Number of chains.
        random: Draws the examples.
        batch: n_B.
    """
    _check("run_chains", chains=chains, batch=batch)
    weights = np.tile(np.asarray(start, dtype=np.float64), (chains, 1))
    gap = float(problem.value(weights[:1])[0]) - problem.minimum
    n, noise, squared = len(problem.inputs), 0.0, np.empty((len(rates), chains))
    squares = (problem.inputs**2).sum(1)
    for t, eta in enumerate(rates):
        slopes = problem.slope(weights @ problem.inputs.T)
        squared[t] = ((slopes @ problem.inputs / n) ** 2).sum(1)
        noise = max(noise, float(((slopes**2) @ squares / n - squared[t]).max()))
        drawn = random.integers(n, size=(chains, batch))
        taken = np.take_along_axis(slopes, drawn, 1)
        weights = weights - eta * np.einsum("cb,cbd->cd", taken, problem.inputs[drawn]) / batch
    return Course(squared, noise, gap)


def _check(where: str, **values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{where}: {name} must be positive and finite, got {value:g}")


def _not_negative(where: str, **values: float) -> None:
    for name, value in values.items():
        if not (value >= 0 and math.isfinite(value)):
            raise UsageError(f"{where}: {name} must be at least 0 and finite, got {value:g}")


def _refuse_fast(where: str, rate: float, smoothness: float) -> None:
    if rate * smoothness > 1 + 1e-12:
        raise UsageError(
            f"{where}: the bound holds for rates up to 1/β = {1 / smoothness:g}, got {rate:g}; take a "
            "smaller one"
        )
