"""Five problems on which the theorems on stochastic gradient descent are tried, two of them not convex."""

from __future__ import annotations

import numpy as np

from apoint.theory.regularity import least_squares
from apoint.theory.stochastic import FiniteSum

EXAMPLES, FEATURES = 30, 3


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


def _huber(rest: np.ndarray) -> np.ndarray:
    size = np.abs(rest)
    return np.asarray(np.where(size <= 1, rest**2 / 2, size - 0.5))
