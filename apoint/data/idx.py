"""MNIST and Fashion-MNIST, and the IDX format they come in.

An IDX file is two zero bytes, a byte for the type of its numbers (8: bytes), a byte for the number of
dimensions, each dimension as four big-endian bytes, then the numbers.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from apoint.data.core import Facts, Source, Split
from apoint.data.locate import find_file, find_folder, missing, open_file
from apoint.data.memory import refuse_too_large
from apoint.errors import UsageError
from apoint.registry import register

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
FOLDERS = {
    "mnist": ("mnist", "MNIST/raw", "MNIST", "mnist/raw"),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "fashion_mnist", "fashion"),
}
DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_BYTE_TYPE = 8
_MOST_RATIO = 1032
"""The most bytes that one byte of gzip-compressed data can expand to."""


def read_idx(path: Path, num_dimensions: int) -> Tensor:
    """The numbers of an IDX file of bytes, plain or gzip-compressed, as uint8 of the shape it states."""
    header = 4 + 4 * num_dimensions
    try:
        with open_file(path) as file:
            is_packed, size = path.suffix == ".gz", os.fstat(file.fileno()).st_size
            stream = gzip.GzipFile(fileobj=file) if is_packed else file
            shape = _shape(path, stream.read(header), num_dimensions)
            count = math.prod(shape)
            wanted = 1 + min(count, size * (_MOST_RATIO if is_packed else 1))
            refuse_too_large(wanted, str(path))
            # Mutable, because a tensor on read-only memory could be written to.
            content = bytearray(stream.read(wanted))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(
            f"{path}: cannot be decompressed ({error}); the file is damaged, so fetch it again"
        ) from None
    if len(content) != count:
        found = "more" if is_packed and len(content) > count else max(len(content), size - header)
        raise UsageError(
            f"{path}: the header promises {' × '.join(map(str, shape))} = {count} bytes, the file has "
            f"{found}; it is truncated or damaged, so fetch it again"
        )
    return torch.from_numpy(np.frombuffer(content, dtype=np.uint8).reshape(shape))


def _shape(path: Path, header: bytes, num_dimensions: int) -> tuple[int, ...]:
    """The shape that an IDX file's header states."""
    if not header:
        raise UsageError(f"{path}: the file is empty; fetch it again")
    expected = bytes([0, 0, _BYTE_TYPE, num_dimensions])
    if header[:4] != expected:
        raise UsageError(
            f"{path}: an IDX file of bytes with {num_dimensions} dimensions begins with {expected.hex(' ')}, "
            f"this one with {header[:4].hex(' ')}; it is another kind of file, so fetch it again"
        )
    if len(header) < 4 + 4 * num_dimensions:
        raise UsageError(
            f"{path}: the file ends within its header, after {len(header)} bytes; fetch it again"
        )
    return struct.unpack(f">{num_dimensions}I", header[4:])


def _read_pair(folder: Path, images_name: str, labels_name: str) -> Split:
    images_path, labels_path = find_file(folder, images_name), find_file(folder, labels_name)
    assert images_path is not None, "find_folder promised it"
    assert labels_path is not None, "find_folder promised it"
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if len(images) != len(labels):
        raise UsageError(
            f"{images_path} has {len(images)} images but {labels_path.name} has {len(labels)} labels; they "
            "do not belong together, so fetch both again"
        )
    return Split(images.unsqueeze(1), labels.to(torch.int64))


def _read_set(name: str, class_names: tuple[str, ...], root: Path | None) -> Source:
    folder = find_folder(FOLDERS[name], FILES, root)
    if folder is None:
        raise missing(name, root)
    train, test = _read_pair(folder, *FILES[:2]), _read_pair(folder, *FILES[2:])
    if is_the_other(name, train.targets):
        other = "mnist" if name == "fashion-mnist" else "fashion-mnist"
        raise UsageError(
            f"dataset {name!r}: the files in {folder} are those of {other!r}, which have the same names; use "
            "the other name or another --data-root"
        )
    facts = Facts("image", "classification", tuple(train.inputs.shape[1:]), 10, class_names)
    return Source(facts, train, test)


def is_the_other(name: str, labels: Tensor) -> bool:
    """The two sets have the same file names and shapes, but only Fashion-MNIST has 6000 of each class."""
    if len(labels) != 60000:
        return False
    is_even = bool((torch.bincount(labels, minlength=10) == 6000).all())
    return is_even != (name == "fashion-mnist")


def belongs(name: str, folder: Path) -> bool:
    """Whether the files in `folder` are those of `name` and not of the other set with the same file names."""
    path = find_file(folder, FILES[1])
    return path is not None and not is_the_other(name, read_idx(path, 1))


@register("dataset", "mnist", origin="public", input="image", task="classification")
def mnist(root: Path | None = None) -> Source:
    """MNIST: handwritten digits of 28 × 28 pixels, 60 000 for training and 10 000 for testing.

    The best known dataset; a small convolutional network exceeds 99 %, so it rarely separates two good
    methods. Read from the published IDX files, plain or `.gz`.

    Reference: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, «Gradient-based learning applied to document
    recognition», Proceedings of the IEEE 86, 1998.
    """
    return _read_set("mnist", DIGITS, root)


@register("dataset", "fashion-mnist", origin="public", input="image", task="classification")
def fashion_mnist(root: Path | None = None) -> Source:
    """Fashion-MNIST: articles of clothing of 28 × 28 pixels, 60 000 for training and 10 000 for testing.

    Same format as MNIST, but harder: about 90 % for a multi-layer perceptron, 93 % for a small
    convolutional network. Read from the published IDX files, plain or `.gz`; the Debian package
    `dataset-fashion-mnist` has them.

    Reference: H. Xiao, K. Rasul, R. Vollgraf, «Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine
    Learning Algorithms», arXiv:1708.07747, 2017.
    """
    return _read_set("fashion-mnist", CLOTHES, root)
