"""Real images for claims at scale `standard`: part of a public dataset, downscaled, kept as one file.

The images come from `$APOINT_BOOK_IMAGES`, if it is set: an NPZ file or a folder with one sub-folder per
class. Otherwise they come from the public dataset by its name, in the place where `apoint data fetch` or the
user has put it. Scale `quick` needs none of this.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from apoint import data
from apoint.data import Split, StoredImages
from apoint.errors import StorageError, UsageError

VARIABLE = "APOINT_BOOK_IMAGES"


def real_images(folder: Path, name: str, *, size: int, train: int, test: int) -> dict[str, Any]:
    """Return the data of a recipe: `train` and `test` images of a dataset, each class in proportion.

    Args:
        folder: The folder for the file that all replicas read.
        name: The name of the public dataset, such as `cifar-10`.
        size: The height and width in pixels; blocks of pixels are averaged to reach it.
        train: Number of training images.
        test: Number of test images.
    """
    chosen = os.environ.get(VARIABLE) if name == "cifar-10" else None
    label = f"{name}-{size}-{train}-{test}" + (f"-{_stamp(Path(chosen))}" if chosen else "")
    path = folder / "images" / f"{label}.npz"
    if not path.exists():
        return save_images(path, _read(chosen, name, size, train, test))
    return {"name": "npz", "path": str(path.resolve())}


def save_images(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Write arrays to one NPZ file atomically, and return the data of a recipe that reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    with partial.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)
    partial.replace(path)  # two claims may write it at once
    return {"name": "npz", "path": str(path.resolve())}


def _stamp(path: Path) -> str:
    try:
        found = path.stat()
    except OSError as error:
        raise StorageError(f"${VARIABLE} is {path}, which cannot be read ({error.strerror})") from None
    return f"{found.st_mtime_ns:x}"


def _read(chosen: str | None, name: str, size: int, train: int, test: int) -> dict[str, np.ndarray]:
    spec: str | dict[str, Any] = name
    if chosen:
        spec = {"name": "image-folder" if Path(chosen).is_dir() else "npz", "path": chosen}
    try:
        found = data.load(spec, normalise=False)
    except (StorageError, UsageError) as error:
        raise UsageError(
            f"{error}. Or set ${VARIABLE} to an NPZ file or an image folder. The scale quick needs no images"
        ) from None
    arrays = {}
    for part, split, wanted in (("train", found.train, train), ("test", found.test, test)):
        if len(split) < wanted:
            raise UsageError(f"{spec}: has {len(split)} {part} images, and {wanted} are needed")
        few = data.splits.limited(split, wanted, "classification", seed=0) if wanted < len(split) else split
        arrays[f"x_{part}"] = _smaller(_pixels(few), size).numpy()
        arrays[f"y_{part}"] = few.targets.numpy()
    return arrays


def _pixels(split: Split) -> Tensor:
    rows = split.inputs
    return (
        torch.stack([rows[place] for place in range(len(rows))]) if isinstance(rows, StoredImages) else rows
    )


def _smaller(images_NCHW: Tensor, size: int) -> Tensor:
    """Average to bytes again, since a block's mean is one pixel of a smaller camera."""
    side = images_NCHW.shape[-1]
    if side == size:
        return images_NCHW
    if side % size or images_NCHW.shape[-2] != side:
        raise UsageError(
            f"images of {images_NCHW.shape[-2]}×{side} pixels cannot be averaged to {size}×{size}"
        )
    small = torch.nn.functional.avg_pool2d(images_NCHW.to(torch.float32), side // size)
    return small.round().to(torch.uint8)
