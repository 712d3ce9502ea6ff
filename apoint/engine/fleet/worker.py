"""The other side of the pool: a process that trains the groups it is sent, and does not outlive its parent.

A worker leads its own session, so that Ctrl-C at the terminal reaches the parent alone, which then asks
its workers to save and stop. A thread waits for messages; when the parent is gone, however it went, the pipe
ends and the thread leaves at once. On Linux the kernel is asked to see to that as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import queue
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from apoint.data.loading import Kept
from apoint.engine import custom, environment
from apoint.engine.fleet.backend import GroupBusy, GroupEnded, GroupLeft, GroupRefused
from apoint.engine.fleet.sharing import Gift
from apoint.engine.fleet.task import Group
from apoint.engine.fleet.work import Stacker, as_reason, train_group

_PR_SET_PDEATHSIG = 1
NUDGE_SECONDS = 0.1
ENDINGS = (GroupEnded, GroupBusy, GroupRefused, GroupLeft)  # after one of these a worker is free


@dataclass(frozen=True)
class Ready:
    """A worker has started; `code` is the hash of the code that it runs."""

    code: str


@dataclass(frozen=True)
class Job:
    """A group to train, and what it needs: a folder to stand in, the user's files and modules, data.

    `allow_code` tells whether a recipe that lies in a record may run the files that it names.
    """

    group: Group
    folder: str
    files: tuple[str, ...]
    modules: tuple[str, ...]
    gift: Gift
    allow_code: bool = False


@dataclass(frozen=True)
class Stop:
    """Save a checkpoint of what is in training and stop it."""


class Inbox:
    """Jobs that have come in, and how many of them are done."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.received = self.done = 0

    def put(self, job: Job) -> None:
        """Take a job in."""
        self.received += 1
        self.jobs.put(job)


def main(connection: Connection, parent: int, follows_thread: bool, stacker: Stacker | None = None) -> None:
    """Train what comes through the connection, until it ends.

    Args:
        connection: To the parent.
        parent: The parent's process number.
        follows_thread: Whether the kernel may end this process with the parent's thread that started it.
        stacker: Trains several sessions in one computation.
    """
    _stand_alone(parent, follows_thread)
    torch.set_num_threads(1)
    inbox, kept = Inbox(), Kept()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()

    def tell(message: Any) -> None:
        try:
            connection.send(message)
        except OSError:
            os._exit(0)  # the parent is gone

    tell(Ready(environment.code_hash()))
    while True:
        job = inbox.jobs.get()
        with custom.allowing_code(job.allow_code):
            try:
                _prepare(job, kept)
            except Exception as error:
                tell(GroupRefused(job.group.number, as_reason(error)))
            else:
                train_group(job.group, tell, kept, stacker)
        inbox.done += 1


def _prepare(job: Job, kept: Kept) -> None:
    os.chdir(job.folder)
    job.gift.unpack(kept)
    for file in job.files:
        custom.run_file(Path(file))
    for module in job.modules:
        importlib.import_module(module)


def _listen(connection: Connection, inbox: Inbox) -> None:
    """Take messages until the pipe ends, then leave at once: the parent is gone, or does not need us."""
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            os._exit(0)
        except Exception:  # what was sent makes no sense here; the parent sees this process end
            traceback.print_exc()
            os._exit(1)
        if isinstance(message, Stop):
            threading.Thread(target=_nudge, args=(inbox, inbox.received), daemon=True).start()
        else:
            inbox.put(message)


def _nudge(inbox: Inbox, until: int) -> None:
    """Send this process the signal that asks for a checkpoint, until the jobs so far are done.

    Again and again, because the group in training may not be listening yet.
    """
    while inbox.done < until:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(NUDGE_SECONDS)


def _stand_alone(parent: int, follows_thread: bool) -> None:
    if hasattr(os, "setsid"):
        with contextlib.suppress(OSError):  # it leads a group already
            os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # heard by a group in training, else of no use
    if sys.platform == "linux" and follows_thread:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the kernel was asked
            os._exit(0)
