"""One hidden layer as a cloud of particles: f(x) = (1/N) Σ_i a_i σ(w_i·x), the mean over its neurons.

With the factor 1/N the network depends on its parameters through their distribution alone. Gradient flow
moves each particle (a_i, w_i) in the field of all others; as N grows the distribution follows a deterministic
path (a gradient flow of the loss in the Wasserstein metric), and the random fluctuations fall as N^(−1/2).

References: Sirignano and Spiliopoulos (2020), Mean field analysis of neural networks: a law of large numbers;
Chizat and Bach (2018), On the global convergence of gradient descent for over-parameterized models using
optimal transport; Mei, Montanari and Nguyen (2018), A mean field view of the landscape of two-layer neural
networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor, nn

from apoint.errors import UsageError

Function = Callable[[Tensor], Tensor]


class MeanFieldNetwork(nn.Module):
    """x ↦ (1/N) Σ_i a_i σ(w_i·x) as a module, with a_i and w_i of order 1 for any N.

    The gradient of a loss with respect to one particle has the factor 1/N, so the learning rate must be N
    times as large to move it as far. To follow the flow for a time dt, use the learning rate N·dt,
    `rate(dt)`.

    Args:
        inputs: The dimension of x, at least 1.
        particles: N, at least 1.
        outputs: The dimension of a_i, at least 1.
        activation: σ.
        generator: Draws a_i and w_i, standard normal with w_i divided by √inputs.
    """

    def __init__(
        self,
        inputs: int,
        particles: int,
        outputs: int = 1,
        activation: Function = torch.relu,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("inputs", inputs), ("particles", particles), ("outputs", outputs)):
            _check_whole(value, name)
        weights = torch.randn(particles, inputs, generator=generator) / math.sqrt(inputs)
        self.weights = nn.Parameter(weights)
        self.outer = nn.Parameter(torch.randn(particles, outputs, generator=generator))
        self.activation = activation

    @property
    def particles(self) -> int:
        """N."""
        return len(self.weights)

    def rate(self, time_step: float) -> float:
        """The learning rate of plain gradient descent that follows the flow for a time step: N·dt."""
        return self.particles * time_step

    def measure(self, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """The mean of a function of (a, w) over the particles, ⟨function, δ⟩ with δ = (1/N) Σ_i δ_(a_i, w_i).

        Args:
            function: Takes a, [N, outputs], and w, [N, inputs]; returns a value for each particle, [N, ...].
        """
        return function(self.outer, self.weights).mean(0)

    def forward(self, x: Tensor) -> Tensor:
        """The values at x, [..., inputs], as [..., outputs]."""
        hidden: Tensor = self.activation(x @ self.weights.T)
        return hidden @ self.outer / self.particles


@dataclass(frozen=True)
class Cloud:
    """Many clouds of N particles each, moved together.

    Attributes:
        outer: The a_i, [replicas, N].
        weights: The w_i, [replicas, N, inputs].
    """

    outer: Tensor
    weights: Tensor

    @property
    def particles(self) -> int:
        """N."""
        return self.outer.shape[1]


def draw(
    replicas: int, particles: int, inputs: int, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Cloud:
    """Clouds with a_i standard normal and w_i normal with variance 1/inputs.

    Args:
        replicas: Number of clouds, at least 1.
        particles: N, at least 1.
        inputs: The dimension of w_i, at least 1.
        generator: Draws the particles.
        dtype: Data type of the particles.
    """
    for name, value in (("replicas", replicas), ("particles", particles), ("inputs", inputs)):
        _check_whole(value, name)
    outer = torch.randn(replicas, particles, generator=generator, dtype=dtype)
    weights = torch.randn(replicas, particles, inputs, generator=generator, dtype=dtype)
    return Cloud(outer, weights / math.sqrt(inputs))


def values(cloud: Cloud, x: Tensor, activation: Function = torch.relu, power: float = 1.0) -> Tensor:
    """N^(−power) Σ_i a_i σ(w_i·x) of each cloud, [replicas, points]."""
    hidden = activation(cloud.weights @ x.T)
    total = torch.einsum("rn,rnp->rp", cloud.outer, hidden)
    return total / float(cloud.particles**power)


def evolve(
    cloud: Cloud,
    x: Tensor,
    y: Tensor,
    time: float,
    step: float,
    activation: Function = torch.relu,
    *,
    power: float = 1.0,
    frozen: bool = False,
) -> Cloud:
    """Move each cloud along the gradient flow of ½ mean (f − y)², by explicit steps.

    da_i/dt = −mean (f − y) σ(w_i·x) and dw_i/dt = −mean (f − y) a_i σ'(w_i·x) x, the gradient times N. For
    f = N^(−power) Σ … it is the gradient times N^(2·power − 1), which moves f at a speed of order 1 for any
    N.

    Args:
        cloud: The starting point.
        x: Points, [points, inputs].
        y: Targets at these points, [points].
        time: Duration, above 0.
        step: dt, above 0; the last step is shorter if the steps do not fit.
        activation: σ.
        power: Power of 1/N in front of the sum: 1 for mean field, 1/2 for the scale of tangent kernels.
        frozen: Whether the w_i stay fixed; f is then linear in the learned parameters.
    """
    if not (math.isfinite(time) and math.isfinite(step) and step > 0 and time > 0):
        raise UsageError(f"evolve: time and step must be positive and finite, got {time:g} and {step:g}")
    outer, weights = cloud.outer, cloud.weights
    steps = math.ceil(time / step - 1e-9)
    speed = cloud.particles ** (power - 1)
    for number in range(steps):
        dt = min(step, time - number * step)
        before = weights @ x.T
        hidden, slope = _with_slope(activation, before)
        f = torch.einsum("rn,rnp->rp", outer, hidden) / cloud.particles**power
        missing = (y - f) * (dt * speed / len(x))
        move = torch.einsum("rnp,rp->rn", hidden, missing)
        if not frozen:
            weights = weights + outer[..., None] * ((slope * missing[:, None]) @ x)
        outer = outer + move
    return Cloud(outer, weights)


def linear_limit(target: float, time: float, size: float = 1.0) -> float:
    """f(1) after a given time, for infinitely many particles with σ(z) = z and one input of E[x²] = 1.

    c = E[aw] and S = E[a² + w²] form a closed system: dc/dt = (u − c)S and dS/dt = 4(u − c)c, so that
    S² − 4c² is conserved and dc/dt = (u − c)√(S₀² + 4c²) from c = 0.

    Args:
        target: u, the slope of y = ux.
        time: At least 0.
        size: The standard deviation of a and w at the start, above 0.
    """
    if not (size > 0 and time >= 0 and math.isfinite(time)):
        raise UsageError(
            f"linear_limit: size must be positive and time at least 0, got {size:g} and {time:g}"
        )
    start = 2 * size**2

    def speed(_: float, c: np.ndarray) -> np.ndarray:
        return np.asarray((target - c) * np.sqrt(start**2 + 4 * c**2))

    return float(solve_ivp(speed, (0.0, time), [0.0], rtol=1e-10, atol=1e-12).y[0, -1])


def _with_slope(activation: Function, before: Tensor) -> tuple[Tensor, Tensor]:
    if activation is torch.relu:
        hidden = torch.relu(before)
        return hidden, (hidden > 0).to(before.dtype)
    with torch.enable_grad():
        place = before.detach().requires_grad_()
        hidden = activation(place)
        (slope,) = torch.autograd.grad(hidden.sum(), place)
    return hidden.detach(), slope


def _check_whole(value: int, name: str) -> None:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise UsageError(f"{name} must be a whole number from 1 on, got {value}")
