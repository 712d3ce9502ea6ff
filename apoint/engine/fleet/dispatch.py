"""Hand groups to a backend until every task has ended; retry what is lost.

A group whose process died goes back to the front of the queue at once. If its process dies again, each of
its replicas is put at the end and tried one last time with nothing else running, since memory may have been
short or one of them may kill the others. A replica that ran short of memory or open files is retried once in
the same way. After that, or where a retry cannot help, the fault stops the call: a failure of the machine
says nothing about a recipe. An exception in the code that is trained stops the call too.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from apoint.engine.failures import Failure
from apoint.engine.fleet.backend import (
    Backend,
    Event,
    GroupBegun,
    GroupBusy,
    GroupEnded,
    GroupLeft,
    GroupLost,
    GroupRefused,
    MemberEnded,
    MemberFailed,
    Said,
    Stepped,
)
from apoint.engine.fleet.task import Group, Task
from apoint.engine.signals import StopRequest
from apoint.errors import ApointError, FaultError, TrainingError, UsageError

WAIT_SECONDS = 0.2
BUSY_SECONDS = 1.0
LEAVE_SECONDS = 30.0
_OUT_OF_TIME = getattr(signal, "SIGXCPU", None)  # a limit on every process of the fleet, not a loss


class Listener:
    """Receives what a dispatch reports about tasks; each method may be overridden."""

    def begun(self, tasks: Iterable[Task]) -> None:
        """Training of these tasks has begun."""

    def stepped(self, task: Task, step: int, total_steps: int) -> None:
        """A task has reached a step."""

    def paused(self, tasks: Iterable[Task]) -> None:
        """These tasks are no longer in training, and have not ended."""

    def ended(self, task: Task) -> None:
        """A task has ended; its run folder says how."""

    def say(self, sentence: str) -> None:
        """A message for the user."""

    def tick(self) -> None:
        """Some time has passed."""


class Dispatch:
    """One call of `train`: groups go out, events come in.

    Args:
        backend: Where to train.
        groups: What to train, in this order.
        held: Groups with members that another process is training; they wait until it is done.
        listener: Receives the reports about tasks.
        look_again: Called with the tasks of a held group when it may be free; returns those still to be
            trained, or None if the group is still not free.
    """

    def __init__(
        self,
        backend: Backend,
        groups: Iterable[Group],
        held: Iterable[Group],
        listener: Listener,
        look_again: Callable[[tuple[Task, ...]], tuple[Task, ...] | None],
    ) -> None:
        self.backend, self.listener, self.look_again = backend, listener, look_again
        self._queue, self._held = deque(groups), deque(held)
        self._last: deque[Group] = deque()
        self._running: dict[int, Group] = {}
        self._open: dict[int, dict[int, Task]] = {}
        self._deaths: Counter[int] = Counter()
        self._number = 1 + max((group.number for group in (*self._queue, *self._held)), default=0)
        self._problem: ApointError | None = None
        self._signal = 0
        self._leaving = False
        self._held_at = time.monotonic()

    def run(self, stop: StopRequest) -> int:
        """Train everything; once all running groups have stopped, return 0, or the signal that asked to stop.

        Raises:
            UsageError: A group was refused; the others have saved a checkpoint.
            FaultError: The machine failed a task; the others have saved a checkpoint.
            TrainingError: The code of a task raised an exception; the others have saved a checkpoint.
        """
        self.backend.start(self._hear)
        try:
            while self._running or self._to_do():
                if stop and not self._leaving:
                    self._leave(stop.signal_number)
                self._hand_out()
                self.backend.wait(WAIT_SECONDS)
                self.listener.tick()
        except BaseException:
            self._abandon()
            raise
        if self._problem is not None:
            raise self._problem
        return self._signal

    def _to_do(self) -> bool:
        return not self._leaving and bool(self._queue or self._last or self._held)

    # -- handing out ---------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        if self._leaving:
            return
        if self._held and time.monotonic() - self._held_at >= BUSY_SECONDS:
            self._look_at_held()
        while self._queue and len(self._running) < self.backend.capacity:
            self._submit(self._queue.popleft())
        if self._last and not self._running and not self._queue:
            self._submit(self._last.popleft())

    def _submit(self, group: Group) -> None:
        self._running[group.number] = group
        self._open[group.number] = dict(enumerate(group.tasks))
        self.backend.submit(group)

    def _again(self, group: Group, tasks: Iterable[Task]) -> Group:
        """What is left of a group, as a new group."""
        self._number += 1
        return replace(group, number=self._number, tasks=tuple(tasks))

    def _look_at_held(self) -> None:
        self._held_at = time.monotonic()
        for _ in range(len(self._held)):
            group = self._held.popleft()
            tasks = self.look_again(group.tasks)
            if tasks is None:
                self._held.append(group)
            elif tasks:
                self._queue.append(self._again(group, tasks))

    def _leave(self, signal_number: int = 0) -> None:
        """Ask all running groups to save a checkpoint and stop; submit nothing more."""
        self._signal = self._signal or signal_number
        if not self._leaving:
            self._leaving = True
            self.backend.interrupt()

    def _abandon(self) -> None:
        """After an error in this process, give the others limited time to save what they have."""
        deadline = time.monotonic() + LEAVE_SECONDS
        self._leaving, self.listener = True, Listener()
        with contextlib.suppress(ApointError):
            self.backend.interrupt()
            while self._running and time.monotonic() < deadline and not self.backend.catches_signals:
                self.backend.wait(WAIT_SECONDS)
        if self._running:
            self.backend.stop()

    # -- hearing -------------------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        match event:
            case Said(sentence):
                self.listener.say(sentence)
            case GroupBegun(number) if number in self._running:
                self.listener.begun(self._open[number].values())
            case Stepped(number, members, step, total) if number in self._running:
                for member in members:
                    if member in self._open[number]:
                        self.listener.stepped(self._open[number][member], step, total)
                if self.backend.catches_signals:
                    self.listener.tick()
            case MemberEnded(number, member, _) if number in self._running:
                self.listener.ended(self._open[number].pop(member))
            case MemberFailed(number, member, failure) if number in self._running:
                self._failed(self._running[number], self._open[number].pop(member), failure)
            case GroupEnded() | GroupBusy() | GroupRefused() | GroupLeft() | GroupLost():
                if event.group in self._running:
                    self._close(event)

    def _close(self, event: GroupEnded | GroupBusy | GroupRefused | GroupLeft | GroupLost) -> None:
        """Handle the end of a group's training."""
        group = self._running.pop(event.group)
        tasks = tuple(self._open.pop(event.group).values())
        self.listener.paused(tasks)
        match event:
            case GroupEnded():
                assert not tasks, "a group has ended, and its members were not all reported"
            case GroupBusy():
                self._held.append(self._again(group, tasks))
            case GroupRefused(_, sentence):
                self._stop_for(UsageError(sentence))
            case GroupLeft(_, signal_number) if (
                self.backend.catches_signals or self._leaving or signal_number == _OUT_OF_TIME
            ):
                self._leave(signal_number)
            case GroupLeft(_, signal_number):
                self._lost(group, tasks, f"was asked to stop by signal {signal_number}")
            case GroupLost(_, reason):
                self._lost(group, tasks, reason)

    def _lost(self, group: Group, tasks: tuple[Task, ...], reason: str) -> None:
        if not tasks:
            return
        for task in tasks:
            self._deaths[id(task)] += 1
        deaths = max(self._deaths[id(task)] for task in tasks)
        if deaths == 1:
            self._queue.appendleft(self._again(group, tasks))
        elif deaths == 2:
            self._last.extend(replace(self._again(group, [task]), place=None) for task in tasks)
        else:
            cause = f"its process died {deaths} times; the last one {reason}"
            self._stop_for(self._fault(group, tasks[0], cause))

    def _failed(self, group: Group, task: Task, failure: Failure) -> None:
        """Handle a task that could not be trained, for a reason that is not evidence."""
        self.listener.paused([task])
        self._deaths[id(task)] += 1
        if failure.kind == "error":
            name = task.folder(group.options.root).name
            details = f"\n{failure.details}" if failure.details else ""
            self._stop_for(TrainingError(f"{name} raised an exception: {failure.reason}{details}"))
        elif failure.retry and self._deaths[id(task)] == 1:
            self.listener.say(
                f"{task.folder(group.options.root).name}: {failure.reason}; it is tried again alone"
            )
            self._last.append(replace(self._again(group, [task]), place=None))
        else:
            self._stop_for(self._fault(group, task, failure.reason))

    def _fault(self, group: Group, task: Task, cause: str) -> FaultError:
        name = task.folder(group.options.root).name
        return FaultError(
            f"{name} could not be trained: {cause}. This is a fault of the machine, and nothing is concluded "
            "from it; once it is gone, the same command resumes from here"
        )

    def _stop_for(self, problem: ApointError) -> None:
        """Let all running groups save a checkpoint, then raise the first problem."""
        self._problem = self._problem or problem
        self._leave()
