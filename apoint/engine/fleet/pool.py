"""The backends `pool` and `pool+stacked`: worker processes with one thread each.

Workers are started when there is work for them and stay until `stop`. One that dies is replaced, and its
group is reported as lost. The other side is `apoint.child` and then `worker.py`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from apoint import child
from apoint.data.loading import DatasetCache
from apoint.engine import custom, environment
from apoint.engine.fleet import worker
from apoint.engine.fleet.backend import GroupLeft, GroupLost, MemberFailed, Report
from apoint.engine.fleet.sharing import wrap
from apoint.engine.fleet.task import Group, silent
from apoint.engine.fleet.work import Stacker
from apoint.errors import ApointError, UsageError

FAILED_STARTS = 5
JOIN_SECONDS = 2.0
_OWN = "apoint_user_"  # the prefix of module names for files that the user named


class Member:
    """A worker as its parent sees it."""

    def __init__(self, process: BaseProcess, connection: Connection) -> None:
        self.process, self.connection = process, connection
        self.ready = False
        self.group: Group | None = None
        self.worn = False
        self.known: set[str] = set()
        self.begun = time.monotonic()

    @property
    def idle(self) -> bool:
        """Whether it could take a group."""
        return self.ready and self.group is None


class Pool:
    """Trains groups in worker processes.

    Args:
        workers: How many worker processes.
        kept: The data that this process holds; it is shared with the workers.
        files: The user's Python files that register ingredients.
        stacker: Trains several sessions in one computation.
    """

    catches_signals = False

    def __init__(
        self, workers: int, kept: DatasetCache, files: tuple[str, ...] = (), stacker: Stacker | None = None
    ) -> None:
        self.capacity = workers
        self.start_seconds: float | None = None
        self._kept, self._files, self._stacker = kept, files, stacker
        self._report: Report = silent
        self._members: list[Member] = []
        self._groups: deque[Group] = deque()
        self._failed_starts = 0
        self._context = multiprocessing.get_context("spawn")
        self._code = environment.package_hash()  # now, not when a worker is ready, which may have newer code

    @property
    def processes(self) -> list[int]:
        """The process numbers of the workers."""
        return [member.process.pid for member in self._members if member.process.pid is not None]

    def start(self, report: Report) -> None:
        """See `Backend`; workers are started as groups come in."""
        self._report = report

    def begin(self) -> None:
        """Start all workers now, so that they are ready when the first group comes."""
        while len(self._members) < self.capacity:
            self._start_worker()

    def submit(self, group: Group) -> None:
        """See `Backend`."""
        self._groups.append(group)
        free = sum(member.group is None for member in self._members)
        if free < len(self._groups) and len(self._members) < self.capacity:
            self._start_worker()
        self._hand_out()

    def wait(self, seconds: float) -> None:
        """Receive messages from the workers."""
        places: list[Any] = [member.connection for member in self._members]
        if not places:
            time.sleep(seconds)
        for place in wait(places, seconds) if places else ():
            member = next(member for member in self._members if member.connection is place)
            self._hear(member)
        self._hand_out()

    def interrupt(self) -> None:
        """See `Backend`."""
        while self._groups:
            self._report(GroupLeft(self._groups.popleft().number))
        for member in self._members:
            if member.group is not None:
                self._send(member, child.Stop())

    def stop(self) -> None:
        """See `Backend`; a worker exits when its pipe closes."""
        self._groups.clear()
        for member in self._members:
            member.connection.close()
        deadline = time.monotonic() + JOIN_SECONDS
        for member in self._members:
            _ended(member.process, deadline - time.monotonic())
        self._members.clear()

    # -- workers -------------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        ours, theirs = self._context.Pipe()
        follows_thread = threading.current_thread() is threading.main_thread()
        arguments = (theirs, os.getpid(), follows_thread, worker.__name__)
        process = self._context.Process(target=child.begin, args=arguments, daemon=True)
        with _without_main(), _signals_held():
            process.start()
        theirs.close()
        self._members.append(Member(process, ours))

    def _hand_out(self) -> None:
        """Give waiting groups to workers that are ready."""
        for member in self._members:
            if self._groups and member.idle:
                member.group = self._groups.popleft()
                self._send(member, self._job(member))

    def _job(self, member: Member) -> worker.Job:
        assert member.group is not None
        gift = wrap(self._kept, member.known)
        member.known |= gift.places
        files, modules = registered_by(member.group)
        allowed = custom.code_is_allowed()
        names = (*self._files, *files)
        return worker.Job(member.group, os.getcwd(), names, modules, gift, self._stacker, allowed)

    def _send(self, member: Member, message: Any) -> None:
        with contextlib.suppress(OSError):  # a dead worker is noticed when its messages are read
            member.connection.send(message)

    def _hear(self, member: Member) -> None:
        try:
            message = member.connection.recv()
        except (EOFError, OSError):
            self._on_worker_exit(member)
            return
        if isinstance(message, worker.Ready):
            self._on_worker_ready(member, message)
            return
        if isinstance(message, MemberFailed) and message.failure.retry:
            member.worn = True
        if isinstance(message, worker.ENDINGS):
            member.group = None
            if member.worn:
                self._dismiss(member)
        self._report(message)

    def _on_worker_ready(self, member: Member, message: worker.Ready) -> None:
        if message.code != self._code:
            self.interrupt()  # else the fleet would wait for groups that are not trained
            self.stop()  # else a second call would wait for workers that never become ready
            raise UsageError(
                "apoint's own code has changed since this process began, so that its replicas would not be "
                "comparable; start the command again"
            )
        member.ready, self._failed_starts = True, 0
        self.start_seconds = time.monotonic() - member.begun

    def _dismiss(self, member: Member) -> None:
        """Dismiss a worker that ran short of memory or open files: it may be the one that holds them."""
        self._members.remove(member)
        member.connection.close()
        _ended(member.process, JOIN_SECONDS)

    def _on_worker_exit(self, member: Member) -> None:
        """Handle a dead worker: report its group, and start another worker if there is work."""
        self._members.remove(member)
        member.connection.close()
        reason = describe_exit(_ended(member.process, JOIN_SECONDS))
        if not member.ready:
            self._failed_starts += 1
            if self._failed_starts >= FAILED_STARTS:
                raise ApointError(
                    f"no worker process could be started: the last one {reason} before it was ready; train "
                    "in this process with --engine loop"
                )
        if member.group is not None:
            self._report(GroupLost(member.group.number, reason))
        if self._groups and len(self._members) < self.capacity:
            self._start_worker()


def _ended(process: BaseProcess, seconds: float) -> int | None:
    """The exit code of a process that is about to end; one that does not end in time is killed."""
    process.join(max(0.0, seconds))
    if process.exitcode is None:
        process.kill()
        process.join()
    code = process.exitcode
    process.close()
    return code


def registered_by(group: Group) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The user's files and modules that registered ingredients of the group's recipe."""
    found = environment.foreign_modules(group.tasks[0].recipe.canonical())
    files = [str(path.resolve()) for name, path in found.items() if name.startswith(_OWN)]
    modules = [name for name in found if name != "__main__" and not name.startswith(_OWN)]
    return tuple(files), tuple(modules)


def describe_exit(code: int | None) -> str:
    """How a process ended, as the end of a sentence that begins with it."""
    if code is None or code >= 0:
        return f"left with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    perhaps = ", perhaps because the machine ran out of memory" if name == "SIGKILL" else ""
    return f"was ended by {name}{perhaps}"


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Start a worker with signals blocked, so that none ends it before it is independent.

    The tracker of shared resources is started in the same way: a closing terminal should not end it.
    """
    blocked = child.hold_signals()
    try:
        if sys.platform != "win32":
            resource_tracker.ensure_running()  # it unblocks SIGINT and SIGTERM
        child.hold_signals()
        yield
    finally:
        child.release_signals(blocked)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hide the script that is running, so that a starting worker does not run it again.

    A worker needs nothing from it, and a script that trains at its top level would train in every worker.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
