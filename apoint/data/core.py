"""The data structures: facts, splits, and data in the form that training sees.

A dataset's builder returns a `Source`: tensors as read, before any split. From it `apoint.data.load` makes a
`Data`: splits, the statistics that normalise them, a fingerprint and the notes of the checks. Everything is
held in memory as tensors; images stay `uint8` until they are batched. Images that do not fit into memory are
`apoint.data.stored.StoredImages` in place of a tensor.

Dimension letters: N samples, C channels, H height, W width, L length, F features, T tokens.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from apoint.data.stored import as_stored
from apoint.errors import UsageError

Kind = Literal["vector", "signal", "image", "tokens"]
Task = Literal["classification", "regression", "language"]

MOST_CLASSES = 1_000_000
"""More classes or words than this are a mistake in the labels: each would be an output of the model."""
INPUT_DIMENSIONS: dict[str, int] = {"vector": 1, "signal": 2, "image": 3, "tokens": 1}
"""How many dimensions one input of each kind has: (F,), (C, L), (C, H, W), (T,)."""


@dataclass(frozen=True)
class Facts:
    """What a model needs to know about its data.

    Attributes:
        kind: What one input is.
        task: What is asked of the model.
        input_shape: The shape of one input, without the batch: (F,), (C, L), (C, H, W) or (T,).
        num_outputs: The number of classes, of target dimensions, or of words in the vocabulary.
        class_names: The names of the classes, or the vocabulary's characters; empty for regression.
    """

    kind: Kind
    task: Task
    input_shape: tuple[int, ...]
    num_outputs: int
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.input_shape) != INPUT_DIMENSIONS[self.kind]:
            raise UsageError(
                f"Facts: an input of kind {self.kind!r} has {INPUT_DIMENSIONS[self.kind]} dimensions without "
                f"the batch, got input_shape {self.input_shape}"
            )
        if self.num_outputs < 1:
            raise UsageError(f"Facts: num_outputs must be at least 1, got {self.num_outputs}")
        if self.task != "regression" and self.num_outputs > MOST_CLASSES:
            raise UsageError(
                f"Facts: {self.num_outputs} classes are more than {MOST_CLASSES}; number the classes from 0"
            )
        if self.class_names and len(self.class_names) != self.num_outputs:
            raise UsageError(
                f"Facts: {len(self.class_names)} class_names for {self.num_outputs} outputs; give one name "
                "for each"
            )


@dataclass
class Split:
    """Inputs and targets, row by row.

    Attributes:
        inputs: uint8 or float32 [N, C, H, W] for images, float32 [N, C, L] for signals, float32 [N, F] for
            vectors, int64 [N, T] for tokens. Stored images can replace the tensor: indices, slices,
            `index_select`, `to` and torch's functions work on them.
        targets: int64 [N] for classes, float32 [N, D] for regression, int64 [N, T] for language.
        rows: int64 [N], the indices of these samples in the source if a seed drew which are held out; None if
            they are always the same.
    """

    inputs: Tensor
    targets: Tensor
    rows: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise UsageError(
                f"there are {len(self.inputs)} inputs but {len(self.targets)} targets; each input needs one "
                "target"
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, index: Tensor | slice) -> Split:
        """The rows at `index`; a slice stays a view of the same memory."""
        rows = None if self.rows is None else self.rows[index]
        return Split(self.inputs[index], self.targets[index], rows)


@dataclass
class Source:
    """What a dataset's builder returns: tensors as read, before splitting.

    Attributes:
        facts: What a model needs to know.
        train: The samples to learn from, and to split from.
        test: The published test samples, or None if they are to be split from `train`.
        validation: The published validation samples, if any.
        fill_missing: Whether NaN in the inputs marks a missing value, to be filled with the mean of its
            feature in the training part.
        notes: Messages from the reader, such as files it left out.
    """

    facts: Facts
    train: Split
    test: Split | None = None
    validation: Split | None = None
    fill_missing: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass
class Data:
    """Data ready for training.

    Attributes:
        facts: What a model needs to know.
        train: The samples to learn from.
        test: The samples for the final number.
        validation: The samples for choices made during training, if any.
        mean: What `normalise` subtracts: per channel (images in [0, 1], signals) or per feature (vectors).
        std: What `normalise` divides by.
        fingerprint: The beginning of the SHA-256 over all tensors, their shapes and types; for stored images
            over their index (names, sizes, places) and not over the pixels.
        notes: What the checks found, in plain words.
    """

    facts: Facts
    train: Split
    test: Split
    validation: Split | None
    mean: Tensor
    std: Tensor
    fingerprint: str
    notes: list[str] = field(default_factory=list)

    def to_unit(self, inputs: Tensor) -> Tensor:
        """A batch of bytes as float32 in [0, 1]; any other batch unchanged."""
        return inputs.to(torch.float32).div_(255) if inputs.dtype == torch.uint8 else inputs

    def normalise(self, inputs: Tensor) -> Tensor:
        """(x − mean) / std for a batch from `to_unit`; tokens unchanged."""
        if self.facts.kind == "tokens":
            return inputs
        shape = (-1, *[1] * (len(self.facts.input_shape) - 1))
        return (inputs - self.mean.to(inputs).view(shape)) / self.std.to(inputs).view(shape)

    @property
    def splits(self) -> dict[str, Split]:
        """The splits that exist, by name."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: split for name, split in named.items() if split is not None}


def fingerprint(splits: dict[str, Split], length: int = 16) -> str:
    """The first hexadecimal digits of the SHA-256 over the splits' tensors, shapes and types.

    Windows that share memory (`Tensor.unfold`) are hashed as the underlying memory and their strides, so that
    a corpus is hashed once and not each character once per window. Stored images are hashed by their index:
    names and sizes of the files and how they are decoded, but not when they were changed.
    """
    digest = hashlib.sha256()
    for name, split in splits.items():
        for part, tensor in (("inputs", split.inputs), ("targets", split.targets)):
            digest.update(f"{name} {part} {tensor.dtype} {tuple(tensor.shape)};".encode())
            _hash_tensor(digest, tensor)
    return digest.hexdigest()[:length]


def _hash_tensor(digest: hashlib._Hash, tensor: Tensor) -> None:
    stored = as_stored(tensor)
    if stored is not None:
        digest.update(stored.digest())
        return
    if not tensor.numel():
        return
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    if span < tensor.numel():
        digest.update(f"strides {tensor.stride()};".encode())
        tensor = tensor.as_strided((span,), (1,))
    flat = tensor.detach().cpu().contiguous().view(-1)
    digest.update(flat.view(torch.uint8).numpy().data)
