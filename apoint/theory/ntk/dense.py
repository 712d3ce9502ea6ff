"""Kernels of infinitely wide dense networks, in row blocks, and only half where they are symmetric."""

from __future__ import annotations

from torch import Tensor

from apoint.theory.ntk.activations import Activation, dual
from apoint.theory.ntk.kernels import (
    BUDGET_BYTES,
    CACHE_BYTES,
    Kernels,
    check_settings,
    checked_inputs,
    mirror,
    row_blocks,
)

_TEMPORARIES = 8  # matrices of a block's shape that one layer holds at a time, at most


class InfiniteDense:
    """The function that `infinite_width` returns; see there."""

    def __init__(
        self, depth: int, activation: Activation, weight_variance: float, bias_variance: float, budget: int
    ) -> None:
        check_settings(depth, weight_variance, bias_variance, budget)
        self.depth, self.dual, self.budget = depth, dual(activation), budget
        self.weight_variance, self.bias_variance = weight_variance, bias_variance

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Kernels:
        """Both kernels between two sets of inputs [n, …], or within one, in the inputs' precision."""
        x1, x2 = checked_inputs(x1, x2)
        one = x1.flatten(1)
        other = one if x2 is None else x2.flatten(1)
        described = self._describe(one)
        described_other = described if x2 is None else self._describe(other)
        ntk, nngp = one.new_empty(len(one), len(other)), one.new_empty(len(one), len(other))
        most = min(self.budget // _TEMPORARIES, CACHE_BYTES)
        for rows in row_blocks(len(one), len(other) * one.element_size(), most):
            columns = slice(rows.start if x2 is None else 0, len(other))
            sides = [
                (a[:, rows, None], b[:, None, columns])
                for a, b in zip(described, described_other, strict=True)
            ]
            block = self._block(one[rows] @ other[columns].T, one.shape[1], sides)
            ntk[rows, columns], nngp[rows, columns] = block
            if x2 is None:
                mirror(ntk, rows)
                mirror(nngp, rows)
        if x2 is None:
            alone = self.alone(one)
            ntk.diagonal().copy_(alone.ntk)
            nngp.diagonal().copy_(alone.nngp)
        return Kernels(ntk, nngp)

    def alone(self, x: Tensor) -> Kernels:
        """Both kernels of each input with itself, [n]: the diagonals."""
        covariance = self._affine(x.flatten(1).double().square().mean(1))
        ntk = covariance.clone()
        for _ in range(self.depth):
            values, slopes = self.dual.alone(covariance)
            covariance = self._affine(values)
            ntk = ntk * slopes * self.weight_variance + covariance
        return Kernels(ntk.to(x.dtype), covariance.to(x.dtype))

    def _describe(self, x: Tensor) -> list[Tensor]:
        """What each layer's activation needs from the variance of each input, [numbers, n] per layer."""
        variance, found = self._affine(x.double().square().mean(1)), []
        for _ in range(self.depth):
            found.append(self.dual.describe(variance).to(x.dtype))
            variance = self._affine(self.dual.alone(variance)[0])
        return found

    def _block(
        self, products: Tensor, features: int, sides: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        covariance = products.mul_(self.weight_variance / features).add_(self.bias_variance)
        ntk = covariance
        for one, other in sides:
            values, slopes = self.dual.pair(covariance, one, other)
            covariance = values.mul_(self.weight_variance).add_(self.bias_variance)
            ntk = slopes.mul_(ntk).mul_(self.weight_variance).add_(covariance)
        return ntk, covariance

    def _affine(self, moments: Tensor) -> Tensor:
        return moments * self.weight_variance + self.bias_variance


def infinite_width(
    depth: int = 3,
    activation: Activation = "relu",
    weight_variance: float = 2.0,
    bias_variance: float = 0.0,
    budget_bytes: int = BUDGET_BYTES,
) -> InfiniteDense:
    """The kernels of a dense network whose hidden layers are infinitely wide, as a function of inputs.

    In NTK parametrisation, z⁰ = √(v/d)·W⁰x + √b·β⁰ and zˡ = √(v/n)·Wˡf(zˡ⁻¹) + √b·βˡ with all of W and β
    standard normal. As the widths n grow, with Σ the covariance of the outputs (NNGP) and Θ the NTK,

        Σ⁰ = v·x·x'/d + b,            Θ⁰ = Σ⁰,
        Σˡ = v·E[f(u)f(u')] + b,      Θˡ = Σˡ + v·E[f'(u)f'(u')]·Θˡ⁻¹,   (u, u') normal with covariance Σˡ⁻¹.

    `infinite_width()(x1, x2)` returns `Kernels(ntk, nngp)`, [n1, n2] in the inputs' precision; without x2
    half of it is computed and mirrored, and the diagonal is exact. Besides the result it only needs blocks of
    rows: ten thousand inputs in float32 take 0.8 GB for both kernels and little more.

    Args:
        depth: The number of hidden layers, l above; 0 for a linear model.
        activation: f: a name such as `relu`, `leaky-relu`, `erf`, `gelu` (closed forms) or any other in the
            registry, a mapping with settings, or any function (series; see `ntk.activations.Series`).
        weight_variance: v, above 0; 2 preserves variances through ReLU layers.
        bias_variance: b, at least 0; with 0 there are no biases.
        budget_bytes: Memory limit for blocks.

    References: Jacot, Gabriel and Hongler (2018), Neural tangent kernel; Lee, Bahri, Novak, Schoenholz,
    Pennington and Sohl-Dickstein (2018), Deep neural networks as Gaussian processes.
    """
    return InfiniteDense(depth, activation, weight_variance, bias_variance, budget_bytes)
