"""Further replicas of the baseline: the estimate against other ways to get it, its laws, and its rates."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from apoint.errors import UsageError
from apoint.verdict import Verdict, decide, further
from apoint.verdict.further import FEWEST_PAIRS, sharpened
from apoint.verdict.moments import Moments, skewness
from studies.verdict.cached import CASES, NEVER, Case, draw_arms, judged, measure, paths_of
from studies.verdict.rule import NAMES

LOOKS = (6, 8, 12, 16, 24)
Arms = tuple[np.ndarray, np.ndarray, np.ndarray]


def arms(seed: int, pairs: int = 12, more: int = 20, rho: float = 0.0) -> Arms:
    """Baseline, candidate and further replicas of the baseline."""
    draw = np.random.default_rng(seed)
    baseline, own = draw.standard_normal((2, pairs))
    return baseline, rho * baseline + math.sqrt(1 - rho**2) * own, draw.standard_normal(more)


def plain(differences: np.ndarray) -> Moments:
    return Moments(
        len(differences), float(differences.mean()), float(differences.std(ddof=1)), skewness(differences)
    )


def moments_of(baseline: np.ndarray, candidate: np.ndarray, more: np.ndarray) -> tuple[Moments, Moments]:
    paired = plain(candidate - baseline)
    return paired, sharpened(paired, candidate - baseline, baseline, more)


# -- against other ways to get it ----------------------------------------------------------------------------


def test_without_doubt_the_weight_is_the_one_that_minimises_the_variance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(further, "DOUBT", 0.0)
    baseline, candidate, more = arms(1)
    difference, spread = candidate - baseline, np.concatenate([baseline, more]).var(ddof=1)

    def variance(weight: float) -> float:
        return float((difference + weight * baseline).var(ddof=1) / 12 + weight**2 * spread / len(more))

    best = optimize.minimize_scalar(variance)
    _, found = moments_of(baseline, candidate, more)
    assert found.mean == pytest.approx(difference.mean() + best.x * (baseline.mean() - more.mean()), rel=1e-6)
    assert found.deviation == pytest.approx(math.sqrt(12 * best.fun), rel=1e-9)


def test_with_very_many_further_replicas_it_is_the_regression_line_at_their_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(further, "DOUBT", 0.0)
    baseline, candidate, _ = arms(2)
    more = np.random.default_rng(3).standard_normal(4_000_000)
    line = stats.linregress(baseline, candidate - baseline)
    _, found = moments_of(baseline, candidate, more)
    assert found.mean == pytest.approx(line.intercept + line.slope * more.mean(), abs=1e-5)


@pytest.mark.parametrize("rho", [0.0, 0.2, -0.3])
def test_the_doubt_is_about_the_f_statistic(rho: float) -> None:
    baseline, candidate, more = arms(4, rho=rho)
    difference = candidate - baseline
    r = stats.linregress(baseline, difference).rvalue
    share = 1 - 2 / ((12 - 2) * r**2 / (1 - r**2))
    assert share > 0, "else this test shows nothing"
    cov, ratio = np.cov(difference, baseline), 12 / len(more)
    q = cov[1, 1] + ratio * np.concatenate([baseline, more]).var(ddof=1)
    _, found = moments_of(baseline, candidate, more)
    shift = -share * cov[0, 1] / q * (baseline.mean() - more.mean())
    assert found.mean == pytest.approx(difference.mean() + shift)
    assert found.deviation**2 == pytest.approx(cov[0, 0] - share**2 * cov[0, 1] ** 2 / q)


def test_the_skewness_is_that_of_the_estimate() -> None:
    """Brute force: the third moment of Σ(u)/n − w·Σ(f)/m over independent draws from the two samples."""
    draw = np.random.default_rng(5)
    baseline, candidate, more = (draw.exponential(size=n) for n in (9, 9, 7))
    candidate *= 0.2
    paired, found = moments_of(baseline, candidate, more)
    weight = (found.mean - paired.mean) / (baseline.mean() - more.mean())
    parts = candidate - baseline + weight * baseline
    every = np.concatenate([baseline, more])
    means = draw.choice(parts, (400_000, 9)).mean(1) - weight * draw.choice(every, (400_000, 7)).mean(1)
    assert weight > 0.3
    assert found.skewness == pytest.approx(3 * stats.skew(means), abs=0.03)


# -- laws ----------------------------------------------------------------------------------------------------


numbers = st.floats(-3, 3).map(lambda x: round(x, 6))


@st.composite
def some_arms(draw: st.DrawFn) -> Arms:
    pairs, more = draw(st.integers(6, 14)), draw(st.integers(1, 12))
    lists = [draw(st.lists(numbers, min_size=n, max_size=n)) for n in (pairs, pairs, more)]
    return tuple(np.array(each) for each in lists)  # type: ignore[return-value]


@given(some_arms())
def test_the_standard_error_is_never_above_that_of_the_pairs(drawn: Arms) -> None:
    paired, found = moments_of(*drawn)
    assert found.deviation <= paired.deviation * (1 + 1e-9)


@given(some_arms(), st.floats(-5, 5), st.floats(0.1, 10))
@settings(deadline=None)
def test_shift_scale_order_and_direction(drawn: Arms, shift: float, scale: float) -> None:
    baseline, candidate, more = drawn
    assume(np.ptp(baseline) > 0.1 and np.ptp(candidate - baseline) > 0.1)
    _, found = moments_of(*drawn)
    assume(not found.hidden)
    _, moved = moments_of(baseline * scale + shift, candidate * scale + shift, more[::-1] * scale + shift)
    assert moved.mean == pytest.approx(found.mean * scale, abs=1e-6)
    assert moved.deviation == pytest.approx(found.deviation * scale, abs=1e-6)
    up = decide(baseline, candidate, 0.5, looks=(6,), further_baseline=more, resolution=0.0)
    down = decide(
        -baseline, -candidate, 0.5, looks=(6,), further_baseline=-more, resolution=0.0, higher_is_better=False
    )
    assert (down.effect, down.interval, down.outcome) == (up.effect, up.interval, up.outcome)


def test_it_changes_smoothly_where_the_slope_becomes_clear() -> None:
    """Along a line of candidates the slope becomes clear at some place; nothing jumps there."""
    baseline, own, more = arms(6, pairs=8)
    line = np.linspace(0, 1, 4_001)
    found = [moments_of(baseline, (1 - t) * baseline + 0.5 * own, more) for t in line]
    gain = np.array([paired.deviation - sharp.deviation for paired, sharp in found])
    means = np.array([sharp.mean for _, sharp in found])
    assert (gain == 0).any()
    assert (gain > 0.05).any()
    assert np.abs(np.diff(means)).max() < 5e-3
    assert np.abs(np.diff(gain)).max() < 5e-3


@given(some_arms())
@settings(deadline=None)
def test_none_is_the_rule_without(drawn: Arms) -> None:
    baseline, candidate, _ = drawn
    seeds = range(len(baseline))
    without = decide(baseline, candidate, 0.5, seeds=seeds)
    for nothing in ((), {}, np.array([])):
        assert decide(baseline, candidate, 0.5, seeds=seeds, further_baseline=nothing) == without
    among = dict(zip(range(6), baseline.tolist(), strict=False))  # at the first look all of them are pairs
    assert decide(baseline, candidate, 0.5, seeds=seeds, further_baseline=among) == without


def test_fewer_than_six_pairs_are_left_alone() -> None:
    baseline, candidate, more = arms(7)
    assert decide(baseline, candidate, 0.5, looks=(12,), further_baseline=more).interval != (
        decide(baseline, candidate, 0.5, looks=(12,)).interval
    )
    few = FEWEST_PAIRS - 1
    paired, found = moments_of(baseline[:few], candidate[:few], more)
    assert found == paired


# -- in a comparison -----------------------------------------------------------------------------------------


def test_a_replica_counts_once_and_a_decided_look_stays() -> None:
    """Seeds 0 to 23 of the baseline are known: a look at n pairs has 24 − n beside the pairs."""
    baseline, candidate, _ = arms(8, pairs=24)
    known = dict(enumerate(baseline.tolist()))
    whole = decide(baseline, candidate, 0.1, looks=LOOKS, seeds=range(24), further_baseline=known)
    for place, n in enumerate(LOOKS[:4]):
        beside = decide(baseline[:n], candidate[:n], 0.1, looks=LOOKS, seeds=range(n), further_baseline=known)
        assert whole.looks[: place + 1] == beside.looks
        assert len(beside.further_baseline) == 24 - n
        plain_list = decide(
            baseline[:n], candidate[:n], 0.1, looks=LOOKS, further_baseline=baseline[n:].tolist()
        )
        assert plain_list.looks[-1] == beside.looks[-1]
    assert whole.further_baseline == ()
    assert whole.paired_interval is None


def test_failed_replicas_count_as_the_cap() -> None:
    baseline, candidate, more = arms(9)
    failed, at_cap = more.copy(), more.copy()
    failed[[2, 5]], at_cap[[2, 5]] = math.nan, -2.0
    given_cap = decide(baseline, candidate, 0.1, looks=(12,), cap=-2.0, further_baseline=failed)
    capped = np.maximum(at_cap, -2.0)
    assert given_cap.further_baseline == tuple(capped.tolist())
    same = decide(baseline, candidate, 0.1, looks=(12,), cap=-2.0, further_baseline=capped)
    assert given_cap.interval == same.interval
    # Without a cap: the worst that was seen, in the pairs or beside them.
    failed[0] = -9.0
    assert min(decide(baseline, candidate, 0.1, looks=(12,), further_baseline=failed).further_baseline) == -9
    assert decide(baseline, candidate, 0.1, looks=(12,), further_baseline=failed).further_baseline[2] == -9


def test_a_candidate_that_never_varies_is_not_taken_as_known() -> None:
    """Six times the same number does not show what a seventh seed would give."""
    baseline, _, more = arms(10, pairs=6, more=400)
    verdict = decide(baseline, np.full(6, 0.3), 0.1, looks=(6,), further_baseline=more, resolution=0.0)
    everyone = np.concatenate([baseline, more])
    assert min(abs(verdict.effect - end) for end in verdict.interval) > 0.3 * everyone.std()


def test_what_is_wrong_is_said() -> None:
    baseline, candidate, _ = arms(11)
    with pytest.raises(UsageError, match="number 2 of the further baseline is 'x', which is no number"):
        decide(baseline, candidate, 0.1, further_baseline=[0.1, "x"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="give the pairs' seeds as well"):
        decide(baseline, candidate, 0.1, further_baseline={40: 0.1})


def test_the_card_and_the_record_say_it() -> None:
    baseline, candidate, more = arms(12, more=26)
    verdict = decide(baseline, candidate, 0.1, looks=(12,), further_baseline=more)
    assert verdict.paired_interval == decide(baseline, candidate, 0.1, looks=(12,)).interval
    assert "26 replicas beyond the pairs sharpen the baseline's mean; from the pairs alone" in " ".join(
        str(verdict).split()
    )
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict
    older = {key: value for key, value in verdict.to_dict().items() if "further_base" not in key}
    older.pop("paired_interval")
    assert Verdict.from_dict(older) == replace(verdict, further_baseline=(), paired_interval=None)
    together = decide(baseline, baseline + 0.01 * candidate, 0.1, looks=(12,), further_baseline=more)
    assert "no gain here" in str(together)


# -- rates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: case.name)
def test_the_simulated_rule_is_the_rule(case: Case) -> None:
    """Over all cases more than 300 comparisons."""
    num, random = 4, np.random.default_rng(len(case.name))
    drawn = draw_arms(case, random, num)
    deviation = float((drawn.candidate - drawn.baseline).std())
    effect = float(random.choice([0.0, 0.5, 1.0])) * deviation
    margin = float(random.choice([0.1, 0.5, 1.0])) * deviation
    result = judged(case, paths_of(case, drawn), margin, effect)
    joins = np.broadcast_to(drawn.joins, drawn.further.shape)
    for k in range(num):
        known = {
            1000 + place if join == NEVER else int(join): float(drawn.further[k, place])
            for place, join in enumerate(joins[k])
            if join >= 0
        }
        verdict = decide(
            drawn.baseline[k],
            drawn.candidate[k] + effect,
            margin,
            anytime=case.anytime,
            seeds=range(drawn.baseline.shape[1]),
            resolution=case.noise.step,
            further_baseline=known,
        )
        assert verdict.outcome == NAMES[result.outcome[k]]
        assert verdict.pairs == result.pairs[k]
        assert (verdict.interval[0] <= effect <= verdict.interval[1]) == result.covered[k]
        assert verdict.effect == pytest.approx(result.effect[k], abs=1e-9)


@pytest.mark.parametrize("case", [CASES[13], CASES[10], CASES[58]], ids=lambda case: case.name)
def test_rates_and_gain(case: Case) -> None:
    """A slice of the study; three standard errors are allowed."""
    num = 2_000
    found, alone = measure(case, num), measure(case, num, doubt=math.inf)
    allowed = 3 * math.sqrt(0.05 * 0.95 / num)
    calls, coverage, equivalent = case.limits
    assert 0.01 < found["false_calls"] <= calls + allowed
    assert found["coverage"] >= coverage - allowed
    assert found["false_equivalent"] <= equivalent + allowed
    assert found["pairs 1"] <= alone["pairs 1"] - 1.5


def test_the_cases_are_what_they_say() -> None:
    case = CASES[13]
    drawn = draw_arms(case, np.random.default_rng(0), 2_000)
    assert np.corrcoef(drawn.baseline.ravel(), drawn.candidate.ravel())[0, 1] == pytest.approx(
        case.rho, abs=0.02
    )
    assert drawn.candidate.std() / drawn.baseline.std() == pytest.approx(case.spread, abs=0.02)
    assert drawn.further.shape == (2_000, case.further)
