"""Whole files: written to a temporary name, synced and renamed, so that a reader sees old or new content."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from apoint.errors import UsageError
from apoint.store.faults import storage_errors

REMOVED = ".removed-"
_LEFTOVER = re.compile(r"^\.(?:.*\.tmp-|removed-.*-)(\d{1,10})$")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def write_atomically(path: Path, content: str | bytes, durable: bool = True) -> None:
    """Replace the file at `path` with `content` in one step.

    Args:
        path: The path of the file.
        content: Text (written as UTF-8 with its line ends untouched) or bytes.
        durable: Whether to wait until it is on disk; a heartbeat need not.
    """
    with storage_errors(path), _replacing(path, durable) as stream:
        stream.write(_as_bytes(content))


@contextlib.contextmanager
def new_file(path: Path, force: bool = False) -> Iterator[BinaryIO]:
    """A stream for a new file that appears at `path` only if the block succeeds; does not overwrite.

    Args:
        path: The path of the file; missing parent folders are created.
        force: Whether an existing file may be replaced.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file to write")
    if path.exists() and not force:
        raise UsageError(f"{path} exists; name another file, or allow overwriting with --force")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, f".{path.name}.tmp-")
        with _replacing(path, durable=True) as stream:
            yield stream


def is_leftover(name: str) -> bool:
    """Whether a name is that of a temporary file, which a killed process may have left behind."""
    return _LEFTOVER.search(name) is not None


def sweep(folder: Path, beginning: str = ".") -> None:
    """Remove what dead processes left half-written or half-removed in a folder.

    Args:
        folder: The folder; the contents of its sub-folders stay.
        beginning: The prefix of the names to remove.
    """
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            match = _LEFTOVER.search(entry.name)
            if match and entry.name.startswith(beginning) and not _is_process(int(match[1])):
                with contextlib.suppress(OSError):
                    _remove(entry)


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path)
    else:
        os.unlink(entry.path)


def _is_process(pid: int) -> bool:
    """Whether there is a process with this id, as far as can be determined."""
    if sys.platform == "win32":  # there, os.kill would stop the process
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def _replacing(path: Path, durable: bool) -> Iterator[BinaryIO]:
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with open(temporary, "wb") as stream:
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in `folder` are on disk; does nothing where folders cannot be synced."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
            raise
    finally:
        os.close(handle)


def replace_or_overwrite(path: Path, content: str, durable: bool = True) -> None:
    """Like `write_atomically`; on a full disk, overwrite the small file that is already there.

    A new file needs a free block; the old file has one. The last state of a run can thus be recorded even
    after its disk has filled up. Only for content whose readers tolerate a torn file.
    """
    try:
        with _replacing(path, durable) as stream:
            stream.write(_as_bytes(content))
    except OSError as error:
        if error.errno not in _NO_SPACE or not path.exists():
            with storage_errors(path):
                raise
        with storage_errors(path), open(path, "r+b") as stream:
            stream.write(_as_bytes(content).ljust(path.stat().st_size))


def _as_bytes(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
