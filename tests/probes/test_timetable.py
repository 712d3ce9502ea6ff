"""Probes keep to their share of the time, whatever they cost, and say when they were left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apoint.probes.timetable import AIM, Entry, Timetable


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(
    costs: dict[str, float], every: dict[str, int], budget: float, steps: int, step_seconds: float = 0.01
) -> tuple[Timetable, dict[str, list[int]]]:
    """A training of so many steps with probes of known cost; the steps at which each was made."""
    clock = Clock()
    # As a guess from passes would be: right within a factor of two.
    entries = {name: Entry(every[name], 0.6 * cost / step_seconds) for name, cost in costs.items()}
    table = Timetable(entries, budget, steps, clock)
    made: dict[str, list[int]] = {name: [] for name in costs}
    for step in range(steps + 1):
        if step:
            clock.now += step_seconds
        table.trained_until(step)
        for name in table.due(step):
            with table.charged(name):
                clock.now += costs[name]
            made[name].append(step)
    return table, made


def test_what_is_cheap_is_made_whenever_it_is_wanted() -> None:
    table, made = run({"a": 0.001, "b": 0.002}, {"a": 10, "b": 100}, 0.05, 1000)
    assert made == {"a": list(range(0, 1001, 10)), "b": list(range(0, 1001, 100))}
    assert not table.thinned()
    assert table.share == pytest.approx((101 * 0.001 + 11 * 0.002) / 10)


def test_what_is_dear_is_thinned_out_and_said() -> None:
    table, made = run({"dear": 0.1}, {"dear": 10}, 0.05, 1000)
    assert 2 <= len(made["dear"]) <= 3
    assert made["dear"][0] == 0
    assert table.share <= 0.05
    sentence = table.thinned()["dear"]
    assert f"made {len(made['dear'])} times of 101" in sentence
    assert "takes 0.1 s, as long as 10 training steps" in sentence
    assert "5%" in sentence


def test_what_is_far_too_dear_is_never_made() -> None:
    table, made = run({"absurd": 5.0}, {"absurd": 10}, 0.05, 1000)
    assert made["absurd"] == []
    assert "would cost about 300 training steps" in table.thinned()["absurd"]


@given(
    st.dictionaries(
        st.sampled_from("abcd"), st.tuples(st.floats(1e-5, 0.5), st.integers(1, 300)), min_size=1
    ),
    st.floats(0.01, 0.3),
    st.integers(200, 2000),
)
def test_the_budget_holds(probes: dict[str, tuple[float, int]], budget: float, steps: int) -> None:
    costs = {name: cost for name, (cost, _) in probes.items()}
    table, made = run(costs, {name: every for name, (_, every) in probes.items()}, budget, steps)
    # Before a probe was made once its cost is a guess, here at worst 1/0.6 too low.
    assert table.spent <= budget * table.trained / 0.6 + 1e-9
    for name, (_, every) in probes.items():
        assert all(step % every == 0 for step in made[name])


def test_probes_share_the_budget() -> None:
    _, made = run({"a": 0.05, "b": 0.05}, {"a": 10, "b": 10}, 0.05, 2000)
    assert abs(len(made["a"]) - len(made["b"])) <= 1
    assert made["a"]


def test_the_length_of_training_need_not_be_known() -> None:
    clock = Clock()
    table = Timetable({"a": Entry(1, 2.0)}, 0.1, None, clock)
    table.trained_until(0)
    for step in range(1, 3000):
        clock.now += 0.01
        table.trained_until(step)
        for name in table.due(step):
            with table.charged(name):
                clock.now += 0.02
    assert table.share <= 0.1
    assert table.share > 0.95 * AIM * 0.1, "what may be spent is spent"


def test_what_was_dearer_than_thought_leaves_no_time_for_the_next() -> None:
    clock = Clock()
    table = Timetable({"a": Entry(10, 1.0), "b": Entry(10, 1.0)}, 0.05, 1000, clock)
    table.trained_until(0)
    clock.now += 1.0
    table.trained_until(10)
    assert table.due(10) == ["a", "b"]
    assert table.allows("b")
    with table.charged("a"):
        clock.now += 100.0
    assert not table.allows("b")
