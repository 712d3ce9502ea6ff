"""Mean, deviation and skewness of paired differences, and what skewness does to the t statistic.

The t interval is made for symmetric differences. If they have a long tail on one side and few pairs happen to
miss it, the mean lies too far from the tail and the deviation is too small. So the interval reaches further
on the side of the tail: its half-width there is c·(1 + b·c) standard errors instead of c, where b grows with
the measured skewness g of that side,

    b = (0.25·g + 0.18·g²)·min(1, √(20/n)) for g > 0, else 0.

The first term is what Hall's expansion of t asks for, with a larger factor: few pairs show about half of
their distribution's skewness. The square was added, and the expansion's further terms left out, because his
cubic guards nothing for large t. The interval changes smoothly with the differences.

Reference: Hall (1992), On the removal of skewness by transformation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from apoint.verdict.types import Array, Interval, Numbers

LINEAR, SQUARE = 0.25, 0.18
FULL_TO = 20.0  # from so many pairs on the correction falls as 1/√n
CONSTANT = 1e-12  # a spread this small beside the largest difference is rounding

Real = TypeVar("Real", float, Array)


def lean(skewness: Real, pairs: int | Array) -> Real:
    """b for a side: `skewness` is counted positive if the tail is on it."""
    positive = np.maximum(skewness, 0.0)
    found: Real = positive * (LINEAR + SQUARE * positive) * np.minimum(1.0, np.sqrt(FULL_TO / pairs))
    return found


def reach(c: Real, lean_of_side: Real) -> Real:
    """How many standard errors the interval reaches on a side."""
    return c * (1 + lean_of_side * c)


def corrected(t: Array, skewness: Array, pairs: int) -> Array:
    """The c at which the interval's end just touches 0, with the sign of t: `reach` solved for c."""
    size = np.abs(t)
    found: Array = np.sign(t) * 2 * size / (1 + np.sqrt(1 + 4 * lean(-np.sign(t) * skewness, pairs) * size))
    return found


@dataclass(frozen=True)
class Moments:
    """What a look needs to know of the differences.

    Attributes:
        pairs: How many there are.
        mean: Their mean.
        deviation: Their standard deviation, at least half the metric's resolution.
        skewness: Their plain skewness; 0 if they do not vary.
        hidden: For differences that are all the same: how far apart two scores usually are, the size that
            a difference not seen yet may have; infinite if nothing is known of it. Else 0.
        example_error: The mean's standard error from the choice of test examples; 0 for an interval over
            seeds alone.
    """

    pairs: int
    mean: float
    deviation: float
    skewness: float
    hidden: float = 0.0
    example_error: float = 0.0

    def interval(self, c: float) -> Interval:
        """The interval with the critical value c."""
        if math.isinf(c) or math.isinf(self.hidden):
            return -math.inf, math.inf
        error = math.hypot(self.deviation / math.sqrt(self.pairs), self.example_error)
        down, up = (error * reach(c, float(lean(g, self.pairs))) for g in (-self.skewness, self.skewness))
        unseen = self.hidden * unseen_share(self.pairs, _level(c, self.pairs)) if self.hidden else 0.0
        return self.mean - max(down, unseen), self.mean + max(up, unseen)


def _level(c: float, pairs: int) -> float:
    from scipy.special import stdtr

    return float(2 * stdtr(pairs - 1, -c))


def unseen_share(pairs: int, level: float = 0.05) -> float:
    """What happens in a larger share of seeds than this shows in so many pairs, but with chance `level`."""
    return -math.expm1(math.log(level) / pairs)


def is_constant(differences: Numbers) -> bool:
    """Whether the differences are all the same but for rounding."""
    values = np.asarray(differences, dtype=float)
    return float(np.ptp(values)) <= CONSTANT * float(np.abs(values).max())


def skewness(differences: Numbers) -> float:
    """The plain skewness of the differences; 0 if they do not vary."""
    values = np.asarray(differences, dtype=float)
    if len(values) < 3 or is_constant(values):
        return 0.0
    centred = values - values.mean()
    return float((centred**3).mean() / (centred**2).mean() ** 1.5)


def grid_step(scores: Numbers) -> float:
    """The step of the grid that scores lie on, such as 1/359 for accuracies on 359 examples; 0 if none.

    Euclid's algorithm on the distances between scores, with room for rounding in float32.
    """
    values = np.unique(np.asarray(scores, dtype=float))
    if len(values) < 2:
        return 0.0
    rounding = 4e-7 * float(np.abs(values).max())
    step = 0.0
    for distance in np.diff(values).tolist():
        while distance > rounding:
            step, distance = distance, step % distance if step else 0.0
            if step - distance <= rounding:  # a multiple but for rounding
                distance = 0.0
        if step and step <= 20 * rounding:
            return 0.0
    return step
