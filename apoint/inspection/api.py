"""`apoint.inspect`: attach probes to any model and report what is wrong, in plain words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from apoint.doctor import StepFailedError, diagnose, patient, undiagnosed
from apoint.doctor.patient import Step
from apoint.inspection.report import Report


def inspect(
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
    quick: bool = False,
    thorough: bool = False,
    seed: int = 0,
    name: str = "",
    say: Callable[[str], None] | None = None,
) -> Report:
    """Find out why a model does not train.

    The model, the optimizer and the random generators are left unchanged; trials run on copies.

    Args:
        model: Any module.
        data: The training data: a pair of tensors (inputs, targets), a dictionary, a `Dataset`, a
            `DataLoader`, or the name of a dataset.
        loss: `loss(outputs, targets)`; None for the model's own loss, or a default that suits the targets.
        optimizer: Your optimizer; without one, the checks that concern it are skipped.
        test: Held-out data, in the same form.
        step: Your own training step `step(model, batch, loss, optimizer)`, to be checked as well; it is
            called with a copy of the model and the optimizer, and should return the loss.
        scheduler: Your learning-rate scheduler, or a function of progress from 0 to 1.
        total_steps: How many steps you intend to train for.
        batch_size: How many examples a step takes; by default the loader's own, or 64.
        quick: Run shorter trials.
        thorough: Run every trial and gather all evidence, even if the cause is already clear.
        seed: The random seed.
        name: The model's name in the report; by default its class.
        say: Called with what is being checked.
    """
    try:
        who = patient(
            model, data, loss, optimizer, test=test, step=step, scheduler=scheduler, total_steps=total_steps,
            batch_size=batch_size, seed=seed,
        )  # fmt: skip
    except StepFailedError as failure:
        diagnosis = undiagnosed(failure)
    else:
        diagnosis = diagnose(who, quick, thorough, say)
    return Report(name or type(model).__name__, diagnosis, summary(model))


def summary(model: nn.Module) -> dict[str, Any]:
    """Facts about a model: the number of weights, in total and by layer."""
    weights = {name: parameter.numel() for name, parameter in model.named_parameters()}
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    layers: dict[str, int] = {}
    for name, number in weights.items():
        owner = name.rpartition(".")[0] or "(model)"
        layers[owner] = layers.get(owner, 0) + number
    return {
        "class": type(model).__name__,
        "parameters": sum(weights.values()),
        "trainable": trainable,
        "layers": layers,
    }
