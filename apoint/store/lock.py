"""One writer per run folder: a lock that the operating system frees when its holder dies.

On Windows the lock is `msvcrt`'s, on a byte far beyond the file's text. Where neither kind of lock exists,
there is none, and two writers go unnoticed.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from pathlib import Path

from apoint.errors import DamagedError, UsageError
from apoint.opening import shown
from apoint.store.faults import storage_errors

_HELD: weakref.WeakSet[FileLock] = weakref.WeakSet()
_FAR_BYTE = 2**30
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class FileLock:
    """An exclusive lock on a file; the file stays, and its text names the process that holds it."""

    def __init__(self, path: Path, wait_seconds: float = 0.0) -> None:
        self.path = path
        self._handle = -1
        with storage_errors(path):
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)
        deadline = time.monotonic() + wait_seconds
        while not _try_lock(self._handle):
            if time.monotonic() >= deadline:
                holder = self._holder()
                os.close(self._handle)
                self._handle = -1
                raise UsageError(
                    f"{path.parent} is being written by {holder}; wait until it ends, or stop it first"
                )
            time.sleep(0.01)
        self._sign()
        _HELD.add(self)

    def _holder(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            os.lseek(self._handle, 0, os.SEEK_SET)
            return f"process {int(os.read(self._handle, 32))}"
        return "another process"

    def _sign(self) -> None:
        with contextlib.suppress(OSError):  # the name is optional; a full disk must not cost the lock
            os.ftruncate(self._handle, 0)
            os.write(self._handle, f"{os.getpid()}\n".encode())

    def check(self) -> None:
        """Raise if the lock file is not the one that is held: another writer may have come in."""
        try:
            found, ours = os.lstat(self.path), os.fstat(self._handle)
        except OSError:
            raise DamagedError(
                f"{shown(self.path)} was removed while it was held; another process may have begun to write"
            ) from None
        if (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino):
            raise DamagedError(
                f"{shown(self.path)} was replaced while it was held; another process may be writing"
            )

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _try_lock(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:
        return _try_lock_windows(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: better a run without one than no run
        return True
    return True


def _try_lock_windows(handle: int) -> bool:
    try:
        import msvcrt
    except ImportError:
        return True
    os.lseek(handle, _FAR_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
    except OSError:
        return False
    finally:
        os.lseek(handle, 0, os.SEEK_SET)
    return True


def _forget_in_child() -> None:
    """Release locks inherited by a forked worker; left open, they would outlive a parent that is killed."""
    for lock in list(_HELD):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
