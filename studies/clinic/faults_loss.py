"""Faults in the loss, and between outputs and targets."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from studies.clinic.faults import fault
from studies.clinic.patients import Draft
from studies.clinic.planting import Spoiled, layers, softmax_of, use


@fault(
    "bad-initial-loss",
    on="mlp/digits cnn-batch-norm/images tanh-mlp/waves functional-mlp/waves cnn-group-norm/digits",
    accepted=("bad-initial-loss", "wrong-gain"),
    prepare=use("momentum", 0.02),
    elsewhere="regression, where no loss is known beforehand; Adam, which forgets it in a few dozen steps",
)
@torch.no_grad()
def bad_initial_loss(draft: Draft) -> None:
    """The last layer's weights far too large: sure and wrong from the start."""
    layers(draft.model)[-1].weight.mul_(100.0)


@fault(
    "double-softmax",
    on="mlp/digits cnn-group-norm/images residual-mlp/digits gru/waves lstm-lm/text",
    elsewhere="regression and binary tasks",
)
def double_softmax(draft: Draft) -> None:
    """Softmax as the last layer, and again inside the cross-entropy."""
    if draft.seed % 2:
        draft.model = nn.Sequential(draft.model, nn.Softmax(dim=-1))
    else:
        draft.model = Spoiled(draft.model, softmax_of)


def _sum_of_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(outputs, targets, reduction="sum")


def _sum_of_tokens(logits_BTV: Tensor, tokens_BT: Tensor) -> Tensor:
    return F.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT.flatten(), reduction="sum")


@fault(
    "wrong-reduction",
    on="mlp/digits functional-mlp/waves tanh-mlp/digits regression-mlp/teacher cnn-group-norm/digits",
    prepare=use("momentum", 0.02),
    elsewhere="adaptive optimizers, which do not feel the loss's scale",
)
def wrong_reduction(draft: Draft) -> None:
    """The sum over the batch instead of the mean: the rate is multiplied by the batch size."""
    if draft.task == "classes":
        draft.loss = nn.CrossEntropyLoss(reduction="sum")
    else:
        draft.loss = _sum_of_squares if draft.task == "regression" else _sum_of_tokens


def _broadcast_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean()


def _broadcast_absolute(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).abs().mean()


@fault(
    "target-shape",
    on="regression-mlp/teacher regression-tanh/friedman regression-residual/teacher regression-mlp/diabetes "
    "regression-residual/friedman",
    elsewhere="classification, where PyTorch refuses such shapes",
)
def target_shape(draft: Draft) -> None:
    """Outputs [B, 1] against targets [B]: every output is compared with every target."""
    draft.train = (draft.train[0], draft.train[1].flatten())
    draft.test = (draft.test[0], draft.test[1].flatten())
    draft.loss = _broadcast_absolute if draft.seed % 3 == 0 else _broadcast_error
