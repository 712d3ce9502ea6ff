"""Critical values that survive repeated looks: what the simulation gives, laws, and error rates."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apoint.errors import UsageError
from apoint.verdict import DEFAULT_LOOKS, anytime_multiplier, calibration, default_looks, planned_multiplier
from apoint.verdict.calibration import levels
from apoint.verdict.moments import Moments
from studies.verdict.rule import Paths


def test_the_factors_that_are_kept_are_what_the_simulation_gives() -> None:
    assert calibration.KNOWN_FACTORS
    for (looks, alpha), factors in calibration.KNOWN_FACTORS.items():
        rate = calibration.spent(alpha, looks[-1])
        assert calibration.simulated_factors(looks, calibration.exponent(alpha), rate) == factors


@pytest.mark.parametrize(
    ("looks", "alpha"), [(DEFAULT_LOOKS, 0.05), ((8, 16, 24, 32), 0.05), ((20,), 0.1), ((40, 80, 400), 0.01)]
)
def test_gaussian_differences_err_at_the_stated_rate(looks: tuple[int, ...], alpha: float) -> None:
    """Against fresh draws: two-sided, and on one side."""
    found, num = levels(looks, alpha), 20_000
    paths = Paths(np.random.default_rng(1).standard_normal((num, looks[-1])), looks)
    both, above = np.zeros(num, dtype=bool), np.zeros(num, dtype=bool)
    for place, n in enumerate(looks):
        two, one = (found.at(np.array([float(n)]), one_sided=side)[0] for side in (False, True))
        touching = paths.touching(place, 0.0)
        both |= np.abs(touching) > stats.t.isf(two / 2, n - 1)
        above |= touching > stats.t.isf(one, n - 1)
    spent = calibration.spent(alpha, looks[-1])
    for wrong, rate in ((both, spent), (above, calibration.ONE_SIDED_SHARE * spent)):
        assert wrong.mean() == pytest.approx(rate, abs=4 * math.sqrt(rate / num))


def test_early_looks_are_strict_and_late_ones_are_not() -> None:
    found = levels(DEFAULT_LOOKS).at(np.array(DEFAULT_LOOKS, dtype=float))
    assert found == pytest.approx(found[-1] * (np.array(DEFAULT_LOOKS) / 32) ** 2)
    assert 0.03 < found[-1] < 0.05
    small = levels(DEFAULT_LOOKS, 0.005).at(np.array(DEFAULT_LOOKS, dtype=float))
    assert small[0] / small[-1] < found[0] / found[-1], "a small error rate is spent late"


@given(st.sampled_from([0.001, 0.004, 0.01, 0.03, 0.05, 0.2]), st.sampled_from([1.2, 2.0, 6.0]))
@settings(deadline=None, max_examples=10)
def test_a_larger_error_rate_is_looser_at_every_look(alpha: float, times: float) -> None:
    """What Holm's procedure rests on: what is called at α/K is called at α/(K − 1) as well."""
    points = np.array([4.0, 8.0, 20.0])
    strict, loose = (levels((4, 8, 20), rate).at(points) for rate in (alpha / times, alpha))
    assert (strict <= loose).all()


def test_few_pairs_spend_only_a_part() -> None:
    assert calibration.spent(0.05, 32) == 0.05
    assert calibration.spent(0.05, 6) < 0.02
    assert calibration.spent(0.005, 32) < 0.004
    parts = [calibration.spent(0.05, n) for n in range(3, 40)]
    assert parts == sorted(parts)


def test_a_rate_too_small_to_simulate_is_shared_out() -> None:
    found = levels((8, 16), 1e-6).at(np.array([8.0, 16.0]))
    assert sum(found) <= 1e-6 * 1.000001


def test_the_usual_looks_begin_later_with_more_arms() -> None:
    assert default_looks() == DEFAULT_LOOKS
    assert [default_looks(arms)[0] for arms in (1, 2, 3, 6, 10, 1000)] == [6, 8, 10, 12, 14, 32]


def t_paths(seed: int, paths: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard errors of growing samples, [paths, pairs]; entry n is for n + 1 pairs."""
    values = np.random.default_rng(seed).standard_normal((paths, pairs))
    n = np.arange(1, pairs + 1)
    mean = values.cumsum(1) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = ((values**2).cumsum(1) - n * mean**2) / (n - 1)
    return mean, np.sqrt(np.maximum(variance, 0) / n)


def test_anytime_looks_err_less_than_the_stated_rate() -> None:
    mean, error = t_paths(2, 5_000, 200)
    wrong = np.zeros(len(mean), dtype=bool)
    for n in range(2, 201):
        wrong |= np.abs(mean[:, n - 1]) > anytime_multiplier(n) * error[:, n - 1]
    assert 0.005 < wrong.mean() < 0.05


def test_the_anytime_interval_is_where_the_evidence_reaches_its_bound() -> None:
    """Wang and Ramdas (2023), the e-process of a Gaussian mean with unknown variance, written out."""
    n, g = 14, 1.0
    differences = np.random.default_rng(3).normal(0.4, 1.3, n)
    half = anytime_multiplier(n) * differences.std(ddof=1) / math.sqrt(n)
    for edge in (differences.mean() - half, differences.mean() + half):
        shifted = differences - edge
        inside = 1 - shifted.sum() ** 2 / ((n + g) * (shifted**2).sum())
        assert math.sqrt(g / (g + n)) * inside ** (-n / 2) == pytest.approx(20, rel=1e-9)


@pytest.mark.parametrize(("n", "c"), [(8, 4.25), (16, 3.51), (24, 3.38), (32, 3.34)])
def test_anytime_multipliers(n: int, c: float) -> None:
    assert anytime_multiplier(n) == pytest.approx(c, abs=0.006)
    assert anytime_multiplier(2) == math.inf


@given(st.floats(0.01, 0.3), st.integers(5, 60), st.floats(0.1, 3))
@settings(deadline=None, max_examples=50)
def test_laws(alpha: float, n: int, g: float) -> None:
    assert anytime_multiplier(n, alpha, g) > stats.t.ppf(1 - alpha / 2, n - 1), "the price of looking at will"
    assert anytime_multiplier(n, alpha / 2, g) >= anytime_multiplier(n, alpha, g)


def test_an_infinite_critical_value_gives_no_interval() -> None:
    assert Moments(2, 0.5, 0.1, 0.0).interval(math.inf) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("looks", "alpha", "sentence"),
    [
        ((), 0.05, "at least one number of pairs"),
        ((8, 8), 0.05, "rising whole numbers"),
        ((16, 8), 0.05, "rising whole numbers"),
        ((2, 8), 0.05, "the first at least 3"),
        ((8.5,), 0.05, "whole numbers"),
        ((8,), 0.0, "alpha must be between 0 and 1, got 0.0"),
    ],
)
def test_impossible_plans_are_refused(looks, alpha: float, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        planned_multiplier(8, looks, alpha)


def test_only_planned_looks_have_a_multiplier() -> None:
    with pytest.raises(UsageError, match="9 pairs is not one of the planned looks"):
        planned_multiplier(9, DEFAULT_LOOKS)
