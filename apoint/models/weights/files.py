"""Weight files as tensors by name: safetensors, and state dicts written by PyTorch.

A state dict is read with `weights_only=True`, which makes tensors and plain containers and runs no code.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from apoint.errors import StorageError, UsageError

_INSIDE = ("state_dict", "model", "model_state_dict", "module", "net")
_PREFIXES = ("module.", "_orig_mod.", "model.")
_SAFETENSORS = ".safetensors"


def file_of(path: str | Path) -> Path:
    """The file for a path: the path itself, or `model.safetensors` in a folder, as on the Hub."""
    place = Path(path)
    return place / "model.safetensors" if place.is_dir() else place


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file by name, and the file's metadata."""
    if not path.exists():
        raise UsageError(f"there is no file {path}")
    if path.suffix == _SAFETENSORS:
        return _read_safetensors(path)
    return _without_prefix(_tensors(_read_state_dict(path), path)), {}


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise StorageError(f"{path} could not be read as a safetensors file: {error}") from error
    return _without_prefix(weights), metadata


def _read_state_dict(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old formats, which are read anyway or rejected
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        first = str(error).splitlines()[0] if str(error) else ""
        raise StorageError(
            f"{path} could not be read as plain tensors: it is damaged, or holds objects that would run code "
            f"({first[:120]}); save its state dict as safetensors where it comes from"
        ) from None
    except (
        OSError,
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
        AttributeError,
        IndexError,
        TypeError,
    ) as error:
        detail = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise StorageError(f"{path} could not be read as a state dict: {detail}") from None


def _tensors(found: Any, path: Path) -> dict[str, Tensor]:
    """The state dict in a file, or under one of the keys that training scripts use."""
    if isinstance(found, Mapping):
        if found and all(isinstance(value, Tensor) for value in found.values()):
            return {str(name): value for name, value in found.items()}
        for name in _INSIDE:
            if isinstance(found.get(name), Mapping):
                return _tensors(found[name], path)
        tensors = {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
        if tensors:
            return tensors
    raise UsageError(
        f"{path} holds no state dict; expected tensors by name, or one under {', '.join(_INSIDE[:3])}"
    )


def _without_prefix(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names without the prefixes that wrappers add to all of them."""
    for prefix in _PREFIXES:
        if weights and all(name.startswith(prefix) for name in weights):
            return _without_prefix({name.removeprefix(prefix): value for name, value in weights.items()})
    return weights


def write(path: Path, weights: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file atomically: the whole file or nothing."""
    if path.suffix != _SAFETENSORS:
        raise UsageError(f"weights are written as {_SAFETENSORS} files, got {path.name}")
    whole = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("xb") as stream:
            stream.write(save(whole, {"format": "pt", **metadata}))
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
