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
    Report,
)
from apoint.engine.fleet.dispatch import Dispatch, Listener
from apoint.engine.signals import StopRequest
from apoint.errors import UsageError


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
            if not isinstance(event, GroupBegun | MemberEnded):
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
        self.results: list[tuple[Any, str, str]] = []

    def ended(self, task: Any, state: Any, reason: str) -> None:
        self.results.append((task, state, reason))


def tasks_named(*names: str) -> tuple[Any, ...]:
    return tuple(SimpleNamespace(name=name) for name in names)


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
    backend = Scripted(capacity, script)
    notes, signal_number = run(groups, backend)
    assert signal_number == 0
    assert sorted(task.name for task, _, _ in notes.results) == sorted(
        t.name for g in groups for t in g.tasks
    )
    tries = Counter(task.name for tasks, _ in backend.seen for task in tasks)
    for task, state, reason in notes.results:
        assert 1 <= tries[task.name] <= 3
        assert (state == "failed") <= (tries[task.name] == 3)
        assert (state == "failed") == ("died 3 times" in reason)


def test_a_lost_group_goes_first_and_then_alone() -> None:
    def script(group: Group) -> tuple[range, Any]:
        if any(task.name == "0.1" for task in group.tasks):
            return range(0), GroupLost(group.number, "was ended by SIGKILL")
        return finish(group)

    groups = grouped(3, 1, 1, 1)
    backend = Scripted(2, script)
    notes, _ = run(groups, backend)
    order = [[task.name for task in tasks] for tasks, _ in backend.seen]
    assert order[0] == ["0.0", "0.1", "0.2"]
    assert ["0.0", "0.1", "0.2"] in order[1:3], "it is tried again before the others"
    assert order[-3:] == [["0.0"], ["0.1"], ["0.2"]], "and at last one by one"
    assert [running for _, running in backend.seen[-3:]] == [1, 1, 1], "with nothing else running"
    states = {task.name: state for task, state, _ in notes.results}
    assert states == {"0.0": "finished", "0.1": "failed", "0.2": "finished", "1.0": "finished",
                      "2.0": "finished", "3.0": "finished"}  # fmt: skip


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
    assert [task.name for task, _, _ in notes.results] == ["1.0", "0.1"], "one of the two had ended elsewhere"


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
        def ended(self, task: Any, state: Any, reason: str) -> None:
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
    assert [state for _, state, _ in notes.results] == ["finished"]


def test_here_a_signal_to_the_group_is_a_signal_to_the_fleet() -> None:
    backend = Scripted(1, lambda group: (range(0), GroupLeft(group.number, 2)))
    backend.catches_signals = True  # type: ignore[misc]
    assert run(grouped(1, 1), backend)[1] == 2
    assert replace(grouped(1)[0], number=5).number == 5
