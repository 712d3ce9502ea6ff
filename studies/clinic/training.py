"""A plain training of a patient, by which its health, or the harm of its fault, is shown.

Nothing of the doctor's takes part, so that the clinic does not judge the doctor by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from studies.clinic.datasets import Pair
from studies.clinic.patients import Draft, Patient, plain_step

NUM_LOOKS = 6
MOST_TESTED = 400
MOST_TEXTS = 80


@dataclass(frozen=True)
class Outcome:
    """What came of a training.

    Attributes:
        first_loss: The loss on the training data before the first step.
        last_loss: The loss on the training data at the end.
        test_losses: The loss on held-out data, along the way.
        score: Accuracy, R², or for language 1 minus the loss as a share of that of letter frequencies.
        chance: The score of an answer that does not look at the inputs.
    """

    first_loss: float
    last_loss: float
    test_losses: tuple[float, ...]
    score: float
    chance: float

    @property
    def skill(self) -> float:
        """How much of the way from chance to a perfect score was gone; 0 where the numbers are not finite."""
        share = (self.score - self.chance) / (1 - self.chance)
        return share if math.isfinite(share) and math.isfinite(self.last_loss) else 0.0


def train(patient: Patient, seed: int = 0) -> Outcome:
    """Train a patient for all its steps."""
    with torch.random.fork_rng(devices=[]):
        draft = patient.draft()
        torch.manual_seed(seed)
        return _train(draft, seed)


def _train(draft: Draft, seed: int) -> Outcome:
    arguments = draft.arguments()
    model, optimizer, scheduler = arguments["model"], arguments["optimizer"], arguments["scheduler"]
    rates = [group["lr"] for group in optimizer.param_groups]
    step = draft.step or plain_step
    looks = {round(draft.total_steps * (n + 1) / NUM_LOOKS) - 1 for n in range(NUM_LOOKS)}
    first, held_out = _loss(draft, model, draft.train), []
    for number, batch in enumerate(batches(draft.train, arguments["batch_size"], draft.total_steps, seed)):
        if callable(scheduler) and not hasattr(scheduler, "step"):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * scheduler(number / draft.total_steps)
        step(model, batch, draft.loss, optimizer)
        if hasattr(scheduler, "step"):
            scheduler.step()
        if number in looks:
            held_out.append(_loss(draft, model, draft.test))
    score, chance = scores(draft, model)
    return Outcome(first, _loss(draft, model, draft.train), tuple(held_out), score, chance)


def batches(data: Pair, batch_size: int, num_steps: int, seed: int) -> Iterator[Pair]:
    """Random batches without replacement, epoch after epoch; a last incomplete one is left out."""
    generator = torch.Generator().manual_seed(seed)
    inputs, targets = data
    made = 0
    while True:
        order = torch.randperm(len(inputs), generator=generator)
        for index in torch.split(order, batch_size):
            if len(index) < batch_size and len(inputs) >= batch_size:
                continue
            if made == num_steps:
                return
            made += 1
            yield inputs[index], targets[index]


def _sample(data: Pair) -> Pair:
    """Not more rows than needed for a number, evenly spread."""
    most = MOST_TESTED if data[0].is_floating_point() else MOST_TEXTS
    stride = max(1, math.ceil(len(data[0]) / most))
    return data[0][::stride], data[1][::stride]


@torch.no_grad()
def _outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    model.eval()
    outputs: Tensor = model(inputs)
    model.train()
    return outputs


@torch.no_grad()
def _loss(draft: Draft, model: nn.Module, data: Pair) -> float:
    inputs, targets = _sample(data)
    return float(draft.loss(_outputs(model, inputs), targets))


@torch.no_grad()
def scores(draft: Draft, model: nn.Module) -> tuple[float, float]:
    """The score on held-out data, and chance's; see `Outcome`."""
    inputs, targets = _sample(draft.test)
    outputs = _outputs(model, inputs)
    if draft.task == "classes":
        return float((outputs.argmax(-1) == targets).float().mean()), _most_frequent(targets)
    if draft.task == "binary":
        right = (outputs.view_as(targets) > 0) == (targets > 0.5)
        return float(right.float().mean()), _most_frequent(targets.long())
    if draft.task == "regression":
        error = (outputs.view_as(targets) - targets).square().mean()
        return float(1 - error / targets.var(correction=0)), 0.0
    return 1 - token_share(outputs, targets, draft.train[1]), 0.0


def token_share(logits_BTV: Tensor, tokens_BT: Tensor, known: Tensor) -> float:
    """The cross-entropy as a share of that of the letters' frequencies in the training text."""
    counts = torch.bincount(known.flatten(), minlength=logits_BTV.shape[-1]).double() + 1
    of_letters = -(counts / counts.sum()).log()[tokens_BT].mean()
    own = torch.nn.functional.cross_entropy(logits_BTV.flatten(0, 1).double(), tokens_BT.flatten())
    return float(own / of_letters)


def _most_frequent(labels: Tensor) -> float:
    return float(torch.bincount(labels.flatten()).max() / labels.numel())
