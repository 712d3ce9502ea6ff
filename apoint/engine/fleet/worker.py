"""The other side of the pool: a process that trains the groups it is sent.

`apoint.child` runs first: it ties the process to its parent, receives messages, and then imports this module.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from apoint.child import Inbox
from apoint.data.loading import DatasetCache
from apoint.engine import custom, environment
from apoint.engine.fleet.backend import GroupBusy, GroupEnded, GroupLeft, GroupRefused
from apoint.engine.fleet.sharing import SharedDatasets
from apoint.engine.fleet.task import Group
from apoint.engine.fleet.work import Stacker, as_reason, train_group

ENDINGS = (GroupEnded, GroupBusy, GroupRefused, GroupLeft)  # after one of these a worker is free


@dataclass(frozen=True)
class Ready:
    """A worker has started; `code` is the hash of all of apoint's code that it runs."""

    code: str


@dataclass(frozen=True)
class Job:
    """A group to train, and what it needs: a working folder, the user's files and modules, data.

    `stacker` trains several sessions in one computation; by default `apoint.engine.stacked`'s.
    `allow_code` says whether a recipe in a record may run the files that it names.
    """

    group: Group
    folder: str
    files: tuple[str, ...]
    modules: tuple[str, ...]
    gift: SharedDatasets
    stacker: Stacker | None = None
    allow_code: bool = False


def main(connection: Connection, inbox: Inbox) -> None:
    """Train incoming groups, until the process ends with its pipe."""
    torch.set_num_threads(1)
    kept = DatasetCache()

    def tell(message: Any) -> None:
        try:
            connection.send(message)
        except OSError:
            os._exit(0)  # the parent is gone

    tell(Ready(environment.package_hash()))
    while True:
        job: Job = inbox.jobs.get()
        with custom.allowing_code(job.allow_code):
            try:
                _prepare(job, kept)
            except Exception as error:
                tell(GroupRefused(job.group.number, as_reason(error)))
            else:
                train_group(job.group, tell, kept, job.stacker)
        inbox.done += 1


def _prepare(job: Job, kept: DatasetCache) -> None:
    os.chdir(job.folder)
    job.gift.unpack(kept)
    for file in job.files:
        custom.run_file(Path(file))
    for module in job.modules:
        importlib.import_module(module)
