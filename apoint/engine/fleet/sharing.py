"""Data in shared memory: read once by the parent, visible to every worker."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import dataclass, field

from torch import Tensor

from apoint.data import Data, Source
from apoint.data.loading import DatasetCache, Handling, seed_matters, tensors_of

_SHARED = "/dev/shm"


@dataclass
class SharedDatasets:
    """Sources and data for a worker, by their places in `DatasetCache`, with tensors in shared memory."""

    sources: dict[str, Source] = field(default_factory=dict)
    divided: dict[str, Data] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.sources or self.divided)

    @property
    def places(self) -> set[str]:
        return {*self.sources, *self.divided}

    def unpack(self, kept: DatasetCache) -> None:
        """Put everything where `load` will find it."""
        for place, source in self.sources.items():
            kept.keep(kept.sources, place, source)
        for place, data in self.divided.items():
            kept.keep(kept.divided, place, data)


def wrap(kept: DatasetCache, known: Collection[str]) -> SharedDatasets:
    """Move the data held here that a worker does not have yet into shared memory.

    Data that depends on the seed is left out: a worker needs other seeds than this process. If there is no
    room in shared memory, the result is empty and workers read the data themselves.
    """
    sources = {place: source for place, source in kept.sources.items() if place not in known}
    divided = {
        place: data
        for place, data in kept.divided.items()
        if place not in known and _is_for_every_seed(kept, place)
    }
    held: list[Source | Data] = [*sources.values(), *divided.values()]
    tensors = [tensor for value in held for tensor in tensors_of(value)]
    if not _fits(tensors):
        return SharedDatasets()
    for tensor in tensors:
        tensor.share_memory_()  # type: ignore[no-untyped-call]
    return SharedDatasets(sources, divided)


def _is_for_every_seed(kept: DatasetCache, place: str) -> bool:
    identity, _, handling = json.loads(place)
    source = kept.sources.get(identity)
    return source is not None and not seed_matters(source, Handling(**handling))


def _fits(tensors: list[Tensor]) -> bool:
    """Whether shared memory has room for the tensors that are not in it yet; True if unknown."""
    private = (tensor.untyped_storage() for tensor in tensors)
    sizes = {storage.data_ptr(): storage.nbytes() for storage in private if not storage.is_shared()}
    if not sizes or not os.path.isdir(_SHARED):
        return True
    free = os.statvfs(_SHARED)
    return sum(sizes.values()) < 0.9 * free.f_bavail * free.f_frsize
