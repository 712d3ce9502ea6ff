"""What a worker process does first: it stands on its own and ties its life to that of its parent.

A worker leads its own session, so that neither Ctrl-C nor the end of the terminal reaches it, and it leaves
all other signals that ask for a checkpoint to its parent, which then asks its workers to save and stop. A
thread waits for messages; when the parent is gone, however it went, the pipe ends and the thread leaves at
once. On Linux the kernel is asked to see to that as well.

This comes before the imports of the work itself, which take seconds. So nothing heavy is imported here; the
work is a module's name.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import importlib
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

_PR_SET_PDEATHSIG = 1
NUDGE_SECONDS = 0.1
THREAD_SECONDS = 60.0
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
HELD = frozenset(signal.Signals[name] for name in _NAMES if hasattr(signal, name))


@dataclass(frozen=True)
class Stop:
    """Save a checkpoint of what is in training and stop it."""


class Inbox:
    """Jobs that have come in, and how many of them are done."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.received = self.done = 0

    def put(self, job: Any) -> None:
        """Take a job in."""
        self.received += 1
        self.jobs.put(job)


def begin(connection: Connection, parent: int, follows_thread: bool, work: str) -> None:
    """Stand alone, listen to the parent, and only then import the work and do it.

    Args:
        connection: To the parent, which sends nothing before the work says that it is ready.
        parent: The parent's process number.
        follows_thread: Whether the kernel may end this process with the parent's thread that started it.
        work: A module whose `main` is called with the connection and the inbox.
    """
    _stand_alone(parent, follows_thread)
    inbox = Inbox()
    start_thread(_listen, connection, inbox)
    try:
        importlib.import_module(work).main(connection, inbox)
    except KeyboardInterrupt:  # no Ctrl-C comes here: the user's code raised it, to end its process
        os._exit(128 + signal.SIGINT)


def start_thread(target: Callable[..., None], *arguments: Any) -> None:
    """Start a daemon thread, or raise a `MemoryError` if there is no memory for one.

    `threading.Thread.start` waits for the new thread without a limit, also if it ran out of memory before
    it could say that it began.
    """
    begun = threading.Event()

    def run() -> None:
        begun.set()
        target(*arguments)

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError as error:
        raise MemoryError(f"no thread could be started: {error}") from None
    if not begun.wait(THREAD_SECONDS):
        raise MemoryError(f"a thread did not begin within {THREAD_SECONDS:g} seconds")


def follow_parent() -> None:
    """End when the parent does, however that comes about, and leave Ctrl-C to it.

    For pools of others, which import what they work on after this.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start_thread(_leave_with_parent)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def hold_signals() -> set[signal.Signals] | None:
    """Block, in the parent's thread, the signals that a child inherits blocked until it stands alone.

    Returns:
        What was blocked before, for `release_signals`.
    """
    if not hasattr(signal, "pthread_sigmask"):
        return None
    return {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, HELD)}


def release_signals(blocked: set[signal.Signals] | None) -> None:
    """Let signals in again, apart from those that were blocked before."""
    if blocked is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _stand_alone(parent: int, follows_thread: bool) -> None:
    if hasattr(os, "setsid"):
        with contextlib.suppress(OSError):  # it leads a group already
            os.setsid()
    for number in HELD:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # heard by a group in training, else of no use
    release_signals(set())
    if sys.platform == "linux" and follows_thread:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the kernel was asked
            os._exit(0)


def _listen(connection: Connection, inbox: Inbox) -> None:
    """Take messages until the pipe ends, then leave at once: the parent is gone, or does not need us."""
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            os._exit(0)
        except Exception:  # what was sent makes no sense here, or memory is short
            try:
                traceback.print_exc()
            finally:  # whatever happens: the parent sees this process end
                os._exit(1)
        if isinstance(message, Stop):
            start_thread(_repeat_sigterm, inbox, inbox.received)
        else:
            inbox.put(message)


def _repeat_sigterm(inbox: Inbox, until: int) -> None:
    """Send this process the signal that asks for a checkpoint, until the jobs so far are done.

    Again and again, because the group in training may not be listening yet.
    """
    while inbox.done < until:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(NUDGE_SECONDS)
