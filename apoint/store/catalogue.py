"""The catalogue: the source of `runs list` and of the curves of many runs, read in milliseconds.

It is derived from the run folders and holds nothing else, so it may be deleted at any time. It never stops
a command: where it cannot be written, it is built in memory; where it is damaged, it is rebuilt with a
warning. Every row carries its own hash, so that a changed row is detected.

A sealed run is listed as its seal says, without reading its measurements. For an unsealed run, the last
lines are read. Curves are stored when they are first requested.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from apoint.errors import ApointError, StorageError
from apoint.opening import shown
from apoint.store import layout, reader
from apoint.store.blocks import Block, Curve, from_blocks, to_blocks
from apoint.store.database import (
    BUSY_SECONDS,
    ChangedError,
    choose_journal,
    connect,
    is_damaged,
    with_patience,
    writing,
)
from apoint.store.find import run_folders
from apoint.store.lines import NOT_FINITE, strict_json
from apoint.store.lock import FileLock
from apoint.store.metrics import Metrics
from apoint.store.run import Run, file_stamp
from apoint.store.status import number, resolve, whole

T = TypeVar("T")
FILE, LOCK = "catalogue.sqlite", "catalogue.lock"
_VERSION = 3
_LARGEST_CURVES = 512 * 2**20  # bytes of metrics; a run with more is listed, but its curves are not kept
_LAST_LINES = 64 * 2**10
_RUNS_PER_TRANSACTION = 50
_SCHEMA = """
CREATE TABLE runs(
    id INTEGER PRIMARY KEY, folder TEXT NOT NULL UNIQUE, stamp TEXT NOT NULL, name TEXT, fingerprint TEXT,
    seed INTEGER, state TEXT, started REAL, step INTEGER, total_steps INTEGER, last TEXT, status TEXT,
    problem TEXT, sealed INTEGER NOT NULL, changes TEXT NOT NULL, curves TEXT NOT NULL DEFAULT '',
    sha256 TEXT NOT NULL
);
CREATE TABLE blocks(
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, metric TEXT NOT NULL, split TEXT NOT NULL,
    block INTEGER NOT NULL, first_step INTEGER NOT NULL, count INTEGER NOT NULL, steps BLOB NOT NULL,
    "values" BLOB NOT NULL, low REAL, high REAL, sha256 TEXT NOT NULL,
    PRIMARY KEY(metric, split, run, block)
);
CREATE INDEX blocks_of_run ON blocks(run);
"""
_log = logging.getLogger("apoint.store")


@dataclass(frozen=True)
class Summary:
    """A run in one line.

    Attributes:
        folder: The run folder.
        name: The recipe's name.
        fingerprint: The recipe's fingerprint.
        seed: The seed.
        state: The current state, as in `Run.state`.
        started: When it began, in seconds since 1970.
        step: The last known step.
        total_steps: The planned number of steps.
        last: The last value of each metric by surface name, such as `test_accuracy`.
        problem: What is wrong with the run, as far as listing it shows that.
        sealed: Whether all of this comes from the run's seal; otherwise it is what the run recorded last.
        changes: The changes to the recipe's file for this run, such as `optimizer.lr=1e-3`.
    """

    folder: Path
    name: str
    fingerprint: str = ""
    seed: int | None = None
    state: str = "unknown"
    started: float | None = None
    step: int | None = None
    total_steps: int | None = None
    last: dict[str, float] = field(default_factory=dict)
    problem: str | None = None
    sealed: bool = False
    changes: str = ""


class Catalogue:
    """The catalogue of the runs under one folder.

    Args:
        root: The folder that holds the run folders; the catalogue is `catalogue.sqlite` in it.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self.path = self.root / FILE
        self._memory: sqlite3.Connection | None = None

    def refresh(self) -> int:
        """Update the catalogue with what has changed, and return how many runs had to be read."""
        return self._do(self._refresh, alone=True)

    def rebuild(self) -> int:
        """Rebuild the catalogue from the run folders, and return how many there are."""
        return self._do(self._refresh, alone=True, anew=True)

    def summaries(self) -> list[Summary]:
        """Every run in one line, the newest first, as of the last `refresh`; states are current."""
        return self._do(self._summaries)

    def series(
        self, metric: str, split: str = "test", folders: Sequence[str] | None = None
    ) -> dict[str, Curve]:
        """One curve of each run that has it, by name of the run folder, as of the last `refresh`.

        A run whose metrics are damaged has none; this is logged.

        Args:
            metric: The metric, such as `accuracy`.
            split: The part of the data it was measured on.
            folders: The names of the run folders to read; all by default.
        """

        def work(connection: sqlite3.Connection) -> dict[str, Curve]:
            self._take_up_curves(connection, folders)
            return _read_series(connection, metric, split, folders)

        return self._do(work, alone=True)

    def close(self) -> None:
        """Discard what is in memory; the file on disk needs no closing."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def __enter__(self) -> Catalogue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, work: Callable[[sqlite3.Connection], T], alone: bool = False, anew: bool = False) -> T:
        """Call `work` on the file, on a rebuilt one if it is damaged, or in memory if nothing else works."""
        if self._memory is None and (self.path.exists() or run_folders(self.root)):
            try:
                return self._on_disk(work, alone or not self.path.exists(), anew)
            except (sqlite3.Error, OSError, ApointError) as error:
                _log.warning(
                    "the catalogue %s cannot be used (%s); the runs are read from their folders",
                    self.path,
                    error,
                )
        if self._memory is None:
            self._memory = connect(":memory:")
            _make_tables(self._memory)
            self._refresh(self._memory)
        return work(self._memory)

    def _on_disk(self, work: Callable[[sqlite3.Connection], T], alone: bool, anew: bool) -> T:
        try:
            return with_patience(lambda: self._once_on_disk(work, alone, anew))
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: damage within a name
            if isinstance(error, sqlite3.Error) and not is_damaged(error):
                raise
            _log.warning("the catalogue %s is damaged (%s) and is rebuilt", self.path, error)
        return with_patience(lambda: self._once_on_disk(work, alone=True, anew=True))

    def _once_on_disk(self, work: Callable[[sqlite3.Connection], T], alone: bool, anew: bool) -> T:
        lock = FileLock(self.root / LOCK, BUSY_SECONDS) if alone else contextlib.nullcontext()
        with lock:
            if anew:
                self._discard()
            fresh = not self.path.exists()
            with contextlib.closing(connect(self.path)) as connection:
                if alone:
                    choose_journal(connection, self.path)
                    fresh = _make_tables(connection) or fresh
                if fresh and work != self._refresh:
                    self._refresh(connection)
                return work(connection)

    def _discard(self) -> None:
        """Remove the file with its journals: a journal left behind would be replayed into the next file."""
        for ending in ("", "-journal", "-wal", "-shm"):
            self.path.with_name(FILE + ending).unlink(missing_ok=True)

    def _refresh(self, connection: sqlite3.Connection) -> int:
        stamps = {folder.name: _stamp(folder) for folder in run_folders(self.root)}
        known = dict(connection.execute("SELECT folder, stamp FROM runs"))
        changed = [name for name, stamp in stamps.items() if known.get(name) != stamp]
        gone = [(name,) for name in known if name not in stamps]
        if gone:
            with writing(connection):
                connection.executemany("DELETE FROM runs WHERE folder = ?", gone)
        for start in range(0, len(changed), _RUNS_PER_TRANSACTION):
            entries = [
                _read_entry(self.root / name) for name in changed[start : start + _RUNS_PER_TRANSACTION]
            ]
            with writing(connection):
                for summary, status in entries:
                    _store_or_say_why_not(connection, summary, stamps[summary.folder.name], status)
        return len(changed)

    def _take_up_curves(self, connection: sqlite3.Connection, folders: Sequence[str] | None) -> None:
        """Store the curves of runs whose metrics have changed since they were last stored."""
        kept = dict(connection.execute("SELECT folder, curves FROM runs"))
        for folder in kept if folders is None else [name for name in folders if name in kept]:
            stamp = json.dumps(file_stamp(self.root / folder / layout.METRICS))
            if kept[folder] != stamp:
                blocks = _blocks(self.root / folder)
                try:
                    with writing(connection):
                        _store_curves(connection, folder, stamp, blocks)
                except (ValueError, OverflowError) as error:  # a name or number that SQLite cannot hold
                    _log.warning("the curves of %s are left out: %s", shown(self.root / folder), error)

    def _summaries(self, connection: sqlite3.Connection) -> list[Summary]:
        rows = connection.execute(
            f"SELECT {', '.join(_COLUMNS)}, sha256 FROM runs ORDER BY started IS NULL, started DESC, folder"
        )
        return [self._summary(row[:-1], row[-1]) for row in rows]

    def _summary(self, row: tuple[Any, ...], digest: str) -> Summary:
        if _row_hash(row) != digest:
            raise ChangedError("a row is not as it was written")
        (
            folder,
            _,
            name,
            fingerprint,
            seed,
            state,
            started,
            step,
            total_steps,
            last,
            status,
            problem,
            sealed,
            changes,
        ) = row
        numbers = {key: NOT_FINITE.get(value, value) for key, value in json.loads(last).items()}
        now = state if sealed or state in _SAID_BY_RUN else resolve(json.loads(status))
        return Summary(
            *(self.root / folder, name, fingerprint, seed, now, started, step, total_steps, numbers),
            *(problem, bool(sealed), changes),
        )


Blocks = list[tuple[str, str, Block]]
_COLUMNS = (
    "folder", "stamp", "name", "fingerprint", "seed", "state", "started", "step", "total_steps", "last",
    "status", "problem", "sealed", "changes",
)  # fmt: skip
_SAID_BY_RUN = ("damaged", "unsealed", "unknown")  # states that no status can have


def _make_tables(connection: sqlite3.Connection) -> bool:
    """Create the tables unless those of this version exist; return whether they were created."""
    if connection.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
        return False
    with writing(connection):
        for statement in ("DROP TABLE IF EXISTS blocks", "DROP TABLE IF EXISTS runs", *_SCHEMA.split(";")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={_VERSION}")
    return True


def _stamp(folder: Path) -> str:
    """A stamp that changes when the run does."""
    names = (layout.SEAL, layout.METRICS, layout.STATUS, layout.ENV)
    try:
        return json.dumps([file_stamp(folder / name) for name in names])
    except ApointError as error:
        return str(error)


def _read_entry(folder: Path) -> tuple[Summary, dict[str, Any]]:
    """A run as the catalogue keeps it; one that cannot be read is kept with the reason."""
    try:
        run = Run(folder)
        return _describe(run), run.status
    except Exception as error:  # a bad folder must not keep the others from being listed
        reason = str(error) if isinstance(error, ApointError) else f"{type(error).__name__}: {error}"
        return Summary(folder, folder.name, state="damaged", problem=reason), {}


def _describe(run: Run) -> Summary:
    seal = run.seal
    if seal is None:
        return _describe_open(run)
    return Summary(
        run.folder,
        seal.name,
        seal.fingerprint,
        seal.seed,
        seal.state,
        seal.started,
        seal.step,
        seal.total_steps,
        dict(seal.metrics),
        sealed=True,
        changes=seal.changes,
    )


def _describe_open(run: Run) -> Summary:
    """A run without a seal, from its status and its last lines."""
    status, path = run.status, run.folder / layout.METRICS
    metrics = Metrics(reader.last_rows(path, _LAST_LINES) if reader.exists(path) else ())
    steps = [step for step in (whole(status.get("step")), metrics.last_step) if step is not None]
    return Summary(
        folder=run.folder,
        name=run.name,
        fingerprint=run.fingerprint,
        seed=run.seed,
        state=run.state,
        started=number(status.get("started")),
        step=max(steps, default=None),
        total_steps=whole(status.get("total_steps")),
        last=metrics.final(),
        changes=run.changes,
    )


def _blocks(folder: Path) -> Blocks:
    try:
        if (folder / layout.METRICS).lstat().st_size > _LARGEST_CURVES:
            raise StorageError(f"it has more than {_LARGEST_CURVES:,} bytes of metrics")
        metrics = Run(folder).metrics
    except (ApointError, OSError) as error:
        _log.warning("the curves of %s are left out: %s", shown(folder), error)
        return []
    named = (surface.partition("_") for surface in metrics.names)
    return [
        (name, split, block) for split, _, name in named for block in to_blocks(*metrics.series(name, split))
    ]


def _store_or_say_why_not(
    connection: sqlite3.Connection, summary: Summary, stamp: str, status: dict[str, Any]
) -> None:
    """Store a run; one with a number or text that SQLite cannot hold is kept with the reason."""
    try:
        _store(connection, summary, stamp, status)
    except (ValueError, OverflowError) as error:
        problem = f"{type(error).__name__}: {error}"
        unread = Summary(summary.folder, summary.folder.name, state="damaged", problem=problem)
        _store(connection, unread, stamp, {})


def _store(connection: sqlite3.Connection, summary: Summary, stamp: str, status: dict[str, Any]) -> None:
    connection.execute("DELETE FROM runs WHERE folder = ?", (summary.folder.name,))
    row = (
        *(summary.folder.name, stamp, summary.name, summary.fingerprint, summary.seed, summary.state),
        *(summary.started, summary.step, summary.total_steps, strict_json(summary.last), strict_json(status)),
        *(summary.problem, int(summary.sealed), summary.changes),
    )
    marks = ",".join("?" * (len(row) + 1))
    columns = ", ".join(_COLUMNS)
    connection.execute(f"INSERT INTO runs({columns}, sha256) VALUES({marks})", (*row, _row_hash(row)))


def _store_curves(connection: sqlite3.Connection, folder: str, stamp: str, blocks: Blocks) -> None:
    found = connection.execute("SELECT id FROM runs WHERE folder = ?", (folder,)).fetchone()
    if found is None:
        return
    connection.execute("DELETE FROM blocks WHERE run = ?", found)
    connection.executemany(
        "INSERT INTO blocks VALUES(?,?,?,?,?,?,?,?,?,?,?)",
        (
            (found[0], metric, split, *block, _row_hash((folder, metric, split, block.number, *block[3:5])))
            for metric, split, block in blocks
        ),
    )
    connection.execute("UPDATE runs SET curves = ? WHERE folder = ?", (stamp, folder))


def _row_hash(row: tuple[Any, ...]) -> str:
    return hashlib.sha256(repr(row).encode("utf-8", "surrogatepass")).hexdigest()


def _read_series(
    connection: sqlite3.Connection, metric: str, split: str, folders: Sequence[str] | None
) -> dict[str, Curve]:
    query = (
        'SELECT runs.folder, blocks.block, blocks.steps, blocks."values", blocks.sha256 FROM blocks '
        "JOIN runs ON runs.id = blocks.run WHERE blocks.metric = ? AND blocks.split = ?"
    )
    arguments: list[str] = [metric, split]
    if folders is not None:
        query += f" AND runs.folder IN ({','.join('?' * len(folders))})"
        arguments += folders
    rows = connection.execute(query + " ORDER BY blocks.run, blocks.block", arguments).fetchall()
    for folder, block, steps, values, digest in rows:
        if _row_hash((folder, metric, split, block, steps, values)) != digest:
            raise ChangedError("a curve is not as it was written")
    return {
        folder: from_blocks((steps, values) for _, _, steps, values, _ in group)
        for folder, group in groupby(rows, key=lambda row: row[0])
    }
