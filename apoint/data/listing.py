"""List the datasets and which of them are present, and report on one of them.

For `apoint data list` and `apoint data check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from apoint.data import cifar, idx
from apoint.data.core import Data
from apoint.data.loading import load
from apoint.data.locate import find_folder
from apoint.errors import UsageError
from apoint.registry import registry


@dataclass(frozen=True)
class Entry:
    """One line of the list of datasets.

    Attributes:
        name: The name in a recipe.
        summary: What it is, in one line.
        origin: `embedded` (nothing to fetch), `public` (files that `fetch` gets) or `file` (the user's own).
        present: Whether it can be loaded now; a dataset that reads the user's file always can.
        where: The folder of its files, or a short phrase.
    """

    name: str
    summary: str
    origin: str
    present: bool
    where: str


@dataclass(frozen=True)
class Report:
    """What `check` found about a dataset.

    Attributes:
        data: The loaded data, notes included.
        class_counts: For each split, the number of samples of each class; empty unless the task is
            classification.
    """

    data: Data
    class_counts: dict[str, dict[str, int]]

    def __str__(self) -> str:
        facts = self.data.facts
        sizes = ", ".join(f"{name} {len(split)}" for name, split in self.data.splits.items())
        word = {"classification": "classes", "regression": "targets", "language": "characters"}[facts.task]
        lines = [
            f"{facts.kind} {facts.task}: inputs {facts.input_shape}, {facts.num_outputs} {word}",
            f"samples: {sizes}",
            f"fingerprint: {self.data.fingerprint}",
        ]
        return "\n".join([*lines, *(self.data.notes or ["nothing unusual was found"])])


def catalogue(root: str | Path | None = None) -> list[Entry]:
    """All registered datasets by name, with whether they are present and where."""
    base = Path(root).expanduser() if root is not None else None
    entries = []
    for name, ingredient in registry("dataset").items():
        origin = str((ingredient.traits or {}).get("origin", "embedded"))
        folder = folder_of(name, base) if origin == "public" else None
        where = {"embedded": "built in", "file": "your file"}.get(origin) or str(folder or "not here")
        entries.append(
            Entry(name, ingredient.summary, origin, origin != "public" or folder is not None, where)
        )
    return entries


def folder_of(name: str, root: Path | None = None) -> Path | None:
    """The folder that holds a public dataset's files, or None."""
    if name in cifar.FOLDERS:
        return find_folder(cifar.FOLDERS[name], cifar.FILES[name], root)
    folder = find_folder(idx.FOLDERS[name], idx.FILES, root)
    try:
        return folder if folder and idx.belongs(name, folder) else None
    except UsageError:  # damaged files are not a dataset
        return None


def check(spec: str | Mapping[str, Any], **options: Any) -> Report:
    """Load a dataset and report on it; `options` are those of `load`."""
    data = load(spec, **options)
    counts: dict[str, dict[str, int]] = {}
    if data.facts.task == "classification":
        names = data.facts.class_names or tuple(str(label) for label in range(data.facts.num_outputs))
        for part, split in data.splits.items():
            found = torch.bincount(split.targets, minlength=len(names)).tolist()
            counts[part] = dict(zip(names, found, strict=True))
    return Report(data, counts)
