"""The names of the files in a run folder, and what makes a folder one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from apoint.errors import StorageError, UsageError
from apoint.store.faults import storage_errors

SCHEMA_VERSION = 1
RECIPE, RESOLVED, ENV = "recipe.yaml", "resolved.yaml", "env.json"
METRICS, EVENTS, STATUS, LOCK = "metrics.jsonl", "events.jsonl", "status.json", "lock"
CHECKPOINTS, PROBES = "checkpoints", "probes"
_BEFORE_ENV = {RECIPE, RESOLVED, LOCK}  # what a creation that was cut short leaves behind


def is_run_folder(folder: Path) -> bool:
    """Whether a folder is a run folder: `env.json` is the last file of its creation."""
    return os.path.isfile(folder / ENV) and os.path.isfile(folder / RECIPE)


def check_run_folder(folder: Path) -> None:
    """Refuse a path that is not a run folder."""
    if not folder.is_dir():
        raise UsageError(f"there is no run folder at {folder}; `apoint runs list` shows those there are")
    if not is_run_folder(folder):
        raise UsageError(f"{folder} is not a run folder: it has no {ENV} or no {RECIPE}")


def check_schema(content: dict[str, Any], path: Path) -> None:
    """Refuse a file whose schema is newer than this program."""
    version = content.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise StorageError(
            f"{path} was written by a newer apoint (schema {version}, this one knows {SCHEMA_VERSION}); "
            f"upgrade apoint to read it"
        )


def check_vacant(folder: Path) -> None:
    """Refuse to make a run where there is a run already, or something else."""
    with storage_errors(folder, "read"):
        found = {entry.name for entry in folder.iterdir()}
    if ENV in found:
        raise UsageError(f"{folder} holds a run already; resume that one, or remove it (apoint runs rm)")
    foreign = sorted(name for name in found - _BEFORE_ENV if ".tmp-" not in name)
    if foreign:
        raise UsageError(f"{folder} is not empty: it holds {foreign[0]!r}; name a new folder for the run")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; a `StorageError` if it is missing, torn or something else."""
    with storage_errors(path, "read"):
        content = path.read_bytes()
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise StorageError(
            f"cannot read {path}: it is not JSON; it was damaged after apoint wrote it"
        ) from None
    if not isinstance(value, dict):
        raise StorageError(f"cannot read {path}: a JSON object was expected, not a {type(value).__name__}")
    return value
