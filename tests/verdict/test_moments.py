"""Skewed, constant and tied differences: how far the interval reaches, and what the resolution adds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apoint.verdict import decide, moments, skewness
from apoint.verdict.moments import (
    Moments,
    corrected,
    grid_step,
    lean,
    masked_by,
    parts_of_skewness,
    reach,
    unseen_share,
)

README = ([0.91, 0.92, 0.90, 0.93, 0.92, 0.91], [0.94, 0.93, 0.94, 0.96, 0.94, 0.95])


def test_skewness_is_scipys() -> None:
    values = np.random.default_rng(0).exponential(size=11)
    assert skewness(values) == pytest.approx(stats.skew(values))
    assert skewness([0.3] * 8) == 0.0


@given(st.floats(0.1, 30), st.floats(-2.5, 2.5), st.integers(3, 60))
@settings(deadline=None)
def test_the_corrected_t_is_where_the_interval_touches_0(t: float, skew: float, n: int) -> None:
    for sign in (1, -1):
        c = float(corrected(np.array([sign * t]), np.array([skew]), n)[0])
        interval = Moments(n, sign * t, math.sqrt(n), skew).interval(abs(c))
        assert interval[0 if sign > 0 else 1] == pytest.approx(0, abs=1e-9 * t)


@given(st.floats(-3, 3), st.integers(3, 100), st.floats(0.5, 10))
@settings(deadline=None)
def test_the_side_of_the_tail_is_longer_and_the_other_is_students(skew: float, n: int, c: float) -> None:
    lower, upper = Moments(n, 0.0, math.sqrt(n), skew).interval(c)
    assert min(-lower, upper) == pytest.approx(c)
    assert (upper + lower) * skew >= 0
    assert reach(c, float(lean(abs(skew), n))) == pytest.approx(max(-lower, upper))


@pytest.mark.parametrize("size", [0.001, 0.0003])
def test_the_readmes_example_is_better_and_stays_so(size: float) -> None:
    """It used to be undecided, and better when the differences moved by 0.001."""
    base, better = (np.array(numbers) for numbers in README)
    assert decide(base, better, 0.005, looks=(6,)).outcome == "better"
    for shift in (-size, size):
        assert decide(base, better + shift, 0.005, looks=(6,)).outcome == "better"
        for place in range(6):
            for arm in (base, better):
                arm[place] += shift
                assert decide(base, better, 0.005, looks=(6,)).outcome == "better"
                arm[place] -= shift


@given(st.lists(st.floats(-1, 1), min_size=8, max_size=8), st.integers(0, 7))
@settings(deadline=None, max_examples=60)
def test_the_interval_does_not_jump(values: list[float], place: int) -> None:
    """A small move of one difference moves the ends a little."""
    differences = np.array(values)
    if differences.std() < 1e-2:
        return
    moved = differences.copy()
    moved[place] += 1e-7
    one, other = (decide(np.zeros(8), each, 0.1, looks=(8,), resolution=0.0) for each in (differences, moved))
    assert other.interval == pytest.approx(one.interval, abs=1e-3)


# -- tails that mask each other ---------------------------------------------------------------------------


arms_of_eight = st.lists(st.floats(-1, 1).map(lambda x: round(x, 6)), min_size=16, max_size=16)


def parts_of(candidate: np.ndarray, baseline: np.ndarray) -> tuple[float, float]:
    return parts_of_skewness(candidate - baseline, (candidate + baseline) / 2)


@pytest.mark.parametrize("share", [0.3, 0.7, 1.0])
def test_without_doubt_the_parts_are_those_of_the_arms(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent arms: each has its own third cumulant in that of the differences."""
    monkeypatch.setattr(moments, "MASK_SHARE", 1.0)
    draw = np.random.default_rng(4)
    candidate, baseline = draw.exponential(size=400_000), share * draw.exponential(size=400_000)
    scale = (1 + share**2) ** 1.5
    assert parts_of(candidate, baseline) == pytest.approx((2 / scale, -2 * share**3 / scale), abs=0.05)
    common = 3 * draw.standard_normal(400_000)  # what both arms share has no part in the differences
    found = parts_of(candidate + common, baseline + common)
    assert sum(found) == pytest.approx((2 - 2 * share**3) / scale, abs=0.05)
    assert abs(found[0]) <= 2.05 / scale


@given(arms_of_eight)
@settings(deadline=None, max_examples=100)
def test_the_parts_add_up_and_swap_with_the_arms(values: list[float]) -> None:
    candidate, baseline = np.array(values[:8]), np.array(values[8:])
    parts = parts_of(candidate, baseline)
    assert sum(parts) == pytest.approx(skewness(candidate - baseline), abs=1e-9)
    assert parts_of(baseline, candidate) == (-parts[1], -parts[0])
    assert masked_by(parts) >= 0
    assert masked_by([*parts, 0.0]) == masked_by(parts)


@given(arms_of_eight, st.floats(0.1, 10), st.floats(-5, 5))
@settings(deadline=None, max_examples=60)
def test_units_do_not_matter(values: list[float], scale: float, shift: float) -> None:
    candidate, baseline = np.array(values[:8]), np.array(values[8:])
    if (candidate - baseline).std() < 1e-2 or (candidate + baseline).std() < 1e-2:
        return
    moved = parts_of(scale * candidate + shift, scale * baseline + shift)
    assert moved == pytest.approx(parts_of(candidate, baseline), abs=1e-5)


@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_an_arm_that_does_not_vary_masks_nothing(arm: str) -> None:
    draw, still = np.random.default_rng(2), np.full(12, 0.7)
    for _ in range(50):
        moving = draw.exponential(size=12)
        pair = (moving, still) if arm == "baseline" else (still, moving)
        assert masked_by(parts_of(*pair)) == pytest.approx(0, abs=1e-6)


@given(arms_of_eight, st.integers(0, 15))
@settings(deadline=None, max_examples=60)
def test_the_interval_does_not_jump_with_either_arm(values: list[float], place: int) -> None:
    scores = np.array(values)
    if (scores[8:] - scores[:8]).std() < 1e-2:
        return
    moved = scores.copy()
    moved[place] += 1e-8
    one, other = (
        decide(each[:8], each[8:], 0.1, looks=(8,), resolution=0.0).interval for each in (scores, moved)
    )
    assert other == pytest.approx(one, abs=5e-3)


def test_a_masked_tail_makes_both_sides_longer() -> None:
    plain, longer = (Moments(8, 0.0, 1.0, 0.5, masked=masked).interval(3.0) for masked in (0.0, 0.4))
    assert longer[0] < plain[0]
    assert longer[1] > plain[1]


# -- ties and what does not vary --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "step"),
    [
        ([k / 359 for k in (330, 341, 335, 352)], 1 / 359),
        (np.float32([k / 10_000 for k in (9_412, 9_430, 9_405)]), 1 / 10_000),
        ([0.91, 0.94, 0.97], 0.03),
        ([1.0, 1.0], 0.0),
        ([], 0.0),
        ([0.5, 0.5 + 1e-12], 0.0),
    ],
)
def test_the_step_of_scores(scores, step: float) -> None:
    assert grid_step(scores) == pytest.approx(step, rel=1e-2, abs=1e-12)


def test_scores_without_a_grid_have_no_step() -> None:
    draw = np.random.default_rng(1)
    assert all(grid_step(draw.standard_normal(16)) == 0 for _ in range(200))
    assert all(grid_step(draw.normal(0.3, 0.01, 12).astype(np.float32)) == 0 for _ in range(200))


@pytest.mark.parametrize("share", [0.12, 0.05])
def test_ties_are_not_evidence_of_equality(share: float) -> None:
    """A few pairs gain one example of 359, more than the margin: once 35 to 65 % were called equivalent."""
    draw, wrong = np.random.default_rng(2), 0
    for _ in range(200):
        gains = (draw.random(32) < share) / 359
        wrong += decide(0.95 + 0 * gains, 0.95 + gains, 0.0001, resolution=1 / 359).outcome == "equivalent"
    assert wrong <= 10


def test_a_ceiling_shows_nothing() -> None:
    verdict = decide([1.0] * 32, [1.0] * 32, 0.01)
    assert (verdict.outcome, verdict.interval) == ("undecided", (-math.inf, math.inf))
    assert "no interval yet" in str(verdict)
    assert verdict.sentence.startswith("undecided: all scores are the same, which shows nothing")


def test_identical_arms_become_equivalent_and_not_at_any_margin() -> None:
    baseline = np.random.default_rng(3).normal(size=32)
    usual = decide(baseline, baseline)
    assert usual.outcome == "equivalent"
    assert usual.pairs > 6
    assert usual.interval[0] < 0 < usual.interval[1]
    assert decide(baseline, baseline, 1e-4).outcome == "undecided"


def test_rounding_is_no_difference() -> None:
    baseline = np.array([0.1, 0.2, 0.3, 0.7, 0.9, 1.1, 1.3, 1.7])
    verdict = decide(baseline, (baseline * 3) / 3, 5.0, looks=(8,))
    assert verdict.effect == 0
    assert "e-1" not in str(verdict)


def test_what_happens_in_a_larger_share_is_seen() -> None:
    for pairs, share in ((8, 0.312), (32, 0.0894)):
        assert unseen_share(pairs) == pytest.approx(share, abs=1e-3)
        assert (1 - unseen_share(pairs)) ** pairs == pytest.approx(0.05)
