"""The interface of a probe with state: for quantities that depend on the path, not on one point of it."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn

from apoint.probes.reading import Reading


class Track(Protocol):
    """A measurement along a run. It only observes: it changes neither the model nor the generators."""

    def begin(self, model: nn.Module) -> None:
        """Remember the weights that training starts from."""

    def observe(self, model: nn.Module, step: int) -> None:
        """Called after each step, so it must be cheap; `step` counts from 1."""

    def read(self, model: nn.Module, batch: Any, loss: Any) -> Reading:
        """The reading so far."""

    def state(self) -> dict[str, Tensor]:
        """The whole state, so that a run can resume from it."""

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
