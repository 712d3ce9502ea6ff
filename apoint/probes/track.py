"""What a probe with a memory must offer: quantities that are a matter of the way, not of one place on it."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn

from apoint.probes.reading import Reading


class Track(Protocol):
    """A measurement along a run. It looks on; it changes neither model nor generators."""

    def begin(self, model: nn.Module) -> None:
        """Training starts from these weights."""

    def observe(self, model: nn.Module, step: int) -> None:
        """A step was made; `step` counts from 1. Called after each one, so it must be cheap."""

    def read(self, model: nn.Module, batch: Any, loss: Any) -> Reading:
        """What is known so far."""

    def state(self) -> dict[str, Tensor]:
        """All that is remembered, so that a run can go on from it."""

    def load(self, state: dict[str, Tensor]) -> None:
        """Remember this instead."""
