"""The book as offline pages: one page per chapter, the table of outcomes, errata, reading list."""

from __future__ import annotations

from pathlib import Path

from apoint.book.folders import make_folder
from apoint.book.site import chapter, front, lists
from apoint.book.site.shelf import Shelf
from apoint.store.files import write_atomically


def pages(shelf: Shelf) -> dict[str, str]:
    """Return the pages by file name, front page first.

    Args:
        shelf: Claims, exercises and their outcomes.
    """
    found = {"index.html": front.page(shelf)}
    found |= {f"{letter.lower()}.html": chapter.page(shelf, letter) for letter in shelf.chapters}
    found["errata.html"] = lists.errata_page(shelf)
    found["reading.html"] = lists.reading_page(shelf)
    return found


def write(shelf: Shelf, folder: Path, force: bool = False) -> list[Path]:
    """Write the pages to a folder and return their paths, front page first.

    Args:
        shelf: Claims, exercises and their outcomes.
        folder: Created if it is missing; an error if it is neither empty nor made by this.
        force: Whether to write to any folder; other files in it stay.
    """
    make_folder(folder, force=force)
    written = []
    for name, text in pages(shelf).items():
        write_atomically(folder / name, text)
        written.append(folder / name)
    return written
