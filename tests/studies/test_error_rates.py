"""How often a verdict is wrong: cells of `studies/verdict` with one arm and with six; pairs and power."""

import numpy as np
import pytest

from apoint.verdict import DEFAULT_LOOKS
from studies.verdict.power import first_look_of_six, gaussian
from studies.verdict.rates import settled
from studies.verdict.rule import BETTER, EQUIVALENT, simulate
from studies.verdict.shapes import FRESH_SKEWED, FRESH_SYMMETRIC, SKEWED, SYMMETRIC, Shape

pytestmark = pytest.mark.slow
SHAPES = {shape.name: shape for shape in (*FRESH_SYMMETRIC, *FRESH_SKEWED, *SYMMETRIC, *SKEWED)}


@pytest.mark.parametrize("anytime", [False, True], ids=["planned", "anytime"])
@pytest.mark.parametrize("arms", [1, 6])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_rates_keep_to_their_limits(shape: Shape, arms: int, anytime: bool) -> None:
    cell = settled(shape, arms, anytime)
    assert not cell.above(shape), cell


@pytest.mark.parametrize(("effect", "pairs"), [(1.0, 15.0), (2.0, 9.3), (5.0, 6.5)])
def test_pairs_on_average(effect: float, pairs: float) -> None:
    found = simulate(gaussian("pairs") + effect, 1e-6, DEFAULT_LOOKS)
    assert found.pairs.mean() <= pairs
    assert found.rate(BETTER) >= 0.995


def test_power_at_half_a_deviation() -> None:
    assert simulate(gaussian("half") + 0.5, 1e-6, DEFAULT_LOOKS).rate(BETTER) >= 0.70


def test_one_strong_arm_of_six_is_called_at_its_first_look() -> None:
    assert first_look_of_six() >= 0.95


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_a_margin_from_the_baseline_itself(correlation: float) -> None:
    """The default: half the baseline's deviation, at each look; here that of all pairs, which is its aim."""
    random = np.random.default_rng(int(100 * correlation))
    baseline, own = random.standard_normal((2, 20_000, 32))
    noise = correlation * baseline + np.sqrt(1 - correlation**2) * own - baseline
    margin = baseline.std(1, ddof=1) / 2
    assert simulate(noise, margin, DEFAULT_LOOKS).calls <= 0.055
    false = [
        simulate(noise + side * margin[:, None], margin, DEFAULT_LOOKS).rate(EQUIVALENT) for side in (1, -1)
    ]
    assert max(false) <= 0.05
