"""Intervals for the mean paired difference that stay valid although one looks several times.

Two families. *Planned looks*: the numbers of pairs at which one looks are fixed beforehand, and the
interval mean ± c·s/√n has its c calibrated so that, over all looks together, it misses the truth with
probability α. *Anytime*: one may look whenever one likes; the interval is wider for it. Both are exact
for Gaussian differences, and neither is valid for heavily skewed ones.

Reference: Jennison and Turnbull (1989), Interim analyses: the repeated confidence interval approach;
Wang and Ramdas (2023), Anytime-valid t-tests and confidence sequences for Gaussian means with unknown
variance.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from apoint.errors import UsageError
from apoint.verdict.types import Array, Numbers

SIMULATIONS = 400_000
FEWEST_PATHS = 100  # a quantile that rests on fewer simulated paths is not to be trusted
KNOWN_LEVELS: dict[tuple[tuple[int, ...], float], float] = {
    # of the usual plan, as simulated
    ((8, 16, 24, 32), 0.05): 0.017482791424338968
}
SMALLEST_LOOK = 3  # with two pairs the deviation has one degree of freedom, and c is over 30


def check_alpha(alpha: Any) -> float:
    """The error rate as a number, or a `UsageError` in one sentence."""
    if not isinstance(alpha, Real) or not 0 < float(alpha) < 1:
        raise UsageError(f"alpha must be between 0 and 1, got {alpha}")
    return float(alpha)


def check_plan(looks: Sequence[int], alpha: float) -> tuple[int, ...]:
    """The looks as a tuple, or a `UsageError` in one sentence."""
    check_alpha(alpha)
    plan = tuple(looks)
    if not plan:
        raise UsageError("looks must name at least one number of pairs, such as (8, 16, 24, 32)")
    if (
        any(not isinstance(n, Integral) for n in plan)
        or plan[0] < SMALLEST_LOOK
        or list(plan) != sorted(set(plan))
    ):
        raise UsageError(
            f"looks must be rising whole numbers of pairs, the first at least {SMALLEST_LOOK}, got {plan}"
        )
    return tuple(int(n) for n in plan)


@functools.cache
def nominal_alpha(looks: tuple[int, ...], alpha: float = 0.05) -> float:
    """The error rate to use at each look so that the rate over all of them is `alpha`.

    The t statistic of Gaussian differences does not depend on their deviation, so that a simulation with
    standard normal ones calibrates every case: the level is the α-quantile of the smallest p-value that a
    path shows at any of its looks. The simulation is seeded: the same plan gives the same number. One look
    needs no calibration; an α too small for the simulation is shared out equally, which is safe.
    """
    check_plan(looks, alpha)
    if len(looks) == 1:
        return alpha
    if alpha * SIMULATIONS < FEWEST_PATHS:
        return alpha / len(looks)
    return KNOWN_LEVELS.get((looks, alpha)) or simulated_level(looks, alpha)


def simulated_level(looks: tuple[int, ...], alpha: float) -> float:
    """The level that the simulation gives."""
    return float(np.quantile(_smallest_p_of_paths(looks), alpha))


@functools.lru_cache(maxsize=8)
def _smallest_p_of_paths(looks: tuple[int, ...]) -> Array:
    """The smallest p-value over the looks of each simulated path, in rising order.

    Of the pairs between two looks only their sum and their sum of squares about their mean are drawn, which
    are independent, normal and chi-squared: the cost does not grow with the number of pairs.
    """
    from scipy.special import stdtr

    draw = np.random.default_rng(20240601)
    sums, squares, done = np.zeros(SIMULATIONS), np.zeros(SIMULATIONS), 0
    smallest = np.ones(SIMULATIONS)
    for n in looks:
        fresh, done = n - done, n
        total = math.sqrt(fresh) * draw.standard_normal(SIMULATIONS)
        about_mean = 2 * draw.standard_gamma((fresh - 1) / 2, SIMULATIONS)
        sums, squares = sums + total, squares + about_mean + total**2 / fresh
        deviation = np.sqrt((squares - sums**2 / n) / (n - 1))
        smallest = np.minimum(smallest, 2 * stdtr(n - 1, -np.abs(sums) / deviation / math.sqrt(n)))
    smallest.sort()
    return smallest


def planned_multiplier(pairs: int, looks: Sequence[int], alpha: float = 0.05) -> float:
    """c of the interval mean ± c·s/√n at a planned look of so many pairs."""
    from scipy.special import stdtrit

    plan = check_plan(looks, alpha)
    if pairs not in plan:
        raise UsageError(f"{pairs} pairs is not one of the planned looks {plan}")
    return float(-stdtrit(pairs - 1, nominal_alpha(plan, alpha) / 2))


def anytime_multiplier(pairs: int, alpha: float = 0.05, g: float = 1.0) -> float:
    """c of the interval mean ± c·s/√n that is valid at every number of pairs at once.

    The values m that the interval keeps are those whose evidence against them is below 1/α,

        E(m) = √(g/(g+n)) · (1 − S²/((n+g)·Q))^(−n/2),

    with S and Q the sum and the sum of squares of the differences minus m. In closed form c is
    √((n−1)(1−k)/(k − g/(g+n))) with k = (α²·g/(g+n))^(1/n), and infinite while n is too small.
    """
    share = g / (g + pairs)
    k = (alpha**2 * share) ** (1 / pairs)
    return math.sqrt((pairs - 1) * (1 - k) / (k - share)) if k > share else math.inf


def evidence(differences: Numbers, mean: float = 0.0, g: float = 1.0) -> float:
    """E(m), the evidence against the mean difference being m; an e-value for Gaussian differences.

    Its expectation is at most 1 if m is right, at any number of pairs that was not chosen by what is to
    come, so that it exceeds 1/α with probability at most α.
    """
    values = np.asarray(differences, dtype=float) - mean
    n, total, squares = len(values), float(values.sum()), float((values**2).sum())
    if squares == 0:
        return math.sqrt(g / (g + n))
    inside = 1 - total**2 / ((n + g) * squares)
    return float(math.sqrt(g / (g + n)) * inside ** (-n / 2))
