"""Intervals that survive repeated looks: known multipliers, laws, and error rates by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apoint.errors import UsageError
from apoint.verdict import anytime_multiplier, evidence, intervals, nominal_alpha, planned_multiplier

DEFAULT = (8, 16, 24, 32)


def test_the_level_that_is_kept_is_what_the_simulation_gives() -> None:
    for (looks, alpha), level in intervals.KNOWN_LEVELS.items():
        assert intervals.simulated_level(looks, alpha) == level


def test_the_default_plan_has_the_known_multipliers() -> None:
    found = [planned_multiplier(n, DEFAULT) for n in DEFAULT]
    assert found == pytest.approx([3.09, 2.67, 2.56, 2.51], abs=0.012)


@pytest.mark.parametrize(
    ("looks", "level"), [((8, 16, 32), 0.0202), ((8, 16, 32, 64), 0.0155), ((6, 12, 18, 24, 30), 0.0149)]
)
def test_other_plans(looks: tuple[int, ...], level: float) -> None:
    assert nominal_alpha(looks) == pytest.approx(level, abs=0.0004)


@pytest.mark.parametrize("n", [3, 8, 30])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_a_single_look_is_students_interval(n: int, alpha: float) -> None:
    error = 4 * math.sqrt(alpha * (1 - alpha) / 400_000)  # of the simulated quantile
    assert nominal_alpha((n,), alpha) == pytest.approx(alpha, abs=error)
    exact = stats.t.ppf(1 - alpha / 2, n - 1)
    assert planned_multiplier(n, (n,), alpha) == pytest.approx(exact, rel=0.02)


def t_paths(seed: int, paths: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard errors of growing samples, [paths, pairs]; entry n is for n + 1 pairs."""
    values = np.random.default_rng(seed).standard_normal((paths, pairs))
    n = np.arange(1, pairs + 1)
    mean = values.cumsum(1) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = ((values**2).cumsum(1) - n * mean**2) / (n - 1)
    return mean, np.sqrt(np.maximum(variance, 0) / n)


def test_planned_looks_err_at_the_stated_rate() -> None:
    mean, error = t_paths(1, 20_000, 32)
    wrong = np.zeros(len(mean), dtype=bool)
    naive = np.zeros(len(mean), dtype=bool)
    for n in DEFAULT:
        wrong |= np.abs(mean[:, n - 1]) > planned_multiplier(n, DEFAULT) * error[:, n - 1]
        naive |= np.abs(mean[:, n - 1]) > stats.t.ppf(0.975, n - 1) * error[:, n - 1]
    assert wrong.mean() == pytest.approx(0.05, abs=0.006)
    assert naive.mean() > 0.11, "looking four times with the ordinary interval errs more than twice as often"


def test_anytime_looks_err_less_than_the_stated_rate() -> None:
    mean, error = t_paths(2, 5_000, 200)
    wrong = np.zeros(len(mean), dtype=bool)
    for n in range(2, 201):
        wrong |= np.abs(mean[:, n - 1]) > anytime_multiplier(n) * error[:, n - 1]
    assert 0.005 < wrong.mean() < 0.05


def test_the_anytime_interval_is_where_the_evidence_reaches_its_bound() -> None:
    differences = np.random.default_rng(3).normal(0.4, 1.3, 14)
    half = anytime_multiplier(14) * differences.std(ddof=1) / math.sqrt(14)
    for edge in (differences.mean() - half, differences.mean() + half):
        assert evidence(differences, edge) == pytest.approx(20, rel=1e-9)
    assert evidence(differences, differences.mean()) < 1


@pytest.mark.parametrize(("n", "c"), [(8, 4.25), (16, 3.51), (24, 3.38), (32, 3.34)])
def test_anytime_multipliers(n: int, c: float) -> None:
    assert anytime_multiplier(n) == pytest.approx(c, abs=0.006)
    assert anytime_multiplier(2) == math.inf


def test_evidence_is_an_e_value_for_any_deviation() -> None:
    draw = np.random.default_rng(4)
    found = [evidence(draw.normal(0, scale, 6)) for scale in (1e-3, 1.0, 50.0) for _ in range(4_000)]
    assert np.mean(found) < 1.1


@given(st.floats(0.01, 0.3), st.integers(5, 60), st.floats(0.1, 3))
@settings(deadline=None, max_examples=50)
def test_laws(alpha: float, n: int, g: float) -> None:
    assert anytime_multiplier(n, alpha, g) > stats.t.ppf(1 - alpha / 2, n - 1), "the price of looking at will"
    assert anytime_multiplier(n, alpha / 2, g) >= anytime_multiplier(n, alpha, g)


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
        planned_multiplier(9, DEFAULT)
