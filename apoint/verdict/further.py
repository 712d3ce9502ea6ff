"""Further replicas of the baseline, beyond the pairs, sharpen the comparison where pairing gains little.

The pairs' own baseline has the mean b̄, and further replicas of it have the mean f̄. Both estimate the same
number, so for a fixed weight w

    d̄ + w·(b̄ − f̄)

estimates the same quantity as the mean difference d̄. With n pairs and m further replicas its variance is
smallest for w = −s_db/q, where q = s_bb + (n/m)·s²; s_db and s_bb are the covariance of differences and
baseline and the variance of the baseline in the pairs, and s² is the variance of all its replicas. This is
the regression estimator of survey sampling, and how control variates work. If the arms move together, s_db is
about 0, and nothing changes.

Few pairs do not estimate s_db well, and a weight that fits them by chance makes the variance look too small.
So only the share φ = max(0, 1 − 2/F) of the weight is used, with F the F statistic of the regression of
differences on baseline, and only φ² of the gain is counted: the variance is (s_dd − φ²·s_db²/q)/n. (With 1
instead of 2, that is the φ which minimises Mallows' Cₚ.) Hence the standard error is never above that of the
pairs alone; it is equal unless the slope is clear; and it changes smoothly with the numbers.

Reference: Cochran (1977), Sampling Techniques, chapter 12; Mallows (1973), Some comments on Cₚ.
"""

from __future__ import annotations

import math

import numpy as np

from apoint.verdict.moments import CONSTANT, Moments, is_constant, masked_by, parts_of_skewness
from apoint.verdict.types import Array

FEWEST_PAIRS = 6  # error rates were measured from here upwards; with fewer pairs the slope is unknown
DOUBT = 2.0


def sharpened(
    paired: Moments, differences: Array, baseline: Array, further: Array, step: float = 0.0
) -> Moments:
    """The moments of the differences, with what further replicas tell about the baseline's mean.

    Args:
        paired: The moments from the pairs alone.
        differences: The pairs' differences, candidate − baseline.
        baseline: The pairs' baseline, in the same direction.
        further: Further replicas of the baseline.
        step: The metric's resolution: what is left of the deviation counts as at least half of it.
    """
    n, m = len(baseline), len(further)
    if n < FEWEST_PAIRS or not m or is_constant(differences) or is_constant(baseline):
        return paired
    every = np.concatenate([baseline, further])
    x, y, z = (values - values.mean() for values in (differences, baseline, every))
    s_dd, s_db, s_bb, s_all = x @ x / (n - 1), x @ y / (n - 1), y @ y / (n - 1), z @ z / (n + m - 1)
    share, left = clear_share(s_dd, s_db, s_bb, n)
    if not share:
        return paired
    q = s_bb + n / m * s_all
    weight = -share * s_db / q
    own = weight**2 * n / m * s_all  # the part of the variance due to f̄
    variance = own + max(s_dd - share**2 * s_db**2 / q - own, step**2 / 4)
    # A candidate that follows the baseline exactly, or never varies, shows nothing about what may go unseen.
    hidden = math.sqrt(2 * s_all) if left <= CONSTANT * s_dd else 0.0
    mean = paired.mean + float(weight * (baseline.mean() - further.mean()))
    parts = _parts(x + weight * y, y + (x - weight * y) / 2, weight, z, n, m)
    return Moments(n, mean, math.sqrt(variance), sum(parts), hidden, masked=masked_by(parts))


def clear_share(s_dd: float, s_db: float, s_bb: float, pairs: int) -> tuple[float, float]:
    """How much of the regression's slope is clear, from 0 to 1, and the variance it leaves unexplained."""
    explained = s_db**2 / s_bb
    left = max(s_dd - explained, 0.0)
    if explained <= 0:
        return 0.0, left
    return max(0.0, 1 - DOUBT * left / ((pairs - 2) * explained)), left


def _parts(
    own: Array, level: Array, weight: float, every: Array, n: int, m: int
) -> tuple[float, float, float]:
    """What candidate, baseline and further replicas contribute to the estimate's skewness.

    It is the skewness that n differences would need for a mean as skewed as this estimate.
    """
    alone = float((own**2).mean())
    second = alone + weight**2 * n / m * float((every**2).mean())
    scale = (alone / second) ** 1.5
    candidate, shared = parts_of_skewness(own, level)
    beyond = -(weight**3) * (n / m) ** 2 * float((every**3).mean()) / second**1.5
    return scale * candidate, scale * shared, beyond
