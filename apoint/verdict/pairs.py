"""The paired numbers: read, checked, and with failed replicas counted as a value instead of left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from apoint.errors import UsageError
from apoint.verdict.companions import mcnemar_p
from apoint.verdict.further import sharpened
from apoint.verdict.moments import (
    CONSTANT,
    Moments,
    grid_step,
    is_constant,
    masked_by,
    parts_of_skewness,
    skewness,
)
from apoint.verdict.record import Failures
from apoint.verdict.types import Array, Numbers


@dataclass(frozen=True)
class Further:
    """Replicas of the baseline beyond the pairs, and the place at which each becomes part of a pair.

    The place is infinite for a replica whose seed is not among the pairs.
    """

    numbers: Array = field(default_factory=lambda: np.empty(0))
    places: Array = field(default_factory=lambda: np.empty(0))

    def beyond(self, pairs: int) -> Further:
        """Those that are not among the first `pairs` pairs."""
        later = self.places >= pairs
        return Further(self.numbers[later], self.places[later])


@dataclass(frozen=True)
class Pairs:
    """Both arms' numbers in seed order; a non-finite number is a failed replica."""

    baseline: Array
    candidate: Array
    higher_is_better: bool = True
    cap: float | None = None
    resolution: float | None = None  # the smallest step of the metric; None: inferred from the numbers
    further: Further = field(default_factory=Further)

    def __len__(self) -> int:
        return len(self.baseline)

    def first(self, pairs: int) -> Pairs:
        """The first `pairs` pairs."""
        return replace(
            self,
            baseline=self.baseline[:pairs],
            candidate=self.candidate[:pairs],
            further=self.further.beyond(pairs),
        )

    def cap_value(self) -> float:
        """What a failed replica counts as: the declared cap, or the worst finite number of either arm.

        NaN if no cap is declared and an arm has no finite number, because then nothing is known.
        """
        if self.cap is not None:
            return self.cap
        arms = [arm[np.isfinite(arm)] for arm in (self.baseline, self.candidate)]
        if any(len(arm) == 0 for arm in arms):
            return math.nan
        worst = np.min if self.higher_is_better else np.max
        further = self.further.numbers
        return float(worst(np.concatenate([*arms, further[np.isfinite(further)]])))

    def capped(self) -> tuple[Array, Array]:
        """Both arms, with failed replicas and those worse than a declared cap set to the cap."""
        return self._at_cap(self.baseline), self._at_cap(self.candidate)

    def capped_further(self) -> Array:
        """The further replicas of the baseline, counted the same way."""
        return self._at_cap(self.further.numbers)

    def _at_cap(self, numbers: Array) -> Array:
        cap = self.cap_value()
        finite: Array = np.where(np.isfinite(numbers), numbers, cap)
        if self.cap is None:
            return finite
        bound = np.maximum if self.higher_is_better else np.minimum
        capped: Array = bound(finite, cap)
        return capped

    def differences(self) -> Array:
        """The paired differences, positive where the candidate is better; pure rounding counts as 0."""
        baseline, candidate = self.capped()
        difference = candidate - baseline if self.higher_is_better else baseline - candidate
        rounding = CONSTANT * np.maximum(np.abs(baseline), np.abs(candidate))
        return np.where(np.abs(difference) <= rounding, 0.0, difference)

    def spread(self) -> float:
        """The standard deviation of the baseline across seeds."""
        return float(self.capped()[0].std(ddof=1))

    def every_baseline(self) -> Array:
        """All replicas of the baseline: those of the pairs, and further ones."""
        return np.concatenate([self.capped()[0], self.capped_further()])

    def moments(self) -> Moments:
        """Mean, deviation and skewness, from the pairs and from further replicas of the baseline."""
        paired = self.paired_moments()
        if not len(self.further.numbers):
            return paired
        baseline, further = (self._signed(each) for each in (self.capped()[0], self.capped_further()))
        return sharpened(paired, self.differences(), baseline, further, self._step())

    def paired_moments(self) -> Moments:
        """The same for the pairs' differences alone, with what the metric's resolution hides."""
        differences, step = self.differences(), self._step()
        constant = is_constant(differences)
        deviation = 0.0 if constant else float(differences.std(ddof=1))
        # Two scores with different seeds are √2 deviations apart.
        hidden = math.sqrt(2) * self.spread() if constant else 0.0
        if constant and not hidden and not step:
            hidden = math.inf  # nothing varies: nothing is known about what has not been seen
        return Moments(
            len(self),
            float(differences.mean()),
            max(deviation, step / 2),
            skewness(differences),
            hidden,
            masked=masked_by(parts_of_skewness(differences, self._signed(np.add(*self.capped()) / 2))),
        )

    def _signed(self, numbers: Array) -> Array:
        """Numbers in the direction of the differences."""
        return numbers if self.higher_is_better else -numbers

    def _step(self) -> float:
        if self.resolution is not None:
            return self.resolution
        scores = np.concatenate([self.baseline, self.candidate])
        return grid_step(scores[np.isfinite(scores)])

    def failures(self) -> Failures:
        """How many replicas failed, in which arm, and what they count as."""
        first, second = ~np.isfinite(self.baseline), ~np.isfinite(self.candidate)
        only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
        arms = zip((self.baseline, self.candidate), self.capped(), strict=True)
        changed = any(not np.array_equal(arm, capped, equal_nan=True) for arm, capped in arms)
        cap = self.cap_value() if changed else None
        p = mcnemar_p(only_first, only_second)
        return Failures(int(first.sum()), int(second.sum()), only_first, only_second, p, cap)


def read_pairs(
    baseline: Numbers,
    candidate: Numbers,
    higher_is_better: bool,
    cap: float | None,
    resolution: float | None = None,
    further: Further | None = None,
) -> Pairs:
    """Return the pairs, or raise a `UsageError` that says what is wrong with them."""
    first, second = read_numbers(baseline, "baseline"), read_numbers(candidate, "candidate")
    if len(first) != len(second):
        raise UsageError(
            f"the baseline has {len(first)} numbers and the candidate {len(second)}: give one of each for "
            "every seed, and nan for a replica that failed"
        )
    if len(first) < 2:
        raise UsageError(
            f"{len(first) or 'no'} pair{'' if len(first) == 1 else 's'} cannot show a difference, because "
            "nothing is known of the spread: train both arms on 8 seeds or more"
        )
    if cap is not None and not math.isfinite(check_number(cap, "cap")):
        raise UsageError(f"cap must be a finite number, what a failed replica counts as, got {cap}")
    if resolution is not None and not 0 <= check_number(resolution, "resolution") < math.inf:
        raise UsageError(
            f"resolution must be 0 or above, got {resolution}: it is the smallest step of the metric, such "
            "as 1/10000 for an accuracy on 10,000 examples"
        )
    declared = None if cap is None else float(cap)
    pairs = Pairs(first, second, higher_is_better, declared, resolution, further or Further())
    check_failures(pairs)
    return pairs


def read_further(values: Any, seeds: Sequence[int]) -> Further:
    """The further replicas of the baseline; their seeds, if given, show which become pairs later."""
    if not isinstance(values, Mapping):
        numbers = read_numbers(values, "further baseline")
        return Further(numbers, np.full(len(numbers), math.inf))
    if values and not len(seeds):
        raise UsageError(
            "further_baseline names seeds, so give the pairs' seeds as well: a replica counts once, in its "
            "pair or beside the pairs"
        )
    place = {seed: float(position) for position, seed in enumerate(seeds)}
    numbers = read_numbers(values.values(), "further baseline")
    return Further(numbers, np.array([place.get(seed, math.inf) for seed in values], dtype=float))


def check_failures(pairs: Pairs) -> None:
    """Reject pairs in which all replicas of an arm failed and nothing says what that counts as."""
    failed = [not np.isfinite(arm).any() for arm in (pairs.baseline, pairs.candidate)]
    if all(failed):
        raise UsageError(
            f"all {len(pairs)} replicas of both arms failed: there is nothing to compare; "
            "find out first why the training fails"
        )
    if any(failed) and pairs.cap is None:
        arm = "baseline" if failed[0] else "candidate"
        raise UsageError(
            f"all {len(pairs)} replicas of the {arm} failed, and no cap is declared: say with cap=… what a "
            "failed replica counts as, such as the score of the best constant answer"
        )


def read_numbers(values: Any, arm: str) -> Array:
    """Return an arm's numbers; the error for anything else names its position."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise UsageError(f"the {arm} must be a list of numbers, one for each seed, got {values!r}")
    return np.array([_number(value, arm, place) for place, value in enumerate(values, 1)], dtype=float)


def _number(value: Any, arm: str, place: int) -> float:
    wrong = f"number {place} of the {arm} is {value!r}, which is no number; write nan if the replica failed"
    if isinstance(value, str | bytes):
        raise UsageError(wrong)
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several numbers
        raise UsageError(wrong) from None


def check_number(value: Any, name: str) -> float:
    """Return a setting as a float, or raise a `UsageError` that names it."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name} must be a number, got {value!r}") from None


def check_margin(margin: Any) -> float | None:
    """Return the margin, or raise a `UsageError`; None means half the baseline's standard deviation."""
    if margin is None:
        return None
    value = check_number(margin, "margin")
    if not 0 < value < math.inf:
        raise UsageError(
            f"margin must be above 0, got {margin}: it is the smallest difference that matters to you, "
            "for instance half the standard deviation of the baseline over seeds"
        )
    return value
