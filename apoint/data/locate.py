"""Locate files: the folders that are searched for a dataset, and paths that a recipe names.

The search order: the given `root`, `$APOINT_DATA`, apoint's own cache (where `fetch` puts files), the folders
that torchvision users have (`./data`, `~/data`, `~/.cache/torchvision`), and `/usr/share/datasets`, where
Debian packages put theirs.

A path for many files uses braces and shell wildcards: `train-{000000..001281}.tar`, `{train,extra}-*.tar`.
"""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from apoint.errors import StorageError, UsageError
from apoint.opening import open_regular, shown

SYSTEM = Path("/usr/share/datasets")
MOST_FILES = 1_000_000
_WRONG_NAME = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENXIO,
)
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,12})\.\.(\d{1,12})")


def cache() -> Path:
    """The folder where fetched files go if neither `root` nor `$APOINT_DATA` is set."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "apoint"


def store(root: Path | None = None) -> Path:
    """The folder where fetched files go."""
    chosen = os.environ.get("APOINT_DATA")
    return root or (user_path(chosen) if chosen else cache())


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
        if _is_file(path):
            return path
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def open_file(path: Path) -> BinaryIO:
    """Open a regular file that the user named; see `open_regular`.

    Raises:
        UsageError: The name is wrong: there is no such file, it may not be read, or it is a pipe, a device, …
        StorageError: The machine is at fault.
    """
    try:
        return open_regular(path)
    except StorageError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno not in _WRONG_NAME:
            raise
        raise UsageError(f"{error}; correct the path") from cause


def exists(path: Path) -> bool:
    """Whether something exists under this name; False for a name that no file can have."""
    try:
        return path.exists()
    except OSError:  # a name that is too long, a folder that may not be searched
        return False


def user_path(path: str) -> Path:
    """A path as a user writes it, with `~` for the home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # ~nobody
        raise UsageError(f"{shown(path)}: {error}; correct the path") from None


def resolve(path: str, root: Path | None = None) -> Path:
    """A path that a recipe names: as written, else under `root`, else under `$APOINT_DATA`."""
    plain = user_path(path)
    bases = _bases(root)
    for candidate in (plain, *(base / plain for base in bases)):
        if exists(candidate):
            return candidate
    looked = "" if plain.is_absolute() else f"; looked in {' and '.join(map(str, (Path.cwd(), *bases)))}"
    raise UsageError(
        f"{shown(path)}: there is no such file or folder{looked}; correct the path or set --data-root"
    )


def _bases(root: Path | None) -> list[Path]:
    """The folders that a path may be relative to, besides the current one."""
    bases = [root] if root is not None else []
    return [*bases, store(None)] if os.environ.get("APOINT_DATA") else bases


def resolve_all(pattern: str, root: Path | None = None) -> list[Path]:
    """The files that a path with braces or `*?[]` names, in order, searched where `resolve` searches.

    Every file that the braces spell out must exist; wildcards must match at least one file.
    """
    spelled = spell_out(pattern)
    if spelled == [pattern] and not glob.has_magic(pattern):
        return [resolve(pattern, root)]
    for base in (Path(), *_bases(root)):
        found = [_matches(str(base / user_path(name))) for name in spelled]
        absent = [name for name, paths in zip(spelled, found, strict=True) if not paths]
        if len(absent) == len(spelled):
            continue
        if absent:
            raise UsageError(
                f"{shown(absent[0])}: there is no such file, and {shown(pattern)!r} asks for it ("
                f"{len(absent)} of {len(spelled)} are missing); fetch it or correct the path"
            )
        return list(dict.fromkeys(path for paths in found for path in paths))
    return [
        resolve(pattern, root)
    ]  # it may be a plain name with such characters in it; else this reports what is wrong


def _matches(path: str) -> list[Path]:
    if not glob.has_magic(path) or os.path.exists(path):
        return [Path(path)] if os.path.exists(path) else []
    return [Path(found) for found in sorted(glob.glob(path))] if "\0" not in path else []


def spell_out(pattern: str) -> list[str]:
    """The names that braces expand to: `{a,b}` for each word, `{08..11}` for each number, digits kept."""
    names, done = [""], 0
    for found in _BRACES.finditer(pattern):
        words = _words(pattern, found)
        if len(names) * len(words) > MOST_FILES:
            raise UsageError(
                f"{shown(pattern)}: the braces stand for more than {MOST_FILES} files; correct the path"
            )
        between = pattern[done : found.start()]
        names = [f"{name}{between}{word}" for name in names for word in words]
        done = found.end()
    return [name + pattern[done:] for name in names]


def _words(pattern: str, braces: re.Match[str]) -> list[str]:
    numbers = _RANGE.fullmatch(braces[1])
    if numbers is None:
        return braces[1].split(",")
    first, last = int(numbers[1]), int(numbers[2])
    if not first <= last < first + MOST_FILES:
        raise UsageError(
            f"{shown(pattern)}: {braces[0]} must count upwards over at most {MOST_FILES} numbers; correct "
            "the path"
        )
    return [f"{number:0{len(numbers[1])}}" for number in range(first, last + 1)]


def missing(name: str, root: Path | None = None) -> UsageError:
    """The error for a public dataset that is not present."""
    searched = ", ".join(str(place) for place in places(root))
    return UsageError(
        f"dataset {name!r}: its files are in none of {searched}; get them with 'apoint data fetch {name}' or "
        "say where they are with --data-root"
    )
