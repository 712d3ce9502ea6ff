"""Companions of the verdict against scipy and closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apoint.errors import UsageError
from apoint.verdict import (
    interquartile_mean,
    mcnemar_p,
    pair_correlation,
    probability_of_improvement,
    sign_flip_p,
    smallest_p,
    standardised_effect,
)

samples = st.lists(st.floats(-5, 5).map(lambda x: round(x, 3)), min_size=2, max_size=10)


@given(samples)
@settings(deadline=None, max_examples=40)
def test_sign_flips_equal_scipys_permutation_test(values: list[float]) -> None:
    exact = stats.permutation_test(
        (np.array(values), np.zeros(len(values))),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    ).pvalue
    assert sign_flip_p(values) == pytest.approx(min(1.0, exact), abs=1e-9)


@pytest.mark.parametrize(("n", "p"), [(4, 0.125), (5, 0.0625), (6, 0.03125), (8, 0.0078125)])
def test_the_smallest_p_is_reached_by_equal_signs(n: int, p: float) -> None:
    assert smallest_p(n) == p
    assert sign_flip_p([1.0 + 0.1 * k for k in range(n)]) == p


def test_many_pairs_are_drawn_and_agree_with_the_exact_test() -> None:
    values = np.random.default_rng(0).normal(0.35, 1, 40)
    drawn = sign_flip_p(values)
    assert drawn == sign_flip_p(values), "seeded"
    assert drawn == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.02)
    nineteen = values[:19]
    assert sign_flip_p(nineteen) == pytest.approx(sign_flip_p([*nineteen, 0.0, 0.0]), abs=0.01)


@given(st.integers(0, 30), st.integers(0, 30))
@settings(deadline=None, max_examples=50)
def test_mcnemar_is_the_exact_binomial_test(one: int, other: int) -> None:
    expected = stats.binomtest(one, one + other, 0.5).pvalue if one + other else 1.0
    assert mcnemar_p(one, other) == pytest.approx(min(1.0, expected))


def test_negative_counts_are_refused() -> None:
    with pytest.raises(UsageError, match="must not be negative, got -1 and 2"):
        mcnemar_p(-1, 2)


@given(st.lists(st.sampled_from([-1.0, 2.0]), min_size=1, max_size=30), st.floats(0.01, 0.3))
@settings(deadline=None, max_examples=50)
def test_improvement_has_clopper_and_pearsons_interval(values: list[float], alpha: float) -> None:
    share, interval = probability_of_improvement(values, alpha)
    wins = sum(value > 0 for value in values)
    exact = stats.binomtest(wins, len(values)).proportion_ci(1 - alpha, method="exact")
    assert share == wins / len(values)
    assert interval == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_ties_count_half_and_widen_the_interval() -> None:
    share, (low, high) = probability_of_improvement([1, 1, 0, 0, -1])
    assert share == pytest.approx(0.6)
    assert low == pytest.approx(probability_of_improvement([1, 1, -1, -1, -1])[1][0])
    assert high == pytest.approx(probability_of_improvement([1, 1, 1, 1, -1])[1][1])


def test_standardised_effect() -> None:
    values = [1.0, 2.0, 4.0]
    assert standardised_effect(values) == pytest.approx(np.mean(values) / stats.tstd(values))
    assert standardised_effect([2.0, 2.0]) == math.inf
    assert standardised_effect([-2.0, -2.0]) == -math.inf
    assert standardised_effect([0.0, 0.0]) == 0.0


@pytest.mark.parametrize("n", [4, 8, 40])
def test_interquartile_mean_is_scipys_trimmed_mean_where_the_quarter_is_whole(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_interquartile_mean_ignores_an_outlier() -> None:
    assert interquartile_mean([1, 2, 3, 4, 5, 1e9]) == pytest.approx(interquartile_mean([1, 2, 3, 4, 5, 6]))
    assert interquartile_mean([7.0]) == 7.0


def test_correlation() -> None:
    first, second = [1.0, 2.0, 4.0], [2.0, 1.0, 9.0]
    assert pair_correlation(first, second) == pytest.approx(stats.pearsonr(first, second).statistic)
    assert math.isnan(pair_correlation([1.0, 1.0], [1.0, 2.0]))


def test_beyond_the_pairs_that_are_counted_the_smallest_p_is_that_of_the_draws() -> None:
    """It used to be told as 2 to the power of 1 - n, which drawn patterns cannot reach."""
    for n in (33, 40, 400):
        assert smallest_p(n) == sign_flip_p(np.ones(n)) > 2.0 ** (1 - n)
