"""The recipes that come with the package: `apoint train digits-mlp` works in any folder.

A file of the user's comes first: a packaged recipe is meant only where a plain name is given and there is no
file of that name.
"""

from __future__ import annotations

from pathlib import Path

from apoint.errors import UnknownNameError

FOLDER = Path(__file__).parent / "recipe" / "gallery"


def packaged() -> dict[str, Path]:
    """The files of the packaged recipes by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def packaged_file(source: str | Path) -> Path | None:
    """The packaged recipe that a source names; None if it is the path of a file."""
    path = Path(source)
    if str(source) != path.name or path.suffix or path.exists():
        return None
    return packaged().get(path.name)


def packaged_text(name: str) -> str:
    """The text of a packaged recipe, to copy and change."""
    known = packaged()
    if name not in known:
        raise UnknownNameError("recipe", name, known)
    return known[name].read_text("utf-8")
