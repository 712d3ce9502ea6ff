"""What is in a tar shard: its samples, from headers and labels alone, noted in the user's cache folder.

A sample is what shares a name up to its first dot: `n01440764/10026.jpg` with `n01440764/10026.cls`. The
cache is asked by a shard's path, and believed if the shard has the size and the time of change noted there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from apoint.data.core import MOST_CLASSES
from apoint.data.locate import cache
from apoint.data.pixels import EXTENSIONS, MOST_BYTES
from apoint.data.tars import Member, TarReader
from apoint.errors import UsageError
from apoint.opening import shown

LABELS = ("cls", "json", "txt")
"""Extensions of a sample's class, the first that is there counts."""
JSON_KEYS = ("label", "cls", "class", "target")
_MOST_LABEL_BYTES = {"cls": 1 << 12, "txt": 1 << 12, "json": 1 << 20}
_VERSION = 1

Label = int | str


@dataclass
class Shard:
    """What is in one tar file: for each sample the name, place and class of its image.

    Attributes:
        size: The file's size in bytes.
        mtime_ns: When it was changed last.
        names: The images' names in the tar.
        offsets: Where they begin.
        sizes: How many bytes they have.
        labels: Their classes, numbers or names.
        others: How many members belong to no sample.
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
    """The class that a member names; a number where it is written as one."""
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


def _cached_at(path: Path) -> Path:
    name = hashlib.sha256(str(path.absolute()).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return cache() / "shards" / f"{name}.json"


def index_shard(path: Path) -> Shard:
    """The samples of a tar file: those noted earlier if the file is the same by size and time, else read."""
    place = _cached_at(path)
    found = path.stat()
    noted = _noted(place)
    if noted is not None and (noted.size, noted.mtime_ns) == (found.st_size, found.st_mtime_ns):
        return noted
    shard = read_shard(path)
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        _note(place, shard)
    return shard


def _noted(place: Path) -> Shard | None:
    """What the cache says, if it can be understood."""
    try:
        content = json.loads(place.read_text("ascii"))
        shard = Shard(**content["shard"]) if content["version"] == _VERSION else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return shard if shard is not None and _is_sound(shard) else None


def _is_sound(shard: Shard) -> bool:
    """Whether every entry is what it should be and lies within the file."""
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


def _note(place: Path, shard: Shard) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            json.dump({"version": _VERSION, "shard": asdict(shard)}, file)
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise
