"""An image that is not whole is refused, or decodes to the very pixels of the whole one."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from apoint.data import load
from apoint.data.pixels import Decoding
from apoint.errors import UsageError
from tests.data.images import picture, write_tar


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(height: int, data: bytes, *, colour: int = 0, interlace: int = 0, split: int = 1 << 30) -> bytes:
    """A PNG of 8 columns and 8 bits with these rows, filter bytes included, whatever the height says."""
    packed = zlib.compress(data)
    parts = [chunk(b"IDAT", packed[start : start + split]) for start in range(0, len(packed), split)]
    header = struct.pack(">IIBBBBB", 8, height, 8, colour, 0, 0, interlace)
    return b"".join([b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header), *parts, chunk(b"IEND", b"")])


def adam7(pixels: np.ndarray) -> bytes:
    """The rows of an interlaced image, with filter 0."""
    starts = (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    )
    passes = [pixels[top::down, left::right] for left, top, right, down in starts]
    return b"".join(b"\0" + bytes(row) for part in passes if part.size for row in part)


WHOLE = {
    "png": encoded(picture(1), "PNG"),
    "png, black below": encoded(Image.fromarray(np.triu(np.full((11, 14), 99, np.uint8), 3)), "PNG"),
    "png, palette": encoded(picture(2).convert("P"), "PNG"),
    "png, one bit": encoded(picture(3).convert("1"), "PNG"),
    "png, transparent": encoded(picture(4).convert("RGBA"), "PNG"),
    "png, interlaced": png(11, adam7(np.arange(88, dtype=np.uint8).reshape(11, 8)), interlace=1),
    "png, many chunks": png(11, b"".join(b"\0" + bytes(range(row, row + 8)) for row in range(11)), split=5),
    "jpeg": encoded(picture(5), "JPEG"),
    "jpeg, progressive": encoded(picture(6), "JPEG", progressive=True),
    "jpeg, gray": encoded(picture(7).convert("L"), "JPEG", quality=95),
    "jpeg, restarts": encoded(picture(8, 40, 40), "JPEG", restart_marker_blocks=1),
    "bmp": encoded(picture(9, 5, 4), "BMP"),
    "gif": encoded(picture(10), "GIF"),
    "ppm": encoded(picture(11, 5, 4), "PPM"),
    "webp": encoded(picture(12), "WEBP", lossless=True),
}


@pytest.mark.parametrize("size", [None, 6])
@pytest.mark.parametrize("name", WHOLE)
def test_a_file_cut_anywhere_is_refused_or_decodes_to_the_same_pixels(name: str, size: int | None) -> None:
    whole, decoding = WHOLE[name], Decoding(size)
    expected, refused = decoding(whole, "x"), 0
    for end in range(len(whole)):
        try:
            found = decoding(whole[:end], "cut.png")
        except UsageError as error:
            refused += 1
            message = str(error)
        else:
            assert np.array_equal(found, expected), f"cut at byte {end} of {len(whole)}"
    assert refused > len(whole) // 2
    assert message.startswith("cut.png: the image cannot be read")


ROWS = b"".join(b"\0" + bytes([100 + row] * 8) for row in range(6))
INTERLACED = adam7(np.arange(1, 49, dtype=np.uint8).reshape(6, 8))


@pytest.mark.parametrize("split", [1 << 30, 3])
@pytest.mark.parametrize(("data", "interlace"), [(ROWS, 0), (INTERLACED, 1)])
def test_a_png_whose_stream_ends_early_is_refused(data: bytes, interlace: int, split: int) -> None:
    """The file is whole and its checksums are right; only the compressed data are too few."""
    assert Decoding(None)(png(6, data, interlace=interlace, split=split), "x").shape == (3, 6, 8)
    for missing in range(1, len(data)):
        short = png(6, data[:-missing], interlace=interlace, split=split)
        with pytest.raises(UsageError, match=r"^short\.png: the image cannot be read .*; replace or remove"):
            Decoding(None)(short, "short.png")


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P", "1"])
@pytest.mark.parametrize("value", [0, 255])
def test_an_image_of_one_colour_is_whole(mode: str, value: int) -> None:
    image = Image.fromarray(np.full((7, 9), value, np.uint8)).convert(mode)
    assert Decoding(None)(encoded(image, "PNG"), "x").shape == (3, 7, 9)


def test_a_format_that_starts_another_program_is_not_opened() -> None:
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(UsageError, match="cannot identify image file"):
        Decoding(None)(script, "x.png")


def in_folder(root: Path, content: bytes) -> dict[str, Any]:
    for row in range(4):
        place = root / f"photos/{'ab'[row % 2]}/{row}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if row == 3 else png(6, ROWS))
    return {"name": "image-folder", "path": str(root / "photos")}


def in_shard(root: Path, content: bytes) -> dict[str, Any]:
    members = []
    for row in range(4):
        members.append((f"{row}.png", content if row == 3 else png(6, ROWS)))
        members.append((f"{row}.cls", str(row % 2).encode()))
    return {"name": "tar-shards", "path": str(write_tar(root / "a.tar", members))}


@pytest.mark.parametrize("content", [png(6, ROWS[:-9]), png(6, ROWS)[:-30]], ids=["short", "cut"])
@pytest.mark.parametrize("store", [in_folder, in_shard])
@pytest.mark.parametrize("memory", ["all", "lazy"])
def test_both_ways_of_reading_refuse_it_by_name(
    memory: str,
    store: Callable[[Path, bytes], dict[str, Any]],
    content: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    spec = {**store(tmp_path, content), "memory": memory}
    with pytest.raises(UsageError, match=r"3\.png: the image cannot be read"):
        read_all(spec)


def read_all(spec: dict[str, Any]) -> None:
    for split in load(spec, test_share=0.5, normalise=False).splits.values():
        split.inputs.index_select(0, torch.arange(len(split)))
