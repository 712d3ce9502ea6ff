"""Intervals for the mean paired difference that stay valid under repeated looks.

There are two families. *Planned looks*: the numbers of pairs at which to look are fixed in advance, and each
look has the level that `apoint.verdict.calibration` gives it. *Anytime*: looks may happen at any time; in
return the interval is wider. Both give a critical value c for each number of pairs; `apoint.verdict.moments`
computes the interval from it, longer on the side of a tail if the differences are skewed. Each rule has a
second critical value for one-sided bounds, by which equivalence is judged.

Reference: Wang and Ramdas (2023), Anytime-valid t-tests and confidence sequences for Gaussian means with
unknown variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from apoint.errors import UsageError
from apoint.verdict.calibration import Levels, check_plan, levels, saved
from apoint.verdict.types import Array


class Rule(Protocol):
    """The critical values at some numbers of pairs."""

    def critical(self, pairs: Array) -> Array:
        """c of the two-sided interval."""
        ...

    def one_sided(self, pairs: Array) -> Array:
        """c of a one-sided bound with the same error rate."""
        ...


@dataclass(frozen=True)
class PlannedRule:
    """Student's quantiles at each look's own level."""

    levels: Levels

    def critical(self, pairs: Array) -> Array:
        """c of the two-sided interval."""
        return _quantile(pairs, self.levels.at(pairs) / 2)

    def one_sided(self, pairs: Array) -> Array:
        """c of a one-sided bound with the same error rate."""
        return _quantile(pairs, self.levels.at(pairs, one_sided=True))


@dataclass(frozen=True)
class AnytimeRule:
    """A confidence sequence with the error rate `alpha` over all numbers of pairs."""

    alpha: float

    def critical(self, pairs: Array) -> Array:
        """c of the two-sided interval."""
        return np.array([anytime_multiplier(int(n), saved(self.alpha)) for n in pairs])

    def one_sided(self, pairs: Array) -> Array:
        """c of a one-sided bound: that of the two-sided interval, which errs on the safe side.

        Bounds at twice the rate would suffice for Gaussian differences. For skewed ones they err too often,
        because looks may come so early.
        """
        return self.critical(pairs)


def _quantile(pairs: Array, tail: Array) -> Array:
    from scipy.special import stdtrit

    quantile: Array = np.maximum(-stdtrit(pairs - 1, tail), 0.0)
    return quantile


def critical_value(rule: Rule, pairs: int, one_sided: bool = False) -> float:
    """c at one number of pairs."""
    at = rule.one_sided if one_sided else rule.critical
    return float(at(np.array([float(pairs)]))[0])


def planned_multiplier(pairs: int, looks: Sequence[int], alpha: float = 0.05) -> float:
    """c of the two-sided interval at a planned look with this many pairs."""
    plan = check_plan(looks, alpha)
    if pairs not in plan:
        raise UsageError(f"{pairs} pairs is not one of the planned looks {plan}")
    return critical_value(PlannedRule(levels(plan, alpha)), pairs)


def anytime_multiplier(pairs: int, alpha: float = 0.05, g: float = 1.0) -> float:
    """c of the interval mean ± c·s/√n that is valid at every number of pairs at once.

    The interval keeps the values m against which the evidence is below 1/α,

        E(m) = √(g/(g+n)) · (1 − S²/((n+g)·Q))^(−n/2),

    with S and Q the sum and the sum of squares of the differences minus m. In closed form c is
    √((n−1)(1−k)/(k − g/(g+n))) with k = (α²·g/(g+n))^(1/n), and infinite while n is too small.
    """
    share = g / (g + pairs)
    k = (alpha**2 * share) ** (1 / pairs)
    return math.sqrt((pairs - 1) * (1 - k) / (k - share)) if k > share else math.inf
