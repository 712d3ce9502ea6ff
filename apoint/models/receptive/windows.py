"""The effect of convolutions and poolings on receptive fields: the union over a sliding window."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apoint.errors import UsageError
from apoint.models.receptive.axes import Axis, Reach, small
from apoint.models.receptive.rules import Of, arguments, operations, reach_of, rule


@dataclass(frozen=True)
class Window:
    """A window along one dimension: its size in steps, its stride, its dilation, the padding before."""

    size: int
    stride: int
    dilation: int
    before: int


@rule(*operations("convolution", "_convolution", "mkldnn_convolution", "_slow_conv2d_forward"))
def convolution(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """The union over the window and, in each group, over channels."""
    inputs, weight, _, stride, padding, dilation, transposed, _, groups = args[:9]
    if transposed:
        raise UsageError("receptive_field: transposed convolutions cannot be followed")
    reach = reach_of(of, inputs)
    reach = tuple(axis.each(lambda t, fill: _channels(t, fill, groups, len(weight))) for axis in reach)
    sizes = weight.shape[2:]
    return [_windows(reach, inputs, out, _each_dim(len(sizes), sizes, stride, dilation, padding))]


def _channels(tensor: Tensor, fill: float, groups: int, out_channels: int) -> Tensor:
    """The union over the channels of each group, for every output channel."""
    if tensor.shape[1] == 1:
        return tensor
    parts = tensor.reshape(len(tensor), groups, -1, *tensor.shape[2:])
    union = parts.nanmean(2) if math.isnan(fill) else parts.amin(2) if fill > 0 else parts.amax(2)
    return small(union.repeat_interleave(out_channels // groups, 1), look=True)


@rule(*operations("max_pool2d_with_indices", "max_pool3d_with_indices"))
def max_pool(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """The union over the window."""
    given = arguments(func, args, kwargs)
    size, stride = given["kernel_size"], given["stride"] or given["kernel_size"]
    windows = _each_dim(len(size), size, stride, given["dilation"], given["padding"])
    return [_windows(reach_of(of, args[0]), args[0], out[0], windows)]


@rule(*operations("avg_pool1d", "avg_pool2d", "avg_pool3d"))
def average_pool(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """The union over the window."""
    given = arguments(func, args, kwargs)
    size, stride = given["kernel_size"], given["stride"] or given["kernel_size"]
    windows = _each_dim(len(size), size, stride, 1, given["padding"])
    return [_windows(reach_of(of, args[0]), args[0], out, windows)]


@rule(
    *operations("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_avg_pool1d")
)
def adaptive_pool(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """The union over each window; window sizes may differ by one."""
    result = out if isinstance(out, Tensor) else out[0]
    inputs, reach = args[0], reach_of(of, args[0])
    count = inputs.dim() - 2
    for dim in range(2, inputs.dim()):
        before, after = inputs.shape[dim], result.shape[dim]
        if before != after:
            bins = [(n * before // after, -(-(n + 1) * before // after)) for n in range(after)]
            own = dim - 2 - (count - len(reach))
            reach = tuple(
                _binned(axis, dim, before, bins, number == own) for number, axis in enumerate(reach)
            )
    return [reach]


def _binned(axis: Axis, dim: int, length: int, bins: list[tuple[int, int]], is_own: bool) -> Axis:
    """The union over bins of one dimension, and a larger stride if the dimension is this axis's own."""

    def union(tensor: Tensor, fill: float) -> Tensor:
        if tensor.shape[dim] == 1:
            return tensor
        parts = [tensor.narrow(dim, begin, end - begin) for begin, end in bins]
        return torch.cat([_union(part, dim, fill) for part in parts], dim)

    pooled = axis.over([dim]) if len(bins) == 1 else axis.each(union)
    stride = axis.stride * (length / len(bins) if is_own else 1)
    return Axis(pooled.low, pooled.high, pooled.place, stride, axis.length)


def _union(tensor: Tensor, dim: int, fill: float) -> Tensor:
    """Over one dimension: the minimum of first pixels, the maximum of last pixels, the mean of places."""
    if math.isnan(fill):
        return tensor.nanmean(dim, keepdim=True)
    return tensor.amin(dim, keepdim=True) if fill > 0 else tensor.amax(dim, keepdim=True)


def _each_dim(count: int, size: Any, stride: Any, dilation: Any, padding: Any) -> list[Window]:
    """A window for each dimension, from settings given once or once per dimension."""

    def each(setting: Any) -> list[int]:
        values = [setting] if isinstance(setting, int) else list(setting)
        return values * count if len(values) == 1 else values

    settings = zip(each(size), each(stride), each(dilation), each(padding), strict=True)
    return [Window(*values) for values in settings]


def _windows(reach: Reach, inputs: Tensor, out: Tensor, windows: list[Window]) -> Reach:
    """Windows over the last dimensions; the last of these are the axes of the image."""
    begin = inputs.dim() - len(windows)
    for position, window in enumerate(windows):
        dim, own = begin + position, position - (len(windows) - len(reach))
        lengths = inputs.shape[dim], out.shape[dim]
        reach = tuple(_slid(axis, dim, window, lengths, number == own) for number, axis in enumerate(reach))
    return reach


def _slid(axis: Axis, dim: int, window: Window, lengths: tuple[int, int], is_own: bool) -> Axis:
    """The union over a window sliding along one dimension."""
    before, after = lengths
    reached = (window.size - 1) * window.dilation + 1
    end = (after - 1) * window.stride + reached - before - window.before
    step = axis.stride if is_own else 0.0

    def slide(tensor: Tensor, fill: float) -> Tensor:
        if tensor.shape[dim] == 1 and not (is_own and before == 1):
            return tensor
        views = _extended(tensor, dim, window.before, end, step).unfold(dim, reached, window.stride)
        return _union(views[..., :: window.dilation], -1, fill).squeeze(-1)

    slid = axis.each(slide)
    return Axis(slid.low, slid.high, slid.place, axis.stride * (window.stride if is_own else 1), axis.length)


def _extended(tensor: Tensor, dim: int, before: int, after: int, step: float) -> Tensor:
    """Extend as if the image continued at both ends; a negative `after` cuts elements off."""
    shape = [1] * tensor.dim()
    shape[dim] = -1
    first, last = tensor.narrow(dim, 0, 1), tensor.narrow(dim, tensor.shape[dim] - 1, 1)
    parts = [
        first - step * torch.arange(before, 0, -1.0).view(shape),
        tensor.narrow(dim, 0, tensor.shape[dim] + min(after, 0)),
        last + step * torch.arange(1.0, max(after, 0) + 1).view(shape),
    ]
    return torch.cat(parts, dim)
