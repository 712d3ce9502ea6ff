"""From a name, a file or tensors to `Data`: build, validate, split, normalise, examine.

data = load("digits", validation=0.1)
data = load({"name": "csv", "path": "wine.csv", "target": "quality"})
data = load("wine.csv")                       # the file's extension says what it is
data = from_tensors(inputs, targets)
data = from_dataset(train_loader, test_loader)

with use_dataset_cache(DatasetCache()):       # for many replicas: each dataset is read and split once
    data = load("fashion-mnist")
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from apoint.data import checks, splits
from apoint.data.core import Data, Source, Split, fingerprint
from apoint.data.locate import exists, resolve, resolve_all, user_path
from apoint.data.stored import StoredImages, as_stored, tensors_behind
from apoint.data.streams import generator
from apoint.errors import UnknownNameError, UsageError, one_line
from apoint.opening import shown
from apoint.registry import registry, split_spec

Held = TypeVar("Held", Source, Data)
MOST_KEPT = 4
BY_EXTENSION = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".npz": "npz",
    ".txt": "text",
    ".md": "text",
    ".tar": "tar-shards",
}
MOST_SAMPLED = 10_000
"""For more stored images, mean and standard deviation are taken over this many, drawn with a fixed seed."""


def load(
    spec: str | Mapping[str, Any],
    *,
    root: str | Path | None = None,
    seed: int = 0,
    validation: float = 0.0,
    test_share: float = 0.2,
    limit: int | None = None,
    normalise: bool = True,
    **settings: Any,
) -> Data:
    """Load a dataset by name, by name and settings, or by the path of a file or folder.

    Args:
        spec: `digits`, `{name: csv, path: wine.csv}`, or `wine.csv`.
        root: Where to look for files first; then `$APOINT_DATA` and the usual places are searched.
        seed: Determines which samples are held out and which `limit` keeps.
        validation: The share of the training samples to hold out for validation; 0 for none.
        test_share: The share of all samples to hold out for testing, if the dataset has no test samples.
        limit: The number of training samples to use, each class in proportion.
        normalise: Whether `Data.normalise` subtracts the mean and divides by the standard deviation.
        settings: Further settings of the dataset, such as `context=64`.
    """
    handling = Handling(validation, test_share, limit, normalise)
    origin = Origin.of(spec, root, settings)
    kept = _CACHE.get()
    if kept is not None:
        return kept.data(origin, seed, handling)
    return assemble(origin.read(), where=origin.where, seed=seed, **vars(handling))


def _named(spec: str | Mapping[str, Any], root: Path | None) -> str | Mapping[str, Any]:
    """Turn a path into the spec of the dataset that reads it; return anything else unchanged."""
    if not isinstance(spec, str) or spec in registry("dataset"):
        return spec
    extension = Path(spec).suffix.lower()
    if not extension and "/" not in spec and not exists(Path(spec)):
        raise UnknownNameError("dataset", spec, registry("dataset"))
    if extension == ".tar":
        return {"name": BY_EXTENSION[extension], "path": spec}  # it may name many files
    path = resolve(spec, root)
    if path.is_dir():
        return {"name": "image-folder", "path": str(path)}
    if extension not in BY_EXTENSION:
        raise UsageError(
            f"{path}: cannot tell from the extension {extension!r} what kind of data this is; it must be one "
            f"of {', '.join(BY_EXTENSION)}, or a folder of images, or name the dataset: "
            f"{{name: csv, path: {spec}}}"
        )
    return {"name": BY_EXTENSION[extension], "path": str(path)}


@dataclass(frozen=True)
class Handling:
    """What is done with a source once it is read; see `load`."""

    validation: float = 0.0
    test_share: float = 0.2
    limit: int | None = None
    normalise: bool = True


@dataclass(frozen=True)
class Origin:
    """Where a source comes from: the name and settings of a dataset, and the folder searched first."""

    name: str
    settings: Mapping[str, Any]
    root: Path | None

    @classmethod
    def of(
        cls, spec: str | Mapping[str, Any], root: str | Path | None, settings: Mapping[str, Any]
    ) -> Origin:
        """The origin that a spec names, with further settings."""
        base = user_path(str(root)) if root is not None else None
        name, given = split_spec(_named(spec, base), "dataset")
        return cls(name, {**given, **settings}, base)

    @property
    def where(self) -> str:
        """The beginning of messages about it."""
        return f"dataset {self.name!r}"

    @property
    def _searches(self) -> bool:
        return "root" in registry("dataset")[self.name].supplied

    def read(self) -> Source:
        """Read or compute the source."""
        supplied = {"root": self.root} if self._searches else {}
        source: Source = registry("dataset").build({"name": self.name, **self.settings}, **supplied)
        checks.refuse_infinite(source, self.where)
        return source

    def identity(self) -> str | None:
        """A key that is equal for two reads of the same source; None if that cannot be determined.

        It includes the stamps of the files that the source names, so that a file that has changed is read
        again. A user-defined dataset may depend on anything.
        """
        if not getattr(registry("dataset")[self.name].build, "__module__", "").startswith("apoint."):
            return None
        parts: list[Any] = [self.name, self.settings]
        if self._searches:
            parts += [self.root, os.getcwd(), os.environ.get("APOINT_DATA")]
        paths = [self.settings.get(setting) for setting in ("path", "test_path")]
        parts += [_stamp(file) for path in paths if path for file in self._files(path)]
        return json.dumps(parts, sort_keys=True, default=str)

    def _files(self, path: str) -> list[Path]:
        has_patterns = registry("dataset")[self.name].traits.get("patterns", False)
        return resolve_all(path, self.root) if has_patterns else [resolve(path, self.root)]


def _stamp(path: Path) -> str:
    """A hash that changes when a file does, or any file below a folder."""
    digest = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape"))
    try:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            found = file.stat() if file.exists() else file.lstat()  # a link may dangle
            stamp = f"{file}\0{found.st_mtime_ns} {found.st_size} {found.st_ino};"
            digest.update(stamp.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise UsageError(f"{shown(path)}: cannot be listed ({error.strerror}); name another path") from error
    return digest.hexdigest()


@dataclass
class DatasetCache:
    """Datasets held for many replicas, so that each is read, checked and split once.

    The data it returns is shared: its tensors must not be changed in place; `changed` reports if they were.

    Attributes:
        sources: The most recently used sources, by identity.
        divided: The most recently used data, by identity, seed and handling.
    """

    sources: OrderedDict[str, Source] = field(default_factory=OrderedDict)
    divided: OrderedDict[str, Data] = field(default_factory=OrderedDict)
    _versions: dict[str, list[int]] = field(default_factory=dict)

    def data(self, origin: Origin, seed: int, handling: Handling) -> Data:
        """The data of an origin, split by a seed, as `load` returns it."""
        found = self._place(origin, seed, handling)
        if found is None:
            return assemble(origin.read(), where=origin.where, seed=seed, **vars(handling))
        place, seed, source = found
        if place not in self.divided:
            made = assemble(source, where=origin.where, seed=seed, **vars(handling))
            self.keep(self.divided, place, made)
        self.divided.move_to_end(place)
        return replace(self.divided[place], notes=list(self.divided[place].notes))

    def _place(self, origin: Origin, seed: int, handling: Handling) -> tuple[str, int, Source] | None:
        """The key under which data is held, the seed that determines it, and its source; None if not held."""
        identity = origin.identity()
        if identity is None:
            return None
        if identity not in self.sources:
            self.keep(self.sources, identity, origin.read())
        self.sources.move_to_end(identity)
        source = self.sources[identity]
        seed = seed if seed_matters(source, handling) else 0
        return json.dumps([identity, seed, vars(handling)], default=str), seed, source

    def keep(self, shelf: OrderedDict[str, Held], place: str, value: Held) -> None:
        """Hold a source or data; if there are too many, drop the least recently used."""
        shelf[place] = value
        self._versions[place] = [tensor._version for tensor in tensors_of(value)]
        if len(shelf) > MOST_KEPT:
            self._versions.pop(shelf.popitem(last=False)[0])

    @property
    def _values(self) -> dict[str, Source | Data]:
        return {**self.sources, **self.divided}

    @property
    def changed(self) -> bool:
        """Whether a tensor held here was changed in place."""
        return any(
            [tensor._version for tensor in tensors_of(value)] != self._versions[place]
            for place, value in self._values.items()
        )


_CACHE: ContextVar[DatasetCache | None] = ContextVar("dataset_cache", default=None)


@contextmanager
def use_dataset_cache(kept: DatasetCache) -> Iterator[DatasetCache]:
    """Let `load`, in this thread, reuse what `kept` holds and store in it what it reads."""
    token = _CACHE.set(kept)
    try:
        yield kept
    finally:
        _CACHE.reset(token)


def tensors_of(value: Source | Data) -> list[Tensor]:
    """The inputs and targets of all splits; for inputs stored elsewhere, the tensors behind them."""
    splits = (value.train, value.validation, value.test)
    return [
        tensor
        for split in splits
        if split is not None
        for tensor in (*tensors_behind(split.inputs), split.targets)
    ]


def seed_matters(source: Source, handling: Handling) -> bool:
    """Whether the seed determines which samples go where; a text is split by position."""
    draws = source.test is None or bool(handling.validation) or handling.limit is not None
    return draws and source.facts.task != "language"


def assemble(
    source: Source,
    *,
    where: str,
    seed: int = 0,
    validation: float = 0.0,
    test_share: float = 0.2,
    limit: int | None = None,
    normalise: bool = True,
) -> Data:
    """A source as `Data`: validated and split, its missing values filled, its statistics computed."""
    checks.refuse(source, where)
    try:
        parts = splits.divide(source, seed=seed, validation=validation, test_share=test_share, limit=limit)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    notes = list(source.notes)
    if source.fill_missing:
        parts, filled = _filled(parts)
        notes += filled
    inputs = parts["train"].inputs
    if source.facts.kind == "tokens" or not normalise:
        mean, std = _identity(1 if source.facts.kind == "tokens" else inputs.shape[1])
    else:
        mean, std = moments(inputs)
    data = Data(
        facts=source.facts,
        train=parts["train"],
        test=parts["test"],
        validation=parts.get("validation"),
        mean=mean,
        std=std,
        fingerprint=fingerprint(parts),
        notes=notes,
    )
    data.notes = [one_line(note) for note in data.notes + checks.examine(data)]  # names come from files
    if normalise and as_stored(inputs) is not None and len(inputs) > MOST_SAMPLED:
        data.notes.append(
            f"train: mean and standard deviation are those of {MOST_SAMPLED} of the {len(inputs)} images, "
            "drawn at random by a fixed seed"
        )
    return data


def _identity(size: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(size), torch.ones(size)


def moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over the samples, per channel or per feature (dimension 1), as float32.

    Bytes count as numbers in [0, 1], with whole-number sums, so that the result is the same for any number of
    threads. A constant feature gets the standard deviation 1: it is centred but not blown up. At most
    `MOST_SAMPLED` stored images are read.
    """
    mean, variance = _byte_moments(inputs) if inputs.dtype == torch.uint8 else _float_moments(inputs)
    std = variance.clamp_min(0).sqrt()
    is_constant = std <= 1e-6 * mean.abs()  # float32 cannot distinguish it from rounding
    return mean.float(), torch.where(is_constant, 1.0, std).float()


def _byte_moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Moments from the count of each byte: exact, and faster than arithmetic on every pixel."""
    value = torch.arange(256, dtype=torch.float64) / 255
    stored = as_stored(inputs)
    pieces = sampled(stored).pieces() if stored is not None else [inputs]
    counts_CV = torch.zeros(inputs.shape[1], 256, dtype=torch.int64)
    for piece in pieces:
        for channel, counts_V in enumerate(counts_CV):
            counts_V += torch.bincount(piece[:, channel].flatten(), minlength=256)
    share_CV = counts_CV.double() * (inputs.shape[1] / int(counts_CV.sum()))
    mean = (share_CV * value).sum(1)
    variance = (share_CV * (value - mean[:, None]).square()).sum(1)
    return mean, variance


def sampled(images: StoredImages) -> StoredImages:
    """The images for mean and standard deviation: all, or `MOST_SAMPLED` drawn at random."""
    if len(images) <= MOST_SAMPLED:
        return images
    drawn = torch.randperm(len(images), generator=generator(0, "moments", len(images)))
    chosen: StoredImages = images[drawn[:MOST_SAMPLED].sort().values]
    return chosen


def _float_moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Moments in two passes over pieces of about a million numbers; NaN and infinity are left out."""
    rows_NCM = inputs.detach().cpu().reshape(len(inputs), inputs.shape[1], -1).numpy()
    step = max(1, 2**20 // rows_NCM[0].size)
    starts = range(0, len(rows_NCM), step)
    count, total, squares = (np.zeros(inputs.shape[1]) for _ in range(3))
    for start in starts:
        piece = rows_NCM[start : start + step].astype(np.float64)
        is_finite = np.isfinite(piece)
        count += is_finite.sum((0, 2))
        total += np.where(is_finite, piece, 0).sum((0, 2))
    count = np.maximum(count, 1)
    mean = total / count
    for start in starts:
        deviation = rows_NCM[start : start + step] - mean[:, None]
        squares += np.square(np.where(np.isfinite(deviation), deviation, 0)).sum((0, 2))
    return torch.from_numpy(mean), torch.from_numpy(squares / count)


def _filled(parts: dict[str, Split]) -> tuple[dict[str, Split], list[str]]:
    """Replace NaN by the mean of its feature in the training part, with a note on how many there were."""
    mean_F = parts["train"].inputs.nanmean(0).nan_to_num(0.0)  # a feature with no value at all becomes 0
    filled, notes = {}, []
    for name, split in parts.items():
        is_missing = split.inputs.isnan()
        filled[name] = replace(split, inputs=torch.where(is_missing, mean_F, split.inputs))
        if count := int(is_missing.sum()):
            notes.append(f"{name}: {count} missing values filled with the training mean of their column")
    return filled, notes
