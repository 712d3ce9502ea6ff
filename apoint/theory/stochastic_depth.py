"""The depth of a network with stochastic depth during training.

Of L residual blocks, block l = 1 … L is present with probability p_l = 1 - (l/L)(1 - p_L), independently of
the others; p_0 = 1 is the input, which is always there. The depth of a pass is the number of blocks present.

Reference: Huang, Sun, Liu, Sedra and Weinberger (2016), Deep networks with stochastic depth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from apoint.errors import UsageError

Array = np.ndarray[Any, Any]


def survival_probabilities(blocks: int, last: float = 0.5) -> Array:
    """p_1 … p_L, falling linearly from nearly 1 to p_L: p_l = 1 - (l/L)(1 - p_L).

    Args:
        blocks: L, at least 1.
        last: p_L, from 0 to 1.
    """
    _check(blocks, last)
    return np.asarray(1 - np.arange(1, blocks + 1) / blocks * (1 - last))


def expected_depth(blocks: int, last: float = 0.5) -> float:
    """E[depth] = Σ p_l = L - (L + 1)(1 - p_L)/2; (3L - 1)/4 for p_L = 1/2.

    Args:
        blocks: L, at least 1.
        last: p_L, from 0 to 1.
    """
    _check(blocks, last)
    return blocks - (blocks + 1) * (1 - last) / 2


def depth_variance(blocks: int, last: float = 0.5) -> float:
    """V[depth] = Σ p_l(1 - p_l), a sum since blocks are dropped independently.

    Args:
        blocks: L, at least 1.
        last: p_L, from 0 to 1.
    """
    probabilities = survival_probabilities(blocks, last)
    return float((probabilities * (1 - probabilities)).sum())


def depth_distribution(blocks: int, last: float = 0.5) -> Array:
    """P(depth = 0) … P(depth = L), the Poisson binomial distribution, by adding one block at a time.

    Args:
        blocks: L, at least 1.
        last: p_L, from 0 to 1.
    """
    law = np.ones(1)
    for probability in survival_probabilities(blocks, last):
        law = np.convolve(law, [1 - probability, probability])
    return np.asarray(law)


def expected_saving(blocks: int, last: float = 0.5) -> float:
    """The share of the blocks' computation that training saves: 1 - E[depth]/L.

    (L + 1)/L · (1 - p_L)/2, which tends to a quarter for p_L = 1/2. It assumes blocks of equal cost, dropped
    for a whole batch in both the forward and the backward pass.

    Args:
        blocks: L, at least 1.
        last: p_L, from 0 to 1.
    """
    return 1 - expected_depth(blocks, last) / blocks


def _check(blocks: int, last: float) -> None:
    if isinstance(blocks, bool) or int(blocks) != blocks or blocks < 1:
        raise UsageError(f"a number of blocks must be whole and at least 1, got {blocks}")
    if not 0 <= last <= 1:
        raise UsageError(f"a survival probability must be between 0 and 1, got {last:g}")
