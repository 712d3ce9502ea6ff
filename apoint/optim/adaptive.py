"""Rules that scale each coordinate by its own gradient magnitude: AdaGrad, RMSProp, AdaDelta (I3, I4)."""

from __future__ import annotations

from torch import Tensor

from apoint.optim.base import (
    Decay,
    Epsilon,
    State,
    Updated,
    Weight,
    add_scaled,
    is_zero,
    rule,
    running_average,
)
from apoint.settings import Positive


@rule("adagrad", family="adaptive", slots={"square_sum": 0.0}, course="I3")
def adagrad(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 0.01,
    eps: Epsilon = 1e-10,
    lr_decay: Weight = 0.0,
    initial_accumulator: Weight = 0.0,
) -> Updated:
    """AdaGrad: each coordinate's step is divided by the root of the sum of its squared gradients.

    Directions with small gradients learn as fast as those with large ones. The sum never falls, so learning
    slows down permanently. The sum s starts at s0.

        s ← (s if t > 1 else s0) + g²
        θ ← θ − η/(1 + (t − 1)·δ)·g/(√(s) + ε)

    with η `lr`, ε `eps`, δ `lr_decay`, s0 `initial_accumulator`, g the gradient, θ the parameter and t
    the step.

    Equals `torch.optim.Adagrad`, and the course's formula with δ = s0 = 0.

    Args:
        lr: The learning rate η.
        eps: The number ε that keeps the denominator nonzero, added outside the root.
        lr_decay: The additional decay δ of the learning rate per step.
        initial_accumulator: The initial value s0 of the sum of squares; damps the first steps.

    Reference:
        Duchi, Hazan and Singer, 2011, Adaptive subgradient methods.
    """
    square_sum = gradient.square() + (initial_accumulator if step == 1 else state["square_sum"])
    rate = lr / (1 + (step - 1) * lr_decay)
    return gradient * -rate / (square_sum.sqrt() + eps), {"square_sum": square_sum}


@rule("rmsprop", family="adaptive", slots={"square": 0.0, "mean": 0.0, "velocity": 0.0}, course="I4")
def rmsprop(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 0.01,
    alpha: Decay = 0.99,
    eps: Epsilon = 1e-8,
    momentum: Decay = 0.0,
    centered: bool = False,
) -> Updated:
    """RMSProp: AdaGrad that forgets; each step is divided by the root of a running average of squares.

    The average can fall again; AdaGrad's sum cannot. All of s, a and b start at 0.

        s ← α·s + (1 − α)·g²
        a ← α·a + (1 − α)·g if centered else 0
        b ← γ·b + g/(√(max(s − a², 0)) + ε)
        θ ← θ − η·b

    with η `lr`, α `alpha`, ε `eps`, γ `momentum`, centered `centered`, g the gradient and θ the parameter.

    The course's formula has γ = 0 and is not centered. Equals `torch.optim.RMSprop`, except that a centered
    variance pushed below 0 by rounding counts as 0; PyTorch's becomes NaN.

    Args:
        lr: The learning rate η.
        alpha: The decay rate α of the average of squares.
        eps: The number ε that keeps the denominator nonzero, added outside the root.
        momentum: The share γ of the previous step that is kept.
        centered: Whether to divide by the gradients' standard deviation instead of their root mean square.

    Reference:
        Tieleman and Hinton, 2012, Coursera lecture 6.5; centered in Graves, 2013, arXiv 1308.0850.
    """
    square = running_average(state["square"], gradient.square(), alpha)
    mean, variance = state["mean"], square
    if centered:
        mean = running_average(mean, gradient, alpha)
        variance = (square - mean.square()).clamp(min=0)
    velocity = gradient / (variance.sqrt() + eps)
    if not is_zero(momentum):
        velocity = add_scaled(velocity, state["velocity"], momentum)
    return velocity * -lr, {"square": square, "mean": mean, "velocity": velocity}


@rule("adadelta", family="adaptive", slots={"square": 0.0, "change": 0.0})
def adadelta(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 1.0,
    rho: Decay = 0.9,
    eps: Epsilon = 1e-6,
) -> Updated:
    """AdaDelta: RMSProp whose rate is the size of its own recent steps, so the units of θ cancel out.

    Both averages s and u start at 0; the ε inside the roots makes the first step possible.

        s ← ρ·s + (1 − ρ)·g²
        d ← √((u + ε)/(s + ε))·g
        u ← ρ·u + (1 − ρ)·d²
        θ ← θ − η·d

    with η `lr`, ρ `rho`, ε `eps`, g the gradient and θ the parameter.

    The paper has η = 1. Equals `torch.optim.Adadelta`.

    Args:
        lr: The factor η on each step.
        rho: The decay rate ρ of both averages.
        eps: The number ε inside both roots; it sets the size of the first steps.

    Reference:
        Zeiler, 2012, ADADELTA: an adaptive learning rate method, arXiv 1212.5701.
    """
    square = running_average(state["square"], gradient.square(), rho)
    change = ((state["change"] + eps) / (square + eps)).sqrt() * gradient
    return change * -lr, {"square": square, "change": running_average(state["change"], change.square(), rho)}
