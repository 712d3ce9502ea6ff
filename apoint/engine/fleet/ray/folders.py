"""Run folders in transit: list, pack and unpack them, and settle those whose training ended."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from apoint.engine.fleet.task import Group
from apoint.errors import StorageError
from apoint.store import RunWriter, storage_errors, sync_folder
from apoint.store.layout import LOCK, STATUS, is_run_folder
from apoint.store.status import read_status


def folders(group: Group, members: Iterable[int] | None = None) -> dict[str, Path]:
    """The folders that training a group creates, by their path relative to the folder of runs."""
    root = group.options.root
    chosen = range(len(group.tasks)) if members is None else members
    paths = [group.tasks[member].folder(root) for member in chosen]
    paths += [group.place] if group.place is not None else []
    return {path.relative_to(root).as_posix(): path for path in paths}


def present(group: Group, members: Iterable[int] | None = None) -> dict[str, Path]:
    """The folders of a group that exist."""
    return {name: path for name, path in folders(group, members).items() if path.is_dir()}


def settle(folder: Path, reason: str) -> None:
    """Mark a run that is no longer being trained as interrupted."""
    if is_run_folder(folder) and read_status(folder / STATUS).get("state") == "running":
        with RunWriter.open(folder) as writer:
            writer.status("interrupted", reason=reason)


def pack(folder: Path) -> bytes:
    """The plain files of a folder as a tar, without its lock."""
    content = io.BytesIO()
    with storage_errors(folder, "read"), tarfile.open(fileobj=content, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if name != LOCK and path.is_file() and not path.is_symlink():
                entry = tarfile.TarInfo(name)
                entry.size = path.stat().st_size
                with path.open("rb") as stream:
                    archive.addfile(entry, stream)
    return content.getvalue()


def unpack(content: bytes, folder: Path, durable: bool = True) -> None:
    """Write the files of a tar into a new folder.

    Args:
        content: The tar.
        folder: Where to write them; must not exist.
        durable: Whether to wait until they are on disk; a torn checkpoint is detected anyway.

    Raises:
        StorageError: The tar contains something that is not a plain file inside the folder.
    """
    with storage_errors(folder):
        folder.mkdir(parents=True)
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
                for entry in archive:
                    path = _write_entry(archive, entry, folder)
                    if durable:
                        _sync(path)
        except tarfile.TarError as error:
            raise StorageError(f"what the Ray cluster sent for {folder.name} is damaged: {error}") from None
        sync_folder(folder)


def _write_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> Path:
    stream = archive.extractfile(entry) if entry.isreg() else None
    if stream is None or not is_inside(entry.name):
        raise StorageError(
            f"what the Ray cluster sent for {folder.name} holds {entry.name!r}, which is no plain file in it"
        )
    path = folder / entry.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with stream, path.open("xb") as target:
        shutil.copyfileobj(stream, target)
    return path


def _sync(path: Path) -> None:
    """Wait until a file is on disk."""
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())


def is_inside(name: str) -> bool:
    """Whether a file name stays inside the folder that it is relative to."""
    path = PurePosixPath(name)
    is_plain = not path.is_absolute() and bool(path.parts) and ".." not in path.parts
    return is_plain and not any(sign in name for sign in "\\:\0")
