"""One replica's seat in a stack: its record, its progress and how it ended; the stack does the computing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from apoint.engine.loop import Cadence, Progress, Trainer
from apoint.engine.replica import Replica
from apoint.engine.step import NonFiniteError
from apoint.store import RunWriter


class Seat(Trainer):
    """The recording part of a `Trainer` for one replica; its steps and measurements come from a stack.

    Attributes:
        ending: How it ended and why, once it has: `finished`, `diverged`, `interrupted` or `failed`.
    """

    def __init__(
        self, replica: Replica, writer: RunWriter, cadence: Cadence, say: Callable[[str], None]
    ) -> None:
        super().__init__(replica, writer, cadence, lambda moment: None, say)
        self.ending: tuple[str, str] | None = None

    def stepped(self, loss: float) -> None:
        """Count a step and its loss; record the training loss when it is due."""
        progress = self.progress
        progress.step += 1
        progress.loss_sum += loss
        progress.loss_count += 1
        if self.is_last or progress.step % self.log_every == 0:
            self._log_training()

    def measured(self, values: dict[str, dict[str, float]], examples: dict[str, Tensor]) -> None:
        """Record metrics by split and on single examples; may end the run early."""
        for split, metrics in values.items():
            self._record(split, metrics)
        self._conclude(examples)

    def diverged(self, error: NonFiniteError) -> None:
        """Record that the loss or the gradient was not finite."""
        self.writer.event("diverged", step=error.step, tensor=error.tensor, examples=error.examples)

    def beat(self) -> None:
        """Report that the run is alive."""
        self.writer.heartbeat(self.progress.step, self.total_steps)

    def kept(self) -> dict[str, Any]:
        """What a checkpoint of the stack stores for this replica besides its tensors."""
        return {"progress": asdict(self.progress), "record": self.writer.mark()}

    def resume(self, kept: Mapping[str, Any]) -> None:
        """Resume from what a checkpoint of the stack stored."""
        self.progress = Progress(**kept["progress"])
        self.writer.rewind(kept["record"])

    def close(self, state: str, reason: str = "") -> None:
        """Write a status that says how the run ended, and release the folder."""
        step, total = self.progress.step, self.total_steps
        self.ending = state, reason
        seconds = self.progress.seconds
        self.writer.status(state, step=step, total_steps=total, reason=reason, seconds=seconds)
        self.writer.close()
