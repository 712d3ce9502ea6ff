"""Norms of a stack. In batch and group norm, the channels of all replicas side by side are more channels.

Axis letters: R replicas, B batch, C channels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from apoint.engine.stacked.functions.convolution import apart, beside, in_a_row
from apoint.engine.stacked.functions.table import Scene, stacked_form
from apoint.engine.stacked.lifting import axis_of, outside


@stacked_form(F.batch_norm)
def batch_norm(
    scene: Scene,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`F.batch_norm` for all replicas; each has its own running statistics, which are updated in place."""
    front = scene.lifted.front
    statistics = [None if tensor is None else front(tensor) for tensor in (running_mean, running_var)]
    affine = [None if tensor is None else front(tensor) for tensor in (weight, bias)]
    shared = training and any(
        tensor is not None and axis_of(tensor) is None for tensor in (running_mean, running_var)
    )
    if axis_of(input) is None or shared or input.dim() < 2:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    out = outside(_batch_norm, front(input), statistics, affine, training, momentum, eps)
    return scene.lifted.wrap(out, 1)


def _batch_norm(
    x_RBC: Tensor,
    statistics_RC: list[Tensor | None],
    affine_RC: list[Tensor | None],
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    flat = Tensor.view if training else Tensor.reshape  # in training it must be the same memory
    mean, variance = (None if tensor is None else flat(tensor, -1) for tensor in statistics_RC)
    weight, bias = map(in_a_row, affine_RC)
    if x_RBC.dim() == 3 and x_RBC.stride(1) == 1:  # examples of a channel side by side, as in `linear`
        x_RCB = x_RBC.transpose(1, 2)
        signal = x_RCB.reshape(1, -1, x_RCB.shape[2])  # the kernel takes one channel after the other
        out = F.batch_norm(signal, mean, variance, weight, bias, training, momentum, eps)
        return out.view(x_RCB.shape).permute(2, 0, 1)
    x = beside(x_RBC, 0)
    image = x.unsqueeze(2) if x.dim() == 3 else x  # the kernel for signals would copy them row by row first
    out = F.batch_norm(image, mean, variance, weight, bias, training, momentum, eps)
    return apart(out.view_as(x) if image is not x else out, len(x_RBC))


@stacked_form(F.group_norm)
def group_norm(
    scene: Scene,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """`F.group_norm` for all replicas: R times the channels in R times the groups."""
    affine = [None if tensor is None else scene.lifted.front(tensor) for tensor in (weight, bias)]
    out = outside(_group_norm, scene.lifted.front(input), num_groups, affine, eps)
    return scene.lifted.wrap(out, 1)


def _group_norm(x_RBC: Tensor, num_groups: int, affine_RC: list[Tensor | None], eps: float) -> Tensor:
    weight, bias = map(in_a_row, affine_RC)
    out = F.group_norm(beside(x_RBC, 0), num_groups * len(x_RBC), weight, bias, eps)
    return apart(out, len(x_RBC))


@stacked_form(torch._weight_norm)
def weight_norm(scene: Scene, v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """What `nn.utils.parametrizations.weight_norm` calls, g·v/‖v‖, from operations that `vmap` supports."""
    others = None if dim == -1 else [axis for axis in range(v.dim()) if axis != dim]
    length: Tensor = torch.linalg.vector_norm(v, dim=others, keepdim=dim != -1)
    return v * (g / length)
