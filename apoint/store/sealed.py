"""JSON files that carry their own hash, so that a change of a single byte is detected.

There is only one way to write such a file, so verification reads it, writes it again and compares the bytes.
This detects damage and edits. It does not stop anyone who edits a file and seals it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apoint.errors import DamagedError
from apoint.opening import shown
from apoint.store.files import write_atomically
from apoint.store.lines import strict_json
from apoint.store.reader import parse_json, read_bytes

HASH = "sha256"


def sealed_json(values: Mapping[str, Any]) -> str:
    """`values` as indented JSON with the hash of all of them as the last entry."""
    digest = hashlib.sha256(strict_json(dict(values)).encode()).hexdigest()
    return strict_json({**values, HASH: digest}, indented=True) + "\n"


def write_sealed(path: Path, values: Mapping[str, Any]) -> None:
    """Replace the file at `path` with sealed JSON."""
    write_atomically(path, sealed_json(values))


def read_sealed(path: Path) -> dict[str, Any]:
    """The values of a sealed file, without the hash.

    Raises:
        DamagedError: The file has changed since it was written.
        StorageError: There is no such file, or it cannot be read.
    """
    content = read_bytes(path)
    values = parse_json(content, path)
    if HASH not in values:
        raise DamagedError(f"{shown(path)} is not sealed: it was edited, or written by another apoint")
    values.pop(HASH)
    if sealed_json(values).encode() != content:
        raise DamagedError(f"{shown(path)} has changed since apoint wrote it")
    return values
