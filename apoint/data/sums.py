"""Hashes of the files extracted from a fetched archive, stored next to them and checked when they are read.

An archive is checked against its published hash and then removed; its members have no published hash.
`SHA256SUMS` is written in the format that `sha256sum --check` reads. Files without it, such as the user's
own, are read without a check.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from apoint.data.locate import open_file
from apoint.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

SUMS = "SHA256SUMS"
_MOST_BYTES = 1 << 20


def write_sums(folder: Path, digests: Mapping[str, str]) -> None:
    """Record the SHA-256 of the files in a folder, by name."""
    part = folder / f"{SUMS}.part"
    part.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())))
    os.replace(part, folder / SUMS)


def read_sums(folder: Path) -> dict[str, str] | None:
    """The recorded hashes by name; None if none were recorded."""
    if not (folder / SUMS).exists():
        return None
    with open_file(folder / SUMS) as stream:
        lines = stream.read(_MOST_BYTES).decode("utf-8", "replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def is_as_fetched(path: Path) -> bool:
    """Whether a file is the one that was fetched, as far as hashes were recorded."""
    noted = read_sums(path.parent)
    return noted is None or noted.get(path.name) == digest_of_file(path)


def refuse_changed(path: Path, content: Buffer) -> None:
    """Raise a `UsageError` if the content of a file is not what was fetched."""
    noted = read_sums(path.parent)
    if noted is not None and noted.get(path.name) != hashlib.sha256(content).hexdigest():
        raise UsageError(
            f"{path}: the file is not the one that was fetched, by its SHA-256 in {SUMS}; fetch it again, or "
            f"remove {SUMS} if you changed the file yourself"
        )
