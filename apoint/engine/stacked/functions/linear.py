"""Linear maps of a stack: one batched product for all replicas.

Axis letters: R replicas, N places (batch times positions), I inputs, O outputs, B batch.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from apoint.engine.stacked.functions.table import Scene, refuse_autocast, stacked_form
from apoint.engine.stacked.lifting import axis_of, outside


class _Linear(torch.autograd.Function):
    """x·Wᵀ + b for each replica.

    The same as autograd's, except for the layout of the gradient of W: autograd returns it transposed, and
    copying that into the gradient buffer takes up to a fifth of the time of the product.
    """

    @staticmethod
    def forward(ctx: Any, x_RNI: Tensor, weight_ROI: Tensor, bias_RO: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_RNI, weight_ROI)
        return _product(x_RNI, weight_ROI, bias_RO)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (gradient_RNO,), (x_RNI, weight_ROI) = gradients, ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            torch.bmm(gradient_RNO, weight_ROI) if needs_x else None,
            torch.bmm(gradient_RNO.transpose(1, 2), x_RNI) if needs_weight else None,
            gradient_RNO.sum(1) if needs_bias else None,
        )


def _product(x_RNI: Tensor, weight_ROI: Tensor, bias_RO: Tensor | None) -> Tensor:
    if bias_RO is None:
        return torch.bmm(x_RNI, weight_ROI.transpose(1, 2))
    return torch.baddbmm(bias_RO.unsqueeze(1), x_RNI, weight_ROI.transpose(1, 2))


@stacked_form(F.linear)
def linear(scene: Scene, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` for all replicas."""
    if axis_of(weight) is None or weight.dim() != 2:
        return F.linear(input, weight, bias)
    refuse_autocast()
    lifted = scene.lifted
    x, weight_ROI = lifted.front(input), lifted.front(weight)
    bias_RO = None if bias is None else lifted.front(bias)
    return lifted.wrap(outside(_linear, x, weight_ROI, bias_RO, scene.faithful))


def _linear(x: Tensor, weight_ROI: Tensor, bias_RO: Tensor | None, faithful: bool) -> Tensor:
    if x.dim() == 3 and not faithful:
        return _by_columns(x, weight_ROI, bias_RO)
    x_RNI = x.reshape(len(x), -1, x.shape[-1])
    if torch.is_grad_enabled():
        out: Tensor = _Linear.apply(x_RNI, weight_ROI, bias_RO)  # type: ignore[no-untyped-call]
    else:
        out = _product(x_RNI, weight_ROI, bias_RO)
    return out.view(*x.shape[:-1], -1)


def _by_columns(x_RBI: Tensor, weight_ROI: Tensor, bias_RO: Tensor | None) -> Tensor:
    """W·xᵀ + b, seen as its transpose: autograd's own formula then gives the gradient of W in W's layout.

    The fastest form for vectors. Sequences are normalised along their features, so they stay in rows.
    """
    x_RIB = x_RBI.transpose(1, 2)
    if bias_RO is None:
        return torch.bmm(weight_ROI, x_RIB).transpose(1, 2)
    return torch.baddbmm(bias_RO.unsqueeze(2), weight_ROI, x_RIB).transpose(1, 2)


@stacked_form(torch.addmm)
def addmm(
    scene: Scene, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1, **rest: Any
) -> Tensor:
    """`torch.addmm` for all replicas; recurrent cells call it at every time step."""
    if rest or axis_of(mat1) is None or axis_of(mat2) is None:
        return torch.addmm(input, mat1, mat2, beta=beta, alpha=alpha, **rest)
    refuse_autocast()
    front = scene.lifted.front
    base = front(input)
    base = base if base.dim() == 3 else base.unsqueeze(1)
    return scene.lifted.wrap(outside(_addmm, base, front(mat1), front(mat2), beta, alpha))


def _addmm(base: Tensor, first: Tensor, second: Tensor, beta: float, alpha: float) -> Tensor:
    return torch.baddbmm(base, first, second, beta=beta, alpha=alpha)
