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

import numpy as np

from apoint.errors import UsageError

SIMULATIONS = 400_000
SMALLEST_LOOK = 3  # with two pairs the deviation has one degree of freedom, and c is over 30


def check_plan(looks: Sequence[int], alpha: float) -> tuple[int, ...]:
    """The looks as a tuple, or a `UsageError` in one sentence."""
    if not 0 < alpha < 1:
        raise UsageError(f"alpha must be between 0 and 1, got {alpha}")
    if not looks:
        raise UsageError("looks must name at least one number of pairs, such as (8, 16, 24, 32)")
    plan = tuple(looks)
    if (
        any(not isinstance(n, int) for n in plan)
        or plan[0] < SMALLEST_LOOK
        or list(plan) != sorted(set(plan))
    ):
        raise UsageError(
            f"looks must be rising whole numbers of pairs, the first at least {SMALLEST_LOOK}, got {plan}"
        )
    return plan


@functools.cache
def nominal_alpha(looks: tuple[int, ...], alpha: float = 0.05) -> float:
    """The error rate to use at each look so that the rate over all of them is `alpha`.

    The t statistic of Gaussian differences does not depend on their deviation, so that a simulation with
    standard normal ones calibrates every case: the level is the α-quantile of the smallest p-value that a
    path shows at any of its looks. The simulation is seeded: the same plan gives the same number.
    """
    from scipy.special import stdtr

    check_plan(looks, alpha)
    draw = np.random.default_rng(20240601)
    smallest = np.empty(SIMULATIONS)
    block = max(1, 4_000_000 // looks[-1])
    for start in range(0, SIMULATIONS, block):
        size = min(block, SIMULATIONS - start)
        sums, squares, done = np.zeros(size), np.zeros(size), 0
        lowest = np.ones(size)
        for n in looks:
            fresh = draw.standard_normal((size, n - done))
            sums, squares, done = sums + fresh.sum(1), squares + (fresh**2).sum(1), n
            mean = sums / n
            deviation = np.sqrt((squares - n * mean**2) / (n - 1))
            lowest = np.minimum(lowest, 2 * stdtr(n - 1, -np.abs(mean) / deviation * math.sqrt(n)))
        smallest[start : start + size] = lowest
    return float(np.quantile(smallest, alpha))


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


def evidence(differences: Sequence[float], mean: float = 0.0, g: float = 1.0) -> float:
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
