"""Faults of the training loop: what is trained, in which mode, and with which gradient."""

from __future__ import annotations

import torch
from torch import nn

from studies.clinic import planting
from studies.clinic.datasets import Pair
from studies.clinic.faults import fault
from studies.clinic.patients import Draft, Loss, clipping_step
from studies.clinic.planting import batch_norms, layers, resize, spoil, use

BATCH_NORMED = "cnn-batch-norm/digits cnn-batch-norm/colours resnet/images batch-norm-mlp/waves cnn-1d/curves"


@fault(
    "frozen-parameters",
    on="mlp/digits cnn-batch-norm/images encoder/waves lstm-lm/text residual-mlp/waves",
    defect="weights that were drawn at random are never trained",
)
def frozen(draft: Draft) -> None:
    """Everything but the last layer frozen, as if it had been trained before; or the first half of it."""
    head = layers(draft.model)[-1]
    last = {id(value) for value in head.parameters()}
    others = [value for value in draft.model.parameters() if id(value) not in last]
    for value in others if draft.seed % 2 else others[: max(1, len(others) // 2)]:
        value.requires_grad_(False)


@fault(
    "no-gradient",
    on="mlp/digits cnn-batch-norm/digits encoder/waves functional-mlp/waves regression-residual/teacher",
    defect="the layers before the cut never receive a gradient",
    elsewhere="a tied embedding, which the head still trains",
)
def no_gradient(draft: Draft) -> None:
    """A `.detach()` in the middle of the forward pass."""
    spoil(draft, planting.detached)


@fault(
    "not-in-optimizer",
    on="mlp/digits cnn-group-norm/digits vit/digits lstm-lm/text regression-mlp/friedman",
    defect="layers that the optimizer was not given stay as they were drawn",
)
def not_in_optimizer(draft: Draft) -> None:
    """The optimizer is given the first half of the parameters, or the second, and not the rest."""
    names = [name for name, _ in draft.model.named_parameters()]
    half = len(names) // 2
    kept = set(names[half:] if draft.seed % 2 else names[:half])
    draft.plan.optimised = kept.__contains__


def accumulating_step(model: nn.Module, batch: Pair, loss: Loss, optimizer: torch.optim.Optimizer) -> float:
    """A step that forgets `zero_grad`."""
    inputs, targets = batch
    model.train()
    value = loss(model(inputs), targets)
    value.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return float(value.detach())


@fault(
    "no-zero-grad", on="mlp/digits cnn-batch-norm/images encoder/waves regression-tanh/teacher mixer/digits"
)
def no_zero_grad(draft: Draft) -> None:
    """Gradients of all steps added up."""
    draft.step = accumulating_step


def evaluating_step(model: nn.Module, batch: Pair, loss: Loss, optimizer: torch.optim.Optimizer) -> float:
    """A step in evaluation mode."""
    inputs, targets = batch
    model.eval()
    optimizer.zero_grad()
    value = loss(model(inputs), targets)
    value.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return float(value.detach())


@fault(
    "train-eval-mode",
    on=f"{BATCH_NORMED} mlp/digits residual-mlp/images",
    prepare=lambda draft: None if batch_norms(draft.model) else resize(draft, dropout=0.2),
    defect="dropout never drops and batch norm never sees a batch",
    elsewhere="networks with neither batch norm nor dropout, for which the modes are the same",
)
def train_in_eval_mode(draft: Draft) -> None:
    """Training in evaluation mode, as after an evaluation that did not switch back."""
    draft.step = evaluating_step


@fault(
    "dropout-in-eval",
    on="mlp/digits cnn-group-norm/images encoder/waves regression-mlp/teacher convnext/images",
    defect="predictions change from call to call",
)
def dropout_in_eval(draft: Draft) -> None:
    """`F.dropout(x, 0.5)`, which drops in evaluation too."""
    spoil(draft, planting.always_dropped)


@fault("batchnorm-small-batch", on=BATCH_NORMED, elsewhere="networks without batch norm")
def small_batches(draft: Draft) -> None:
    """Batch norm over two examples."""
    draft.batch_size = 2


@fault("batchnorm-statistics", on=BATCH_NORMED, elsewhere="networks without batch norm")
def wrong_statistics(draft: Draft) -> None:
    """Running statistics that hardly move from where they began, which is wrong by itself or was spoiled."""
    for norm in batch_norms(draft.model):
        norm.momentum = 0.0005
        assert norm.running_mean is not None
        assert norm.running_var is not None
        if draft.seed % 2:
            norm.running_mean.fill_(3.0)
            norm.running_var.fill_(50.0)


@fault(
    "always-clipping",
    on="mlp/digits cnn-group-norm/digits functional-mlp/waves regression-mlp/teacher cnn-batch-norm/colours",
    prepare=use("momentum", 0.02),
    elsewhere="adaptive optimizers, which undo a constant factor",
)
def always_clipping(draft: Draft) -> None:
    """The gradient's norm clipped far below what it ever is."""
    draft.step = clipping_step(1e-3)


SPOILERS = (planting.logarithm, planting.root_of_positive, planting.overflowing)


@fault("non-finite", on="mlp/digits cnn-group-norm/images encoder/waves regression-mlp/friedman lstm-lm/text")
def non_finite(draft: Draft) -> None:
    """A logarithm of negative values, a root at 0, or too large for half precision, inside."""
    spoil(draft, SPOILERS[draft.seed % 3])


@fault(
    "uncontrolled-seed",
    on="mlp/digits cnn-batch-norm/images encoder/waves regression-tanh/teacher lstm-lm/text",
    defect="the same seed gives another network each time",
)
def uncontrolled_seed(draft: Draft) -> None:
    """Noise from a generator that no seed of torch reaches."""
    spoil(draft, planting.noise_of_python if draft.seed % 2 else planting.noise_of_system)


@fault(
    "cannot-overfit-batch",
    on="mlp/digits cnn-group-norm/digits encoder/waves regression-mlp/friedman vit/colours",
    accepted=("cannot-overfit-batch", "mixed-examples"),
)
def cannot_overfit(draft: Draft) -> None:
    """Examples averaged with each other by a mean over the wrong dimension, or outputs held within bounds."""
    if draft.seed % 2:
        spoil(draft, planting.averaged)
    else:
        draft.model = planting.Spoiled(draft.model, planting.bounded)
