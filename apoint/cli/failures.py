"""How the command line fails: one sentence and an exit code for every exception, expected or not."""

from __future__ import annotations

import os
import platform
import shlex
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import click

from apoint import __version__
from apoint.cli.terminal import close_output, reader_is_gone, say, say_json
from apoint.errors import ApointError, first_line, one_line, printable

FAILURE, WRONG_INPUT, UNEXPECTED, INTERRUPTED = 1, 2, 70, 130
_NO_ARGUMENTS = getattr(click.exceptions, "NoArgsIsHelpError", ())  # older versions of click print the help
_MOST_LETTERS = 400
_LAST_LINES = 12
_OWN_MODULE = "apoint_user_"  # prefix of the modules made from the user's files
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


class PipeClosedError(OSError):
    """A pipe was closed at its other end; its errno is not the one on which click exits silently."""


@contextmanager
def seeing_closed_pipes() -> Iterator[None]:
    """Raise `PipeClosedError` for a broken pipe."""
    try:
        yield
    except BrokenPipeError as error:
        raise PipeClosedError(0, "a pipe was closed at its other end", error.filename) from error


def report(error: BaseException, arguments: list[str]) -> int:
    """Report an error on standard error, with --json on standard output too, and return the exit code.

    Args:
        error: The exception.
        arguments: The command line.
    """
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, PipeClosedError) and reader_is_gone():
        close_output()
        return 0
    if isinstance(error, _NO_ARGUMENTS):
        say(error.format_message(), err=True)
        return WRONG_INPUT
    if os.environ.get("APOINT_DEBUG"):
        say("".join(traceback.format_exception(error)), err=True, nl=False)
    sentence, code = _foreseen(error) or _unforeseen(error, arguments)
    tell(sentence, code, arguments)
    return code


def tell(sentence: str, code: int, arguments: list[str]) -> None:
    """Write a sentence about what went wrong."""
    if "--json" in arguments:
        try:
            say_json({"schema_version": 1, "error": sentence, "exit_code": code})
        except (ApointError, OSError):  # standard output is what went wrong
            close_output()
    say(f"apoint: {sentence}", err=True)


def _foreseen(error: BaseException) -> tuple[str, int] | None:
    """The sentence and the exit code of an error that is not a defect of this program."""
    match error:
        case click.ClickException():
            return error.format_message(), WRONG_INPUT
        case ApointError():
            return str(error), error.exit_code
        case MemoryError():
            return f"the machine ran out of memory{_detail(error)}", FAILURE
        case RuntimeError() if any(words in str(error).lower() for words in _OUT_OF_MEMORY):
            return f"the machine ran out of memory{_detail(error)}", FAILURE
        case RecursionError():
            return f"something is nested too deeply{_detail(error)}", FAILURE
        case OSError():
            return _of_the_machine(error), FAILURE
        case ValueError() if "embedded null" in str(error):
            return "a file name has a NUL character in it, which no file can have", WRONG_INPUT
    return None


def _of_the_machine(error: OSError) -> str:
    named = [str(name) for name in (error.filename, error.filename2) if name is not None]
    words = error.strerror or str(error) or type(error).__name__
    return _short(": ".join([words[:1].lower() + words[1:], *named])) + "; --debug shows where it happened"


def _detail(error: BaseException) -> str:
    place = _place(error.__traceback__)
    return _short(f" ({place})" if place else "") + (f": {_short(first_line(error))}" if str(error) else "")


def _unforeseen(error: BaseException, arguments: list[str]) -> tuple[str, int]:
    """The sentence about a defect, in the user's own code or else in this program."""
    name, place = type(error).__name__, _place(error.__traceback__)
    what = f"{name}: {_short(first_line(error))}" if str(error) else name
    where = f" ({place})" if place else ""
    saved = save_traceback(error, arguments)
    if any(_is_own(frame) for frame in _frames(error.__traceback__)):
        return f"your own code raised {what}{where}; {saved}", FAILURE
    return f"unexpected {what}{where}; {saved}; please report it", UNEXPECTED


def save_traceback(error: BaseException, arguments: list[str]) -> str:
    """Write the traceback to a file that only its owner can read; return its path as part of a sentence."""
    lines = printable("".join(traceback.format_exception(error))).splitlines()
    head = [
        f"apoint {__version__}, Python {platform.python_version()}, {platform.platform()}",
        printable(shlex.join(["apoint", *arguments])),
    ]
    try:
        handle, path = tempfile.mkstemp(prefix="apoint-", suffix=".txt")  # readable by its owner alone
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write("\n".join([*head, "", *lines, ""]))
    except OSError:
        say("\n".join(lines[-_LAST_LINES:]), err=True)
        return "the end of the traceback is above, as it could not be saved"
    return f"the traceback is in {path}"


# -- where it happened ----------------------------------------------------------------------------------


def _place(trace: TracebackType | None) -> str:
    """The innermost place in the user's files, or else in this program, such as `apoint/cli/train.py:91`."""
    frames = _frames(trace)
    own = [frame for frame in frames if _is_own(frame)]
    ours = [frame for frame in frames if str(frame.tb_frame.f_globals.get("__name__")).startswith("apoint.")]
    chosen = (own or ours or frames)[-1:]
    return "".join(f"{_file(frame)}:{frame.tb_lineno}" for frame in chosen)


def _frames(trace: TracebackType | None) -> list[TracebackType]:
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


def _is_own(frame: TracebackType) -> bool:
    return str(frame.tb_frame.f_globals.get("__name__")).startswith(_OWN_MODULE)


def _file(frame: TracebackType) -> str:
    """The file of a frame: for this program the path from its top folder, otherwise the file name."""
    path = frame.tb_frame.f_code.co_filename
    module = str(frame.tb_frame.f_globals.get("__name__"))
    if not module.startswith("apoint."):
        return os.path.basename(path)
    depth = module.count(".") + (os.path.basename(path) == "__init__.py")
    return "/".join(path.replace(os.sep, "/").split("/")[-depth - 1 :])


def _short(text: str) -> str:
    """The text on one line; a long text loses its middle."""
    line = one_line(text)
    half = _MOST_LETTERS // 2
    return line if len(line) <= _MOST_LETTERS else f"{line[:half]} … {line[-half:]}"
