"""Folders of images, a class per directory, read with Pillow into one tensor of bytes.

photos/cat/1.png  photos/dog/2.jpg                    # the test part is split off
photos/train/cat/1.png  photos/test/cat/9.png         # published parts; val/ or test/ or both
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import torch

from apoint.data.core import Facts, Source, Split
from apoint.data.locate import resolve
from apoint.errors import UsageError
from apoint.registry import register
from apoint.settings import Count

if TYPE_CHECKING:
    from PIL.Image import Image

EXTENSIONS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_VALIDATION = ("val", "valid", "validation")
_DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")


@dataclass(frozen=True)
class _Reading:
    """How to read an image: what to make of its size and its colours."""

    size: int | None
    mode: str  # Pillow's word: RGB or L

    def __call__(self, path: Path) -> npt.NDArray[np.uint8]:
        """The image as bytes [C, H, W]; raises a `UsageError` that names the file."""
        from PIL import Image, ImageOps

        try:
            with Image.open(path) as opened:
                if opened.mode in _DEEP_MODES:
                    raise UsageError(
                        f"{path}: the image has more than 8 bits a channel (mode {opened.mode}), which bytes "
                        "cannot hold; convert it to 8 bits first"
                    )
                image = _flat(ImageOps.exif_transpose(opened)).convert(self.mode)
        except UsageError:
            raise
        except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError, Warning) as error:
            raise UsageError(
                f"{path}: the image cannot be read ({str(error) or type(error).__name__}); replace or remove "
                "the file"
            ) from None
        if self.size is not None and image.size != (self.size, self.size):
            image = ImageOps.fit(image, (self.size, self.size), Image.Resampling.BILINEAR)
        pixels: npt.NDArray[np.uint8] = np.asarray(image, dtype=np.uint8)
        return pixels[None] if self.mode == "L" else pixels.transpose(2, 0, 1)


def _flat(image: Image) -> Image:
    """A palette with transparency spelled out, without which Pillow would guess."""
    return image.convert("RGBA") if "transparency" in image.info else image


def _directories(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _images(folder: Path) -> tuple[list[Path], int]:
    """The image files below `folder`, in order, and how many other files there are."""
    files = sorted(entry for entry in folder.rglob("*") if entry.is_file() and not entry.name.startswith("."))
    images = [entry for entry in files if entry.suffix.lower() in EXTENSIONS]
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
    """Each image below `folder` with its class; `notes` gets what was left out."""
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
        found += [(image, classes.index(entry.name)) for image in images]
    if strangers:
        notes.append(f"{folder}: {strangers} files without an image's extension were left out")
    return found


def _read(listing: list[tuple[Path, int]], reading: _Reading) -> Split:
    first = reading(listing[0][0])
    pixels = np.empty((len(listing), *first.shape), dtype=np.uint8)

    def put(row: int) -> None:
        path = listing[row][0]
        image = reading(path)
        if image.shape != first.shape:
            raise UsageError(
                f"{path}: the image is {image.shape[2]} × {image.shape[1]} pixels, {listing[0][0].name} is "
                f"{first.shape[2]} × {first.shape[1]}; set size to bring all to one size"
            )
        pixels[row] = image

    with ThreadPoolExecutor() as pool:  # Pillow decodes without the interpreter's lock
        try:
            list(pool.map(put, range(len(listing))))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    labels = torch.tensor([label for _, label in listing], dtype=torch.int64)
    return Split(torch.from_numpy(pixels), labels)


def _parts(folder: Path) -> dict[str, Path]:
    """The folders of the parts: train and what is beside it, or the folder itself."""
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
    size: Count | None = None,
    colour: Literal["rgb", "gray"] = "rgb",
) -> Source:
    """A folder of images, one class per directory, with Pillow.

    For photographs of one's own. The classes are the directories' names in order. If the folder has a `train`
    directory, classes are looked for in it, and in `test` and `val` beside it; `val` alone serves as the test
    part. Images are turned upright by their EXIF orientation, which torchvision's `ImageFolder` does not do,
    and held in memory as bytes.

    Args:
        path: The folder.
        size: Bring every image to size × size: the shorter side is fitted, the longer one cropped at the
            centre; without it all images must have one size already.
        colour: `rgb` for three channels, `gray` for one.

    Reference: `torchvision.datasets.ImageFolder`, for the layout.
    """
    folder = resolve(path, root)
    if not folder.is_dir():
        raise UsageError(f"{folder}: expected a folder with a folder for each class, this is a file")
    notes: list[str] = []
    reading = _Reading(size, "RGB" if colour == "rgb" else "L")
    parts = _parts(folder)
    classes = _classes(parts["train"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what Pillow only warns of, such as a huge image, is damage here
        read = {name: _read(_listing(place, classes, notes), reading) for name, place in parts.items()}
    shape = tuple(read["train"].inputs.shape[1:])
    for name, split in read.items():
        if tuple(split.inputs.shape[1:]) != shape:
            raise UsageError(
                f"{parts[name]}: images are of shape {tuple(split.inputs.shape[1:])}, those for training of "
                f"{shape}; set size to bring all to one size"
            )
    facts = Facts("image", "classification", shape, len(classes), classes)
    return Source(facts, read["train"], read.get("test"), read.get("validation"), notes=notes)
