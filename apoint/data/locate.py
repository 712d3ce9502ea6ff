"""Where files are: the folders that are searched for a dataset, and paths that a recipe names.

The order: the `root` that was given, `$APOINT_DATA`, apoint's own cache (where `fetch` puts things), the
folders that torchvision users have (`./data`, `~/data`), and `/usr/share/datasets`, where Debian's packages
put theirs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from apoint.errors import UsageError

SYSTEM = Path("/usr/share/datasets")


def cache() -> Path:
    """The folder where fetched files go if neither `root` nor `$APOINT_DATA` says otherwise."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "apoint"


def store(root: Path | None = None) -> Path:
    """The folder where fetched files go."""
    chosen = os.environ.get("APOINT_DATA")
    return root or (Path(chosen).expanduser() if chosen else cache())


def places(root: Path | None = None) -> list[Path]:
    """The folders that are searched, in order, each once."""
    home = Path.home()
    usual = [store(None), cache(), Path("data"), home / "data", home / ".cache" / "torchvision", SYSTEM]
    found = [root, *usual] if root is not None else usual
    return list(dict.fromkeys(found))


def find_folder(subfolders: Iterable[str], files: Iterable[str], root: Path | None = None) -> Path | None:
    """The first folder that holds all of `files`, plain or `.gz`; None if there is none.

    Each place is searched in each of `subfolders`; a given `root` may also be the dataset's own folder.
    """
    names = list(files)
    for place in places(root):
        inner = [*subfolders, "."] if place == root else subfolders
        for folder in (place / sub for sub in inner):
            if all(find_file(folder, name) for name in names):
                return folder
    return None


def find_file(folder: Path, name: str) -> Path | None:
    """The file `name` in `folder`, plain or compressed, also under the name `train-images.idx3-ubyte`."""
    dotted = name.replace("-idx", ".idx")
    for candidate in (name, f"{name}.gz", dotted, f"{dotted}.gz"):
        path = folder / candidate
        if path.is_file():
            return path
    return None


def resolve(path: str, root: Path | None = None) -> Path:
    """A path that a recipe names: as it stands, else under `root`, else under `$APOINT_DATA`."""
    plain = Path(path).expanduser()
    bases = [root] if root is not None else []
    if os.environ.get("APOINT_DATA"):
        bases.append(store(None))
    for candidate in (plain, *(base / plain for base in bases)):
        if candidate.exists():
            return candidate
    looked = f"; looked in {Path.cwd()}" + "".join(f" and {base}" for base in bases)
    raise UsageError(
        f"{path}: there is no such file or folder{'' if plain.is_absolute() else looked}; correct the path "
        "or set --data-root"
    )


def missing(name: str, root: Path | None = None) -> UsageError:
    """What to say when a public dataset is not here."""
    searched = ", ".join(str(place) for place in places(root))
    return UsageError(
        f"dataset {name!r}: its files are in none of {searched}; get them with 'apoint data fetch {name}' or "
        "say where they are with --data-root"
    )
