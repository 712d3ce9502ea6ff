"""How images lie in memory: channels-last, which is fastest for convolutions, wherever that is safe."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


def best_layout(model: nn.Module, device: torch.device) -> torch.memory_format:
    """The layout in which a model's convolutions are fast and right."""
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    if not convolutions or device.type == "mps":
        return torch.contiguous_format
    unsafe = device.type == "cpu" and any(
        overruns(module.weight.shape, module.stride, module.groups) for module in convolutions
    )
    return torch.contiguous_format if unsafe else torch.channels_last


def overruns(shape: Sequence[int], stride: int | Sequence[int], groups: int) -> bool:
    """Whether a convolution's gradient would write past its memory if images lay channels-last.

    The processor's kernel for the weights of a 1×1 convolution with a stride copies the places it needs as if
    there were a whole block of channels. With fewer it writes beyond, and a crash or a wrong gradient
    follows; see https://github.com/uxlfoundation/oneDNN/issues/6035.

    Args:
        shape: The shape of its weight: outputs, inputs of a group, height, width.
        stride: Its stride.
        groups: Its groups; the kernel has no part in several.
    """
    block = 16 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 8
    strided = stride > 1 if isinstance(stride, int) else max(stride) > 1
    return groups == 1 and strided and tuple(shape[2:]) == (1, 1) and shape[1] < block
