"""How many neurons a monomial x₁^r₁ ⋯ x_n^r_n needs, and networks that compute it.

The networks have no biases beyond one shift z₀ of the activation. Values go from layer to layer through gates
of a few neurons, each exact in the limit λ → 0 with an error of order λ².

References: Lin, Tegmark and Rolnick (2017), Why does deep and cheap learning work so well?; Rolnick and
Tegmark (2018), The power of deeper networks for expressing natural functions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from apoint.errors import UsageError

Function = Callable[[Tensor], Tensor]


def shallow_count(exponents: Sequence[int]) -> int:
    """Neurons in one hidden layer that are necessary and sufficient for a monomial: Π(r_i + 1)."""
    return math.prod(power + 1 for power in _checked(exponents))


def deep_bound(exponents: Sequence[int]) -> int:
    """Neurons that suffice if any number of layers is allowed: Σ(7⌈log₂ r_i⌉ + 4). Fewer may suffice."""
    return sum(7 * math.ceil(math.log2(power)) + 4 for power in _checked(exponents))


@dataclass(frozen=True)
class Gate:
    """A hidden layer that computes one monomial of the values before it.

    values ↦ Σ_j c_j σ(z₀ + w_j · values) ≈ Π values_i^r_i for small weights.

    Attributes:
        weights: The w_j, [neurons, values].
        outer: The c_j, [neurons].
    """

    weights: np.ndarray
    outer: np.ndarray


@dataclass(frozen=True)
class DeepNetwork:
    """Layers of gates: values ↦ B·σ(z₀ + A·values), repeated, with one output at the end.

    B of a layer and A of the next are one matrix of weights, so that this is an ordinary network.

    Attributes:
        activation: σ, applied to each element of a tensor.
        shift: z₀.
        layers: A, [neurons, values before], and B, [values after, neurons], of each hidden layer.
    """

    activation: Function
    shift: float
    layers: Sequence[tuple[np.ndarray, np.ndarray]]

    @property
    def neurons(self) -> int:
        """The number of hidden neurons in all layers."""
        return sum(len(inner) for inner, _ in self.layers)

    @property
    def depth(self) -> int:
        """The number of hidden layers."""
        return len(self.layers)

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """The values at points, [count, inputs]."""
        values = np.asarray(points, float)
        for inner, outer in self.layers:
            before = torch.from_numpy(values @ inner.T + self.shift)
            with torch.no_grad():
                values = self.activation(before).numpy() @ outer.T
        return np.asarray(values[:, 0])


def monomial_gate(
    exponents: Sequence[int], activation: Function, size: float = 0.01, shift: float = 0.0
) -> Gate:
    """A monomial computed by one layer of Π(r_i + 1) neurons: a central difference of the activation.

    Σ_j Π_i (−1)^(r_i − j_i) C(r_i, j_i) · σ(z₀ + λ Σ_i (2j_i − r_i) x_i) / ((2λ)^d σ^(d)(z₀)) with d = Σ r_i,
    j_i from 0 to r_i. For x₁x₂ it is the product gate of four neurons,
    [σ(λ(u+v)) + σ(−λ(u+v)) − σ(λ(u−v)) − σ(λ(v−u))] / (4λ²σ''(0)).

    Args:
        exponents: The r_i, each at least 1.
        activation: σ, smooth at the shift.
        size: λ, above 0; the error is of order λ², and rounding of order 1e-16/λ^d.
        shift: z₀, where the d-th derivative of σ must not vanish.
    """
    powers = _checked(exponents)
    if not (math.isfinite(size) and size > 0):
        raise UsageError(f"a gate's size must be positive and finite, got {size:g}")
    degree = sum(powers)
    slope = derivative(activation, degree, shift)
    if abs(slope) < 1e-9:
        raise UsageError(
            f"a gate of degree {degree} needs an activation whose derivative of that order does not vanish "
            f"at the shift {shift:g}, where it is {slope:g}; choose another shift"
        )
    steps = np.array(list(itertools.product(*[range(power + 1) for power in powers])))
    signs = np.prod(
        [
            [(-1) ** (r - j) * math.comb(r, j) for r, j in zip(powers, row, strict=True)]
            for row in steps.tolist()
        ],
        axis=1,
    )
    return Gate(size * (2 * steps - np.array(powers)), signs / ((2 * size) ** degree * slope))


def derivative(activation: Function, order: int, at: float) -> float:
    """The derivative of an activation at a point, by repeated differentiation in float64."""
    point = torch.tensor(float(at), dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        value = activation(point)
        for _ in range(order):
            if not value.requires_grad:
                return 0.0
            (value,) = torch.autograd.grad(value, point, create_graph=True)
    return float(value.detach())


def shallow_network(
    exponents: Sequence[int], activation: Function, size: float = 0.01, shift: float = 0.0
) -> DeepNetwork:
    """The network of `shallow_count` neurons in one hidden layer; see `monomial_gate`."""
    gate = monomial_gate(exponents, activation, size, shift)
    return DeepNetwork(activation, shift, [(gate.weights, gate.outer[None])])


def deep_network(
    exponents: Sequence[int], activation: Function, size: float = 0.01, shift: float = 0.0
) -> DeepNetwork:
    """A network of at most `deep_bound` − 2 neurons that computes a monomial.

    Each variable is squared repeatedly (3 neurons each time). In every layer the powers that its binary
    exponent asks for and the products so far are multiplied in pairs (4 neurons; one group of three, 8
    neurons, if their number is odd). A single value that must wait is carried (2 neurons). So there are
    Σ⌊log₂ r_i⌋ squares and Σ(ones in r_i) − 1 products; carrying happens once at the start or where a binary
    digit is 0, which saves a product.

    Args:
        exponents: The r_i, each at least 1.
        activation: σ with non-zero first, second and third derivatives at the shift.
        size: λ of the gates.
        shift: z₀.
    """
    powers = list(_checked(exponents))
    layers: list[tuple[np.ndarray, np.ndarray]] = []
    bases: dict[int, int] = {i: i for i in range(len(powers))}  # variable → place of its power among values
    products: list[int] = []
    values = len(powers)
    while not layers or values > 1 or any(powers[variable] > 1 for variable in bases):
        ready = products + [place for variable, place in bases.items() if powers[variable] & 1]
        squared = [variable for variable in bases if powers[variable] > 1]
        groups = _groups(ready)
        wanted = [((1,) * len(group), group) for group in groups]
        wanted += [((2,), [bases[variable]]) for variable in squared]
        layers.append(_layer(wanted, values, activation, size, shift))
        products = list(range(len(groups)))
        bases = {variable: len(groups) + place for place, variable in enumerate(squared)}
        powers = [power >> 1 for power in powers]
        values = len(wanted)
    return DeepNetwork(activation, shift, layers)


def moment_residual(weights: np.ndarray, exponents: Sequence[int], outer: np.ndarray | None = None) -> float:
    """How far one hidden layer with given weights is from a monomial, in the moments of its weights.

    The coefficient of x^M in Σ_j c_j σ(w_j·x) is a constant, not zero, times the moment Σ_j c_j w_j^M. To be
    the monomial x^r, the moment of M = r must be 1 and those of the other M ≤ 2r must be 0. This is the norm
    of what is missing, for the best c or the given one.

    With fewer than Π(r_i + 1) neurons it is at least 1/Π(r_i + 1), for any weights. For then there is
    q(w) = Σ_{S ≤ r} α_S w^S with q(w_j) = 0 for all j; let α_T be its largest coefficient and multiply q by
    w^(r − T): 0 = Σ_j c_j w_j^(r−T) q(w_j) = Σ_S α_S (moment of S + r − T), where the moment of S = T alone
    should be 1.

    Args:
        weights: The w_j, [neurons, inputs].
        exponents: The r_i.
        outer: The c_j, [neurons]; None for the best.
    """
    powers = _checked(exponents)
    rows = np.array(list(itertools.product(*[range(2 * power + 1) for power in powers])))
    moments = np.prod(np.asarray(weights, float)[None] ** rows[:, None, :], axis=2)
    wanted = (rows == np.array(powers)).all(1).astype(float)
    if outer is None:
        sizes = np.maximum(np.linalg.norm(moments, axis=0), np.finfo(float).tiny)
        basis = np.linalg.svd(moments / sizes, full_matrices=False)
        kept = basis[0][:, basis[1] > 1e-14 * basis[1][0]]
        return float(np.linalg.norm(wanted - kept @ (kept.T @ wanted)))
    return float(np.linalg.norm(moments @ np.asarray(outer, float) - wanted))


def _groups(ready: list[int]) -> list[list[int]]:
    """Pairs, with one group of three if the number is odd; a single element forms its own group."""
    pairs = [ready[i : i + 2] for i in range(0, len(ready) - 1, 2)]
    if len(ready) % 2:
        if not pairs:
            return [ready]
        pairs[-1] = [*pairs[-1], ready[-1]]
    return pairs


def _layer(
    wanted: Sequence[tuple[Sequence[int], Sequence[int]]],
    values: int,
    activation: Function,
    size: float,
    shift: float,
) -> tuple[np.ndarray, np.ndarray]:
    gates = [monomial_gate(powers, activation, size, shift) for powers, _ in wanted]
    inner = np.zeros((sum(len(gate.outer) for gate in gates), values))
    outer = np.zeros((len(gates), len(inner)))
    start = 0
    for row, (gate, (_, places)) in enumerate(zip(gates, wanted, strict=True)):
        neurons = slice(start, start + len(gate.outer))
        inner[neurons, list(places)] = gate.weights
        outer[row, neurons] = gate.outer
        start += len(gate.outer)
    return inner, outer


def _checked(exponents: Sequence[int]) -> tuple[int, ...]:
    powers = tuple(exponents)
    if not powers or any(isinstance(p, bool) or int(p) != p or p < 1 for p in powers):
        raise UsageError(f"exponents must be whole numbers from 1 on, at least one of them; got {powers}")
    return tuple(int(power) for power in powers)
