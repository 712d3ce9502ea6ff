"""Checks of data: what is rejected, and what is only reported.

`refuse` raises, with one sentence, for problems that no training can fix: nothing to learn from, only one
class, test classes that never occur in training, tensors that contradict their facts. `examine` describes in
plain words, with numbers, what a careful user would want to know before training.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from apoint.data.core import Data, Facts, Source, Split
from apoint.data.stored import as_stored
from apoint.errors import UsageError

IMBALANCE_WORTH_TELLING = 3.0
FEW_SAMPLES_PER_CLASS = 10
_SHOWN = 5


def refuse(source: Source, where: str) -> None:
    """Raise a `UsageError` if this source cannot be trained on; the message begins with `where`."""
    facts = source.facts
    parts = {"train": source.train, "validation": source.validation, "test": source.test}
    for name, split in parts.items():
        if split is not None:
            _refuse_split(facts, split, f"{where}: {name}")
    if facts.task != "classification":
        return
    present = torch.unique(source.train.targets)
    if len(present) < 2:
        only = _class_name(facts, int(present[0]))
        raise UsageError(
            f"{where}: all {len(source.train)} training samples are of one class, {only!r}; there is nothing "
            "to tell apart, so bring samples of a second class"
        )
    for name in ("validation", "test"):
        _refuse_unseen(facts, present, parts[name], f"{where}: {name}")


def refuse_infinite(source: Source, where: str) -> None:
    """Raise a `UsageError` if a number that was read is infinite, as any number beyond float32 becomes."""
    for name, split in (("train", source.train), ("validation", source.validation), ("test", source.test)):
        if split is None:
            continue
        for what, values in (("an input", split.inputs), ("a target", split.targets)):
            if values.is_floating_point() and bool(values.isinf().any()):
                row = int(values.isinf().flatten(1).any(1).nonzero()[0])
                raise UsageError(
                    f"{where}: {name}: row {row} holds {what} that is infinite, or too large for float32 "
                    "(3.4e38); correct or rescale it"
                )


def _refuse_split(facts: Facts, split: Split, where: str) -> None:
    if not len(split):
        raise UsageError(f"{where}: there are no samples; at least one is needed")
    if tuple(split.inputs.shape[1:]) != facts.input_shape:
        raise UsageError(
            f"{where}: inputs have the shape {tuple(split.inputs.shape[1:])}, but the dataset says "
            f"{facts.input_shape}; make the two agree"
        )
    if not split.inputs[0].numel():
        raise UsageError(
            f"{where}: inputs have no features, shape {tuple(split.inputs.shape)}; bring at least one"
        )
    wanted = torch.float32 if facts.task == "regression" else torch.int64
    if split.targets.dtype != wanted:
        raise UsageError(
            f"{where}: targets of {facts.task} must be {wanted}, got {split.targets.dtype}; convert them"
        )
    if facts.task == "regression":
        if split.targets.shape[1:] != (facts.num_outputs,):
            raise UsageError(
                f"{where}: targets have the shape {tuple(split.targets.shape)}, expected "
                f"{(len(split), facts.num_outputs)}; make them one row per sample"
            )
        return
    lowest, highest = int(split.targets.min()), int(split.targets.max())
    if lowest < 0 or highest >= facts.num_outputs:
        wrong = lowest if lowest < 0 else highest
        raise UsageError(
            f"{where}: labels must be whole numbers from 0 to {facts.num_outputs - 1}, found {wrong}; "
            "renumber the labels or correct the number of classes"
        )


def _refuse_unseen(facts: Facts, present: Tensor, held_out: Split | None, where: str) -> None:
    if held_out is None:
        return
    unseen = sorted(set(torch.unique(held_out.targets).tolist()) - set(present.tolist()))
    if unseen:
        names = _listed([repr(_class_name(facts, label)) for label in unseen])
        raise UsageError(
            f"{where}: {names} never occurs in the training samples, so it cannot be learned; add training "
            "samples or take it out"
        )


def examine(data: Data) -> list[str]:
    """What is worth knowing about this data before training, one plain sentence each, with numbers."""
    notes: list[str] = []
    for name, split in data.splits.items():
        notes += _not_finite(name, split)
    if data.facts.task == "classification":
        notes += _balance(data.facts, data.train)
    if as_stored(data.train.inputs) is not None:
        notes.append(
            "train: images that also occur in other parts were not looked for, as all would be decoded"
        )
    elif data.facts.kind != "tokens":
        notes += _constant(data.facts.kind, data.train)
        notes += _shared_rows(data)
    return notes


def _not_finite(name: str, split: Split) -> list[str]:
    found = []
    for part, tensor in (("inputs", split.inputs), ("targets", split.targets)):
        if tensor.is_floating_point() and not torch.isfinite(tensor.sum()):
            is_bad_N = ~torch.isfinite(tensor).flatten(1).all(1)
            if count := int(is_bad_N.sum()):
                first = int(is_bad_N.nonzero()[0])
                found.append(
                    f"{name}: {count} of {len(split)} {part} hold NaN or infinity, the first at index {first}"
                )
    return found


def _balance(facts: Facts, train: Split) -> list[str]:
    counts = torch.bincount(train.targets, minlength=facts.num_outputs)
    notes = []
    empty = [label for label, count in enumerate(counts.tolist()) if not count]
    if empty:
        names = _listed([repr(_class_name(facts, label)) for label in empty])
        notes.append(f"train: no sample of {len(empty)} of {facts.num_outputs} classes ({names})")
    seen = counts[counts > 0]
    rare, common = int(seen.min()), int(seen.max())
    if common / rare >= IMBALANCE_WORTH_TELLING:
        rare_name = _class_name(facts, int((counts == rare).nonzero()[0]))
        common_name = _class_name(facts, int(counts.argmax()))
        notes.append(
            f"train: classes are uneven by {common / rare:.1f} to 1 ({common_name!r} has {common} samples, "
            f"{rare_name!r} has {rare}); always answering {common_name!r} is right in "
            f"{common / len(train):.1%}"
        )
    few = int((seen < FEW_SAMPLES_PER_CLASS).sum())
    if few:
        notes.append(
            f"train: {few} of {facts.num_outputs} classes have fewer than {FEW_SAMPLES_PER_CLASS} samples, "
            f"the fewest {rare}"
        )
    return notes


def _constant(kind: str, train: Split) -> list[str]:
    """Features of a vector, or channels of a signal or image, that never change."""
    over = tuple(dimension for dimension in range(train.inputs.ndim) if dimension != 1)
    is_constant = train.inputs.amin(over) == train.inputs.amax(over)
    where = is_constant.nonzero().flatten().tolist()
    if not where or len(train) < 2:
        return []
    word = "features" if kind == "vector" else "channels"
    return [
        f"train: {len(where)} of {len(is_constant)} {word} never change (index "
        f"{_listed([str(index) for index in where])}), so they carry nothing to learn"
    ]


def _shared_rows(data: Data) -> list[str]:
    """How many held-out inputs also occur among the training inputs, byte for byte."""
    notes = []
    for name in ("validation", "test"):
        split = data.splits.get(name)
        shared = 0 if split is None else count_shared(data.train.inputs, split.inputs)
        if split is not None and shared:
            notes.append(
                f"{name}: {shared} of {len(split)} inputs ({shared / len(split):.1%}) occur in the training "
                "samples too, so the score is better than it would be on new data"
            )
    return notes


def count_shared(train: Tensor, held_out: Tensor) -> int:
    """How many rows of `held_out` are also in `train`, byte for byte.

    A sum of words times odd numbers, modulo 2⁶⁴, finds the few suspects fast; a real hash confirms them.
    """
    ours, theirs = _row_bytes(train), _row_bytes(held_out)
    if ours.shape[1] != theirs.shape[1]:
        return 0
    quick_ours, quick_theirs = _quick_sums(ours), _quick_sums(theirs)
    suspects = theirs[np.isin(quick_theirs, quick_ours)]
    if not len(suspects):
        return 0
    seen = {_digest(row) for row in ours[np.isin(quick_ours, quick_theirs)]}
    return sum(_digest(row) in seen for row in suspects)


def _row_bytes(inputs: Tensor) -> npt.NDArray[np.uint8]:
    flat = inputs.detach().cpu().contiguous().view(len(inputs), -1)
    rows: npt.NDArray[np.uint8] = flat.view(torch.uint8).numpy()
    return rows


def _quick_sums(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    width = math.gcd(rows.shape[1], 8)
    words = rows.view(f"u{width}")
    factors = np.random.default_rng(0).integers(0, 2**63, words.shape[1], dtype=np.uint64) * 2 + 1
    sums: npt.NDArray[np.uint64] = words.astype(np.uint64, copy=False) @ factors
    return sums


def _digest(row: npt.NDArray[np.uint8]) -> bytes:
    return hashlib.blake2b(row.data, digest_size=16).digest()


def _class_name(facts: Facts, label: int) -> str:
    return facts.class_names[label] if facts.class_names else str(label)


def _listed(words: list[str]) -> str:
    rest = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
