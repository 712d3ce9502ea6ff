"""Files that the user names: nothing that is there is overwritten without --force."""

from __future__ import annotations

from pathlib import Path

import click

from apoint.errors import UsageError

force_option = click.option("--force", is_flag=True, help="Overwrite what is there.")


def check_vacant(path: str | None, force: bool) -> None:
    """Refuse a place for a file before any work is done: an existing file, unless it may be overwritten.

    Args:
        path: Where the file shall be; None if there shall be none.
        force: Whether an existing file may be overwritten.
    """
    if path is None:
        return
    if Path(path).is_dir():
        raise UsageError(f"{path} is a folder; name a file to write")
    if Path(path).exists() and not force:
        raise UsageError(f"{path} exists; name another file, or allow overwriting with --force")
