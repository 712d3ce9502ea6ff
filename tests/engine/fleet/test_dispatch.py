"""Groups are handed out, lost, found busy, refused; every task ends exactly once."""

import signal
from collections import Counter, deque
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apoint.engine import Options
from apoint.engine.failures import Failure
from apoint.engine.fleet import Group
from apoint.engine.fleet import dispatch as dispatching
from apoint.engine.fleet.backend import (
    GroupBegun,
    GroupBusy,
    GroupEnded,
    GroupLeft,
    GroupLost,
    GroupRefused,
    MemberEnded,
    MemberFailed,
    Report,
)
from apoint.engine.fleet.dispatch import Dispatch, Listener
from apoint.engine.signals import StopRequest
from apoint.errors import FaultError, TrainingError, UsageError


class Scripted:
    """A backend that does with each group what a script says: end, die, be busy, refuse."""

    catches_signals = False

    def __init__(self, capacity: int, script: Any) -> None:
        self.capacity, self.script = capacity, script
        self.running: deque[Group] = deque()
        self.events: deque[Any] = deque()
        self.seen: list[tuple[tuple[Any, ...], int]] = []
        self.interrupted = self.stopped = 0

    def start(self, report: Report) -> None:
        self.report = report

    def submit(self, group: Group) -> None:
        assert len(self.running) < self.capacity
        self.running.append(group)
        self.seen.append((group.tasks, len(self.running)))

    def wait(self, seconds: float) -> None:
        if self.running and not self.events:
            group = self.running[0]
            ended, how = self.script(group)
            finished = [MemberEnded(group.number, member, "finished") for member in ended]
            self.events.extend([GroupBegun(group.number), *finished, how])
        if self.events:
            event = self.events.popleft()
            if not isinstance(event, GroupBegun | MemberEnded | MemberFailed):
                self.running.popleft()
            self.report(event)

    def interrupt(self) -> None:
        self.interrupted += 1
        self.events.clear()
        while self.running:
            self.report(GroupLeft(self.running.popleft().number))

    def stop(self) -> None:
        self.stopped += 1


class Notes(Listener):
    def __init__(self) -> None:
        self.results: list[Any] = []
        self.said: list[str] = []

    def ended(self, task: Any) -> None:
        self.results.append(task)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def tasks_named(*names: str) -> tuple[Any, ...]:
    return tuple(SimpleNamespace(name=name, folder=lambda root, name=name: root / name) for name in names)


def grouped(*sizes: int) -> list[Group]:
    options = Options()
    return [
        Group(number, tasks_named(*(f"{number}.{member}" for member in range(size))), options, Path("place"))
        for number, size in enumerate(sizes)
    ]


def finish(group: Group) -> tuple[range, GroupEnded]:
    return range(len(group.tasks)), GroupEnded(group.number)


def run(groups: list[Group], backend: Scripted, **further: Any) -> tuple[Notes, int]:
    notes = Notes()
    further = {"held": [], "look_again": lambda tasks: tasks, **further}
    dispatch = Dispatch(backend, groups, further["held"], notes, further["look_again"])
    return notes, dispatch.run(StopRequest())


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    capacity=st.integers(1, 3),
    deaths=st.lists(st.booleans(), max_size=60),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=10),
)
def test_every_task_ends_once_however_workers_die(
    sizes: list[int], capacity: int, deaths: list[bool], shares: list[float]
) -> None:
    fate, share = iter(deaths), iter(shares * 100)

    def script(group: Group) -> tuple[range, Any]:
        if next(fate, False):
            return range(int(next(share) * len(group.tasks))), GroupLost(group.number, "was ended by SIGKILL")
        return finish(group)

    groups = grouped(*sizes)
    backend, notes = Scripted(capacity, script), Notes()
    fault = None
    try:
        assert Dispatch(backend, groups, [], notes, lambda tasks: tasks).run(StopRequest()) == 0
    except FaultError as error:
        fault = error
    tries = Counter(task.name for tasks, _ in backend.seen for task in tasks)
    names = [task.name for task in notes.results]
    every = {task.name for group in groups for task in group.tasks}
    assert len(set(names)) == len(names), "nothing ends twice"
    assert all(1 <= number <= 3 for number in tries.values())
    assert (set(names) == every) == (fault is None)
    if fault is not None:
        assert 3 in tries.values()
        assert "died 3 times" in str(fault)


def test_a_lost_group_goes_first_and_then_alone() -> None:
    def script(group: Group) -> tuple[range, Any]:
        if any(task.name == "0.2" for task in group.tasks):
            return range(0), GroupLost(group.number, "was ended by SIGKILL")
        return finish(group)

    groups = grouped(3, 1, 1, 1)
    backend, notes = Scripted(2, script), Notes()
    sentence = r"^0\.2 could not be trained: its process died 3 times; the last one was"
    with pytest.raises(FaultError, match=sentence):
        Dispatch(backend, groups, [], notes, lambda tasks: tasks).run(StopRequest())
    order = [[task.name for task in tasks] for tasks, _ in backend.seen]
    assert order[0] == ["0.0", "0.1", "0.2"]
    assert ["0.0", "0.1", "0.2"] in order[1:3], "it is tried again before the others"
    assert order[-3:] == [["0.0"], ["0.1"], ["0.2"]], "and at last one by one"
    assert [running for _, running in backend.seen[-3:]] == [1, 1, 1], "with nothing else running"
    assert sorted(task.name for task in notes.results) == ["0.0", "0.1", "1.0", "2.0", "3.0"]


FULL = Failure("fault", "cannot write metrics.jsonl: the disk is full")
SHORT = Failure("fault", "MemoryError", retry=True)
WRONG = Failure("error", "ValueError: no", details='  File "net.py", line 3, in forward')


def failing(failure: Failure, how_often: int) -> tuple[Scripted, Notes]:
    """A backend in which the second of four tasks fails so often."""
    left = iter(range(how_often))

    class Failing(Scripted):
        def wait(self, seconds: float) -> None:
            group = self.running[0] if self.running else None
            if group and not self.events and group.tasks[0].name == "1.0" and next(left, None) is not None:
                self.events.extend([MemberFailed(group.number, 0, failure), GroupEnded(group.number)])
            super().wait(seconds)

    return Failing(1, finish), Notes()


@pytest.mark.parametrize(
    ("failure", "error", "sentence"),
    [
        (
            FULL,
            FaultError,
            r"^1\.0 could not be trained: cannot write metrics\.jsonl: the disk is full\.",
        ),
        (SHORT, FaultError, r"^1\.0 could not be trained: MemoryError"),
        (WRONG, TrainingError, r"^1\.0 raised an exception: ValueError: no\n  File"),
    ],
)
def test_what_is_no_evidence_stops_everything(
    failure: Failure, error: type[Exception], sentence: str
) -> None:
    backend, notes = failing(failure, 9)
    with pytest.raises(error, match=sentence):
        Dispatch(backend, grouped(1, 1, 1, 1), [], notes, lambda tasks: tasks).run(StopRequest())
    assert backend.interrupted == 1
    assert "1.0" not in [task.name for task in notes.results]
    tried = [tasks[0].name for tasks, _ in backend.seen].count("1.0")
    assert tried == (2 if failure.retry else 1), "only what can help is tried again"


def test_what_was_short_of_memory_is_tried_again_alone_and_said() -> None:
    backend, notes = failing(SHORT, 1)
    Dispatch(backend, grouped(1, 1, 1, 1), [], notes, lambda tasks: tasks).run(StopRequest())
    assert [task.name for task in notes.results] == ["0.0", "2.0", "3.0", "1.0"]
    assert notes.said == ["1.0: MemoryError; it is tried again alone"]


def test_a_refusal_stops_everything_and_is_raised() -> None:
    def script(group: Group) -> tuple[range, Any]:
        if group.number == 1:
            return range(0), GroupRefused(group.number, "width must be positive")
        return finish(group)

    backend = Scripted(1, script)
    with pytest.raises(UsageError, match=r"^width must be positive$"):
        run(grouped(1, 1, 1, 1), backend)
    assert backend.interrupted == 1
    assert len(backend.seen) == 2


def test_a_busy_group_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatching, "BUSY_SECONDS", 0.0)
    answers = iter([None, None])
    busy = iter([True])

    def script(group: Group) -> tuple[range, Any]:
        return (range(0), GroupBusy(group.number)) if next(busy, False) else finish(group)

    groups = grouped(2, 1)
    notes, _ = run(groups, Scripted(1, script), look_again=lambda tasks: next(answers, tasks[1:]))
    assert [task.name for task in notes.results] == ["1.0", "0.1"], "one of the two had ended elsewhere"


def test_a_stop_request_lets_all_leave() -> None:
    request = StopRequest()
    backend = Scripted(2, finish)
    stop_after = iter([False, True])

    class Stopping(Notes):
        def tick(self) -> None:
            if next(stop_after, False):
                request.signal_number = 15

    notes = Stopping()
    assert Dispatch(backend, grouped(1, 1, 1, 1, 1), [], notes, lambda tasks: tasks).run(request) == 15
    assert backend.interrupted == 1
    assert 0 < len(notes.results) < 5


def test_an_error_of_the_caller_leaves_nothing_running() -> None:
    class Broken(Notes):
        def ended(self, task: Any) -> None:
            raise KeyError("on_end")

    backend = Scripted(2, finish)
    with pytest.raises(KeyError):
        Dispatch(backend, grouped(1, 1, 1), [], Broken(), lambda tasks: tasks).run(StopRequest())
    assert backend.interrupted == 1
    assert not backend.running


def test_who_does_not_leave_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatching, "LEAVE_SECONDS", 0.2)

    class Deaf(Scripted):
        def interrupt(self) -> None:
            self.running.clear()
            self.events.clear()

    class Broken(Notes):
        def begun(self, tasks: Any) -> None:
            raise KeyError("begun")

    backend = Deaf(1, finish)
    with pytest.raises(KeyError):
        Dispatch(backend, grouped(1), [], Broken(), lambda tasks: tasks).run(StopRequest())
    assert backend.stopped == 1


def test_a_worker_at_the_limit_of_its_processor_time_stops_the_fleet() -> None:
    backend = Scripted(1, lambda group: (range(0), GroupLeft(group.number, signal.SIGXCPU)))
    notes, signal_number = run(grouped(1, 1), backend)
    assert signal_number == signal.SIGXCPU
    assert notes.results == []
    assert backend.interrupted == 1


def test_a_group_that_leaves_unasked_is_tried_again() -> None:
    asked = iter([True])

    def script(group: Group) -> tuple[range, Any]:
        return (range(0), GroupLeft(group.number, 15)) if next(asked, False) else finish(group)

    notes, signal_number = run(grouped(1), Scripted(1, script))
    assert signal_number == 0
    assert len(notes.results) == 1


def test_here_a_signal_to_the_group_is_a_signal_to_the_fleet() -> None:
    backend = Scripted(1, lambda group: (range(0), GroupLeft(group.number, 2)))
    backend.catches_signals = True  # type: ignore[misc]
    assert run(grouped(1, 1), backend)[1] == 2
    assert replace(grouped(1)[0], number=5).number == 5
