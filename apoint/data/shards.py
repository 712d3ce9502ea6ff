"""Tar shards in WebDataset's layout, read in any order without unpacking them.

imagenet/train-000000.tar … train-001281.tar          # path: imagenet/train-{000000..001281}.tar
imagenet/val-000000.tar … val-000049.tar              # or path: imagenet; the names give the parts
"""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from apoint.data.core import Facts, Source, Split
from apoint.data.folders import Memory, held, named_parts
from apoint.data.locate import open_file, resolve_all
from apoint.data.pixels import Colour, Decoding, Pixels, Side
from apoint.data.shard_index import Label, Shard, index_shard
from apoint.data.stored import Names, StoredImages, digest_of, thread_count
from apoint.data.tars import pread_all
from apoint.errors import UsageError
from apoint.opening import shown
from apoint.registry import register

_PARTS = {
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}


class ShardImages:
    """The images of some shards, indexed by number; see `stored.ImageFiles`."""

    def __init__(self, paths: list[Path], shards: list[Shard], decoding: Decoding) -> None:
        self.paths = [str(path) for path in paths]
        self.stamps = [(shard.size, shard.mtime_ns) for shard in shards]
        self.decoding = decoding
        self.names = Names([name for shard in shards for name in shard.names])
        counts = torch.tensor([len(shard) for shard in shards])
        self.shards = torch.repeat_interleave(torch.arange(len(shards), dtype=torch.int32), counts)
        self.offsets = torch.tensor([offset for shard in shards for offset in shard.offsets])
        self.sizes = torch.tensor([size for shard in shards for size in shard.sizes])

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image, (C, H, W): given by the settings, or that of the first image."""
        size, channels = self.decoding.size, 3 if self.decoding.colour == "rgb" else 1
        return self._decoded(0).shape if size is None else (channels, size, size)

    def name(self, place: int) -> str:
        """The shard and the member."""
        return f"{self.paths[int(self.shards[place])]}: member {shown(self.names[place])}"

    def read(self, place: int) -> Pixels:
        """The pixels [C, H, W] of an image."""
        pixels = self._decoded(place)
        if pixels.shape != self.shape:
            raise UsageError(
                f"{self.name(place)}: the image is {pixels.shape[2]} × {pixels.shape[1]} pixels, the first "
                f"is {self.shape[2]} × {self.shape[1]}; set size to bring all to one size"
            )
        return pixels

    def _decoded(self, place: int) -> Pixels:
        return self.decoding(self._content(place), self.name(place), "member")

    def _content(self, place: int) -> bytes:
        number, count = int(self.shards[place]), int(self.sizes[place])
        with open_file(Path(self.paths[number])) as stream:
            now = os.fstat(stream.fileno())
            content = pread_all(stream.fileno(), count, int(self.offsets[place]))
        if (now.st_size, now.st_mtime_ns) != self.stamps[number] or len(content) < count:
            raise UsageError(
                f"{self.name(place)}: the shard has changed since its headers were read; start again, and do "
                "not write to shards that are in use"
            )
        return content

    def tensors(self) -> list[Tensor]:
        """The index."""
        return [self.names.text, self.names.ends, self.shards, self.offsets, self.sizes]

    def digest(self) -> bytes:
        """Names, positions and sizes of all images, the shards' own names, and how they are decoded."""
        own = json.dumps([Path(path).name for path in self.paths])
        return digest_of(own, repr(self.decoding), *self.tensors())


# -- the dataset ---------------------------------------------------------------------------------------


def _parts(path: str, test_path: str | None, root: Path | None) -> dict[str, list[Path]]:
    """The shards of each part."""
    files = resolve_all(path, root)
    if len(files) == 1 and files[0].is_dir():
        parts = _of_folder(files[0])
    else:
        parts = {"train": files}
    if test_path is not None:
        parts["test"] = resolve_all(test_path, root)
    elif "test" not in parts and "validation" in parts:
        parts["test"] = parts.pop("validation")
    for file in (file for files in parts.values() for file in files):
        if file.is_dir():
            raise UsageError(f"{file}: expected a tar file, this is a folder; name its shards: {file}/*.tar")
    return parts


def _of_folder(folder: Path) -> dict[str, list[Path]]:
    """The shards in a folder by part, from its sub-folders or from words in the shards' names."""
    inner = named_parts(folder)
    if "train" in inner and inner["train"] != folder:
        return {part: _shards_in(place) for part, place in inner.items()}
    parts: dict[str, list[Path]] = {}
    for file in _shards_in(folder):
        words = re.split(r"[^a-z]+", file.stem.lower())
        part = next((_PARTS[word] for word in words if word in _PARTS), "")
        parts.setdefault(part, []).append(file)
    if list(parts) == [""]:
        return {"train": parts[""]}
    if "" in parts:
        raise UsageError(
            f"{parts[''][0]}: the name tells no part, and others in the folder have train, val or test in "
            "theirs; rename it or set path to the shards for training"
        )
    if "train" not in parts:
        raise UsageError(f"{folder}: no shard is for training; name the shards to learn from train-….tar")
    return parts


def _shards_in(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.tar"))
    if not found:
        raise UsageError(
            f"{folder}: there is no .tar file in it; name the shards, or the folder that has them"
        )
    return found


@dataclass
class _Indexed:
    """The shards of one part, with their contents."""

    paths: list[Path]
    shards: list[Shard]

    @classmethod
    def of(cls, paths: list[Path]) -> _Indexed:
        with ThreadPoolExecutor(thread_count()) as pool:  # a disk or a network may serve several at a time
            try:
                found = cls(paths, list(pool.map(index_shard, paths)))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if not any(found.shards):
            raise UsageError(
                f"{paths[0]}: there is no sample in {len(paths)} shards; they need image and class"
            )
        return found

    def first_with(self, label: Label) -> str:
        """The name of the first image of a class."""
        for path, shard in zip(self.paths, self.shards, strict=True):
            if label in shard.labels:
                return f"{path}: member {shown(shard.names[shard.labels.index(label)])}"
        raise KeyError(label)

    @cached_property
    def classes(self) -> set[Label]:
        return {label for shard in self.shards for label in shard.labels}

    def targets(self, numbers: dict[Label, int]) -> Tensor:
        return torch.tensor([numbers[label] for shard in self.shards for label in shard.labels])


def _numbering(parts: dict[str, _Indexed]) -> dict[Label, int]:
    """The number of each class: as written, or by the sorted order of the names in the training shards."""
    train = parts["train"]
    first = next(shard.labels[0] for shard in train.shards if len(shard))
    for part in parts.values():
        others = sorted(repr(label) for label in part.classes if type(label) is not type(first))
        if others:
            other = next(label for label in part.classes if repr(label) == others[0])
            raise UsageError(
                f"{part.first_with(other)}: its class is written as {other!r}, that of "
                f"{train.first_with(first)} as {first!r}; write all as numbers or all as names"
            )
    known: list[Any] = sorted(train.classes)
    for part in parts.values():
        unseen: list[Any] = sorted(part.classes - train.classes)
        if unseen:
            raise UsageError(
                f"{part.first_with(unseen[0])}: the class {unseen[0]!r} never occurs in the training shards, "
                f"which have {len(known)} classes from {known[0]!r} to {known[-1]!r}; number all parts alike"
            )
    return {label: label if isinstance(label, int) else number for number, label in enumerate(known)}


@register("dataset", "tar-shards", origin="file", input="image", task="classification", patterns=True)
def tar_shards(
    root: Path | None = None,
    *,
    path: str,
    test_path: str | None = None,
    size: Side | None = None,
    colour: Colour = "rgb",
    memory: Memory = "auto",
) -> Source:
    """Images in tar files as WebDataset writes them, read in any order without unpacking.

    For ImageNet and other sets of many images. A sample is an image and its class under one name up to the
    first dot: `0001.jpg` with `0001.cls`, else `0001.json` (its `label`, `cls`, `class` or `target`), else
    `0001.txt`. A class is a number from 0 or a name; names are numbered in sorted order. WebDataset itself
    reads shards from end to end and shuffles within a buffer; here every image has an index, so that an
    epoch is one permutation of all images and a run resumes exactly where it stopped.

    Args:
        path: The training shards: one tar, a pattern (`train-{000000..001281}.tar`, `train-*.tar`), or a
            folder, whose shards are assigned to parts by `train`, `val` and `test` in their names; `val`
            alone is used as the test part.
        test_path: The test shards, in the same form; by default those in the folder, if any.
        size: Resize every image to size × size: the shorter side is fitted, the longer one cropped at the
            centre; without it all images must already have the same size.
        colour: `rgb` for three channels, `gray` for one.
        memory: `all` holds the decoded images in memory, `lazy` decodes them on demand; `auto` uses `lazy`
            for more than 2 GiB.

    Reference: Aizman, Maltby, Breuel (2019), High performance I/O for large scale deep learning; WebDataset.
    """
    indexed = {part: _Indexed.of(files) for part, files in _parts(path, test_path, root).items()}
    numbers = _numbering(indexed)
    decoding, notes = Decoding(size, colour), list[str]()
    splits: dict[str, Split] = {}
    for name, part in indexed.items():
        images = StoredImages.of(ShardImages(part.paths, part.shards, decoding))
        splits[name] = Split(images.inputs, part.targets(numbers))
        if others := sum(shard.others for shard in part.shards):
            notes.append(
                f"{part.paths[0].parent}: {name}: {others} members that belong to no image were left out"
            )
    names = tuple(str(label) for label in numbers) if isinstance(next(iter(numbers)), str) else ()
    facts = Facts(
        "image", "classification", tuple(splits["train"].inputs.shape[1:]), max(numbers.values()) + 1, names
    )
    splits = held(splits, memory, path, notes)
    return Source(facts, splits["train"], splits.get("test"), splits.get("validation"), notes=notes)
