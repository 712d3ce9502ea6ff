"""From an image file's bytes to pixels: how Pillow decodes it, and what is rejected.

The same image gives the same pixels regardless of how it is stored (a separate file or a member of a tar) and
when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from apoint.data.locate import open_file
from apoint.data.png import refuse_missing_rows
from apoint.errors import UsageError, one_line
from apoint.settings import NotTruth

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]
Colour = Literal["rgb", "gray"]

EXTENSIONS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
MOST_BYTES = 1 << 30
"""The size limit of an image file; a larger file is not an image."""
Side = Annotated[int, NotTruth, Field(ge=1, le=16384)]
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""The formats that Pillow may use; it also supports formats that start other programs, such as EPS."""
REDUCING_GAP = 2
"""A JPEG much larger than requested is decoded at 1/2, 1/4 or 1/8, but no smaller than this times `size`."""
_DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")


@dataclass(frozen=True)
class Decoding:
    """How to read an image: the size and the colours of the result.

    Attributes:
        size: Resize it to size × size; None keeps its size.
        colour: Three channels or one.
    """

    size: int | None
    colour: Colour = "rgb"

    @property
    def mode(self) -> str:
        """Pillow's name for the colours."""
        return "RGB" if self.colour == "rgb" else "L"

    def __call__(self, file: Path | bytes, where: str, thing: str = "file") -> Pixels:
        """The image as bytes [C, H, W]; raise a `UsageError` that begins with `where`.

        Args:
            file: The image's file, or its content.
            where: The name that a message begins with.
            thing: What the user should replace if it is damaged.
        """
        from PIL import Image, ImageOps

        with BytesIO(file) if isinstance(file, bytes) else open_file(file) as stream:
            try:
                image = self._image(stream, where)
            except (UsageError, MemoryError):
                raise
            except Exception as error:  # any error from a decoder means that this is not an image
                reason = one_line(str(error).partition(" <_io.")[0] or type(error).__name__)
                raise UsageError(
                    f"{where}: the image cannot be read ({reason}); replace or remove the {thing}"
                ) from None
        if self.size is not None and image.size != (self.size, self.size):
            image = ImageOps.fit(image, (self.size, self.size), Image.Resampling.BILINEAR)
        pixels: Pixels = np.asarray(image, dtype=np.uint8)
        return pixels[None] if self.mode == "L" else pixels.transpose(2, 0, 1)

    def _image(self, stream: IO[bytes], where: str) -> Image:
        """The whole image in the requested colours, upright."""
        from PIL import Image, ImageOps

        with Image.open(stream, formats=_FORMATS) as opened:
            _refuse(opened, where)
            if self.size is not None:
                opened.draft(None, (REDUCING_GAP * self.size, REDUCING_GAP * self.size))
            opened.load()
            if opened.format == "PNG":
                refuse_missing_rows(opened, stream)
            return _flat(ImageOps.exif_transpose(opened)).convert(self.mode)


def _refuse(image: Image, where: str) -> None:
    """Raise, before decoding, for images that bytes cannot hold and for those that may fill the memory.

    Pillow only warns about an image of more than `MAX_IMAGE_PIXELS`, and warnings cannot be turned into
    errors for one thread of several.
    """
    from PIL import Image as Pillow

    if image.mode in _DEEP_MODES:
        raise UsageError(
            f"{where}: the image has more than 8 bits a channel (mode {image.mode}), which bytes cannot "
            "hold; convert it to 8 bits first"
        )
    count, limit = image.width * image.height, Pillow.MAX_IMAGE_PIXELS
    if limit is not None and count > limit:
        raise ValueError(f"Image size ({count} pixels) exceeds limit of {limit} pixels")


def _flat(image: Image) -> Image:
    """Convert a palette with transparency to RGBA explicitly; otherwise Pillow would guess."""
    return image.convert("RGBA") if "transparency" in image.info else image
