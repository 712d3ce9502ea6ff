"""Where simulated differences come from. All have deviation of about 1, and 0 as the truth."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def gaussian(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return draw.standard_normal(shape)


def student(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Three degrees of freedom: outliers on both sides."""
    return draw.standard_t(3, shape) / math.sqrt(3)


def between_exponentials(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A/A, each arm's own noise skewed: the difference is symmetric."""
    return (draw.exponential(size=shape) - draw.exponential(size=shape)) / math.sqrt(2)


def between_lognormals(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A/A, each arm's own noise skewed and with a heavy tail."""
    return (draw.lognormal(size=shape) - draw.lognormal(size=shape)) / math.sqrt(2 * (math.e - 1) * math.e)


def between_divergent(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A/A, each replica diverges with probability 10 % and counts as the cap, five deviations down."""
    arms = [np.where(draw.random(shape) < 0.1, -5.0, draw.standard_normal(shape)) for _ in range(2)]
    return (arms[1] - arms[0]) / math.sqrt(6)


def between_small_test_sets(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A/A, accuracies of 97 % on 200 test examples: a few whole numbers, many ties."""
    arms = [draw.binomial(200, 0.97, shape) for _ in range(2)]
    return (arms[1] - arms[0]) / math.sqrt(2 * 200 * 0.97 * 0.03)


def exponential(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Skewed differences of mean 0: no A/A comparison makes them."""
    return draw.exponential(size=shape) - 1


def lognormal(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Skewness 1.75."""
    deviation = math.sqrt((math.exp(0.25) - 1) * math.exp(0.25))
    return (draw.lognormal(sigma=0.5, size=shape) - math.exp(0.125)) / deviation


def heavy_lognormal(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Skewness 6.2."""
    return (draw.lognormal(size=shape) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)


def one_sided_divergence(depth: float) -> Draw:
    """One arm alone diverges with probability 10 %, and is better otherwise by just as much on average."""

    def draws(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        fallen = np.where(draw.random(shape) < 0.1, depth, 0.0) - 0.1 * depth
        return (draw.standard_normal(shape) - fallen) / math.sqrt(1 + 0.09 * depth**2)

    return draws


SYMMETRIC: dict[str, Draw] = {
    "Gaussian": gaussian,
    "Student, 3 degrees": student,
    "A/A, exponential arms": between_exponentials,
    "A/A, lognormal arms": between_lognormals,
    "A/A, 10 % diverge": between_divergent,
    "A/A, 200 test examples": between_small_test_sets,
}
SKEWED: dict[str, Draw] = {
    "exponential, mean 0": exponential,
    "lognormal (0.5), mean 0": lognormal,
}
BEYOND: dict[str, Draw] = {
    "lognormal (1), mean 0": heavy_lognormal,
    "one arm diverges, 3 deviations": one_sided_divergence(3),
    "one arm diverges, 5 deviations": one_sided_divergence(5),
    "one arm diverges, 10 deviations": one_sided_divergence(10),
}
