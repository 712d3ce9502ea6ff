"""The sign-flip test and its interval against scipy, and against every subset written out."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apoint.verdict import decide, sign_flip_interval, sign_flip_p, smallest_p
from apoint.verdict import sign_flips as module

samples = st.lists(st.floats(-5, 5).map(lambda x: round(x, 3)), min_size=2, max_size=10)


def all_subset_means(values: list[float]) -> list[float]:
    subsets = itertools.chain.from_iterable(
        itertools.combinations(values, size) for size in range(1, len(values) + 1)
    )
    return sorted(math.fsum(subset) / len(subset) for subset in subsets)


@given(samples, st.sampled_from([0.02, 0.05, 0.3]))
@settings(deadline=None, max_examples=40)
def test_the_interval_lies_between_typical_values(values: list[float], level: float) -> None:
    lower, upper = sign_flip_interval(values, level)
    means, k = all_subset_means(values), math.floor(level / 2 * 2 ** len(values))
    if k == 0:
        assert (lower, upper) == (-math.inf, math.inf)
    else:
        tolerance = 1e-8 * (1 + max(map(abs, values)))
        assert lower == pytest.approx(means[k - 1], abs=tolerance)
        assert upper == pytest.approx(means[-k], abs=tolerance)
        assert lower <= means[k - 1] + 1e-15
        assert upper >= means[-k] - 1e-15


@pytest.mark.parametrize("n", [9, 20, 27, 32, 33, 70])
def test_the_interval_keeps_what_the_test_keeps(n: int) -> None:
    values = np.random.default_rng(n).exponential(size=n)
    step = 1e-6
    for end, outwards in zip(sign_flip_interval(values, 0.05), (-step, step), strict=True):
        assert sign_flip_p(values - end + 2 * outwards) > 0.05 - 1e-6
        assert sign_flip_p(values - end - outwards) <= 0.05 + 1e-6


def test_halves_count_as_all_patterns_do() -> None:
    values = np.random.default_rng(1).normal(0.3, 1, 15)
    sums = np.array([np.dot(signs, values) for signs in itertools.product((-1, 1), repeat=15)])
    expected = np.mean(np.abs(sums) >= abs(values.sum()) - 1e-9)
    assert sign_flip_p(values) == pytest.approx(expected, abs=1e-12)


def test_the_exact_and_the_drawn_interval_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).normal(0.2, 1, 24)
    exact, p = sign_flip_interval(values, 0.05), sign_flip_p(values)
    monkeypatch.setattr(module, "EXACT_PAIRS", 10)
    assert sign_flip_interval(values, 0.05) == pytest.approx(exact, abs=0.02)
    assert sign_flip_p(values) == pytest.approx(p, abs=0.005)


@pytest.mark.parametrize("n", [12, 45])
def test_order_scale_and_sign_do_not_matter(n: int) -> None:
    draw = np.random.default_rng(n)
    values = draw.exponential(size=n) - 0.4
    lower, upper = sign_flip_interval(values, 0.03)
    shuffled = draw.permutation(values)
    assert sign_flip_interval(shuffled, 0.03) == pytest.approx((lower, upper), rel=1e-6)
    assert sign_flip_interval(-values, 0.03) == pytest.approx((-upper, -lower), rel=1e-6)
    assert sign_flip_interval(3 * values, 0.03) == pytest.approx((3 * lower, 3 * upper), rel=1e-6)
    assert sign_flip_p(shuffled) == pytest.approx(sign_flip_p(-values), abs=1e-12)


def test_many_thousand_pairs_do_not_take_long_or_much_memory() -> None:
    values = np.random.default_rng(3).normal(0.05, 1, 5_000)
    assert sign_flip_p(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.01)


def test_it_covers_a_skewed_and_exchanged_difference() -> None:
    """Pairs of lognormal numbers: symmetric differences without a variance worth the name."""
    draw = np.random.default_rng(4)
    differences = draw.lognormal(sigma=2, size=(2000, 10)) - draw.lognormal(sigma=2, size=(2000, 10))
    missed = np.mean([sign_flip_p(row) <= 0.05 for row in differences])
    assert missed == pytest.approx(0.05, abs=0.015)


def test_equal_numbers_and_nothing() -> None:
    assert sign_flip_interval([0.25] * 8, 0.05) == pytest.approx((0.25, 0.25), rel=1e-9)
    assert sign_flip_p([0.0] * 6) == 1.0
    assert smallest_p(0) == 1.0


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(-1e3, 1e3), min_size=8, max_size=20),
    st.floats(-1e3, 1e3).filter(lambda shift: abs(shift) > 1e-2),
    st.floats(1e-16, 1e-9),
)
def test_a_shift_that_is_the_same_but_for_rounding(noise: list[float], shift: float, bits: float) -> None:
    """Scores whose differences are equal but for their last bits, or for a little more."""
    baseline = np.array(noise) * bits
    low, high = sign_flip_interval((baseline + shift) - baseline, 0.05)
    near = 1e-11 * abs(shift) + 1e4 * bits
    assert low <= shift + near
    assert high >= shift - near
    assert high - low <= 2 * near
    made = decide(baseline, baseline + shift, margin=1e-3, looks=(len(noise),), higher_is_better=True)
    assert made.outcome == ("better" if shift > 0 else "worse")
