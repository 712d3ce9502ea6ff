"""A run's weights as one file that plain PyTorch can read: safetensors, or the format of `torch.save`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apoint.errors import StorageError
from apoint.opening import open_regular
from apoint.store.files import new_file
from apoint.store.manifest import checkpoint_folders, read_manifest, sound_checkpoints
from apoint.store.reader import exists, parse_json, read_bytes
from apoint.store.run import Run
from apoint.store.status import number

MODEL, STATE = "model.safetensors", "state.json"
TORCH_SUFFIXES = (".pt", ".pth", ".bin")
_CHUNK = 2**20


def to_state_dict(run: Run, path: str | os.PathLike[str], force: bool = False) -> Path:
    """Copy the weights of the newest intact checkpoint to `path`, and return that checkpoint.

    `safetensors.torch.load_file(path)` returns the state dict; for a path that ends in `.pt`, `.pth` or
    `.bin`, `torch.load(path, weights_only=True)` does. A damaged checkpoint is named in the log, and the one
    before it is used.

    Args:
        run: The run.
        path: The file to write.
        force: Whether an existing file may be replaced.
    """
    sealed = run.seal.checkpoints if run.seal else None
    for checkpoint in sound_checkpoints(run.folder, sealed):
        facts = read_manifest(checkpoint).get(MODEL)
        if facts is not None:
            write = _save_for_torch if Path(path).suffix.lower() in TORCH_SUFFIXES else _copy
            write(checkpoint / MODEL, Path(path), facts["sha256"], force)
            return checkpoint
    count = len(checkpoint_folders(run.folder))
    what = f"none of its {count} checkpoints is sound" if count else "it has no checkpoints"
    raise StorageError(f"cannot export the weights of {run.folder}: {what}; train it again or resume it")


@dataclass(frozen=True)
class Preprocessing:
    """What training did to inputs before the model saw them.

    Attributes:
        mean: The mean that was subtracted, per channel or feature.
        std: The standard deviation that inputs were then divided by.
        had_bytes: Whether inputs were bytes, which count as numbers from 0 to 1.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    had_bytes: bool


def preprocessing_of(state: Mapping[str, Any]) -> Preprocessing | None:
    """The preprocessing recorded in a checkpoint's state; None if nothing usable is recorded."""
    found = state.get("preprocessing")
    values = found if isinstance(found, dict) else {}
    mean, std, had_bytes = _numbers(values.get("mean")), _numbers(values.get("std")), values.get("had_bytes")
    if not mean or len(mean) != len(std) or not isinstance(had_bytes, bool):
        return None
    return Preprocessing(mean, std, had_bytes)


def _numbers(values: Any) -> tuple[float, ...]:
    """A list of finite numbers; empty if it is anything else."""
    found = [number(value) for value in values] if isinstance(values, list) else []
    known = tuple(value for value in found if value is not None)
    return known if len(known) == len(found) else ()


def saved_preprocessing(checkpoint: Path) -> Preprocessing | None:
    """The preprocessing recorded in a checkpoint.

    Args:
        checkpoint: Its folder, as `to_state_dict` returns it.
    """
    path = checkpoint / STATE
    return preprocessing_of(parse_json(read_bytes(path), path)) if exists(path) else None


def _copy(source: Path, target: Path, expected: str, force: bool) -> None:
    """Copy a file and verify the bytes that were copied, not those read before."""
    digest = hashlib.sha256()
    with new_file(target, force) as stream, open_regular(source, follow_links=False) as original:
        while chunk := original.read(_CHUNK):
            digest.update(chunk)
            stream.write(chunk)
        if digest.hexdigest() != expected:
            raise StorageError(f"{source} changed while it was copied; export it again")


def _save_for_torch(source: Path, target: Path, expected: str, force: bool) -> None:
    """Write the verified tensors with `torch.save`."""
    import torch
    from safetensors.torch import load

    with open_regular(source, follow_links=False) as original:
        content = original.read()
    if hashlib.sha256(content).hexdigest() != expected:
        raise StorageError(f"{source} changed while it was read; export it again")
    with new_file(target, force) as stream:
        torch.save(load(content), stream)
