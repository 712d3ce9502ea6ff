"""File-system errors as one sentence with the path, the reason and the remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from apoint.errors import StorageError

Location = str | os.PathLike[str]

_ELSEWHERE = "or put the runs elsewhere (--runs-root, or the variable APOINT_RUNS)"
_REASONS: dict[int, str] = {
    errno.ENOSPC: f"the disk is full; free some space, {_ELSEWHERE}",
    errno.EDQUOT: f"your disk quota is used up; delete something of yours, {_ELSEWHERE}",
    errno.EFBIG: f"the largest allowed file size is reached; raise it (ulimit -f), {_ELSEWHERE}",
    errno.EACCES: f"permission is denied; change its owner or mode (chmod u+rwX), {_ELSEWHERE}",
    errno.EPERM: f"the operation is not permitted; change its owner or attributes, {_ELSEWHERE}",
    errno.EROFS: f"the file system is read-only; remount it for writing, {_ELSEWHERE}",
    errno.ENOENT: "it does not exist; check the path, and that nothing removed the folder meanwhile",
    errno.ENOTDIR: "a part of the path is a file, not a folder; check the path",
    errno.EISDIR: "it is a folder, not a file; name a file",
    errno.ENOTEMPTY: "the folder is not empty; name another one",
    errno.EIO: f"the disk reports an input/output error; check it (dmesg), {_ELSEWHERE}",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n) or run fewer at once",
    errno.ENAMETOOLONG: "the name is too long for this file system; give the recipe a shorter name",
    errno.ESTALE: f"the network folder went away; mount it again, {_ELSEWHERE}",
}


def describe_fault(error: OSError, path: Location, doing: str = "write") -> str:
    """An operating-system error as one sentence: what could not be done, where, why, and the remedy."""
    reason = _REASONS.get(error.errno or 0) or f"{error.strerror or error}; check the disk and the path"
    return f"cannot {doing} {os.fspath(path)}: {reason}"


@contextmanager
def storage_errors(path: Location, doing: str = "write") -> Iterator[None]:
    """Turn any `OSError` of the block into a `StorageError` that names `path` and the remedy.

    Args:
        path: The file or folder the block works on.
        doing: The verb of the sentence, such as `write`, `read` or `remove`.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(describe_fault(error, path, doing)) from error
