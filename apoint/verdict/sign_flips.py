"""The sign-flip test: it assumes no distribution, only that the two numbers of a pair can be exchanged.

If the change does nothing, a pair's two numbers could equally well be swapped, so both signs of its
difference are equally likely. The p-value is that of a single look; it decides nothing here.
"""

from __future__ import annotations

import numpy as np

from apoint.verdict.types import Array, Numbers

EXACT_PAIRS = 32  # up to here all sign patterns are counted; beyond, patterns are sampled
DRAWS = 200_000
DRAWN_SIGNS = 400_000_000  # at most this many signs: many thousands of pairs get fewer draws
FEWEST_DRAWS = 2_000
BLOCK = 4_000_000
ROUNDING = 1e-12  # equal sums may differ in their last bits, relative to the sum of absolute values


def sign_flip_p(differences: Numbers) -> float:
    """The two-sided p-value of the sign-flip test: how often random signs give a mean this large.

    Exact up to 32 pairs; beyond that, from seeded draws with the observed signs counted among them, which
    keeps it valid.
    """
    values = np.asarray(differences, dtype=float)
    observed = abs(float(values.sum())) - ROUNDING * float(np.abs(values).sum())
    if observed <= 0:
        return 1.0
    if len(values) <= EXACT_PAIRS:
        excess = (float(values.sum()) - observed) / 2  # flipping a subset subtracts twice its sum
        return min(1.0, _count_subsets(values, excess) / 2.0 ** (len(values) - 1))
    sums = _drawn_subsets(values)
    extreme = int(np.sum(np.abs(float(values.sum()) - 2 * sums) >= observed))
    return (1 + extreme) / (1 + len(sums))


def smallest_p(pairs: int) -> float:
    """The smallest p-value that the sign-flip test can reach with this many pairs."""
    if not pairs:
        return 1.0
    return 2.0 ** (1 - pairs) if pairs <= EXACT_PAIRS else 1 / (1 + _num_draws(pairs))


def _num_draws(pairs: int) -> int:
    return min(DRAWS, max(FEWEST_DRAWS, DRAWN_SIGNS // pairs))


def _subset_sums(values: Array) -> Array:
    """The sums of all subsets, including the empty one, in ascending order."""
    sums = np.zeros(1)
    for value in values:
        sums = np.sort(np.concatenate([sums, sums + value]), kind="stable")  # merges the two halves
    return sums


def _count_subsets(values: Array, bound: float) -> int:
    """How many of the 2ⁿ subsets, including the empty one, have a sum of at most `bound`.

    A subset combines one of the first half with one of the second, so only 2ⁿᐟ² are ever enumerated.
    """
    half = len(values) // 2
    first, second = _subset_sums(values[:half]), _subset_sums(values[half:])
    return int(np.searchsorted(first, bound - second[::-1], side="right").sum())


def _drawn_subsets(values: Array) -> Array:
    """The sums of seeded random subsets.

    The values are put in an order that shuffling, shifting, scaling and a change of sign leave unchanged, so
    the result does not depend on any of these.
    """
    ordered = values[np.argsort(np.abs(values - values.mean()), kind="stable")]
    n = len(ordered)
    draws = _num_draws(n)
    random, parts, rows = np.random.default_rng(0), [], max(1, BLOCK // n)
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        packed = np.frombuffer(random.bytes(size * ((n + 7) // 8)), dtype=np.uint8).reshape(size, -1)
        parts.append(np.unpackbits(packed, axis=1)[:, :n].astype(float) @ ordered)
    return np.concatenate(parts)
