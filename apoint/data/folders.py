"""Folders of images, one directory per class, read with Pillow into one tensor of bytes.

photos/cat/1.png  photos/dog/2.jpg                    # the test part is split off
photos/train/cat/1.png  photos/test/cat/9.png         # published parts; val/ or test/ or both
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NoReturn

import torch
from torch import Tensor

from apoint.data.core import Facts, Source, Split
from apoint.data.locate import open_file, resolve
from apoint.data.pixels import EXTENSIONS, Colour, Decoding, Pixels, Side
from apoint.data.stored import Names, StoredImages, as_stored, digest_of, in_gigabytes
from apoint.errors import UsageError
from apoint.opening import shown
from apoint.registry import register

Memory = Literal["auto", "all", "lazy"]

IN_MEMORY_BYTES = 1 << 31
"""With `memory: auto`, images that take more than this are decoded on demand."""
_VALIDATION = ("val", "valid", "validation")


class FolderImages:
    """Image files below a folder, indexed by number; see `stored.ImageFiles`."""

    def __init__(self, folder: Path, paths: Sequence[Path], decoding: Decoding) -> None:
        self.folder, self.decoding = str(folder), decoding
        self.names = Names([str(path.relative_to(folder)) for path in paths])
        self.sizes = torch.tensor([_size(path) for path in paths])

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image, (C, H, W): given by the settings, or that of the first image."""
        size, channels = self.decoding.size, 3 if self.decoding.colour == "rgb" else 1
        return self._decoded(0).shape if size is None else (channels, size, size)

    def name(self, place: int) -> str:
        """The file's path."""
        return str(Path(self.folder, self.names[place]))

    def read(self, place: int) -> Pixels:
        """The pixels [C, H, W] of an image."""
        pixels = self._decoded(place)
        if pixels.shape != self.shape:
            raise UsageError(
                f"{self.name(place)}: the image is {pixels.shape[2]} × {pixels.shape[1]} pixels, "
                f"{Path(self.names[0]).name} is {self.shape[2]} × {self.shape[1]}; set size to bring all to "
                "one size"
            )
        return pixels

    def _decoded(self, place: int) -> Pixels:
        return self.decoding(Path(self.name(place)), self.name(place))

    def tensors(self) -> list[Tensor]:
        """The index."""
        return [self.names.text, self.names.ends, self.sizes]

    def digest(self) -> bytes:
        """Names and sizes of all files, and how they are decoded."""
        return digest_of(repr(self.decoding), *self.tensors())


def held(splits: dict[str, Split], memory: Memory, where: str, notes: list[str]) -> dict[str, Split]:
    """Splits of stored images, decoded into memory if requested or, with `auto`, if they are few.

    Args:
        splits: The parts, with stored images.
        memory: The user's setting.
        where: The beginning of a note.
        notes: Receives a note on what was decided.
    """
    total = sum(split.inputs.numel() for split in splits.values())
    if memory == "lazy" or (memory == "auto" and total > IN_MEMORY_BYTES):
        count = sum(len(split) for split in splits.values())
        more = f", more than {in_gigabytes(IN_MEMORY_BYTES)}" if memory == "auto" else ""
        notes.append(
            f"{where}: {count} images would take {in_gigabytes(total)} of memory{more}; they are decoded as "
            "they are needed"
        )
        return splits
    decoded = {}
    for name, split in splits.items():
        stored = as_stored(split.inputs)
        assert stored is not None
        decoded[name] = Split(stored.tensor(most_bytes=total), split.targets)
        stored.decoder.close()
    return decoded


def _size(path: Path) -> int:
    """The size of an image file; raise for a pipe, a device or a dangling link."""
    try:
        found = path.stat()
        if stat.S_ISREG(found.st_mode):
            return found.st_size
    except OSError:
        pass
    with open_file(path) as stream:  # raises with the reason
        return os.fstat(stream.fileno()).st_size


def _unreadable(error: OSError) -> NoReturn:
    raise UsageError(
        f"{shown(error.filename)}: the folder cannot be listed ({error.strerror}); name a folder of images"
    ) from error


def _directories(folder: Path) -> list[Path]:
    try:
        return sorted(
            entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")
        )
    except OSError as error:
        _unreadable(error)


def _images(folder: Path) -> tuple[list[Path], int]:
    """The image files below `folder`, in order, and the number of other files; links are not followed."""
    files = [
        Path(place, name)
        for place, _, names in os.walk(folder, onerror=_unreadable)
        for name in names
        if not name.startswith(".")
    ]
    images = sorted(file for file in files if file.suffix.lower() in EXTENSIONS)
    return images, len(files) - len(images)


def _classes(folder: Path) -> tuple[str, ...]:
    names = tuple(entry.name for entry in _directories(folder))
    if not names:
        raise UsageError(
            f"{folder}: there is no class folder in it; put the images of each class into a folder with its "
            "name"
        )
    return names


def _listing(folder: Path, classes: Sequence[str], notes: list[str]) -> list[tuple[Path, int]]:
    """Each image below `folder` with its class; `notes` receives what was left out."""
    found = []
    strangers = 0
    for entry in _directories(folder):
        if entry.name not in classes:
            raise UsageError(
                f"{entry}: the class {entry.name!r} has no folder among the training images, so it cannot be "
                "learned; add training images or remove the folder"
            )
        images, others = _images(entry)
        strangers += others
        if not images:
            raise UsageError(
                f"{entry}: the class folder holds no image ({', '.join(EXTENSIONS)}); add some or remove the "
                "folder"
            )
        label = classes.index(entry.name)
        found += [(image, label) for image in images]
    if strangers:
        notes.append(f"{folder}: {strangers} files without an image's extension were left out")
    return found


def _split(folder: Path, listing: list[tuple[Path, int]], decoding: Decoding) -> Split:
    files = FolderImages(folder, [path for path, _ in listing], decoding)
    labels = torch.tensor([label for _, label in listing], dtype=torch.int64)
    return Split(StoredImages.of(files).inputs, labels)


def named_parts(folder: Path) -> dict[str, Path]:
    """The folders of the parts: train and those next to it, or the folder itself."""
    if not (folder / "train").is_dir():
        return {"train": folder}
    parts = {"train": folder / "train"}
    for part, names in (("validation", _VALIDATION), ("test", ("test",))):
        for name in names:
            if (folder / name).is_dir():
                parts[part] = folder / name
    if "test" not in parts and "validation" in parts:
        parts["test"] = parts.pop("validation")
    return parts


@register("dataset", "image-folder", origin="file", input="image", task="classification")
def image_folder(
    root: Path | None = None,
    *,
    path: str,
    size: Side | None = None,
    colour: Colour = "rgb",
    memory: Memory = "auto",
) -> Source:
    """A folder of images, one class per directory, read with Pillow.

    For your own photographs. The classes are the directories' names in sorted order. If the folder has a
    `train` directory, classes are read from it, and from `test` and `val` next to it; `val` alone is used as
    the test part. Images are rotated upright by their EXIF orientation, which torchvision's `ImageFolder`
    does not do, and held in memory as bytes or decoded on demand. With `size`, a JPEG of at least four times
    that size is first decoded at a reduced size, never below twice the requested size.

    Args:
        path: The folder.
        size: Resize every image to size × size: the shorter side is fitted, the longer one cropped at the
            centre; without it all images must already have the same size.
        colour: `rgb` for three channels, `gray` for one.
        memory: `all` holds the decoded images in memory, `lazy` decodes them on demand; `auto` uses `lazy`
            for more than 2 GiB.

    Reference: `torchvision.datasets.ImageFolder`, for the layout.
    """
    folder = resolve(path, root)
    if not folder.is_dir():
        raise UsageError(f"{folder}: expected a folder with a folder for each class, this is a file")
    notes: list[str] = []
    decoding = Decoding(size, colour)
    parts = named_parts(folder)
    classes = _classes(parts["train"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pillow only warns about some damage, such as a broken header
        read = {
            name: _split(place, _listing(place, classes, notes), decoding) for name, place in parts.items()
        }
        shape = tuple(read["train"].inputs.shape[1:])
        for name, split in read.items():
            if tuple(split.inputs.shape[1:]) != shape:
                raise UsageError(
                    f"{parts[name]}: images are of shape {tuple(split.inputs.shape[1:])}, those for training "
                    f"of {shape}; set size to bring all to one size"
                )
        read = held(read, memory, str(folder), notes)
    facts = Facts("image", "classification", shape, len(classes), classes)
    return Source(facts, read["train"], read.get("test"), read.get("validation"), notes=notes)
