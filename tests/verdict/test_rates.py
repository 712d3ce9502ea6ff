"""Error rates: the simulated rule equals `decide`, and a quick slice of the study in `tests/studies`."""

import math

import numpy as np
import pytest

from apoint.verdict import decide
from tests.verdict.shapes import SKEWED, SYMMETRIC
from tests.verdict.simulation import EQUIVALENT, NAMES, simulate, simulate_arms

QUICK = 2_000


def at_most(rate: float, bar: float, num: int = QUICK) -> bool:
    """Whether a rate does not speak against the bar: three standard errors are allowed."""
    return rate <= bar + 3 * math.sqrt(bar * (1 - bar) / num)


@pytest.mark.parametrize("anytime", [False, True], ids=["planned", "anytime"])
@pytest.mark.parametrize("name", [*SYMMETRIC, *SKEWED])
def test_the_simulated_rule_is_the_rule(name: str, anytime: bool) -> None:
    draw = np.random.default_rng(len(name))
    differences = {**SYMMETRIC, **SKEWED}[name](draw, (24, 24)) + draw.choice([0, 0.5, 1, 2], (24, 1))
    margins, plan = draw.choice([0.1, 0.5, 1.0, 2.0], 24), (8, 16, 24)
    result = simulate(differences, margins, plan, truth=0.25, anytime=anytime)
    for k in range(24):
        verdict = decide(np.zeros(24), differences[k], margins[k], looks=plan, anytime=anytime)
        assert verdict.outcome == NAMES[result.outcome[k]]
        assert verdict.pairs == result.pairs[k]
        assert verdict.switched == result.switched[k]
        assert (verdict.interval[0] <= 0.25 <= verdict.interval[1]) == result.covered[k]


@pytest.mark.parametrize("anytime", [False, True], ids=["planned", "anytime"])
@pytest.mark.parametrize(
    "name", ["Gaussian", "Student, 3 degrees", "A/A, 10 % diverge", "exponential, mean 0"]
)
def test_false_calls(name: str, anytime: bool) -> None:
    differences = {**SYMMETRIC, **SKEWED}[name](np.random.default_rng(1), (QUICK, 32))
    result = simulate(differences, 0.01, anytime=anytime)
    assert at_most(result.calls, 0.06 if name.startswith("Student") else 0.05)
    assert result.calls > 0.002, "the rule does call something"


def test_the_switch_happens_where_differences_are_skewed() -> None:
    draw = np.random.default_rng(2)
    exponential = simulate(SKEWED["exponential, mean 0"](draw, (500, 32)), 0.01)
    gaussian = simulate(SYMMETRIC["Gaussian"](draw, (500, 32)), 0.01)
    assert exponential.switched.mean() > 0.7
    assert gaussian.switched.mean() < 0.1


def test_coverage_power_and_false_equivalence() -> None:
    gaussian = np.random.default_rng(3).standard_normal((1_000, 32))
    for effect in (0.0, 0.8):
        assert at_most(1 - simulate(gaussian + effect, 0.5, truth=effect).covered.mean(), 0.06, 1_000)
    power = simulate(gaussian + 1, 0.1)
    assert power.rate(1) >= 0.97
    assert power.pairs.mean() < 17
    assert at_most(simulate(gaussian + 1, 1.0).rate(EQUIVALENT), 0.05, 1_000)
    assert simulate(gaussian, 1.0).rate(EQUIVALENT) > 0.9


def test_eight_arms_without_effect() -> None:
    draw = np.random.default_rng(4)
    differences = draw.standard_normal((1500, 8, 32)) - draw.standard_normal((1500, 1, 32))
    family = (simulate_arms(differences, 0.01) > 0).any(1).mean()
    assert at_most(family, 0.05, 1500)
    alone = simulate(differences.reshape(-1, 32), 0.01).outcome.reshape(1500, 8)
    assert (alone > 0).any(1).mean() > 0.15, "without Holm it would be far more"
