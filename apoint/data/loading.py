"""From a name, a file or tensors to `Data`: build, refuse, split, normalise, examine.

data = load("digits", validation=0.1)
data = load({"name": "csv", "path": "wine.csv", "target": "quality"})
data = load("wine.csv")                       # the file's extension says what it is
data = from_tensors(inputs, targets)
data = from_dataset(train_loader, test_loader)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from apoint.data import checks, splits
from apoint.data.core import Data, Source, Split, fingerprint
from apoint.data.locate import resolve
from apoint.errors import UnknownNameError, UsageError
from apoint.registry import registry, split_spec

BY_EXTENSION = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".npz": "npz",
    ".txt": "text",
    ".md": "text",
}


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
        root: Where to look for files first; then come `$APOINT_DATA` and the usual places.
        seed: Decides which samples are held out and which a limit takes.
        validation: The share of the training samples to hold out for validation; 0 for none.
        test_share: The share of all samples to hold out for testing, where the dataset has no test samples.
        limit: Learn from only so many training samples, each class in proportion.
        normalise: Whether `Data.normalise` subtracts the mean and divides by the standard deviation.
        settings: Further settings of the dataset, such as `context=64`.
    """
    base = Path(root).expanduser() if root is not None else None
    name, given = split_spec(_named(spec, base), "dataset")
    supplied = {"root": base} if "root" in registry("dataset")[name].supplied else {}
    source: Source = registry("dataset").build({"name": name, **given, **settings}, **supplied)
    checks.refuse_infinite(source, f"dataset {name!r}")
    return assemble(
        source,
        where=f"dataset {name!r}",
        seed=seed,
        validation=validation,
        test_share=test_share,
        limit=limit,
        normalise=normalise,
    )


def _named(spec: str | Mapping[str, Any], root: Path | None) -> str | Mapping[str, Any]:
    """A path turned into the spec of the dataset that reads it; anything else as it is."""
    if not isinstance(spec, str) or spec in registry("dataset"):
        return spec
    extension = Path(spec).suffix.lower()
    if not extension and "/" not in spec and not Path(spec).is_dir():
        raise UnknownNameError("dataset", spec, registry("dataset"))
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
    """A source as `Data`: refused or split, its missing values filled, its numbers computed."""
    checks.refuse(source, where)
    try:
        parts = splits.divide(source, seed=seed, validation=validation, test_share=test_share, limit=limit)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    notes = list(source.notes)
    if source.fill_missing:
        parts, filled = _filled(parts)
        notes += filled
    mean, std = moments(parts["train"].inputs) if source.facts.kind != "tokens" else _identity(1)
    if not normalise:
        mean, std = _identity(len(mean))
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
    data.notes += checks.examine(data)
    return data


def _identity(size: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(size), torch.ones(size)


def moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over the samples, per channel or per feature (dimension 1), as float32.

    Bytes are counted as numbers in [0, 1], with whole-number sums, so that the result is the same on any
    number of threads. A feature that does not change gets the deviation 1: it is centred and not blown up.
    """
    mean, variance = _byte_moments(inputs) if inputs.dtype == torch.uint8 else _float_moments(inputs)
    std = variance.clamp_min(0).sqrt()
    is_constant = std <= 1e-6 * mean.abs()  # what float32 cannot tell from rounding
    return mean.float(), torch.where(is_constant, 1.0, std).float()


def _byte_moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """From how often each byte occurs: exact, and faster than arithmetic on every pixel."""
    value = torch.arange(256, dtype=torch.float64) / 255
    channels = range(inputs.shape[1])
    counts = [torch.bincount(inputs[:, channel].flatten(), minlength=256) for channel in channels]
    share_CV = torch.stack(counts).double() * (inputs.shape[1] / inputs.numel())
    mean = (share_CV * value).sum(1)
    variance = (share_CV * (value - mean[:, None]).square()).sum(1)
    return mean, variance


def _float_moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """In two passes over pieces of about a million numbers; NaN and infinity are left out."""
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
    """NaN replaced by the mean of its feature in the training part, and a note that says how many."""
    mean_F = parts["train"].inputs.nanmean(0).nan_to_num(0.0)  # a feature with no value at all becomes 0
    filled, notes = {}, []
    for name, split in parts.items():
        is_missing = split.inputs.isnan()
        filled[name] = Split(torch.where(is_missing, mean_F, split.inputs), split.targets)
        if count := int(is_missing.sum()):
            notes.append(f"{name}: {count} missing values filled with the training mean of their column")
    return filled, notes
