"""Losses: how wrong the outputs are, one number per example.

`loss("cross-entropy")` gives a function `(outputs, targets) -> losses` whose result has shape [B] and is
*not* averaged over the batch, so that examples can be weighted, ranked and masked. Where an example has
several outputs (positions of a text, components of a vector), its loss is their mean; the mean over examples
then equals PyTorch's `reduction="mean"`.

Shapes: B batch, P further axes of positions (none, or T in texts), C classes, K components.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from apoint.errors import UsageError
from apoint.registry import register, registry
from apoint.settings import Positive, Share, Spec

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps outputs and targets to the per-example losses, of shape [B]."""


def loss(spec: Spec) -> Loss:
    """Build a loss from its name, or from `{name: …, setting: value}`."""
    made: Loss = registry("loss").build(spec)
    return made


def cross_entropy(outputs: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of softmax(outputs) of each example; see the ingredient `cross-entropy`.

    Args:
        outputs: Logits, [B, C] or [B, T, C].
        targets: Class indices, [B] or [B, T]; or class probabilities, with the shape of `outputs`.
        label_smoothing: The share ε of the target that is spread evenly over the classes.
    """
    log_p_BPC = F.log_softmax(outputs, dim=-1)
    if _are_indices(outputs, targets, "cross-entropy"):
        losses_BP = -log_p_BPC.gather(-1, targets.long()[..., None]).squeeze(-1)
    else:
        losses_BP = -(targets * log_p_BPC).sum(-1)
    if label_smoothing > 0:
        losses_BP = (1 - label_smoothing) * losses_BP - label_smoothing * log_p_BPC.mean(-1)
    return _mean_per_example(losses_BP)


def brier(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared distance of softmax(outputs) from the target of each example; see the ingredient `brier`.

    Args:
        outputs: Logits, [B, C] or [B, T, C].
        targets: Class indices, [B] or [B, T]; or class probabilities, with the shape of `outputs`.
    """
    p_BPC = outputs.softmax(dim=-1)
    if _are_indices(outputs, targets, "brier"):
        targets = F.one_hot(targets.long(), outputs.shape[-1])
    return _mean_per_example((p_BPC - targets).square().sum(-1))


def binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of σ(outputs) of each example; see the ingredient `binary-cross-entropy`.

    Args:
        outputs: Logits: [B] or [B, 1] for one question, [B, C] for several.
        targets: Answers 0 or 1, or probabilities, with the shape of `outputs` ([B] is accepted for [B, 1]);
            or class indices [B] for outputs [B, C], where the answer is yes for that class and no for the
            others.
    """
    is_class_index = not targets.is_floating_point() and outputs.dim() == 2 and outputs.shape[1] > 1
    if is_class_index and targets.shape == outputs.shape[:1]:
        targets = F.one_hot(targets.long(), outputs.shape[1])
    outputs, targets = _alike(outputs, targets, "binary-cross-entropy")
    return _mean_per_example(F.binary_cross_entropy_with_logits(outputs, targets, reduction="none"))


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared error of each example, the mean over its components; see the ingredient `squared-error`."""
    outputs, targets = _alike(outputs, targets, "squared-error")
    return _mean_per_example((outputs - targets).square())


def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Absolute error of each example, the mean over its components; see the ingredient `absolute-error`."""
    outputs, targets = _alike(outputs, targets, "absolute-error")
    return _mean_per_example((outputs - targets).abs())


def huber(outputs: Tensor, targets: Tensor, delta: float = 1.0) -> Tensor:
    """Huber's loss of each example, the mean over its components; see the ingredient `huber`."""
    outputs, targets = _alike(outputs, targets, "huber")
    return _mean_per_example(F.huber_loss(outputs, targets, reduction="none", delta=delta))


def _mean_per_example(losses: Tensor) -> Tensor:
    return losses.flatten(1).mean(1) if losses.dim() > 1 else losses


def _are_indices(outputs: Tensor, targets: Tensor, name: str) -> bool:
    """Whether the targets are class indices; raise if they are neither indices nor class probabilities."""
    if outputs.dim() >= 2:
        if not targets.is_floating_point() and targets.shape == outputs.shape[:-1]:
            return True
        if targets.is_floating_point() and targets.shape == outputs.shape:
            return False
        raise UsageError(
            f"loss {name!r}: outputs of shape {list(outputs.shape)} need whole-number targets of shape "
            f"{list(outputs.shape[:-1])} (class indices) or real ones of shape {list(outputs.shape)} "
            f"(probabilities), got {_described(targets)}"
        )
    raise UsageError(
        f"loss {name!r}: outputs must have a last axis of classes, as in [batch, classes], got "
        f"{_described(outputs)}; for one output per example take 'binary-cross-entropy'"
    )


def _alike(outputs: Tensor, targets: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Outputs and targets with the same shape and dtype; [B, 1] matches [B], nothing else is broadcast."""
    if outputs.dim() == targets.dim() + 1 and outputs.shape[-1] == 1:
        outputs = outputs.squeeze(-1)
    if outputs.shape != targets.shape or outputs.dim() == 0:
        raise UsageError(
            f"loss {name!r}: outputs of shape {list(outputs.shape)} need targets of the same shape, got "
            f"{_described(targets)}"
        )
    return outputs, targets.to(outputs.dtype)


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {list(tensor.shape)}"


@register("loss", "cross-entropy", course="A3 D7", tasks=("classification", "language"))
def cross_entropy_loss(*, label_smoothing: Share = 0.0) -> Loss:
    """Cross-entropy of the softmax, -Σ_c q_c·ln p_c with p = softmax(outputs).

    The negative log-likelihood of the classes; proper, so its minimum over all functions is calibrated.
    The target q is 1 at the class and 0 elsewhere, or the given probabilities (mix-up); smoothing replaces
    it by (1 - ε)·q + ε/C. For a text, it is the mean over positions. PyTorch ignores targets of -100; here
    every target counts, and a target that is not a class is an error.

    Args:
        label_smoothing: The share ε of the target that is spread evenly over the C classes.

    Reference: Szegedy et al. (2016), Rethinking the inception architecture (for the smoothing).
    """
    return functools.partial(cross_entropy, label_smoothing=label_smoothing)


@register("loss", "brier", course="D7", tasks=("classification", "language"))
def brier_loss() -> Loss:
    """Brier's score, Σ_c (p_c - q_c)² with p = softmax(outputs), between 0 and 2.

    Proper like cross-entropy, but bounded, so that confident mistakes and wrong labels weigh less. The sum
    runs over all C classes, as in Brier's paper; for two classes it is twice the square of one probability's
    error, which scikit-learn's `brier_score_loss` returns. Not in PyTorch.

    Reference: Brier (1950), Verification of forecasts expressed in terms of probability.
    """
    return brier


@register("loss", "binary-cross-entropy", course="A3 D7", tasks=("classification",))
def binary_cross_entropy_loss() -> Loss:
    """Cross-entropy of the sigmoid, -(y·ln p + (1 - y)·ln(1 - p)) with p = σ(output).

    For a yes-or-no question with one output, or for C such questions with C outputs: each class is then a
    separate question, and the loss is the mean over classes. Takes logits, like PyTorch's `…_with_logits`.

    Reference: `torch.nn.BCEWithLogitsLoss`.
    """
    return binary_cross_entropy


@register("loss", "squared-error", course="A3", tasks=("regression",))
def squared_error_loss() -> Loss:
    """The squared error (ŷ - y)², mean over the components of ŷ.

    Its minimum is the conditional mean. There is no factor 1/2.

    Reference: `torch.nn.MSELoss`.
    """
    return squared_error


@register("loss", "absolute-error", course="A3", tasks=("regression",))
def absolute_error_loss() -> Loss:
    """The absolute error |ŷ - y|, mean over the components of ŷ.

    Its minimum is the conditional median, so that outliers weigh less. The slope at ŷ = y is 0.

    Reference: `torch.nn.L1Loss`.
    """
    return absolute_error


@register("loss", "huber", course="A3", tasks=("regression",))
def huber_loss(*, delta: Positive = 1.0) -> Loss:
    """Huber's loss, r²/2 for |r| ≤ δ and δ(|r| - δ/2) beyond, with r = ŷ - y; mean over the components of ŷ.

    Squared near 0, absolute far away. PyTorch's `SmoothL1Loss` is this divided by δ.

    Args:
        delta: The error δ beyond which the loss grows linearly.

    Reference: Huber (1964), Robust estimation of a location parameter.
    """
    return functools.partial(huber, delta=delta)
