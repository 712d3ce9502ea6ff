"""How many further pairs would probably settle an undecided comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from apoint.verdict.intervals import Rule
from apoint.verdict.moments import Moments, lean, reach
from apoint.verdict.record import Look
from apoint.verdict.types import Array

ASSURANCE = 0.8
MOST_FURTHER = 10_000
MOST_CRITICAL = 1e9  # replaces an infinite one, which no mean exceeds either


def further_pairs(moments: Moments, last: Look, plan: Sequence[int], made: int, rule: Rule) -> int | None:
    """The smallest number of further pairs after which a decision has a chance of 80 %.

    With n pairs of mean m and deviation s, the mean of all pairs at a later n' is expected at m with variance
    s²·(1/n − 1/n'), which counts both the uncertainty about the true difference and the noise to come. The
    comparison is decided if that mean is farther from 0 than the half-width then, or nearer to 0 than the
    margin less the half-width of the one-sided bounds. Later looks continue in the plan's last step, at the
    plan's own level of the last look. None if the comparison is decided, if there are too few pairs to say,
    or if it would take over 10,000.
    """
    if last.outcome != "undecided" or moments.pairs < 3 or not moments.deviation > 0 or moments.hidden:
        return None
    totals = _later_totals(plan, made)
    for some in np.split(totals, [100, 1000]):  # usually the first hundred are enough
        if len(some):
            enough = some[assurance(moments, some, last.margin, rule) >= ASSURANCE]
            if len(enough):
                return int(enough[0]) - made
    return None


def assurance(moments: Moments, totals: Array, margin: float, rule: Rule) -> Array:
    """The chance of a decision at each of the later numbers of pairs."""
    from scipy.special import ndtr

    n, mean, deviation = moments.pairs, moments.mean, moments.deviation
    error = np.hypot(deviation / np.sqrt(totals), moments.example_error)  # more pairs do not lower the second
    # A tail makes one side longer; averaged over both sides, that is half of it.
    down, up = moments.tails
    half_lean = (lean(np.full(len(totals), down), totals) + lean(np.full(len(totals), up), totals)) / 2
    half, narrow = (
        error * reach(np.minimum(at(totals), MOST_CRITICAL), half_lean)
        for at in (rule.critical, rule.one_sided)
    )
    spread = deviation * np.sqrt(1 / n - 1 / totals)
    beyond = ndtr((mean - half) / spread) + ndtr((-mean - half) / spread)
    room = np.maximum(margin - narrow, 0)
    inside = ndtr((room - mean) / spread) - ndtr((-room - mean) / spread)
    chance: Array = np.where(room >= half, 1.0, beyond + inside)  # otherwise a mean cannot be both
    return chance


def _later_totals(plan: Sequence[int], made: int) -> Array:
    """The later numbers of pairs at which to look: the plan's, then continuing in its last step."""
    if not plan:
        return np.arange(made + 1, made + MOST_FURTHER + 1, dtype=float)
    step = plan[-1] - plan[-2] if len(plan) > 1 else 1
    start = max(plan[-1], made)
    beyond = plan[-1] + step * np.arange(1, (start - plan[-1] + MOST_FURTHER) // step + 1)
    totals = np.concatenate([np.array([n for n in plan if n > made], dtype=float), beyond[beyond > made]])
    return totals[totals <= made + MOST_FURTHER].astype(float)
