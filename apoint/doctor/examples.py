"""The data of a patient, in any of the forms in which people have it, and batches drawn from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.probes import Batch, as_batch

MOST_EXAMPLES = 4096
MOST_BATCHES = 64


class Examples:
    """Examples that a model can be called with.

    Args:
        whole: All of them in one batch.
        batch_size: How many a training step takes.
    """

    def __init__(self, whole: Batch, batch_size: int) -> None:
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, got {batch_size}")
        self.whole, self.batch_size = whole, min(batch_size, whole.size)

    def __len__(self) -> int:
        return self.whole.size

    def first(self, number: int) -> Batch:
        """The first examples."""
        return self.whole.select(slice(0, number))

    def some(self, number: int, seed: int = 0) -> Batch:
        """Examples drawn without replacement."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        return self.whole.select(order[:number])

    def batches(self, seed: int = 0) -> Iterator[Batch]:
        """Batches without end, every example once before any comes again; what is left over is left out."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            order = torch.randperm(len(self), generator=generator)
            for start in range(0, len(self) - self.batch_size + 1, self.batch_size):
                yield self.whole.select(order[start : start + self.batch_size])

    @property
    def inputs(self) -> Tensor | None:
        """The first real input of every example, [N, …]; None if inputs are whole numbers."""
        return next((t for t in self.whole.tensors if t.is_floating_point() and len(t) == len(self)), None)

    @property
    def targets(self) -> Tensor | None:
        """The targets as a tensor [N, …], if they are one; those that a model takes by name count as well."""
        targets = self.whole.targets
        if targets is None:
            targets = next(
                (self.whole.kwargs[name] for name in ("labels", "targets") if name in self.whole.kwargs), None
            )
        return targets if isinstance(targets, Tensor) else None


def examples(model: nn.Module, data: Any, batch_size: int | None, seed: int = 0) -> Examples:
    """Examples from a pair of tensors, a dictionary, a `Dataset`, a `DataLoader`, or the name of a dataset.

    Args:
        model: The model that will be called with them.
        data: The data; of a dataset or a loader only a part is read, which is said.
        batch_size: How many a step takes; by default the loader's own, or 64.
        seed: Which part of a dataset is read.
    """
    if isinstance(data, Examples):
        return data
    if isinstance(data, str):
        data = _named(data)
    if isinstance(data, torch.utils.data.DataLoader):
        size = batch_size or data.batch_size or 64
        return Examples(as_batch(model, _joined(_from_loader(data))), size)
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
    size = len(data)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))[:MOST_EXAMPLES]
    return torch.utils.data.default_collate([data[int(place)] for place in order])


def _from_loader(loader: Any) -> list[Any]:
    batches = []
    for batch in loader:
        batches.append(batch)
        if len(batches) >= MOST_BATCHES:
            break
    if not batches:
        raise UsageError("the data loader gives no batch; is its dataset empty, or smaller than a batch?")
    return batches


def _joined(batches: list[Any]) -> Any:
    """Batches of one form as one; the last is left out if it does not fit to the others."""
    first = batches[0]
    if isinstance(first, Tensor):
        fitting = [batch for batch in batches if batch.shape[1:] == first.shape[1:]]
        return torch.cat(fitting)
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
