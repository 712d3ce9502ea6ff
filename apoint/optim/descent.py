"""Rules that scale all coordinates alike: gradient descent, SGD, momentum, Nesterov (course I1, I2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from apoint.errors import UsageError
from apoint.optim.base import Decay, State, Updated, Weight, add_scaled, rule, running_average
from apoint.settings import Positive

Form = Literal["average", "sum"]
"""Whether the velocity averages the gradients, as in the course, or sums them, as in PyTorch."""


@rule("gradient-descent", family="descent", slots={}, course="I1")
def gradient_descent(
    gradient: Tensor, state: State, param: Tensor, step: int, *, lr: Positive = 0.01
) -> Updated:
    """Gradient descent: a step against the gradient, the baseline for all other rules.

        θ ← θ − η·g

    with η `lr`, g the gradient and θ the parameter.

    The formula is the same as for `sgd`. The two names say where the gradient comes from: here from the whole
    training set, which the recipe sets as its batch size. Equals `torch.optim.SGD` without momentum.

    Args:
        lr: The learning rate η.

    Reference:
        Cauchy, 1847, Méthode générale pour la résolution des systèmes d'équations simultanées.
    """
    return gradient * -lr, {}


@rule("sgd", family="descent", slots={}, course="I1")
def sgd(gradient: Tensor, state: State, param: Tensor, step: int, *, lr: Positive = 0.01) -> Updated:
    """Stochastic gradient descent: a step against the gradient of one sample or one batch.

    Cheaper per step than the whole training set, and noisy: at a constant rate it ends in a region around
    a minimum, not at it.

        θ ← θ − η·g

    with η `lr`, g the gradient of the batch and θ the parameter.

    Equals `torch.optim.SGD` without momentum. Momentum is not a setting but a separate rule, `momentum`
    or `nesterov`, because PyTorch's form and the course's differ.

    Args:
        lr: The learning rate η.

    Reference:
        Robbins and Monro, 1951, A stochastic approximation method.
    """
    return gradient * -lr, {}


def _dampening_goes_with_sum(settings: Mapping[str, Any]) -> None:
    if settings["form"] == "average" and settings["dampening"] != 0:
        raise UsageError(
            "optimizer 'momentum': dampening must be 0 with form 'average', where a new gradient weighs "
            f"1 - momentum already, got {settings['dampening']!r}; write form 'sum' to use it"
        )


@rule("momentum", family="descent", slots={"velocity": 0.0}, course="I2", check=_dampening_goes_with_sum)
def momentum(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 0.01,
    momentum: Decay = 0.9,
    form: Form = "average",
    dampening: Weight = 0.0,
) -> Updated:
    """Momentum: steps along a running average of the gradients, which keeps the trend and may overshoot.

    The velocity v starts at 0.

        w ← 1 − γ if form == "average" else (1 − τ if t > 1 else 1)
        v ← γ·v + w·g
        θ ← θ − η·v

    with η `lr`, γ `momentum`, τ `dampening`, form `form`, g the gradient, θ the parameter and t the step.

    The form "average" is the course's: η has the same meaning as without momentum. The form "sum" equals
    `torch.optim.SGD(momentum=γ, dampening=τ)`, including its first step, which is not dampened. For a
    constant γ and τ = 0 both follow the same path if the rate of "sum" is 1 − γ times that of "average".
    Two differences from PyTorch: with γ = 0 PyTorch ignores τ, here τ still counts; and the default form.

    Args:
        lr: The learning rate η.
        momentum: The share γ of the old velocity that is kept.
        form: Whether the velocity is an "average" of gradients (the course) or their "sum" (PyTorch).
        dampening: The share τ of each new gradient that is left out; only with form "sum".

    Reference:
        Polyak, 1964, Some methods of speeding up the convergence of iteration methods.
    """
    if form == "average":
        if isinstance(dampening, float):  # a schedule's value, which the builder has not seen
            _dampening_goes_with_sum({"form": form, "dampening": dampening})
        velocity = running_average(state["velocity"], gradient, momentum)
    else:
        kept = state["velocity"] * momentum
        velocity = add_scaled(kept, gradient, 1 - dampening if step > 1 else 1.0)
    return velocity * -lr, {"velocity": velocity}


@rule("nesterov", family="descent", slots={"velocity": 0.0}, course="I2 F11")
def nesterov(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 0.01,
    momentum: Decay = 0.9,
    form: Form = "average",
) -> Updated:
    """Nesterov's acceleration: momentum whose step already includes the next push of the same gradient.

    It overshoots less than plain momentum. Its theory requires a momentum that grows during training, so
    `momentum` may be put on a schedule. The velocity v starts at 0.

        w ← 1 − γ if form == "average" else 1
        v ← γ·v + w·g
        θ ← θ − η·(γ·v + w·g)

    with η `lr`, γ `momentum`, form `form`, g the gradient and θ the parameter.

    The form "sum" equals `torch.optim.SGD(momentum=γ, nesterov=True)`, which evaluates the gradient at θ. The
    original evaluates it at the look-ahead point; here the parameter takes the role of that point. The form
    "average" keeps the meaning of η, as in `momentum`.

    Args:
        lr: The learning rate η.
        momentum: The share γ of the old velocity that is kept.
        form: Whether the velocity is an "average" of gradients (the course) or their "sum" (PyTorch).

    Reference:
        Nesterov, 1983, A method of solving a convex programming problem with convergence rate O(1/k²);
        in this form Sutskever et al., 2013, On the importance of initialization and momentum.
    """
    if form == "average":
        velocity = running_average(state["velocity"], gradient, momentum)
        ahead = running_average(velocity, gradient, momentum)
    else:
        velocity = add_scaled(gradient, state["velocity"], momentum)
        ahead = add_scaled(gradient, velocity, momentum)
    return ahead * -lr, {"velocity": velocity}
