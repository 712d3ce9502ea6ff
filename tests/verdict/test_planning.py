"""How many further pairs: closed forms, laws, and whether they settle what they promise to."""

import math

import numpy as np
import pytest
from scipy import stats

from apoint.verdict import decide
from apoint.verdict.planning import assurance
from apoint.verdict.skew import PlannedRule, t_interval


def test_assurance_is_the_chance_that_the_later_mean_decides() -> None:
    draw = np.random.default_rng(0)
    values, rule = draw.normal(0.3, 1, 16), PlannedRule(0.02)
    later, margin = 60, 0.5
    mean, deviation = values.mean(), values.std(ddof=1)
    truth = draw.normal(mean, deviation / 4, 200_000)
    fresh = truth + draw.normal(0, deviation / math.sqrt(later - 16), 200_000)
    whole = (16 * mean + (later - 16) * fresh) / later
    half = rule.multiplier(later) * deviation / math.sqrt(later)
    decided = np.mean((np.abs(whole) > half) | (np.abs(whole) < margin - half))
    assert assurance(values, np.array([float(later)]), margin, rule)[0] == pytest.approx(decided, abs=0.005)


def test_four_of_five_comparisons_are_settled_by_so_many_pairs() -> None:
    draw, settled, promised = np.random.default_rng(1), 0, 0
    rule = PlannedRule(0.05)
    for _ in range(400):
        truth = draw.uniform(-1.5, 1.5)
        first = draw.normal(truth, 1, 16)
        verdict = decide(np.zeros(16), first, 0.4, looks=(16,))
        if verdict.further_pairs is None or verdict.switched:
            continue
        promised += 1
        whole = np.concatenate([first, draw.normal(truth, 1, verdict.further_pairs)])
        lower, upper = t_interval(whole, rule.multiplier(len(whole)))
        settled += lower > 0 or upper < 0 or max(-lower, upper) < 0.4
    assert promised > 80
    assert settled / promised == pytest.approx(0.8, abs=3.5 * math.sqrt(0.16 / promised))


def symmetric(effect: float, noise: float, n: int = 32) -> np.ndarray:
    return effect + noise * np.tile([-1.0, 1.0, -0.5, 0.5], n // 4)


def test_more_noise_takes_more_pairs_and_a_wider_margin_fewer() -> None:
    needed = [
        decide(np.zeros(32), symmetric(0.03, noise), 0.2).further_pairs for noise in (0.6, 1.0, 2.0, 4.0)
    ]
    assert needed == sorted(needed)
    assert needed[0] < needed[-1]
    by_margin = [
        decide(np.zeros(32), symmetric(0.03, 1.0), margin).further_pairs for margin in (0.2, 0.3, 0.35)
    ]
    assert by_margin == sorted(by_margin, reverse=True)


def test_they_end_on_a_look_of_the_plan_or_beyond_in_its_last_step() -> None:
    twenty = decide(np.zeros(20), symmetric(0.45, 1.0, 20), 0.1)
    assert twenty.further_pairs is not None
    assert (20 + twenty.further_pairs) % 8 == 0
    after = decide(np.zeros(36), symmetric(0.1, 1.0, 36), 0.1)
    assert after.further_pairs is not None
    assert (36 + after.further_pairs) % 8 == 0
    at_will = decide(np.zeros(32), symmetric(0.1, 1.0), 0.1, anytime=True)
    assert at_will.further_pairs is not None


def test_nothing_is_promised_where_nothing_can_be_said() -> None:
    assert decide(np.zeros(32), symmetric(5.0, 1.0), 0.1).further_pairs is None, "decided"
    many = symmetric(0.0, 1.0, 240)
    assert decide(np.zeros(240), many, 1e-4, looks=(240,)).further_pairs is None, "over 10,000"
    assert decide(np.zeros(240), many, 0.05, looks=(240,)).further_pairs < 10_000
    assert decide([0.0, 0.0], [1.0, 1.1], 0.1).further_pairs is None, "two pairs"


def test_a_wide_interval_takes_more_pairs_than_a_symmetric_one() -> None:
    skewed = stats.expon.ppf((np.arange(32) + 0.5) / 32) - 0.9
    verdict = decide(np.zeros(32), skewed, 0.05, looks=(32,))
    mirrored = np.concatenate([skewed, 2 * skewed.mean() - skewed])
    plain = decide(np.zeros(32), np.sort(mirrored)[::2], 0.05, looks=(32,))
    assert verdict.switched
    assert verdict.outcome == plain.outcome == "undecided"
    assert verdict.further_pairs > plain.further_pairs
