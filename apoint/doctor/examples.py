"""A patient's data, in any of the usual forms, and batches drawn from it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from apoint.doctor.failure import StepFailedError
from apoint.errors import ApointError, UsageError
from apoint.probes import Batch, as_batch

MOST_EXAMPLES = 4096
MOST_BATCHES = 64
MOST_FORMS = 8  # of batches that differ in shape


class Examples:
    """Examples that a model can be called with.

    Args:
        whole: All examples in one batch.
        batch_size: How many examples a training step takes.
        parts: Batches as a loader returned them: the first, one of each other shape, those with the largest
            and smallest values, and the last, which may be smaller.
        failure: The error that ended loading early.
        left_out: Which part of the data is not in `whole`; empty if none.
    """

    def __init__(
        self,
        whole: Batch,
        batch_size: int,
        parts: Sequence[Batch] = (),
        failure: StepFailedError | None = None,
        left_out: str = "",
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, got {batch_size}")
        self.whole, self.batch_size = whole, min(batch_size, whole.size)
        self.parts, self.failure, self.left_out = parts, failure, left_out

    def __len__(self) -> int:
        return self.whole.size

    def first(self, number: int) -> Batch:
        """The first `number` examples."""
        return self.whole.select(slice(0, number))

    def some(self, number: int, seed: int = 0) -> Batch:
        """Draw `number` examples without replacement."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        return self.whole.select(order[:number])

    def batches(self, seed: int = 0) -> Iterator[Batch]:
        """Endless batches: no example repeats within a pass, and an incomplete last batch is dropped."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            order = torch.randperm(len(self), generator=generator)
            for start in range(0, len(self) - self.batch_size + 1, self.batch_size):
                yield self.whole.select(order[start : start + self.batch_size])

    def extremes(self) -> list[Batch]:
        """Batches that hold the examples with the largest and the smallest targets and integer inputs.

        A randomly drawn batch may miss the one label or token that is out of range.
        """
        fitting = [tensor for tensor in _ranged(self.whole) if len(tensor) == len(self)]
        flat = [tensor.detach().reshape(len(tensor), -1) for tensor in fitting]
        rows = [(each.amax(1).double().argmax(), each.amin(1).double().argmin()) for each in flat]
        chosen = list(dict.fromkeys(int(row) for pair in rows for row in pair))
        others = [row for row in range(min(len(self), self.batch_size + len(chosen))) if row not in chosen]
        size = self.batch_size
        return [
            self.whole.select((chosen[begin : begin + size] + others)[:size])
            for begin in range(0, len(chosen), size)
        ]

    @property
    def inputs(self) -> Tensor | None:
        """The first floating-point input of every example, [N, …]; None if all inputs are integers."""
        return next((t for t in self.whole.tensors if t.is_floating_point() and len(t) == len(self)), None)

    @property
    def targets(self) -> Tensor | None:
        """The targets, if they are a tensor [N, …]; targets that a model takes by name count as well."""
        targets = self.whole.targets
        if targets is None:
            targets = next(
                (self.whole.kwargs[name] for name in ("labels", "targets") if name in self.whole.kwargs), None
            )
        return targets if isinstance(targets, Tensor) else None


def _ranged(batch: Batch) -> list[Tensor]:
    """Tensors whose values may be out of range: targets and integer inputs."""
    targets = [batch.targets] if isinstance(batch.targets, Tensor) else []
    whole = [tensor for tensor in batch.tensors if not tensor.is_floating_point()]
    return [t for t in (*targets, *whole) if t.dim() and t.numel() and not t.is_complex()]


def examples(model: nn.Module, data: Any, batch_size: int | None, seed: int = 0) -> Examples:
    """Examples from a pair of tensors, a dictionary, a `Dataset`, a `DataLoader`, or the name of a dataset.

    Args:
        model: The model that will be called with them.
        data: The data; of a dataset or a loader only a part is read.
        batch_size: How many examples a step takes; by default the loader's own, or 64.
        seed: Selects the part of a dataset that is read.
    """
    if isinstance(data, Examples):
        return data
    if isinstance(data, str):
        data = _named(data)
    if isinstance(data, torch.utils.data.DataLoader):
        return _of_loader(model, data, batch_size or data.batch_size or 64)
    if _is_dataset(data):
        return Examples(as_batch(model, _from_dataset(data, seed)), batch_size or 64)
    return Examples(as_batch(model, data), batch_size or 64)


def _is_dataset(data: Any) -> bool:
    return isinstance(data, torch.utils.data.Dataset) or (
        hasattr(data, "__getitem__")
        and hasattr(data, "__len__")
        and not isinstance(data, tuple | list | Tensor | Mapping | Batch)
    )


def _from_dataset(data: Any, seed: int) -> Any:
    with _loading("an example of the dataset"):
        if isinstance(data, torch.utils.data.IterableDataset):
            chosen = list(itertools.islice(data, MOST_EXAMPLES))
        else:
            order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:MOST_EXAMPLES]
            chosen = [data[int(place)] for place in order]
    if not chosen:
        raise UsageError("the dataset holds no example")
    with _loading("examples of the dataset, put together into a batch"):
        return torch.utils.data.default_collate(chosen)


@contextmanager
def _loading(what: str) -> Iterator[None]:
    try:
        yield
    except ApointError:
        raise
    except Exception as error:
        raise StepFailedError("batch", error, when=f"at {what}") from error


def _of_loader(model: nn.Module, loader: Any, batch_size: int) -> Examples:
    """Examples from the first batches of a loader; batches of a less common shape are kept apart."""
    batches, failure = _from_loader(loader)
    forms = [_form(batch) for batch in batches]
    usual = Counter(forms).most_common(1)[0][0]
    alike = [batch for batch, form in zip(batches, forms, strict=True) if form == usual]
    seen = [forms.index(form) for form in dict.fromkeys(forms)][:MOST_FORMS]
    read = [as_batch(model, batch) for batch in batches]
    places = dict.fromkeys([0, *seen, *_extreme_places(read), len(batches) - 1])
    parts = [read[place] for place in places]
    left = len(batches) - len(alike)
    words = (
        f"{left} of {len(batches)} batches have other shapes; one of each shape was only run" if left else ""
    )
    return Examples(as_batch(model, _joined(alike)), batch_size, parts, failure, words)


def _extreme_places(batches: list[Batch]) -> list[int]:
    """Which batches hold the largest and the smallest values."""
    ends: list[tuple[list[float], list[float]]] = [
        ([float(t.max()) for t in _ranged(batch)], [float(t.min()) for t in _ranged(batch)])
        for batch in batches
    ]
    found = []
    for number in range(min(len(highs) for highs, _ in ends)):
        found.append(max(range(len(ends)), key=lambda place: ends[place][0][number]))
        found.append(min(range(len(ends)), key=lambda place: ends[place][1][number]))
    return found


def _from_loader(loader: Any) -> tuple[list[Any], StepFailedError | None]:
    batches: list[Any] = []
    try:
        batches.extend(itertools.islice(loader, MOST_BATCHES))  # batches before an error are kept
    except Exception as error:
        failure = StepFailedError("batch", error, when=f"at batch {len(batches)} of the loader")
        if not batches:
            raise failure from error
        return batches, failure
    if not batches:
        raise UsageError("the data loader gives no batch; is its dataset empty, or smaller than a batch?")
    return batches, None


def _form(batch: Any) -> Hashable:
    """The shape of a batch without the number of examples."""
    if isinstance(batch, Tensor):
        return tuple(batch.shape[1:]) if batch.dim() else "number"
    if isinstance(batch, Mapping):
        return tuple((name, _form(entry)) for name, entry in batch.items())
    if isinstance(batch, tuple | list):
        return tuple(_form(entry) for entry in batch)
    return type(batch).__name__


def _joined(batches: list[Any]) -> Any:
    """Join batches of the same form into one."""
    first = batches[0]
    if isinstance(first, Tensor):
        return torch.cat(batches) if first.dim() else first
    if isinstance(first, Mapping):
        return {name: _joined([batch[name] for batch in batches]) for name in first}
    if isinstance(first, tuple | list):
        return tuple(_joined([batch[place] for batch in batches]) for place in range(len(first)))
    return first


def _named(name: str) -> Any:
    from apoint.data import load

    data = load(name)
    number = min(len(data.train), MOST_EXAMPLES)
    part = data.train.take(slice(0, number))
    return data.normalise(data.to_unit(part.inputs)), part.targets
