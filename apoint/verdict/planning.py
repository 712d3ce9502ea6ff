"""How many further pairs would probably settle a comparison that is undecided."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from apoint.verdict.record import Look
from apoint.verdict.skew import Rule, is_constant, t_interval
from apoint.verdict.types import Array, Numbers

ASSURANCE = 0.8
MOST_FURTHER = 10_000


def further_pairs(
    differences: Numbers, last: Look, margin: float, plan: Sequence[int], made: int, rule: Rule
) -> int | None:
    """The smallest number of further pairs after which a decision has a chance of 80 %.

    With n pairs of mean m and deviation s, the mean of all pairs at a later n' is expected at m with variance
    s²·(1/n − 1/n'), which counts both what is not known of the true difference and the noise to come. A
    decision falls if that mean is farther from 0 than the half-width then, or nearer to 0 than `margin` less
    the half-width. Later looks go on in the plan's last step, at the plan's own error rate for each look.
    None if the comparison is decided, if there are too few pairs to say, or if it would take over 10,000.
    """
    values = np.asarray(differences, dtype=float)
    if last.outcome != "undecided" or len(values) < 3 or not np.isfinite(values).all():
        return None
    totals = _later_totals(plan, made)
    if is_constant(values):
        return _pairs_for_signs(values, totals, made, rule)
    widening = _widening(values, last)
    for some in np.split(totals, [100, 1000]):  # mostly the first hundred are enough
        enough = some[assurance(values, some, margin, rule, widening) >= ASSURANCE]
        if len(enough):
            return int(enough[0]) - made
    return None


def assurance(values: Array, totals: Array, margin: float, rule: Rule, widening: float = 1.0) -> Array:
    """The chance of a decision at each of the later numbers of pairs."""
    from scipy.special import ndtr

    n, mean, deviation = len(values), float(values.mean()), float(values.std(ddof=1))
    half = widening * rule.multipliers(totals) * deviation / np.sqrt(totals)
    spread = deviation * np.sqrt(1 / n - 1 / totals)
    beyond = ndtr((mean - half) / spread) + ndtr((-mean - half) / spread)
    room = np.maximum(margin - half, 0)
    inside = ndtr((room - mean) / spread) - ndtr((-room - mean) / spread)
    chance: Array = np.where(room >= half, 1.0, beyond + inside)  # else a mean cannot be both
    return chance


def _later_totals(plan: Sequence[int], made: int) -> Array:
    """The numbers of pairs at which one could look later: the plan's, then on in its last step."""
    if not plan:
        return np.arange(made + 1, made + MOST_FURTHER + 1, dtype=float)
    step = plan[-1] - plan[-2] if len(plan) > 1 else 1
    start = max(plan[-1], made)
    beyond = plan[-1] + step * np.arange(1, (start - plan[-1] + MOST_FURTHER) // step + 1)
    totals = np.concatenate([np.array([n for n in plan if n > made], dtype=float), beyond[beyond > made]])
    return totals[totals <= made + MOST_FURTHER].astype(float)


def _widening(values: Array, last: Look) -> float:
    """How much wider than the t interval the last look's was, because of skewness."""
    lower, upper = last.interval
    if last.rule == "t" or math.isinf(upper - lower):
        return 1.0
    first, second = t_interval(values, last.multiplier)
    return (upper - lower) / (second - first)


def _pairs_for_signs(values: Array, totals: Array, made: int, rule: Rule) -> int | None:
    """For differences that do not vary: when equal signs alone would decide."""
    for total in totals[:100]:
        if math.isfinite(rule.distribution_free(np.full(int(total), values[0]).tolist())[0]):
            return int(total) - made
    return None
