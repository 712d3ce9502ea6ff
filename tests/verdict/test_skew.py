"""Skewness, the interval corrected for it, and the sign test's at any time."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from apoint.verdict import sign_interval, skew_corrected_interval, skewness
from apoint.verdict.skew import AnytimeRule, PlannedRule, t_interval, wide_interval

numbers = st.lists(st.integers(-40, 40).map(lambda k: k / 8), min_size=3, max_size=14)


@given(numbers)
@settings(deadline=None, max_examples=60)
def test_skewness_is_scipys_adjusted_one(values: list[float]) -> None:
    if len(set(values)) == 1:
        assert math.isnan(skewness(values))
    else:
        assert skewness(values) == pytest.approx(stats.skew(values, bias=False), abs=1e-9)


def test_skewness_of_tiny_and_of_rounded_numbers() -> None:
    values = np.array([1.0, 2.0, 4.0, 9.0])
    assert skewness(values * 1e-200) == pytest.approx(skewness(values))
    assert math.isnan(skewness([0.1 + 0.2, 0.3, 0.3])), "rounding is no variation"
    assert math.isnan(skewness([1.0, 2.0]))


def hall(t: np.ndarray, plain: float, n: int) -> np.ndarray:
    """The transformation as Hall (1992) writes it, with the skewness doubled."""
    g = 2 * plain
    return t + g * t**2 / (3 * math.sqrt(n)) + g**2 * t**3 / (27 * n) + g / (6 * math.sqrt(n))


@given(numbers, st.floats(1.5, 5))
@settings(deadline=None, max_examples=60)
def test_the_corrected_interval_ends_where_the_transformed_t_reaches_c(values: list[float], c: float) -> None:
    if len(set(values)) == 1:
        return
    n, mean, plain = len(values), np.mean(values), float(stats.skew(values))
    error = np.std(values, ddof=1) / math.sqrt(n)
    lower, upper = skew_corrected_interval(values, c)
    assert hall((mean - lower) / error, plain, n) == pytest.approx(c, rel=1e-6)
    assert hall((mean - upper) / error, plain, n) == pytest.approx(-c, rel=1e-6)


def test_the_correction_leans_towards_the_tail() -> None:
    values = np.random.default_rng(0).exponential(size=12)
    plain, corrected = t_interval(values, 2.5), skew_corrected_interval(values, 2.5)
    assert corrected[0] > plain[0]
    assert corrected[1] > plain[1]


@given(st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=25), st.sampled_from([0.01, 0.05, 0.2]))
@settings(deadline=None, max_examples=80)
def test_the_sign_interval_leaves_out_what_the_e_value_does(values: list[float], alpha: float) -> None:
    lower, upper = sign_interval(values, alpha)
    n = len(values)
    for median in np.arange(-10, 10.25, 0.25):
        above, below = sum(v > median for v in values), sum(v < median for v in values)
        ways = [n - above if above > below else n - below]  # ties count against an exclusion
        e_value = 2.0**n * special.beta(ways[0] + 1, n - ways[0] + 1)
        excluded = e_value >= 1 / alpha and ways[0] < n / 2
        assert excluded == (not lower <= median <= upper), median


def test_the_sign_interval_errs_less_than_stated_however_often_one_looks() -> None:
    draw = np.random.default_rng(1)
    missed = 0
    for _ in range(400):
        values = draw.standard_cauchy(60)
        missed += any(
            not low <= 0 <= high for low, high in (sign_interval(values[:n], 0.2) for n in range(2, 61))
        )
    assert missed / 400 < 0.2


@given(numbers, st.sampled_from([PlannedRule(0.05), PlannedRule(0.2), AnytimeRule(0.05)]))
@settings(deadline=None, max_examples=60)
def test_the_wide_interval_contains_the_others(values: list[float], rule: PlannedRule | AnytimeRule) -> None:
    lower, upper = wide_interval(values, rule)
    multiplier = rule.multiplier(len(values))
    for low, high in (
        t_interval(values, multiplier),
        skew_corrected_interval(values, multiplier),
        rule.distribution_free(values),
    ):
        assert lower <= low
        assert high <= upper


@pytest.mark.parametrize("rule", [PlannedRule(0.017), AnytimeRule(0.05)])
def test_many_multipliers_are_the_single_ones(rule: PlannedRule | AnytimeRule) -> None:
    pairs = np.array([3.0, 4.0, 5.0, 8.0, 31.0, 1000.0])
    assert rule.multipliers(pairs).tolist() == pytest.approx([rule.multiplier(int(n)) for n in pairs])
