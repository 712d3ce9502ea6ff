"""The study of searches on a small scale: what is simulated is what `improve` does."""

import numpy as np
import pytest

from apoint.trials.search_plan import choose_plan
from studies.search import CHANGES, REPLICAS, WORLDS, World, lognormal, measure, one

PLAN = choose_plan(CHANGES, REPLICAS)


def test_changes_that_do_nothing_are_seldom_kept() -> None:
    rates = measure(World(one(0.0)), PLAN, 300)
    assert rates.found == 0
    assert rates.wrong <= 0.06  # 5 % and no more than 2.5 % is true: more than 18 of 300 has no chance
    assert rates.replicas <= REPLICAS


def test_a_large_effect_is_found_and_harm_never_kept() -> None:
    rates = measure(WORLDS["one helps by 1, seven harm by 0.5"], PLAN, 100)
    assert rates.found >= 0.95
    assert rates.wrong <= 0.02


def test_the_forecast_is_what_searches_find() -> None:
    rates = measure(World(one(0.5)), PLAN, 400, seed=7)
    assert rates.found == pytest.approx(PLAN.chance(0.5), abs=0.1)


def test_noise_has_variance_1() -> None:
    values = lognormal(np.random.default_rng(0), (200_000,))
    assert values.mean() == pytest.approx(0, abs=0.01)
    assert values.std() == pytest.approx(1, abs=0.02)
