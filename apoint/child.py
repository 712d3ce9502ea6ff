"""First steps of a worker process: detach from the terminal, and end when the parent does.

A worker leads its own session, so neither Ctrl-C nor closing the terminal reaches it. It leaves all other
signals that ask for a checkpoint to its parent, which then asks its workers to save and stop. A thread waits
for messages. When the parent is gone, for any reason, the pipe closes and the thread ends the process at
once. On Linux the kernel is asked to do so as well.

This happens before the imports of the work itself, which take seconds. So nothing heavy is imported here, and
the work is given as a module name.
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
    """Message that asks to save a checkpoint of the current training and stop it."""


class Inbox:
    """Jobs received, and how many of them are done."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.received = self.done = 0

    def put(self, job: Any) -> None:
        """Add a job."""
        self.received += 1
        self.jobs.put(job)


def begin(connection: Connection, parent: int, follows_thread: bool, work: str) -> None:
    """Detach, listen to the parent, and only then import and run the work.

    Args:
        connection: The connection to the parent, which sends nothing until the work reports that it is ready.
        parent: The parent's process id.
        follows_thread: Whether the kernel may end this process when the parent's thread that started it ends.
        work: The name of a module whose `main` is called with the connection and the inbox.
    """
    _stand_alone(parent, follows_thread)
    inbox = Inbox()
    start_thread(_listen, connection, inbox)
    try:
        importlib.import_module(work).main(connection, inbox)
    except KeyboardInterrupt:  # Ctrl-C does not come here: the user's code raised it, to end its process
        os._exit(128 + signal.SIGINT)


def start_thread(target: Callable[..., None], *arguments: Any) -> None:
    """Start a daemon thread, or raise a `MemoryError` if there is no memory for one.

    `threading.Thread.start` waits for the new thread without a timeout, even if that thread ran out of
    memory before it could report that it started.
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
    """End when the parent does, for any reason, and leave Ctrl-C to it.

    For process pools that are not ours, which import their work after this.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start_thread(_leave_with_parent)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def hold_signals() -> set[signal.Signals] | None:
    """Block, in the parent's thread, the signals that a child inherits blocked until it has detached.

    Returns:
        The signals that were blocked before, for `release_signals`.
    """
    if not hasattr(signal, "pthread_sigmask"):
        return None
    return {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, HELD)}


def release_signals(blocked: set[signal.Signals] | None) -> None:
    """Unblock signals again, except those that were blocked before."""
    if blocked is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _stand_alone(parent: int, follows_thread: bool) -> None:
    if hasattr(os, "setsid"):
        with contextlib.suppress(OSError):  # it already leads a group
            os.setsid()
    for number in HELD:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # a group in training listens, else no effect
    release_signals(set())
    if sys.platform == "linux" and follows_thread:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the kernel was asked
            os._exit(0)


def _listen(connection: Connection, inbox: Inbox) -> None:
    """Receive messages until the pipe closes, then exit at once: the parent is gone or no longer needs us."""
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            os._exit(0)
        except Exception:  # the message cannot be read here, or memory is short
            try:
                traceback.print_exc()
            finally:  # in any case, the parent sees this process end
                os._exit(1)
        if isinstance(message, Stop):
            start_thread(_repeat_sigterm, inbox, inbox.received)
        else:
            inbox.put(message)


def _repeat_sigterm(inbox: Inbox, until: int) -> None:
    """Send this process the signal that asks for a checkpoint, until the jobs so far are done.

    Repeat it, because the group in training may not be listening yet.
    """
    while inbox.done < until:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(NUDGE_SECONDS)
