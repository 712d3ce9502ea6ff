"""Screens on numbers that nobody trained: who goes on, what is shared, and what fits into the time."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.errors import DamagedError, DivergedError, StorageError, UsageError
from apoint.store.sealed import write_sealed
from apoint.trials.outcome import Outcome
from apoint.trials.screening import Screen
from apoint.trials.search import BASELINE, Declared, read_declared
from apoint.trials.search_plan import EFFECTS, Plan, choose_plan, chosen_share, rungs
from apoint.verdict import DEFAULT_LOOKS


class Numbers:
    """Made-up replicas: the baseline's luck with a seed, plus each change's effect and its own noise."""

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


FOUR = {"a": 0.0, "b": 3.0, "c": 1.5, "d": -3.0}


def screened(numbers: Any, names: list[str], first_pairs: int = 4, **settings: Any) -> Screen:
    screen = Screen(names, rungs(len(names), first_pairs), numbers, **settings)
    screen.run()
    return screen


# -- the screen --------------------------------------------------------------------------------------------


def test_the_better_half_goes_on_and_the_base_serves_all() -> None:
    numbers = Numbers(FOUR, noise=0.1)
    screen = screened(numbers, list(FOUR))
    assert max(Counter(numbers.asked).values()) == 1, "no replica is trained twice"
    assert Counter(name for name, _ in numbers.asked) == {BASELINE: 8, "b": 8, "c": 8, "a": 4, "d": 4}
    assert screen.ranking() == ["b", "c", "a", "d"]
    assert {name for name, lane in screen.lanes.items() if not lane.dropped} == {"b"}


def test_who_got_further_stands_first_whatever_its_mean() -> None:
    """A lead on few seeds is worth less than having been chosen to go on."""
    screen = screened(Numbers({"a": 2.0, "b": 1.9, "c": 1.8, "d": 0.0}, noise=0.01), list("abcd"))
    assert screen.ranking()[:2] == ["a", "b"]
    for name in "ab":
        screen.lanes[name].outcomes[-1] = Outcome(-100.0)
    assert screen.effect("c") > max(screen.effect("a"), screen.effect("b"))
    assert screen.ranking()[2] == "c"


def test_the_numbers_are_paired_differences() -> None:
    numbers = Numbers({"a": 1.0, "b": 0.0}, seed=3)
    screen = screened(numbers, ["a", "b"], first_pairs=6)
    expected = [numbers.value("a", seed) - numbers.value(BASELINE, seed) for seed in range(6)]
    assert screen.differences("a") == pytest.approx(expected)
    assert screen.effect("a") == pytest.approx(np.mean(expected))
    assert screen.error("a") == pytest.approx(np.std(expected, ddof=1) / math.sqrt(6))
    told = screen.to_dict("a")
    assert (told["pairs"], told["effect"]) == (6, screen.effect("a"))


def test_seeds_begin_where_they_are_told_and_the_direction_counts() -> None:
    numbers = Numbers({"a": -3.0, "b": 3.0})
    screen = screened(numbers, ["a", "b"], first_seed=500, higher_is_better=False)
    assert {seed for _, seed in numbers.asked} == set(range(500, 504))
    assert screen.ranking() == ["a", "b"]
    assert screen.effect("a") > 0


def test_the_screen_ends_when_time_does() -> None:
    numbers, needed = Numbers(FOUR), []
    screen = screened(numbers, list(FOUR), has_time=lambda replicas: bool(needed.append(replicas)))
    assert screen.ended_early
    assert needed == [12], "four seeds more of the base and of the two changes that go on"
    assert screen.ranking()[0] == "b"


def failing(numbers: Numbers, names: set[str]) -> Any:
    def train(wanted: list[tuple[str, int]]) -> list[Outcome]:
        good = numbers(wanted)
        lost = Outcome(math.nan, "diverged", "the loss is nan")
        return [lost if name in names else each for (name, _), each in zip(wanted, good, strict=True)]

    return train


@pytest.mark.parametrize("cap", [-5.0, None])
def test_a_change_that_always_fails_comes_last(cap: float | None) -> None:
    screen = screened(failing(Numbers(FOUR), {"b"}), list(FOUR), cap=cap)
    assert screen.ranking()[-1] == "b"
    assert screen.lanes["b"].to_dict()["states"] == ["diverged"] * 4


def test_a_base_that_fails_is_refused_unless_a_margin_was_given() -> None:
    train = failing(Numbers(FOUR), {BASELINE})
    with pytest.raises(DivergedError, match=r"failed in 4 of its first 4 seeds \(seed 0: the loss is nan\)"):
        screened(train, list(FOUR))
    assert screened(train, list(FOUR), cap=-9.0, must_train=False).ranking()[0] == "b"


# -- how often the right one is chosen ---------------------------------------------------------------------


@pytest.mark.parametrize("effect", [0.5, 1.0])
def test_the_forecast_is_how_often_a_screen_chooses_right(effect: float) -> None:
    """The forecast is simulated without a screen; here screens are run. Noise of 1: a difference has √2."""
    names = [str(n) for n in range(8)]
    effects = {name: effect * math.sqrt(2) if name == "3" else 0.0 for name in names}
    chosen, num = 0, 150
    for seed in range(num):
        draw = np.random.default_rng([seed, round(10 * effect)])
        table = draw.standard_normal((9, 16))
        values = {BASELINE: table[8], **{name: table[int(name)] + effects[name] for name in names}}
        screen = screened(
            lambda wanted, values=values: [Outcome(float(values[name][seed])) for name, seed in wanted], names
        )
        chosen += screen.ranking()[0] == "3" and screen.effect("3") > 0
    expected = chosen_share(8, 4, effect)
    assert chosen / num == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / num))


def test_more_seeds_and_larger_effects_are_easier_and_one_change_needs_no_choice() -> None:
    assert chosen_share(8, 3, 0.5) < chosen_share(8, 6, 0.5) < chosen_share(8, 6, 1.0) < 1.0
    assert chosen_share(1, 4, 0.5) == 1.0
    assert chosen_share(8, 4, 0.0) < 1 / 8 + 0.03


# -- what fits into the time -------------------------------------------------------------------------------


def test_a_screen_halves() -> None:
    assert rungs(8, 4) == ((4, 4), (8, 2), (16, 1))
    assert rungs(5, 6) == ((6, 3), (12, 2), (24, 1))
    assert rungs(30, 10) == ((10, 15), (20, 8), (24, 1)), "nobody gets more than 24 pairs"
    assert rungs(1, 5) == ()


@given(st.integers(1, 40), st.floats(1, 2000))
@settings(max_examples=60, deadline=None)
def test_a_plan_fits_into_the_time(num_candidates: int, num_replicas: float) -> None:
    if num_replicas < 12:
        with pytest.raises(UsageError, match="needs at least 12"):
            choose_plan(num_candidates, num_replicas)
        return
    plan = choose_plan(num_candidates, num_replicas)
    assert 1 <= plan.num_candidates <= num_candidates
    assert plan.replicas <= num_replicas
    assert DEFAULT_LOOKS[: len(plan.looks)] == plan.looks


def test_replicas_are_counted_as_a_screen_trains_them() -> None:
    for num_candidates in (2, 5, 8):
        numbers = Numbers({str(n): 0.0 for n in range(num_candidates)})
        screened(numbers, list(numbers.effects), first_pairs=3)
        assert Plan(num_candidates, 3, (6,)).screen_replicas == len(numbers.asked)


def test_little_time_means_fewer_changes_and_more_time_more_pairs() -> None:
    short, middle, long = (choose_plan(25, replicas) for replicas in (60, 300, 3000))
    assert short.num_candidates < middle.num_candidates == long.num_candidates == 25
    assert short.looks[-1] < middle.looks[-1] == long.looks[-1] == 32
    assert middle.first_pairs < long.first_pairs
    assert long.replicas < 1000, "what gains next to nothing is not spent"
    for weak, strong in ((short, middle), (middle, long)):
        worth = [
            sum(plan.chance(effect) for effect in EFFECTS) * plan.num_candidates for plan in (weak, strong)
        ]
        assert worth[0] < worth[1]


def test_eight_changes_in_150_replicas() -> None:
    plan = choose_plan(8, 150)
    assert plan.num_candidates == 8
    assert plan.chance(0.5) > 0.5


# -- what is declared --------------------------------------------------------------------------------------


def rules(**changes: Any) -> Declared:
    values: dict[str, Any] = {
        "recipe": "made-up", "fingerprint": "0", "values": {}, "metric": "test_accuracy",
        "screen_metric": "validation_accuracy", "screen_changes": {"data.validation": 0.2},
        "screen_note": "", "budget": {}, "higher_is_better": True, "time_budget": 60.0,
        "expected_seconds": 1.0, "margin": None, "margin_rule": "given", "alpha": 0.05, "first_pairs": 4,
        "looks": (6, 7, 8), "forecast": {"0.5": 0.2}, "first_seed": 0, "vary": (),
        "cap": {"value": None, "rule": ""}, "screen_cap": None, "candidates": ({"label": "x"},) * 4,
    }  # fmt: skip
    return Declared(**values | changes)


def test_a_declaration_is_read_as_it_was_written(tmp_path) -> None:
    declared = rules(not_tried=({"label": "x", "why": "no time"},), vary=("init",))
    write_sealed(tmp_path / "declaration.json", declared.to_dict())
    assert read_declared(tmp_path) == declared
    assert read_declared(tmp_path / "nowhere") is None
    text = (tmp_path / "declaration.json").read_text()
    assert '"kept": 1' in text, "the steps of the screen are written out"
    (tmp_path / "declaration.json").write_text(text.replace('"alpha": 0.05', '"alpha": 0.50'))
    with pytest.raises(DamagedError, match="has changed since apoint wrote it"):
        read_declared(tmp_path)
    write_sealed(tmp_path / "declaration.json", {"schema_version": 1, "looks": [8, 16]})
    with pytest.raises(StorageError, match="written by another version"):
        read_declared(tmp_path)
