"""An interpolated n-gram model of characters: the yardstick for language models.

P(c | h) = Σ_k λ_k P_k(c | last k−1 characters), from the uniform distribution (k = 0) to the n-gram, each
P_k by relative frequency, the weights λ fitted by expectation-maximisation on text held out from the
training part (Jelinek and Mercer, 1980).
"""

from __future__ import annotations

from collections import Counter

import numpy as np


def probabilities(train: list[int], text: list[int], order: int, vocabulary: int) -> np.ndarray:
    """P_k of each character of `text`, which goes on where `train` ends, as [characters, order + 1]."""
    joined = train[-order:] + text
    columns = [np.full(len(text), 1 / vocabulary)]
    for k in range(1, order + 1):
        whole = Counter(tuple(train[i : i + k]) for i in range(len(train) - k + 1))
        context = Counter(tuple(train[i : i + k - 1]) for i in range(len(train) - k + 1))
        column = np.zeros(len(text))
        for i in range(len(text)):
            gram = tuple(joined[order + i - k + 1 : order + i + 1])
            seen = context[gram[:-1]]
            column[i] = whole[gram] / seen if seen else 0.0
        columns.append(column)
    return np.stack(columns, axis=1)


def bits_per_character(train: list[int], test: list[int], order: int, vocabulary: int) -> float:
    """The mean −log2 P of the test characters under the interpolated model."""
    cut = int(0.9 * len(train))
    held = probabilities(train[:cut], train[cut:], order, vocabulary)
    weights = np.full(order + 1, 1 / (order + 1))
    for _ in range(100):
        shares = held * weights
        shares /= shares.sum(axis=1, keepdims=True)
        weights = shares.mean(axis=0)
    mixture = probabilities(train, test, order, vocabulary) @ weights
    return float(-np.log2(mixture).mean())
