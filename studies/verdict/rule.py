"""The decision rule for many comparisons at once, written a second time and without the product's walk.

`decide` takes one comparison; here rows are comparisons. A test holds the two equal on random draws, so that
error rates over tens of thousands of comparisons can be had in seconds. Only the critical values are the
product's own; what it does with them is written again: instead of an interval, the critical value at which an
interval would just touch a number.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from apoint.verdict.calibration import levels
from apoint.verdict.intervals import AnytimeRule, PlannedRule, Rule

UNDECIDED, BETTER, WORSE, EQUIVALENT = 0, 1, 2, 3
NAMES = ("undecided", "better", "worse", "equivalent")


class Paths:
    """Mean, standard error and tails of rows of differences, at each of some numbers of pairs.

    Args:
        differences: A row for each comparison.
        points: The numbers of pairs.
        step: The metric's resolution: a deviation counts as at least half of it.
        example_error: [points, comparisons] The standard error from the choice of test examples.
        baseline: The baseline's numbers, a row for each comparison; None for one that does not vary.
    """

    def __init__(
        self,
        differences: np.ndarray,
        points: Sequence[int],
        step: float = 0.0,
        example_error: np.ndarray | float = 0.0,
        baseline: np.ndarray | None = None,
    ) -> None:
        self.points = list(points)
        self.mean = np.empty((len(self.points), len(differences)))
        self.error, self.skew = np.empty_like(self.mean), np.empty_like(self.mean)
        self.masked = np.zeros_like(self.mean)
        centre = differences.mean(1, keepdims=True)
        d = differences - centre
        b = None if baseline is None else baseline - baseline.mean(1, keepdims=True)
        sums = running_sums(d, b)
        for place, n in enumerate(self.points):
            c = central_moments({key: each[:, n - 1] / n for key, each in sums.items()})
            variance = np.maximum(c[2, 0], 0.0)
            flat = variance <= 1e-24 * (differences[:, :n] ** 2).max(1)
            self.skew[place] = np.where(flat | (n < 3), 0.0, c[3, 0] / np.where(flat, 1.0, variance) ** 1.5)
            deviation = np.sqrt(np.where(flat, 0.0, variance) * n / (n - 1))
            self.mean[place] = sums[1, 0][:, n - 1] / n + centre[:, 0]
            self.error[place] = np.maximum(deviation, step / 2) / math.sqrt(n)
            if b is not None:
                parts = parts_of_skewness(c, n)
                self.masked[place] = np.where(flat | (n < 3), 0.0, masked(*parts))
        self.error = np.sqrt(self.error**2 + np.square(example_error))

    def shifted(self, effect: float) -> Paths:
        """The paths of the same differences with an effect added to all of them."""
        moved = copy.copy(self)
        moved.mean = self.mean + effect
        return moved

    def touching(self, place: int, value: np.ndarray | float, scale: float = 1.0) -> np.ndarray:
        """The critical value at which the interval's end is `value`: above 0 if it lies below the mean.

        `scale` multiplies the skewness term, to see what another rule would do.
        """
        n, distance = self.points[place], (self.mean[place] - value) / self.error[place]
        tail = np.maximum(-np.sign(distance) * self.skew[place], 0.0) + self.masked[place]
        b = scale * (0.25 * tail + 0.18 * tail**2) * min(1.0, math.sqrt(20 / n))
        return np.sign(distance) * 2 * np.abs(distance) / (1 + np.sqrt(1 + 4 * b * np.abs(distance)))

    def equivalent(self, place: int, margin: np.ndarray | float, c: float) -> np.ndarray:
        """Whether the interval with this critical value lies inside ±margin."""
        return (self.touching(place, -margin) > c) & (self.touching(place, margin) < -c)


Moments = dict[tuple[int, int], np.ndarray]  # of the powers of the difference and of the baseline


def running_sums(d: np.ndarray, b: np.ndarray | None) -> Moments:
    """The sums of dⁱbʲ over the first pairs, up to third powers."""
    powers = {(1, 0): d, (2, 0): d * d, (3, 0): d * d * d}
    if b is not None:
        powers |= {(0, 1): b, (1, 1): d * b, (0, 2): b * b, (2, 1): d * d * b, (1, 2): d * b * b}
        powers[0, 3] = b * b * b
    return {key: np.cumsum(each, axis=1) for key, each in powers.items()}


def central_moments(e: Moments) -> Moments:
    """Central moments from plain ones."""
    d = e[1, 0]
    found = {(2, 0): e[2, 0] - d**2, (3, 0): e[3, 0] - 3 * d * e[2, 0] + 2 * d**3}
    if (0, 1) in e:
        b = e[0, 1]
        found |= {
            (1, 1): e[1, 1] - d * b,
            (0, 2): e[0, 2] - b**2,
            (2, 1): e[2, 1] - 2 * d * e[1, 1] - b * e[2, 0] + 2 * d**2 * b,
            (1, 2): e[1, 2] - 2 * b * e[1, 1] - d * e[0, 2] + 2 * d * b**2,
            (0, 3): e[0, 3] - 3 * b * e[0, 2] + 2 * b**3,
        }
    return found


def parts_of_skewness(c: Moments, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The candidate's and the baseline's part of the differences' skewness, from central moments."""
    variance = np.where(c[2, 0] > 0, c[2, 0], 1.0)
    g, slope = c[3, 0] / variance**1.5, -c[1, 1] / variance
    ratio = np.sqrt(np.maximum(c[0, 2] / variance - slope**2, 0.0))  # the rest's deviation, in d's
    third = (c[2, 1] + slope * c[3, 0]) / variance**1.5
    usable = (ratio > 1e-7) & (third != 0)
    f = n * third**2 / (2 * np.where(usable, ratio, 1.0) ** 2)
    clear = np.where(usable, np.maximum(1 - 2 / np.where(usable, f, 1.0), 0.0), 0.0)
    gamma = np.clip(slope, 0.0, 1.0)
    most = np.minimum(ratio, np.sqrt(gamma * (1 - gamma)))
    q = 2 * clear * third / np.where(usable, ratio, 1.0) * most
    return (1 - gamma) * g + q, gamma * g - q


def masked(*parts: np.ndarray) -> np.ndarray:
    """What parts of opposite signs hide of each other."""
    total: np.ndarray = sum(parts, np.zeros_like(parts[0]))
    hidden: np.ndarray = (sum(map(np.abs, parts), np.zeros_like(total)) - np.abs(total)) / 2
    return hidden


@dataclass
class Result:
    """Of each comparison: the outcome, the pairs used, whether its interval holds the truth, the effect."""

    outcome: np.ndarray
    pairs: np.ndarray
    covered: np.ndarray
    effect: np.ndarray

    def rate(self, *outcomes: int) -> float:
        return float(np.isin(self.outcome, outcomes).mean())

    @property
    def calls(self) -> float:
        return self.rate(BETTER, WORSE)


def points_of(looks: Sequence[int], anytime: bool, pairs: int, arms: int = 1) -> list[int]:
    """Where one looks: as planned, or after every pair from the first that is worth a look."""
    return list(range(math.ceil(6 * arms ** (1 / 3) - 1e-9), pairs + 1)) if anytime else list(looks)


def rule_of(looks: Sequence[int], alpha: float, anytime: bool) -> Rule:
    return AnytimeRule(alpha) if anytime else PlannedRule(levels(tuple(looks), alpha))


def simulate(
    differences: np.ndarray,
    margin: float | np.ndarray,
    looks: Sequence[int],
    alpha: float = 0.05,
    truth: float | np.ndarray = 0.0,
    anytime: bool = False,
    step: float = 0.0,
    example_error: np.ndarray | float = 0.0,
    baseline: np.ndarray | None = None,
) -> Result:
    """The outcome of each row's comparison, looked at as planned or after every pair."""
    points = points_of(looks, anytime, differences.shape[1])
    paths = Paths(differences, points, step, example_error, baseline)
    return walk(paths, rule_of(looks, alpha, anytime), margin, truth)


def walk(paths: Paths, rule: Rule, margin: float | np.ndarray, truth: float | np.ndarray = 0.0) -> Result:
    """The outcome of each row's comparison, look by look."""
    wide, narrow = (at(np.array(paths.points, dtype=float)) for at in (rule.critical, rule.one_sided))
    num = paths.mean.shape[1]
    result = Result(np.zeros(num, int), np.zeros(num, int), np.ones(num, bool), np.zeros(num))
    for place, n in enumerate(paths.points):
        open_ = result.outcome == UNDECIDED
        touching = paths.touching(place, 0.0)
        found = np.select(
            [paths.equivalent(place, margin, narrow[place]), touching > wide[place], touching < -wide[place]],
            [EQUIVALENT, BETTER, WORSE],
            UNDECIDED,
        )
        covered = np.abs(paths.touching(place, truth)) <= wide[place]
        result.outcome[open_], result.covered[open_] = found[open_], covered[open_]
        result.pairs[open_], result.effect[open_] = n, paths.mean[place][open_]
    return result


@dataclass
class Races:
    """Of each race and arm: the outcome, the pairs used, and whether the final interval holds the truth."""

    outcome: np.ndarray
    pairs: np.ndarray
    covered: np.ndarray

    def family(self, *outcomes: int) -> float:
        """The share of races in which some arm has one of these outcomes."""
        return float(np.isin(self.outcome, outcomes).any(1).mean())


def simulate_arms(
    differences: np.ndarray,
    margin: float,
    looks: Sequence[int],
    alpha: float = 0.05,
    truth: float | np.ndarray = 0.0,
    anytime: bool = False,
    step: float = 0.0,
    baseline: np.ndarray | None = None,
) -> Races:
    """Holm over arms; `differences` is [races, arms, pairs], so are the outcomes but for the pairs.

    The baseline is [races, 1, pairs]: all arms of a race have the same.
    """
    num, arms, pairs = differences.shape
    points = points_of(looks, anytime, pairs, arms)
    paths = Paths(differences.reshape(num * arms, pairs), points, step, baseline=rows_of_arms(baseline, arms))
    return race(paths, num, critical_values(looks, points, arms, alpha, anytime), margin, truth)


def rows_of_arms(baseline: np.ndarray | None, arms: int) -> np.ndarray | None:
    """The baseline of each race, [races, 1, pairs], as a row for each of its arms."""
    return None if baseline is None else np.repeat(baseline[:, 0], arms, axis=0)


def critical_values(
    looks: Sequence[int], points: Sequence[int], arms: int, alpha: float, anytime: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Of intervals and of one-sided bounds, [arms left, look]: with fewer arms left they are less strict."""
    rules = [rule_of(looks, alpha / left, anytime) for left in range(1, arms + 1)]
    at = np.array(points, dtype=float)
    return np.array([rule.critical(at) for rule in rules]), np.array([rule.one_sided(at) for rule in rules])


def race(
    paths: Paths,
    num: int,
    criticals: tuple[np.ndarray, np.ndarray],
    margin: float,
    truth: float | np.ndarray = 0.0,
) -> Races:
    """The races of paths whose rows are [races, arms]."""
    wide, narrow = criticals
    arms = len(wide)
    races = Races(np.zeros((num, arms), int), np.zeros((num, arms), int), np.ones((num, arms), bool))
    truths = np.broadcast_to(truth, (num, arms)).reshape(-1)
    for place, n in enumerate(paths.points):
        open_ = races.outcome == UNDECIDED
        touching = paths.touching(place, 0.0).reshape(num, arms)
        # The critical value up to which the interval lies inside ±margin.
        inside = np.minimum(paths.touching(place, -margin), -paths.touching(place, margin))
        inside = inside.reshape(num, arms)
        rates = np.full((num, arms), arms)
        races.outcome[(inside > narrow[-1, place]) & open_] = EQUIVALENT
        left = np.full(num, arms)  # first at the strictest rate: an arm carries it if that is enough
        while True:
            rate = np.maximum(left, 1) - 1
            # What lies inside the margin at this rate is no call, and no equivalence either: it stays open.
            called = np.abs(touching) > wide[rate, place][:, None]
            called &= (races.outcome == UNDECIDED) & ~(inside > narrow[rate, place][:, None])
            if called.any():
                rates = np.where(called, left[:, None], rates)
                races.outcome[called] = np.where(touching[called] > 0, BETTER, WORSE)
            eased = arms - np.isin(races.outcome, (BETTER, WORSE)).sum(1)
            if not called.any() and (eased == left).all():
                break
            left = eased
        holds = np.abs(paths.touching(place, truths)).reshape(num, arms) <= wide[rates - 1, place]
        races.covered[open_], races.pairs[open_] = holds[open_], n
    return races
