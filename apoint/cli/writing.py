"""Output files named by the user: an existing file is not overwritten without --force."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from apoint.errors import UsageError

force_option = click.option("--force", is_flag=True, help="Overwrite an existing file.")


def check_vacant(path: str | None, force: bool) -> None:
    """Reject an output path before any work is done: an existing file, unless it may be overwritten.

    Args:
        path: The path of the file; None to write none.
        force: Whether an existing file may be overwritten.
    """
    if path is None:
        return
    if Path(path).is_dir():
        raise UsageError(f"{path} is a folder; name a file to write")
    if Path(path).exists() and not force:
        raise UsageError(f"{path} exists; name another file, or allow overwriting with --force")


def check_report(path: str | None, force: bool) -> None:
    """Reject a report path before any work is done; a report that this same command wrote is replaced."""
    if path is not None and Path(path).is_file() and not force:
        from apoint.report.page import is_report_of

        force = is_report_of(path, command_line())
    check_vacant(path, force)


def command_line() -> str:
    """The command as typed, for the record, without the program's own path."""
    return shlex.join(["apoint", *sys.argv[1:]])
