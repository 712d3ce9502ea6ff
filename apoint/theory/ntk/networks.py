"""Networks of finite width in NTK parametrisation, whose limit is the infinitely wide ones."""

from __future__ import annotations

import itertools
import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apoint.theory.ntk.activations import Activation, function


class _Layer(nn.Module):
    """√(v/inputs)·Wx + √b·β with standard normal W and β, dense or as a convolution.

    The factor of the inputs is divided by √b and the whole multiplied by it, so that W and β are exactly the
    weight and bias of the linear map, whose tangent kernel is cheap.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        weight_variance: float,
        bias_variance: float,
        draw: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(shape, generator=draw))
        self.bias = nn.Parameter(torch.randn(shape[0], generator=draw)) if bias_variance else None
        self.outer = math.sqrt(bias_variance) if bias_variance else 1.0
        self.inner = math.sqrt(weight_variance / math.prod(shape[1:])) / self.outer

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 2:
            return self.outer * F.linear(self.inner * x, self.weight, self.bias)
        return self.outer * F.conv2d(
            self.inner * x, self.weight, self.bias, padding=self.weight.shape[-1] // 2
        )


class DenseNetwork(nn.Module):
    """A dense network whose kernels tend to those of `infinite_width` as it gets wider.

    Args:
        inputs: The number of features; inputs are flattened.
        width: Width of each hidden layer.
        depth: The number of hidden layers.
        outputs: The number of outputs.
        activation: As in `infinite_width`.
        weight_variance: As in `infinite_width`.
        bias_variance: As in `infinite_width`.
        generator: Draws the weights.
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        depth: int = 3,
        outputs: int = 1,
        activation: Activation = "relu",
        weight_variance: float = 2.0,
        bias_variance: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = [inputs, *[width] * depth, outputs]
        self.layers = nn.ModuleList(
            _Layer((after, before), weight_variance, bias_variance, generator)
            for before, after in itertools.pairwise(sizes)
        )
        self.activation = function(activation)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        result: Tensor = self.layers[-1](x)
        return result


class ConvolutionalNetwork(nn.Module):
    """A convolutional network whose kernels tend to those of `infinite_convolution` as its channels grow.

    Args:
        channels_in: Number of channels of the images.
        places: Height times width of the images; used by the readout `flatten`.
        channels: Number of channels of each convolution.
        depth: The number of convolutions.
        outputs: The number of outputs.
        activation: As in `infinite_convolution`, like the other settings.
        kernel: The side of the kernel, odd.
        readout: `flatten` or `pool`.
        weight_variance: Variance of the weights.
        bias_variance: Variance of the biases.
        generator: Draws the weights.
    """

    def __init__(
        self,
        channels_in: int,
        places: int,
        channels: int,
        depth: int = 3,
        outputs: int = 1,
        activation: Activation = "relu",
        kernel: int = 3,
        readout: Literal["flatten", "pool"] = "flatten",
        weight_variance: float = 2.0,
        bias_variance: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = [channels_in, *[channels] * depth]
        self.layers = nn.ModuleList(
            _Layer((after, before, kernel, kernel), weight_variance, bias_variance, generator)
            for before, after in itertools.pairwise(sizes)
        )
        features = sizes[-1] * (places if readout == "flatten" else 1)
        self.last = _Layer((outputs, features), weight_variance, bias_variance, generator)
        self.activation, self.readout = function(activation), readout

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.activation(layer(x))
        features = x.flatten(1) if self.readout == "flatten" else x.flatten(2).mean(2)
        result: Tensor = self.last(features)
        return result
