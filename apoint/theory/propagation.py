"""The variance of signals and of errors through depth, for any activation, by quadrature.

A layer z^l = W^l f(z^(l-1)) + b^l with independent centred weights gives, for a wide network,

    V[z^l] = n_in · V[w] · E[f(√V[z^(l-1)] Z)²] + V[b],        Z standard normal,
    V[δ^l] = n_out · V[w] · E[f'(√V[z^l] Z)²] · V[δ^(l+1)].

Only for a linear f is E[f(√V Z)²] = V, and only for a multiple of a ReLU or leaky ReLU is it proportional to
V; for every other activation the map V ↦ V' is curved, and signals end up at its fixed points.

Reference: Glorot and Bengio (2010), Understanding the difficulty of training deep feedforward networks; Poole
et al. (2016), Exponential expressivity in deep neural networks through transient chaos.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from apoint.errors import UsageError
from apoint.theory.gaussian import Function, expectation

MOST_LAYERS = 2000


def second_moment_of(function: Function, variance: float) -> float:
    """E[f(√V Z)²] for a standard normal Z; f(0)² for V = 0.

    Args:
        function: f, applied to each element.
        variance: V, at least 0.
    """
    _check_variance("a variance", variance)
    if variance == 0:
        return float(function(torch.zeros(1, dtype=torch.float64)).square().item())
    return expectation(lambda z: function(z).square(), math.sqrt(variance))


def slope_moment(function: Function, variance: float) -> float:
    """E[f'(√V Z)²] for a standard normal Z, with f' by autograd; f'(0)² for V = 0.

    Args:
        function: f, applied to each element.
        variance: V, at least 0.
    """
    _check_variance("a variance", variance)
    if variance == 0:
        return float(_slope(function, torch.zeros(1, dtype=torch.float64)).square().item())
    return expectation(lambda z: _slope(function, z).square(), math.sqrt(variance))


def variance_map(
    function: Function, weight_scale: float = 1.0, bias_variance: float = 0.0
) -> Callable[[float], float]:
    """The map V ↦ s·E[f(√V Z)²] + V[b] of one layer on the variance of its inputs.

    Args:
        function: f, applied to each element.
        weight_scale: s = n_in · V[w], at least 0; 1 is Glorot's and LeCun's for square layers, 2 is He's.
        bias_variance: V[b], at least 0.
    """
    _check_variance("the weight scale", weight_scale)
    _check_variance("the bias variance", bias_variance)
    return lambda variance: weight_scale * second_moment_of(function, variance) + bias_variance


def forward_variances(
    function: Function,
    depth: int,
    start: float = 1.0,
    weight_scale: float = 1.0,
    bias_variance: float = 0.0,
) -> list[float]:
    """V[z^1] … V[z^L] of a deep network.

    Args:
        function: f, applied to each element.
        depth: L, at least 1.
        start: V[z^1], at least 0.
        weight_scale: n_in · V[w] of all layers after the first.
        bias_variance: V[b] of all layers after the first.
    """
    if isinstance(depth, bool) or int(depth) != depth or depth < 1:
        raise UsageError(f"a depth must be a whole number from 1 on, got {depth}")
    _check_variance("a variance", start)
    step = variance_map(function, weight_scale, bias_variance)
    variances = [float(start)]
    while len(variances) < depth:
        variances.append(step(variances[-1]))
    return variances


def backward_variances(
    function: Function, variances: Sequence[float], last: float = 1.0, weight_scale: float = 1.0
) -> list[float]:
    """V[δ^1] … V[δ^L], given the variances V[z^1] … V[z^L] of the forward pass.

    V[δ^l] = s·E[f'(√V[z^l] Z)²]·V[δ^(l+1)] for l < L, which treats the forward and the backward weights
    as independent; exact as the width goes to infinity.

    Args:
        function: f, applied to each element.
        variances: V[z^l] for l = 1 … L, as `forward_variances` returns them.
        last: V[δ^L], at least 0.
        weight_scale: s = n_out · V[w], at least 0.
    """
    if not variances:
        raise UsageError("backward_variances: needs the variances of at least one layer, got none")
    _check_variance("a variance", last)
    _check_variance("the weight scale", weight_scale)
    found = [float(last)]
    for variance in reversed(variances[:-1]):
        found.insert(0, weight_scale * slope_moment(function, variance) * found[0])
    return found


def fixed_point(
    function: Function,
    weight_scale: float = 1.0,
    bias_variance: float = 0.0,
    start: float = 1.0,
    tolerance: float = 1e-10,
) -> float:
    """The variance to which the layers of a deep network converge: the limit of the map from a start.

    Infinite if the variance exceeds 1e100. Where the map touches the diagonal (tanh with s = 1, whose V falls
    as 1/(2l)) the limit is approached too slowly to be reached, and an error is raised.

    Args:
        function: f, applied to each element.
        weight_scale: s = n_in · V[w].
        bias_variance: V[b].
        start: The initial variance.
        tolerance: The relative change per step at which to stop.
    """
    step = variance_map(function, weight_scale, bias_variance)
    _check_variance("a variance", start)
    variance = float(start)
    for _ in range(MOST_LAYERS):
        after = step(variance)
        if after > 1e100:
            return math.inf
        if abs(after - variance) <= tolerance * max(abs(variance), 1e-300):
            return after
        variance = after
        if variance < 1e-100:
            return 0.0
    raise UsageError(
        f"fixed_point: the variance still changes after {MOST_LAYERS} layers and is at {variance:.3g}; the "
        "map has to cross the diagonal, and not to touch it"
    )


def _slope(function: Function, z: Tensor) -> Tensor:
    with torch.enable_grad():
        place = z.detach().clone().requires_grad_()
        (slope,) = torch.autograd.grad(function(place).sum(), place)
    return slope


def _check_variance(what: str, value: float) -> None:
    if not (value >= 0 and math.isfinite(value)):
        raise UsageError(f"{what} must be at least 0 and finite, got {value:g}")
