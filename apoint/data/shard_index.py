"""The index of a tar shard: its samples, from headers and labels alone, stored in the user's cache folder.

Members of one sample share a name up to its first dot: `n01440764/10026.jpg` with `n01440764/10026.cls`.

A cache file is a SHA-256 in hexadecimal, a line end, and JSON with the index and what it was made from: the
shard's path, size, times and inode. It is used only if the hash matches the JSON and the shard is unchanged.
A damaged cache file is reported and rebuilt; a shard that has changed is read again silently.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from apoint.data.core import MOST_CLASSES
from apoint.data.locate import cache, open_file
from apoint.data.pixels import EXTENSIONS, MOST_BYTES
from apoint.data.tars import Member, TarReader
from apoint.errors import StorageError, UsageError
from apoint.opening import open_regular, shown

LABELS = ("cls", "json", "txt")
"""Extensions of a sample's class; the first one present counts."""
JSON_KEYS = ("label", "cls", "class", "target")
_MOST_LABEL_BYTES = {"cls": 1 << 12, "txt": 1 << 12, "json": 1 << 20}
_MOST_CACHE_BYTES = 1 << 28
_OLDER = b'{"version": 1'  # how a cache file began before it had a hash
_log = logging.getLogger("apoint.data")

Label = int | str


@dataclass
class Shard:
    """The contents of one tar file: for each sample the name, position and class of its image.

    Attributes:
        size: The file's size in bytes.
        mtime_ns: When the file was last changed.
        names: The images' names in the tar.
        offsets: Where the images begin.
        sizes: The images' sizes in bytes.
        labels: The images' classes, numbers or names.
        others: The number of members that belong to no sample.
    """

    size: int
    mtime_ns: int
    names: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    others: int = 0

    def __len__(self) -> int:
        return len(self.names)


# -- reading a shard's headers -------------------------------------------------------------------------


def read_shard(path: Path) -> Shard:
    """The samples of a tar file, from its headers and labels."""
    with TarReader(path) as tar:
        samples: dict[str, dict[str, Member]] = {}
        shard = Shard(tar.size, tar.mtime_ns)
        for member in tar.members():
            folder, _, base = member.name.rpartition("/")
            key, _, extension = base.partition(".")
            extension = extension.lower()
            if not key or not _is_wanted(extension):
                shard.others += member.is_plain
                continue
            _refuse_member(path, member, extension, samples.setdefault(f"{folder}/{key}", {}))
            samples[f"{folder}/{key}"][_role(extension)] = member
        for sample in samples.values():
            _add(shard, tar, sample)
    return shard


def _is_wanted(extension: str) -> bool:
    return extension in LABELS or f".{extension}" in EXTENSIONS


def _role(extension: str) -> str:
    return extension if extension in LABELS else "image"


def _refuse_member(path: Path, member: Member, extension: str, sample: dict[str, Member]) -> None:
    if member.size > MOST_BYTES:
        raise UsageError(
            f"{path}: member {shown(member.name)} has {member.size} bytes, and an image has at most "
            f"{MOST_BYTES}; remove the member"
        )
    if not member.is_plain:
        raise UsageError(
            f"{path}: member {shown(member.name)} is a link, a device or has holes, not a plain file; write "
            "the shard with plain files"
        )
    earlier = sample.get(_role(extension))
    if earlier is not None:
        raise UsageError(
            f"{path}: members {shown(earlier.name)} and {shown(member.name)} are both the {_role(extension)} "
            "of one sample; a sample's name ends at its first dot, so give each its own"
        )


def _add(shard: Shard, tar: TarReader, sample: dict[str, Member]) -> None:
    image = sample.get("image")
    extension = next((extension for extension in LABELS if extension in sample), None)
    if image is None:
        if "cls" in sample:
            raise UsageError(
                f"{tar.path}: member {shown(sample['cls'].name)} has no image beside it ("
                f"{', '.join(EXTENSIONS)}); add the image or remove the member"
            )
        shard.others += len(sample)
        return
    if extension is None:
        raise UsageError(
            f"{tar.path}: member {shown(image.name)} has no class beside it; add "
            f"{shown(Path(image.name).name.partition('.')[0])}.cls with the number or the name of its class"
        )
    shard.names.append(image.name)
    shard.offsets.append(image.offset)
    shard.sizes.append(image.size)
    shard.labels.append(_label(tar, sample[extension], extension))


def _label(tar: TarReader, member: Member, extension: str) -> Label:
    """The class that a member names; a number if it is written as one."""
    if member.size > _MOST_LABEL_BYTES[extension]:
        raise _no_class(tar, member, f"it has {member.size} bytes")
    try:
        text = tar.read(member.offset, member.size).decode().strip()
        value = _from_json(json.loads(text)) if extension == "json" else text
    except (ValueError, RecursionError):
        raise _no_class(tar, member, "it is no text" if extension != "json" else "it is no JSON") from None
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        value = int(value)
    if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable():
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_CLASSES:
        return value
    raise _no_class(tar, member, f"it says {shown(repr(value))}")


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return next((value[key] for key in JSON_KEYS if key in value), None)


def _no_class(tar: TarReader, member: Member, what: str) -> UsageError:
    return UsageError(
        f"{tar.path}: member {shown(member.name)} does not tell a class: {what}; write a name, or a number "
        f"from 0 to {MOST_CLASSES - 1}, in JSON under {' or '.join(map(repr, JSON_KEYS))}"
    )


# -- the cache of what was read ------------------------------------------------------------------------


class _DamagedError(Exception):
    """The cache file is not what was written."""


def _cached_at(path: Path) -> Path:
    name = hashlib.sha256(str(path.absolute()).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return cache() / "shards" / f"{name}.json"


def index_shard(path: Path) -> Shard:
    """The samples of a tar file: from the cache if nothing has changed since, else read."""
    place, made_from = _cached_at(path), _identity(path)
    try:
        noted = _noted(place, made_from)
    except _DamagedError:
        _log.warning("the index of %s kept in %s is damaged and is rebuilt", shown(path), shown(place))
        noted = None
    if noted is not None:
        return noted
    shard = read_shard(path)
    if (shard.size, shard.mtime_ns) == (made_from["size"], made_from["mtime_ns"]):
        with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
            _note(place, shard, made_from)
    return shard


def _identity(path: Path) -> dict[str, Any]:
    """What a shard's index is made from; a shard with the same identity has not been written to."""
    with open_file(path) as stream:
        found = os.fstat(stream.fileno())
    return {
        "path": str(path.absolute()),
        "size": found.st_size,
        "mtime_ns": found.st_mtime_ns,
        "ctime_ns": found.st_ctime_ns,  # unlike the modification time, it cannot be set
        "inode": found.st_ino,
    }


def _noted(place: Path, made_from: dict[str, Any]) -> Shard | None:
    """The cached index of this shard; None if there is none."""
    try:
        with open_regular(place) as stream:
            digest, _, body = stream.read(_MOST_CACHE_BYTES + 1).partition(b"\n")
        if digest.startswith(_OLDER):
            return None
        if digest != _digest(body):
            raise _DamagedError
        content = json.loads(body)
        if content["made_from"]["path"] != made_from["path"]:
            raise _DamagedError
        shard = Shard(**content["shard"])
        if not _is_sound(shard):
            raise _DamagedError
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        raise _DamagedError from None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise _DamagedError from None
    return shard if content["made_from"] == made_from else None


def _is_sound(shard: Shard) -> bool:
    """Whether every entry is valid and within the file."""
    lists = (shard.names, shard.offsets, shard.sizes, shard.labels)
    if not all(isinstance(one, list) and len(one) == len(shard.names) for one in lists):
        return False
    return all(
        isinstance(name, str)
        and isinstance(label, int | str)
        and isinstance(offset, int)
        and isinstance(size, int)
        and 0 <= offset <= offset + size <= shard.size
        for name, offset, size, label in zip(*lists, strict=True)
    )


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _note(place: Path, shard: Shard, made_from: dict[str, Any]) -> None:
    body = json.dumps({"made_from": made_from, "shard": asdict(shard)}).encode("ascii")
    if len(body) >= _MOST_CACHE_BYTES:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_digest(body) + b"\n" + body)
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise
