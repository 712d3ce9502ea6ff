"""Models and datasets from a file of the user's: `model: {file: net.py, class: Net, …}`.

Only the engine runs such a file, and only for a recipe that the user asked to train.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from apoint.errors import UnknownNameError, UsageError


def own_files(recipe: Mapping[str, Any], folder: Path) -> tuple[Path, ...]:
    """The user's files that a recipe names."""
    return tuple(find(name, folder) for name in named_files(recipe))


def named_files(recipe: Mapping[str, Any]) -> list[str]:
    """The names of the user's files in a recipe's plain values: a model, a dataset, weights to begin with."""
    sections = (recipe.get(section) or {} for section in ("model", "data", "weights"))
    return [section["file"] for section in sections if "file" in section]


def find(file: str, folder: Path) -> Path:
    """A file named in a recipe, relative to the recipe's folder."""
    path = Path(file) if Path(file).is_absolute() else folder / file
    if not path.is_file():
        raise UsageError(f"the recipe names {file!r}, and there is no such file in {folder}")
    return path.resolve()


def call(spec: Mapping[str, Any], member: str, supplied: Mapping[str, Any], folder: Path) -> Any:
    """Call the class or function that a section names, with its settings and what it asks for by name.

    A parameter whose name is one of `supplied` (such as `num_classes`) is filled in unless the recipe
    sets it; every other value of the section is passed on by name.
    """
    path = find(spec["file"], folder)
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
        raise UsageError(f"{spec[member]} in {path.name} could not be built: {error}") from error


def run_file(path: Path) -> None:
    """Run a file that registers ingredients, once for each of its contents."""
    _module(path)


def _module(path: Path) -> ModuleType:
    """The file as a module, imported once for each of its contents."""
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
        raise UsageError(f"{path.name} could not be imported: {type(error).__name__}: {error}") from error
    return module
