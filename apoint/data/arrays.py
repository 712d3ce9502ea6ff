"""Tensors, arrays and PyTorch datasets from the user: their kind is inferred from types and shapes.

| inputs | taken for |
|---|---|
| bytes [N, H, W] or [N, C, H, W]; floats [N, C, H, W] | images |
| floats [N, C, L] | signals |
| numbers [N] or [N, F] | vectors |
| whole numbers [N, T] with whole-number targets of the same shape | tokens |

Whole-number targets are classes; other numbers are regression targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from apoint.data.core import MOST_CLASSES, Data, Facts, Kind, Source, Split, Task
from apoint.data.loading import assemble, load
from apoint.errors import UsageError

Pair = tuple[Any, Any]


def from_tensors(
    inputs: Any,
    targets: Any,
    test: Pair | None = None,
    *,
    num_classes: int | None = None,
    class_names: Sequence[str] = (),
    seed: int = 0,
    validation: float = 0.0,
    test_share: float = 0.2,
    limit: int | None = None,
    normalise: bool = True,
) -> Data:
    """Data from a pair of tensors or numpy arrays; see the module docstring for how the kind is inferred.

    Args:
        inputs: One row per sample.
        targets: One row per sample.
        test: Inputs and targets for testing; without it a part is split off.
        num_classes: The number of classes, or of tokens, if it is more than the data shows.
        class_names: The names of the classes.
        seed: Determines which samples are held out and which `limit` keeps.
        validation: The share of the training samples to hold out for validation.
        test_share: The share of all samples to hold out for testing, if `test` is not given.
        limit: The number of training samples to use.
        normalise: Whether `Data.normalise` subtracts the mean and divides by the standard deviation.
    """
    return assemble(
        source_of(
            inputs, targets, test, num_classes=num_classes, class_names=class_names, where="from_tensors"
        ),
        where="from_tensors",
        seed=seed,
        validation=validation,
        test_share=test_share,
        limit=limit,
        normalise=normalise,
    )


def from_dataset(
    dataset: Dataset[Any] | DataLoader[Any],
    test: Dataset[Any] | DataLoader[Any] | None = None,
    **options: Any,
) -> Data:
    """Data from a PyTorch `Dataset` or `DataLoader` of (input, target) pairs, read once into memory.

    The samples are those of one pass, transforms included: a random transform is frozen at its result. A
    loader that only batches and shuffles is read in the order of its dataset, so that the fingerprint stays
    the same. PyTorch's global generator is left unchanged.

    Args:
        dataset: The training data.
        test: The test data; without it a part is split off.
        options: As for `from_tensors`.
    """
    inputs, targets = materialise(dataset, "from_dataset")
    held_out = materialise(test, "from_dataset: test") if test is not None else None
    return from_tensors(inputs, targets, held_out, **options)


def as_data(data: Any, **options: Any) -> Data:
    """Data from what the Python API accepts: `Data`, a name or spec, a pair of tensors, a dataset or loader.

    Args:
        data: Any of these; `Data` is returned unchanged.
        options: As for `load` or `from_tensors`.
    """
    if isinstance(data, Data):
        return data
    if isinstance(data, str | Mapping):
        return load(data, **options)
    if isinstance(data, tuple | list):
        return from_tensors(*_pair(data, "data"), **options)
    if isinstance(data, Dataset | DataLoader):
        return from_dataset(data, **options)
    raise UsageError(
        f"data must be a name, a pair of tensors, a Dataset, a DataLoader or Data, got {type(data).__name__}"
    )


def as_source(value: Any, where: str) -> Source:
    """A source from anything that a user's function may return as its data.

    Args:
        value: A pair (inputs, targets), a dataset or a loader; a tuple of two of these, for training and
            testing; or a `Source`.
        where: The beginning of messages about it.
    """
    if isinstance(value, Source):
        return value
    is_divided = isinstance(value, tuple) and len(value) == 2 and all(map(_is_part, value))
    train, test = value if is_divided else (value, None)
    if not _is_part(train):
        raise UsageError(
            f"{where} must return (inputs, targets), a Dataset, a DataLoader, a tuple of two of these to "
            f"learn from and to test on, or an apoint.data.Source; it returned {type(value).__name__}"
        )
    held_out = None if test is None else _part(test, f"{where}: test")
    return source_of(*_part(train, where), held_out, where=where)


def _is_part(value: Any) -> bool:
    return isinstance(value, Dataset | DataLoader) or (isinstance(value, tuple) and len(value) == 2)


def _part(value: Any, where: str) -> Pair:
    return materialise(value, where) if isinstance(value, Dataset | DataLoader) else _pair(value, where)


def source_of(
    inputs: Any,
    targets: Any,
    test: Pair | None = None,
    *,
    num_classes: int | None = None,
    class_names: Sequence[str] = (),
    where: str,
) -> Source:
    """A pair of arrays, and optionally a second one for testing, as a source."""
    kind, task, train = _interpreted(inputs, targets, where)
    held_out = None
    if test is not None:
        test_kind, test_task, held_out = _interpreted(*_pair(test, f"{where}: test"), f"{where}: test")
        if (test_kind, test_task) != (kind, task):
            raise UsageError(
                f"{where}: the training samples look like {kind} {task}, the test samples like {test_kind} "
                f"{test_task}; give both the same types and shapes"
            )
    parts = [train] if held_out is None else [train, held_out]
    outputs = _num_outputs(task, parts, num_classes or len(class_names), where)
    facts = Facts(kind, task, tuple(train.inputs.shape[1:]), outputs, tuple(class_names))
    return Source(facts, train, held_out)


def _interpreted(inputs: Any, targets: Any, where: str) -> tuple[Kind, Task, Split]:
    values, answers = as_tensor(inputs, where), as_tensor(targets, where)
    if values.ndim < 1 or answers.ndim < 1 or len(values) != len(answers):
        raise UsageError(
            f"{where}: inputs of shape {tuple(values.shape)} and targets of shape {tuple(answers.shape)} do "
            "not match; there must be one target for each input"
        )
    if not len(values):
        raise UsageError(f"{where}: there are no samples; at least one is needed")
    if _is_whole(values) and _is_whole(answers) and values.ndim == 2 and values.shape == answers.shape:
        return "tokens", "language", Split(values.to(torch.int64), answers.to(torch.int64))
    kind, values = _shaped_inputs(values, where)
    task, answers = _shaped_targets(answers, where)
    return kind, task, Split(values, answers)


def _is_whole(tensor: Tensor) -> bool:
    return not tensor.is_floating_point()


def _shaped_inputs(values: Tensor, where: str) -> tuple[Kind, Tensor]:
    is_bytes = values.dtype == torch.uint8
    if values.ndim <= 2:
        return "vector", values.reshape(len(values), -1).float()
    if is_bytes and values.ndim in (3, 4):
        return "image", (values.unsqueeze(1) if values.ndim == 3 else values)
    if values.is_floating_point() and values.ndim == 4:
        return "image", values.float()
    if values.is_floating_point() and values.ndim == 3:
        return "signal", values.float()
    raise UsageError(
        f"{where}: inputs of type {values.dtype} and shape {tuple(values.shape)} are none of vectors [N, F], "
        "signals [N, C, L] of floats, images [N, C, H, W] of bytes or floats; convert them"
    )


def _shaped_targets(answers: Tensor, where: str) -> tuple[Task, Tensor]:
    if answers.ndim <= 2 and answers.is_floating_point():
        return "regression", answers.reshape(len(answers), -1).float()
    if answers.ndim == 1 or answers.shape[1:] == (1,):
        return "classification", answers.reshape(-1).to(torch.int64)
    raise UsageError(
        f"{where}: targets of type {answers.dtype} and shape {tuple(answers.shape)} are neither class "
        "numbers [N] nor regression targets [N, D] of floats; convert them"
    )


def _num_outputs(task: Task, parts: list[Split], stated: int, where: str) -> int:
    if task == "regression":
        return int(parts[0].targets.shape[1])
    highest = max(int(part.targets.max()) for part in parts)
    if task == "language":
        highest = max(highest, *(int(part.inputs.max()) for part in parts))
    if highest >= MOST_CLASSES:
        raise UsageError(
            f"{where}: the label {highest} would make {highest + 1} classes, more than {MOST_CLASSES}; "
            "number the classes from 0"
        )
    return stated or max(1, highest + 1)


def as_tensor(value: Any, where: str) -> Tensor:
    """A tensor on CPU from a tensor, an array, a Pillow image or numbers."""
    if isinstance(value, Tensor):
        tensor = value.detach().cpu()
    elif hasattr(value, "getbands"):  # a Pillow image: height, width and channels, as bytes
        pixels = np.array(value)
        tensor = torch.from_numpy(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
    else:
        try:
            tensor = torch.as_tensor(np.asarray(value))
        except (TypeError, ValueError, RuntimeError):
            raise UsageError(
                f"{where}: expected tensors, arrays, images or numbers, got {type(value).__name__}; convert "
                "them first"
            ) from None
    if tensor.is_complex():
        raise UsageError(
            f"{where}: complex numbers are not supported; give real and imaginary parts as features"
        )
    return tensor


def _pair(item: Any, where: str) -> Pair:
    if isinstance(item, tuple | list) and len(item) >= 2:
        return item[0], item[1]
    raise UsageError(f"{where}: expected pairs (input, target), got {type(item).__name__}")


def materialise(dataset: Dataset[Any] | DataLoader[Any], where: str) -> tuple[Tensor, Tensor]:
    """All inputs and all targets of a dataset or a loader, in memory."""
    if isinstance(dataset, DataLoader):
        if _only_batches(dataset):
            return materialise(dataset.dataset, where)
        with torch.random.fork_rng(devices=[]):  # a loader draws a seed from the global generator
            batches = [_pair(batch, where) for batch in dataset]
        return _joined([x for x, _ in batches], where, torch.cat), _joined(
            [y for _, y in batches], where, torch.cat
        )
    if isinstance(dataset, TensorDataset):
        return _pair(dataset.tensors, where)
    samples = [_pair(item, where) for item in _items(dataset)]
    return _joined([x for x, _ in samples], where, torch.stack), _joined(
        [y for _, y in samples], where, torch.stack
    )


def _only_batches(loader: DataLoader[Any]) -> bool:
    """Whether a loader only shuffles its dataset and stacks samples."""
    sampler = loader.sampler
    in_order = isinstance(sampler, SequentialSampler)
    shuffled = isinstance(sampler, RandomSampler) and not sampler.replacement
    whole = (in_order or shuffled) and len(sampler) == len(loader.dataset)  # type: ignore[arg-type]
    return whole and loader.batch_size is not None and loader.collate_fn is default_collate


def _items(dataset: Dataset[Any]) -> Iterable[Any]:
    """The samples, by index if there is a length: plain `for` needs an IndexError that some never raise."""
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        return (dataset[index] for index in range(len(dataset)))
    return dataset  # type: ignore[return-value]


def _joined(parts: list[Any], where: str, join: Any) -> Tensor:
    if not parts:
        raise UsageError(f"{where}: there are no samples; at least one is needed")
    tensors = [as_tensor(part, where) for part in parts]
    first = tensors[0]
    skip = 0 if join is torch.stack else 1  # batches may differ in their number of samples
    for index, tensor in enumerate(tensors):
        if tensor.shape[skip:] != first.shape[skip:]:
            raise UsageError(
                f"{where}: element {index} has the shape {tuple(tensor.shape)}, the first one "
                f"{tuple(first.shape)}; bring all to one shape"
            )
    joined: Tensor = join(tensors)
    return joined
