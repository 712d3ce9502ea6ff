"""Models and datasets from the user's own files: `model: {file: net.py, class: Net, …}`.

Only the engine runs such a file, and only for a recipe that the user asked to train. A recipe in a
record (a run, comparison or improvement folder) may come from anyone: unless the user allows it, the files
that it names are not run, and those outside the record are not read. Every use of such a file goes through
`find_code`, `find` or `check_paths`, which enforce this.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from apoint.data.locate import spell_out
from apoint.engine.failures import restated
from apoint.errors import UnknownNameError, UsageError
from apoint.recipe import read_document
from apoint.store.layout import is_run_folder

DECLARATION = "declaration.json"  # marks a comparison or improvement folder
_allowed: ContextVar[bool] = ContextVar("code_is_allowed", default=False)


# -- what is allowed ------------------------------------------------------------------------------------


@contextmanager
def allowing_code(allow: bool = True) -> Iterator[None]:
    """Inside this context, recipes in a record may run and read the files that they name.

    Args:
        allow: Whether they may; False does not revoke what an outer context allows.
    """
    token = _allowed.set(allow or _allowed.get())
    try:
        yield
    finally:
        _allowed.reset(token)


def code_is_allowed() -> bool:
    """Whether recipes in a record may run and read the files that they name."""
    return _allowed.get()


def record_around(folder: Path) -> Path | None:
    """The run, comparison or improvement folder at or above a folder; None if there is none."""
    for place in dict.fromkeys((folder.absolute(), _resolved(folder))):
        for each in (place, *place.parents):
            if is_run_folder(each) or os.path.lexists(each / DECLARATION):
                return each
    return None


def _resolved(path: Path) -> Path:
    """The path with all links resolved; only made absolute if the links form a loop."""
    try:
        return path.resolve()
    except (RuntimeError, OSError):
        return path.absolute()


def check_recipe(file: Path) -> None:
    """Refuse a recipe file in a record that would run code, before the recipe is used."""
    record = None if _allowed.get() else record_around(file.absolute().parent)
    if record is None:
        return
    if record_around(_resolved(file).parent) is None:
        raise UsageError(f"{file} is a link that leads out of the record {record}; {_HOW_TO_ALLOW}")
    values = read_document(file).values
    for section in (values.get("model"), values.get("data")):
        if isinstance(section, Mapping) and isinstance(section.get("file"), str):
            find_code(section["file"], _resolved(file).parent)


_HOW_TO_ALLOW = "if you trust it, allow that with --allow-code (in Python, allow_code=True)"


def _untrusted(folder: Path) -> Path | None:
    """The record that contains a recipe's folder, unless the user allowed the files it names."""
    return None if _allowed.get() else record_around(folder)


# -- finding files --------------------------------------------------------------------------------------


def own_files(recipe: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """The user's files named in a recipe's plain values: a model, a dataset, initial weights."""
    found = {}
    for section, finder in (("model", find_code), ("data", find_code), ("weights", find)):
        if file := (recipe.get(section) or {}).get("file"):
            found[file] = finder(file, folder)
    return found


def find_code(file: str, folder: Path) -> Path:
    """A Python file that a recipe names, relative to the recipe's folder; in a record it must be allowed."""
    if record := _untrusted(folder):
        raise UsageError(
            f"a recipe in {record} names the Python file {file!r}, which is not run; {_HOW_TO_ALLOW}"
        )
    return find(file, folder)


def find(file: str, folder: Path) -> Path:
    """A file named in a recipe, relative to the recipe's folder.

    A recipe in a record may name only files in that record, unless the user allows more. If so, files that
    are not found are looked for in the current folder, since records do not keep the user's files.
    """
    record = _untrusted(folder)
    if record is None and code_is_allowed() and not (folder / file).is_file() and record_around(folder):
        folder = Path.cwd()
    if record is not None and not _is_inside(folder / file, record):
        raise UsageError(
            f"a recipe in {record} names the file {file!r} outside of it, which is not read; {_HOW_TO_ALLOW}"
        )
    return locate(file, folder)


def locate(file: str, folder: Path) -> Path:
    """A file that the user names, relative to a folder."""
    path = folder / file
    if not path.is_file():
        raise UsageError(f"the recipe names {file!r}, and there is no such file in {folder}")
    return path.resolve()


def _is_inside(path: Path, record: Path) -> bool:
    inside = path.resolve().is_relative_to(record.resolve())
    return inside and ".." not in path.parts


def check_paths(data: Mapping[str, Any], folder: Path) -> bool:
    """Whether paths in a data section may be relative to the recipe; raise if one must not be read.

    In a record they must be plain names, which are looked for in the current folder and the data root.
    """
    record = _untrusted(folder)
    if record is None:
        return True
    named = [data[name] for name in ("path", "test_path") if data.get(name)]
    for path in (
        each for pattern in named for each in (pattern, *spell_out(pattern))
    ):  # with braces expanded
        leads_out = Path(path).is_absolute() or ".." in Path(path).parts or path.startswith("~")
        if leads_out or record_around(Path.cwd()):
            raise UsageError(
                f"a recipe in {record} names the data {path!r}, which is not read; {_HOW_TO_ALLOW}"
            )
    return False


# -- running files --------------------------------------------------------------------------------------


def call(spec: Mapping[str, Any], member: str, supplied: Mapping[str, Any], folder: Path) -> Any:
    """Call the class or function that a section names, with its settings and the supplied values it accepts.

    A parameter whose name is one of `supplied` (such as `num_classes`) is filled in unless the recipe
    sets it; every other value of the section is passed as a keyword argument.
    """
    path = find_code(spec["file"], folder)
    target = getattr(_module(path), spec[member], None)
    if target is None:
        names = [name for name in vars(_module(path)) if not name.startswith("_")]
        raise UnknownNameError(f"{member} in {path.name}", spec[member], names)
    settings = {name: value for name, value in spec.items() if name not in ("file", member)}
    parameters = inspect.signature(target).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in settings:
        if name not in parameters and not takes_any:
            raise UnknownNameError(f"setting of {spec[member]} in {path.name}", name, parameters)
    known = {name: value for name, value in supplied.items() if name in parameters and name not in settings}
    try:
        return target(**known, **settings)
    except Exception as error:
        raise restated(f"{spec[member]} in {path.name} could not be built: {error}", error) from error


def run_file(path: Path) -> None:
    """Run a file that registers ingredients, once per version of its content."""
    _module(path)


def _module(path: Path) -> ModuleType:
    """The file as a module, imported once per version of its content."""
    name = f"apoint_user_{path.stem}_{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        sentence = f"{path.name} could not be imported: {type(error).__name__}: {error}"
        raise restated(sentence, error) from error
    return module
