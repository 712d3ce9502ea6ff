"""Small versions of every family of models, for the laws in `test_models_contract`.

A file here is a family's: it holds `CASE`, or `CASES` where several families share one.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """A model small enough to be quick, and deep enough to have every part.

    Attributes:
        name: The family, as registered.
        settings: What makes it small.
        image: The shape of an image, for families that need more than 8×8.
        other: For settings that are this family's alone: another value than the default and than the one
            in `settings`, or values by default.
        beside: What must be set beside a setting for it to show.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    image: tuple[int, int, int] = (3, 8, 8)
    other: dict[str, Any] = field(default_factory=dict)
    beside: dict[str, dict[str, Any]] = field(default_factory=dict)


def all_cases() -> dict[str, Case]:
    """Every case, by the family's name."""
    found = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        loaded = importlib.import_module(module.name)
        cases = loaded.CASES if hasattr(loaded, "CASES") else (loaded.CASE,)
        found |= {case.name: case for case in cases}
    return found
