"""The only reader of run and comparison folders: bytes and parsing, nothing else.

A folder may come from anywhere, so nothing in it is trusted: links are not followed, only regular files are
opened, sizes are limited, and JSON and YAML are read strictly. Long files of lines are streamed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

from apoint.errors import DamagedError, StorageError, UsageError
from apoint.opening import open_regular, shown
from apoint.store.faults import storage_errors

_PART_BYTES = 2**18
MOST_BYTES = 16 * 2**20  # of a document; ours have a few thousand
LONGEST_LINE = 2**20
MOST_DIGITS = 300  # an integer with more digits does not fit into a float
_CHUNK = 2**20
_MARK = b'{"resume":'


class Digest(NamedTuple):
    """The size and SHA-256 of a file."""

    size: int
    sha256: str


class _Hash(Protocol):
    def update(self, data: bytes, /) -> object: ...


def inside(folder: Path, name: str) -> Path:
    """The path of a file in a folder; raise for a name that leads out of it or through a link."""
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts or "\\" in name:
        raise StorageError(f"{name!r} does not lie in {shown(folder)}")
    path = folder
    for part in relative.parts[:-1]:
        path = path / part
        if path.is_symlink():
            raise StorageError(f"{shown(path)} is a symbolic link; links in a run folder are not followed")
    return folder.joinpath(*relative.parts)


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a file; raise if it is not a regular file, or too large."""
    content = b""
    with open_regular(path, follow_links=False) as stream, storage_errors(path, "read"):
        # In parts: `read` allocates all it is asked for, and runs are sealed when memory is short.
        while len(content) <= most and (part := stream.read(min(_PART_BYTES, most + 1 - len(content)))):
            content += part
    if len(content) > most:
        raise StorageError(f"{shown(path)} has more than {most:,} bytes; apoint writes no such file here")
    return content


def read_text(path: Path) -> str:
    """The content of a text file; bytes that are not UTF-8 are replaced."""
    return read_bytes(path).decode("utf-8", "replace")


# -- JSON and YAML -------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    return parse_json(read_bytes(path), path)


def parse_json(content: bytes, path: Path) -> dict[str, Any]:
    """The object in some bytes of JSON: no duplicate names, no NaN, no non-finite numbers."""
    try:
        value = _STRICT.decode(content.decode("utf-8"))
    except (ValueError, RecursionError):
        raise DamagedError(f"cannot read {shown(path)}: it is not JSON as apoint writes it") from None
    if not isinstance(value, dict):
        raise DamagedError(f"cannot read {shown(path)}: a JSON object was expected")
    return value


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _whole(text: str) -> int:
    return int(text) if len(text) <= MOST_DIGITS else _refuse(text[:20])


def _finite(text: str) -> float:
    value = float(text)
    return value if abs(value) != float("inf") else _refuse(text[:20])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    return values if len(values) == len(pairs) else _refuse("a name that is there twice")


_STRICT = json.JSONDecoder(
    parse_int=_whole, parse_float=_finite, parse_constant=_refuse, object_pairs_hook=_unique
)
# There are many rows: their numbers are checked where they are used, not by a call for each.
_ROW = json.JSONDecoder(parse_constant=_refuse)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, read as strictly as a recipe: no tags, no aliases, no duplicate keys."""
    return parse_yaml(read_text(path), path)


def parse_yaml(text: str, path: Path) -> dict[str, Any]:
    """The mapping in some YAML."""
    from apoint.plain_yaml import parse_yaml as strict  # listing runs needs no YAML, and the import is slow

    try:
        value = strict(text, shown(path)).content
    except (UsageError, ValueError) as error:
        raise DamagedError(f"cannot read {shown(path)}: {error}") from None
    if not isinstance(value, dict):
        raise DamagedError(f"cannot read {shown(path)}: names with values were expected")
    return value


# -- lines ---------------------------------------------------------------------------------------------------


def mark(size: int) -> bytes:
    """The line that marks where a run was resumed: what is between `size` and this line is void."""
    return _MARK + f"{size}}}\n".encode()


def rows(path: Path, digest: _Hash | None = None) -> Iterator[dict[str, Any] | None]:
    """The objects in a file of lines, one by one; None for a line that is not one, as after a crash.

    What a resumed run had written after its checkpoint is skipped: it was measured again.

    Args:
        path: The file.
        digest: A hash that is updated with every byte, so that the file can be verified in the same reading.
    """
    void = _void_ranges(path)
    for offset, line in _lines(path):
        if digest is not None:
            digest.update(line)
        while void and offset >= void[0][1]:
            void.pop(0)
        if (void and offset >= void[0][0]) or line.isspace() or line.startswith(_MARK):
            continue
        yield decode_line(line)


def last_rows(path: Path, size: int) -> list[dict[str, Any] | None]:
    """The objects on the last lines of a file, those within its last `size` bytes."""
    with open_regular(path, follow_links=False) as stream, storage_errors(path, "read"):
        length = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, length - size))
        lines = stream.read(size).split(b"\n")
    whole = lines if length <= size else lines[1:]
    return [decode_line(line) for line in whole if line.strip() and not line.startswith(_MARK)]


def _void_ranges(path: Path) -> list[tuple[int, int]]:
    """The byte ranges of rows written after a checkpoint and before the run was resumed from it."""
    found: list[tuple[int, int]] = []
    for offset, line in _lines(path):
        if line.startswith(_MARK) and (size := _marked(line)) is not None and size < offset:
            found = [each for each in found if each[0] < size]
            if found and found[-1][1] > size:
                found[-1] = (found[-1][0], offset)
            else:
                found.append((size, offset))
    return found


def _marked(line: bytes) -> int | None:
    row = decode_line(line)
    size = row.get("resume") if row else None
    return size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with the offsets where they begin."""
    offset = 0
    with open_regular(path, follow_links=False) as stream, storage_errors(path, "read"):
        while line := stream.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise StorageError(
                    f"{shown(path)} has a line of more than {LONGEST_LINE:,} bytes; it is not a file of ours"
                )
            yield offset, line
            offset += len(line)


def decode_line(line: bytes) -> dict[str, Any] | None:
    """The object on a line, or None if the line is not one."""
    try:
        row = _ROW.decode(line.decode("utf-8"))
    except (ValueError, RecursionError):  # also bytes that are not UTF-8
        return None
    return row if isinstance(row, dict) else None


# -- digests -------------------------------------------------------------------------------------------------


def digest_of(path: Path, size: int | None = None) -> Digest:
    """The size and SHA-256 of a file, or of its first `size` bytes."""
    digest, left, total = hashlib.sha256(), size, 0
    with open_regular(path, follow_links=False) as stream, storage_errors(path, "read"):
        while chunk := stream.read(_CHUNK if left is None else min(_CHUNK, left)):
            digest.update(chunk)
            total += len(chunk)
            left = None if left is None else left - len(chunk)
    return Digest(total, digest.hexdigest())


def digest_of_text(text: str) -> Digest:
    """The size and SHA-256 of a file with this text."""
    return digest_of_bytes(text.encode("utf-8", "surrogatepass"))


def digest_of_bytes(content: bytes) -> Digest:
    """The size and SHA-256 of a file with this content."""
    return Digest(len(content), hashlib.sha256(content).hexdigest())


def exists(path: Path) -> bool:
    """Whether there is anything at a path, even a dangling link."""
    return os.path.lexists(path)


def problems(folder: Path, files: dict[str, Digest]) -> Iterable[str]:
    """The problems of files whose digests are known, one phrase each."""
    for name, expected in sorted(files.items()):
        try:
            found = digest_of(inside(folder, name))
        except StorageError as error:
            yield f"{name} is missing" if is_missing(error) else str(error)
            continue
        if found != expected:
            yield f"{name} has changed since it was written"


def is_missing(error: BaseException) -> bool:
    """Whether an error means that there is no such file."""
    return isinstance(error.__cause__, FileNotFoundError)
