"""Which tasks are trained together: a pure function of the list of tasks.

So an interrupted fleet forms the same groups again, and a stack finds its checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from apoint.engine.fleet.task import Task

STACKS = ".stacks"


def compose(tasks: Sequence[Task], stack: int) -> list[tuple[Task, ...]]:
    """Split tasks of one recipe into groups of at most `stack`, as even as possible, in the order given."""
    if stack <= 1:
        return [(task,) for task in tasks]
    by_recipe: dict[str, list[Task]] = {}
    fingerprints = {id(task.recipe): "" for task in tasks}
    for task in tasks:
        fingerprints[id(task.recipe)] = fingerprints[id(task.recipe)] or task.recipe.fingerprint
        by_recipe.setdefault(fingerprints[id(task.recipe)], []).append(task)
    return [group for same in by_recipe.values() for group in _cut(same, stack)]


def _cut(tasks: list[Task], stack: int) -> list[tuple[Task, ...]]:
    sizes = even_sizes(len(tasks), stack)
    ends = [sum(sizes[: position + 1]) for position in range(len(sizes))]
    return [tuple(tasks[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def even_sizes(number: int, most: int) -> list[int]:
    """Split `number` into as few parts of at most `most` as possible, which differ by at most 1."""
    parts = math.ceil(number / most)
    return [number // parts + (position < number % parts) for position in range(parts)] if parts else []


def place_of(root: Path, keys: Iterable[Mapping[str, Any]]) -> Path:
    """Where a stack of replicas with these keys keeps its checkpoint while it trains."""
    text = json.dumps([dict(key) for key in keys], sort_keys=True)
    return root / STACKS / hashlib.sha256(text.encode()).hexdigest()[:16]
