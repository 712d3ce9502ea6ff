"""Checkpoints: folders of safetensors and JSON that are either complete or absent.

A checkpoint is written under a temporary name, every file synced, a manifest of sizes and SHA-256
added, the folder synced, then renamed; the parent is synced last. Loading verifies every byte; it
reports a damaged checkpoint and falls back to the previous one. Pickle is never used.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from apoint.errors import DamagedError
from apoint.store import checkpoint_folders, storage_errors, sync_folder, verify, write_manifest

KEPT = 2
_PREFIX = "step-"


@dataclass
class Checkpoint:
    """What a run needs to resume: tensors by group (`model`, `optimizer`, `average`) and plain numbers."""

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any] = field(default_factory=dict)


def save(run_folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint of a run and delete all but the newest two.

    Raises:
        StorageError: The disk is full or refuses the write; what was there before is untouched.
    """
    folder = run_folder / "checkpoints"
    final = folder / f"{_PREFIX}{checkpoint.step:09d}"
    with storage_errors(final):
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
        temporary = folder / f"{final.name}.tmp-{os.getpid()}"
        temporary.mkdir()
        try:
            for group, tensors in checkpoint.tensors.items():
                _write(temporary / f"{group}.safetensors", safetensors.torch.save(_detached(tensors)))
            state = {"step": checkpoint.step, **checkpoint.state}
            _write(temporary / "state.json", json.dumps(state, indent=1).encode())
            write_manifest(temporary)
            if final.exists():  # the same step again, after a damaged checkpoint was skipped
                shutil.rmtree(final)
            temporary.rename(final)
            sync_folder(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    _retire(run_folder, final)
    return final


def _retire(run_folder: Path, newest: Path) -> None:
    """Keep the newest two; any later step is damaged, or training would have resumed from it."""
    found = checkpoint_folders(run_folder)
    place = found.index(newest)
    for path in found[:place] + found[place + KEPT :]:
        shutil.rmtree(path, ignore_errors=True)


def _detached(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies: parameters are views of one buffer, which the format does not allow."""
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _remove_leftovers(folder: Path) -> None:
    """Delete what a killed writer left half-written; the run's lock ensures that no writer is active."""
    for leftover in folder.glob(f"{_PREFIX}*.tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def newest(
    run_folder: Path, say: Callable[[str], None], sealed: Mapping[str, str] | None = None
) -> Checkpoint | None:
    """The newest intact checkpoint, or None if there never was one.

    Damaged checkpoints are reported through `say` and skipped.

    Args:
        run_folder: The run folder.
        say: Called with a message for each damaged checkpoint.
        sealed: The hash of each checkpoint's manifest by checkpoint name, if the run is sealed.

    Raises:
        DamagedError: There are checkpoints and none is intact: training must not silently start
            from scratch.
    """
    candidates = checkpoint_folders(run_folder)
    for path in candidates:
        problems = verify(path, sealed)
        if not problems:
            return load(path)
        say(f"checkpoint {path.name} is damaged ({problems[0]}); going back to the one before it")
    if candidates:
        raise DamagedError(
            f"none of the {len(candidates)} checkpoints of {run_folder} is intact; train it from scratch "
            "with --fresh, which renames the old folder and keeps it"
        )
    return None


def load(path: Path) -> Checkpoint:
    """Read one checkpoint, after verifying every file against its manifest."""
    problems = verify(path)
    if problems:
        raise DamagedError(f"checkpoint {path} is damaged: {problems[0]}")
    with storage_errors(path):
        state = json.loads((path / "state.json").read_text())
        tensors = {
            file.stem: safetensors.torch.load(file.read_bytes())
            for file in sorted(path.glob("*.safetensors"))
        }
    return Checkpoint(state.pop("step"), tensors, state)
