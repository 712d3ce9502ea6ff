"""Lazy training: a network whose output is scaled up learns without its weights moving, as its tangent would.

The network has one hidden layer and no biases, f(x) = Σ_j a_j·max(0, w_jᵀx), and is symmetrised: each neuron
has a twin with the opposite a, so that it starts at f = 0 at any scale. Scaling all weights by τ at the
start is the same as training α·f with α = τ², since f is 2-homogeneous; see `alpha_of`.

Reference: Chizat, Oyallon and Bach (2019), On lazy training in differentiable programming.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp

from apoint.errors import UsageError


@dataclass(frozen=True)
class Weights:
    """The weights of a network with one hidden layer.

    Attributes:
        slopes: a, [m].
        directions: w, [m, inputs].
    """

    slopes: Tensor
    directions: Tensor

    def __call__(self, inputs: Tensor) -> Tensor:
        return outputs(self.slopes, self.directions, inputs)

    @property
    def norm(self) -> float:
        """‖θ‖."""
        return math.hypot(float(self.slopes.norm()), float(self.directions.norm()))

    def scaled(self, scale: float) -> Weights:
        """τ·θ."""
        return Weights(scale * self.slopes, scale * self.directions)

    def minus(self, other: Weights) -> Weights:
        """θ − θ'."""
        return Weights(self.slopes - other.slopes, self.directions - other.directions)


def outputs(slopes: Tensor, directions: Tensor, inputs: Tensor) -> Tensor:
    """f(x) = Σ_j a_j·max(0, w_jᵀx) for each row of inputs."""
    return (inputs @ directions.T).relu() @ slopes


def symmetrised(
    width: int,
    num_inputs: int,
    scale: float,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float64,
) -> Weights:
    """A random start with f = 0: half of the neurons drawn, the others their twins with −a.

    Args:
        width: m, even.
        num_inputs: Dimension of x.
        scale: τ, the standard deviation of all weights.
        generator: Draws the weights.
        dtype: Data type of the weights.
    """
    if width < 2 or width % 2:
        raise UsageError(
            f"symmetrised: width must be even and at least 2, as neurons come in twins; got {width}"
        )
    _positive("symmetrised", "scale", scale)
    slopes = scale * torch.randn(width // 2, generator=generator, dtype=dtype)
    directions = scale * torch.randn(width // 2, num_inputs, generator=generator, dtype=dtype)
    return Weights(torch.cat([slopes, -slopes]), torch.cat([directions, directions]))


def teacher(
    width: int, num_inputs: int, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Weights:
    """A network to learn from: unit directions, slopes of ±1.

    Args:
        width: m₀, the number of neurons.
        num_inputs: Dimension of x.
        generator: Draws the network.
        dtype: Data type of the weights.
    """
    directions = sphere(width, num_inputs, generator, dtype)
    return Weights(torch.randn(width, generator=generator, dtype=dtype).sign(), directions)


def sphere(
    count: int, num_inputs: int, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Points drawn uniformly from the unit sphere, [count, num_inputs].

    Args:
        count: Number of points.
        num_inputs: Dimension of the space.
        generator: Draws the points.
        dtype: Data type of the points.
    """
    points = torch.randn(count, num_inputs, generator=generator, dtype=dtype)
    return torch.nn.functional.normalize(points, dim=1)


def alpha_of(scale: float, degree: float = 2.0) -> float:
    """The output factor α equivalent to scaling the start by τ: α = τ^q for a q-homogeneous network.

    f(τθ) = τ^q f(θ). Gradient descent with step η on L(f) from τθ₀ visits exactly τ times the points of
    gradient descent with step η·τ^(2q−2) on L(α f)/α² from θ₀.

    Args:
        scale: τ.
        degree: q, 2 for one hidden layer without biases.
    """
    _positive("alpha_of", "scale", scale)
    return float(scale**degree)


def safe_step(scale: float) -> float:
    """The learning rate of the paper's experiment, min(10, 0.1/τ²)."""
    _positive("safe_step", "scale", scale)
    return min(10.0, 0.1 / scale**2)


def train(
    start: Weights, inputs: Tensor, targets: Tensor, lr: float, num_steps: int, alpha: float = 1.0
) -> Weights:
    """Gradient descent on the mean squared error of α·f, divided by α².

        θ ← θ − η·∇ (1/n) Σ_i (α f(x_i) − y_i)²/α²

    The gradient is written out because this runs thousands of times. The slope at a kink is 0, as in PyTorch.

    Args:
        start: Initial θ.
        inputs: Examples.
        targets: Their targets, [n].
        lr: η.
        num_steps: Number of steps.
        alpha: α.
    """
    _check(start, inputs, targets, lr, alpha)
    slopes, directions = start.slopes.clone(), start.directions.clone()
    for _ in range(num_steps):
        before = inputs @ directions.T
        hidden = before.relu()
        errors = (alpha * (hidden @ slopes) - targets) * (2 / (alpha * len(inputs)))
        of_slopes = hidden.T @ errors
        of_directions = ((before > 0) * torch.outer(errors, slopes)).T @ inputs
        slopes, directions = slopes - lr * of_slopes, directions - lr * of_directions
    return Weights(slopes, directions)


def linearised_outputs(start: Weights, weights: Weights, inputs: Tensor) -> Tensor:
    """f(θ₀; x) + ⟨∇f(θ₀; x), θ − θ₀⟩: the tangent of the network at its start.

    Args:
        start: θ₀.
        weights: θ.
        inputs: Examples.
    """
    change = weights.minus(start)
    tangent = jvp(
        lambda slopes, directions: outputs(slopes, directions, inputs),
        (start.slopes, start.directions),
        (change.slopes, change.directions),
    )
    value, slope = tangent[0], tangent[1]
    result: Tensor = value + slope
    return result


def train_linearised(
    start: Weights, inputs: Tensor, targets: Tensor, lr: float, num_steps: int, alpha: float = 1.0
) -> Weights:
    """The same descent for the tangent of the network at its start.

    The active neurons, and all slopes in the gradient, stay those of the start, so that the model is linear
    in θ. See `train` for the arguments.
    """
    _check(start, inputs, targets, lr, alpha)
    before = inputs @ start.directions.T
    hidden, on = before.relu(), (before > 0).to(inputs.dtype)
    value = hidden @ start.slopes
    slopes, directions = start.slopes.clone(), start.directions.clone()
    for _ in range(num_steps):
        moved = (on * (inputs @ (directions - start.directions).T)) @ start.slopes
        predicted = value + hidden @ (slopes - start.slopes) + moved
        errors = (alpha * predicted - targets) * (2 / (alpha * len(inputs)))
        slopes = slopes - lr * (hidden.T @ errors)
        directions = directions - lr * ((on * torch.outer(errors, start.slopes)).T @ inputs)
    return Weights(slopes, directions)


def relative_movement(start: Weights, end: Weights) -> float:
    """‖θ − θ₀‖/‖θ₀‖: far below 1 in lazy training."""
    if start.norm == 0:
        raise UsageError("relative_movement: the start has norm 0, and nothing to be relative to")
    return end.minus(start).norm / start.norm


def _check(start: Weights, inputs: Tensor, targets: Tensor, lr: float, alpha: float) -> None:
    _positive("train", "lr", lr)
    _positive("train", "alpha", alpha)
    if inputs.dim() != 2 or inputs.shape[1] != start.directions.shape[1]:
        raise UsageError(
            f"train: inputs must be rows of {start.directions.shape[1]} numbers, got a tensor of shape "
            f"{tuple(inputs.shape)}"
        )
    if targets.shape != inputs.shape[:1]:
        raise UsageError(
            f"train: there must be one target for each of {len(inputs)} examples, got shape "
            f"{tuple(targets.shape)}"
        )


def _positive(where: str, name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise UsageError(f"{where}: {name} must be positive and finite, got {value:g}")
