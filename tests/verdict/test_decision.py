"""The decision: references, laws, skewed and failed numbers, and what bad input gets."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apoint.errors import UsageError
from apoint.store import strict_json
from apoint.verdict import (
    DEFAULT_LOOKS,
    Verdict,
    anytime_multiplier,
    decide,
    mcnemar_p,
    planned_multiplier,
)
from apoint.verdict.calibration import levels
from apoint.verdict.moments import Moments

SWAPPED = {"better": "worse", "worse": "better"}
exact = st.integers(-60, 60).map(lambda k: k / 16)  # sums and shifts of these are exact in floating point
arms = st.integers(8, 20).flatmap(
    lambda n: st.tuples(st.lists(exact, min_size=n, max_size=n), st.lists(exact, min_size=n, max_size=n))
)
margins = st.sampled_from([0.125, 0.5, 2.0])


def normal(seed: int, n: int, effect: float = 0.0, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    baseline = draw.normal(10, 1, n)
    return baseline, baseline + draw.normal(effect, noise, n)


# -- references -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [16, 30])
def test_a_single_look_is_close_to_students_paired_test(n: int) -> None:
    """The level is a bit looser for symmetric differences and stricter for skewed ones."""
    agreed = 0
    for seed in range(100):
        baseline, candidate = normal(seed, n, effect=0.4)
        verdict = decide(baseline, candidate, 0.01, looks=(n,))
        test = stats.ttest_rel(candidate, baseline)
        assert verdict.effect == pytest.approx(np.mean(candidate - baseline))
        agreed += (verdict.outcome == "undecided") == (test.pvalue > 0.05)
    assert agreed >= 90


def test_planned_looks_stop_at_the_first_that_decides() -> None:
    baseline, candidate = normal(8, 32, effect=0.9)
    verdict = decide(baseline, candidate, 0.1)
    assert verdict.outcome == "better"
    assert verdict.pairs < 32
    assert [look.outcome for look in verdict.looks] == ["undecided"] * (len(verdict.looks) - 1) + ["better"]
    assert [look.pairs for look in verdict.looks] == list(DEFAULT_LOOKS[: len(verdict.looks)])
    for look in verdict.looks:
        differences = (candidate - baseline)[: look.pairs]
        assert look.multiplier == pytest.approx(planned_multiplier(look.pairs, DEFAULT_LOOKS))
        assert look.interval == pytest.approx(interval_of(differences, look.multiplier))
        one_sided = levels(DEFAULT_LOOKS).at(np.array([float(look.pairs)]), one_sided=True)[0]
        bounds = interval_of(differences, stats.t.isf(one_sided, look.pairs - 1))
        assert look.equivalence_interval == pytest.approx(bounds)


def interval_of(differences: np.ndarray, c: float) -> tuple[float, float]:
    moments = Moments(
        len(differences), differences.mean(), differences.std(ddof=1), float(stats.skew(differences))
    )
    return moments.interval(c)


def test_any_time_is_the_confidence_sequence_and_stops_at_the_first_pair_that_decides() -> None:
    baseline, candidate = normal(5, 40, effect=1.0)
    verdict = decide(baseline, candidate, 0.1, anytime=True)
    assert (verdict.outcome, verdict.anytime, verdict.planned_looks) == ("better", True, ())
    assert [look.pairs for look in verdict.looks] == list(range(6, verdict.pairs + 1))
    assert all(look.outcome == "undecided" for look in verdict.looks[:-1])
    differences = (candidate - baseline)[: verdict.pairs]
    assert verdict.interval == pytest.approx(interval_of(differences, anytime_multiplier(verdict.pairs)))


@pytest.mark.parametrize(
    ("effect", "noise", "margin", "outcome", "negligible"),
    [
        (0.0, 0.1, 0.5, "equivalent", False),
        (0.3, 0.05, 0.5, "equivalent", True),
        (1.0, 0.1, 0.5, "better", False),
        (-1.0, 0.1, 0.5, "worse", False),
        (0.05, 1.0, 0.1, "undecided", False),
    ],
)
def test_outcomes(effect: float, noise: float, margin: float, outcome: str, negligible: bool) -> None:
    differences = noise * np.tile([-1.0, 1.0, -0.5, 0.5], 8) + effect
    verdict = decide(np.zeros(32), differences, margin)
    assert (verdict.outcome, verdict.negligible) == (outcome, negligible)
    turned = decide(np.zeros(32), -differences, margin, higher_is_better=False)
    assert (turned.outcome, turned.interval) == (verdict.outcome, verdict.interval)


def test_companions_are_those_of_the_deciding_look() -> None:
    baseline, candidate = normal(8, 32, effect=1.2)
    verdict = decide(baseline, candidate, 0.1, seeds=range(100, 132), metric="accuracy")
    n = verdict.pairs
    assert n < 32
    assert verdict.seeds == tuple(range(100, 100 + n))
    assert verdict.baseline == tuple(baseline[:n])
    assert verdict.correlation == pytest.approx(stats.pearsonr(baseline[:n], candidate[:n]).statistic)
    assert verdict.sign_flip_p >= verdict.smallest_p == 2.0 ** (1 - n)
    assert verdict.standardised_effect == pytest.approx(
        np.mean((candidate - baseline)[:n]) / np.std((candidate - baseline)[:n], ddof=1)
    )
    assert verdict.skewness == pytest.approx(stats.skew((candidate - baseline)[:n]))


# -- laws -----------------------------------------------------------------------------------------------


@given(arms, margins, st.booleans())
@settings(deadline=None, max_examples=60)
def test_swapping_the_arms_swaps_the_answer(pair: tuple[list, list], margin: float, anytime: bool) -> None:
    one = decide(*pair, margin, looks=(8, 13), anytime=anytime)
    other = decide(*reversed(pair), margin, looks=(8, 13), anytime=anytime)
    assert other.outcome == SWAPPED.get(one.outcome, one.outcome)
    assert other.interval == pytest.approx((-one.interval[1], -one.interval[0]), abs=1e-7)
    assert (other.pairs, other.further_pairs) == (one.pairs, one.further_pairs)
    assert other.adjusted_effect == pytest.approx(-one.adjusted_effect)
    turned = decide(*pair, margin, looks=(8, 13), anytime=anytime, higher_is_better=False)
    assert (turned.outcome, turned.interval) == (other.outcome, other.interval)


@given(arms, margins, st.sampled_from([2.0**-20, 0.5, 1024.0]))
@settings(deadline=None, max_examples=40)
def test_the_unit_does_not_matter(pair: tuple[list, list], margin: float, scale: float) -> None:
    one = decide(*pair, margin, looks=(8,))
    other = decide(*(scale * np.array(arm) for arm in pair), scale * margin, looks=(8,))
    assert other.outcome == one.outcome
    assert other.interval == pytest.approx([scale * end for end in one.interval], rel=1e-6, abs=1e-6 * scale)


@given(arms, margins, st.randoms(use_true_random=False), st.integers(-1000, 1000))
@settings(deadline=None, max_examples=40)
def test_the_order_within_a_look_and_a_common_shift_do_not_matter(pair, margin, random, shift) -> None:
    n = len(pair[0])
    order = random.sample(range(n), n)
    one = decide(*pair, margin, looks=(n,))
    other = decide(*(np.array(arm)[order] + shift for arm in pair), margin, looks=(n,))
    assert other.outcome == one.outcome
    assert other.interval == pytest.approx(one.interval, abs=1e-7)


@given(arms, margins, st.booleans())
@settings(deadline=None, max_examples=40)
def test_later_pairs_do_not_change_a_decision(pair: tuple[list, list], margin: float, anytime: bool) -> None:
    verdict = decide(*pair, margin, looks=(8, 12), anytime=anytime)
    if verdict.outcome == "undecided":
        return
    earlier = decide(*(arm[: verdict.pairs] for arm in pair), margin, looks=(8, 12), anytime=anytime)
    assert dataclasses.replace(verdict, notes=()) == dataclasses.replace(earlier, notes=())


@given(arms, margins)
@settings(deadline=None, max_examples=40)
def test_the_interval_agrees_with_the_call(pair: tuple[list, list], margin: float) -> None:
    verdict = decide(*pair, margin, looks=(8, 12))
    lower, upper = verdict.interval
    inside = -margin < verdict.equivalence_interval[0] and verdict.equivalence_interval[1] < margin
    expected = "equivalent" if inside else "better" if lower > 0 else "worse" if upper < 0 else "undecided"
    assert verdict.outcome == expected


# -- the margin ---------------------------------------------------------------------------------------------


def test_without_a_margin_it_is_half_the_baselines_deviation_at_each_look() -> None:
    baseline, candidate = normal(3, 32, effect=0.05)
    verdict = decide(baseline, candidate)
    for look in verdict.looks:
        assert look.margin == pytest.approx(baseline[: look.pairs].std(ddof=1) / 2)
    assert verdict.margin == verdict.looks[-1].margin
    early = decide(baseline[:12], candidate[:12])
    assert early.looks == verdict.looks[: len(early.looks)], "later pairs do not change an earlier look"


def test_a_baseline_that_does_not_vary_has_another_margin() -> None:
    candidate = np.random.default_rng(1).normal(0.9, 0.01, 8)
    assert decide([0.9] * 8, candidate, resolution=1 / 360).margin == pytest.approx(1 / 360)
    assert decide([2.0] * 8, candidate).margin == pytest.approx(0.02)
    with pytest.raises(UsageError, match="no margin can be taken from it; give one with --margin"):
        decide([0.0] * 8, candidate)


# -- failed replicas ------------------------------------------------------------------------------------


def test_failed_replicas_count_as_the_declared_cap() -> None:
    baseline, candidate = normal(1, 16)
    candidate[[2, 5, 6]] = [math.nan, math.inf, -math.inf]
    baseline[5] = math.nan
    baseline[9] = -3.0
    verdict = decide(baseline, candidate, 0.1, looks=(16,), cap=4.0)
    failures = verdict.failures
    assert (failures.baseline, failures.candidate) == (1, 3)
    assert (failures.only_baseline, failures.only_candidate) == (0, 2)
    assert (failures.p, failures.cap) == (mcnemar_p(0, 2), 4.0)
    assert [verdict.candidate[k] for k in (2, 5, 6)] == [4.0] * 3
    assert verdict.baseline[9] == 4.0, "what is finite and worse counts as the cap too"
    assert all(math.isfinite(value) for value in (*verdict.interval, verdict.effect))


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_without_a_cap_the_worst_finite_number_of_either_arm_stands_in(higher_is_better: bool) -> None:
    baseline, candidate = normal(2, 8)
    candidate[0] = math.nan
    verdict = decide(baseline, candidate, 0.1, looks=(8,), higher_is_better=higher_is_better)
    both = np.concatenate([baseline, candidate[1:]])
    assert verdict.failures.cap == verdict.candidate[0] == (both.min() if higher_is_better else both.max())
    assert decide(*normal(2, 8), 0.1).failures.cap is None


def test_the_default_cap_does_not_look_ahead() -> None:
    baseline, candidate = normal(4, 16, effect=8.0, noise=0.1)
    candidate[3] = math.nan
    baseline[12] = -100.0
    long, short = (decide(baseline[:n], candidate[:n], 0.1) for n in (16, 8))
    assert long.looks[0] == short.looks[0]


def test_an_arm_that_only_failed_so_far_has_no_interval_yet() -> None:
    baseline, candidate = normal(5, 16)
    candidate[:8] = math.nan
    verdict = decide(baseline, candidate, 0.1, looks=(8, 16))
    assert math.isinf(verdict.looks[0].interval[1])
    assert math.isfinite(verdict.interval[1])


# -- what is given and not used ---------------------------------------------------------------------------


def test_pairs_beyond_the_last_look_are_not_used() -> None:
    baseline, candidate = normal(6, 40, effect=0.1)
    verdict = decide(baseline, candidate, 0.01)
    assert verdict.pairs == len(verdict.baseline) == 32
    assert verdict.notes == ("not used: 8 of 40 pairs, beyond the last planned look (32)",)
    assert decide(baseline[:19], candidate[:19], 0.01).notes[0].startswith("not used yet: 3 of 19 pairs")


def test_fewer_pairs_than_the_first_look_are_undecided() -> None:
    verdict = decide(*normal(7, 5, effect=50), 0.1)
    assert (verdict.outcome, verdict.looks, verdict.pairs) == ("undecided", (), 5)
    assert verdict.interval == (-math.inf, math.inf)
    assert "the first look is at 6 pairs, and there are 5" in verdict.notes
    assert verdict.further_pairs == 1


# -- JSON -----------------------------------------------------------------------------------------------


def all_kinds() -> list[Verdict]:
    baseline, candidate = normal(9, 32, effect=0.2)
    failed = candidate.copy()
    failed[3] = math.nan
    return [
        decide(baseline, candidate, 0.1, metric="loss", seeds=range(32), exploratory=("the margin changed",)),
        decide(baseline, failed, 0.1, cap=1.0),
        decide(baseline, candidate, 0.1, anytime=True),
        decide(baseline[:4], candidate[:4], 0.1),
        decide(np.zeros(8), np.ones(8), 0.1, metric="NaN"),
    ]


@pytest.mark.parametrize("verdict", all_kinds(), ids=["planned", "failed", "anytime", "few", "constant"])
def test_a_verdict_survives_json(verdict: Verdict) -> None:
    text = json.dumps(verdict.to_dict(), allow_nan=False)
    assert json.loads(strict_json(verdict.to_dict())) == json.loads(text)
    again = Verdict.from_dict(json.loads(text))
    assert str(again.to_dict()) == str(verdict.to_dict())
    assert type(again.looks) is tuple
    assert again.metric == verdict.metric
    assert str(again) == str(verdict)
    assert set(verdict.to_dict()) == {field.name for field in dataclasses.fields(Verdict)}


def test_what_is_not_a_verdict_is_refused() -> None:
    values = all_kinds()[0].to_dict()
    assert Verdict.from_dict({**values, "of_a_later_version": 1}).pairs == values["pairs"]
    for key in ("looks", "outcome"):
        with pytest.raises(UsageError, match="not a verdict"):
            Verdict.from_dict({name: value for name, value in values.items() if name != key})


# -- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"candidate": [1.0] * 7}, "the baseline has 8 numbers and the candidate 7: give one of each"),
        ({"baseline": [1.0], "candidate": [2.0]}, "1 pair cannot show a difference.*8 seeds or more"),
        ({"baseline": [], "candidate": []}, "no pairs cannot show a difference"),
        ({"candidate": ["a"] * 8}, "number 1 of the candidate is 'a', which is no number; write nan"),
        ({"candidate": [1.0] * 7 + [None]}, "number 8 of the candidate is None"),
        ({"candidate": [[1.0, 2.0]] * 8}, r"number 1 of the candidate is \[1.0, 2.0\]"),
        ({"candidate": "12345678"}, "must be a list of numbers"),
        ({"candidate": 3.0}, "must be a list of numbers"),
        ({"margin": 0.0}, "margin must be above 0, got 0.0: it is the smallest difference that matters"),
        ({"margin": -1.0}, "margin must be above 0"),
        ({"margin": math.nan}, "margin must be above 0, got nan"),
        ({"margin": "small"}, "margin must be a number, got 'small'"),
        ({"alpha": 1.5}, "alpha must be between 0 and 1, got 1.5"),
        ({"alpha": 0.0, "anytime": True}, "alpha must be between 0 and 1"),
        ({"alpha": "five"}, "alpha must be between 0 and 1, got five"),
        ({"looks": (16, 8)}, "looks must be rising whole numbers"),
        ({"seeds": (1, 2)}, "there are 2 seeds for 8 pairs"),
        ({"seeds": (0, 1, 2, 3, 4, 5, 6, 6)}, "seed 6 stands twice"),
        ({"cap": math.inf}, "cap must be a finite number"),
        ({"resolution": -0.1}, "resolution must be 0 or above, got -0.1: it is the smallest step"),
        (
            {"baseline": [math.nan] * 8, "candidate": [math.inf] * 8, "cap": 0.0},
            "all 8 replicas of both arms",
        ),
        ({"candidate": [math.nan] * 8}, "all 8 replicas of the candidate failed, and no cap is declared"),
    ],
)
def test_wrong_input_gets_one_sentence(changes: dict, sentence: str) -> None:
    arguments = {
        "baseline": [float(k) for k in range(8)],
        "candidate": [k + 0.5 for k in range(8)],
        "margin": 0.1,
    }
    with pytest.raises(UsageError, match=sentence):
        decide(**{**arguments, **changes})


def test_numpy_whole_numbers_are_whole_numbers() -> None:
    baseline, candidate = normal(0, 16)
    plan = np.array([8, 16])
    assert decide(baseline, candidate, 0.1, looks=plan).planned_looks == (8, 16)
