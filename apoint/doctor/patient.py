"""A patient: a model with its data, loss, optimizer and training code, as the user has them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from apoint.doctor.copies import default_optimizer
from apoint.doctor.examples import Examples, examples
from apoint.doctor.failure import StepFailedError
from apoint.errors import UsageError
from apoint.probes import Batch, Subject
from apoint.registry import registry

Step = Callable[[nn.Module, Any, Any, torch.optim.Optimizer], Any]
DEFAULT_STEPS = 300


@dataclass
class Patient:
    """Everything an examination may look at. It works on copies; nothing here is changed.

    Attributes:
        model: The model.
        train: The training data.
        test: The held-out data, or None.
        loss: The loss; see `Subject`.
        optimizer: The optimizer; a default one if none was given.
        step: The user's own training step `step(model, batch, loss, optimizer)`, or None.
        factors: The factor on the learning rate at each step; empty if the rate is constant.
        total_steps: How many steps training takes.
        seed: The random seed.
        given: Which of `loss`, `optimizer`, `step`, `schedule`, `test` the user gave.
        test_failure: Why the held-out data, or the rest of it, could not be loaded.
    """

    model: nn.Module
    train: Examples
    test: Examples | None
    loss: Any
    optimizer: torch.optim.Optimizer | None
    step: Step | None = None
    factors: Sequence[float] = ()
    total_steps: int = DEFAULT_STEPS
    seed: int = 0
    given: frozenset[str] = field(default_factory=frozenset)
    test_failure: StepFailedError | None = None

    def subject(self, batch: Batch | None = None, model: nn.Module | None = None) -> Subject:
        """The model with its loss and a batch; by default the first training batch."""
        return Subject(model or self.model, batch or self.first_batch, self.loss)

    @property
    def first_batch(self) -> Batch:
        """The first training batch."""
        return next(self.train.batches(self.seed))


def patient(
    model: nn.Module,
    data: Any,
    loss: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    test: Any = None,
    step: Step | None = None,
    scheduler: Any = None,
    total_steps: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
) -> Patient:
    """Build a patient from what a user has; see `apoint.inspect` for the arguments."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"a model to inspect is a torch.nn.Module, got {type(model).__name__}")
    if any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in model.parameters()):
        raise UsageError("the model has lazy layers that have no weights yet; call it with a batch first")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(loss, str):
        registry("loss")[loss]  # raises if the name is unknown
    elif loss is not None and not callable(loss):
        raise UsageError(f"loss must be a function loss(outputs, targets), got {type(loss).__name__}")
    given = {"loss": loss, "optimizer": optimizer, "step": step, "schedule": scheduler, "test": test}
    steps = total_steps or DEFAULT_STEPS
    held_out, test_failure = _held_out(model, test, batch_size, seed)
    return Patient(
        model=model,
        train=examples(model, data, batch_size, seed),
        test=held_out,
        loss=loss,
        optimizer=optimizer if optimizer is not None else default_optimizer(model),
        step=step,
        factors=schedule_factors(scheduler, steps),
        total_steps=steps,
        seed=seed,
        given=frozenset(name for name, value in given.items() if value is not None),
        test_failure=test_failure,
    )


def _held_out(
    model: nn.Module, test: Any, batch_size: int | None, seed: int
) -> tuple[Examples | None, StepFailedError | None]:
    if test is None:
        return None, None
    try:
        found = examples(model, test, batch_size, seed)
    except StepFailedError as failure:
        return None, failure
    return found, found.failure


def schedule_factors(scheduler: Any, total_steps: int) -> list[float]:
    """The factor of a schedule on the learning rate at each step; empty without a schedule.

    Args:
        scheduler: A scheduler of `torch.optim.lr_scheduler`, stepped on a copy; or a function of progress.
        total_steps: How many steps training takes.
    """
    if scheduler is None:
        return []
    if isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler):
        return _simulated(scheduler, total_steps)
    if callable(scheduler):
        return [float(scheduler(step / total_steps)) for step in range(total_steps)]
    raise UsageError(
        "scheduler must be a torch.optim.lr_scheduler or a function of progress, got "
        f"{type(scheduler).__name__}"
    )


def _simulated(scheduler: Any, total_steps: int) -> list[float]:
    twin = copy.deepcopy(scheduler)
    group = twin.optimizer.param_groups[0]
    base = float(group.get("initial_lr", group["lr"])) or 1.0
    factors = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that the copy's optimizer makes no steps
        for _ in range(total_steps):
            factors.append(float(group["lr"]) / base)
            try:
                twin.step()
            except (ValueError, TypeError):  # past its end, or it needs a metric
                factors += [factors[-1]] * (total_steps - len(factors))
                break
    return factors[:total_steps]


def as_written(batch: Batch) -> Any:
    """A batch as the user's training step takes it: `(inputs, targets)`, or the model's inputs alone."""
    inputs: Any = (
        dict(batch.kwargs) if batch.kwargs else batch.args[0] if len(batch.args) == 1 else batch.args
    )
    return inputs if batch.targets is None else (inputs, batch.targets)


def squared_norm(tensors: Sequence[Tensor]) -> float:
    """The sum of squares of all entries."""
    if not tensors:
        return 0.0
    return float(torch.stack(torch._foreach_norm(list(tensors))).double().square().sum())
