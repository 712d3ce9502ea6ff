"""The file names in a run folder, and what makes a folder a run folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from apoint.errors import StorageError, UsageError
from apoint.opening import shown
from apoint.store.faults import storage_errors
from apoint.store.files import is_leftover
from apoint.store.status import host, read_status, resolve, writer_of

SCHEMA_VERSION = 1
RECIPE, RESOLVED, ENV = "recipe.yaml", "resolved.yaml", "env.json"
METRICS, EVENTS, STATUS, LOCK = "metrics.jsonl", "events.jsonl", "status.json", "lock"
SEAL = "seal.json"
EXAMPLES = "examples.safetensors"
CHECKPOINTS, PROBES = "checkpoints", "probes"
_BEFORE_ENV = {RECIPE, RESOLVED, LOCK}  # what an interrupted creation leaves behind


def is_run_folder(folder: Path) -> bool:
    """Whether a folder is a run folder: `env.json` completes its creation, and the seal the whole run.

    Either of them with one other file is enough. A run that lost a file is thus reported as damaged, and
    other folders with a file of such a name are left alone.
    """
    return _has_any(folder, (ENV, SEAL)) and _has_any(folder, (RECIPE, RESOLVED, METRICS, EVENTS, STATUS))


def _has_any(folder: Path, names: tuple[str, ...]) -> bool:
    return any(os.path.lexists(folder / name) for name in names)


def check_run_folder(folder: Path) -> None:
    """Raise if a path is not a run folder."""
    if not folder.is_dir():
        raise UsageError(
            f"there is no run folder at {shown(folder)}; `apoint runs list` shows those there are"
        )
    if not is_run_folder(folder):
        raise UsageError(f"{shown(folder)} is not a run folder: it has no {ENV}")


def check_schema(content: dict[str, Any], path: Path) -> None:
    """Raise if the schema of a file is newer than this program."""
    version = content.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise StorageError(
            f"{shown(path)} was written by a newer apoint (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); upgrade apoint to read it"
        )


def check_vacant(folder: Path) -> None:
    """Raise if the folder for a new run already holds a run, or something else."""
    with storage_errors(folder, "read"):
        found = {entry.name for entry in folder.iterdir()}
    check_free(folder)
    if ENV in found:
        raise UsageError(f"{folder} holds a run already; resume that one, or remove it (apoint runs rm)")
    foreign = sorted(name for name in found - _BEFORE_ENV if not is_leftover(name))
    if foreign:
        raise UsageError(f"{folder} is not empty: it holds {foreign[0]!r}; name a new folder for the run")


def check_free(folder: Path) -> None:
    """Raise if a living process claims to be writing the run folder, whether or not its lock is there."""
    status = read_status(folder / STATUS)
    ours = (status.get("pid"), status.get("host")) == (os.getpid(), host())
    if resolve(status) == "running" and not ours:
        raise UsageError(
            f"{shown(folder)} is being trained by {writer_of(status)}; wait until it ends, or stop it first"
        )
