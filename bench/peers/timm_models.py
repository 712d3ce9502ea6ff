"""timm's models in this process, from the peers' environment, without torchvision.

timm imports torchvision for transforms and datasets only, which models do not need. There may be no build of
it for this PyTorch; so while timm is imported, whatever it asks of torchvision is an empty class.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class _Anything(type):
    """The type of classes that have every attribute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Empty(ModuleType):
    """A module in which every name is an empty class."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _Stub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torchvision and everything in it, where it is not installed."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


def load_timm() -> Any:
    """The package timm, or None where `make bench` could not install it."""
    for site in (Path(__file__).parent.parent.parent / ".venv-bench").glob("lib/python3*/site-packages"):
        sys.path.append(str(site))  # at the end: PyTorch and the rest are this environment's
    if importlib.util.find_spec("timm") is None:
        return None
    if importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(_Stub())
    return importlib.import_module("timm")
