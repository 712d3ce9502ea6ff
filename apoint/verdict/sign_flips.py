"""The sign-flip test: no distribution assumed, only that the two numbers of a pair could be exchanged.

If the change does nothing, a pair's two numbers could as well stand the other way round, so that every sign
of its difference is as likely. The p-value is that of a single look; it decides nothing here.
"""

from __future__ import annotations

import numpy as np

from apoint.verdict.types import Array, Numbers

EXACT_PAIRS = 32  # up to here all sign patterns are counted; beyond, patterns are drawn
DRAWS = 200_000
DRAWN_SIGNS = 400_000_000  # so many signs at most: many thousand pairs get fewer draws
FEWEST_DRAWS = 2_000
BLOCK = 4_000_000
ROUNDING = 1e-12  # equal sums may differ in their last bits, relative to the sum of the sizes


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
    sums = _drawn_subsets(values)
    extreme = int(np.sum(np.abs(float(values.sum()) - 2 * sums) >= observed))
    return (1 + extreme) / (1 + len(sums))


def smallest_p(pairs: int) -> float:
    """The smallest p-value that the sign-flip test can reach with so many pairs."""
    return 2.0 ** (1 - pairs) if pairs else 1.0


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


def _drawn_subsets(values: Array) -> Array:
    """The sums of seeded random subsets.

    The values are put in an order that neither shuffling, shifting, scaling nor a change of sign alters, so
    that the result does not depend on any of these.
    """
    ordered = values[np.argsort(np.abs(values - values.mean()), kind="stable")]
    n = len(ordered)
    draws = min(DRAWS, max(FEWEST_DRAWS, DRAWN_SIGNS // n))
    random, parts, rows = np.random.default_rng(0), [], max(1, BLOCK // n)
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        packed = np.frombuffer(random.bytes(size * ((n + 7) // 8)), dtype=np.uint8).reshape(size, -1)
        parts.append(np.unpackbits(packed, axis=1)[:, :n].astype(float) @ ordered)
    return np.concatenate(parts)
