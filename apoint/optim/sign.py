"""Rules that keep only the sign of a direction, so every coordinate moves by the same amount (I8)."""

from __future__ import annotations

import torch
from torch import Tensor

from apoint.optim.base import Decay, State, Updated, rule, running_average
from apoint.settings import Positive


def _sign(direction: Tensor) -> Tensor:
    """The sign, or NaN if not finite: PyTorch's sign of NaN is 0, which would silently freeze it."""
    return torch.add(direction.sign(), direction, alpha=0)


@rule("lion", family="sign", slots={"momentum": 0.0}, course="I8")
def lion(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 1e-4,
    beta1: Decay = 0.9,
    beta2: Decay = 0.99,
) -> Updated:
    """Lion: the sign of a blend of momentum and gradient, found by a symbolic search from AdamW.

    Every coordinate moves by exactly η. So it needs a rate 3 to 10 times smaller than AdamW's, and a weight
    decay larger by the same factor. It uses half of Adam's memory. The momentum m starts at 0.

        c ← β1·m + (1 − β1)·g
        m ← β2·m + (1 − β2)·g
        θ ← θ − η·sign(c)

    with η `lr`, β1 `beta1`, β2 `beta2`, g the gradient and θ the parameter; then decoupled decay.

    The course takes the sign of the previous step's blend; here, as in the paper, it is that of the new one.
    PyTorch has no counterpart. A coordinate whose blend is exactly 0 does not move.

    Args:
        lr: The learning rate η, the size of each coordinate's step.
        beta1: The weight β1 of the momentum in the blend whose sign is taken.
        beta2: The decay rate β2 of the momentum.

    Reference:
        Chen et al., 2023, Symbolic discovery of optimization algorithms, arXiv 2302.06675.
    """
    blend = running_average(state["momentum"], gradient, beta1)
    return _sign(blend) * -lr, {"momentum": running_average(state["momentum"], gradient, beta2)}


@rule("signum", family="sign", slots={"momentum": 0.0})
def signum(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 1e-4,
    beta: Decay = 0.9,
) -> Updated:
    """Signum: the sign of the momentum; Lion with one decay rate, and with β = 0 the sign of the gradient.

    The momentum m starts at 0.

        m ← β·m + (1 − β)·g
        θ ← θ − η·sign(m)

    with η `lr`, β `beta`, g the gradient and θ the parameter.

    PyTorch has no counterpart. Included to show which part of Lion does the work.

    Args:
        lr: The learning rate η, the size of each coordinate's step.
        beta: The decay rate β of the momentum.

    Reference:
        Bernstein et al., 2018, signSGD: compressed optimisation for non-convex problems, arXiv 1802.04434.
    """
    momentum = running_average(state["momentum"], gradient, beta)
    return _sign(momentum) * -lr, {"momentum": momentum}
