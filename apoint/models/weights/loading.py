"""Weights of models: counting them, and loading them from safetensors files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from apoint.errors import StorageError, UsageError

_SHOWN = 5


def count_parameters(model: nn.Module, *, trainable_only: bool = False) -> int:
    """The number of parameters, tied ones counted once."""
    chosen = (p for p in model.parameters() if p.requires_grad or not trainable_only)
    return sum(parameter.numel() for parameter in chosen)


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Load all weights of a model from a safetensors file; the two must agree in names and shapes.

    Values are converted to the type of the model's tensors. Of tied weights, one name in the file is enough.
    Nothing is loaded unless everything fits.

    Args:
        model: The model, changed in place.
        path: A file with the names of the model's `state_dict`.
    """
    weights = _read(Path(path))
    wanted = model.state_dict()
    problems = _disagreements(weights, wanted)
    if problems:
        raise UsageError(f"{Path(path).name} does not fit {type(model).__name__}: {'; '.join(problems)}")
    with torch.no_grad():
        for name, values in weights.items():
            wanted[name].copy_(values)


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except (SafetensorError, OSError) as error:
        raise StorageError(f"{path} could not be read as a safetensors file: {error}") from error


def _disagreements(weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> list[str]:
    """What differs between a file and a model, in half-sentences."""
    given = {wanted[name].data_ptr() for name in weights if name in wanted and wanted[name].numel()}
    missing = [name for name in wanted if name not in weights and wanted[name].data_ptr() not in given]
    unexpected = [name for name in weights if name not in wanted]
    shapes = [
        f"{name} is {_written(values.shape)} in the file and {_written(wanted[name].shape)} in the model"
        for name, values in weights.items()
        if name in wanted and values.shape != wanted[name].shape
    ]
    problems = [_some("the file lacks", missing), _some("the model has no", unexpected), _some("", shapes)]
    return [problem for problem in problems if problem]


def _some(verb: str, names: Iterable[str]) -> str:
    names = list(names)
    if not names:
        return ""
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{verb} {', '.join(names[:_SHOWN])}{rest}".strip()


def _written(shape: torch.Size) -> str:
    return "×".join(map(str, shape)) or "a scalar"
