"""The decision rule for many comparisons at once, written a second time and without the product's walk.

`decide` takes one comparison; here rows are comparisons. A test holds the two equal on random draws, so that
error rates over tens of thousands of comparisons can be had in seconds. The distribution-free interval is
never built: whether it keeps a value is asked of the test itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from apoint.verdict import anytime_multiplier, nominal_alpha, sign_flip_p

UNDECIDED, BETTER, WORSE, EQUIVALENT = 0, 1, 2, 3
NAMES = ("undecided", "better", "worse", "equivalent")


class Planned:
    """A planned look at its own error rate, with the sign-flip test."""

    def __init__(self, looks: Sequence[int], alpha: float) -> None:
        self.level = nominal_alpha(tuple(looks), alpha)

    def multiplier(self, n: int) -> float:
        return float(stats.t.ppf(1 - self.level / 2, n - 1))

    def excludes(self, rows: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Whether the distribution-free interval of each row leaves out its value."""
        shifted, n = rows - value[:, None], rows.shape[1]
        if n <= 10:
            signs = np.array(list(itertools.product((-1.0, 1.0), repeat=n)))
            sums, slack = np.abs(shifted @ signs.T), 1e-12 * np.abs(shifted).sum(1)
            extreme = sums >= (np.abs(shifted.sum(1)) - slack)[:, None]
            return extreme.mean(1) <= self.level
        return np.array([sign_flip_p(row) <= self.level for row in shifted], dtype=bool)


class Anytime:
    """Looks at will, with the sign test's e-value."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def multiplier(self, n: int) -> float:
        return anytime_multiplier(n, self.alpha)

    def excludes(self, rows: np.ndarray, value: np.ndarray) -> np.ndarray:
        n = rows.shape[1]
        above, below = (rows > value[:, None]).sum(1), (rows < value[:, None]).sum(1)
        others = n - np.maximum(above, below)  # ties count against the exclusion
        e_value = 2.0**n / ((n + 1) * special.comb(n, others))
        return (e_value >= 1 / self.alpha) & (others < n / 2)


@dataclass
class LookResult:
    """What a look says in each row: the outcome, and whether the wide interval took over."""

    outcome: np.ndarray
    switched: np.ndarray
    covered: np.ndarray


def call(lower: np.ndarray, upper: np.ndarray, margin: np.ndarray) -> np.ndarray:
    inside = (lower > -margin) & (upper < margin)
    return np.select([inside, lower > 0, upper < 0], [EQUIVALENT, BETTER, WORSE], UNDECIDED)


def look(rows: np.ndarray, margin: np.ndarray, rule: Planned | Anytime, truth: np.ndarray) -> LookResult:
    """One look at rows of differences."""
    n, c = rows.shape[1], rule.multiplier(rows.shape[1])
    mean, error = rows.mean(1), rows.std(1, ddof=1) / math.sqrt(n)
    if math.isinf(c):
        nothing = np.zeros(len(rows), dtype=int)
        return LookResult(nothing, nothing > 0, nothing == 0)
    lower, upper = mean - c * error, mean + c * error
    outcome = call(lower, upper, margin)
    covered = (lower <= truth) & (truth <= upper)
    plain, constant = skewness(rows)
    size = np.where(constant, math.inf, np.abs(plain) * math.sqrt(n * (n - 1)) / (n - 2))
    asked = np.flatnonzero((size > 1) | ((size > 0.3) & (outcome != UNDECIDED)))
    low, high = skew_corrected(mean[asked], error[asked], plain[asked], n, c)
    low, high = np.minimum(low, lower[asked]), np.maximum(high, upper[asked])
    confirmed = confirm(rows[asked], low, high, margin[asked], rule)
    taken = asked[(size[asked] > 1) | (confirmed != outcome[asked])]
    switched = np.isin(np.arange(len(rows)), taken)
    outcome[asked] = confirmed
    wide = (low <= truth[asked]) & (truth[asked] <= high)
    covered[asked] |= switched[asked] & wide
    missed = np.flatnonzero(switched & ~covered)
    covered[missed] = ~rule.excludes(rows[missed], truth[missed])
    return LookResult(outcome, switched, covered)


def skewness(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The plain skewness of each row, tiny instead of none; and which rows do not vary."""
    constant = np.ptp(rows, axis=1) <= 1e-12 * np.abs(rows).max(1)
    centred = rows - rows.mean(1, keepdims=True)
    second = np.where(constant, 1.0, (centred**2).mean(1))
    plain = np.where(constant, 0.0, (centred**3).mean(1) / second**1.5)
    return np.where(np.abs(plain) < 1e-9, 1e-9, plain), constant


def skew_corrected(
    mean: np.ndarray, error: np.ndarray, plain: np.ndarray, n: int, c: float
) -> tuple[np.ndarray, np.ndarray]:
    """The means whose t, made symmetric by a cubic in t, is at most c in size; the cubic is solved for t."""
    a = 2 * plain / (3 * math.sqrt(n))
    low, high = ((np.cbrt(1 + 3 * a * (bound - a / 2)) - 1) / a for bound in (-c, c))
    return mean - high * error, mean - low * error


def confirm(
    rows: np.ndarray, low: np.ndarray, high: np.ndarray, margin: np.ndarray, rule: Planned | Anytime
) -> np.ndarray:
    """The call of the interval from `low` to `high`, widened to the distribution-free one."""
    outcome = call(low, high, margin)
    inside = np.flatnonzero(outcome == EQUIVALENT)
    kept = [~rule.excludes(rows[inside], side * margin[inside]) for side in (-1, 1)]
    open_ended = inside[kept[0] | kept[1]]
    outcome[open_ended] = np.select([low[open_ended] > 0, high[open_ended] < 0], [BETTER, WORSE], UNDECIDED)
    differs = np.flatnonzero((outcome == BETTER) | (outcome == WORSE))
    zero = ~rule.excludes(rows[differs], np.zeros(len(differs)))
    outcome[differs[zero]] = UNDECIDED
    return outcome


@dataclass
class Result:
    """Of each comparison: the outcome, the pairs used, whether the final interval holds the truth."""

    outcome: np.ndarray
    pairs: np.ndarray
    covered: np.ndarray
    switched: np.ndarray

    def rate(self, *outcomes: int) -> float:
        return float(np.isin(self.outcome, outcomes).mean())

    @property
    def calls(self) -> float:
        return self.rate(BETTER, WORSE)


def simulate(
    differences: np.ndarray,
    margin: float | np.ndarray,
    looks: Sequence[int] = (8, 16, 24, 32),
    alpha: float = 0.05,
    truth: float | np.ndarray = 0.0,
    anytime: bool = False,
) -> Result:
    """The outcome of each row's comparison, looked at as planned or after every pair."""
    rule = Anytime(alpha) if anytime else Planned(looks, alpha)
    points = range(2, differences.shape[1] + 1) if anytime else looks
    num = len(differences)
    margins, truths = np.broadcast_to(margin, num), np.broadcast_to(truth, num)
    result = Result(np.zeros(num, int), np.zeros(num, int), np.zeros(num, bool), np.zeros(num, bool))
    for n in points:
        alive = np.flatnonzero(result.outcome == UNDECIDED)
        found = look(differences[alive, :n], margins[alive], rule, truths[alive])
        result.outcome[alive], result.covered[alive] = found.outcome, found.covered
        result.switched[alive], result.pairs[alive] = found.switched, n
    return result


def simulate_arms(
    differences: np.ndarray, margin: float, looks: Sequence[int] = (8, 16, 24, 32), alpha: float = 0.05
) -> np.ndarray:
    """Holm over arms at planned looks; `differences` is [comparisons, arms, pairs], so are the outcomes."""
    num, arms, _ = differences.shape
    outcome = np.zeros((num, arms), int)
    rules = {left: Planned(looks, alpha / left) for left in range(1, arms + 1)}
    for n in looks:
        waiting = np.argwhere(outcome == UNDECIDED)
        outcome[tuple(waiting.T)] = _arms_look(differences, waiting, n, margin, rules[arms])
        while True:
            called = np.isin(outcome, (BETTER, WORSE)).sum(1)
            before = outcome.copy()
            for left in range(1, arms):
                waiting = np.argwhere((outcome == UNDECIDED) & (arms - called == left)[:, None])
                found = _arms_look(differences, waiting, n, margin, rules[left])
                outcome[tuple(waiting.T)] = np.where(found == EQUIVALENT, UNDECIDED, found)
            if np.array_equal(before, outcome):
                break
    return outcome


def _arms_look(
    differences: np.ndarray, places: np.ndarray, n: int, margin: float, rule: Planned
) -> np.ndarray:
    if not len(places):
        return np.zeros(0, int)
    rows = differences[places[:, 0], places[:, 1], :n]
    return look(rows, np.full(len(rows), margin), rule, np.zeros(len(rows))).outcome
