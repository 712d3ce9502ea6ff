"""Healthy trainings: draws from the families, each with everything that `apoint.inspect` asks for.

    for patient in healthy("calibration"):
        report = apoint.inspect(**patient.arguments())

A patient is made anew, the same to the bit, each time it is asked; the two splits share no seed, and some
families appear in the publication alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.optim import Lion
from studies.clinic.datasets import Dataset, Pair, Task, dataset
from studies.clinic.families import Family, Size
from studies.clinic.roster import FAMILIES

Split = Literal["calibration", "publication"]
Loss = Callable[[Tensor, Tensor], Tensor]
Step = Callable[[nn.Module, Pair, Loss, torch.optim.Optimizer], float]
Schedule = Callable[[float], float]

FIRST_SEED: dict[Split, int] = {"calibration": 0, "publication": 1000}
NUM_DRAWS: dict[Split, int] = {"calibration": 4, "publication": 2}
WARMUP_SHARE = 0.1


@dataclass
class OptimizerPlan:
    """How the optimizer is made.

    Attributes:
        name: sgd, momentum, nesterov, adam, adamw, rmsprop or lion.
        lr: The learning rate.
        weight_decay: The decay of matrices and kernels.
        decay_of_rest: The decay of norms' gains and of biases.
        optimised: Which parameters, by name, the optimizer is given.
    """

    name: str
    lr: float
    weight_decay: float = 0.0
    decay_of_rest: float = 0.0
    optimised: Callable[[str], bool] = lambda name: True

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of a model; one group where all parameters decay alike."""
        named = [(name, value) for name, value in model.named_parameters() if self.optimised(name)]
        weights = [value for _, value in named if value.dim() > 1]
        rest = [value for _, value in named if value.dim() <= 1]
        groups = [
            {"params": weights, "weight_decay": self.weight_decay},
            {"params": rest, "weight_decay": self.decay_of_rest},
        ]
        if self.weight_decay == self.decay_of_rest:
            groups = [{"params": [value for _, value in named], "weight_decay": self.weight_decay}]
        groups = [group for group in groups if group["params"]]
        return self._make(groups)

    def _make(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        if self.name in ("sgd", "momentum", "nesterov"):
            momentum, nesterov = (0.0 if self.name == "sgd" else 0.9), self.name == "nesterov"
            return torch.optim.SGD(groups, lr=self.lr, momentum=momentum, nesterov=nesterov)
        kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
            "adam": torch.optim.Adam,
            "adamw": torch.optim.AdamW,
            "rmsprop": torch.optim.RMSprop,
            "lion": Lion,
        }
        return kinds[self.name](groups, lr=self.lr)


@dataclass
class Draft:
    """A training before its optimizer is made; faults write into it.

    Attributes:
        family: Where it comes from.
        seed: What it was drawn with.
        size: The network's size.
        model: The network.
        task: What is asked of it.
        num_outputs: The number of classes, of numbers, or of characters.
        train: Inputs and targets to learn from; shared, to be replaced and not written into.
        test: Inputs and targets that are held out; likewise.
        loss: The loss of outputs and targets.
        plan: How the optimizer is made.
        schedule: The name of a schedule, or a function of progress.
        batch_size: Examples per update.
        total_steps: How many updates.
        step: The user's own training step, or None.
    """

    family: Family
    seed: int
    size: Size
    model: nn.Module
    task: Task
    num_outputs: int
    train: Pair
    test: Pair
    loss: Loss
    plan: OptimizerPlan
    schedule: str | Schedule
    batch_size: int
    total_steps: int
    step: Step | None = None

    @property
    def generator(self) -> torch.Generator:
        """Random numbers for a fault, the same each time it is planted."""
        return torch.Generator().manual_seed(7919 + self.seed)

    def arguments(self) -> dict[str, Any]:
        """What `apoint.inspect` takes."""
        optimizer = self.plan.build(self.model)
        return {
            "model": self.model,
            "data": self.train,
            "loss": self.loss,
            "optimizer": optimizer,
            "test": self.test,
            "step": self.step,
            "scheduler": _scheduler(self.schedule, optimizer, self.total_steps),
            "total_steps": self.total_steps,
            "batch_size": min(self.batch_size, len(self.train[0])),
        }


@dataclass(frozen=True)
class Patient:
    """A training, healthy or with a planted fault.

    Attributes:
        name: Unique in the clinic.
        architecture: The network's kind.
        dataset: The data's name.
        seed: Decides every draw.
        fault: The kind of the planted fault; None for the healthy.
        accepted: The codes that name its root cause, the exact one first.
        make: Makes the draft.
    """

    name: str
    architecture: str
    dataset: str
    seed: int
    fault: str | None = field(default=None, kw_only=True)
    accepted: tuple[str, ...] = field(default=(), kw_only=True)
    make: Callable[[], Draft] = field(kw_only=True, repr=False, compare=False)

    def draft(self) -> Draft:
        """The training before its optimizer is made; torch's global generator is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return self.make()

    def arguments(self) -> dict[str, Any]:
        """What `apoint.inspect` takes: model, data, loss, optimizer, test, step, scheduler, sizes."""
        return self.draft().arguments()


def healthy(split: Split) -> list[Patient]:
    """The healthy patients of a split: 4 draws of each family to calibrate with, 2 to publish with."""
    first, count = FIRST_SEED[split], NUM_DRAWS[split]
    chosen = [family for family in FAMILIES if split in family.splits]
    return [of_family(family, first + number) for number in range(count) for family in chosen]


def of_family(family: Family, seed: int) -> Patient:
    """The healthy patient that a family gives for a seed."""
    name = f"{family.name}/{seed}"
    return Patient(name, family.architecture, family.dataset, seed, make=lambda: drawn(family, seed))


def drawn(family: Family, seed: int) -> Draft:
    """One draw from a family; network weights come from torch's global generator, which `Patient` seeds."""
    choose = random.Random(f"{family.name}/{seed}")
    data = dataset(family.dataset, seed)
    size = Size(choose.choice(family.widths), choose.choice(family.depths), choose.choice(family.dropouts))
    schedule = choose.choice(family.schedules)
    return Draft(
        family=family,
        seed=seed,
        size=size,
        model=family.build(data, size),
        task=data.task,
        num_outputs=data.num_outputs,
        train=data.train,
        test=data.test,
        loss=loss_of(data),
        plan=_plan(family, choose),
        schedule=schedule,
        batch_size=choose.choice(family.batch_sizes),
        total_steps=family.total_steps,
        step=choose.choice([None, None, plain_step, clipping_step(5.0)]),
    )


def _plan(family: Family, choose: random.Random) -> OptimizerPlan:
    """An optimizer within the family's range; descent may decay all alike, as is usual, but only a little."""
    name = choose.choice(sorted(family.rates))
    low, high = family.rates[name]
    plan = OptimizerPlan(name, math.exp(choose.uniform(math.log(low), math.log(high))))
    if name in ("adamw", "lion"):
        plan.weight_decay = choose.choice([0.01, 0.05])
    elif name in ("sgd", "momentum", "nesterov"):
        plan.weight_decay = choose.choice([0.0, 1e-4, 5e-4])
        plan.decay_of_rest = choose.choice([0.0, plan.weight_decay])
    return plan


def loss_of(data: Dataset) -> Loss:
    """The loss that fits a task, as a mean over everything that is predicted."""
    losses: dict[str, Loss] = {
        "classes": nn.CrossEntropyLoss(),
        "binary": nn.BCEWithLogitsLoss(),
        "regression": nn.MSELoss(),
        "language": token_loss,
    }
    return losses[data.task]


def token_loss(logits_BTV: Tensor, tokens_BT: Tensor) -> Tensor:
    """The mean cross-entropy over all places of all sequences."""
    return F.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT.flatten())


def plain_step(model: nn.Module, batch: Pair, loss: Loss, optimizer: torch.optim.Optimizer) -> float:
    """A correct training step."""
    inputs, targets = batch
    model.train()
    optimizer.zero_grad()
    value = loss(model(inputs), targets)
    value.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return float(value.detach())


def clipping_step(max_norm: float) -> Step:
    """A correct training step that clips the gradient's norm."""

    def step(model: nn.Module, batch: Pair, loss: Loss, optimizer: torch.optim.Optimizer) -> float:
        inputs, targets = batch
        model.train()
        optimizer.zero_grad()
        value = loss(model(inputs), targets)
        value.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        return float(value.detach())

    return step


def warmup(progress: float) -> float:
    """Up in a straight line during the first tenth, then constant."""
    return min(1.0, (progress + 1e-3) / WARMUP_SHARE)


def cosine(progress: float) -> float:
    """Half a cosine, from 1 to a hundredth."""
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def warmup_cosine(progress: float) -> float:
    """Up during the first tenth, then half a cosine."""
    rest = max(0.0, progress - WARMUP_SHARE) / (1 - WARMUP_SHARE)
    return warmup(progress) * cosine(rest)


SCHEDULES: dict[str, Schedule] = {"warmup": warmup, "cosine": cosine, "warmup-cosine": warmup_cosine}


def _scheduler(
    schedule: str | Schedule, optimizer: torch.optim.Optimizer, total_steps: int
) -> Schedule | torch.optim.lr_scheduler.LRScheduler | None:
    if callable(schedule):
        return schedule
    if schedule == "torch-cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total_steps)
    if schedule == "torch-dead":
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.3)
    return SCHEDULES.get(schedule)
