"""How often a verdict is wrong: simulated comparisons with known truth, the table of `docs/verdict.md`.

Each cell has its own fixed seed and at least 10,000 comparisons (20,000 for false calls), so that a rate of
5 % is known to ±0.2 %. The differences have a deviation of about 1; "planned" is the plan 8, 16, 24, 32,
"anytime" looks after every one of 100 pairs. A margin of 0.01 leaves no room for *equivalent*, so that every
false call is counted. Rows are printed as they are found.
"""

import zlib

import numpy as np
import pytest

from tests.verdict.shapes import BEYOND, SKEWED, SYMMETRIC
from tests.verdict.simulation import BETTER, EQUIVALENT, WORSE, Result, simulate, simulate_arms

pytestmark = pytest.mark.slow
MANY, FEWER = 20_000, 10_000
SHAPES = {**SYMMETRIC, **SKEWED, **BEYOND}


def draw(name: str, cell: str, num: int, pairs: int = 32) -> np.ndarray:
    return SHAPES[name](np.random.default_rng(zlib.crc32(f"{name}/{cell}".encode())), (num, pairs))


def say(capsys: pytest.CaptureFixture[str], name: str, **numbers: float) -> None:
    with capsys.disabled():
        shown = "  ".join(f"{key} {value:.4f}" for key, value in numbers.items())
        print(f"\n| {name} | {shown}", flush=True)


@pytest.mark.parametrize("name", SHAPES)
def test_false_calls(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    planned = simulate(draw(name, "planned", MANY), 0.01)
    anytime = simulate(draw(name, "anytime", MANY, 100), 0.01, anytime=True)
    say(
        capsys,
        f"false calls: {name}",
        planned=planned.calls,
        anytime=anytime.calls,
        switched=float(planned.switched.mean()),
    )
    if name not in BEYOND:
        bar = 0.06 if name.startswith("Student") else 0.05
        assert planned.calls <= bar
        assert anytime.calls <= bar


@pytest.mark.parametrize("name", SHAPES)
def test_coverage_of_the_final_interval(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    noise = draw(name, "coverage", FEWER)
    found = {
        f"effect {effect}": float(simulate(noise + effect, 0.5, truth=effect).covered.mean())
        for effect in (0.0, 0.5, -0.5)
    }
    found["anytime"] = float(simulate(noise, 0.5, anytime=True).covered.mean())
    say(capsys, f"coverage: {name}", **found)
    if name not in BEYOND:
        assert min(found.values()) >= 0.94


@pytest.mark.parametrize("name", SHAPES)
def test_false_equivalence_at_the_margin(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    noise = draw(name, "equivalence", FEWER)
    found = {
        f"margin {margin} {'above' if side > 0 else 'below'}": simulate(noise + side * margin, margin).rate(
            EQUIVALENT
        )
        for margin in (0.5, 1.0)
        for side in (1, -1)
    }
    anytime = [simulate(noise + side, 1.0, anytime=True).rate(EQUIVALENT) for side in (1, -1)]
    say(capsys, f"false equivalent: {name}", **found, anytime=max(anytime))
    if name not in BEYOND:
        assert max(*found.values(), *anytime) <= 0.05


def told(result: Result) -> dict[str, float]:
    return {"better": result.rate(BETTER), "worse": result.rate(WORSE), "pairs": float(result.pairs.mean())}


@pytest.mark.parametrize("anytime", [False, True], ids=["planned", "anytime"])
def test_power(anytime: bool, capsys: pytest.CaptureFixture[str]) -> None:
    noise = draw("Gaussian", "power", FEWER)
    for effect in (0.3, 0.5, 0.8, 1.0, 1.2, 2.0):
        result = simulate(noise + effect, 0.01, anytime=anytime)
        say(capsys, f"power, effect {effect}, {'anytime' if anytime else 'planned'}", **told(result))
        if effect >= 1:
            assert result.rate(BETTER) >= 0.90
    for margin in (0.5, 0.75, 1.0):
        result = simulate(noise, margin, anytime=anytime)
        pairs = float(result.pairs.mean())
        say(capsys, f"no effect, margin {margin}", equivalent=result.rate(EQUIVALENT), pairs=pairs)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_a_margin_from_the_baselines_first_eight(
    correlation: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default of a comparison: half the deviation of replicas that are also the first pairs' baseline."""
    random = np.random.default_rng(int(100 * correlation))
    baseline, own = random.standard_normal((2, MANY, 32))
    noise = correlation * baseline + np.sqrt(1 - correlation**2) * own - baseline
    margin = baseline[:, :8].std(1, ddof=1) / 2
    calls = simulate(noise, margin).calls
    tiny = simulate(noise, margin / 100).calls
    false = [simulate(noise + side * margin[:, None], margin).rate(EQUIVALENT) for side in (1, -1)]
    equivalent = simulate(noise, margin).rate(EQUIVALENT)
    say(
        capsys,
        f"margin from the data, correlation {correlation}",
        calls=calls,
        calls_tiny_margin=tiny,
        false_equivalent=max(false),
        right_equivalent=equivalent,
    )
    assert max(calls, tiny) <= 0.05
    assert max(false) <= 0.05


@pytest.mark.parametrize("shape", ["standard_normal", "standard_exponential"])
def test_eight_arms(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(8)
    arms = getattr(random, shape)((FEWER, 9, 32))
    differences = arms[:, 1:] - arms[:, :1]
    family = float((simulate_arms(differences, 0.01) > 0).any(1).mean())
    effects = np.array([0.0, 0.0, 0.0, 0.0, 0.7, 1.0, 1.5, 2.0])
    mixed = simulate_arms(differences + effects[:, None], 0.01)
    false, power = float((mixed[:, :4] > 0).any(1).mean()), (mixed[:, 4:] == BETTER).mean(0)
    say(
        capsys,
        f"eight arms, {shape}",
        none=family,
        four=false,
        **{f"power_{k}": p for k, p in enumerate(power)},
    )
    assert family <= 0.05
    assert false <= 0.05


def test_false_equivalence_among_eight_arms(capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(9)
    arms = random.standard_normal((FEWER, 9, 32))
    margin = 1.5
    differences = arms[:, 1:] - arms[:, :1] + margin
    wrong = float((simulate_arms(differences, margin) == EQUIVALENT).any(1).mean())
    say(capsys, "eight arms at the margin", any_false_equivalent=wrong)
    assert wrong <= 0.05
