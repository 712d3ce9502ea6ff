"""Folders that the book writes to: its own or new ones, unless the user allows others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from apoint.errors import UsageError
from apoint.store import storage_errors

MARK = ".apoint-book"  # a file in the folders that the book made itself
_WORDS = "apoint wrote the files of this folder, and may write over them.\n"


def make_folder(folder: Path, names: Iterable[str] | None = None, force: bool = False) -> None:
    """Create a folder to write to; raise if files that the book did not write would be overwritten.

    Args:
        folder: The folder; created if it is missing.
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
