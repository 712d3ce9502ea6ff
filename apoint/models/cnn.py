"""Plain convolutional networks, for signals and for images."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.shapes import Size, has_norm, space_of, written
from apoint.nn.activations import activation as build_activation
from apoint.nn.dropout import Dropout
from apoint.nn.norms import norm as build_norm
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Rate

NormPlacement = Literal["before", "after"]
Pool = Literal["max", "average"]
Head = Literal["global-average", "flatten"]
_CONVOLUTIONS: dict[int, type[nn.Conv1d | nn.Conv2d]] = {1: nn.Conv1d, 2: nn.Conv2d}
_POOLS: dict[tuple[Pool, int], type[nn.Module]] = {
    ("max", 1): nn.MaxPool1d,
    ("max", 2): nn.MaxPool2d,
    ("average", 1): nn.AvgPool1d,
    ("average", 2): nn.AvgPool2d,
}


class GlobalAverage(nn.Module):
    """Global average pooling, the mean of each channel over space: [B, C, *space] to [B, C]."""

    def forward(self, x: Tensor) -> Tensor:
        """The means."""
        flat_BCS = torch.flatten(x, 2)
        if x.dim() == 3:
            return flat_BCS.mean(-1)
        # Images are in channels-last memory format. The gradient of a mean is laid out in the order of the
        # axes it was taken over, so they are put into that order first: otherwise the layer before would
        # get a gradient in another memory format than its values, which makes it five times as slow.
        return flat_BCS.transpose(1, 2).mean(1)


class CNN(nn.Module):
    """A stack of convolutions, a readout to a vector, and a linear layer.

    Args:
        body: Maps [B, C, *space] to feature maps.
        readout: Maps feature maps to vectors.
        head: The final linear layer.
        input_dropout: Applied to the inputs.
    """

    def __init__(self, body: nn.Module, readout: nn.Module, head: nn.Linear, input_dropout: Dropout) -> None:
        super().__init__()
        self.input_dropout = input_dropout
        self.body = body
        self.readout = readout
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """One logit for each class."""
        logits: Tensor = self.head(self.readout(self.body(self.input_dropout(x))))
        return logits


@register("model", "cnn", course="A1 H1", inputs=("image", "signal"))
def cnn(
    in_channels: int = 3,
    num_classes: int = 10,
    input_size: Size = 32,
    *,
    depth: Count = 4,
    width: Count = 16,
    kernel_size: Count = 3,
    pool_every: Count = 1,
    pool: Pool = "max",
    activation: ActivationSpec = "relu",
    norm: NormSpec = "batch",
    norm_placement: NormPlacement = "before",
    dropout: Rate = 0.0,
    input_dropout: Rate = 0.0,
    head: Head = "global-average",
) -> CNN:
    """A plain convolutional network: convolutions, with pooling after every few, where the channels double.

    For images, or for signals if `input_size` has one axis. A layer is: convolution, norm, activation,
    dropout; or convolution, activation, norm, dropout. After every `pool_every` layers, but not after the
    last, pooling halves the spatial size and the number of channels doubles. Convolutions keep the spatial
    size, and have a bias only if there is no norm. The network is like VGG, except for the norms and the
    global average pooling. The defaults, with 2.6 million multiplications on a 28×28 image, suit
    Fashion-MNIST and MNIST-1D.

    Args:
        depth: The number of convolutions.
        width: The number of channels before the first pooling.
        kernel_size: The size of the kernels along each axis; odd.
        pool_every: The number of convolutions between two poolings.
        pool: The pooling: `max` or `average`, over 2 positions along each axis.
        activation: The activation.
        norm: The norm in each layer.
        norm_placement: Whether the norm comes `before` or `after` the activation.
        dropout: The probability of dropping a unit after each layer.
        input_dropout: The probability of dropping an input.
        head: The input of the last linear layer: each channel's mean (`global-average`) or all features
            (`flatten`).

    Reference: Simonyan and Zisserman (2015), Very deep convolutional networks for large-scale
        image recognition.
    """
    space = _checked_space(input_size, depth, pool_every, kernel_size)
    layers: list[nn.Module] = []
    before = in_channels
    for number in range(depth):
        after = width * 2 ** (number // pool_every)
        if number > 0 and number % pool_every == 0:
            layers.append(_POOLS[pool, len(space)](2))
            space = tuple(length // 2 for length in space)
        convolution = _CONVOLUTIONS[len(space)](
            before, after, kernel_size, padding=kernel_size // 2, bias=not has_norm(norm)
        )
        middle = [build_norm(norm, after, "channels", len(space)), build_activation(activation)]
        if norm_placement == "after":
            middle.reverse()
        layers.append(nn.Sequential(convolution, *middle, Dropout(dropout)))
        before = after
    size = before if head == "global-average" else before * torch.Size(space).numel()
    readout = GlobalAverage() if head == "global-average" else nn.Flatten()
    last = nn.Linear(size, num_classes)
    return CNN(nn.Sequential(*layers), readout, last, Dropout(input_dropout, knob="input_dropout"))


def _checked_space(input_size: Size, depth: int, pool_every: int, kernel_size: int) -> tuple[int, ...]:
    space = space_of(input_size)
    if len(space) not in _CONVOLUTIONS:
        raise UsageError(f"model 'cnn': input_size must have 1 or 2 axes of space, got {written(input_size)}")
    if kernel_size % 2 == 0:
        raise UsageError(
            f"model 'cnn': kernel_size must be odd, so that layers keep the size, got {kernel_size}"
        )
    num_pools = (depth - 1) // pool_every
    if min(space) < 2**num_pools:
        raise UsageError(
            f"model 'cnn': depth={depth} with pool_every={pool_every} makes {num_pools} poolings, which "
            f"leave nothing of an input_size of {written(input_size)}; lower depth or raise pool_every"
        )
    return space
