"""Five problems on which the theorems on stochastic gradient descent are tried, two of them not convex."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.evidence import Number, agrees
from apoint.theory import stochastic
from apoint.theory.regularity import least_squares
from apoint.theory.stochastic import FiniteSum

EXAMPLES, FEATURES = 30, 3
LENGTHS = (1, 2, 5, 10, 50, 200)
"""Numbers of steps at which bounds are looked at, besides the last."""


def five_problems(random: np.random.Generator) -> list[FiniteSum]:
    """A mean, logistic, Huber's, a robust and a periodic regression, with smoothness constants by hand.

    The second derivatives of the five losses are at most 1, 1/4, 1, 1 and 1; all are at least 0.
    """
    inputs = random.standard_normal((EXAMPLES, FEATURES))
    beta = least_squares(inputs)[0]
    truth = inputs @ random.standard_normal(FEATURES)
    noisy = truth + 0.5 * random.standard_normal(EXAMPLES)
    labels = np.where(truth + random.standard_normal(EXAMPLES) > 0, 1.0, -1.0)
    numbers = random.standard_normal(EXAMPLES)
    return [
        FiniteSum(
            "mean of numbers",
            np.ones((EXAMPLES, 1)),
            lambda z: (z - numbers) ** 2 / 2,
            lambda z: z - numbers,
            1.0,
            float(numbers.var() / 2),
        ),
        FiniteSum(
            "logistic regression",
            inputs,
            lambda z: np.logaddexp(0, -labels * z),
            lambda z: -labels / (1 + np.exp(labels * z)),
            beta / 4,
        ),
        FiniteSum(
            "Huber's regression",
            inputs,
            lambda z: _huber(z - noisy),
            lambda z: np.clip(z - noisy, -1, 1),
            beta,
        ),
        FiniteSum(
            "robust regression (not convex)",
            inputs,
            lambda z: (z - noisy) ** 2 / 2 / (1 + (z - noisy) ** 2),
            lambda z: (z - noisy) / (1 + (z - noisy) ** 2) ** 2,
            beta,
        ),
        FiniteSum(
            "periodic regression (not convex)",
            inputs,
            lambda z: 1 - np.cos(z - noisy),
            lambda z: np.sin(z - noisy),
            beta,
        ),
    ]


def start_of(problem: FiniteSum) -> np.ndarray:
    """Where descent begins: 1 in every coordinate."""
    return np.full(problem.inputs.shape[1], 1.0)


def largest_share(
    problem: FiniteSum, eta: float, course: stochastic.Course, batch: int, factor: float
) -> tuple[float, float]:
    """The mean squared gradient over the bound of a fixed rate, the largest of several T, with its error."""
    found = []
    for steps in (*LENGTHS, len(course.squared)):
        bound = stochastic.fixed_rate_bound(eta, problem.smoothness, course.noise, course.gap, steps, batch)
        shares = course.squared[:steps].mean(0) / (factor * bound)
        found.append((float(shares.mean()), float(shares.std() / math.sqrt(len(shares)))))
    return max(found)


def both_terms(
    steps: int, chains: int, random: np.random.Generator, batch: int, factor: float
) -> list[Number]:
    """A quadratic far from its minimum with η = 1/β: the bound less σ²/(n_B·T) is what is to be expected.

    The first step leaves nothing of the start but noise, so that Σ‖∇ℒ‖² has the mean
    β²‖θ₀ − θ*‖² + (T − 1)σ²/n_B. Early the term of the start is all of it, in the end that of the noise.
    """
    problem = five_problems(random)[0]
    course = stochastic.run_chains(problem, np.array([6.0]), [1.0] * steps, chains, random, batch)
    numbers = []
    for length in (*LENGTHS, steps):
        bound = factor * stochastic.fixed_rate_bound(1.0, 1.0, course.noise, course.gap, length, batch)
        shares = course.squared[:length].mean(0) / (bound - course.noise / (batch * length))
        error = float(shares.std(ddof=1) / math.sqrt(chains)) + 1e-12
        name = f"quadratic from afar, batch of {batch}: mean over the bound less σ²/(n_B·T), T = {length}"
        numbers.append(agrees(name, float(shares.mean()), error, 1.0))
    return numbers


def _huber(rest: np.ndarray) -> np.ndarray:
    size = np.abs(rest)
    return np.asarray(np.where(size <= 1, rest**2 / 2, size - 0.5))
