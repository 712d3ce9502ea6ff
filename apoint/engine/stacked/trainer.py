"""The training loop of a stack: one computation, R records; the counterpart of `engine.loop`.

During training a checkpoint covers the whole stack, in a separate folder: a stack that was killed resumes as
the same stack, with the same results bit for bit. When a replica ends, its last state goes into its own run
folder, in the form of a replica trained alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from apoint.engine import checkpoint
from apoint.engine.checkpoint import Checkpoint
from apoint.engine.examples import Each, joined
from apoint.engine.loop import Moment, interruption
from apoint.engine.signals import StopRequest
from apoint.engine.stacked.measure import stacked_evaluate
from apoint.engine.stacked.seat import Seat
from apoint.engine.stacked.stack import Stack
from apoint.engine.stacked.step import stacked_step
from apoint.errors import DamagedError, StorageError


@dataclass(frozen=True)
class StackMoment(Moment):
    """The progress of a stack; losses and metrics are means over the replicas that are still in it.

    Attributes:
        replicas: The number of these replicas.
    """

    replicas: int = 0


Leaving = tuple[Seat, str, str]
"""The seat that leaves a stack, its final state, and the reason."""


class StackTrainer:
    """Train a stack to the end, or until a stop is requested.

    Args:
        stack: What to train.
        seats: The record of each member of the stack, in its order.
        folder: Where checkpoints of the whole stack go.
        watch: Called from time to time with the progress of training.
        say: Called with messages for the user.

    Attributes:
        endings: How the replicas that have left ended, and why, by the names of their run folders.
    """

    def __init__(
        self,
        stack: Stack,
        seats: Sequence[Seat],
        folder: Path,
        watch: Callable[[StackMoment], None],
        say: Callable[[str], None],
    ) -> None:
        assert len(seats) == stack.num_replicas
        self.stack, self.seats, self.folder, self.watch, self.say = stack, list(seats), folder, watch, say
        self.step, self.seconds = 0, 0.0
        self.total_steps = seats[0].total_steps
        self.endings: dict[str, tuple[str, str]] = {}
        self._saved_step = -1
        self._session_start, self._session_seconds = 0, 0.0
        self._saved_at = self._watched_at = time.monotonic()

    @property
    def present(self) -> list[Seat]:
        """The seats of the replicas that are still in the stack, row by row."""
        return [self.seats[member] for member in self.stack.members]

    def run(self, stop: StopRequest) -> None:
        """Train to the end; replicas that diverge or stop early leave before the others."""
        self._session_start, self._session_seconds = self.step, self.seconds
        while self.stack.members and self.step < self.total_steps:
            begin = time.perf_counter()
            self._one_step()
            self._share_out(time.perf_counter() - begin)
            if stop and self.stack.members and self.step < self.total_steps:
                self._leave(stop)
        if self.stack.members:
            self.save()  # if killed from here on, only `_bring_home` is left to repeat
            self._release(self._bring_home(self.present))
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)

    def _share_out(self, seconds: float) -> None:
        """Divide the stack's training time among its replicas, so that the sum is the time spent."""
        self.seconds += seconds
        present = self.present
        for seat in present:
            seat.progress.seconds += seconds / len(present)

    def _one_step(self) -> None:
        made = stacked_step(self.stack, self.step)
        self.step += 1
        leaving: list[Leaving] = []
        for member, error in made.failures.items():
            self.seats[member].diverged(error)
            leaving.append((self.seats[member], "diverged", str(error)))
        for member, loss in made.losses.items():
            self.seats[member].stepped(loss)
        present = self.present
        if present and present[0].evaluation_is_due:
            self._evaluate()
            leaving += self._bring_home([seat for seat in present if seat.progress.ended])
        self._tell(made.losses)
        if leaving:
            self._release(leaving)
        elif self._save_is_due():
            self.save()

    def _evaluate(self) -> None:
        seats = self.present
        values: list[dict[str, dict[str, float]]] = [{} for _ in seats]
        examples: dict[str, Tensor] = {}
        for split in self.stack.replicas[0].data.splits:
            if split != "train":
                for row, metrics in enumerate(self._measured(split, examples)):
                    values[row][split] = metrics
        for row, (seat, own) in enumerate(zip(seats, values, strict=True)):
            seat.measured(own, {name: value[row] for name, value in examples.items()})

    def _measured(self, split: Any, examples: dict[str, Tensor]) -> list[dict[str, float]]:
        """The metrics of each replica; those of single examples go into `examples` if a seat keeps them."""
        wanted = any(seat.keeps_examples(seat.replica.data.splits[split]) for seat in self.present)

        def measured(prefix: str, average: bool = False) -> list[dict[str, float]]:
            each = Each()
            rows = stacked_evaluate(self.stack, split, average, each if wanted else None)
            examples.update(joined(each, f"{split}_{prefix}"))
            return rows

        rows = measured("")
        if self.stack.average is None:
            return rows
        averages = measured("average_", average=True)
        return [
            {**own, **{f"average_{name}": value for name, value in average.items()}}
            for own, average in zip(rows, averages, strict=True)
        ]

    # -- leaving the stack --------------------------------------------------------------------------------

    def _bring_home(self, seats: Sequence[Seat]) -> list[Leaving]:
        """Save the last state of some replicas in their own run folders, and remove them from the stack."""
        present = self.present
        for row, seat in enumerate(present):
            if seat in seats:
                self.stack.give_back(row)
                seat.save()
        if seats:
            self.stack.keep([row for row, seat in enumerate(present) if seat not in seats])
        return [(seat, "finished", "") for seat in seats]

    def _release(self, leaving: Sequence[Leaving]) -> None:
        """Close the records of replicas that have left, once the stack's own checkpoint records that."""
        self.endings |= {seat.folder.name: (state, reason) for seat, state, reason in leaving}
        if self.stack.members:
            self.save(force=True)
        for seat, state, reason in leaving:
            seat.close(state, reason)

    def _leave(self, stop: StopRequest) -> None:
        self.save()
        raise interruption(stop, self.step, self.total_steps, self._saved_step)

    # -- watching -----------------------------------------------------------------------------------------

    def _tell(self, losses: dict[int, float]) -> None:
        now, last = time.monotonic(), self.step == self.total_steps
        if not losses or (not last and now - self._watched_at < 0.1):
            return
        self._watched_at = now
        for seat in self.present:
            seat.beat()
        done, spent = self.step - self._session_start, self.seconds - self._session_seconds
        rate = done / spent if spent > 0 else 0.0
        replica = self.seats[0].replica
        self.watch(
            StackMoment(
                step=self.step,
                total_steps=self.total_steps,
                epoch=self.step / replica.horizon.steps_per_epoch,
                loss=sum(losses.values()) / len(losses),
                metrics=_means([seat.progress.metrics for seat in self.present]),
                seconds=self.seconds,
                remaining_seconds=(self.total_steps - self.step) / rate if rate > 0 else None,
                examples_per_second=rate * replica.recipe.batch_size * len(losses),
                replicas=len(losses),
            )
        )

    # -- checkpoints --------------------------------------------------------------------------------------

    def _save_is_due(self) -> bool:
        seat = self.seats[0]
        if seat.save_every is not None:
            return self.step % seat.save_every == 0
        return time.monotonic() - self._saved_at >= seat.save_seconds

    def save(self, force: bool = False) -> None:
        """Write a checkpoint of the stack; if the disk is full, keep the old one, report it, and continue."""
        if self._saved_step == self.step and not force:
            return
        try:
            path = checkpoint.save(
                self.folder, Checkpoint(self.step, self.stack.state(), self._plain_state())
            )
        except DamagedError:
            raise
        except StorageError as error:
            self.say(f"could not save a checkpoint: {error}. Training continues; the previous one is kept")
            for seat in self.present:
                seat.writer.event("checkpoint-failed", step=self.step, reason=str(error))
        else:
            for seat in self.present:
                seat.writer.event("stack-checkpoint", step=self.step, path=f"{self.folder.name}/{path.name}")
            self._saved_step = self.step
        self._saved_at = time.monotonic()

    def _plain_state(self) -> dict[str, Any]:
        here = self.present
        present = {seat.folder.name: seat.kept() for seat in here}
        leaving = [seat for seat in self.seats if seat.ending is None and seat not in here]
        left = {seat.folder.name: seat.kept() for seat in leaving}
        return {"seconds": self.seconds, "present": present, "left": left, "endings": self.endings}

    def restore(self, saved: Checkpoint) -> None:
        """Resume from a checkpoint whose present replicas are this stack's members, in the same order."""
        assert list(saved.state["present"]) == [seat.folder.name for seat in self.seats]
        self.stack.restore(saved.tensors)
        self.step, self.seconds = saved.step, saved.state["seconds"]
        self.endings = {name: (state, reason) for name, (state, reason) in saved.state["endings"].items()}
        for seat in self.seats:
            seat.resume(saved.state["present"][seat.folder.name])
        self._saved_step = self.step


def _means(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over replicas; all have the same metrics, since they train in lockstep."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} if rows else {}
