"""Many arms: Holm against its definition, and laws."""

import math

import numpy as np
import pytest
from scipy import stats

from apoint.errors import UsageError
from apoint.verdict import decide, decide_arms, default_looks, planned_multiplier
from apoint.verdict.calibration import levels
from apoint.verdict.moments import corrected, skewness

TINY = 1e-6


def draw_arms(seed: int, effects: list[float], n: int = 32) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    draw = np.random.default_rng(seed)
    baseline = draw.normal(5, 1, n)
    return baseline, {f"arm {k}": draw.normal(5 + effect, 1, n) for k, effect in enumerate(effects)}


def symmetric_arms(seed: int, effects: list[float], n: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Differences without any skewness over all pairs, so that t decides."""
    draw = np.random.default_rng(seed)
    halves = draw.standard_normal((len(effects), n // 2))
    noise = draw.permuted(np.concatenate([halves, -halves], axis=1), axis=1)
    return np.zeros(n), {
        f"arm {k}": effect + row for k, (effect, row) in enumerate(zip(effects, noise, strict=True))
    }


def test_one_arm_is_a_plain_comparison() -> None:
    for seed in range(10):
        baseline, arms = draw_arms(seed, [0.8], n=24)
        assert decide_arms(baseline, arms, 0.1)["arm 0"] == decide(baseline, arms["arm 0"], 0.1)
        both = decide_arms(baseline, arms, 0.1, anytime=True)["arm 0"]
        assert both.outcome == decide(baseline, arms["arm 0"], 0.1, anytime=True).outcome


def holm_rejects(p_values: np.ndarray, alpha: float) -> np.ndarray:
    """Holm (1979) as it is written: from the smallest p-value on, stop at the first that is too large."""
    rejected = np.zeros(len(p_values), dtype=bool)
    for rank, index in enumerate(np.argsort(p_values)):
        if p_values[index] > alpha / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def p_value(differences: np.ndarray, alpha: float) -> float:
    """The largest error rate of a single look at which the differences are not called, by bisection."""
    n = len(differences)
    t = np.array([stats.ttest_1samp(differences, 0).statistic])
    touching = abs(float(corrected(t, np.array([skewness(differences)]), n)[0]))
    low, high = 1e-4, 0.9
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if planned_multiplier(n, (n,), middle) < touching else (middle, high)
    return high


def test_a_single_look_is_holms_procedure() -> None:
    eased = 0
    for seed in range(25):
        baseline, arms = symmetric_arms(seed, [0.0, 0.8, 0.85, 0.9, 1.1], n=16)
        verdicts = decide_arms(baseline, arms, TINY, looks=(16,))
        p_values = np.array([p_value(arm - baseline, 0.05) for arm in arms.values()])
        found = [verdict.outcome != "undecided" for verdict in verdicts.values()]
        assert found == holm_rejects(p_values, 0.05).tolist()
        eased += found != (p_values <= 0.05 / 5).tolist()
    assert eased >= 3, "Holm must have gained something over Bonferroni in some draws"


def test_every_interval_agrees_with_its_call() -> None:
    margin, outcomes = 0.6, set()
    for seed in range(12):
        baseline, arms = draw_arms(seed, [0.0, 0.0, 0.5, 1.0, 1.5], n=20)
        for verdict in decide_arms(baseline, arms, margin, looks=(8, 14, 20)).values():
            lower, upper = verdict.interval
            inside = -margin < verdict.equivalence_interval[0] and verdict.equivalence_interval[1] < margin
            outcomes.add(verdict.outcome)
            if verdict.outcome == "better":
                assert lower > 0
                assert not inside
            elif verdict.outcome == "equivalent":
                assert inside
                assert verdict.interval_alpha == pytest.approx(0.01)
            else:
                assert lower <= 0 <= upper
                assert not inside
            assert 0.01 - 1e-12 <= verdict.interval_alpha <= 0.05
    assert outcomes >= {"better", "undecided"}


def test_the_level_of_a_call_is_calibrated_for_the_looks() -> None:
    baseline, arms = draw_arms(4, [2.0, 2.0, 2.0, 2.0, 0.9])
    verdict = decide_arms(baseline, arms, TINY)["arm 4"]
    assert verdict.outcome == "better"
    level = levels(default_looks(5), verdict.interval_alpha).at(np.array([float(verdict.pairs)]))[0]
    assert verdict.looks[-1].multiplier == pytest.approx(stats.t.isf(level / 2, verdict.pairs - 1))


def test_arms_that_stopped_early_keep_their_verdict() -> None:
    baseline, arms = draw_arms(7, [0.0, 0.4, 1.0, 2.0])
    whole = decide_arms(baseline, arms, TINY)
    stopped = {name: numbers[: whole[name].pairs] for name, numbers in arms.items()}
    again = decide_arms(baseline, stopped, TINY)
    assert {name: verdict.looks for name, verdict in again.items()} == {
        name: verdict.looks for name, verdict in whole.items()
    }
    for pairs in (10, 16, 24, 32):
        early = decide_arms(baseline[:pairs], {name: arm[:pairs] for name, arm in arms.items()}, TINY)
        for name, verdict in early.items():
            if verdict.outcome != "undecided":
                assert (whole[name].outcome, whole[name].interval) == (verdict.outcome, verdict.interval)


def test_one_strong_arm_of_six_is_called_at_its_first_look() -> None:
    """With 8 pairs and α/K an effect of five deviations was called in a third of the races."""
    draw, first, found = np.random.default_rng(5), default_looks(6)[0], 0
    for _ in range(100):
        arms = {str(k): draw.normal(5 * (k == 0), 1, 32) for k in range(6)}
        verdict = decide_arms(np.zeros(32), arms, TINY)["0"]
        found += verdict.outcome == "better" and verdict.pairs == first
    assert found >= 90


def test_a_real_gain_is_found_alone_and_as_one_of_six() -> None:
    """Digits, learning rate 2e-3 to 5e-3: differences of the first eight seeds, 25 points of accuracy."""
    gains = [0.189, 0.262, 0.245, 0.318, 0.271, 0.203, 0.282, 0.262]
    alone = decide(np.zeros(8), gains, 0.01, looks=(8,))
    others = {str(k): np.random.default_rng(k).normal(0, 0.05, 8) for k in range(5)}
    among = decide_arms(np.zeros(8), {"gain": gains, **others}, 0.01, looks=(8,))["gain"]
    assert alone.outcome == among.outcome == "better"


def test_twenty_arms_are_judged_by_the_same_rule() -> None:
    baseline, arms = draw_arms(3, [0.0] * 15 + [3.0] * 5)
    verdicts = decide_arms(baseline, arms, TINY)
    called = [name for name, verdict in verdicts.items() if verdict.outcome == "better"]
    assert called == [f"arm {k}" for k in range(15, 20)]
    assert not any(verdict.anytime for verdict in verdicts.values())


# -- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arms", "sentence"),
    [
        ({}, "there is no arm to compare"),
        ({"a": [1.0] * 9}, "arm 'a': it has 9 numbers and the baseline 8: each needs its partner"),
        ({"a": [1.0] * 8, "b": ["x"] * 8}, "arm 'b': number 1 of the candidate is 'x'"),
        ({"a": [1.0]}, "arm 'a': 1 pair cannot show a difference"),
        ({"a": [math.nan] * 8}, "arm 'a': all 8 replicas of the candidate failed"),
    ],
)
def test_wrong_arms_are_named(arms: dict, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        decide_arms([float(k) for k in range(8)], arms, 0.1)
