"""The generators of a stack: one per replica, in exactly the state it would have if trained alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from apoint.data import streams
from apoint.engine.stacked.errors import CannotStackError


class Draws:
    """One generator per replica, reseeded for each part of each step.

    Seeding costs as much as a small operation, so it is deferred to the first draw; most models draw nothing.

    Args:
        seeds: The seed of each replica's `dropout` stream.
        device: The device on which the model draws.

    Attributes:
        were_lent: Whether PyTorch's own generator was ever used in place of one of them.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.seeds, self.device = list(seeds), device
        self._generators = [torch.Generator(device) for _ in self.seeds]
        self._pending: tuple[int, int] | None = None
        self._current = (0, 0)
        self.were_lent = False

    def begin(self, step: int, part: int) -> None:
        """Begin the draws of this part of this step; see `apoint.engine.step.reseed`."""
        self._pending = self._current = step, part

    def rewind(self) -> None:
        """Restart the draws of this part of this step."""
        self._pending = self._current

    @property
    def have_drawn(self) -> bool:
        """Whether anything was drawn since the last `begin`."""
        return self._pending is None

    @property
    def generators(self) -> list[torch.Generator]:
        """The generators, in the order of the replicas."""
        self.seed()
        return self._generators

    def seed(self) -> None:
        """Seed the generators for this part of this step, unless that is already done."""
        if self._pending is None:
            return
        for generator, seed in zip(self._generators, self.seeds, strict=True):
            generator.manual_seed(streams.key(seed, "dropout", *self._pending))
        self._pending = None

    @contextmanager
    def as_default(self, row: int) -> Iterator[None]:
        """Put PyTorch's own generator in the state of one replica's, for functions that take no generator."""
        default, own = default_generator(self.device), self.generators[row]
        self.were_lent = True
        before = default.get_state()
        default.set_state(own.get_state())
        try:
            yield
            own.set_state(default.get_state())
        finally:
            default.set_state(before)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only some of the replicas."""
        self.seeds = [self.seeds[row] for row in rows]
        self._generators = [self._generators[row] for row in rows]


def default_generator(device: torch.device) -> torch.Generator:
    """The generator that PyTorch draws from on a device by default."""
    if device.type == "cpu":
        return torch.default_generator
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.cuda.default_generators[index]
    raise CannotStackError(f"its model draws random numbers, and on {device.type} they cannot be shared out")
