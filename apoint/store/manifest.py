"""Checkpoint folders that can be verified: a manifest holds the size and SHA-256 of every file.

A checkpoint is a folder `checkpoints/step-000000123/`; its `manifest.json` reads
`{"schema_version": 1, "files": {"model.safetensors": {"size": …, "sha256": …}, …}}`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from apoint.errors import StorageError
from apoint.opening import shown
from apoint.store import layout, reader
from apoint.store.faults import storage_errors
from apoint.store.files import sync_folder, write_atomically
from apoint.store.lines import strict_json

MANIFEST = "manifest.json"
_STEP_FOLDER = re.compile(r"^step-(\d+)$")
_log = logging.getLogger("apoint.store")


def write_manifest(folder: str | os.PathLike[str]) -> None:
    """Write the manifest of all files in a checkpoint folder, and wait until everything is on disk."""
    place = Path(folder)
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(place.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            with storage_errors(path), open(path, "r+b") as stream:  # Windows syncs only writable files
                os.fsync(stream.fileno())
            files[path.relative_to(place).as_posix()] = reader.digest_of(path)._asdict()
    write_atomically(place / MANIFEST, _rendered(files))
    with storage_errors(place):
        sync_folder(place)


def _rendered(files: dict[str, dict[str, Any]]) -> str:
    return strict_json({"schema_version": layout.SCHEMA_VERSION, "files": files}, indented=True) + "\n"


def read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """The entry of each file in a checkpoint's manifest; a `StorageError` if it is missing or damaged."""
    content = reader.read_json(folder / MANIFEST)
    layout.check_schema(content, folder / MANIFEST)
    files = content.get("files")
    if not isinstance(files, dict) or not files:
        raise StorageError(f"cannot read {folder / MANIFEST}: it lists no files")
    return files


def verify(folder: str | os.PathLike[str], sealed: Mapping[str, str] | None = None) -> list[str]:
    """The problems of a checkpoint folder, one phrase per file; empty if it is intact.

    Args:
        folder: The checkpoint folder.
        sealed: The hashes of the manifests by checkpoint name, if the run is sealed.
    """
    place = Path(folder)
    try:
        files = read_manifest(place)
        if sealed is not None and sealed.get(place.name) != reader.digest_of(place / MANIFEST).sha256:
            return ["it is not the one that was there when the run was sealed"]
    except StorageError as error:
        return [str(error)]
    found = [_problem(place, name, facts) for name, facts in sorted(files.items())]
    return [problem for problem in found if problem] or _strangers(place, files)


def _strangers(folder: Path, files: dict[str, dict[str, Any]]) -> list[str]:
    """Files that are not in the manifest, and a manifest that has changed since it was written.

    There is only one way to write a manifest, so a change that leaves it readable is still detected.
    """
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    found = [f"{name} is not in the manifest" for name in sorted(present - files.keys() - {MANIFEST})]
    if not found and reader.read_bytes(folder / MANIFEST) != _rendered(files).encode():
        found = [f"{MANIFEST} has changed since it was written"]
    return found


def _problem(folder: Path, name: str, facts: Any) -> str | None:
    if not isinstance(facts, dict) or not {"size", "sha256"} <= facts.keys():
        return f"{name} has no size and hash in the manifest"
    try:
        found = reader.digest_of(reader.inside(folder, name))
    except StorageError as error:
        return str(error)
    if found.size != facts["size"]:
        return f"{name} has {found.size} bytes instead of {facts['size']}"
    return None if found.sha256 == facts["sha256"] else f"{name} has changed since it was written"


def checkpoint_folders(run_folder: str | os.PathLike[str]) -> list[Path]:
    """The checkpoint folders of a run, newest first; unverified, and without those still being written."""
    place = Path(run_folder) / layout.CHECKPOINTS
    with storage_errors(place, "read"):
        try:
            names = os.listdir(place)
        except FileNotFoundError:
            return []
    steps = sorted(
        ((int(match[1]), name) for name in names if (match := _STEP_FOLDER.match(name))), reverse=True
    )
    return [place / name for _, name in steps]


def sound_checkpoints(
    run_folder: str | os.PathLike[str], sealed: Mapping[str, str] | None = None
) -> Iterator[Path]:
    """The intact checkpoints of a run, newest first, each verified on demand.

    Args:
        run_folder: The run folder.
        sealed: The hashes of the manifests by checkpoint name, if the run is sealed.
    """
    for folder in checkpoint_folders(run_folder):
        problems = verify(folder, sealed)
        if problems:
            _log.warning(
                "checkpoint %s is damaged and is passed over: %s", shown(folder), "; ".join(problems)
            )
        else:
            yield folder


def verified_checkpoints(run_folder: str | os.PathLike[str]) -> list[Path]:
    """All intact checkpoints of a run, newest first; damaged ones are named in the log."""
    return list(sound_checkpoints(run_folder))
