"""The effect without what stopping early adds to it, against fresh simulated comparisons."""

import numpy as np
import pytest

from apoint.verdict import DEFAULT_LOOKS, decide
from apoint.verdict.estimate import adjusted_effect, chance_of_better
from apoint.verdict.moments import Moments
from studies.verdict.rule import BETTER, simulate


@pytest.mark.parametrize("effect", [0.0, 0.3, 0.5, 1.0, 2.0])
def test_it_has_no_bias_where_the_effect_has(effect: float) -> None:
    differences = np.random.default_rng(9).standard_normal((4000, 32)) + effect
    found = simulate(differences, 1e-4, DEFAULT_LOOKS)
    deviations = [row[:n].std(ddof=1) for row, n in zip(differences, found.pairs, strict=True)]
    adjusted = [
        adjusted_effect(Moments(int(n), mean, deviation, 0.0), int(n), DEFAULT_LOOKS, 0.05)
        for n, mean, deviation in zip(found.pairs, found.effect, deviations, strict=True)
    ]
    bias = found.effect.mean() - effect
    if effect in (0.5, 1.0):
        assert bias > 0.03, "what is shown is too large"
    assert abs(np.mean(adjusted) - effect) < max(0.03, 0.5 * bias)
    called = found.outcome == BETTER
    if effect == 0.5:
        assert np.mean(np.array(adjusted)[called]) < found.effect[called].mean()


def test_it_follows_the_sign_and_the_scale() -> None:
    draw = np.random.default_rng(1)
    differences = draw.normal(0.8, 1, 32)
    one = decide(np.zeros(32), differences, 0.01)
    assert 0 < one.adjusted_effect < one.effect
    other = decide(np.zeros(32), -4 * differences, 0.04)
    assert other.adjusted_effect == pytest.approx(-4 * one.adjusted_effect)


def test_a_single_look_is_not_adjusted() -> None:
    verdict = decide(np.zeros(12), np.random.default_rng(2).normal(1, 1, 12), 0.01, looks=(12,))
    assert verdict.adjusted_effect == verdict.effect


@pytest.mark.parametrize("effect", [-0.5, 0.0, 0.5, 1.0])
def test_the_chance_of_better_is_how_often_comparisons_say_so(effect: float) -> None:
    num = 10_000
    differences = np.random.default_rng(8).standard_normal((num, DEFAULT_LOOKS[-1])) + effect
    expected = simulate(differences, 1e-6, DEFAULT_LOOKS).rate(BETTER)
    assert chance_of_better(effect, DEFAULT_LOOKS) == pytest.approx(expected, abs=0.015)
    assert chance_of_better(effect, DEFAULT_LOOKS, 0.01) <= chance_of_better(effect, DEFAULT_LOOKS)
