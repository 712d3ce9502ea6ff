"""How many further pairs: closed forms, laws, and whether they settle what they promise to."""

import math

import numpy as np
import pytest
from scipy import stats

from apoint.verdict import decide
from apoint.verdict.calibration import levels
from apoint.verdict.intervals import PlannedRule, critical_value
from apoint.verdict.moments import Moments
from apoint.verdict.planning import assurance, further_pairs
from apoint.verdict.record import Look


def test_assurance_is_the_chance_that_the_later_mean_decides() -> None:
    draw = np.random.default_rng(0)
    values, rule = draw.normal(0.3, 1, 16), PlannedRule(levels((60,)))
    later, margin = 60, 0.5
    mean, deviation = values.mean(), values.std(ddof=1)
    truth = draw.normal(mean, deviation / 4, 200_000)
    fresh = truth + draw.normal(0, deviation / math.sqrt(later - 16), 200_000)
    whole = (16 * mean + (later - 16) * fresh) / later
    half, narrow = (
        critical_value(rule, later, one_sided) * deviation / math.sqrt(later) for one_sided in (False, True)
    )
    decided = np.mean((np.abs(whole) > half) | (np.abs(whole) < margin - narrow))
    found = assurance(Moments(16, mean, deviation, 0.0), np.array([float(later)]), margin, rule)
    assert found[0] == pytest.approx(decided, abs=0.005)


def test_four_of_five_comparisons_are_settled_by_so_many_pairs() -> None:
    draw, settled, promised = np.random.default_rng(1), 0, 0
    rule = PlannedRule(levels((16,)))
    for _ in range(400):
        truth = draw.uniform(-1.5, 1.5)
        first = draw.normal(truth, 1, 16)
        verdict = decide(np.zeros(16), first, 0.4, looks=(16,))
        if verdict.further_pairs is None:
            continue
        promised += 1
        whole = np.concatenate([first, draw.normal(truth, 1, verdict.further_pairs)])
        moments = Moments(len(whole), whole.mean(), whole.std(ddof=1), float(stats.skew(whole)))
        lower, upper = moments.interval(critical_value(rule, len(whole)))
        inner = moments.interval(critical_value(rule, len(whole), one_sided=True))
        settled += lower > 0 or upper < 0 or max(-inner[0], inner[1]) < 0.4
    assert promised > 80
    assert settled / promised == pytest.approx(0.8, abs=3.5 * math.sqrt(0.16 / promised))


def symmetric(effect: float, noise: float, n: int = 32) -> np.ndarray:
    return effect + noise * np.tile([-1.0, 1.0, -0.5, 0.5], n // 4)


def test_more_noise_takes_more_pairs_and_a_wider_margin_fewer() -> None:
    needed = [
        decide(np.zeros(32), symmetric(0.03, noise), 0.2).further_pairs for noise in (1.0, 1.5, 2.0, 4.0)
    ]
    assert needed == sorted(needed)
    assert needed[0] < needed[-1]
    by_margin = [
        decide(np.zeros(32), symmetric(0.03, 1.0), margin).further_pairs for margin in (0.2, 0.25, 0.3)
    ]
    assert by_margin == sorted(by_margin, reverse=True)


def test_they_end_on_a_look_of_the_plan_or_beyond_in_its_last_step() -> None:
    twenty = decide(np.zeros(20), symmetric(0.45, 1.0, 20), 0.1)
    assert twenty.further_pairs is not None
    assert (20 + twenty.further_pairs) % 4 == 0
    after = decide(np.zeros(36), symmetric(0.1, 1.0, 36), 0.1)
    assert after.further_pairs is not None
    assert (36 + after.further_pairs) % 4 == 0
    at_will = decide(np.zeros(32), symmetric(0.1, 1.0), 0.1, anytime=True)
    assert at_will.further_pairs is not None


def test_nothing_is_promised_where_nothing_can_be_said() -> None:
    assert decide(np.zeros(32), symmetric(5.0, 1.0), 0.1).further_pairs is None, "decided"
    many = symmetric(0.0, 1.0, 240)
    assert decide(np.zeros(240), many, 1e-4, looks=(240,)).further_pairs is None, "over 10,000"
    assert decide(np.zeros(240), many, 0.05, looks=(240,)).further_pairs < 10_000
    assert decide([0.0, 0.0], [1.0, 1.1], 0.1).further_pairs is None, "two pairs"


def test_a_tail_takes_more_pairs_than_a_symmetric_sample() -> None:
    rule = PlannedRule(levels((32,)))
    open_look = Look(32, 0.1, (-0.3, 0.5), 2.0, "undecided", (-0.2, 0.4), 0.05)
    plain, skewed = (
        further_pairs(Moments(32, 0.1, 1.0, skewness), open_look, (32,), 32, rule) for skewness in (0.0, 1.5)
    )
    assert plain is not None
    assert skewed is not None
    assert skewed > plain


def test_a_masked_tail_takes_more_pairs_too() -> None:
    rule = PlannedRule(levels((32,)))
    totals = np.array([48.0, 64.0, 96.0])
    plain, masked = (
        assurance(Moments(32, 0.4, 1.0, 0.0, masked=tail), totals, 0.05, rule) for tail in (0.0, 1.0)
    )
    assert (masked < plain).all()
