"""Many arms: Holm and e-BH against their definitions, and laws."""

import math

import numpy as np
import pytest
from scipy import stats

from apoint.errors import UsageError
from apoint.verdict import decide, decide_arms, evidence, nominal_alpha
from tests.verdict.simulation import NAMES, simulate_arms

PLAN = (8, 16, 24, 32)
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


def test_a_single_look_is_holms_procedure_on_students_p_values() -> None:
    eased = 0
    for seed in range(60):
        baseline, arms = symmetric_arms(seed, [0.0, 0.55, 0.6, 0.65, 0.8], n=16)
        verdicts = decide_arms(baseline, arms, TINY, looks=(16,))
        p_values = np.array([stats.ttest_rel(arm, baseline).pvalue for arm in arms.values()])
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
            inside = -margin < lower and upper < margin
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
    if not verdict.switched:
        level = nominal_alpha(PLAN, verdict.interval_alpha)
        assert verdict.looks[-1].multiplier == pytest.approx(stats.t.ppf(1 - level / 2, verdict.pairs - 1))


def test_arms_that_stopped_early_keep_their_verdict() -> None:
    baseline, arms = draw_arms(7, [0.0, 0.4, 1.0, 2.0])
    whole = decide_arms(baseline, arms, TINY)
    stopped = {name: numbers[: whole[name].pairs] for name, numbers in arms.items()}
    again = decide_arms(baseline, stopped, TINY)
    assert {name: verdict.looks for name, verdict in again.items()} == {
        name: verdict.looks for name, verdict in whole.items()
    }
    for pairs in PLAN:
        early = decide_arms(baseline[:pairs], {name: arm[:pairs] for name, arm in arms.items()}, TINY)
        for name, verdict in early.items():
            if verdict.outcome != "undecided":
                assert (whole[name].outcome, whole[name].interval) == (verdict.outcome, verdict.interval)


def test_the_simulated_rule_is_this_rule() -> None:
    draw = np.random.default_rng(11)
    for shape in (draw.standard_normal, draw.standard_exponential):
        noise = shape((25, 7, 20))
        differences = noise[:, 1:] - noise[:, :1] + np.linspace(0, 2.5, 6)[None, :, None]
        outcomes = simulate_arms(differences, 0.9, looks=(8, 14, 20))
        for row, found in zip(differences, outcomes, strict=True):
            arms = {str(k): arm for k, arm in enumerate(row)}
            verdicts = decide_arms(np.zeros(20), arms, 0.9, looks=(8, 14, 20))
            assert [verdict.outcome for verdict in verdicts.values()] == [NAMES[code] for code in found]


# -- beyond ten -----------------------------------------------------------------------------------------


def ebh_rejects(e_values: np.ndarray, alpha: float) -> np.ndarray:
    """Wang and Ramdas (2022): the largest k with k e-values of at least K/(k·α)."""
    order = np.sort(e_values)[::-1]
    good = [k for k in range(1, len(order) + 1) if order[k - 1] >= len(order) / (k * alpha)]
    return e_values >= len(order) / (good[-1] * alpha) if good else np.zeros(len(order), dtype=bool)


def test_more_than_ten_arms_are_judged_by_e_values() -> None:
    gained = 0
    for seed in range(12):
        baseline, arms = symmetric_arms(seed, [0.0] * 6 + [1.0] * 6, n=20)
        verdicts = decide_arms(baseline, arms, TINY)
        last = {name: evidence((arms[name] - baseline)[: one.pairs]) for name, one in verdicts.items()}
        found = np.array([verdict.outcome != "undecided" for verdict in verdicts.values()])
        rejected = ebh_rejects(np.array(list(last.values())), 0.05)
        assert (rejected <= found).all(), "what e-BH calls at the end is called, here or earlier"
        called = sum(found)
        for name, verdict in verdicts.items():
            assert verdict.anytime
            if verdict.outcome != "undecided":
                assert last[name] >= 1 / verdict.interval_alpha * (1 - 1e-9)
                assert verdict.interval_alpha <= called * 0.05 / 12 + 1e-12
                gained += verdict.interval_alpha > 0.05 / 12 + 1e-12
    assert gained, "some call must have been eased by others"


def test_the_share_of_false_calls_among_many_arms_is_small() -> None:
    shares = []
    for seed in range(25):
        baseline, arms = draw_arms(seed, [0.0] * 9 + [2.0] * 3, n=14)
        called = [
            name for name, one in decide_arms(baseline, arms, TINY).items() if one.outcome != "undecided"
        ]
        false = [name for name in called if int(name.split()[1]) < 9]
        shares.append(len(false) / max(1, len(called)))
    assert np.mean(shares) < 0.05


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
