"""Small sets of photographs for tests: as folders and as tar shards, and a recipe that learns from them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CLASSES = ("cat", "dog", "eel")


def picture(seed: int, width: int = 14, height: int = 11) -> Image.Image:
    """An image of its own for each seed, smooth enough for JPEG."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8), "RGB")
    return small.resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str = "JPEG") -> bytes:
    """The image as a file's content."""
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def write_folder(folder: Path, count: int = 48, extension: str = "jpg") -> Path:
    """Images in a folder for each class."""
    for row in range(count):
        place = folder / CLASSES[row % 3] / f"{row:03}.{extension}"
        place.parent.mkdir(parents=True, exist_ok=True)
        picture(row).save(place)
    return folder


def write_tar(path: Path, members: Iterable[tuple[str, bytes]], **options: Any) -> Path:
    """A tar of plain files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", **options) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def samples(rows: Iterable[int]) -> list[tuple[str, bytes]]:
    """Members of a shard: a JPEG and its class for each row."""
    return [
        member
        for row in rows
        for member in (
            (f"{row:03}.jpg", encoded(picture(row))),
            (f"{row:03}.cls", str(row % 3).encode()),
        )
    ]


def recipe(data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A small convolutional network with everything on the way from image to batch."""
    return {
        "data": {"validation": 0.2, **data},
        "augment": ["flip", {"name": "mix-up", "alpha": 0.2}],
        "deficits": [{"name": "blur", "end": "1 epoch"}],
        "model": {"name": "cnn", "width": 4, "depth": 1, "norm": "batch"},
        "optimizer": {"name": "momentum", "lr": 0.05},
        "batch_size": 8,
        "accumulate": 2,
        "epochs": 3,
        **changes,
    }
