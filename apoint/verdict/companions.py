"""What is reported alongside the interval: failures and effect sizes."""

from __future__ import annotations

import math

import numpy as np

from apoint.errors import UsageError
from apoint.verdict.types import Numbers


def mcnemar_p(only_baseline: int, only_candidate: int) -> float:
    """The exact two-sided p-value of McNemar's test on the pairs in which only one arm failed."""
    from scipy.special import bdtr

    if only_baseline < 0 or only_candidate < 0:
        raise UsageError(
            f"numbers of failures must not be negative, got {only_baseline} and {only_candidate}"
        )
    discordant = only_baseline + only_candidate
    if discordant == 0:
        return 1.0
    return min(1.0, 2 * float(bdtr(min(only_baseline, only_candidate), discordant, 0.5)))


def probability_of_improvement(
    differences: Numbers, alpha: float = 0.05
) -> tuple[float, tuple[float, float]]:
    """The share of pairs that improved, with ties counted as half, and its Clopper-Pearson interval.

    The interval counts ties both ways: its lower end uses the clear improvements alone, its upper end
    all pairs that did not get worse.
    """
    from scipy.special import betaincinv

    values = np.asarray(differences, dtype=float)
    n, wins, ties = len(values), int((values > 0).sum()), int((values == 0).sum())
    lower = float(betaincinv(wins, n - wins + 1, alpha / 2)) if wins else 0.0
    at_most = wins + ties
    upper = float(betaincinv(at_most + 1, n - at_most, 1 - alpha / 2)) if at_most < n else 1.0
    return (wins + ties / 2) / n, (lower, upper)


def standardised_effect(differences: Numbers) -> float:
    """Mean divided by standard deviation of the paired differences; infinite for a constant difference."""
    values = np.asarray(differences, dtype=float)
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    if deviation == 0:
        return math.copysign(math.inf, mean) if mean else 0.0
    return mean / deviation


def interquartile_mean(values: Numbers) -> float:
    """The mean of the middle half; values at its edges count in part, so that it does not jump with n."""
    ordered = np.sort(np.asarray(values, dtype=float))
    n = len(ordered)
    weights = np.minimum(np.arange(1, n + 1), 0.75 * n) - np.maximum(np.arange(n), 0.25 * n)
    return float(np.average(ordered, weights=np.maximum(weights, 0)))


def pair_correlation(baseline: Numbers, candidate: Numbers) -> float:
    """The correlation of the two arms across seeds: what pairing gained; NaN if an arm does not vary."""
    first, second = np.asarray(baseline, dtype=float), np.asarray(candidate, dtype=float)
    if len(first) < 2 or first.std() == 0 or second.std() == 0:
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])
