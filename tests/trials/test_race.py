"""Races on numbers that nobody trained: who stops when, what is shared, and how often a race is wrong."""

import math
import statistics
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import apoint.verdict.decision as decision
from apoint.errors import DamagedError, DivergedError, UsageError
from apoint.store.sealed import write_sealed
from apoint.trials.race import (
    BASELINE,
    TIERS,
    Declared,
    Outcome,
    Race,
    programme,
    read_declared,
)
from apoint.verdict import decide, decide_arms

LOOKS = (8, 16, 24, 32)


def rules(**changes: Any) -> Declared:
    """A declaration in which only what a race reads means anything."""
    values: dict[str, Any] = {
        "recipe": "made-up", "fingerprint": "0", "values": {}, "metric": "test_accuracy", "budget": {},
        "higher_is_better": True, "time_budget": 60.0, "expected_seconds": 1.0, "margin": 0.5,
        "margin_rule": "given", "alpha": 0.05, "looks": LOOKS, "num_winners": 3, "first_seed": 0, "vary": (),
        "cap": {"value": None, "rule": ""}, "candidates": (),
    }  # fmt: skip
    return Declared(**values | changes)


class Numbers:
    """Made-up replicas: the baseline's luck with a seed, plus each arm's effect and its own noise."""

    def __init__(self, effects: dict[str, float], seed: int = 0, noise: float = 1.0) -> None:
        self.effects, self.seed, self.noise = effects, seed, noise
        self.asked: list[tuple[str, int]] = []

    def value(self, name: str, seed: int) -> float:
        luck = np.random.default_rng([self.seed, seed]).standard_normal()
        if name == BASELINE:
            return float(luck)
        place = list(self.effects).index(name)
        own = np.random.default_rng([self.seed, seed, place]).standard_normal()
        return float(luck + self.effects[name] + self.noise * own)

    def __call__(self, wanted: list[tuple[str, int]]) -> list[Outcome]:
        self.asked += wanted
        return [Outcome(self.value(*each)) for each in wanted]


def raced(numbers: Any, names: list[str], **changes: Any) -> Race:
    race = Race(names, rules(**changes), numbers)
    race.run()
    return race


# -- the race ----------------------------------------------------------------------------------------------


def test_each_replica_is_trained_once_and_the_baseline_serves_all() -> None:
    numbers = Numbers({"good": 3.0, "bad": -3.0, "null": 0.0})
    race = raced(numbers, ["good", "bad", "null"])
    assert max(Counter(numbers.asked).values()) == 1
    counts = Counter(name for name, _ in numbers.asked)
    assert counts["good"] == counts["bad"] == 8, "what is decided trains no more"
    assert counts[BASELINE] == counts["null"] > 8
    assert [race.lanes[name].verdict.outcome for name in ("good", "bad")] == ["better", "worse"]
    assert [lane.name for lane in race.winners] == ["good"]


def test_the_verdicts_are_those_of_all_candidates_together() -> None:
    numbers = Numbers({"a": 1.2, "b": 0.0, "c": 0.6, "d": -0.4}, seed=3)
    race = raced(numbers, list("abcd"))
    expected = decide_arms(
        [numbers.value(BASELINE, seed) for seed in range(32)],
        {name: [numbers.value(name, seed) for seed in range(32)] for name in "abcd"},
        0.5,
        looks=LOOKS,
    )
    for name, verdict in expected.items():
        found = race.lanes[name].verdict
        assert (found.outcome, found.pairs, found.interval) == (
            verdict.outcome,
            verdict.pairs,
            verdict.interval,
        )


def test_among_many_a_candidate_needs_more_evidence_than_alone() -> None:
    for seed in range(40):
        numbers = Numbers({"a": 0.9, **{str(n): 0.0 for n in range(9)}}, seed=seed)
        among, alone = raced(numbers, list(numbers.effects)), raced(numbers, ["a"])
        assert among.lanes["a"].verdict.pairs >= alone.lanes["a"].verdict.pairs
        if among.lanes["a"].verdict.pairs > alone.lanes["a"].verdict.pairs:
            return
    raise AssertionError("never did the company of others make a difference")


def test_one_candidate_is_judged_as_in_a_comparison() -> None:
    numbers = Numbers({"a": 0.7}, seed=5)
    found = raced(numbers, ["a"]).lanes["a"].verdict
    arms = [[numbers.value(name, seed) for seed in range(32)] for name in (BASELINE, "a")]
    alone = decide(*arms, margin=0.5, looks=LOOKS)
    assert (found.outcome, found.pairs, found.interval) == (alone.outcome, alone.pairs, alone.interval)


def test_more_than_ten_candidates_race_too() -> None:
    effects = {"good": 3.0, **{f"null-{n}": 0.0 for n in range(14)}}
    race = raced(Numbers(effects), list(effects))
    assert [lane.name for lane in race.winners] == ["good"]
    assert len(race.lanes["good"].outcomes) <= 16


def test_seeds_begin_where_they_are_told_and_the_direction_counts() -> None:
    numbers = Numbers({"a": -3.0})
    race = raced(numbers, ["a"], first_seed=500, higher_is_better=False)
    assert {seed for _, seed in numbers.asked} == set(range(500, 508))
    assert race.lanes["a"].verdict.outcome == "better"
    assert race.lanes["a"].verdict.seeds == tuple(range(500, 508))


def test_the_pilot_comes_first_and_gives_the_margin() -> None:
    numbers, kept = Numbers({"a": 0.0}), []
    race = Race(["a"], rules(margin=None), numbers, keep=lambda race: kept.append(race.margin))
    race.run()
    assert numbers.asked[:8] == [(BASELINE, seed) for seed in range(8)]
    spread = statistics.stdev(numbers.value(BASELINE, seed) for seed in range(8))
    assert race.margin == pytest.approx(spread / 2)
    assert kept[0] == race.margin
    assert max(Counter(numbers.asked).values()) == 1


def test_the_race_ends_when_time_does_and_what_is_decided_stands() -> None:
    numbers, needed = Numbers({"good": 3.0, "null": 0.0}), []
    race = Race(["good", "null"], rules(), numbers, has_time=lambda n: bool(needed.append(n)))
    race.run()
    assert race.ended_early
    assert needed == [16], "the next look would take eight of the baseline and eight of what is open"
    assert race.lanes["good"].verdict.outcome == "better"
    assert race.lanes["null"].verdict.outcome == "undecided"


def failing(numbers: Numbers, names: set[str]) -> Any:
    def train(wanted: list[tuple[str, int]]) -> list[Outcome]:
        good = numbers(wanted)
        lost = Outcome(math.nan, "diverged", "the loss is nan")
        return [lost if name in names else each for (name, _), each in zip(wanted, good, strict=True)]

    return train


@pytest.mark.parametrize("cap", [-5.0, None])
def test_a_candidate_that_always_fails_is_worse(cap: float | None) -> None:
    numbers = Numbers({"a": 0.0, "b": 0.0})
    race = raced(failing(numbers, {"a"}), ["a", "b"], cap={"value": cap, "rule": ""})
    assert race.lanes["a"].verdict.outcome == "worse"
    assert race.lanes["a"].to_dict()["states"][0] == "diverged"


def test_a_baseline_that_fails_is_said_so() -> None:
    numbers = Numbers({"a": 0.0})
    with pytest.raises(DivergedError, match=r"failed in 8 of its first 8 seeds \(the loss is nan\)"):
        raced(failing(numbers, {BASELINE}), ["a"], margin=None)


def test_a_lane_tells_what_it_knows_in_plain_values() -> None:
    lane = raced(Numbers({"a": 3.0}), ["a"]).lanes["a"]
    values = lane.to_dict()
    assert values["verdict"]["outcome"] == "better"
    assert len(values["runs"]) == len(values["states"]) == 8


def test_a_declaration_is_read_as_it_was_written(tmp_path) -> None:
    declared = rules(not_tried=({"label": "x", "why": "no time"},), vary=("init",))
    write_sealed(tmp_path / "declaration.json", declared.to_dict())
    assert read_declared(tmp_path) == declared
    assert read_declared(tmp_path / "nowhere") is None
    text = (tmp_path / "declaration.json").read_text()
    (tmp_path / "declaration.json").write_text(text.replace('"alpha": 0.05', '"alpha": 0.50'))
    with pytest.raises(DamagedError, match="has changed since apoint wrote it"):
        read_declared(tmp_path)


# -- what fits into the time -------------------------------------------------------------------------------


@given(st.integers(1, 40), st.floats(1, 5000))
@settings(max_examples=200, deadline=None)
def test_a_programme_fits_into_the_time(num_candidates: int, num_replicas: float) -> None:
    if num_replicas < 24:
        with pytest.raises(UsageError, match="needs 24"):
            programme(num_candidates, num_replicas)
        return
    plan = programme(num_candidates, num_replicas)
    assert 1 <= plan.num_candidates <= num_candidates
    assert plan.race_replicas + plan.later_replicas <= num_replicas
    assert plan.looks[-1] in TIERS
    assert plan.looks[0] >= 6
    more = programme(num_candidates, 2 * num_replicas)
    assert more.num_candidates * more.looks[-1] >= plan.num_candidates * plan.looks[-1]


@pytest.mark.parametrize(
    ("num_candidates", "num_replicas", "tried", "pairs"),
    [
        (18, 100_000, 18, 32),  # all of it
        (18, 27 * 16, 18, 16),  # all of them, with half the pairs
        (18, 20 * 16, 11, 16),  # some of them, with as many pairs
        (18, 26, 1, 6),  # one, with the fewest pairs that can tell anything
        (1, 24, 1, 6),
        (2, 48, 1, 8),
        (1, 48, 1, 12),
    ],
)
def test_time_goes_to_pairs_then_to_candidates(
    num_candidates: int, num_replicas: float, tried: int, pairs: int
) -> None:
    plan = programme(num_candidates, num_replicas)
    assert (plan.num_candidates, plan.looks[-1]) == (tried, pairs)


def test_too_little_time_is_refused() -> None:
    with pytest.raises(UsageError, match=r"there is time for 23 replicas, and one candidate.*needs 24"):
        programme(5, 23.9)


# -- how often a race is wrong -----------------------------------------------------------------------------


@pytest.fixture
def plain_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what is reported beside a verdict and takes most of the time; it decides nothing."""
    monkeypatch.setattr(decision, "sign_flip_p", lambda differences: 1.0)
    monkeypatch.setattr(decision, "further_pairs", lambda *arguments: None)


class Quick(Numbers):
    """The same law as `Numbers`, drawn at once."""

    def __init__(self, effects: dict[str, float], seed: int, noise: float = 1.0) -> None:
        super().__init__(effects, seed, noise)
        draw = np.random.default_rng(seed)
        luck = draw.standard_normal(LOOKS[-1])
        self.table = {BASELINE: luck}
        for name, effect in effects.items():
            self.table[name] = luck + effect + noise * draw.standard_normal(LOOKS[-1])

    def value(self, name: str, seed: int) -> float:
        return float(self.table[name][seed])


def share_of_races_with_a_false_call(num_races: int, looks: tuple[int, ...], first: int = 0) -> float:
    names = {f"null-{n}": 0.0 for n in range(8)}
    wrong = 0
    for seed in range(first, first + num_races):
        race = raced(Quick(names, seed), list(names), margin=0.05, looks=looks)
        wrong += any(lane.verdict.outcome in ("better", "worse") for lane in race.lanes.values())
    return wrong / num_races


def test_eight_candidates_that_do_nothing_seldom_win(plain_verdicts) -> None:
    # One comparison each at 5 % would call something in a quarter of the races: 12 of 50. At 5 %, more than
    # 6 of 50 has a chance of 1 %; the seeds are fixed.
    assert share_of_races_with_a_false_call(50, (8, 12)) <= 6 / 50


@pytest.mark.slow
def test_eight_candidates_that_do_nothing_win_in_five_races_of_a_hundred(plain_verdicts) -> None:
    assert share_of_races_with_a_false_call(2000, LOOKS) <= 0.05


def test_a_truly_better_candidate_wins_and_its_winning_effect_flatters_it(plain_verdicts) -> None:
    """The winner's curse: among races that were won, the race's estimate is too large, a fresh one is not."""
    effects = {"good": 1.0, **{f"null-{n}": 0.0 for n in range(7)}}
    in_race, fresh, won = [], [], 0
    for seed in range(50):
        race = raced(Quick(effects, seed), list(effects), margin=0.05, looks=(8, 12))
        lane = race.lanes["good"]
        if lane.verdict.outcome == "better":
            won += 1
            again = Quick(effects, 10_000 + seed)
            in_race.append(lane.verdict.effect)
            fresh.append(float(np.mean(again.table["good"] - again.table[BASELINE])))
    assert 10 <= won < 50
    error = 1 / math.sqrt(LOOKS[-1] * won)  # of the mean of the fresh estimates
    assert statistics.fmean(in_race) > 1.0 + 3 * error
    assert abs(statistics.fmean(fresh) - 1.0) < 3 * error


def test_rules_can_be_changed_only_by_replacing_them() -> None:
    assert replace(rules(), margin=1.0) != rules()
