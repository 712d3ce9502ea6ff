"""The fleet from outside: how it chooses, what it says, what a user's mistakes get."""

import itertools
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import nn

from apoint.engine import Options, custom
from apoint.engine.api import Session
from apoint.engine.fleet import Ended, Fleet, FleetMoment, Task, planner, pool, probe
from apoint.engine.fleet import choose as choosing
from apoint.engine.fleet import machine as machines
from apoint.engine.fleet.probe import Timing, time_alone
from apoint.engine.fleet.timer import Timer, cost, likely_sizes
from apoint.errors import UsageError
from apoint.registry import register, registry
from apoint.store import Run
from tests.engine.fleet.common import TINY, disagreement, tasks_of
from tests.engine.fleet.conftest import Crew

SLOW = {"model.width": 256, "model.depth": 3, "epochs": 60}

# -- the choice --------------------------------------------------------------------------------------------


def test_a_small_job_is_a_loop_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    with Fleet(Options(runs_root=tmp_path), workers=2, say=said.append) as fleet:
        fleet.train(tasks_of(TINY, range(3)))
        assert fleet.sentence.startswith("fleet: loop, because 3 replicas will take about ")
        assert "as pool of 2" in fleet.sentence
        assert fleet.processes == []
        fleet.train(tasks_of(TINY, range(3, 6)))
    assert sum(sentence.startswith("fleet: loop") for sentence in said) == 1, "it is said when it changes"


def test_one_replica_needs_no_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner.Planner, "predict", lambda *_: pytest.fail("measured"))
    with Fleet(Options(runs_root=tmp_path)) as fleet:
        (ended,) = fleet.train(tasks_of(TINY, [0]))
        assert not ended.cached
        assert fleet.train(tasks_of(TINY, [0]))[0].cached
        assert "nothing to train" in fleet.plan(tasks_of(TINY, [0])).sentence


def test_a_plan_writes_nothing_and_counts_what_there_is_to_do(tmp_path: Path) -> None:
    tasks = tasks_of(TINY, range(6), {"epochs": 40})
    with Fleet(Options(runs_root=tmp_path / "runs"), "loop") as fleet:
        plan, twice = fleet.plan(tasks[:3]), fleet.plan(tasks)
        assert twice.seconds == pytest.approx(2 * plan.seconds), "by the same timing"
        assert list(tmp_path.iterdir()) == []
        assert (plan.backend, plan.workers, plan.stack) == ("loop", 1, 1)
        assert plan.memory_bytes > 0
        assert plan.sentence.startswith("fleet: loop, as asked: 3 replicas will take about")


def test_plans_of_all_backends(tmp_path: Path) -> None:
    tasks = tasks_of(TINY, range(8), SLOW)
    for backend in ("loop", "stacked", "pool", "pool+stacked"):
        assert Fleet(Options(runs_root=tmp_path), backend, workers=2).plan(tasks).backend == backend
    auto = Fleet(Options(runs_root=tmp_path), workers=2).plan(tasks)
    assert set(auto.per_backend) >= {"loop", "pool of 2", "stacked by 8", "pool of 2, stacked by 4"}
    assert auto.seconds == pytest.approx(min(auto.per_backend.values()), rel=0.06)


def test_the_probe_is_bounded_by_the_work(tmp_path: Path) -> None:
    short, long = (
        time_alone(tasks_of(TINY, [0], {"epochs": epochs})[0], Options(runs_root=tmp_path, threads=1), 1.0, 4)
        for epochs in (2, 2000)
    )
    assert short.total_steps == 20
    assert long.total_steps == 20000
    assert short.alone < long.alone
    timing = Timing(1.0, 0.0, 1.0, 0.0, 100, 1, 0)
    assert cost(timing, 4) > 10


def test_the_sizes_that_are_timed_are_those_that_may_be_used() -> None:
    assert likely_sizes(8, 2) == [4, 2, 8]
    assert likely_sizes(8, 1) == [8, 4]
    assert likely_sizes(2, 2) == [2]
    assert likely_sizes(1, 2) == []
    for replicas, workers in itertools.product((2, 3, 8, 31, 100), (1, 2, 5)):
        work = choosing.Work([(Timing(1.0, 0.0, 1.0, 0.0, 100, 1, 0), replicas)])
        used = {*choosing.stack_sizes(work, 1), *choosing.stack_sizes(work, workers)}
        assert used - {2} <= set(likely_sizes(replicas, workers))


def test_a_small_stack_is_tried_first_and_no_larger_one_if_no_worker_could_be_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def stacked(timing: Timing, tasks: list[Task], *_: Any) -> Timing:
        tried.append(len(tasks))
        return replace(timing, stacked={**timing.stacked, len(tasks): step})

    monkeypatch.setattr("apoint.engine.fleet.timer.time_stacked", stacked)
    monkeypatch.setattr(
        "apoint.engine.fleet.timer.time_alone", lambda *_: Timing(0.001, 0.0, 0.0, 0.0, 1000, 1, 0)
    )
    tasks = tasks_of(TINY, range(16))
    step = 0.00109  # of 1000 in each of 4 groups: 4.36 s; shared among two, 2 + 1.1 * 4.36 / 2 = 4.4
    Timer(Options(runs_root=tmp_path)).work(tasks, True, 2.0, 2)
    assert tried == [4]
    tried.clear()
    step = 0.00113  # 4.52 s, and 4.49 shared
    Timer(Options(runs_root=tmp_path)).work(tasks, True, 2.0, 2)
    assert tried == [4, 8], "twice 8 then are done in time"


@pytest.mark.parametrize(
    ("step", "replicas", "sure"),
    [(0.003, 20, False), (0.003, 30, True), (0.001, 100, False), (0.001, 1300, True)],
)
def test_workers_are_sure_sooner_where_steps_are_heavy(step: float, replicas: int, sure: bool) -> None:
    """Of 100 steps each: 6 s and 9 s of heavy steps, 10 s and 130 s of light ones."""
    work = choosing.Work([(Timing(step, 0.0, 0.0, 0.0, 100, 1, 0), replicas)])
    assert Timer(Options()).is_sure_of_workers(work) == sure
    light = Timing(0.0001, 0.0, 0.0, 0.0, 100, 1, 0), 1
    if step > 0.002:
        mixed = choosing.Work([*work.recipes, light])
        assert not Timer(Options()).is_sure_of_workers(mixed), "stacks may save the light ones"


def test_several_recipes_keep_several_workers_busy_as_one_stack_each() -> None:
    timing = Timing(1.0, 0.0, 1.0, 0.0, 100, 1, 0)
    assert choosing.stack_sizes(choosing.Work([(timing, 8)]), 2) == [2, 4]
    assert choosing.stack_sizes(choosing.Work([(timing, 8), (timing, 8)]), 2) == [2, 4, 8]
    assert choosing.stack_sizes(choosing.Work([(timing, 8)] * 2), 8) == [2], "a recipe alone for four workers"


def test_reading_the_data_is_not_taken_for_building(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, slow, whole, clock = [0.0], iter([1e6, 0.0, 0.0, 0.0]), Session.assemble, time.process_time

    def assemble(self: Session) -> Any:
        late[0] += next(slow)  # the clock jumps, as if reading the data had taken days
        return whole(self)

    monkeypatch.setattr(Session, "assemble", assemble)
    monkeypatch.setattr(probe.time, "process_time", lambda: clock() + late[0])
    monkeypatch.setattr(probe, "READ_SECONDS", 1e9)
    timing = time_alone(tasks_of(TINY, [0])[0], Options(runs_root=tmp_path, threads=1), 1.0, 4)
    assert timing.building_seconds < 1e5


def test_workers_of_long_work_start_while_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apoint.engine.fleet.timer.SURE_SECONDS", 0.01)
    tasks = tasks_of(TINY, range(4))
    with Fleet(Options(runs_root=tmp_path), workers=2) as fleet:
        fleet.plan(tasks)
        assert fleet.processes == [], "a plan alone starts nothing"
        fleet.plan(tasks, begin=True)
        assert len(fleet.processes) == 2
        fleet.train(tasks)
        assert ("pool" in fleet.sentence.split("because")[0]) == bool(fleet.processes)
        fleet.settle(choosing.ExecutionPlan("loop"), "fleet: loop")
        fleet.train(tasks_of(TINY, range(4, 6)))
        assert fleet.processes == [], "those that are not needed are sent away"


def test_timings_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from apoint.engine.fleet import timer as timers

    timer, asked = Timer(Options(runs_root=tmp_path, threads=1)), []

    def counted(*arguments: Any) -> Timing:
        asked.append(arguments)
        return Timing(0.001, 0.0, 0.0, 0.0, 100, 1, 0)

    monkeypatch.setattr(timers, "time_alone", counted)
    tasks = [*tasks_of(TINY, range(2)), *tasks_of(TINY, range(2), {"batch_size": 8})]
    for _ in range(2):
        assert timer.work(tasks, True, None).replicas == 4
    assert len(asked) == 2
    assert timer.seconds(tasks[0]) == pytest.approx(0.1)
    for changes, known in (
        ({"optimizer.lr": 0.007}, True),
        ({"optimizer.name": "amsgrad", "optimizer.weight_decay": 0.01}, False),
        ({"optimizer.weight_decay": 0.0}, False),
    ):
        assert (timer.seconds(tasks_of(TINY, [0], changes)[0]) is not None) == known, changes


def test_a_stack_that_could_be_watched_for_a_moment_only_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    monkeypatch.setattr(
        "apoint.engine.fleet.timer.time_stacked", lambda timing, *_: tried.append(1) or timing
    )
    for seconds, is_tried in ((0.1, False), (0.11, True)):
        alone = Timing(seconds / 10000, 0.0, 0.0, 0.0, 10000, 1, 0)
        monkeypatch.setattr("apoint.engine.fleet.timer.time_alone", lambda *_, alone=alone: alone)
        tried.clear()
        Timer(Options(runs_root=tmp_path)).work(tasks_of(TINY, range(16)), True, 2.0, 2)
        assert bool(tried) == is_tried, "3 % of 1.6 s are less than 0.05 s, of 1.76 s they are more"


def test_the_machine_is_known() -> None:
    assert 1 <= machines.cores() <= (os.cpu_count() or 1)
    available = machines.available_memory()
    assert available is None or available > 10**7
    now, peak = machines.resident_memory()
    assert peak >= now > 0


def test_containers_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("1000000000\n")
    (tmp_path / "memory.current").write_text("400000000\n")
    monkeypatch.setattr(machines, "_GROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert machines.cores() == 2
    assert machines.available_memory() == 600_000_000
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machines.cores() == 8


@pytest.mark.parametrize(
    ("settings", "width"),
    [
        ({"backend": "loop"}, 1),
        ({"backend": "pool", "workers": 3}, 3),
        ({"backend": "stacked", "stack": 16}, 16),
        ({"backend": "pool+stacked", "workers": 2, "stack": 4}, 8),
        ({"backend": "auto", "workers": 2}, 2),
    ],
)
def test_how_wide_a_fleet_is(settings: dict[str, Any], width: int) -> None:
    assert Fleet(**settings).width == width


# -- what is told ------------------------------------------------------------------------------------------


def test_who_watches_sees_all_of_it(crew: Crew, tmp_path: Path) -> None:
    moments: list[FleetMoment] = []
    ended: list[Ended] = []
    fleet = crew.at(tmp_path, watch=moments.append)
    tasks = tasks_of(TINY, range(4), {"epochs": 150})
    results = fleet.train(tasks, on_end=ended.append)
    assert sorted(e.task.seed for e in ended) == [0, 1, 2, 3]
    assert [e.folder for e in results] == [task.folder(tmp_path) for task in tasks]
    assert moments[0].done == 0
    assert moments[-1].done == moments[-1].total == 4
    assert moments[-1].remaining_seconds == 0
    assert max(moment.running for moment in moments) == 2
    assert all(later.done >= earlier.done for earlier, later in itertools.pairwise(moments))
    assert any(0 < moment.progress < 1 and moment.remaining_seconds for moment in moments)


def test_a_mistake_found_by_a_worker_gets_the_same_sentence(crew: Crew, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("class Net:\n    def __init__(self, num_classes):\n        1 / 0\n")
    recipe = {**TINY, "model": {"file": str(tmp_path / "net.py"), "class": "Net"}}
    tasks = [*tasks_of(TINY, range(2)), *tasks_of(recipe, range(2))]
    sentences = set()
    for fleet in (crew.at(tmp_path / "pool"), Fleet(Options(runs_root=tmp_path / "loop"), "loop")):
        with pytest.raises(UsageError, match=r"Net in net.py could not be built: division by zero") as error:
            fleet.train(tasks)
        sentences.add(str(error.value))
    assert len(sentences) == 1
    assert crew.at(tmp_path / "after").train(tasks_of(TINY, [0]))[0].state == "finished", "the pool goes on"


def test_workers_of_other_code_are_refused_however_often_one_asks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pool.environment, "package_hash", lambda: "older")
    with Fleet(Options(runs_root=tmp_path), "pool", workers=1) as fleet:
        for _ in range(2):
            with pytest.raises(UsageError, match="code has changed"):
                fleet.train(tasks_of(TINY, [0]))


def test_an_error_of_the_caller_is_the_callers(crew: Crew, tmp_path: Path) -> None:
    def on_end(ended: Ended) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        crew.at(tmp_path).train(tasks_of(TINY, range(4)), on_end=on_end)
    results = crew.at(tmp_path).train(tasks_of(TINY, range(4)))
    assert [ended.state for ended in results] == ["finished"] * 4


USED = """
from torch import nn
import apoint
import os, pathlib

pathlib.Path({folder!r}, f"ran-{{os.getpid()}}").touch()

@apoint.register("activation", "soft-cube")
def soft_cube() -> nn.Module:
    '''A cube, softened.'''
    return Cube()

class Cube(nn.Module):
    def forward(self, x):
        return x ** 3 / (1 + x * x)
"""


def test_a_users_files_are_run_in_workers_too(crew: Crew, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(USED.format(folder=str(tmp_path)))
    custom.run_file(file)
    try:
        tasks = tasks_of(TINY, range(2), {"model.activation": "soft-cube"})
        pooled = crew.at(tmp_path / "pool").train(tasks)
        assert len(list(tmp_path.glob("ran-*"))) >= 2
        looped = Fleet(Options(runs_root=tmp_path / "loop"), "loop", files=[file]).train(tasks)
        for one, other in zip(pooled, looped, strict=True):
            assert disagreement(one.folder, other.folder) == ""
    finally:
        registry("activation")._entries.pop("soft-cube")


def test_relative_paths_mean_the_same_to_workers(
    crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "\n".join(f"{x},{x * x % 7},{x % 2}" for x in range(60))
    (tmp_path / "table.csv").write_text(f"a,b,label\n{rows}\n")
    monkeypatch.chdir(tmp_path)
    tasks = tasks_of({**TINY, "data": {"name": "csv", "path": "table.csv"}}, range(2))
    results = crew.at(Path("here")).train(tasks)
    assert [ended.state for ended in results] == ["finished"] * 2
    assert Run(tmp_path / results[0].folder).state == "finished"
    assert all(ended.cached for ended in crew.at(Path("here")).train(tasks))


def test_an_ingredient_of_the_running_script_stays_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))

    class Twice(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    def twice() -> nn.Module:
        """Twice."""
        return Twice()

    twice.__module__ = "__main__"
    register("activation", "twice")(twice)
    try:
        tasks = tasks_of(TINY, range(2), {"model.activation": "twice", "epochs": 0.3})
        with pytest.raises(UsageError, match="'tiny' uses an ingredient that the running script registers"):
            Fleet(Options(runs_root=tmp_path), "pool").train(tasks)
        with Fleet(Options(runs_root=tmp_path), "auto", workers=2) as fleet:
            assert not any("pool" in name for name in fleet.plan(tasks).per_backend)
            assert fleet.train(tasks)[0].state == "finished"
    finally:
        registry("activation")._entries.pop("twice")
