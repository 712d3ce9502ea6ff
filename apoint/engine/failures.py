"""Why a replica did not finish: evidence, an error, or a fault.

    evidence   the training itself diverged; a comparison scores it by the declared rule
    error      the code that was to be trained raised an exception
    fault      the machine failed: storage, memory, a lost process, a missing device

Only evidence says anything about a recipe. Errors and faults are never scored: they stop a comparison, which
can be resumed once the cause is gone.
"""

from __future__ import annotations

import errno
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import apoint
from apoint.errors import ApointError, DivergedError, FaultError, StorageError, UsageError, first_line

Kind = Literal["evidence", "error", "fault"]
_OF_THE_MACHINE = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
    errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ENOLCK, errno.EAGAIN, errno.ETIMEDOUT,
}  # fmt: skip
_OF_MEMORY = (
    "can't allocate memory", "cannot allocate memory", "not enough memory", "out of memory", "bad alloc",
    "bad_alloc", "can't start new thread", "failed to map segment",
)  # fmt: skip
_OF_A_DEVICE = ("cuda error", "cublas_status", "cudnn_status", "nccl error", "mps backend", "device-side")
_OF_FILES = ("too many open files",)
_LAST_LINES = 6


@dataclass(frozen=True)
class Failure:
    """Why a replica did not finish.

    Attributes:
        kind: `evidence`, `error` or `fault`.
        reason: The cause in one line.
        details: For an error, the last lines of the traceback in the code that raised it.
        retry: Whether retrying alone can help, as it can after a shortage of memory or open files.
    """

    kind: Kind
    reason: str
    details: str = ""
    retry: bool = False


def failure_of(error: BaseException) -> Failure:
    """Classify an exception that ended a training run."""
    reason = (
        first_line(error)
        if isinstance(error, ApointError)
        else f"{type(error).__name__}: {first_line(error)}"
    )
    if isinstance(error, DivergedError):
        return Failure("evidence", reason)
    if isinstance(error, MemoryError) or _says(error, (*_OF_MEMORY, *_OF_FILES)):
        return Failure("fault", reason, retry=True)
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        return Failure("fault", reason, retry=error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM))
    if isinstance(error, StorageError | FaultError):
        cause = error.__cause__
        return Failure("fault", reason, retry=cause is not None and failure_of(cause).retry)
    if _says(error, _OF_A_DEVICE):
        return Failure("fault", reason)
    return Failure("error", reason, _last_lines(error))


def restated(sentence: str, error: Exception) -> ApointError:
    """An exception that says where an error came from: a `FaultError` for a fault, else a `UsageError`."""
    return FaultError(sentence) if failure_of(error).kind == "fault" else UsageError(sentence)


def _says(error: BaseException, phrases: tuple[str, ...]) -> bool:
    """Whether a PyTorch or system error, which has no specific type, has one of these in its message."""
    if not isinstance(error, RuntimeError | OSError | ImportError):
        return False
    text = str(error).lower()
    return any(phrase in text for phrase in phrases)


def _last_lines(error: BaseException) -> str:
    """The end of a traceback, from the last frame that is neither in apoint nor in PyTorch."""
    if isinstance(error, UsageError):
        return ""  # its message is complete
    frames = traceback.extract_tb(error.__traceback__)
    own = [place for place, frame in enumerate(frames) if _is_theirs(frame.filename)]
    shown = frames[own[-1] :] if own else frames[-2:]
    lines = "".join(traceback.format_list(list(shown[:2]))).rstrip().splitlines()
    return "\n".join(lines[-_LAST_LINES:])


def _is_theirs(file: str) -> bool:
    """Whether a file is the user's: not in apoint, not in an installed package, not in Python itself."""
    path = Path(file)
    ours = Path(apoint.__file__).parent
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    library = Path(traceback.__file__).parent
    return not (
        path.is_relative_to(ours) or installed or path.is_relative_to(library) or file.startswith("<")
    )
