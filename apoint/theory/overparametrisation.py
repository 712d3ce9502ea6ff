"""Wide networks under gradient descent: what holds at the start, how fast the loss falls, how wide is enough.

The network and its random initialisation are those of Allen-Zhu, Li and Song: ReLU, no biases,

    h_0 = φ(A x),   h_l = φ(W_l h_{l−1}) for l = 1 … L,   y = B h_L,

with A and W_l of variance 2/m, B of variance 1/d, and only W_1 … W_L are trained, on the loss Σ‖y_i − y*_i‖².

Reference: Allen-Zhu, Li and Song (2019), A convergence theory for deep learning via over-parameterization.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import jacrev

from apoint.errors import UsageError


@dataclass(frozen=True)
class Network:
    """The weights of the network of the theorem.

    Attributes:
        first: A, [m, inputs]; not trained.
        hidden: W_1 … W_L, [L, m, m].
        last: B, [d, m]; not trained.
    """

    first: Tensor
    hidden: Tensor
    last: Tensor

    @property
    def width(self) -> int:
        """m."""
        return len(self.first)

    @property
    def depth(self) -> int:
        """L."""
        return len(self.hidden)

    @property
    def outputs(self) -> int:
        """d."""
        return len(self.last)

    def activations(self, inputs: Tensor) -> list[Tensor]:
        """h_0 … h_L of each example, each [examples, m]."""
        found = [(inputs @ self.first.T).relu()]
        for weights in self.hidden:
            found.append((found[-1] @ weights.T).relu())
        return found

    def __call__(self, inputs: Tensor) -> Tensor:
        return self.activations(inputs)[-1] @ self.last.T

    def moved(self, change: Tensor) -> Network:
        """The network with W + W'."""
        return replace(self, hidden=self.hidden + change)


def draw(
    width: int, depth: int, num_inputs: int, num_outputs: int, generator: torch.Generator, scale: float = 2.0
) -> Network:
    """A randomly initialised network, in float64.

    Args:
        width: m.
        depth: L, the number of trained layers.
        num_inputs: Dimension of x.
        num_outputs: d.
        generator: Draws the weights.
        scale: The variance of A and W times m; 2 preserves the norm of ReLU activations, other values do not.
    """
    sizes = {"width": width, "depth": depth, "num_inputs": num_inputs, "num_outputs": num_outputs}
    for name, size in sizes.items():
        if size < 1:
            raise UsageError(f"draw: {name} must be at least 1, got {size}")
    if not scale > 0:
        raise UsageError(f"draw: scale must be positive, got {scale:g}")

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    std = math.sqrt(scale / width)
    return Network(
        std * normal(width, num_inputs),
        std * normal(depth, width, width),
        normal(num_outputs, width) / math.sqrt(num_outputs),
    )


# -- the start -------------------------------------------------------------------------------------------


def squared_norm_moments(width: int, layers: int, scale: float = 2.0) -> tuple[float, float]:
    """Mean and variance of ‖h‖² over the random start, after k ReLU layers, for ‖x‖ = 1.

    A layer's pre-activations are normal with variance s/m given the layer before, so that one layer
    multiplies ‖h‖² by (1/m) Σ_j s·max(0, z_j)² with mean s/2 and second moment s²(1/4 + 5/(4m)). Hence

        E‖h‖² = (s/2)^k,   E‖h‖⁴ = (s/2)^{2k}·(1 + 5/m)^k,

    mean 1 and variance (1 + 5/m)^k − 1 for s = 2: the norm stays of order 1 while k is small compared to m.

    Args:
        width: m.
        layers: k, the number of layers including that of A; h_l has gone through l + 1.
        scale: s, the variance of weights times m.
    """
    if width < 1 or layers < 0:
        raise UsageError(
            f"squared_norm_moments: width must be at least 1 and layers at least 0, got {width} and {layers}"
        )
    mean = (scale / 2) ** layers
    return mean, mean**2 * math.expm1(layers * math.log1p(5 / width))


def separation(inputs: Tensor) -> float:
    """δ: the smallest distance between two examples."""
    if len(inputs) < 2:
        raise UsageError(f"separation: at least two examples are needed, got {len(inputs)}")
    return float(torch.pdist(inputs).min())


# -- loss, gradient, kernel ------------------------------------------------------------------------------


def loss(network: Network, inputs: Tensor, targets: Tensor) -> Tensor:
    """𝓛 = Σ_i ‖f(x_i) − y*_i‖², with a graph."""
    outputs = network(inputs)
    if outputs.shape != targets.shape:
        raise UsageError(
            f"loss: targets must have the outputs' shape {tuple(outputs.shape)}, got {tuple(targets.shape)}"
        )
    return (outputs - targets).square().sum()


def gradient(network: Network, inputs: Tensor, targets: Tensor) -> tuple[float, Tensor]:
    """The loss and its gradient with respect to the trained weights, [L, m, m]."""
    hidden = network.hidden.detach().clone().requires_grad_()
    value = loss(replace(network, hidden=hidden), inputs, targets)
    (found,) = torch.autograd.grad(value, hidden)
    return float(value.detach()), found


def tangent_kernel(network: Network, inputs: Tensor) -> Tensor:
    """K = J Jᵀ of all outputs with respect to the trained weights, [n·d, n·d], examples outermost."""

    def outputs(hidden: Tensor) -> Tensor:
        return replace(network, hidden=hidden)(inputs).flatten()

    jacobian: Tensor = jacrev(outputs)(network.hidden).detach().flatten(1)
    return jacobian @ jacobian.T


def gradient_bounds(kernel: Tensor) -> tuple[float, float]:
    """c and C with c·𝓛 ≤ ‖∇𝓛‖² ≤ C·𝓛, for any targets: 4 λ_min and 4 λ_max of the tangent kernel.

    ∇𝓛 = 2 Jᵀ r with residuals r, so that ‖∇𝓛‖² = 4 rᵀ K r while 𝓛 = ‖r‖².
    """
    values = torch.linalg.eigvalsh(kernel)
    return 4 * max(0.0, float(values[0])), 4 * float(values[-1])


def theorem_gradient_bounds(
    num_examples: int, width: int, depth: int, num_outputs: int, separated: float
) -> tuple[float, float]:
    """The same c and C as in the theorem, without their unknown constants.

        c ~ δ·m/(d·n²),   C ~ L·n·m/d

    Args:
        num_examples: n.
        width: m.
        depth: L.
        num_outputs: d.
        separated: δ.
    """
    _data(num_examples, depth, separated)
    lower = separated * width / (num_outputs * num_examples**2)
    return lower, depth * num_examples * width / num_outputs


# -- descent ---------------------------------------------------------------------------------------------


def descend(
    network: Network, inputs: Tensor, targets: Tensor, lr: float, num_steps: int, until: float = 0.0
) -> tuple[Network, list[float]]:
    """Run gradient descent; return the final network, and the loss before each step and at the end.

    Args:
        network: The starting network.
        inputs: Examples.
        targets: Their targets.
        lr: η.
        num_steps: Maximum number of steps.
        until: Stop when the loss is at most this, or no longer finite.
    """
    if not lr > 0:
        raise UsageError(f"descend: lr must be positive, got {lr:g}")
    losses = []
    for _ in range(num_steps):
        value, slope = gradient(network, inputs, targets)
        losses.append(value)
        if value <= until or not math.isfinite(value):
            return network, losses
        network = network.moved(-lr * slope)
    losses.append(float(loss(network, inputs, targets).detach()))
    return network, losses


def predicted_losses(kernel: Tensor, residuals: Tensor, lr: float, num_steps: int) -> list[float]:
    """The loss before each step and at the end if the kernel never changed: Σ_k (1 − 2ηλ_k)^{2t} (u_kᵀ r)².

    Its slowest part falls by (1 − 2ηλ_min)² per step: linear convergence.

    Args:
        kernel: K at the start, with eigenvalues λ_k and vectors u_k.
        residuals: r = f − y* at the start, flattened.
        lr: η.
        num_steps: Number of steps.
    """
    values, vectors = torch.linalg.eigh(kernel)
    parts = (vectors.T @ residuals.flatten()).square()
    factors = (1 - 2 * lr * values).square()
    return [float((parts * factors**step).sum()) for step in range(num_steps + 1)]


def semi_smooth_excess(network: Network, change: Tensor, inputs: Tensor, targets: Tensor) -> float:
    """𝓛(W + W') − 𝓛(W) − ⟨∇𝓛(W), W'⟩: how far the loss lies above its tangent."""
    value, slope = gradient(network, inputs, targets)
    after = float(loss(network.moved(change), inputs, targets).detach())
    return after - value - float((slope * change).sum())


def semi_smooth_bound(
    value: float, size: float, num_examples: int, width: int, depth: int, num_outputs: int, power: float = 1.0
) -> float:
    """The theorem's upper bound on `semi_smooth_excess`, with all unknown constants set to 1.

        L²·√(n·m·log m)/√d · ‖W'‖·√𝓛 + (n·L²·m/d)·‖W'‖²

    Args:
        value: 𝓛 at W.
        size: ‖W'‖, of the matrix with the largest spectral norm.
        num_examples: n.
        width: m, at least 2.
        depth: L.
        num_outputs: d.
        power: Power of m; the theorem has 1.
    """
    if width < 2:
        raise UsageError(f"semi_smooth_bound: width must be at least 2, got {width}")
    wide: float = width**power
    rough = depth**2 * math.sqrt(num_examples * wide * math.log(width) / num_outputs)
    return rough * size * math.sqrt(value) + num_examples * depth**2 * wide / num_outputs * size**2


# -- how wide --------------------------------------------------------------------------------------------


def log_required_width(num_examples: int, depth: int, separated: float) -> float:
    """The logarithm of the width that the theorem requires: log(n²⁴·L¹²/δ⁸).

    It is a logarithm because the width is too large for a float64 at n = 10¹³, and for comparison. The
    constant in front and a power of log m are left out: the true requirement is larger.

    Args:
        num_examples: n.
        depth: L.
        separated: δ, the smallest distance between two examples.
    """
    _data(num_examples, depth, separated)
    return 24 * math.log(num_examples) + 12 * math.log(depth) - 8 * math.log(separated)


def smallest_width(is_enough: Callable[[int], bool], least: int = 1, most: int = 4096) -> int:
    """The smallest width that is enough, if every larger one is enough too.

    Doubles from `least` until one is enough, then bisects.

    Args:
        is_enough: Whether a width is enough, for example whether training reaches zero loss.
        least: The first width to try.
        most: The largest width to try.
    """
    low, high = least - 1, least
    while not is_enough(high):
        low, high = high, 2 * high
        if high > most:
            raise UsageError(f"smallest_width: no width up to {most} is enough; allow a larger one")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _data(num_examples: int, depth: int, separated: float) -> None:
    if num_examples < 1 or depth < 1:
        raise UsageError(
            f"the numbers of examples and layers must be at least 1, got {num_examples} and {depth}"
        )
    if not separated > 0:
        raise UsageError(
            f"the examples must be separated by a distance above 0, got {separated:g}; remove doubles"
        )
