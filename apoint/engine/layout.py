"""The memory layout of images: channels-last, which is fastest for convolutions, wherever it is safe."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


def best_layout(model: nn.Module, device: torch.device) -> torch.memory_format:
    """The layout in which a model's convolutions are fast and correct."""
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    if not convolutions or device.type == "mps":
        return torch.contiguous_format
    unsafe = device.type == "cpu" and any(
        overruns(module.weight.shape, module.stride, module.groups) for module in convolutions
    )
    return torch.contiguous_format if unsafe else torch.channels_last


def overruns(shape: Sequence[int], stride: int | Sequence[int], groups: int) -> bool:
    """Whether a convolution's gradient would write past its memory with images in channels-last.

    On CPU, the kernel for the weights of a strided 1×1 convolution copies the positions it needs as if there
    were a whole block of channels. With fewer channels it writes past the end, which causes a crash or a
    wrong gradient; see https://github.com/uxlfoundation/oneDNN/issues/6035.

    Args:
        shape: The shape of its weight: outputs, inputs per group, height, width.
        stride: Its stride.
        groups: Its number of groups; the kernel is not used for several.
    """
    block = 16 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 8
    strided = stride > 1 if isinstance(stride, int) else max(stride) > 1
    return groups == 1 and strided and tuple(shape[2:]) == (1, 1) and shape[1] < block
