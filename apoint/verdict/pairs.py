"""The paired numbers: read, checked, and failed replicas counted as a value instead of left out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apoint.errors import UsageError
from apoint.verdict.companions import mcnemar_p
from apoint.verdict.moments import CONSTANT, Moments, grid_step, is_constant, skewness
from apoint.verdict.record import Failures
from apoint.verdict.types import Array, Numbers


@dataclass(frozen=True)
class Pairs:
    """Both arms' numbers in seed order; what is not finite is a failed replica."""

    baseline: Array
    candidate: Array
    higher_is_better: bool = True
    cap: float | None = None
    resolution: float | None = None  # the smallest step of the metric; None: found from the numbers

    def __len__(self) -> int:
        return len(self.baseline)

    def first(self, pairs: int) -> Pairs:
        """The first so many pairs."""
        return replace(self, baseline=self.baseline[:pairs], candidate=self.candidate[:pairs])

    def cap_value(self) -> float:
        """What a failed replica counts as: the declared cap, or the worst finite number of either arm.

        NaN if it is not declared and an arm has no finite number, because nothing is known then.
        """
        if self.cap is not None:
            return self.cap
        arms = [arm[np.isfinite(arm)] for arm in (self.baseline, self.candidate)]
        if any(len(arm) == 0 for arm in arms):
            return math.nan
        worst = np.min if self.higher_is_better else np.max
        return float(worst(np.concatenate(arms)))

    def capped(self) -> tuple[Array, Array]:
        """Both arms with failed replicas, and those worse than a declared cap, at the cap."""
        cap = self.cap_value()
        arms = [np.where(np.isfinite(arm), arm, cap) for arm in (self.baseline, self.candidate)]
        if self.cap is not None:
            bound = np.maximum if self.higher_is_better else np.minimum
            arms = [bound(arm, cap) for arm in arms]
        return arms[0], arms[1]

    def differences(self) -> Array:
        """The paired differences, positive where the candidate is better; what is only rounding is 0."""
        baseline, candidate = self.capped()
        difference = candidate - baseline if self.higher_is_better else baseline - candidate
        rounding = CONSTANT * np.maximum(np.abs(baseline), np.abs(candidate))
        return np.where(np.abs(difference) <= rounding, 0.0, difference)

    def spread(self) -> float:
        """The standard deviation of the baseline over seeds."""
        return float(self.capped()[0].std(ddof=1))

    def moments(self) -> Moments:
        """Mean, deviation and skewness of the differences, with what the metric's resolution hides."""
        differences, step = self.differences(), self._step()
        constant = is_constant(differences)
        deviation = 0.0 if constant else float(differences.std(ddof=1))
        # Two scores with different seeds lie √2 deviations apart.
        hidden = math.sqrt(2) * self.spread() if constant else 0.0
        if constant and not hidden and not step:
            hidden = math.inf  # nothing varies: nothing is known of what has not been seen
        return Moments(
            len(self), float(differences.mean()), max(deviation, step / 2), skewness(differences), hidden
        )

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
) -> Pairs:
    """The pairs, or a `UsageError` that says what is wrong with them."""
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
    pairs = Pairs(first, second, higher_is_better, None if cap is None else float(cap), resolution)
    check_failures(pairs)
    return pairs


def check_failures(pairs: Pairs) -> None:
    """Refuse pairs in which an arm only failed and nothing says what that counts as."""
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
    """An arm's numbers; anything else is named with its place."""
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
    """A setting as a number, or a `UsageError` that names it."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name} must be a number, got {value!r}") from None


def check_margin(margin: Any) -> float | None:
    """The margin, or a `UsageError`; None stands for half the baseline's standard deviation."""
    if margin is None:
        return None
    value = check_number(margin, "margin")
    if not 0 < value < math.inf:
        raise UsageError(
            f"margin must be above 0, got {margin}: it is the smallest difference that matters to you, "
            "for instance half the standard deviation of the baseline over seeds"
        )
    return value
