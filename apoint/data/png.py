"""Check that a PNG's compressed data hold all rows, which Pillow does not check.

A PNG whose compressed stream ends early, in an otherwise whole file, is decoded by Pillow silently: the
missing rows are left zero. So a last row of zeros is a reason to count the bytes that the stream yields.

Format: PNG (W3C, third edition), 7 "Encoding the PNG image as a PNG data stream" and 10.1 "Compression".
"""

from __future__ import annotations

import struct
import zlib
from typing import IO, TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
# First column, first row, and the steps between columns and rows of each of Adam7's passes.
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_PIECE = 1 << 16


def refuse_missing_rows(image: Image, stream: IO[bytes]) -> None:
    """Raise a `ValueError` if a decoded PNG lacks rows; `stream` is its file, whose position changes."""
    is_interlaced = bool(image.info.get("interlace"))
    last_row = image.crop((0, image.height - 1, image.width, image.height))
    if not is_interlaced and np.asarray(last_row).any():
        return  # rows are stored in order, and only whole ones are stored
    stream.seek(0)
    expected, found = _bytes_stated(stream)
    if found < expected:
        raise ValueError(f"its data end after {found} of {expected} bytes")


def _bytes_stated(stream: IO[bytes]) -> tuple[int, int]:
    """How many bytes the header requires, and how many the compressed data yield, at most as many."""
    stream.seek(16)  # signature, and length and name of the first chunk
    width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", stream.read(13))
    passes = _ADAM7 if interlace else ((0, 0, 1, 1),)
    expected = sum(
        len(range(top, height, down)) * _row_bytes(len(range(left, width, right)), depth * _CHANNELS[colour])
        for left, top, right, down in passes
    )
    stream.seek(33)  # the second chunk
    return expected, _inflated(stream, expected)


def _row_bytes(width: int, bits: int) -> int:
    """A filter byte and the pixels; a pass without columns has no rows."""
    return 1 + (width * bits + 7) // 8 if width else 0


def _inflated(stream: IO[bytes], most: int) -> int:
    """How many bytes the IDAT chunks yield, counted in pieces and no further than `most`."""
    inflating, count = zlib.decompressobj(), 0
    while count < most and len(head := stream.read(8)) == 8:
        length, name = struct.unpack(">I4s", head)
        if name != b"IDAT":
            stream.seek(length + 4, 1)
            continue
        while length > 0 and (piece := stream.read(min(length, _PIECE))):
            length -= len(piece)
            while piece and count < most:
                count += len(inflating.decompress(piece, _PIECE))
                piece = inflating.unconsumed_tail
        stream.seek(length + 4, 1)
    return count
