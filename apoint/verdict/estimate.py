"""The effect without what stopping early adds to it, and the chance of finding an effect at all.

A comparison stops early when the pairs so far look good, so the effect it shows is too large on average. The
adjusted effect is the one for which a comparison with the same looks would show, on average, the observed
effect. It is found by simulating Gaussian differences. It is unbiased over all comparisons, decided or not;
among those called better, a small true effect is still overstated.

Reference: Whitehead (1986), On the bias of maximum likelihood estimation following a sequential test.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from apoint.verdict.calibration import levels
from apoint.verdict.intervals import PlannedRule
from apoint.verdict.moments import Moments, corrected
from apoint.verdict.types import Array

PATHS = 4_000  # plus as many with the opposite sign
EFFECTS = np.concatenate([np.arange(0, 2, 0.1), np.arange(2, 6.5, 0.5)])  # in standard deviations


def adjusted_effect(moments: Moments, pairs: int, plan: tuple[int, ...], alpha: float) -> float:
    """The effect, less its bias if it was found at a planned look.

    NaN if the choice of test examples plays a part in when to stop: that bias is not simulated.

    Args:
        moments: The moments of the differences up to the look that decided, or the last one.
        pairs: The number of these differences.
        plan: The planned looks.
        alpha: The error rate of the interval over all looks.
    """
    if moments.example_error:
        return math.nan
    if len(plan) < 2 or pairs not in plan or not moments.deviation > 0:
        return moments.mean
    seen = abs(moments.mean) / moments.deviation
    shown = shown_effects(plan, alpha)
    if seen >= shown[-1]:
        return moments.mean
    return math.copysign(float(np.interp(seen, shown, EFFECTS)) * moments.deviation, moments.mean)


@functools.cache
def shown_effects(plan: tuple[int, ...], alpha: float) -> Array:
    """The effect shown on average for each of `EFFECTS`, in true standard deviations."""
    means, errors, skews = _paths(plan)
    criticals = PlannedRule(levels(plan, alpha)).critical(np.array(plan, dtype=float))
    shown = np.array([_shown(means + effect, errors, skews, criticals, plan) for effect in EFFECTS])
    return np.maximum.accumulate(shown - shown[0])  # 0 is shown as 0, up to the noise of the simulation


def _shown(means: Array, errors: Array, skews: Array, criticals: Array, plan: tuple[int, ...]) -> float:
    """The mean at the look that decides, or at the last one, averaged over paths."""
    place = np.abs(touching(means, errors, skews, plan)) >= criticals[:, None]
    place[-1] = True
    return float(np.take_along_axis(means, place.argmax(0)[None], 0).mean())


def touching(means: Array, errors: Array, skews: Array, plan: tuple[int, ...]) -> Array:
    """For each look and path, the critical value at which the interval would touch 0, with its sign."""
    rows = zip(means / errors, skews, plan, strict=True)
    return np.stack([corrected(t, skew, n) for t, skew, n in rows])


@functools.cache
def chance_of_better(effect: float, plan: tuple[int, ...], alpha: float = 0.05) -> float:
    """The chance that a comparison calls an effect better, for Gaussian differences.

    Args:
        effect: The true effect, in standard deviations of the differences.
        plan: The planned looks.
        alpha: The error rate over all looks.
    """
    means, errors, skews = _paths(plan)
    criticals = PlannedRule(levels(plan, alpha)).critical(np.array(plan, dtype=float))
    found = touching(means + effect, errors, skews, plan)
    decides = np.abs(found) >= criticals[:, None]
    first = decides.argmax(0)[None]
    better = np.take_along_axis(decides & (found > 0), first, 0)
    return float(better.mean())


@functools.lru_cache(maxsize=4)
def _paths(plan: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Mean, standard error and skewness at each look of simulated standard normal differences."""
    values = np.random.default_rng(20240602).standard_normal((PATHS, plan[-1]))
    values = np.concatenate([values, -values])
    sums = [np.cumsum(values**power, axis=1)[:, np.array(plan) - 1].T for power in (1, 2, 3)]
    first, second, third = (each / np.array(plan)[:, None] for each in sums)
    variance = second - first**2
    skews = (third - 3 * first * second + 2 * first**3) / variance**1.5
    return first, np.sqrt(variance / (np.array(plan)[:, None] - 1)), skews
