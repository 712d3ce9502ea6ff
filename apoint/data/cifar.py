"""CIFAR-10 and CIFAR-100 in their binary version.

A record is one label byte (CIFAR-10) or two (CIFAR-100: coarse, fine), then 3 × 32 × 32 bytes, channel by
channel. The version with pickles is never opened: reading a pickle runs any code in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from apoint.data.core import Facts, Source, Split
from apoint.data.locate import find_folder, missing, open_file
from apoint.data.sums import refuse_changed
from apoint.errors import UsageError
from apoint.registry import register

SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_MOST_NAMES = 1 << 16
# The images that each published file holds.
TEN_TRAIN = {f"data_batch_{number}.bin": 10000 for number in range(1, 6)}
TEN_TEST = {"test_batch.bin": 10000}
HUNDRED_TRAIN = {"train.bin": 50000}
HUNDRED_TEST = {"test.bin": 10000}
FOLDERS = {
    "cifar-10": ("cifar-10-batches-bin", "cifar-10/cifar-10-batches-bin", "cifar-10"),
    "cifar-100": ("cifar-100-binary", "cifar-100/cifar-100-binary", "cifar-100"),
}
FILES = {"cifar-10": TEN_TRAIN | TEN_TEST, "cifar-100": HUNDRED_TRAIN | HUNDRED_TEST}
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def read_records(path: Path, num_records: int, num_labels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The images (uint8 [N, 3, 32, 32]) and label bytes (uint8 [N, labels]) of one binary file."""
    size = num_labels + _PIXELS
    with open_file(path) as stream:
        found = os.fstat(stream.fileno()).st_size
        if found != num_records * size:
            raise UsageError(
                f"{path}: expected {num_records} records of {size} bytes, which are {num_records * size}, "
                f"the file has {found}; it is truncated or another file, so fetch it again"
            )
        content = np.fromfile(stream, dtype=np.uint8)
    refuse_changed(path, content.data)
    records = torch.from_numpy(content.reshape(num_records, size))
    return records[:, num_labels:].reshape(-1, *SHAPE), records[:, :num_labels]


def _read_files(folder: Path, files: dict[str, int], num_labels: int, column: int, classes: int) -> Split:
    images, labels = [], []
    for name, count in files.items():
        pixels, marks = read_records(folder / name, count, num_labels)
        highest = int(marks[:, column].max())
        if highest >= classes:
            raise UsageError(
                f"{folder / name}: labels must be below {classes}, found {highest}; the file is damaged, so "
                "fetch it again"
            )
        images.append(pixels)
        labels.append(marks[:, column])
    return Split(torch.cat(images), torch.cat(labels).to(torch.int64))


def _folder(name: str, root: Path | None) -> Path:
    folder = find_folder(FOLDERS[name], FILES[name], root)
    if folder is None:
        raise missing(name, root)
    return folder


@register("dataset", "cifar-10", origin="public", input="image", task="classification")
def cifar_10(root: Path | None = None) -> Source:
    """CIFAR-10: colour photographs, 32 × 32 pixels, 10 classes, 50 000 for training and 10 000 for testing.

    The usual benchmark for small convolutional networks: about 55 % for a multi-layer perceptron, 95 % for a
    residual network. Read from the binary version (`cifar-10-batches-bin`); the one with pickles is not
    opened.

    Reference: A. Krizhevsky, «Learning Multiple Layers of Features from Tiny Images», University of Toronto,
    2009.
    """
    folder = _folder("cifar-10", root)
    train, test = (_read_files(folder, files, 1, 0, 10) for files in (TEN_TRAIN, TEN_TEST))
    return Source(Facts("image", "classification", SHAPE, 10, THINGS), train, test)


@register("dataset", "cifar-100", origin="public", input="image", task="classification")
def cifar_100(root: Path | None = None, *, labels: Literal["fine", "coarse"] = "fine") -> Source:
    """CIFAR-100: colour photographs, 32 × 32 pixels, 100 classes, 50 000 for training and 10 000 for testing.

    Harder than CIFAR-10: only 500 training images for each class. Read from the binary version
    (`cifar-100-binary`); the class names come from the text files next to it, if present.

    Args:
        labels: `fine` for the 100 classes, `coarse` for the 20 groups of five.

    Reference: A. Krizhevsky, «Learning Multiple Layers of Features from Tiny Images», University of Toronto,
    2009.
    """
    folder = _folder("cifar-100", root)
    column, classes = (1, 100) if labels == "fine" else (0, 20)
    train, test = (_read_files(folder, files, 2, column, classes) for files in (HUNDRED_TRAIN, HUNDRED_TEST))
    names = _names(folder / f"{labels}_label_names.txt", classes)
    return Source(Facts("image", "classification", SHAPE, classes, names), train, test)


def _names(path: Path, classes: int) -> tuple[str, ...]:
    """The class names, one per line; numbers if the file is missing or has the wrong length."""
    words: list[str] = []
    if path.is_file():
        with open_file(path) as stream:
            content = stream.read(_MOST_NAMES)
        refuse_changed(path, content)
        words = content.decode("utf-8", "replace").split()
    is_sound = len(words) == classes and all(word.isprintable() for word in words)
    return tuple(words) if is_sound else tuple(str(label) for label in range(classes))
