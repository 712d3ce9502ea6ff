"""The noise of the test examples: what pairs share because they are measured on the same examples.

Seeds vary the training, and the standard deviation of the paired differences shows by how much. It does not
show what all pairs have in common: the test examples. The crossed-effects model, for pair s and example i:

    D[s, i] = mean + seed[s] + example[i] + rest[s, i]

The mean over pairs has the variance of the seeds' interval plus the covariance that pairs have through the
examples they share. With R = D − (mean of the pair), k = examples that two pairs share and m = examples of
one pair, over all s ≠ t:

    example variance  v = Σ P[s, t] / Σ (k − k/m[s] − k/m[t] + k²/(m[s]·m[t])),  P[s, t] = Σᵢ R[s, i]·R[t, i]
    added variance      = max(v, 0) · mean of k/(m[s]·m[t])

For one test set of m examples that all pairs share, this is v/m, and the sum is the two-way clustered
variance of Cameron, Gelbach and Miller without its bias with few seeds. For splits that are redrawn with
each seed, the deviation over seeds already contains most of it, and about v/(number of examples) is added.

Reference: Cameron, Gelbach and Miller (2011), Robust inference with multiway clustering. Owen (2007), The
pigeonhole bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from apoint.errors import UsageError
from apoint.verdict.types import Array

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ExampleNoise:
    """What any two of a comparison's pairs have in common through their test examples.

    Attributes:
        products: [pairs, pairs] The sum over shared examples of the products of centred differences.
        shared: [pairs, pairs] How many examples they share; on the diagonal, how many a pair has. A pair with
            a failed replica has none.
        pool: How many different examples there are in all pairs together.
    """

    products: Array
    shared: Array
    pool: int

    @property
    def size(self) -> int:
        """The number of examples a pair is measured on."""
        return int(self.shared.diagonal().max(initial=0))

    @property
    def redrawn(self) -> bool:
        """Whether pairs are measured on different examples."""
        return self.pool > self.size

    def error(self, pairs: int) -> float:
        """The standard error that the choice of examples gives to the mean of the first `pairs` pairs.

        NaN if fewer than two of them have per-example results.
        """
        sizes = self.shared.diagonal()[:pairs]
        known = np.flatnonzero(sizes)
        if len(known) < 2:
            return math.nan
        block, m = np.ix_(known, known), sizes[known]
        k, products = self.shared[block], self.products[block]
        weights = k / np.outer(m, m)
        terms = k - k / m - k / m[:, None] + k * weights
        apart = ~np.eye(len(known), dtype=bool)
        total = float(terms[apart].sum())
        if total <= 0:  # no two pairs share enough examples: the deviation over seeds contains all of it
            return 0.0
        variance = max(0.0, float(products[apart].sum()) / total)
        return math.sqrt(variance * float(weights[apart].mean()))


def example_noise(
    differences: Sequence[Array | None], rows: Sequence[Rows | None] | None = None
) -> ExampleNoise:
    """The noise of the examples, from the differences between two arms on each of them.

    Args:
        differences: For each pair, candidate minus baseline on each example; None if a replica failed.
        rows: For each pair, which examples these are; None means the first, second, third and so on.
    """
    from scipy.sparse import csr_array

    values = [_checked(pair, place) for place, pair in enumerate(differences)]
    given = rows or [None] * len(values)
    names = [_rows(pair, own, place) for place, (pair, own) in enumerate(zip(values, given, strict=True))]
    centred = [pair - pair.mean() if len(pair) else pair for pair in values]
    known = [place for place, pair in enumerate(values) if len(pair)]
    if all(np.array_equal(names[place], names[known[0]]) for place in known):
        return _of_one_set(centred, known)
    pool, columns = np.unique(np.concatenate(names), return_inverse=True)
    ends = np.cumsum([0, *map(len, names)])

    def gram(numbers: Array) -> Array:
        matrix = csr_array((numbers, columns, ends), shape=(len(values), len(pool)))
        return np.asarray((matrix @ matrix.T).toarray())

    together = np.concatenate(centred)
    return ExampleNoise(gram(together), gram(np.ones(len(together))), len(pool))


def _of_one_set(centred: Sequence[Array], known: Sequence[int]) -> ExampleNoise:
    """The noise of a test set that all pairs share."""
    size = len(centred[known[0]]) if known else 0
    matrix, is_known = np.zeros((len(centred), size)), np.zeros(len(centred))
    for place in known:
        matrix[place], is_known[place] = centred[place], 1.0
    return ExampleNoise(matrix @ matrix.T, size * np.outer(is_known, is_known), size)


def _checked(pair: Array | None, place: int) -> Array:
    values = np.asarray([] if pair is None else pair, dtype=float)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise UsageError(
            f"the differences of pair {place + 1} must be finite numbers, one for each example; give None "
            "for a pair with a failed replica"
        )
    return values


def _rows(values: Array, rows: Rows | None, place: int) -> Rows:
    if rows is None or not len(values):
        return np.arange(len(values))
    if len(rows) != len(values) or len(np.unique(rows)) != len(rows):
        raise UsageError(
            f"pair {place + 1} has {len(values)} differences for {len(np.unique(rows))} different examples; "
            "give one for each"
        )
    return np.asarray(rows, dtype=np.int64)
