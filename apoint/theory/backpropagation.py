"""Back-propagation written out layer by layer, and how large its errors δ can be.

Layer l = 1 … L takes a^(l-1) to z^l = W^l a^(l-1) + b^l and a^l = f(z^l), with W^l of shape [N_l, N_(l-1)],
and C is a cost of a^L. Nothing here uses autograd: autograd is checked against it. All arrays may be
batches; the gradients of weights and biases are then sums over the batch.

Reference: Rumelhart, Hinton and Williams (1986), Learning representations by back-propagating errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from apoint.errors import UsageError

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Passed:
    """The intermediate values of a forward pass.

    Attributes:
        before: z^1 … z^L, each [batch, N_l].
        after: a^0 … a^L, one more than `before`, since a^0 is the input.
    """

    before: list[Tensor]
    after: list[Tensor]


@dataclass(frozen=True)
class Gradients:
    """The result of a backward pass, layer by layer from the first to the last.

    Attributes:
        deltas: δ^l = ∂C/∂z^l of each example, [batch, N_l].
        weights: ∂C/∂W^l, summed over the batch, [N_l, N_(l-1)].
        biases: ∂C/∂b^l, summed over the batch, [N_l].
    """

    deltas: list[Tensor]
    weights: list[Tensor]
    biases: list[Tensor]


def forward(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    function: Function,
    inputs: Tensor,
    last_linear: bool = False,
) -> Passed:
    """z^l = W^l a^(l-1) + b^l and a^l = f(z^l) for l = 1 … L.

    Args:
        weights: W^1 … W^L, each [N_l, N_(l-1)].
        biases: b^1 … b^L, each [N_l].
        function: f, applied to each element.
        inputs: a^0, [batch, N_0].
        last_linear: Whether the last layer omits f, so that a^L = z^L.
    """
    _check(weights, biases, inputs)
    before, after = [], [inputs]
    for number, (weight, bias) in enumerate(zip(weights, biases, strict=True), start=1):
        before.append(after[-1] @ weight.T + bias)
        plain = last_linear and number == len(weights)
        after.append(before[-1] if plain else function(before[-1]))
    return Passed(before, after)


def backward(
    passed: Passed,
    weights: Sequence[Tensor],
    slope: Function,
    cost_gradient: Tensor,
    last_linear: bool = False,
) -> Gradients:
    """The gradients of all weights and biases, from the last layer to the first.

    δ^L = f'(z^L) ⊗ ∂C/∂a^L, then δ_j^l = f'(z_j^l) Σ_k w_kj^(l+1) δ_k^(l+1) with k over the N_(l+1) units
    of the layer *after*, that is δ^l = f'(z^l) ⊗ (W^(l+1)ᵀ δ^(l+1)); and ∂C/∂w_jk^l = a_k^(l-1) δ_j^l,
    ∂C/∂b_j^l = δ_j^l.

    Args:
        passed: What `forward` returned for the same weights.
        weights: W^1 … W^L.
        slope: f', applied to each element.
        cost_gradient: ∂C/∂a^L of each example, [batch, N_L].
        last_linear: As in `forward`.
    """
    if cost_gradient.shape != passed.after[-1].shape:
        raise UsageError(
            f"backward: the cost's gradient must have the shape {tuple(passed.after[-1].shape)} of the last "
            f"layer, got {tuple(cost_gradient.shape)}"
        )
    delta = cost_gradient if last_linear else slope(passed.before[-1]) * cost_gradient
    deltas = [delta]
    for weight, before in zip(reversed(weights[1:]), reversed(passed.before[:-1]), strict=True):
        delta = slope(before) * (delta @ weight)
        deltas.insert(0, delta)
    pairs = zip(deltas, passed.after[:-1], strict=True)
    return Gradients(deltas, [d.T @ a for d, a in pairs], [d.sum(0) for d in deltas])


def largest_slope(function: Function, reach: float = 20.0) -> float:
    """γ = max |f'(x)| over |x| ≤ `reach`, by a grid and a search around its best point.

    f' comes from central differences with a step of 1e-5, so γ is accurate to about 1e-9 for smooth f.
    1/4 for the sigmoid, 1 for tanh and ReLU.

    Args:
        function: f, applied to each element.
        reach: How far from 0 to look, above 0; slopes beyond are not seen.
    """
    if not (reach > 0 and math.isfinite(reach)):
        raise UsageError(f"largest_slope: the reach must be positive and finite, got {reach:g}")

    def size(x: float) -> float:
        return float(_slopes(function, np.array([x]))[0])

    grid = np.linspace(-reach, reach, 8001)
    sizes = _slopes(function, grid)
    best, step = float(grid[sizes.argmax()]), 2 * reach / 8000
    found = minimize_scalar(
        lambda x: -size(x), bounds=(best - step, best + step), method="bounded", options={"xatol": 1e-9}
    )
    return max(float(sizes.max()), -float(found.fun))


def _slopes(function: Function, places: np.ndarray, step: float = 1e-5) -> np.ndarray:
    x = torch.from_numpy(places)
    with torch.no_grad():
        rise = function(x + step) - function(x - step)
    return np.asarray(rise.abs().numpy() / (2 * step))


def delta_bounds(weights: Sequence[Tensor], gamma: float, last: Tensor) -> list[Tensor]:
    """Upper bounds of |δ_j^l| for every unit of every layer, given the last layer's δ^L.

    |δ^l| ≤ γ^(L-l) · |W^(l+1)|ᵀ ⋯ |W^L|ᵀ |δ^L|, where |·| takes the absolute value of every entry. Only
    absolute values can be pulled out of the sums: slopes differ from unit to unit, so terms that cancel
    without them may survive. With ∂C/∂a^L in place of δ^L, which contains f'(z^L), there is one more power,
    γ^(L-l+1).

    Args:
        weights: W^1 … W^L.
        gamma: γ, at least the largest |f'|; not negative.
        last: δ^L, [N_L] or [batch, N_L].
    """
    _check_gamma(gamma)
    if last.shape[-1] != len(weights[-1]):
        raise UsageError(
            f"delta_bounds: the last layer has {len(weights[-1])} units, so that its errors must be as many, "
            f"got {last.shape[-1]}"
        )
    bounds = [last.abs()]
    for weight in reversed(weights[1:]):
        bounds.insert(0, gamma * (bounds[0] @ weight.abs()))
    return bounds


def norm_bounds(weights: Sequence[Tensor], gamma: float, last_norm: float = 1.0) -> list[float]:
    """Upper bounds of the Euclidean norms ‖δ^l‖ for l = 1 … L.

    ‖δ^l‖ ≤ γ^(L-l) · ‖W^(l+1)‖ ⋯ ‖W^L‖ · ‖δ^L‖, with the largest singular value as the norm of a matrix.
    With γ = 1/4 the errors vanish with depth unless the weights' norms make up for it, and they explode only
    if these norms exceed 1/γ.

    Args:
        weights: W^1 … W^L.
        gamma: γ, at least the largest |f'|; not negative.
        last_norm: ‖δ^L‖, at least 0.
    """
    _check_gamma(gamma)
    if not (last_norm >= 0 and math.isfinite(last_norm)):
        raise UsageError(f"norm_bounds: a norm must be at least 0 and finite, got {last_norm:g}")
    bounds = [float(last_norm)]
    for weight in reversed(weights[1:]):
        bounds.insert(0, gamma * float(torch.linalg.matrix_norm(weight, 2)) * bounds[0])
    return bounds


def _check(weights: Sequence[Tensor], biases: Sequence[Tensor], inputs: Tensor) -> None:
    if not weights or len(weights) != len(biases):
        raise UsageError(
            f"a network needs at least one layer, and a bias for each weight matrix; got {len(weights)} "
            f"weights and {len(biases)} biases"
        )
    size = inputs.shape[-1]
    for number, (weight, bias) in enumerate(zip(weights, biases, strict=True), start=1):
        if weight.dim() != 2 or weight.shape[1] != size or bias.shape != weight.shape[:1]:
            raise UsageError(
                f"layer {number} needs a weight of shape [units, {size}] and a bias of shape [units], got "
                f"{list(weight.shape)} and {list(bias.shape)}"
            )
        size = weight.shape[0]


def _check_gamma(gamma: float) -> None:
    if not (gamma >= 0 and math.isfinite(gamma)):
        raise UsageError(f"a bound on slopes must be at least 0 and finite, got {gamma:g}")
