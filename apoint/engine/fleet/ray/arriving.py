"""A submitted group, and its run folders here as far as they were sent."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apoint.engine.fleet.ray.folders import folders, settle, unpack
from apoint.engine.fleet.task import Group
from apoint.errors import ApointError, UsageError
from apoint.store import Run, storage_errors, strict_json, sync_folder, write_atomically
from apoint.store.layout import LOCK, STATUS, is_run_folder
from apoint.store.lock import FileLock
from apoint.store.status import lease, read_status


class TakenError(Exception):
    """An incoming run folder is being written by another process here."""


@dataclass
class Running:
    """A submitted group, and its run folders here as far as they were sent."""

    group: Group
    ref: Any
    contents: list[Any]  # Ray keeps what was sent only while this process refers to it
    begun: bool = False
    ended: set[int] = field(default_factory=set)
    locks: dict[str, FileLock] = field(default_factory=dict)

    @property
    def names(self) -> str:
        """The names of what is trained, as part of a sentence."""
        first, *others = (task.folder(self.group.options.root).name for task in self.group.tasks)
        return f"{first} and {len(others)} more" if others else first

    def receive(self, name: str, content: bytes, durable: bool = True) -> None:
        """Move a received folder to its place, under our lock, replacing what was sent before."""
        assert name in folders(self.group), f"{name} is not a folder of the group"
        place = self.group.options.root / name
        arriving, leaving = (place.with_name(f".{place.name}.{way}") for way in ("arriving", "leaving"))
        for leftover in (arriving, leaving):
            shutil.rmtree(leftover, ignore_errors=True)
        unpack(content, arriving, durable)
        lock = _adopt(arriving) if is_run_folder(arriving) else None
        with storage_errors(place):
            if place.exists():
                self._claim(name, place)
                place.rename(leaving)
            arriving.rename(place)
            sync_folder(place.parent)
            shutil.rmtree(leaving, ignore_errors=True)
        self._release(name)
        if lock is not None:
            self.locks[name] = lock

    def _claim(self, name: str, place: Path) -> None:
        """Make sure that no other process writes to a folder that is about to be replaced."""
        if name in self.locks or not is_run_folder(place):
            return
        try:
            self.locks[name] = FileLock(place / LOCK)
        except UsageError:
            raise TakenError from None

    def _release(self, name: str) -> None:
        if name in self.locks:
            self.locks.pop(name).release()

    def end(self, member: int) -> None:
        """Mark a member as ended: its record is complete."""
        self.ended.add(member)
        self._release(self.group.tasks[member].folder(self.group.options.root).name)

    def let_go(self, reason: str, was_trained: bool) -> None:
        """Record that the members that have not ended are no longer being trained.

        Args:
            reason: Why they are not.
            was_trained: Whether they were in training until now; if not, only what was sent here is ours.
        """
        sent = list(self.locks)
        for name in sent:
            self._release(name)
        for member, task in enumerate(self.group.tasks):
            folder = task.folder(self.group.options.root)
            ours = folder.name in sent or (was_trained and self.begun)
            if ours and member not in self.ended and is_run_folder(folder) and Run(folder).state == "running":
                with contextlib.suppress(ApointError):  # another process trains it after all
                    settle(folder, reason)


def _adopt(folder: Path) -> FileLock:
    """Lock a run folder from elsewhere, and make its status name this process as the writer."""
    status = read_status(folder / STATUS)
    if status.get("state") == "running":
        write_atomically(folder / STATUS, strict_json({**status, **lease()}, indented=True) + "\n")
    return FileLock(folder / LOCK)
