"""The recipes that come with the package: `apoint train digits-mlp` works in any folder.

The user's own files come first: a packaged recipe is used only if a plain name is given and there is no file
of that name.
"""

from __future__ import annotations

from pathlib import Path

from apoint.errors import UnknownNameError

FOLDER = Path(__file__).parent / "recipe" / "gallery"


def packaged() -> dict[str, Path]:
    """Return the files of the packaged recipes, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def packaged_file(source: str | Path) -> Path | None:
    """Return the file of the packaged recipe that a source names; None if it is the path of a file."""
    path = Path(source)
    if str(source) != path.name or path.suffix or path.exists():
        return None
    return packaged().get(path.name)


def packaged_text(name: str) -> str:
    """Return the text of a packaged recipe, to copy and edit."""
    known = packaged()
    if name not in known:
        raise UnknownNameError("recipe", name, known)
    return known[name].read_text("utf-8")
