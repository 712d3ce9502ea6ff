"""What a look does with skewed differences: a wider interval that need not trust the t interval.

The t interval errs for skewed differences: where it should miss the truth in 5 % of the cases it misses in 11
to 17 %. So it is not trusted alone. At a look the skewness G of the differences so far is measured, and

- |G| ≤ 0.3: they count as symmetric, and the t interval decides;
- |G| > 0.3: a call that the t interval would make must be confirmed by the *wide* interval;
- |G| > 1, or differences that do not vary at all: the wide interval takes over in any case.

The wide interval spans three: the t interval, the t interval corrected for skewness, and one that assumes no
distribution (the sign-flip test's at planned looks, the sign test's e-process at any time). It contains the
t interval, so that the error rate for Gaussian differences can only fall. The two thresholds and the factor
of the correction were chosen by simulation; `docs/verdict.md` has the rates of the whole procedure.

Reference: Hall (1992), On the removal of skewness by transformation; Ramdas, Grünwald, Vovk and Shafer
(2023), Game-theoretic statistics and safe anytime-valid inference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from apoint.verdict.intervals import anytime_multiplier
from apoint.verdict.sign_flips import sign_flip_interval
from apoint.verdict.types import Array, Interval, Numbers

SKEWED = 0.3  # from here on a call must be confirmed
HEAVILY_SKEWED = 1.0  # from here on the wide interval takes over
CORRECTION = 2.0  # few pairs show about half of their distribution's skewness
CONSTANT = 1e-12  # a deviation this small beside the largest difference is rounding


class Rule(Protocol):
    """How wide an interval is at some number of pairs, with and without a distribution."""

    def multiplier(self, pairs: int) -> float:
        """c of the interval mean ± c·s/√n."""
        ...

    def multipliers(self, pairs: Array) -> Array:
        """The same for many numbers of pairs."""
        ...

    def distribution_free(self, differences: Numbers) -> Interval:
        """The interval that assumes no distribution."""
        ...


@dataclass(frozen=True)
class PlannedRule:
    """A planned look at the error rate `level`, which is smaller than the rate over all looks."""

    level: float

    def multiplier(self, pairs: int) -> float:
        """Student's quantile at the look's own error rate."""
        return float(self.multipliers(np.array([float(pairs)]))[0])

    def multipliers(self, pairs: Array) -> Array:
        """The same for many numbers of pairs."""
        from scipy.special import stdtrit

        quantiles: Array = -stdtrit(pairs - 1, self.level / 2)
        return quantiles

    def distribution_free(self, differences: Numbers) -> Interval:
        """The sign-flip test's interval at the look's own error rate."""
        return sign_flip_interval(differences, self.level)


@dataclass(frozen=True)
class AnytimeRule:
    """Looks at will with the error rate `alpha` over all of them, however many."""

    alpha: float

    def multiplier(self, pairs: int) -> float:
        """That of the confidence sequence."""
        return anytime_multiplier(pairs, self.alpha)

    def multipliers(self, pairs: Array) -> Array:
        """The same for many numbers of pairs."""
        share = 1 / (1 + pairs)
        k = (self.alpha**2 * share) ** (1 / pairs)
        room = np.where(k > share, k - share, 1.0)
        found: Array = np.where(k > share, np.sqrt((pairs - 1) * (1 - k) / room), math.inf)
        return found

    def distribution_free(self, differences: Numbers) -> Interval:
        """The sign test's confidence sequence, for the median."""
        return sign_interval(differences, self.alpha)


def skewness(differences: Numbers) -> float:
    """The sample skewness G, adjusted for the number of pairs; NaN for fewer than three or no variation."""
    values = np.asarray(differences, dtype=float)
    n = len(values)
    if n < 3 or is_constant(values):
        return math.nan
    centred = values - values.mean()
    centred /= np.abs(centred).max()  # so that tiny numbers keep their cubes
    plain = float((centred**3).mean() / (centred**2).mean() ** 1.5)
    return plain * math.sqrt(n * (n - 1)) / (n - 2)


def is_constant(differences: Numbers) -> bool:
    """Whether the differences are all the same but for rounding."""
    values = np.asarray(differences, dtype=float)
    return float(np.ptp(values)) <= CONSTANT * float(np.abs(values).max())


def t_interval(differences: Numbers, multiplier: float) -> Interval:
    """mean ± c·s/√n."""
    values = np.asarray(differences, dtype=float)
    if math.isinf(multiplier):
        return -math.inf, math.inf
    mean = float(values.mean())
    half = multiplier * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean - half, mean + half


def skew_corrected_interval(differences: Numbers, multiplier: float) -> Interval:
    """The t interval after Hall's cubic transformation, which takes the skewness out of t.

    h(t) = t + a·t² + a²·t³/3 + a/2 = ((1 + a·t)³ − 1)/(3a) + a/2 with a = 2·g/(3√n), where g is the plain
    skewness and 2 is `CORRECTION`; the interval holds the means m whose t has |h(t)| ≤ c.
    """
    values = np.asarray(differences, dtype=float)
    n, mean = len(values), float(values.mean())
    if math.isinf(multiplier) or n < 3 or is_constant(values):
        return t_interval(values, multiplier)
    plain = skewness(values) * (n - 2) / math.sqrt(n * (n - 1))
    a = CORRECTION * plain / (3 * math.sqrt(n))
    if abs(a) < 1e-9:
        return t_interval(values, multiplier)
    error = float(values.std(ddof=1)) / math.sqrt(n)
    smallest, largest = ((math.cbrt(1 + 3 * a * (c - a / 2)) - 1) / a for c in (-multiplier, multiplier))
    return mean - largest * error, mean - smallest * error


def sign_interval(differences: Numbers, alpha: float) -> Interval:
    """The median's interval that is valid at every number of pairs at once.

    If the median is m, the number k of differences above it is that of a fair coin, and a coin whose chance
    is unknown (uniform) makes 2ⁿ/((n+1)·C(n, k)) of it, an e-value; m is excluded from 1/α on. The ends are
    differences themselves, and there are none while n is below 8 (α = 0.05).
    """
    from scipy.special import gammaln

    values = np.sort(np.asarray(differences, dtype=float))
    n, k = len(values), np.arange((len(values) + 1) // 2)
    choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    excluded = int(np.sum(n * math.log(2) - math.log(n + 1) - choose >= -math.log(alpha)))
    if excluded == 0:
        return -math.inf, math.inf
    return float(values[excluded - 1]), float(values[n - excluded])


def wide_interval(differences: Numbers, rule: Rule) -> Interval:
    """The interval that spans the t interval, the skew-corrected and the distribution-free one."""
    multiplier = rule.multiplier(len(differences))
    intervals = (
        t_interval(differences, multiplier),
        skew_corrected_interval(differences, multiplier),
        rule.distribution_free(differences),
    )
    return min(low for low, _ in intervals), max(high for _, high in intervals)
