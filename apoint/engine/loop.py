"""The loop: steps, evaluations, checkpoints, and the record they leave.

A checkpoint holds `Trainer.state`; everything else is a function of the recipe, the seed and the step
number. So a run that resumes from a checkpoint gives the same results bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from apoint.data import Data, Split
from apoint.engine import checkpoint
from apoint.engine.checkpoint import Checkpoint
from apoint.engine.examples import Each, joined, rows_of, why_not_of_split
from apoint.engine.measure import evaluate, larger_is_better
from apoint.engine.observation import observe
from apoint.engine.replica import Replica, real_buffers
from apoint.engine.signals import StopRequest, TrainingInterruptedError
from apoint.engine.step import NonFiniteError, training_step
from apoint.errors import DamagedError, StorageError
from apoint.store import RunWriter
from apoint.units import Duration


@dataclass(frozen=True)
class Moment:
    """The state of training, as passed to `watch`."""

    step: int
    total_steps: int
    epoch: float
    loss: float
    metrics: dict[str, float]
    seconds: float
    remaining_seconds: float | None
    examples_per_second: float


@dataclass(frozen=True)
class Cadence:
    """How often to log and save, which leaves the numbers unchanged.

    Attributes:
        log_every: How often to record the training loss, as its mean since the last record.
        checkpoint_every: How often to save, as a duration of training; by default by wall-clock time.
        checkpoint_seconds: How often to save by wall-clock time.
    """

    log_every: Duration = field(default_factory=lambda: Duration(0.01, "share"))
    checkpoint_every: Duration | None = None
    checkpoint_seconds: float = 60.0


@dataclass
class Progress:
    """What the loop carries from step to step; with the tensors, the whole state of a run."""

    step: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    loss_count: int = 0
    best: float | None = None
    stale: int = 0
    ended: bool = False
    metrics: dict[str, float] = field(default_factory=dict)


class Trainer:
    """Trains one replica into one run folder.

    Args:
        replica: What to train.
        writer: Where the record goes.
        cadence: How often to log and save.
        watch: Called from time to time with the state of training; it only observes.
        say: Called with messages for the user.
    """

    def __init__(
        self,
        replica: Replica,
        writer: RunWriter,
        cadence: Cadence,
        watch: Callable[[Moment], None],
        say: Callable[[str], None],
    ) -> None:
        self.replica, self.writer, self.watch, self.say = replica, writer, watch, say
        self.observation = observe(replica, self._record_reading)
        self.progress = Progress()
        self.folder = writer.folder
        horizon = replica.horizon
        self.total_steps = horizon.total_steps
        self.evaluate_every = max(1, round(replica.recipe.evaluate_every.as_steps(horizon)))
        self.log_every = max(1, round(cadence.log_every.as_steps(horizon)))
        every = cadence.checkpoint_every
        self.save_every = max(1, round(every.as_steps(horizon))) if every else None
        self.save_seconds = cadence.checkpoint_seconds
        self._saved_at = self._watched_at = time.monotonic()
        self._troubled = False
        self._saved_step, self._session_start, self._session_seconds = -1, 0, 0.0

    def run(self, stop: StopRequest) -> None:
        """Train to the end, or until a stop is requested."""
        self._session_start, self._session_seconds = self.progress.step, self.progress.seconds
        self.replica.model.train()
        if self.observation:
            self.observation.begin(self.progress.step)
        while self.progress.step < self.total_steps and not self.progress.ended:
            with self._clock():
                self._one_step()
            if self.observation:
                self.observation.after(self.progress.step)
            if self._save_is_due():  # after the observation, whose state is saved as well
                with self._clock():
                    self.save()
            if stop and self.progress.step < self.total_steps and not self.progress.ended:
                self._leave(stop)
        if self.observation:
            self.observation.tell(self.say)
        self.save()

    @contextmanager
    def _clock(self) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.progress.seconds += time.perf_counter() - begin

    def _one_step(self) -> None:
        progress = self.progress
        try:
            loss = training_step(self.replica, progress.step)
        except NonFiniteError as error:
            self.writer.event("diverged", step=error.step, tensor=error.tensor, examples=error.examples)
            raise
        progress.step += 1
        progress.loss_sum += loss
        progress.loss_count += 1
        if self.is_last or progress.step % self.log_every == 0:
            self._log_training()
        if self.evaluation_is_due:
            self._evaluate()
        self._tell(loss, force=self.is_last)

    @property
    def is_last(self) -> bool:
        """Whether the last step has been made."""
        return self.progress.step == self.total_steps

    @property
    def evaluation_is_due(self) -> bool:
        return self.is_last or self.progress.step % self.evaluate_every == 0

    # -- the record ---------------------------------------------------------------------------------

    @property
    def epoch(self) -> float:
        return self.progress.step / self.replica.horizon.steps_per_epoch

    def _log_training(self) -> None:
        progress = self.progress
        learning_rate = self.replica.timeline.hyper((progress.step - 1) / self.total_steps)["lr"]
        mean = progress.loss_sum / progress.loss_count
        self._record("train", {"loss": mean, "learning_rate": learning_rate})
        progress.loss_sum, progress.loss_count = 0.0, 0

    def _record(self, split: str, values: dict[str, float]) -> None:
        progress = self.progress
        self.writer.metric(
            step=progress.step, epoch=self.epoch, split=split, seconds=progress.seconds, **values
        )
        progress.metrics.update({f"{split}_{name}": value for name, value in values.items()})

    def _record_reading(self, step: int, probe: str, fields: dict[str, Any]) -> None:
        epoch = step / self.replica.horizon.steps_per_epoch
        self.writer.reading(probe, step=step, epoch=epoch, **fields)

    def _evaluate(self) -> None:
        data = self.replica.data
        splits = {name: split for name, split in data.splits.items() if name != "train"}
        examples: dict[str, Tensor] = {}
        for name, split in splits.items():
            values = self._measure(split, f"{name}_", examples)
            if self.replica.average_P is not None:
                with self._averaged():
                    average = self._measure(split, f"{name}_average_", examples)
                values |= {f"average_{key}": value for key, value in average.items()}
            self._record(name, values)
        self._conclude(examples)

    def keeps_examples(self, split: Split) -> bool:
        """Whether per-example results may be needed now: this may be the last evaluation."""
        may_end = self.is_last or self.replica.recipe.early_stop is not None
        return may_end and not why_not_of_split(split, self.replica.data.facts.task)

    def _conclude(self, examples: dict[str, Tensor]) -> None:
        """Make an evaluation durable; may stop the run early. The last one keeps its examples."""
        self._sync()
        self._consider_stopping()
        if examples and (self.is_last or self.progress.ended):
            values = {name: value.numpy() for name, value in examples.items()}
            self.writer.examples(values, rows_of(self.replica.data))

    def _sync(self) -> None:
        """Make the record durable; a failing disk is reported once, and the rows stay in memory."""
        try:
            self.writer.sync()
            self._troubled = False
        except DamagedError:  # what was measured is lost: continuing would be of no use
            raise
        except StorageError as error:
            if not self._troubled:
                self.say(
                    f"{error}. Training continues; what was measured is kept in memory and written later"
                )
            self._troubled = True

    def _measure(self, split: Split, prefix: str, examples: dict[str, Tensor]) -> dict[str, float]:
        """The metrics on a split; per-example values go into `examples`, if they are kept."""
        replica, each = self.replica, Each()
        values = evaluate(
            replica.model,
            split,
            replica.data.facts.task,
            replica.loss,
            replica.stream.prepare,
            replica.device,
            each=each if self.keeps_examples(split) else None,
        )
        examples |= joined(each, prefix)
        return values

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Inside this context, the model has its averaged weights and running statistics."""
        assert self.replica.average_P is not None
        buffers = real_buffers(self.replica.model)
        current = [self.replica.parameters.weights_P, *buffers.values()]
        average = [self.replica.average_P, *(self.replica.average_buffers[name] for name in buffers)]
        own = [tensor.clone() for tensor in current]
        try:
            _copy_all(average, current)
            yield
        finally:
            _copy_all(own, current)

    def _consider_stopping(self) -> None:
        rule, progress = self.replica.recipe.early_stop, self.progress
        if rule is None:
            return
        higher = larger_is_better(rule.metric) if rule.higher_is_better is None else rule.higher_is_better
        value = progress.metrics[rule.metric] * (1 if higher else -1)
        nothing_yet = progress.best is None or math.isnan(progress.best)
        if nothing_yet or value > (progress.best or 0.0) + rule.minimum_change:
            progress.best, progress.stale = value, 0
            return
        progress.stale += 1
        if progress.stale >= rule.patience:
            progress.ended = True
            self.writer.event("early-stop", step=progress.step, metric=rule.metric)

    # -- watching -------------------------------------------------------------------------------------

    def _tell(self, loss: float, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._watched_at < 0.1:
            return
        self._watched_at = now
        self.writer.heartbeat(self.progress.step, self.total_steps)
        done = self.progress.step - self._session_start
        spent = self.progress.seconds - self._session_seconds
        rate = done / spent if spent > 0 else 0.0
        remaining = (self.total_steps - self.progress.step) / rate if rate > 0 else None
        self.watch(
            Moment(
                step=self.progress.step,
                total_steps=self.total_steps,
                epoch=self.epoch,
                loss=loss,
                metrics=dict(self.progress.metrics),
                seconds=self.progress.seconds,
                remaining_seconds=remaining,
                examples_per_second=rate * self.replica.recipe.batch_size,
            )
        )

    # -- checkpoints ------------------------------------------------------------------------------------

    def _save_is_due(self) -> bool:
        if self.save_every is not None:
            return self.progress.step % self.save_every == 0
        return time.monotonic() - self._saved_at >= self.save_seconds

    def save(self) -> None:
        """Write a checkpoint; if the disk is full, keep the old one, report it and continue training."""
        if self._saved_step == self.progress.step:
            return
        try:
            path = checkpoint.save(self.folder, Checkpoint(self.progress.step, *self.state()))
        except DamagedError:
            raise
        except StorageError as error:
            if self.progress.step == self.total_steps or self.progress.ended:
                raise
            self.say(f"could not save a checkpoint: {error}. Training continues; the previous one is kept")
            self.writer.event("checkpoint-failed", step=self.progress.step, reason=str(error))
        else:
            self.writer.event("checkpoint", step=self.progress.step, path=path.name)
            self._saved_step = self.progress.step
        self._saved_at = time.monotonic()

    def state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """The tensors and plain numbers that `restore` loads."""
        tensors = {"model": dict(self.replica.model.state_dict()), **self._companions()}
        return tensors, {
            "run": self.identity,
            "progress": vars(self.progress).copy(),
            "facts": asdict(self.replica.data.facts),
            "preprocessing": preprocessing(self.replica.data),
            "record": self.writer.mark(),
        }

    @property
    def identity(self) -> str:
        """The name that distinguishes this replica's checkpoints from those of others."""
        return f"{self.replica.recipe.fingerprint}-s{self.replica.seed}"

    def _companions(self) -> dict[str, dict[str, Tensor]]:
        """State besides the weights, by parameter name: the optimizer's memory, the moving average."""
        replica, named = self.replica, self.replica.parameters.named
        memory = {
            f"{slot}/{name}": view
            for slot, values_P in replica.optimizer.state().items()
            for name, view in named(values_P).items()
        }
        companions = {"optimizer": memory}
        if replica.average_P is not None:
            companions["average"] = {**named(replica.average_P), **replica.average_buffers}
        remembered = self.observation.state() if self.observation else {}
        return {**companions, "probes": remembered} if remembered else companions

    def restore(self, saved: Checkpoint) -> None:
        """Load a checkpoint's state."""
        replica = self.replica
        if saved.state["run"] != self.identity:
            raise DamagedError(
                f"the checkpoint in {self.folder} is that of another run, {saved.state['run']}"
            )
        try:
            replica.model.load_state_dict(saved.tensors["model"])
            self._restore_companions(saved.tensors)
        except (RuntimeError, KeyError) as error:
            reason = str(error).splitlines()[-1].strip()
            raise DamagedError(f"the checkpoint belongs to another model or optimizer: {reason}") from None
        self.progress = Progress(**saved.state["progress"])
        if self.observation:
            self.observation.load(self.progress.step, saved.tensors.get("probes", {}))
        self._saved_step = self.progress.step

    @torch.no_grad()
    def _restore_companions(self, tensors: dict[str, dict[str, Tensor]]) -> None:
        replica, named = self.replica, self.replica.parameters.named
        state = replica.optimizer.state()
        for slot, values_P in state.items():
            for name, view in named(values_P).items():
                view.copy_(tensors["optimizer"][f"{slot}/{name}"])
        replica.optimizer.restore(state)
        if replica.average_P is not None:
            for name, view in {**named(replica.average_P), **replica.average_buffers}.items():
                view.copy_(tensors["average"][name])

    def _leave(self, stop: StopRequest) -> None:
        self.save()
        raise interruption(stop, self.progress.step, self.total_steps, self._saved_step)


def interruption(stop: StopRequest, step: int, total_steps: int, saved_step: int) -> TrainingInterruptedError:
    """The error for a training that was asked to stop, which says what the same command resumes from.

    Args:
        stop: The request.
        step: The current step.
        total_steps: The number of steps there were to be.
        saved_step: The step of the newest checkpoint; negative if there is none.
    """
    if saved_step == step:
        kept = "a checkpoint is saved, and the same command resumes from there"
    elif saved_step >= 0:
        kept = f"the newest checkpoint is that of step {saved_step}, and the same command resumes from there"
    else:
        kept = "no checkpoint could be saved, so that the same command starts from the beginning"
    return TrainingInterruptedError(stop.signal_number, f"stopped at step {step} of {total_steps}; {kept}")


def preprocessing(data: Data) -> dict[str, Any]:
    """What is done to inputs before the model sees them, for later use of the model."""
    had_bytes = data.train.inputs.dtype == torch.uint8
    return {"mean": data.mean.tolist(), "std": data.std.tolist(), "had_bytes": had_bytes}


@torch.no_grad()
def _copy_all(sources: list[Tensor], targets: list[Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)
