"""The sign-flip test against scipy, and against every pattern of signs written out."""

import itertools

import numpy as np
import pytest
from scipy import stats

from apoint.verdict import sign_flip_p, smallest_p
from apoint.verdict import sign_flips as module


def test_halves_count_as_all_patterns_do() -> None:
    values = np.random.default_rng(1).normal(0.3, 1, 15)
    sums = np.array([np.dot(signs, values) for signs in itertools.product((-1, 1), repeat=15)])
    expected = np.mean(np.abs(sums) >= abs(values.sum()) - 1e-9)
    assert sign_flip_p(values) == pytest.approx(expected, abs=1e-12)


def test_the_exact_and_the_drawn_test_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).normal(0.2, 1, 24)
    p = sign_flip_p(values)
    monkeypatch.setattr(module, "EXACT_PAIRS", 10)
    assert sign_flip_p(values) == pytest.approx(p, abs=0.005)


@pytest.mark.parametrize("n", [12, 45])
def test_order_scale_and_sign_do_not_matter(n: int) -> None:
    draw = np.random.default_rng(n)
    values = draw.exponential(size=n) - 0.4
    shuffled = draw.permutation(values)
    for same in (shuffled, -values, 3 * values):
        assert sign_flip_p(same) == pytest.approx(sign_flip_p(values), abs=1e-12)


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
    assert sign_flip_p([0.0] * 6) == 1.0
    assert smallest_p(0) == 1.0
