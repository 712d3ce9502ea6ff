"""Means of a stack, whose gradients have the memory layout of their inputs.

Axis letters: R replicas.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from apoint.engine.stacked.functions.table import Scene, stacked_form
from apoint.engine.stacked.lifting import axis_of, outside


class _Mean(torch.autograd.Function):
    """The mean over some axes.

    The same as autograd's, except for the layout of the gradient. In a stack of convolutions the replicas are
    next to the channels. Autograd would give the gradient the layout of the next layer, and the layer before
    would take ten times as long to reconcile the two.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, axes: tuple[int, ...]) -> Tensor:
        ctx.axes, ctx.shape = axes, x.shape
        ctx.order = sorted(range(x.dim()), key=x.stride, reverse=True)
        return x.mean(axes, keepdim=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        order: list[int] = ctx.order
        (gradient,), shape = gradients, [ctx.shape[axis] for axis in order]
        number = math.prod(ctx.shape[axis] for axis in ctx.axes)
        spread = gradient.permute(order).contiguous().expand(shape) / number
        return spread.permute([order.index(axis) for axis in range(len(order))]), None


@stacked_form(torch.mean, Tensor.mean)
def mean(scene: Scene, input: Tensor, *settings: Any, **named: Any) -> Tensor:
    """`torch.mean` over given axes for all replicas; other means are left to `vmap`."""
    dim = settings[0] if settings else named.get("dim")
    axes = [dim] if isinstance(dim, int) else list(dim or ())
    known = len(settings) <= 2 and set(named) <= {"dim", "keepdim"} and input.is_floating_point()
    if not axes or not known or axis_of(input) is None:
        return torch.mean(input, *settings, **named)
    keepdim = settings[1] if len(settings) == 2 else named.get("keepdim", False)
    places = tuple(sorted({axis % input.dim() + 1 for axis in axes}))
    return scene.lifted.wrap(outside(_mean, scene.lifted.front(input), places, keepdim))


def _mean(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    if not torch.is_grad_enabled():
        return x.mean(axes, keepdim)
    out: Tensor = _Mean.apply(x, axes)  # type: ignore[no-untyped-call]
    return out if keepdim else out.squeeze(axes)
