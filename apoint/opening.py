"""Open files that come from outside: regular files only, without blocking and without side effects.

A name in a recipe or in a folder can refer to anything. Opening a named pipe waits for a writer, reading
`/dev/zero` never ends, and opening some devices has side effects. So the type of the file is checked before
it is opened, and again on the open file, in case it was replaced in between.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from apoint.errors import StorageError, one_line

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}
_LONGEST_NAME = 200


def _flag(name: str) -> int:
    """A flag of `os.open`, or 0 if the system has no such flag."""
    return int(getattr(os, name, 0))


_FLAGS = os.O_RDONLY | _flag("O_BINARY") | _flag("O_CLOEXEC") | _flag("O_NONBLOCK") | _flag("O_NOCTTY")
_NO_LINK = _flag("O_NOFOLLOW")


def open_regular(path: str | os.PathLike[str], *, follow_links: bool = True) -> BinaryIO:
    """Open a regular file for reading bytes; raise a one-sentence error for anything else.

    Args:
        path: The file.
        follow_links: Whether `path` itself may be a symbolic link. Its parent folders always may.

    Raises:
        StorageError: There is no such file, it is not a regular file, or it may not be read. If the
            operating system refused, its `OSError` is the `__cause__`.
    """
    flags = _FLAGS if follow_links else _FLAGS | _NO_LINK
    try:
        _refuse_unless_regular(path, os.stat(path, follow_symlinks=follow_links))
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:  # ValueError: a NUL or an unpaired surrogate in the name
        reason = error.strerror if isinstance(error, OSError) else "no file can have this name"
        raise StorageError(f"{shown(path)} cannot be opened: {reason}") from error
    try:
        _refuse_unless_regular(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def shown(path: str | os.PathLike[str]) -> str:
    """Format a path for a message: no control characters, and shortened in the middle if very long."""
    text = one_line(os.fspath(path))
    half = _LONGEST_NAME // 2
    return text if len(text) <= _LONGEST_NAME else f"{text[:half]}…{text[-half:]}"


def _refuse_unless_regular(path: str | os.PathLike[str], status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
        raise StorageError(f"{shown(path)} is {kind}; a regular file is needed")
