"""Convolutions and pooling of a stack: the channels of all replicas side by side, [B, R·C, *space].

Channels are adjacent in memory (channels-last), which on CPU is fastest for grouped convolutions, batch norm
and pooling. Results keep the replica axis before the channels, so that a chain of such layers copies nothing
in between. Signals are treated as images of height 1: PyTorch has no channels-last format for them, and as
images they are two to ten times as fast.

Axis letters: R replicas, B batch, C channels, I and O input and output channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from apoint.engine.layout import overruns
from apoint.engine.stacked.functions.table import Scene, refuse_autocast, stacked_form
from apoint.engine.stacked.lifting import axis_of, bare, outside


def beside(stacked: Tensor, axis: int) -> Tensor:
    """The channels of all replicas side by side: [B, R·C, *space], without a copy where possible.

    Args:
        stacked: Values of logical shape [B, C, *space] with a replica axis.
        axis: The position of that axis.
    """
    x_BRC = stacked.movedim(axis, 1)
    if x_BRC.stride(1) == x_BRC.stride(2) * x_BRC.shape[2]:
        return x_BRC.flatten(1, 2)
    return x_BRC.movedim((1, 2), (-2, -1)).contiguous().flatten(-2).movedim(-1, 1)


def apart(x: Tensor, num_replicas: int) -> Tensor:
    """[B, R, C, *space] from [B, R·C, *space]."""
    return x.view(len(x), num_replicas, -1, *x.shape[2:])


def in_a_row(values_RC: Tensor | None) -> Tensor | None:
    """The values of all replicas one after the other, contiguous in memory.

    With one channel, flattening leaves them in place, far apart; and the channels-last kernel of PyTorch 2.13
    for the gradient of batch norm reads the memory that follows the first value as the next one.
    """
    return None if values_RC is None else values_RC.flatten().contiguous()


def _convolution(function: Callable[..., Tensor], space: int) -> None:
    @stacked_form(function)
    def convolution(
        scene: Scene,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        if axis_of(weight) is None or input.dim() != space + 2:
            return function(input, weight, bias, stride, padding, dilation, groups)
        refuse_autocast()
        lifted = scene.lifted
        weights = lifted.front(weight)
        biases = None if bias is None else lifted.front(bias)
        rest = (biases, stride, padding, dilation, groups)
        out = outside(_convolve, function, input, axis_of(input), weights, *rest)
        if scene.faithful and space == 1:
            return lifted.wrap(out.transpose(0, 1).contiguous())
        return lifted.wrap(out, 1)


def _convolve(
    function: Callable[..., Tensor],
    wrapped: Tensor,
    axis: int | None,
    weight_RO: Tensor,
    bias_RO: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    """One convolution with R times the groups, or with R times the outputs if all replicas share an input."""
    num_replicas = len(weight_RO)
    if axis is not None:
        x, groups = beside(bare(wrapped), axis), groups * num_replicas
    elif groups == 1:
        x = wrapped
    else:
        x, groups = beside(wrapped.expand(num_replicas, *wrapped.shape), 0), groups * num_replicas
    weight, bias = weight_RO.flatten(0, 1), in_a_row(bias_RO)
    if function is torch.conv1d:
        settings = (_flat(stride, 1), _flat(padding, 0), _flat(dilation, 1), groups)
        out = _convolve_images(x.unsqueeze(2), weight.unsqueeze(2), bias, *settings).squeeze(2)
    elif function is torch.conv2d:
        out = _convolve_images(x, weight, bias, stride, padding, dilation, groups)
    else:
        out = function(x, weight, bias, stride, padding, dilation, groups)
    return apart(out, num_replicas)


def _convolve_images(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    unsafe = x.device.type == "cpu" and overruns(weight.shape, stride, groups)
    layout = torch.contiguous_format if unsafe else torch.channels_last
    x, weight = x.contiguous(memory_format=layout), weight.contiguous(memory_format=layout)
    return F.conv2d(x, weight, bias, stride, padding, dilation, groups)


def _flat(setting: Any, height: int) -> Any:
    """A convolution setting along one axis, for images of height 1; a string such as "same" is unchanged."""
    if isinstance(setting, str):
        return setting
    return (height, setting if isinstance(setting, int) else setting[0])


def _pooling(function: Callable[..., Tensor], space: int, *names: Callable[..., Any]) -> None:
    @stacked_form(*names)
    def pooling(scene: Scene, input: Tensor, *arguments: Any, **named: Any) -> Any:
        axis = axis_of(input)
        if axis is None or input.dim() != space + 2 or named.get("return_indices"):
            return function(input, *arguments, **named)
        return scene.lifted.wrap(outside(_pool, function, bare(input), axis, arguments, named), 1)


def _pool(
    function: Callable[..., Tensor], x: Tensor, axis: int, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Tensor:
    return apart(function(beside(x, axis), *arguments, **named), x.shape[axis])


for _function, _space in ((torch.conv1d, 1), (torch.conv2d, 2), (torch.conv3d, 3)):
    _convolution(_function, _space)
_pooling(F.max_pool1d, 1, F.max_pool1d, torch.max_pool1d)
_pooling(F.max_pool2d, 2, F.max_pool2d, torch.max_pool2d)
_pooling(F.avg_pool1d, 1, F.avg_pool1d)
_pooling(F.avg_pool2d, 2, F.avg_pool2d)
_pooling(F.adaptive_avg_pool2d, 2, F.adaptive_avg_pool2d)
