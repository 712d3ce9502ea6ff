"""Files of one JSON object per line that are only ever appended to, by one process.

The lines are strict JSON, so any tool can read them. What JSON has no word for is written as text: "NaN",
"Infinity", "-Infinity". Floats are written with the shortest digits that give the same bits back.
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from pathlib import Path
from typing import Any

from apoint.errors import StorageError
from apoint.store.faults import describe_fault, storage_errors

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
KEPT_BYTES = 64 * 2**20  # what may wait in memory while the disk refuses: half a million rows or so


def _plain(value: Any) -> Any:
    """What JSON does not know: arrays and tensors by their numbers, everything else by its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


_STRICT = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_plain)
_INDENTED = json.JSONEncoder(allow_nan=False, indent=2, default=_plain)


def strict_json(value: Any, indented: bool = False) -> str:
    """`value` as strict JSON, numbers that are not finite as text."""
    encoder = _INDENTED if indented else _STRICT
    try:
        return encoder.encode(value)
    except ValueError:  # a number is not finite: rare, so that looking for it first would be a waste
        return encoder.encode(spell_out(value))


def spell_out(value: Any) -> Any:
    """`value` with each float that is not finite replaced by its name."""
    if isinstance(value, float):
        return value if math.isfinite(value) else spelling(value)
    if isinstance(value, dict):
        return {key: spell_out(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [spell_out(item) for item in value]
    return spell_out(value.tolist()) if hasattr(value, "tolist") else value


def spelling(value: float) -> str:
    """How a number is written as text: its shortest exact digits, or NaN, Infinity, -Infinity."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All whole lines of a file, and the number of lines that were torn by a crash; no file, no lines."""
    with storage_errors(path, "read"):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return [], 0
    rows, torn = [], 0
    for line in content.split(b"\n"):
        if not line or line.isspace():
            continue
        row = decode_line(line)
        if row is None:
            torn += 1
        else:
            rows.append(row)
    return rows, torn


def decode_line(line: bytes) -> dict[str, Any] | None:
    """The object on a line, or None if the line is not one."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # also bytes that are not UTF-8
        return None
    return row if isinstance(row, dict) else None


class LineWriter:
    """Appends lines to a file; lines that the disk refuses wait in memory and are tried again.

    Each line is handed to the operating system at once, so that a killed process loses none. A line
    that went in by half is continued where it broke off. `trouble` is the last refusal, as a sentence.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble: str | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        with storage_errors(path):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            self._handle = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o644)
        self._end_torn_line()

    def _end_torn_line(self) -> None:
        with storage_errors(self.path):
            size = os.fstat(self._handle).st_size
            if size == 0:
                return
            os.lseek(self._handle, size - 1, os.SEEK_SET)
            ended = os.read(self._handle, 1) == b"\n"
        if not ended:
            self._append(b"\n")

    @property
    def num_waiting(self) -> int:
        """How many lines are not yet in the file."""
        return len(self._waiting)

    def write(self, row: dict[str, Any]) -> None:
        """Append one object; raises only when more is waiting than memory may hold."""
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
        """Write what the disk takes, and say how much that was."""
        total = 0
        while total < len(data):
            try:
                total += os.write(self._handle, data[total:] if total else data)
            except OSError as error:
                self.trouble = describe_fault(error, self.path)
                return total
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
        """Wait until every line is on disk, or raise; what could not be written stays and is tried again."""
        self._retry()
        if self._waiting:
            raise StorageError(f"{self.trouble}; {self.num_waiting} lines wait in memory and are tried again")
        with storage_errors(self.path):
            os.fsync(self._handle)

    def close(self) -> None:
        """Sync and close; closes even when the disk refuses, and says how much is lost then."""
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
