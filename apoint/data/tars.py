"""Tar files read strictly and in any order: where each member begins, without unpacking anything.

Python's `tarfile` treats a damaged header in the middle of a file, and a file cut between two members, as the
end of the archive, and the rest of a shard would be missing silently. Here each is an error. Supported are
ustar, GNU tar (long names, large sizes) and pax (paths, sizes); nothing is ever written.

Format: POSIX.1-2017, pax, "ustar interchange format"; GNU tar manual, "Basic tar format".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from apoint.data.locate import open_file
from apoint.errors import UsageError
from apoint.opening import shown

BLOCK = 512
_WINDOW = 8 * BLOCK  # one read covers a small label, its header and the next header
_MOST_EXTENDED = 1 << 20
_MOST_PADDING = 16 << 20  # tar pads its last record, which has 10 KiB unless set larger
_EMPTY = bytes(BLOCK)
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_PLAIN = (b"0", b"\0", b"7")


@dataclass(frozen=True)
class Member:
    """A member of a tar file: its name, whether it is a plain file, and where its content is."""

    name: str
    is_plain: bool
    offset: int
    size: int


class TarReader:
    """Reads one tar file by position; use it in a `with` statement."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream = open_file(path)
        self._file = self._stream.fileno()
        found = os.fstat(self._file)
        self.size, self.mtime_ns = found.st_size, found.st_mtime_ns
        self._start, self._window = 0, b""

    def __enter__(self) -> TarReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def read(self, offset: int, count: int) -> bytes:
        """Read bytes of the file; fewer than `count` at its end."""
        if not self._start <= offset or offset + count > self._start + len(self._window):
            self._start, self._window = offset, pread_all(self._file, max(count, _WINDOW), offset)
        begin = offset - self._start
        return self._window[begin : begin + count]

    def members(self) -> Iterator[Member]:
        """All members in order; raise a `UsageError` for anything malformed."""
        self._refuse_compressed()
        position, extended = 0, dict[str, str]()
        while (header := self._header(position)) != _EMPTY:
            kind, size = header[156:157], self._size(header, position, extended)
            begin = position + BLOCK
            name = extended.get("path") or _name(header)
            if begin + size > self.size:
                raise UsageError(
                    f"{self.path}: member {shown(name)} ends at byte {begin + size}, the file at "
                    f"{self.size}; the shard is truncated, so fetch it again"
                )
            position = begin + (size + BLOCK - 1) // BLOCK * BLOCK
            if kind in b"LKxg":
                extended |= self._extended(kind, begin, size)
                continue
            yield Member(name, kind in _PLAIN and "GNU.sparse" not in extended, begin, size)
            extended = {}
        self._refuse_rest(position)

    def _refuse_compressed(self) -> None:
        start = self.read(0, 6)
        for magic, name in _COMPRESSED.items():
            if start.startswith(magic):
                raise UsageError(
                    f"{self.path}: the shard is compressed with {name}, and its members cannot be read in "
                    "any order; decompress it to a plain tar"
                )

    def _header(self, position: int) -> bytes:
        header = self.read(position, BLOCK)
        if len(header) < BLOCK:
            raise UsageError(
                f"{self.path}: the file ends at byte {self.size} without a tar's end mark; the shard is "
                "truncated, so fetch it again"
            )
        if header != _EMPTY:
            marked = _number(header[148:156])
            if marked is None or sum(header) - sum(header[148:156]) + 8 * ord(" ") != marked:
                what = f"the header at byte {position} is damaged" if position else "this is not a tar file"
                raise UsageError(f"{self.path}: {what}; fetch the shard again")
        return header

    def _size(self, header: bytes, position: int, extended: dict[str, str]) -> int:
        text = extended.get("size", "")
        size = int(text) if text.isdecimal() and len(text) < 20 else _number(header[124:136])
        if size is None or size < 0:
            raise UsageError(
                f"{self.path}: the header at byte {position} gives no size of its member; fetch the shard "
                "again"
            )
        return size

    def _extended(self, kind: bytes, offset: int, size: int) -> dict[str, str]:
        """The fields of a header about the member that follows: its full name, its size."""
        if size > _MOST_EXTENDED:
            raise UsageError(
                f"{self.path}: the extended header at byte {offset} has {size} bytes, which no name needs; "
                "fetch the shard again"
            )
        content = self.read(offset, size)
        if kind == b"L":
            return {"path": _text(content)}
        return _pax(content) if kind == b"x" else {}

    def _refuse_rest(self, position: int) -> None:
        """Raise if anything but empty blocks follows the end mark, since it would be lost."""
        rest = self.size - position
        if rest > _MOST_PADDING:
            raise UsageError(
                f"{self.path}: the tar's end mark stands at byte {position}, and {rest} bytes follow; fetch "
                "the shard again"
            )
        while content := self.read(position, 1 << 16):
            if content.strip(b"\0"):
                raise UsageError(
                    f"{self.path}: there is more after the tar's end mark, from byte {position}, as in files "
                    "that were joined; give each tar as a file of its own"
                )
            position += len(content)


def pread_all(file: int, count: int, offset: int) -> bytes:
    """Read bytes of an open file; fewer than `count` only at its end, which one call does not guarantee."""
    found = os.pread(file, count, offset)
    while len(found) < count and (more := os.pread(file, count - len(found), offset + len(found))):
        found += more
    return found


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _name(header: bytes) -> str:
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{_text(header[:100])}" if prefix else _text(header[:100])


def _number(field: bytes) -> int | None:
    """A number as tar writes it: octal digits, or with the first bit set a binary number."""
    if field[0] & 0x80:
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    digits = field.strip(b" \0")
    return int(digits or b"0", 8) if not digits.strip(b"01234567") else None


def _pax(content: bytes) -> dict[str, str]:
    """The records `length key=value` of an extended header that matter here."""
    found: dict[str, str] = {}
    while content:
        length = content.partition(b" ")[0]
        if not length.isdigit() or len(length) > 8 or not len(length) + 1 < int(length) <= len(content):
            break
        key, _, value = content[len(length) + 1 : int(length) - 1].partition(b"=")
        content = content[int(length) :]
        if key in (b"path", b"size"):
            found[key.decode()] = value.decode("utf-8", "surrogateescape")
        elif key.startswith(b"GNU.sparse"):
            found["GNU.sparse"] = "yes"
    return found
