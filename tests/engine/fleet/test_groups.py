"""Which tasks are trained together, and which way is predicted to be fastest."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apoint.engine.fleet import choose as choosing
from apoint.engine.fleet.choose import ExecutionPlan, Work, choose, makespan, ways
from apoint.engine.fleet.groups import compose, even_sizes, place_of
from apoint.engine.fleet.probe import Timing
from apoint.engine.fleet.tally import Tally
from tests.engine.fleet.common import TINY, tasks_of


@given(number=st.integers(0, 200), most=st.integers(1, 40))
def test_even_sizes_are_few_and_even(number: int, most: int) -> None:
    sizes = even_sizes(number, most)
    assert sum(sizes) == number
    assert all(1 <= size <= most for size in sizes)
    assert len(sizes) == -(-number // most)
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(order=st.lists(st.integers(0, 2), max_size=20), stack=st.integers(1, 6))
def test_groups_hold_one_recipe_in_the_order_given(order: list[int], stack: int) -> None:
    recipes = [tasks_of(TINY, [0], {"batch_size": size})[0] for size in (8, 16, 32)]
    tasks = [
        type(recipes[kind])(recipes[kind].recipe, recipes[kind].document, seed)
        for seed, kind in enumerate(order)
    ]
    groups = compose(tasks, stack)
    assert sorted(task.seed for group in groups for task in group) == list(range(len(tasks)))
    for group in groups:
        assert len(group) <= stack
        assert len({task.recipe.fingerprint for task in group}) == 1
        assert [task.seed for task in group] == sorted(task.seed for task in group)
    assert compose(tasks, stack) == groups


def test_a_stack_has_a_place_of_its_own() -> None:
    keys = [{"seed": 0, "code": "a"}, {"seed": 1, "code": "a"}]
    places = {
        place_of(Path("runs"), chosen) for chosen in (keys, keys[:1], keys[::-1], [{**keys[0], "code": "b"}])
    }
    assert len(places) == 4
    assert place_of(Path("runs"), keys) == place_of(
        Path("runs"), [dict(reversed(key.items())) for key in keys]
    )
    assert place_of(Path("runs"), keys).parent == Path("runs/.stacks")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 3))
def test_makespan_of_a_list_against_a_simulation(durations: list[int], workers: int) -> None:
    waiting, running, clock = list(durations), [], 0
    while waiting or running:
        while waiting and len(running) < workers:
            running.append(waiting.pop(0))
        clock += 1
        running = [left - 1 for left in running if left > 1]
    assert makespan(durations, workers) == clock


def timing(**changes: Any) -> Timing:
    seconds = {"step_seconds": 0.01, "evaluation_seconds": 0.1, "building_seconds": 0.1, "sync_seconds": 0.0}
    counts = {"total_steps": 1000, "evaluations": 10, "memory_bytes": 10**8, "stacked_bytes": 10**8}
    return Timing(**{**seconds, **counts, **changes})


def test_the_arithmetic_of_a_timing() -> None:
    one = timing(stacked={4: 0.02, 8: 0.03})
    assert one.alone == pytest.approx(1000 * 0.01 + 0.1 + 10 * 0.1)
    assert one.together(4) == pytest.approx(1000 * 0.02 + 4 * 1.1)
    assert one.together(6) == pytest.approx(1000 * 0.025 + 6 * 1.1)
    assert one.together(16) == pytest.approx(1000 * 0.05 + 16 * 1.1), "beyond, along the last line"
    assert one.together(1) == one.alone
    evaluated = timing(stacked={4: 0.02}, evaluated={4: 0.2})
    assert evaluated.together(4) == pytest.approx(1000 * 0.02 + 4 * 0.1 + 10 * 0.2)
    noisy = timing(stacked={4: 0.02, 8: 0.019})
    assert noisy.together(32) >= noisy.together(8), "more replicas never take less"


def fastest(work: Work, workers: int = 2, memory: int | None = None) -> Any:
    return choose(work, ways(work, "auto", workers, None), memory)


def test_the_fastest_way_is_chosen_and_the_numbers_are_said() -> None:
    slow = Work([(timing(), 12)])
    chosen = fastest(slow)
    assert chosen.way == ExecutionPlan("pool", 2)
    assert chosen.seconds == pytest.approx(choosing.START_SECONDS + 6 * 11.1 * choosing.COMPANY)
    assert chosen.per_backend == {"loop": pytest.approx(12 * 11.1), "pool of 2": chosen.seconds}
    assert chosen.sentence.startswith(
        "fleet: pool of 2, because 12 replicas will take about 75 s that way, against"
    )
    assert "2 min as loop" in chosen.sentence
    assert fastest(Work([(timing(total_steps=5, evaluations=1), 4)])).backend == "loop", (
        "workers must start first"
    )
    assert fastest(Work([(timing(total_steps=5, evaluations=1), 40)], start_seconds=0.0)).backend == "pool"
    quick = Work([(timing(stacked={8: 0.012, 32: 0.02}), 32)])
    assert fastest(quick).way in (ExecutionPlan("stacked", 1, 32), ExecutionPlan("pool+stacked", 2, 16))
    assert fastest(quick, workers=1).way == ExecutionPlan("stacked", 1, 32)


def test_what_is_less_simple_has_to_be_faster_by_more_than_a_measurement_errs() -> None:
    work = Work([(timing(stacked={2: 0.0192, 4: 0.0380}, building_seconds=0.0, evaluations=0), 4)])
    seconds = {
        way: work.seconds(way)
        for way in (ExecutionPlan("loop"), ExecutionPlan("stacked", 1, 2), ExecutionPlan("stacked", 1, 4))
    }
    assert list(seconds.values()) == pytest.approx([40.0, 38.4, 38.0])
    assert choose(work, list(seconds)[:2], None).backend == "loop", "4 % are not enough"
    assert choose(work, list(seconds)[1:], None).stack == 2, "nor is 1 % for a larger stack"
    clearly = Work([(timing(stacked={2: 0.0189, 4: 0.0368}, building_seconds=0.0, evaluations=0), 4)])
    assert choose(clearly, list(seconds), None).stack == 4


def test_each_way_can_win() -> None:
    grid = itertools.product((10, 1000, 100000), (1.1, 4.0, 40.0), (0.0, 0.4), (2, 16, 64))
    won = set()
    for steps, factor, beside, number in grid:
        stacked = {8: 0.01 * factor, 32: 0.01 * factor * 3}
        won.add(
            fastest(
                Work([(timing(total_steps=steps, stacked=stacked, evaluation_seconds=beside), number)])
            ).backend
        )
    assert won == {"loop", "stacked", "pool", "pool+stacked"}


def test_memory_takes_workers_away() -> None:
    work = Work([(timing(memory_bytes=10**9), 16)])
    chosen = fastest(work, workers=8, memory=4 * 10**9)
    assert chosen.way == ExecutionPlan("pool", 3)
    assert chosen.memory_bytes <= 4 * 10**9
    assert "pool of 8 would need 9.9 GB of the 4.0 GB there are" in chosen.sentence
    assert fastest(work, workers=8, memory=10**8).backend == "loop", "one has to be tried"
    few = Work([(timing(memory_bytes=10**9), 2)])
    assert few.memory(ExecutionPlan("pool", 8)) == few.memory(ExecutionPlan("pool", 2)), (
        "there are no more workers than work"
    )


def test_a_replica_without_companions_need_not_be_stackable() -> None:
    stackable = timing(stacked={8: 0.012})
    assert Work([(stackable, 8), (timing(), 1)]).stackable
    assert not Work([(stackable, 8), (timing(), 2)]).stackable


def test_why_replicas_are_not_stacked_is_said() -> None:
    work = Work([(timing(refusal="it draws random numbers of its own"), 16)])
    assert "not stacked, since it draws random numbers of its own" in fastest(work).sentence
    assert not any("stacked" in name for name in fastest(work).per_backend)


def test_the_time_left_is_the_work_left_at_the_speed_so_far() -> None:
    now = [0.0]
    tasks = tasks_of(TINY, range(4))
    tally = Tally(tasks, 2, clock=lambda: now[0])
    assert tally.moment().remaining_seconds is None
    now[0] = 3.0  # workers start
    tally.begin(tasks[:2])
    now[0] = 5.0
    tally.step(tasks[0], 0.5)
    tally.step(tasks[1], 0.5)
    moment = tally.moment()
    assert (moment.done, moment.total, moment.cached, moment.running) == (2, 6, 2, 2)
    assert moment.remaining_seconds == pytest.approx(2.0 * 3 / 1)
    assert moment.progress == pytest.approx(0.25)
    tally.end(tasks[0])
    tally.end(tasks[1], failed=True)
    now[0] = 7.0
    assert tally.moment().remaining_seconds == pytest.approx(4.0)
    assert tally.moment().failed == 1
    for task in tasks[2:]:
        tally.end(task)
    assert tally.moment().remaining_seconds == 0.0


def test_what_was_done_before_is_no_speed() -> None:
    now = [0.0]
    tasks = tasks_of(TINY, range(2))
    tally = Tally(tasks, 0, clock=lambda: now[0])
    tally.begin(tasks[:1])
    tally.inherit(tasks[0], 0.5)
    now[0] = 1.0
    tally.step(tasks[0], 0.75)
    assert tally.moment().remaining_seconds == pytest.approx(1.25 / 0.25)


def test_replicas_count_by_what_they_take() -> None:
    now = [0.0]
    tasks = tasks_of(TINY, range(2))
    tally = Tally(tasks, 0, clock=lambda: now[0])
    tally.weigh(lambda task: 1.0 + 8.0 * task.seed)
    tally.begin(tasks)
    now[0] = 1.0
    tally.end(tasks[0])
    assert tally.moment().remaining_seconds == pytest.approx(9.0)
