"""Mean, deviation and skewness of paired differences, and what skewness does to the t statistic.

The t interval is made for symmetric differences. If they have a long tail on one side and few pairs happen to
miss it, the mean is too far from the tail and the deviation is too small. So the interval reaches further
on the side of the tail: its half-width there is c·(1 + b·c) standard errors instead of c, where b grows with
the measured skewness g of that side,

    b = (0.25·g + 0.18·g²)·min(1, √(20/n)) for g > 0, else 0.

The first term follows Hall's expansion of t, with a larger factor: few pairs show about half of their
distribution's skewness. The square was added, and the expansion's further terms left out, because his
cubic gives no protection for large t. The interval changes smoothly with the differences.

If both arms have tails, one masks the other: the baseline's tail pulls the skewness of the differences down
by as much as the candidate's pulls it up. So each arm's part of the skewness is estimated. With γ the
baseline's share of the differences' variance (its regression on them), r the rest of its noise, which does
not vary with them, and h the mean of d²·r in standard deviations of d and r,

    g = g_c + g_b with g_c = (1 − γ)·g + q and g_b = γ·g − q, where q = 2·φ·h·min(s_r/s_d, √(γ(1 − γ))).

For independent arms s_r/s_d is √(γ(1 − γ)), and h·s_r/s_d is exactly what makes g_c and g_b the arms' own
parts; arms that move together have a larger s_r, which says nothing about the differences. Few pairs estimate
h poorly, so only its clear share φ = max(0, 1 − 2/F), F = n·h²/2, is used, and that is doubled, because few
pairs show too little of it. If g_c and g_b have opposite signs, the smaller of the two is masked, and each
side's tail is longer by it. An arm that does not vary masks nothing.

Reference: Hall (1992), On the removal of skewness by transformation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from apoint.verdict.types import Array, Interval, Numbers

LINEAR, SQUARE = 0.25, 0.18
FULL_TO = 20.0  # from this many pairs on, the correction falls as 1/√n
CONSTANT = 1e-12  # a spread this small relative to the largest difference is rounding

MASK_SHARE, DOUBT = 2.0, 2.0

Real = TypeVar("Real", float, Array)


def lean(skewness: Real, pairs: int | Array) -> Real:
    """b for one side: `skewness` counts as positive if the tail is on that side."""
    positive = np.maximum(skewness, 0.0)
    found: Real = positive * (LINEAR + SQUARE * positive) * np.minimum(1.0, np.sqrt(FULL_TO / pairs))
    return found


def reach(c: Real, lean_of_side: Real) -> Real:
    """How many standard errors the interval reaches on one side."""
    return c * (1 + lean_of_side * c)


def corrected(t: Array, skewness: Array, pairs: int) -> Array:
    """The c at which the interval's end touches 0, with the sign of t: `reach` solved for c.

    For differences with nothing masked; masking can only make the interval longer.
    """
    size = np.abs(t)
    found: Array = np.sign(t) * 2 * size / (1 + np.sqrt(1 + 4 * lean(-np.sign(t) * skewness, pairs) * size))
    return found


@dataclass(frozen=True)
class Moments:
    """What a look needs to know about the differences.

    Attributes:
        pairs: How many there are.
        mean: Their mean.
        deviation: Their standard deviation, at least half the metric's resolution.
        skewness: Their plain skewness; 0 if they do not vary.
        hidden: For differences that are all the same: how far apart two scores usually are, the size that
            a difference not seen yet may have; infinite if nothing is known about it. Otherwise 0.
        example_error: The mean's standard error from the choice of test examples; 0 for an interval over
            seeds alone.
        masked: How much the tails of the two arms mask each other: each side's tail is longer by it.
    """

    pairs: int
    mean: float
    deviation: float
    skewness: float
    hidden: float = 0.0
    example_error: float = 0.0
    masked: float = 0.0

    @property
    def tails(self) -> tuple[float, float]:
        """The skewness that counts for the side below and the side above."""
        return max(-self.skewness, 0.0) + self.masked, max(self.skewness, 0.0) + self.masked

    def interval(self, c: float) -> Interval:
        """The interval with the critical value c."""
        if math.isinf(c) or math.isinf(self.hidden):
            return -math.inf, math.inf
        error = math.hypot(self.deviation / math.sqrt(self.pairs), self.example_error)
        down, up = (error * reach(c, float(lean(g, self.pairs))) for g in self.tails)
        unseen = self.hidden * unseen_share(self.pairs, _level(c, self.pairs)) if self.hidden else 0.0
        return self.mean - max(down, unseen), self.mean + max(up, unseen)


def _level(c: float, pairs: int) -> float:
    from scipy.special import stdtr

    return float(2 * stdtr(pairs - 1, -c))


def unseen_share(pairs: int, level: float = 0.05) -> float:
    """The share of seeds above which an event shows in this many pairs, except with probability `level`."""
    return -math.expm1(math.log(level) / pairs)


def is_constant(differences: Numbers) -> bool:
    """Whether the differences are all the same up to rounding."""
    values = np.asarray(differences, dtype=float)
    return float(np.ptp(values)) <= CONSTANT * float(np.abs(values).max())


def skewness(differences: Numbers) -> float:
    """The plain skewness of the differences; 0 if they do not vary."""
    values = np.asarray(differences, dtype=float)
    if len(values) < 3 or is_constant(values):
        return 0.0
    centred = values - values.mean()
    # A product, because `**3` of a number and of its negative may differ in the last bit.
    return float((centred**2 * centred).mean() / (centred**2).mean() ** 1.5)


def parts_of_skewness(differences: Numbers, level: Numbers) -> tuple[float, float]:
    """What the candidate and the baseline contribute to the skewness of the differences; see above.

    Args:
        differences: Candidate − baseline.
        level: The mean of the two, so that swapping the arms swaps the parts bit for bit.
    """
    whole, n = skewness(differences), len(differences)
    d, m = (np.asarray(values, dtype=float) for values in (differences, level))
    if n < 3 or is_constant(d):
        return whole, 0.0
    d, m = d - d.mean(), m - m.mean()
    variance = float((d**2).mean())
    slope = -float((d * m).mean()) / variance
    rest = m + slope * d
    tilt = min(max(slope, -0.5), 0.5)  # γ − ½
    deviation, third = math.sqrt(float((rest**2).mean()) / variance), float((d**2 * rest).mean())
    third /= variance**1.5
    doubt = DOUBT * 2 * deviation**2
    if deviation <= CONSTANT or n * third**2 <= doubt:
        moved = 0.0
    else:
        moved = MASK_SHARE * (1 - doubt / (n * third**2)) * third
        moved *= min(1.0, math.sqrt(0.25 - tilt**2) / deviation)
    return (0.5 - tilt) * whole + moved, (0.5 + tilt) * whole - moved


def masked_by(parts: Sequence[float]) -> float:
    """How much longer each side's tail is than the sum of these parts of the skewness shows."""
    return (sum(map(abs, parts)) - abs(sum(parts))) / 2


def grid_step(scores: Numbers) -> float:
    """The step of the grid that scores lie on, such as 1/359 for accuracies on 359 examples; 0 if none.

    Euclid's algorithm on the distances between scores, with tolerance for rounding in float32.
    """
    values = np.unique(np.asarray(scores, dtype=float))
    if len(values) < 2:
        return 0.0
    rounding = 4e-7 * float(np.abs(values).max())
    step = 0.0
    for distance in np.diff(values).tolist():
        while distance > rounding:
            step, distance = distance, step % distance if step else 0.0
            if step - distance <= rounding:  # a multiple up to rounding
                distance = 0.0
        if step and step <= 20 * rounding:
            return 0.0
    return step
