"""apoint: why does my network not train, and does this trick really help, or is it noise?

Names load on first use, so importing `apoint` costs almost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apoint import book as book
    from apoint import data as data
    from apoint import doctor as doctor
    from apoint import engine as engine
    from apoint import inspection as inspection
    from apoint import models as models
    from apoint import nn as nn
    from apoint import optim as optim
    from apoint import probes as probes
    from apoint import recipe as recipe
    from apoint import report as report
    from apoint import schedules as schedules
    from apoint import store as store
    from apoint import theory as theory
    from apoint import trials as trials
    from apoint import verdict as verdict
    from apoint.engine import train as train
    from apoint.inspection.api import inspect as inspect
    from apoint.recipe import Recipe as Recipe
    from apoint.registry import register as register
    from apoint.store import Run as Run
    from apoint.trials.compare import compare as compare
    from apoint.trials.improve import improve as improve

__version__ = "0.1.0"

_NAMES = {
    "train": "apoint.engine",
    "inspect": "apoint.inspection",
    "compare": "apoint.trials",
    "improve": "apoint.trials",
    "Recipe": "apoint.recipe",
    "Run": "apoint.store",
    "register": "apoint.registry",
}
_FOLDERS = (
    "nn",
    "models",
    "optim",
    "schedules",
    "data",
    "theory",
    "recipe",
    "store",
    "engine",
    "probes",
    "doctor",
    "verdict",
    "report",
    "inspection",
    "trials",
    "book",
)

__all__ = ["Recipe", "Run", "__version__", "compare", "improve", "inspect", "register", "train"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if name in _FOLDERS:
        return importlib.import_module(f"apoint.{name}")
    raise AttributeError(f"module 'apoint' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_FOLDERS])
