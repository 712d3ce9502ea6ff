"""Groups of replicas in one computation: who is grouped, where a stack keeps its state, and refusals."""

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from apoint.engine import Options, checkpoint
from apoint.engine.api import Session
from apoint.engine.fleet import Ended, Fleet, FleetMoment, Task, call, work
from apoint.engine.signals import TrainingInterruptedError
from apoint.engine.stacked import CannotStackError
from apoint.errors import DivergedError
from apoint.store import Run
from tests.engine.fleet.common import DIVERGING, TINY, disagreement, ends, tasks_of
from tests.engine.fleet.conftest import Crew

LONG = {"epochs": 240}  # long enough to be left in
CALLS: list[tuple[list[str], Path]] = []


def stack(
    sessions: Sequence[Session], folder: Path, watch: Callable[[Any], None], say: Callable[[str], None]
) -> None:
    """In place of a real stack: trains the sessions one after the other, and keeps a note in its folder."""
    CALLS.append(([session.folder.name for session in sessions], folder))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state").write_text("somewhere")
    for session in sessions:
        with contextlib.suppress(DivergedError):
            session.run(watch)


def refuse(sessions: Sequence[Session], folder: Path, watch: Any, say: Any) -> None:
    raise CannotStackError("its model draws lots")


def interrupt(sessions: Sequence[Session], folder: Path, watch: Any, say: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    raise TrainingInterruptedError(15, "stopped")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()
    monkeypatch.setattr(call, "WATCH_SECONDS", 0.0)  # every step is seen, however fast the machine is
    monkeypatch.setattr(work, "STEPPED_SECONDS", 0.0)


def fleet(root: Path, stacker: Any, said: list[str] | None = None, **settings: Any) -> Fleet:
    say = (said if said is not None else []).append
    return Fleet(Options(runs_root=root), "stacked", say=say, stacker=stacker, **settings)


def test_groups_are_of_one_recipe_and_leave_no_folder(tmp_path: Path) -> None:
    other = tasks_of(TINY, range(3), {"batch_size": 32})
    mixed = [task for pair in zip(tasks_of(TINY, range(3)), other, strict=True) for task in pair]
    tasks = [*mixed, *tasks_of(TINY, range(3, 5))]
    results = fleet(tmp_path, stack, stack=4).train(tasks)
    assert all(ended.state == "finished" for ended in results)
    assert [len(names) for names, _ in CALLS] == [3, 2, 3]
    for names, folder in CALLS:
        assert len({name.rsplit("-s", 1)[0] for name in names}) == 1
        assert folder.parent == tmp_path / ".stacks"
        assert not folder.exists()
    assert len({folder for _, folder in CALLS}) == 3
    assert not (tmp_path / ".stacks").exists()


def test_a_single_replica_is_trained_as_it_is(tmp_path: Path) -> None:
    fleet(tmp_path, stack, stack=8).train(tasks_of(TINY, [0]))
    assert CALLS == []


def test_members_that_diverge_are_told_apart(tmp_path: Path) -> None:
    results = fleet(tmp_path, stack).train(tasks_of(TINY, range(2), DIVERGING))
    assert [ended.state for ended in results] == ["diverged"] * 2
    assert "diverged at step" in results[0].reason


def test_a_refused_stack_is_trained_one_by_one_and_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    tasks = tasks_of(TINY, range(4))
    results = fleet(tmp_path / "a", refuse, said, stack=2).train(tasks)
    assert [ended.state for ended in results] == ["finished"] * 4
    told = [sentence for sentence in said if "draws lots" in sentence]
    assert told == ["fleet: not stacked, but one after the other, because its model draws lots"]
    twins = Fleet(Options(runs_root=tmp_path / "b"), "loop").train(tasks)
    for ended, twin in zip(results, twins, strict=True):
        assert disagreement(ended.folder, twin.folder) == ""


def test_the_same_groups_are_made_again(tmp_path: Path) -> None:
    tasks = tasks_of(TINY, range(6))
    Fleet(Options(runs_root=tmp_path), "loop").train(tasks[1:2])
    with pytest.raises(TrainingInterruptedError, match="stopped with 1 of 6 replicas done"):
        fleet(tmp_path, interrupt, stack=3).train(tasks)
    (left,) = (tmp_path / ".stacks").iterdir()
    fleet(tmp_path, stack, stack=3).train(tasks)
    assert [len(names) for names, _ in CALLS] == [2, 3]
    assert CALLS[0][1] == left, "the member that had ended still counts in the name"


def test_the_size_of_stacks_suits_the_number_of_tasks(tmp_path: Path) -> None:
    fleet(tmp_path, stack).train(tasks_of(TINY, range(5), {"epochs": 0.3}))
    assert [len(names) for names, _ in CALLS] == [5]


def test_what_was_begun_alone_goes_on_alone(tmp_path: Path) -> None:
    from apoint.engine import train

    tasks = tasks_of(TINY, range(3))

    def stop(moment: Any) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        train(tasks[1].recipe, 1, runs_root=tmp_path, threads=1, checkpoint_every="2 steps", watch=stop)
    fleet(tmp_path, stack).train(tasks)
    assert [[name[-2:] for name in names] for names, _ in CALLS] == [["s0", "s2"]]


# -- with the engine's own stacks --------------------------------------------------------------------------


def weights(folder: Path) -> torch.Tensor:
    saved = checkpoint.newest(folder, lambda text: None)
    assert saved is not None
    return torch.cat([tensor.flatten().double() for _, tensor in sorted(saved.tensors["model"].items())])


def distance(one: Path, other: Path) -> float:
    return float((weights(one) - weights(other)).norm() / weights(other).norm())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    root = tmp_path_factory.mktemp("alone")
    return Fleet(Options(runs_root=root), "loop").train(tasks_of(TINY, range(4), LONG))


def test_a_real_stack_comes_to_the_same(alone: list[Ended], tmp_path: Path) -> None:
    with Fleet(Options(runs_root=tmp_path), "stacked") as fleet:
        results = fleet.train(tasks_of(TINY, range(4), LONG))
        assert fleet.sentence == "fleet: stacked by 4, as asked"
    for ended, twin in zip(results, alone, strict=True):
        assert ended.state == "finished"
        assert ended.seconds > 0
        assert distance(ended.folder, twin.folder) < 1e-3
        assert Run(ended.folder).env["key"] == {**Run(twin.folder).env["key"], "arithmetic": "stacked"}
    assert not (tmp_path / ".stacks").exists()
    again = Fleet(Options(runs_root=tmp_path), "loop").train(tasks_of(TINY, range(4), LONG))
    assert all(ended.cached for ended in again), "what was stacked is taken by a loop"
    taken = Fleet(Options(runs_root=alone[0].folder.parent), "stacked").train([ended.task for ended in alone])
    assert all(ended.cached for ended in taken), "and the other way round"


def test_a_stack_whose_process_is_killed_goes_on(crew: Crew, alone: list[Ended], tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(moment: FleetMoment) -> None:
        if moment.progress > 0.1 and not killed:
            killed.extend(member.process.pid or 0 for member in crew.pool._members if member.group)
            os.kill(killed[0], signal.SIGKILL)

    often = {"checkpoint_every": "10 steps"}
    fleet = crew.at(tmp_path, "pool+stacked", options=often, stack=4, watch=kill)
    results = fleet.train(tasks_of(TINY, range(4), LONG))
    assert len(killed) == 1
    for ended, twin in zip(results, alone, strict=True):
        assert ended.state == "finished"
        assert distance(ended.folder, twin.folder) < 1e-3
        kinds = [event["kind"] for event in Run(ended.folder).events]
        assert kinds.count("start") == kinds.count("resume") == 1
        assert ends(ended.folder) == ["finished"]
    assert not (tmp_path / ".stacks").exists()


def half_a_stack(root: Path, tasks: list[Task]) -> None:
    """Leave a stack in the middle, as somebody does who presses Ctrl-C."""

    def leave(moment: FleetMoment) -> None:
        if 0.05 < moment.progress < 0.9:
            os.kill(os.getpid(), signal.SIGTERM)

    with (
        pytest.raises(TrainingInterruptedError),
        Fleet(Options(runs_root=root), "stacked", watch=leave) as fleet,
    ):
        fleet.train(tasks)
    assert [Run(task.folder(root)).state for task in tasks] == ["interrupted"] * len(tasks)
    assert len(list((root / ".stacks").iterdir())) == 1


def test_a_stack_that_was_left_goes_on_whatever_would_be_chosen(alone: list[Ended], tmp_path: Path) -> None:
    tasks = tasks_of(TINY, range(4), LONG)
    half_a_stack(tmp_path, tasks)
    with Fleet(Options(runs_root=tmp_path), "auto") as fleet:
        results = fleet.train(tasks)
        assert fleet.sentence == "fleet: stacked by 4, to resume what was interrupted"
    for ended, twin in zip(results, alone, strict=True):
        assert distance(ended.folder, twin.folder) < 1e-3
        assert "resume" in [event["kind"] for event in Run(ended.folder).events]


def test_a_stack_that_was_left_cannot_go_on_alone(alone: list[Ended], tmp_path: Path) -> None:
    tasks = tasks_of(TINY, range(4), LONG)
    half_a_stack(tmp_path, tasks)
    results = Fleet(Options(runs_root=tmp_path), "loop").train(tasks)
    for ended, twin in zip(results, alone, strict=True):
        assert disagreement(ended.folder, twin.folder) == ""
        assert Run(ended.folder.with_name(f"{ended.folder.name}.old-1")).state == "interrupted"
