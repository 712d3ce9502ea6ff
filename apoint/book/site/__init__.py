"""The book as pages that need no network: a page for each chapter, the table of outcomes, errata, reading."""

from __future__ import annotations

from pathlib import Path

from apoint.book.folders import make_folder
from apoint.book.site import chapter, front, lists
from apoint.book.site.shelf import Shelf
from apoint.store.files import write_atomically


def pages(shelf: Shelf) -> dict[str, str]:
    """The pages by file name, the first page first.

    Args:
        shelf: Claims, exercises and what came of them.
    """
    found = {"index.html": front.page(shelf)}
    found |= {f"{letter.lower()}.html": chapter.page(shelf, letter) for letter in shelf.chapters}
    found["errata.html"] = lists.errata_page(shelf)
    found["reading.html"] = lists.reading_page(shelf)
    return found


def write(shelf: Shelf, folder: Path, force: bool = False) -> list[Path]:
    """Write the pages into a folder; returns them, the first page first.

    Args:
        shelf: Claims, exercises and what came of them.
        folder: Made if it is missing; one that is neither empty nor made by this is refused.
        force: Whether to write into any folder; what else lies there stays.
    """
    make_folder(folder, force=force)
    written = []
    for name, text in pages(shelf).items():
        write_atomically(folder / name, text)
        written.append(folder / name)
    return written
