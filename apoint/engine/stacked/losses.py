"""The losses of all replicas' examples at once.

A loss returns one value per example, independent of the other examples, so replicas are further examples.
One case has a separate form, cross-entropy over few classes: PyTorch's softmax along the last axis
vectorises within one row, and with ten classes most of such a vector is empty. Laid out class by class it
vectorises across examples, and is several times as fast; in a stack of small perceptrons it would otherwise
take a seventh of the whole step.

Axis letters: R replicas, b examples of a part, C classes, N = R·b.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from apoint.nn.losses import cross_entropy

Loss = Callable[[Tensor, Tensor], Tensor]
FEW = 16
"""From this many classes on, the last axis is long enough; in measurements, both forms are equal near 20."""


def example_losses(loss: Loss, outputs: Tensor, y: Tensor) -> Tensor:
    """The losses [R, b] of all examples.

    Args:
        loss: The loss, which all replicas share.
        outputs: The outputs [R, b, …].
        y: The targets [R, b, …].
    """
    if _is_plain_cross_entropy(loss) and _are_few_classes(outputs, y):
        losses: Tensor = _ClassByClass.apply(outputs, y)  # type: ignore[no-untyped-call]
        return losses
    return loss(outputs.flatten(0, 1), y.flatten(0, 1)).view(y.shape[:2])


def _is_plain_cross_entropy(loss: Loss) -> bool:
    is_it = isinstance(loss, functools.partial) and loss.func is cross_entropy and not loss.args
    return is_it and loss.keywords in ({}, {"label_smoothing": 0.0})  # type: ignore[attr-defined]


def _are_few_classes(outputs: Tensor, y: Tensor) -> bool:
    one_index_each = y.dtype == torch.int64 and y.shape == outputs.shape[:-1]
    return one_index_each and y.dim() == 2 and outputs.shape[-1] < FEW


class _ClassByClass(torch.autograd.Function):
    """-ln p_y of each example, with p = softmax(outputs); its gradient is p, minus 1 at y."""

    @staticmethod
    def forward(ctx: Any, outputs_RbC: Tensor, y_Rb: Tensor) -> Tensor:
        x_CN = outputs_RbC.movedim(2, 0).reshape(outputs_RbC.shape[2], -1)
        log_p_CN, y_1N = F.log_softmax(x_CN, dim=0), y_Rb.reshape(1, -1)
        ctx.save_for_backward(log_p_CN, y_1N)
        return log_p_CN.gather(0, y_1N).neg_().view(y_Rb.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient_Rb,), (log_p_CN, y_1N) = gradients, ctx.saved_tensors
        slope_CN = log_p_CN.exp()
        slope_CN.scatter_add_(0, y_1N, slope_CN.new_full((1, 1), -1.0).expand_as(y_1N))
        slope_CN *= gradient_Rb.reshape(1, -1)
        return slope_CN.view(-1, *gradient_Rb.shape).movedim(0, 2), None
