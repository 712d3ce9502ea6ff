"""Write a model's weights, in our layout or another library's."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from apoint.errors import UnknownNameError, UsageError
from apoint.models.layouts.core import layouts_of, to_theirs
from apoint.models.weights import files
from apoint.models.weights.preprocessing import Preprocessing


def save_weights(
    model: nn.Module,
    path: str | Path,
    layout: str = "apoint",
    preprocessing: Preprocessing | None = None,
) -> None:
    """Write all weights of a model as a safetensors file.

    Args:
        model: The model.
        path: The file, with the extension .safetensors; an existing file is replaced.
        layout: The layout of names and shapes: `apoint`, or `timm`, `torchvision`, `microsoft`, `facebook`,
            `huggingface` where they have this family.
        preprocessing: How images must be prepared for these weights; written into the file.
    """
    known = layouts_of(model)
    if layout not in known:
        raise UnknownNameError("layout", layout, tuple(known), where=type(model).__name__)
    weights, unnamed = to_theirs(model, known[layout])
    if layout == "apoint":
        weights = _once(weights)
    if unnamed:
        raise UsageError(
            f"the layout {layout!r} has no place for {', '.join(unnamed[:3])}{' …' * (len(unnamed) > 3)} of "
            f"this {type(model).__name__}; save it as 'apoint', or build it with settings that {layout} knows"
        )
    metadata = {"layout": layout}
    if preprocessing is not None:
        metadata["preprocessing"] = preprocessing.to_json()
    files.write(Path(path), weights, metadata)


def _once(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Keep only the first name of tied weights; `load_weights` needs no more."""
    first: dict[tuple[int, torch.Size], str] = {}
    for name, value in weights.items():
        first.setdefault((value.data_ptr() if value.numel() else id(value), value.shape), name)
    kept = set(first.values())
    return {name: value for name, value in weights.items() if name in kept}
