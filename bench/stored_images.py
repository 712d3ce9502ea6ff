"""An epoch with images decoded as they are needed against one with all images in memory.

JPEGs of 64 × 64 pixels from tar shards and from a folder, a small convolutional network and a residual one.
Wall-clock time, since decoding happens beside training: with two cores the first is mostly hidden behind the
second, with one core it comes on top.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from apoint.data.stored import thread_count
from apoint.engine import Replica, assemble, training_step
from apoint.engine.arithmetic import exact_arithmetic
from apoint.recipe import load_recipe
from bench.timing import interleaved, table

IMAGES, SIDE, CLASSES = 512, 64, 8
MODELS: dict[str, dict[str, Any]] = {
    "CNN": {"name": "cnn", "width": 16, "depth": 2},
    "ResNet-20": {"name": "resnet20"},
}


def write_images(folder: Path) -> None:
    """The same images as a folder for each class and as two tar shards."""
    rng = np.random.default_rng(0)
    with tarfile.open(folder / "train-0.tar", "w") as one, tarfile.open(folder / "train-1.tar", "w") as two:
        for row in range(IMAGES):
            noise = Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8))
            place = folder / "photos" / str(row % CLASSES) / f"{row:05}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            noise.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(place, quality=90)
            for name, content in (
                (f"{row:05}.jpg", place.read_bytes()),
                (f"{row:05}.cls", b"%d" % (row % CLASSES)),
            ):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                (one if row < IMAGES // 2 else two).addfile(member, io.BytesIO(content))


def epochs_of(replica: Replica) -> Callable[[], None]:
    """One epoch after the other."""
    position = 0

    def run() -> None:
        nonlocal position
        with exact_arithmetic(1, replica.device):
            for _ in range(replica.horizon.steps_per_epoch):
                training_step(replica, position)
                position += 1

    return run


def main() -> None:
    """Print the seconds of an epoch each way, and the ratios."""
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        write_images(folder)
        sources = {
            "memory": {"name": "image-folder", "path": str(folder / "photos"), "memory": "all"},
            "folder": {"name": "image-folder", "path": str(folder / "photos"), "memory": "lazy"},
            "shards": {"name": "tar-shards", "path": str(folder / "train-{0..1}.tar"), "memory": "lazy"},
        }
        for title, model in MODELS.items():
            arms = {}
            for source, spec in sources.items():
                data = {**spec, "size": SIDE}
                recipe, _ = load_recipe({"data": data, "model": model, "batch_size": 64, "epochs": 50})
                arms[source] = epochs_of(assemble(recipe))
            best = interleaved(arms, rounds=3, clock=time.perf_counter)
            shown = "  ".join(f"{source} {seconds:.2f} s" for source, seconds in best.items())
            folder_ratio, shard_ratio = (best[one] / best["memory"] for one in ("folder", "shards"))
            rows.append((title, f"{shown}  ratio: folder {folder_ratio:.2f}, shards {shard_ratio:.2f}"))
    table(
        f"An epoch of {IMAGES} JPEGs of {SIDE} × {SIDE}, decoded as needed by {thread_count()} threads, "
        "against memory (best of 3)",
        rows,
    )


if __name__ == "__main__":
    main()
