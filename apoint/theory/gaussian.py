"""Expectations under a Gaussian by quadrature, and the gains of activations that follow from them.

Signal propagation repeatedly needs E[f(Z)²] with Z Gaussian. Activations are smooth between a few kinks
(0, ±1, ±3, 6), all at whole numbers, so the line is cut at the whole numbers and each panel is
integrated by the Gauss-Legendre rule, which converges exponentially there. The Gauss-Hermite rule
would need thousands of nodes for the kink of a ReLU alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from apoint.errors import UsageError

Function = Callable[[Tensor], Tensor]
"""A function applied to each element of a float64 tensor, such as `torch.tanh` or an activation module."""

_NODES_PER_PANEL = 64
_REACH = 13  # in standard deviations; the density beyond is below 1e-37
_KINKS = np.arange(-16.0, 17.0)


def expectation(function: Function, std: float = 1.0, mean: float = 0.0) -> float:
    """E[f(Z)] for Z normal with the given mean and standard deviation, in float64.

    The error is below 1e-10 for functions that are smooth, or smooth between whole numbers up to ±16, and
    grow no faster than an exponential. A kink elsewhere, or an oscillation much faster than both 1 and
    `std`, costs accuracy.

    Args:
        function: f, applied to each element.
        std: The standard deviation of Z, above 0.
        mean: The mean of Z.
    """
    nodes, weights = _rule(std, mean)
    with torch.no_grad():
        values = function(nodes)
    return _weighted_sum(values, weights)


def second_moment(function: Function, std: float = 1.0, mean: float = 0.0) -> float:
    """E[f(Z)²] for Z normal with the given mean and standard deviation."""
    return expectation(lambda z: function(z).square(), std, mean)


def gain(function: Function) -> float:
    """1/√E[f(Z)²] for a standard normal Z: what preserves the variance through a layer with activation f.

    A layer z = W f(z_before) with n inputs and independent weights of variance V[w] has
    V[z] = n · V[w] · E[f(z_before)²]. So V[z] = V[z_before] = 1 requires V[w] = gain² / n. The gain
    multiplies the *standard deviation* of the weights, and its square multiplies their variance. It is 1 for
    the identity, √2 for ReLU, √(2/(1+α²)) for leaky ReLU with slope α.

    `torch.nn.init.calculate_gain` agrees on these three; its 5/3 for tanh is a rule of thumb, and this
    gives 1.5925.
    """
    return _inverse_root(second_moment(function), "E[f(Z)²]")


def backward_gain(function: Function) -> float:
    """1/√E[f'(Z)²] for a standard normal Z: what preserves the variance of gradients.

    Going backwards, V[δ] = n_out · V[w] · E[f'(z)²] · V[δ_after]. It equals `gain` for the identity, ReLU
    and leaky ReLU, and for no other of the usual activations. f' comes from autograd, so at a kink it is
    PyTorch's choice; kinks have no weight in the integral.
    """
    nodes, weights = _rule(1.0, 0.0)
    with torch.enable_grad():
        z = nodes.clone().requires_grad_()
        (slope,) = torch.autograd.grad(function(z).sum(), z)
    return _inverse_root(_weighted_sum(slope.square(), weights), "E[f'(Z)²]")


def _weighted_sum(values: Tensor, weights: Tensor) -> float:
    if values.shape != weights.shape:
        raise UsageError(
            f"expectation: the function must act on each element, but it turned {len(weights)} numbers into "
            f"a tensor of shape {tuple(values.shape)}"
        )
    return float(torch.dot(values.detach().to(torch.float64), weights))


def _inverse_root(moment: float, what: str) -> float:
    if not (math.isfinite(moment) and moment > 0):
        raise UsageError(f"gain: {what} must be positive and finite for the gain to exist, got {moment:g}")
    return 1 / math.sqrt(moment)


def _rule(std: float, mean: float) -> tuple[Tensor, Tensor]:
    """The nodes of the composite rule, and their weights with the Gaussian density included."""
    if not (math.isfinite(std) and std > 0 and math.isfinite(mean)):
        raise UsageError(f"expectation: std must be positive and mean finite, got std={std:g}, mean={mean:g}")
    steps = mean + std * np.arange(-_REACH, _REACH + 1)  # panels no wider than std resolve the density
    inside = _KINKS[np.abs(_KINKS - mean) < std * _REACH]
    edges = np.unique(np.concatenate([steps, inside]))
    unit_nodes, unit_weights = _legendre()
    half = np.diff(edges)[:, None] / 2
    nodes = (edges[:-1, None] + half * (1 + unit_nodes)).ravel()
    density = np.exp(-0.5 * ((nodes - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
    return torch.from_numpy(nodes), torch.from_numpy((half * unit_weights).ravel() * density)


@functools.cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
