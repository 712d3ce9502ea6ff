"""Stochastic depth against brute force over all sets of blocks, drawn passes and the paper's numbers."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.errors import UsageError
from apoint.theory import stochastic_depth


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.floats(0, 1))
def test_law_is_that_of_all_sets_of_blocks(blocks, last):
    present = [1 - (number / blocks) * (1 - last) for number in range(1, blocks + 1)]
    law = np.zeros(blocks + 1)
    for chosen in itertools.product((0, 1), repeat=blocks):
        law[sum(chosen)] += np.prod([p if c else 1 - p for c, p in zip(chosen, present, strict=True)])
    np.testing.assert_allclose(stochastic_depth.depth_distribution(blocks, last), law, atol=1e-12)
    depths = np.arange(blocks + 1)
    mean = law @ depths
    assert stochastic_depth.expected_depth(blocks, last) == pytest.approx(mean, abs=1e-10)
    variance = law @ depths**2 - mean**2
    assert stochastic_depth.depth_variance(blocks, last) == pytest.approx(variance, abs=1e-9)
    assert stochastic_depth.expected_saving(blocks, last) == pytest.approx(1 - mean / blocks, abs=1e-10)


def test_known_numbers():
    # Huang et al. (2016): about 40 of the 54 blocks of their 110-layer network at p_L = 1/2.
    assert stochastic_depth.expected_depth(54) == (3 * 54 - 1) / 4 == 40.25
    assert stochastic_depth.expected_depth(10, 1.0) == 10
    assert stochastic_depth.survival_probabilities(4, 0.2) == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert stochastic_depth.expected_saving(10_000) == pytest.approx(0.25, abs=1e-4)


def test_bad_input_is_told():
    with pytest.raises(UsageError, match="whole and at least 1, got 0"):
        stochastic_depth.expected_depth(0)
    with pytest.raises(UsageError, match=r"between 0 and 1, got 1\.5"):
        stochastic_depth.survival_probabilities(3, 1.5)
