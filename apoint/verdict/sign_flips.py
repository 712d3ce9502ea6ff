"""The sign-flip test and its interval: no distribution assumed, only that a pair could be exchanged.

If the change does nothing, a pair's two numbers could as well stand the other way round, so that every sign
of its difference is as likely. With the mean as statistic, flipping the signs of a subset F of the
differences minus m gives a sum at least as large exactly if the mean of F is at most m. So the values m that
the test keeps lie between the k-th smallest and the k-th largest mean of a subset, k = ⌊α/2·2ⁿ⌋.

Reference: Hartigan (1969), Using subsample values as typical values.
"""

from __future__ import annotations

import math

import numpy as np

from apoint.verdict.types import Array, Interval, Numbers

EXACT_PAIRS = 32  # up to here all sign patterns are counted; beyond, patterns are drawn
DRAWS = 200_000
DRAWN_SIGNS = 400_000_000  # so many signs at most: many thousand pairs get fewer draws
FEWEST_DRAWS = 2_000
BLOCK = 4_000_000
ROUNDING = 1e-12  # equal sums may differ in their last bits, relative to the sum of the sizes
PRECISION = 1e-9  # of an interval's end, relative to the range of the differences


def sign_flip_p(differences: Numbers) -> float:
    """The two-sided p-value of the sign-flip test: how often random signs give so large a mean.

    Exact up to 32 pairs; beyond, from seeded draws with the observed signs counted among them, which keeps
    it valid.
    """
    values = np.asarray(differences, dtype=float)
    observed = abs(float(values.sum())) - ROUNDING * float(np.abs(values).sum())
    if observed <= 0:
        return 1.0
    if len(values) <= EXACT_PAIRS:
        excess = (float(values.sum()) - observed) / 2  # flipping a subset takes twice its sum away
        return min(1.0, _count_subsets(values, excess) / 2.0 ** (len(values) - 1))
    sums, _ = _drawn_subsets(values)
    extreme = int(np.sum(np.abs(float(values.sum()) - 2 * sums) >= observed))
    return (1 + extreme) / (1 + len(sums))


def smallest_p(pairs: int) -> float:
    """The smallest p-value that the sign-flip test can reach with so many pairs."""
    return 2.0 ** (1 - pairs) if pairs else 1.0


def sign_flip_interval(differences: Numbers, level: float) -> Interval:
    """The means that the sign-flip test keeps at error rate `level`; without end if there are too few pairs.

    A mean outside is one whose two-sided p-value is at most `level`. For the mean of any symmetric
    distribution it covers at the stated rate, exactly.
    """
    values = np.asarray(differences, dtype=float)
    find = _exact_end if len(values) <= EXACT_PAIRS else _drawn_end
    slack = ROUNDING * float(np.abs(values).max())  # a subset's mean may be 0 but for its last bits
    return find(values, level) - slack, -find(-values, level) + slack


def _subset_sums(values: Array) -> Array:
    """The sums of all subsets, the empty one too, in rising order."""
    sums = np.zeros(1)
    for value in values:
        sums = np.sort(np.concatenate([sums, sums + value]), kind="stable")  # which merges the two halves
    return sums


def _count_subsets(values: Array, bound: float) -> int:
    """How many of the 2ⁿ subsets, the empty one among them, have a sum of at most `bound`.

    A subset is one of the first half and one of the second, so that only 2ⁿᐟ² are ever written out.
    """
    half = len(values) // 2
    first, second = _subset_sums(values[:half]), _subset_sums(values[half:])
    return int(np.searchsorted(first, bound - second[::-1], side="right").sum())


def _exact_end(values: Array, level: float) -> float:
    """The k-th smallest mean of a subset: the lower end of the interval."""
    from scipy.optimize import brentq

    allowed = math.floor(level / 2 * 2 ** len(values))
    smallest, largest = float(values.min()), float(values.max())
    if allowed < 1:
        return -math.inf
    if largest - smallest <= ROUNDING * max(abs(smallest), abs(largest)):
        return smallest  # the same number but for its last bits, of which no root can be found

    def excess(mean: float) -> float:
        """Above 0 where the test keeps the mean; the empty subset stands for the signs as they are."""
        return math.log(_count_subsets(values - mean, 0.0) / (allowed + 0.5))

    size = largest - smallest
    root: float = brentq(excess, smallest - size, largest, xtol=PRECISION * size, rtol=1e-14)
    return root - 2 * PRECISION * size


def _drawn_end(values: Array, level: float) -> float:
    """The lower end of the interval from drawn subsets and their complements."""
    sums, sizes = _drawn_subsets(values)
    allowed = math.floor(level * (1 + len(sums)))
    if allowed < 1:
        return -math.inf
    sums = np.concatenate([sums, float(values.sum()) - sums])
    sizes = np.concatenate([sizes, len(values) - sizes])
    means = sums[sizes > 0] / sizes[sizes > 0]
    return float(np.partition(means, allowed - 1)[allowed - 1])


def _drawn_subsets(values: Array) -> tuple[Array, Array]:
    """The sums and sizes of seeded random subsets.

    The values are put in an order that neither shuffling, shifting, scaling nor a change of sign alters, so
    that the result does not depend on any of these.
    """
    ordered = values[np.argsort(np.abs(values - values.mean()), kind="stable")]
    n = len(ordered)
    draws = min(DRAWS, max(FEWEST_DRAWS, DRAWN_SIGNS // n))
    random, columns = np.random.default_rng(0), np.stack([ordered, np.ones(n)], axis=1)
    parts, rows = [], max(1, BLOCK // n)
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        packed = np.frombuffer(random.bytes(size * ((n + 7) // 8)), dtype=np.uint8).reshape(size, -1)
        parts.append(np.unpackbits(packed, axis=1)[:, :n].astype(float) @ columns)
    both = np.concatenate(parts)
    return both[:, 0], both[:, 1]
