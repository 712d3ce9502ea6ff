"""Opening SQLite with care: which journal is safe here, and what each error means.

Several processes may list runs at once. A writer takes its lock at the start of the transaction
(`BEGIN IMMEDIATE`), because a transaction that begins by reading is refused immediately when it starts to
write, however long its timeout.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
BUSY_SECONDS = 30.0
_TRIES = 5
_LOCAL_DISKS = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "bcachefs", "reiserfs", "jfs"}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH}


class ChangedError(sqlite3.DatabaseError):
    """A row whose hash does not match: the file has been damaged or edited."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def connect(path: Path | str) -> sqlite3.Connection:
    """A connection without implicit transactions that waits for its turn."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA synchronous=NORMAL")  # what is lost in a power cut can be rebuilt
    connection.execute("PRAGMA foreign_keys=ON")
    return connection


def choose_journal(connection: sqlite3.Connection, path: Path) -> None:
    """Use a write-ahead log where that is safe, otherwise the rollback journal."""
    wanted = "wal" if wal_is_safe() and is_local_disk(path) else "delete"
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
        connection.execute(f"PRAGMA journal_mode={wanted}")


@contextlib.contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that holds the write lock from its start."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def with_patience(work: Callable[[], T]) -> T:
    """Call `work`, and retry a few times if the database stayed busy."""
    for attempt in range(_TRIES):
        try:
            return work()
        except sqlite3.OperationalError as error:
            if primary_code(error) not in _BUSY or attempt == _TRIES - 1:
                raise
        time.sleep(random.uniform(0, 0.05 * 2**attempt))
    raise AssertionError("unreachable")


def primary_code(error: sqlite3.Error) -> int:
    """The kind of an SQLite error without its details; 0 if it has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether the file is not an intact database with our tables, so that only rebuilding it helps."""
    return primary_code(error) in _DAMAGED


def wal_is_safe(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    """Whether this SQLite has the fix for the bug by which a write-ahead log could corrupt a database."""
    repaired = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
    return version >= repaired[0] or any(fix <= version < (fix[0], fix[1] + 1) for fix in repaired[1:])


def is_local_disk(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether a path is known to be on a local disk; a write-ahead log needs shared memory."""
    try:
        table = mounts.read_text(errors="replace")
        place = path.resolve()
    except OSError:
        return False
    kind, longest = "", -1
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mounted = Path(fields[1].replace("\\040", " "))
        if place.is_relative_to(mounted) and len(mounted.parts) >= longest:
            kind, longest = fields[2], len(mounted.parts)
    return kind in _LOCAL_DISKS
