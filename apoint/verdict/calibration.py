"""How strict each planned look must be so that all looks together err at the declared rate.

A look at n pairs has its own nominal level, proportional to nᵖ: early looks are strict and late ones are
not. A common factor is found by simulation so that, over all looks, the interval of
`apoint.verdict.intervals` misses the truth with probability α if the differences are Gaussian. The
statistics do not depend on the mean and standard deviation of the differences, so one simulation with
standard normal differences covers every case. It is seeded: the same plan gives the same numbers.

Skewed differences err more than Gaussian ones, the more so the fewer the pairs and the smaller α. Besides the
skewness term of the interval, two things hold their error rate down. The exponent p grows as α falls, so a
small α is spent late. And a plan that ends before `FULL_PAIRS` pairs (more if α is small) spends only part
of α, as does a small α. All constants were chosen by simulation on one set of shapes and are measured on
another (`docs/verdict.md`).

Reference: Jennison and Turnbull (1989), Interim analyses: the repeated confidence interval approach; Wang and
Tsiatis (1987), Approximately optimal one-parameter boundaries for group sequential trials.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from apoint.errors import UsageError
from apoint.verdict.moments import corrected
from apoint.verdict.types import Array

DEFAULT_LOOKS = (6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
SMALLEST_LOOK = 3  # with two pairs the deviation has one degree of freedom
SIMULATIONS = 400_000
CHUNK = 50_000  # paths drawn at a time: bounds the memory
EXACT_BLOCK = 64  # beyond it, power sums of longer gaps between looks are drawn by the central limit theorem
FEWEST_PATHS = 100  # a quantile that rests on fewer simulated paths is not reliable
USUAL_ALPHA = 0.05
STEEPNESS = 2.0
FULL_PAIRS, FULL_POWER = 13.0, 0.35
SAVED = 0.28  # a small α is spent as α·(α/0.05) to this power
# A bound is wrong more often than an interval if the tail is on its side, most of all at early looks.
STEEPER, ONE_SIDED_SHARE = 1.0, 0.65
# Simulated (two-sided, one-sided) factors of the default plan and of its prefixes: saves seconds
KNOWN_FACTORS: dict[tuple[tuple[int, ...], float], tuple[float, float]] = {
    (DEFAULT_LOOKS[:1], USUAL_ALPHA): (0.023854829092816176, 0.015190974270609206),
    (DEFAULT_LOOKS[:3], USUAL_ALPHA): (0.023229666381198964, 0.016242180212421922),
    (DEFAULT_LOOKS[:5], USUAL_ALPHA): (0.03792553220256129, 0.028456806118810036),
    (DEFAULT_LOOKS[:7], USUAL_ALPHA): (0.03994063484941337, 0.030639216428327908),
    (DEFAULT_LOOKS[:9], USUAL_ALPHA): (0.039665839029095075, 0.03132339927123578),
    (DEFAULT_LOOKS, USUAL_ALPHA): (0.03767476671598912, 0.029579546329500623),
}


def first_look(arms: int = 1) -> int:
    """The first look worth making: with more candidates, each needs more pairs."""
    return math.ceil(DEFAULT_LOOKS[0] * math.cbrt(arms) - 1e-9)


def default_looks(arms: int = 1) -> tuple[int, ...]:
    """The default plan for this many candidates."""
    return tuple(n for n in DEFAULT_LOOKS if n >= first_look(arms)) or DEFAULT_LOOKS[-1:]


def check_alpha(alpha: Any) -> float:
    """Return the error rate as a float, or raise a one-sentence `UsageError`."""
    if not isinstance(alpha, Real) or not 0 < float(alpha) < 1:
        raise UsageError(f"alpha must be between 0 and 1, got {alpha}")
    return float(alpha)


def check_plan(looks: Sequence[int], alpha: float) -> tuple[int, ...]:
    """Return the looks as a tuple, or raise a one-sentence `UsageError`."""
    check_alpha(alpha)
    plan = tuple(looks)
    if not plan:
        raise UsageError("looks must name at least one number of pairs, such as (8, 16, 24, 32)")
    if (
        any(not isinstance(n, Integral) for n in plan)
        or plan[0] < SMALLEST_LOOK
        or list(plan) != sorted(set(plan))
    ):
        raise UsageError(
            f"looks must be rising whole numbers of pairs, the first at least {SMALLEST_LOOK}, got {plan}"
        )
    return tuple(int(n) for n in plan)


@dataclass(frozen=True)
class Levels:
    """The nominal levels of a plan, (n/last)ᵖ times a factor: for the interval, and for one-sided bounds."""

    last: int
    exponent: float
    two_sided: float
    one_sided: float

    def at(self, pairs: Array, one_sided: bool = False) -> Array:
        """The level at this many pairs; beyond the plan, the level of its last look."""
        factor = self.one_sided if one_sided else self.two_sided
        power = self.exponent + one_sided * STEEPER
        level: Array = np.minimum(factor * np.minimum(pairs / self.last, 1.0) ** power, 1.0)
        return level


def exponent(alpha: float) -> float:
    """The exponent p of the levels nᵖ: 2 for the usual α, and one more for each factor of ten below it."""
    return STEEPNESS + max(0.0, math.log10(USUAL_ALPHA / alpha))


def spent(alpha: float, last: int) -> float:
    """The part of α spent by a plan that ends at this many pairs."""
    full = FULL_PAIRS * math.pow(max(USUAL_ALPHA / alpha, 1.0), FULL_POWER)
    return saved(alpha) * math.pow(min(1.0, last / full), 1.5)


def saved(alpha: float) -> float:
    """The error rate, less what is held back if it is small."""
    return alpha * math.pow(min(1.0, alpha / USUAL_ALPHA), SAVED)


@functools.cache
def levels(looks: tuple[int, ...], alpha: float = 0.05) -> Levels:
    """The levels of a plan for the error rate `alpha` over all its looks."""
    check_plan(looks, alpha)
    last, power, rate = looks[-1], exponent(alpha), spent(alpha, looks[-1])
    factors = KNOWN_FACTORS.get((looks, alpha)) or simulated_factors(looks, power, rate)
    return Levels(last, power, *factors)


def simulated_factors(looks: tuple[int, ...], power: float, rate: float) -> tuple[float, float]:
    """The factors at which a share `rate` of the simulated paths errs, and 0.65 of that share on one side.

    A rate too small for the simulation is divided among the looks, which is safe.
    """
    shares = np.asarray(looks)[:, None] / looks[-1]
    wide, narrow = shares**power, shares ** (power + STEEPER)
    if rate * SIMULATIONS < FEWEST_PATHS:
        return rate / float(wide.sum()), rate / float(narrow.sum())
    tails, above = _paths(looks)
    two_sided = (2 * tails / wide).min(0)
    one_sided = [(np.where(side, tails, 1 - tails) / narrow).min(0) for side in (above, ~above)]
    return (
        float(np.quantile(two_sided, rate)),
        float(np.quantile(np.concatenate(one_sided), ONE_SIDED_SHARE * rate)),
    )


@functools.lru_cache(maxsize=4)
def _paths(looks: tuple[int, ...]) -> tuple[Array, Any]:
    """For each look and simulated path: the tail probability beyond the corrected t, and whether t > 0."""
    draw = np.random.default_rng(20240601)
    parts = [_chunk(draw, looks) for _ in range(SIMULATIONS // CHUNK)]
    return np.concatenate([part[0] for part in parts], 1), np.concatenate([part[1] for part in parts], 1)


def _chunk(draw: np.random.Generator, looks: tuple[int, ...]) -> tuple[Array, Any]:
    from scipy.special import stdtr

    sums, done = np.zeros((3, CHUNK)), 0
    tails, above = np.empty((len(looks), CHUNK)), np.empty((len(looks), CHUNK), dtype=bool)
    for place, n in enumerate(looks):
        sums += _power_sums(draw, n - done)
        done = n
        first, second, third = sums / n
        variance = second - first**2
        t = first / np.sqrt(variance / (n - 1))
        skewness = (third - 3 * first * second + 2 * first**3) / variance**1.5
        tails[place] = stdtr(n - 1, -np.abs(corrected(t, skewness, n)))
        above[place] = t > 0
    return tails, above


def _power_sums(draw: np.random.Generator, pairs: int) -> Array:
    """The sums of x, x² and x³ over this many standard normal x, for each path of a chunk."""
    exact = min(pairs, EXACT_BLOCK)
    values = draw.standard_normal((exact, CHUNK))
    sums = np.stack([(values**k).sum(0) for k in (1, 2, 3)])
    rest = pairs - exact
    if rest:
        covariance = np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 0.0], [3.0, 0.0, 15.0]])
        further = np.linalg.cholesky(covariance) @ draw.standard_normal((3, CHUNK)) * math.sqrt(rest)
        sums += further + np.array([[0.0], [rest], [0.0]])
    return sums
