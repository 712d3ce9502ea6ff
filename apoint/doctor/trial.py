"""A short training run on a copy that records losses, updates, and gradients as computed and as applied.

Hooks on the parameters and on the optimizer do the recording, so the user's own training step runs unchanged
and its mistakes show.
"""

from __future__ import annotations

import inspect
import math
import numbers
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from apoint.doctor.copies import copied
from apoint.doctor.examples import Examples
from apoint.doctor.failure import StepFailedError, part, shown
from apoint.doctor.patient import Patient, Step, as_written, squared_norm
from apoint.errors import UsageError
from apoint.nn import elementary_attention
from apoint.probes import Batch, Subject, preserve_state

UPDATES_EVERY = 5
FEW = 16  # with fewer examples per batch, the loss of one batch says too little
JUDGED_ON = 128
DIVERGED = 1e6  # times the initial loss


@dataclass
class History:
    """The record of a trial.

    Attributes:
        losses: The loss of each step's batch, before the step.
        arising: The gradient norm that backpropagation gave, at each step.
        applied: The gradient norm that the optimizer received.
        rates: The learning rate of the first group.
        updates: The size of updates relative to the weights, by layer, every few steps.
        gradients: The gradient norm, by layer, every few steps.
        evaluating: The number of steps with the model in eval mode.
        stale: The number of steps at which gradients were added to those of an earlier step.
        steps: The number of steps made.
        ended: Why it ended early; empty if it did not.
        failure: The error that ended it, if any, and the batch on which it was raised.
        judged: If batches are small, the loss on many examples before the first step and after the last.
        model: The model after training.
    """

    model: nn.Module
    losses: list[float] = field(default_factory=list)
    arising: list[float] = field(default_factory=list)
    applied: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    updates: dict[str, list[float]] = field(default_factory=dict)
    gradients: dict[str, list[float]] = field(default_factory=dict)
    evaluating: int = 0
    stale: int = 0
    steps: int = 0
    ended: str = ""
    failure: tuple[StepFailedError, Batch] | None = None
    judged: list[float] = field(default_factory=list)

    @property
    def first(self) -> float:
        """The initial loss, on the first batch or on many examples."""
        if self.judged:
            return self.judged[0]
        return self.losses[0] if self.losses else math.nan

    @property
    def last(self) -> float:
        """The final loss: the median of the last tenth, or on many examples; infinite if it diverged."""
        if self.ended or not self.losses:
            return math.inf
        if self.judged:
            return self.judged[-1] if math.isfinite(self.judged[-1]) else math.inf
        return statistics.median(self.losses[-max(5, len(self.losses) // 10) :])

    @property
    def best(self) -> float:
        """The lowest mean loss over windows of five steps."""
        if not self.losses:
            return math.inf
        windows = [statistics.fmean(self.losses[i : i + 5]) for i in range(max(1, len(self.losses) - 4))]
        return min((value for value in windows if math.isfinite(value)), default=math.inf)


def plain_loss(model: nn.Module, batch: Batch, loss: Any) -> Tensor:
    """The loss of a batch; any failure raises `StepFailedError`."""
    subject = Subject(model, batch, loss)
    with part("forward"):
        raw = subject.raw_outputs()
    with part("loss", raw):
        value = subject.loss_of(raw, batch)
        if not isinstance(value, Tensor):
            raise TypeError(f"the loss is a {type(value).__name__}, not a tensor")
    return value


def plain_step(model: nn.Module, batch: Batch, loss: Any, optimizer: torch.optim.Optimizer) -> float:
    """Make a correct training step; any failure raises `StepFailedError`."""

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = plain_loss(model, batch, loss)
        with part("backward", value=value):
            value.backward()  # type: ignore[no-untyped-call]
        return value.detach()

    if _needs_closure(optimizer):
        with part("update"):
            return float(optimizer.step(closure))  # type: ignore[arg-type]
    value = closure()
    with part("update"):
        optimizer.step()
    return float(value)


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether `step` requires a closure that computes the loss, as in L-BFGS."""
    parameters = inspect.signature(type(optimizer).step).parameters
    return "closure" in parameters and parameters["closure"].default is inspect.Parameter.empty


def any_step(
    step: Step | None, model: nn.Module, batch: Batch, loss: Any, optimizer: torch.optim.Optimizer
) -> float:
    """Make the user's own training step, or a plain one; any failure raises `StepFailedError`."""
    if step is None:
        return plain_step(model, batch, loss, optimizer)
    with part("step"):
        value = step(model, as_written(batch), loss, optimizer)
        if isinstance(value, Tensor) and value.numel() == 1:
            return float(value.detach())
        if value is not None and not isinstance(value, numbers.Real):
            raise TypeError(f"the step returns {shown(value)}, and should return the loss")
    return float(value) if value is not None else _unreturned(model, batch, loss)


def _unreturned(model: nn.Module, batch: Batch, loss: Any) -> float:
    """The loss if the user's step does not return it; not the user's fault if it cannot be computed."""
    try:
        with torch.no_grad():
            return float(plain_loss(model, batch, loss))
    except StepFailedError as failure:
        raise UsageError(
            f"your training step returns no loss, and outside of it {failure}; return the loss from it"
        ) from failure


def trial(
    patient: Patient,
    steps: int,
    *,
    rate: float = 1.0,
    warmup: int = 0,
    batch: Batch | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    own_step: bool = True,
    seed: int | None = None,
    batch_size: int | None = None,
    watched: bool = True,
) -> History:
    """Train a copy of a patient's model for some steps.

    Args:
        patient: The patient.
        steps: How many steps to make.
        rate: The factor on the learning rate.
        warmup: The number of steps over which the rate rises from 0, on top of the patient's own schedule.
        batch: Train on this batch only.
        optimizer: An optimizer other than the patient's, made for the patient's model.
        own_step: Use the user's own training step, if there is one.
        seed: Sets the order of the data; the patient's own seed by default.
        batch_size: How many examples a step takes; the patient's batch size by default.
        watched: Put hooks on parameters and optimizer; without them, only losses are seen.
    """
    model, moved = copied(patient.model, optimizer or patient.optimizer)
    assert moved is not None, "a model without weights is not trained"
    watcher = _Watcher(model, moved)
    step = patient.step if own_step and patient.step is not None else None
    base = [float(group["lr"]) * rate for group in moved.param_groups]
    examples = Examples(patient.train.whole, batch_size or patient.train.batch_size)
    batches = examples.batches(patient.seed if seed is None else seed)
    few = batch is None and patient.train.batch_size < FEW
    sample = patient.train.some(min(JUDGED_ON, len(patient.train)), patient.seed) if few else None
    if step is None:
        model.train()
    with ExitStack() as stack:
        if watched:
            stack.enter_context(watcher.watching())
            stack.enter_context(elementary_attention())
        stack.enter_context(own_randomness(patient.seed))
        stack.enter_context(torch.enable_grad())
        if sample is not None:
            watcher.history.judged.append(_judged(patient, model, sample))
        for number in range(steps):
            own = 1.0 if optimizer is not None else _factor(patient, number)
            factor = own * min(1.0, (number + 1) / warmup if warmup else 1.0)
            for group, value in zip(moved.param_groups, base, strict=True):
                group["lr"] = value * factor
            chosen = batch or next(batches)
            _made(watcher, step, model, chosen, patient.loss, moved)
            if watcher.history.ended:
                break
    if sample is not None:
        watcher.history.judged.append(_judged(patient, model, sample))
    return watcher.history


def _judged(patient: Patient, model: nn.Module, sample: Batch) -> float:
    with preserve_state(model, patient.seed, mode=True), torch.no_grad():
        return float(Subject(model, sample, patient.loss).loss())


def _factor(patient: Patient, number: int) -> float:
    return patient.factors[min(number, len(patient.factors) - 1)] if patient.factors else 1.0


def _made(
    watcher: _Watcher, step: Step | None, model: nn.Module, batch: Batch, loss: Any, optimizer: Any
) -> None:
    history = watcher.history
    history.rates.append(float(optimizer.param_groups[0]["lr"]))
    try:
        watcher.close_step(any_step(step, model, batch, loss, optimizer))
    except StepFailedError as failure:
        history.ended, history.failure = str(failure), (failure, batch)


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Seed the random generators, and restore their states afterwards."""
    import random

    import numpy

    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        numpy.random.set_state(states[2])


class _Watcher:
    """Hooks on a model and an optimizer that fill a history."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.history = History(model)
        self.model, self.optimizer = model, optimizer
        self.named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.layers: dict[str, list[Tensor]] = {}
        for name, parameter in self.named.items():
            self.layers.setdefault(name.rpartition(".")[0] or "(model)", []).append(parameter)
        self._arising: dict[int, Tensor] = {}
        self._begun: dict[int, int] = {}
        self._was_evaluating = self._was_stale = False
        self._before: dict[str, list[Tensor]] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        parameters: list[Any] = list(self.named.values())  # PyTorch leaves their hooks untyped
        handles = [
            self.model.register_forward_pre_hook(self._forward),
            *(p.register_post_accumulate_grad_hook(self._accumulated) for p in parameters),
            *(p.register_hook(self._arrival(p)) for p in parameters[:1] + parameters[-1:]),
            self.optimizer.register_step_pre_hook(self._before_update),
            self.optimizer.register_step_post_hook(self._after_update),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _forward(self, model: nn.Module, args: Any) -> None:
        self._was_evaluating |= not model.training

    def _arrival(self, parameter: Tensor) -> Callable[[Tensor], None]:
        """A hook for a gradient about to be added to `.grad`, which may hold one from an earlier step."""

        def arrives(_: Tensor) -> None:
            held = parameter.grad
            if held is None or not bool(held.any()):
                self._begun[id(parameter)] = self.history.steps
            elif self._begun.get(id(parameter), self.history.steps) < self.history.steps:
                self._was_stale = True

        return arrives

    def _accumulated(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self._arising[id(parameter)] = parameter.grad.detach().norm()

    def _before_update(self, *_: Any) -> None:
        history = self.history
        held = [parameter.grad for parameter in self.named.values() if parameter.grad is not None]
        history.applied.append(math.sqrt(squared_norm(held)))
        norms = list(self._arising.values())
        history.arising.append(float(torch.stack(norms).double().norm()) if norms else 0.0)
        self._arising.clear()
        if history.steps % UPDATES_EVERY == 0:
            self._before = {name: [p.detach().clone() for p in layer] for name, layer in self.layers.items()}
            for name, layer in self.layers.items():
                held = [p.grad for p in layer if p.grad is not None]
                history.gradients.setdefault(name, []).append(math.sqrt(squared_norm(held)))

    def _after_update(self, *_: Any) -> None:
        if self._before is None:
            return
        for name, before in self._before.items():
            moved = [p.detach() - b for p, b in zip(self.layers[name], before, strict=True)]
            size = math.sqrt(squared_norm(before))
            ratio = math.sqrt(squared_norm(moved)) / size if size > 0 else math.nan
            self.history.updates.setdefault(name, []).append(ratio)
        self._before = None

    def close_step(self, loss: float) -> None:
        history = self.history
        history.losses.append(loss)
        history.steps += 1
        history.evaluating += self._was_evaluating
        history.stale += self._was_stale
        self._was_evaluating = self._was_stale = False
        if not math.isfinite(loss):
            history.ended = f"the loss is {loss} at step {history.steps}"
        elif history.applied and not math.isfinite(history.applied[-1]):
            history.ended = f"the gradient is not finite at step {history.steps}"
        elif abs(loss) > DIVERGED * max(1.0, abs(history.losses[0])):
            history.ended = f"the loss has grown to {loss:.3g} at step {history.steps}"
