"""Files of one JSON object per line that are only ever appended to, by one process.

The lines are strict JSON, so any tool can read them. What JSON cannot express is written as text: "NaN",
"Infinity", "-Infinity". Floats are written with the fewest digits that restore the same bits.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import deque
from pathlib import Path
from typing import Any

from apoint.errors import DamagedError, StorageError
from apoint.opening import shown
from apoint.store.faults import describe_fault, storage_errors
from apoint.store.reader import Digest, digest_of, mark

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
KEPT_BYTES = 64 * 2**20  # what may wait in memory while the disk refuses: about half a million rows


def _plain(value: Any) -> Any:
    """Convert what JSON cannot express: arrays and tensors to numbers, everything else to text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


_STRICT = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_plain)
_INDENTED = json.JSONEncoder(allow_nan=False, indent=2, default=_plain)


def strict_json(value: Any, indented: bool = False) -> str:
    """`value` as strict JSON, with non-finite numbers as text."""
    encoder = _INDENTED if indented else _STRICT
    try:
        return encoder.encode(value)
    except ValueError:  # a non-finite number: too rare to look for it first
        return encoder.encode(spell_out(value))


def spell_out(value: Any) -> Any:
    """`value` with each non-finite float replaced by its name."""
    if isinstance(value, float):
        return value if math.isfinite(value) else spelling(value)
    if isinstance(value, dict):
        return {key: spell_out(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [spell_out(item) for item in value]
    return spell_out(value.tolist()) if hasattr(value, "tolist") else value


def spelling(value: float) -> str:
    """A number as text: its shortest exact digits, or NaN, Infinity, -Infinity."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


class LineWriter:
    """Appends lines to a file; lines that the disk refuses wait in memory and are retried.

    Each line is handed to the operating system immediately, so that a killed process loses none. A partly
    written line is continued where it broke off. `trouble` is the last error, as a sentence. A running
    digest of what was written shows later whether the file has changed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble: str | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._digest, self._size = hashlib.sha256(), 0
        with storage_errors(path):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | _FLAGS
            self._handle = os.open(path, flags, 0o644)
        last = self._read_all()
        if last not in (b"", b"\n"):  # the last line was torn
            self._append(b"\n")

    def _read_all(self) -> bytes:
        """Add the existing content to the digest; return the last byte."""
        last = b""
        with storage_errors(self.path, "read"):
            while chunk := os.read(self._handle, 2**20):
                self._digest.update(chunk)
                self._size += len(chunk)
                last = chunk[-1:]
        return last

    @property
    def digest(self) -> Digest:
        """Size and hash of what was written, without what waits in memory."""
        return Digest(self._size, self._digest.hexdigest())

    def check(self) -> None:
        """Raise if the file was removed, replaced, truncated or appended to from outside."""
        try:
            found, ours = os.lstat(self.path), os.fstat(self._handle)
        except OSError:
            raise DamagedError(f"{shown(self.path)} was removed while the run was writing it") from None
        if (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino) or found.st_size != self._size:
            raise DamagedError(
                f"{shown(self.path)} was changed by somebody else while the run was writing it"
            )

    def rewind(self, to: Digest) -> None:
        """Void what was written after a checkpoint; raise if what was written before it has changed.

        Nothing is removed: a line marks from where on the rows before it do not count.

        Args:
            to: The digest of the file when the checkpoint was saved.
        """
        self.check_beginning(to)
        if self._size > to.size:
            self._append(mark(to.size))

    def check_beginning(self, expected: Digest) -> None:
        """Raise if the first part of the file has changed."""
        if digest_of(self.path, expected.size) != expected:
            raise DamagedError(f"{shown(self.path)} has changed since the last checkpoint was saved")

    @property
    def num_waiting(self) -> int:
        """The number of lines that are not yet in the file."""
        return len(self._waiting)

    def write(self, row: dict[str, Any]) -> None:
        """Append one object; raise only if more is waiting than memory may hold."""
        self._append(strict_json(row).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        if self._waiting:
            self._wait(line)
            self._retry()
            return
        written = self._try(line)
        if written < len(line):
            self._wait(line[written:])

    def _try(self, data: bytes) -> int:
        """Write what the disk accepts, and return the number of bytes."""
        total = 0
        while total < len(data):
            try:
                total += os.write(self._handle, data[total:] if total else data)
            except OSError as error:
                self.trouble = describe_fault(error, self.path)
                break
        self._digest.update(data[:total] if total < len(data) else data)
        self._size += total
        return total

    def _wait(self, data: bytes) -> None:
        if self._waiting_bytes + len(data) > KEPT_BYTES:
            raise StorageError(
                f"{self.trouble}; {self.num_waiting} lines wait in memory, which is all it may hold"
            )
        self._waiting.append(data)
        self._waiting_bytes += len(data)

    def _retry(self) -> None:
        while self._waiting:
            line = self._waiting[0]
            written = self._try(line)
            self._waiting_bytes -= written
            if written < len(line):
                self._waiting[0] = line[written:]
                return
            self._waiting.popleft()
        self.trouble = None

    def sync(self) -> None:
        """Wait until every line is on disk, or raise; what could not be written is kept and retried."""
        self._retry()
        if self._waiting:
            raise StorageError(f"{self.trouble}; {self.num_waiting} lines wait in memory and are tried again")
        with storage_errors(self.path):
            os.fsync(self._handle)

    def close(self) -> None:
        """Sync and close; closes even if the disk refuses, and then reports how much is lost."""
        if self._handle < 0:
            return
        try:
            self.sync()
        except StorageError as error:
            if not self._waiting:
                raise
            raise StorageError(f"{self.trouble}; the last {self.num_waiting} lines are lost") from error
        finally:
            os.close(self._handle)
            self._handle = -1
