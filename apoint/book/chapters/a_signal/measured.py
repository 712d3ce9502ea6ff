"""What chapter A measures on real networks: the sizes of signals and of errors in every layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apoint.nn.initialisation import initialise
from apoint.registry import registry
from apoint.settings import Spec

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Signals:
    """Mean squares by network and layer.

    Attributes:
        forward: Of z^l, [networks, hidden layers].
        backward: Of δ^l for a random gradient at the output, [networks, hidden layers].
    """

    forward: Array
    backward: Array


def signals(
    activation: Spec,
    init: Spec,
    widths: Sequence[int],
    networks: int,
    generator: torch.Generator,
    *,
    input_std: float = 1.0,
    batch: int = 16,
) -> Signals:
    """Build perceptrons, initialise them and pass normal inputs forward and normal gradients back.

    Args:
        activation: The activation.
        init: The initialisation.
        widths: The number of inputs, then those of the hidden layers.
        networks: How many to draw.
        generator: Where all random numbers come from.
        input_std: The standard deviation of the inputs.
        batch: The number of inputs for each network.
    """
    forward, backward = [], []
    for _ in range(networks):
        model = perceptron(activation, init, widths, generator)
        x = input_std * torch.randn(batch, widths[0], generator=generator, dtype=torch.float64)
        outputs: list[Tensor] = []
        result = _passed(model, x, outputs)
        pull = torch.randn(result.shape, generator=generator, dtype=torch.float64)
        errors = torch.autograd.grad(result, outputs, pull)
        forward.append([float(z.detach().square().mean()) for z in outputs])
        backward.append([float(delta.square().mean()) for delta in errors])
    return Signals(np.array(forward), np.array(backward))


def perceptron(activation: Spec, init: Spec, widths: Sequence[int], generator: torch.Generator) -> nn.Module:
    """A perceptron in float64 with as many outputs as its last hidden layer has units."""
    depth, inner = len(widths) - 1, list(widths[1:])
    spec = {"name": "mlp", "depth": depth, "width": inner, "activation": activation}
    model: nn.Module = registry("model").build(spec, widths[0], widths[-1]).double()
    if init == "as-built":  # the constructors draw from torch's default generator, which checks must not use
        for layer in _linear(model):
            for parameter in layer.parameters():
                bound = layer.in_features**-0.5
                parameter.data.uniform_(-bound, bound, generator=generator)
            layer.bias.data.zero_()
    else:
        initialise(model, init, generator=generator)
    return model


def mean_and_error(values: Array) -> tuple[float, float]:
    """The mean over networks, and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _linear(model: nn.Module) -> list[nn.Linear]:
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def _passed(model: nn.Module, x: Tensor, outputs: list[Tensor]) -> Tensor:
    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        outputs.append(output)

    hooks = [layer.register_forward_hook(keep) for layer in _linear(model)[:-1]]
    result: Tensor = model(x)
    for hook in hooks:
        hook.remove()
    return result
