"""What the numbers say of a change: noise, effect, pairs needed, and what the rule would decide."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from apoint.trials.outcome import resolution
from apoint.verdict import DEFAULT_LOOKS
from studies.quieter_number.cases import CASES, KEPT, TEST_SIZES
from studies.verdict.rule import BETTER, EQUIVALENT, WORSE, simulate

LASTS = (1, 2, 3, 5)
NUM_COMPARISONS, NUM_RESAMPLES = 4000, 2000
CLEAR = 3.0  # so many standard errors from 0 an effect must be for a ratio of effects to mean something
LAST_DIGIT = 1e-5  # the resolution of what is no share of examples: its last digit that is kept


@dataclass(frozen=True)
class Judged:
    """A change to a recipe, judged by the mean of the last evaluations.

    Attributes:
        case: The name of the recipe.
        change: The name of the change.
        differences: For each entry of `LASTS` a row of paired differences, above 0 if the change is better.
        correlations: For each, that of the arms over seeds.
        margins: For each, half the baseline's standard deviation over seeds.
        averaged: The differences of the averaged weights; empty if there are none.
    """

    case: str
    change: str
    differences: np.ndarray
    correlations: list[float]
    margins: list[float]
    averaged: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """The mean difference, for each number of evaluations."""
        return np.asarray(self.differences.mean(1))

    @property
    def deviations(self) -> np.ndarray:
        """The standard deviation of the differences."""
        return np.asarray(self.differences.std(1, ddof=1))

    @property
    def standardised(self) -> np.ndarray:
        """The mean difference in standard deviations."""
        return np.asarray(self.means / self.deviations)

    @property
    def is_clear(self) -> bool:
        """Whether there is an effect, by the last evaluation alone."""
        return bool(abs(self.standardised[0]) * math.sqrt(self.differences.shape[1]) >= CLEAR)

    def noise_ratio(self, place: int) -> tuple[float, float, float]:
        """The variance of the differences at the last evaluation over that of a mean, with its interval."""
        return _with_interval(self.differences, lambda rows: rows[0].var(-1) / rows[place].var(-1))

    def pairs_ratio(self, place: int) -> tuple[float, float, float]:
        """How many times fewer pairs the mean needs for the same standardised effect, with its interval."""

        def ratio(rows: np.ndarray) -> Any:
            first, mean = (row.mean(-1) / row.std(-1) for row in (rows[0], rows[place]))
            return (mean / first) ** 2

        return _with_interval(self.differences, ratio)

    def shift(self, place: int) -> tuple[float, float]:
        """By how much the mean of evaluations moves the effect, and the standard error of that."""
        moved = self.differences[place] - self.differences[0]
        return float(moved.mean()), float(moved.std(ddof=1) / math.sqrt(len(moved)))

    def moves(self, place: int) -> bool:
        """Whether the effect is another one: the shift is more than 2 standard errors from 0."""
        shift, error = self.shift(place)
        return abs(shift) > 2 * error

    def decisions(self, place: int) -> tuple[float, float, float]:
        """By the usual rule, over resampled comparisons: pairs on average, share called, share equivalent."""
        rng = np.random.default_rng(7)
        drawn = rng.integers(0, self.differences.shape[1], (NUM_COMPARISONS, DEFAULT_LOOKS[-1]))
        case = CASES[self.case]
        step = resolution(case.metric, LASTS[place], TEST_SIZES.get(case.recipe, 1)) or LAST_DIGIT
        found = simulate(self.differences[place][drawn], self.margins[place], DEFAULT_LOOKS, step=step)
        return float(found.pairs.mean()), found.rate(BETTER, WORSE), found.rate(EQUIVALENT)


def _with_interval(differences: np.ndarray, statistic: Any) -> tuple[float, float, float]:
    """A statistic of rows of differences and its percentile interval over resampled seeds."""
    rng = np.random.default_rng(5)
    size = differences.shape[1]
    drawn = differences[:, rng.integers(0, size, (NUM_RESAMPLES, size))]
    low, high = np.quantile(statistic(drawn), [0.025, 0.975])
    return float(statistic(differences)), float(low), float(high)


def judge(name: str, arms: dict[str, list[list[float]]]) -> Iterator[Judged]:
    """Every change to a recipe.

    Args:
        name: The recipe's name in `CASES`.
        arms: The last evaluations of each arm's replicas, in the order of seeds.
    """
    sign = 1 if CASES[name].higher else -1
    tails = {arm: np.array(values) for arm, values in arms.items()}
    baseline = tails.pop("baseline")
    before = [_mean_of_last(baseline, last) for last in LASTS]
    for change, values in tails.items():
        after = [_mean_of_last(values, last) for last in LASTS]
        yield Judged(
            name,
            change,
            np.array([sign * (new - old) for old, new in zip(before, after, strict=True)]),
            [float(np.corrcoef(old, new)[0, 1]) for old, new in zip(before, after, strict=True)],
            [float(old.std(ddof=1)) / 2 for old in before],
            (sign * (values - baseline))[:, KEPT:].ravel(),
        )


def _mean_of_last(tails: np.ndarray, last: int) -> np.ndarray:
    return np.asarray(tails[:, KEPT - last : KEPT].mean(1))


def progress(name: str, baseline: list[list[float]]) -> float:
    """By how many standard deviations over seeds the baseline improved in its last three evaluations."""
    tails = np.array(baseline)
    sign = 1 if CASES[name].higher else -1
    gained = sign * float((tails[:, KEPT - 1] - tails[:, KEPT - 3]).mean())
    return gained / float(tails[:, KEPT - 1].std(ddof=1))
