"""Folders that the book writes into: its own, or new ones, unless the user allows more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from apoint.errors import UsageError
from apoint.store import storage_errors

MARK = ".apoint-book"  # lies in the folders that the book made itself
_WORDS = "apoint wrote the files of this folder, and may write over them.\n"


def make_folder(folder: Path, names: Iterable[str] | None = None, force: bool = False) -> None:
    """Make a folder to write into; refuse one where something of somebody else's would be overwritten.

    Args:
        folder: Where to; made if it is missing.
        names: The files that will be written; None if the whole folder must be the book's own.
        force: Whether to overwrite what is there.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name a folder to write into")
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        there = {path.name for path in folder.iterdir()}
        if not there:
            (folder / MARK).write_text(_WORDS)
    if force or not there or MARK in there:
        return
    if names is None:
        raise UsageError(
            f"{folder} is not empty and was not made by apoint book; name another folder, or allow "
            "overwriting with --force"
        )
    for name in names:
        if name in there:
            raise UsageError(
                f"{folder / name} exists; name another folder, or allow overwriting with --force"
            )
