"""The batches of a stack: each replica's own examples, disturbed and normalised as when it is trained alone.

Axis letters: R replicas, S steps of an epoch, B examples of an update, b examples of a part of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from apoint.data import Split, streams
from apoint.engine.stream import Preparation, TrainingStream

COPIED_BYTES = 1 << 28
"""Up to this size, training sets that differ are copied into one, so that a batch is one gather."""


class StackedPreparation(Preparation):
    """The preparations of all replicas, for inputs with a leading replica axis.

    Attributes:
        alike: Whether all are the same, so that inputs without that axis work too.
    """

    def __init__(self, preparations: Sequence[Preparation]) -> None:
        first = preparations[0]
        self.tokens = first.tokens
        self.alike = self.tokens or all(
            torch.equal(one.mean, first.mean) and torch.equal(one.scale, first.scale) for one in preparations
        )
        if self.tokens:
            return
        for name in ("mean", "scale", "byte_scale", "byte_shift"):
            values = [getattr(one, name) for one in preparations]
            setattr(self, name, values[0] if self.alike else torch.stack(values).unsqueeze(1))


class StackedStream:
    """Batches of the training splits of all replicas, by update number."""

    def __init__(self, streams_R: Sequence[TrainingStream]) -> None:
        self.streams = list(streams_R)
        self.prepare = StackedPreparation([stream.prepare for stream in self.streams])
        self.device, self.batch_size = self.streams[0].device, self.streams[0].batch_size
        self.source = _Source([stream.data.train for stream in self.streams])
        self._epoch, self._order_SRB = -1, torch.empty(0, dtype=torch.int64)

    def indices(self, step: int) -> Tensor:
        """The examples [R, B] of an update; see `TrainingStream.indices`."""
        epoch, position = divmod(step, self.streams[0].steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order_SRB = epoch, self._drawn_order(epoch)
        return self._order_SRB[position]

    def _drawn_order(self, epoch: int) -> Tensor:
        """The examples of an epoch, those of one update side by side."""
        steps, size = self.streams[0].steps_per_epoch, self.batch_size
        orders = [_order(one, epoch)[: steps * size].view(steps, size) for one in self.streams]
        return torch.stack(orders, dim=1)

    def batch(self, index_Rb: Tensor, step: int, progress: float) -> tuple[Tensor, Tensor]:
        """Inputs and targets [R, b, …] of some examples of each replica; see `TrainingStream.batch`."""
        first = self.streams[0]
        disturbed = any(deficit.strength_at(progress) for deficit in first.deficits)
        if first.augmentations or disturbed:
            pairs = [
                stream.batch(index_b, step, progress)
                for stream, index_b in zip(self.streams, index_Rb, strict=True)
            ]
            return torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])
        x, y = self.source.take(index_Rb)
        return self.prepare(x.to(self.device)), y.to(self.device)


def _order(stream: TrainingStream, epoch: int) -> Tensor:
    """The order of a replica's examples in an epoch, as `TrainingStream.indices` draws it."""
    return torch.randperm(stream.size, generator=streams.generator(stream.order_seed, "order", epoch))


class _Source:
    """The source of examples: one set for all replicas, copies side by side, or one set per replica."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self.splits = list(splits)
        first = self.splits[0]
        self.first_R1 = torch.zeros(len(self.splits), 1, dtype=torch.int64)
        self.is_shared = is_shared(self.splits)
        if self.is_shared:
            self.joined: Split | None = first
            return
        size = first.inputs.numel() * first.inputs.element_size()
        size += first.targets.numel() * first.targets.element_size()
        self.joined = None
        if size * len(self.splits) <= COPIED_BYTES:
            self.joined = Split(
                torch.cat([split.inputs for split in self.splits]),
                torch.cat([split.targets for split in self.splits]),
            )
            self.first_R1 = torch.arange(len(self.splits))[:, None] * len(first)

    def take(self, index_Rb: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets [R, b, …]."""
        if self.joined is None:
            taken = [split.take(index_b) for split, index_b in zip(self.splits, index_Rb, strict=True)]
            return torch.stack([one.inputs for one in taken]), torch.stack([one.targets for one in taken])
        places = (index_Rb if self.is_shared else index_Rb + self.first_R1).reshape(-1)
        x, y = self.joined.inputs.index_select(0, places), self.joined.targets.index_select(0, places)
        return x.view(*index_Rb.shape, *x.shape[1:]), y.view(*index_Rb.shape, *y.shape[1:])


def is_shared(splits: Sequence[Split]) -> bool:
    """Whether all replicas share one split in memory."""
    places = {(split.inputs.data_ptr(), split.targets.data_ptr()) for split in splits}
    return len(places) == 1
