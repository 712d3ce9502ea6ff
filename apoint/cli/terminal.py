"""Terminal output: everything the command line writes to the terminal goes through here.

Text from files, recipes, run folders, servers and exceptions is untrusted, and none of it may move the
cursor or repaint the screen. All text is therefore made printable, and the only escape sequences that get
through are the colours that `paint` adds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import select
import sys
import warnings
from typing import Any, TextIO

import click

from apoint.errors import StorageError, one_line, printable

_SECRET = secrets.token_hex(8)  # marks a colour, so that no text from elsewhere can
_COLOUR = re.compile(rf"\x00{_SECRET}:(\w*)\x00")


def say(
    text: object = "",
    colour: str | None = None,
    *,
    err: bool = False,
    stream: TextIO | None = None,
    nl: bool = True,
) -> None:
    """Write text to standard output, in the characters of its encoding; colour only where it is wanted.

    Args:
        text: One line or several.
        colour: The colour of the whole text.
        err: Write to standard error; what cannot be written there is dropped, as it cannot be reported.
        stream: Write to this stream instead, handled like standard error.
        nl: Whether to end the line.
    """
    _write(_rendered(paint(str(text), colour)), stream or (sys.stderr if err else sys.stdout), nl)


def say_json(content: Any, indented: bool = False) -> None:
    """Write a value as strict JSON, with control characters escaped as JSON requires."""
    from apoint.store.lines import strict_json

    say(strict_json(content, indented))


def rewrite(text: object, stream: TextIO, width: int = 100) -> None:
    """Overwrite the line that the cursor is on, and stay on it."""
    _write("\r" + one_line(text)[: width - 1].ljust(width - 1), stream, nl=False)


def confirm(question: str) -> None:
    """Ask whether to continue, and abort if not."""
    click.confirm(printable(question), abort=True)


def paint(text: str, colour: str | None) -> str:
    """The text in a colour; `say` drops the colour where it is not wanted."""
    return f"\x00{_SECRET}:{colour}\x00{text}\x00{_SECRET}:\x00" if colour else text


def _rendered(text: str) -> str:
    """The text made printable, with the colours of `paint` as escape sequences."""
    parts = _COLOUR.split(text)
    for place, part in enumerate(parts):
        is_colour = place % 2 == 1
        parts[place] = _sequence(part) if is_colour else printable(part)
    return "".join(parts)


def _sequence(colour: str) -> str:
    return click.style("", fg=colour, reset=False) if colour else click.style("")


def _write(text: str, stream: TextIO | None, nl: bool) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    shown = text.encode(encoding, "replace").decode(encoding)
    try:
        click.echo(shown, file=stream, nl=nl, color=False if os.environ.get("NO_COLOR") else None)
    except BrokenPipeError:
        if stream is sys.stdout:
            raise  # the reader has gone, as with `head`
    except (OSError, ValueError) as error:  # a closed stream raises the latter
        if stream is sys.stdout:
            raise StorageError(f"cannot write to standard output: {_why(error)}") from error


def _why(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def take_notes() -> None:
    """Route warnings and log records of all libraries through `say`."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"apoint: {self.format(record)}", err=True)

    def show(message: Warning | str, *place: Any, **more: Any) -> None:
        say(f"apoint: {message}", err=True)

    logging.lastResort = Notes(logging.WARNING)
    warnings.showwarning = show


# -- leaving --------------------------------------------------------------------------------------------


def open_streams() -> None:
    """Open null streams where the shell closed the standard ones; what is written to them is lost."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (it stays open)


def finish_output() -> str | None:
    """Flush standard output, and return the reason if that fails.

    A reader that has gone is not a failure. After an error standard output is redirected to the null device;
    otherwise Python would flush again on exit and fail with its own message and exit code.
    """
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        close_output()
        if not isinstance(error, BrokenPipeError):
            return f"cannot write to standard output: {_why(error)}"
    return None


def close_output() -> None:
    """Redirect standard output to the null device."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reader_is_gone() -> bool:
    """Whether standard output is a pipe whose reader has gone, as with `head`."""
    try:
        poll = select.poll()
        poll.register(sys.stdout, 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # there is no poll, or no file behind the stream
        return False
