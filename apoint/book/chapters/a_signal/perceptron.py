"""A1: what a neuron, a layer and a multi-layer perceptron compute."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from apoint.book.chapters.a_signal.sketches import neuron, perceptron
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_least, at_most, same
from apoint.book.running import Running
from apoint.registry import registry

WIDTHS = [7, 3, 5]
INPUTS, OUTPUTS = 4, 2
ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "relu": lambda z: max(z, 0.0),
    "tanh": math.tanh,
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
}


@claim(
    "A1",
    "What a multi-layer perceptron computes",
    kind="identity",
    statement=r"""
    A perceptron of depth $L$ with parameters $W_i\in\mathbb{R}^{d_i\times d_{i-1}}$ and
    $b_i\in\mathbb{R}^{d_i}$ takes $h_0=x$ through
    $$h_i=\sigma(W_ih_{i-1}+b_i)\quad(i<L),\qquad h_L=W_Lh_{L-1}+b_L,$$
    the activation $\sigma$ acting on each coordinate alone and the last layer having none. Its width is
    $\max_i d_i$ and it has $\sum_i d_i(d_{i-1}+1)$ parameters.
    """,
    refuted_by="an output of the model `mlp` that differs from the sums written out, neuron by neuron, by "
    "more than rounding, or another number of parameters",
    seconds={"quick": 0.1, "standard": 1},
    planted={"factor": 1.05},
    details=r"""
    The check computes every neuron with plain sums of Python numbers and compares the result with the
    product's own model in float64. It also confirms why $\sigma$ is there at all: with the identity in its
    place the whole network is one affine map, whatever its depth, so that
    $f(x)+f(y)=f(x+y)+f(0)$ for all $x$ and $y$; with a true activation this fails.
    """,
    references=(
        "Rumelhart, Hinton and Williams (1986), Learning representations by back-propagating errors",
    ),
)
def neuron_by_neuron(run: Running, factor: float = 1.0) -> Evidence:
    """Every neuron is summed by hand; `factor` multiplies what each of them sums up."""
    numbers, generator = [], run.generator()
    for name, function in ACTIVATIONS.items():
        model = _model(name, generator)
        x = torch.randn(run.pick(5, 100), INPUTS, generator=generator, dtype=torch.float64)
        layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        rows = [_outputs(layers, function, row.tolist(), factor) for row in x]
        hand = torch.tensor(rows, dtype=torch.float64)
        worst = float((hand - model(x)).abs().max())
        numbers.append(at_most(f"largest difference of an output, {name}", worst, 1e-11, remark="rounding"))
    sizes = [INPUTS, *WIDTHS, OUTPUTS]
    expected = sum(after * (before + 1) for before, after in itertools.pairwise(sizes))
    numbers.append(same("parameters", sum(p.numel() for p in model.parameters()), expected))
    numbers.append(same("layers, the last included", len(layers), len(WIDTHS) + 1))
    numbers.append(at_most("bend of a network without activation", _bend("identity", generator), 1e-12))
    numbers.append(at_least("bend of one with tanh", _bend("tanh", generator), 1e-3))
    return Evidence(numbers, pictures=[neuron(), perceptron(sizes)])


def _model(activation: str, generator: torch.Generator) -> nn.Module:
    spec = {"name": "mlp", "depth": len(WIDTHS), "width": WIDTHS, "activation": activation}
    model: nn.Module = registry("model").build(spec, INPUTS, OUTPUTS).double()
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model.requires_grad_(False)


def _outputs(
    layers: Sequence[nn.Linear], function: Callable[[float], float], h: list[float], factor: float
) -> list[float]:
    for place, layer in enumerate(layers, start=1):
        rows, biases = layer.weight.tolist(), layer.bias.tolist()
        sums = [sum(w * a for w, a in zip(row, h, strict=True)) for row in rows]
        z = [factor * (one + b) for one, b in zip(sums, biases, strict=True)]
        h = [function(one) for one in z] if place < len(layers) else z
    return h


def _bend(activation: str, generator: torch.Generator) -> float:
    """How far the network is from f(x) + f(y) = f(x + y) + f(0)."""
    model = _model(activation, generator)
    x, y = torch.randn(2, 20, INPUTS, generator=generator, dtype=torch.float64)
    gap = model(x) + model(y) - model(x + y) - model(torch.zeros_like(x))
    return float(gap.abs().max() / model(x).abs().max())
