"""Adam and its family: bias-corrected averages of the gradient and of its square (I5 to I7)."""

from __future__ import annotations

import torch
from torch import Tensor

from apoint.optim.base import Decay, Epsilon, Scalar, State, Updated, Weight, root, rule, running_average
from apoint.settings import Positive

_MOMENTS = {"average": 0.0, "square": 0.0}


def _moments(gradient: Tensor, state: State, beta1: Scalar, beta2: Scalar) -> State:
    """The new averages m of the gradient and v of its square."""
    return {
        "average": running_average(state["average"], gradient, beta1),
        "square": running_average(state["square"], gradient.square(), beta2),
    }


def _normalised(
    average: Tensor, square: Tensor, step: int, lr: Scalar, beta1: Scalar, beta2: Scalar, eps: Scalar
) -> Tensor:
    """−η·m̂/(√v̂ + ε), with numerator and denominator multiplied by √(1 − β2^t) to save a pass over v."""
    correction = root(1 - beta2**step)
    denominator = square.sqrt().add_(eps * correction)
    return torch.div(average, denominator).mul_(-lr * correction / (1 - beta1**step))


@rule("adam", family="adam", slots=_MOMENTS, course="I5 I6")
def adam(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 1e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Epsilon = 1e-8,
) -> Updated:
    """Adam: the average gradient divided by the root of the average square, both bias-corrected.

    A step is about η at most, at any scale of the loss. A coordinate whose gradients are rare can take a step
    of η·(1 − β1)/√(1 − β2), and one whose gradients grow a step of η·(1 − β1)/√((1 − β2)(1 − β1²/β2)), which
    is the maximum. Both averages m and v start at 0.

        m ← β1·m + (1 − β1)·g
        v ← β2·v + (1 − β2)·g²
        θ ← θ − η·(m/(1 − β1^t))/(√(v/(1 − β2^t)) + ε)

    with η `lr`, β1 `beta1`, β2 `beta2`, ε `eps`, g the gradient, θ the parameter and t the step.

    Equals `torch.optim.Adam`, whose `weight_decay` is `l2` here. With a decay rate on a schedule, the
    correction uses the rate of the current step.

    Args:
        lr: The learning rate η.
        beta1: The decay rate β1 of the average gradient.
        beta2: The decay rate β2 of the average square.
        eps: The number ε that keeps the denominator nonzero, added outside the root.

    Reference:
        Kingma and Ba, 2015, Adam: a method for stochastic optimization, arXiv 1412.6980.
    """
    new = _moments(gradient, state, beta1, beta2)
    return _normalised(new["average"], new["square"], step, lr, beta1, beta2, eps), new


@rule("adamw", family="adam", slots=_MOMENTS, course="I7", weight_decay=0.01)
def adamw(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 1e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Epsilon = 1e-8,
) -> Updated:
    """AdamW: Adam with decoupled weight decay, on by default.

    A penalty in the loss would pass through Adam's averages, and decay weights with large gradients less;
    here each weight shrinks by the same fraction η·λ. Both averages m and v start at 0.

        m ← β1·m + (1 − β1)·g
        v ← β2·v + (1 − β2)·g²
        θ ← θ − η·(m/(1 − β1^t))/(√(v/(1 − β2^t)) + ε)

    with η `lr`, β1 `beta1`, β2 `beta2`, ε `eps`, g the gradient, θ the parameter and t the step; then decay.

    Equals `torch.optim.AdamW`. In the paper the decay is multiplied by the schedule alone, not by η.

    Args:
        lr: The learning rate η.
        beta1: The decay rate β1 of the average gradient.
        beta2: The decay rate β2 of the average square.
        eps: The number ε that keeps the denominator nonzero, added outside the root.

    Reference:
        Loshchilov and Hutter, 2019, Decoupled weight decay regularization, arXiv 1711.05101.
    """
    return adam.update(gradient, state, param, step, lr=lr, beta1=beta1, beta2=beta2, eps=eps)


@rule("amsgrad", family="adam", slots={**_MOMENTS, "largest": 0.0})
def amsgrad(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 1e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Epsilon = 1e-8,
) -> Updated:
    """AMSGrad: Adam that divides by the largest average square so far, so its rates never rise again.

    Designed for convex problems on which Adam does not converge. All of m, v and u start at 0.

        m ← β1·m + (1 − β1)·g
        v ← β2·v + (1 − β2)·g²
        u ← max(u, v)
        θ ← θ − η·(m/(1 − β1^t))/(√(u/(1 − β2^t)) + ε)

    with η `lr`, β1 `beta1`, β2 `beta2`, ε `eps`, g the gradient, θ the parameter and t the step.

    Equals `torch.optim.Adam(amsgrad=True)`. The paper has neither the bias correction nor ε.

    Args:
        lr: The learning rate η.
        beta1: The decay rate β1 of the average gradient.
        beta2: The decay rate β2 of the average square.
        eps: The number ε that keeps the denominator nonzero, added outside the root.

    Reference:
        Reddi, Kale and Kumar, 2018, On the convergence of Adam and beyond, arXiv 1904.09237.
    """
    new = _moments(gradient, state, beta1, beta2)
    new["largest"] = torch.maximum(state["largest"], new["square"])
    return _normalised(new["average"], new["largest"], step, lr, beta1, beta2, eps), new


@rule("adamax", family="adam", slots={"average": 0.0, "largest": 0.0})
def adamax(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 2e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Epsilon = 1e-8,
) -> Updated:
    """AdaMax: Adam that divides by a decaying maximum of the gradient's size instead of an average square.

    Both m and u start at 0.

        m ← β1·m + (1 − β1)·g
        u ← max(β2·u, abs(g) + ε)
        θ ← θ − η/(1 − β1^t)·m/u

    with η `lr`, β1 `beta1`, β2 `beta2`, ε `eps`, g the gradient, θ the parameter and t the step.

    Equals `torch.optim.Adamax`. The paper has no ε.

    Args:
        lr: The learning rate η.
        beta1: The decay rate β1 of the average gradient.
        beta2: The decay rate β2 of the maximum.
        eps: The number ε added to the gradient's size, which keeps the denominator nonzero.

    Reference:
        Kingma and Ba, 2015, Adam: a method for stochastic optimization, section 7.1, arXiv 1412.6980.
    """
    average = running_average(state["average"], gradient, beta1)
    largest = torch.maximum(state["largest"] * beta2, gradient.abs() + eps)
    return average * (-lr / (1 - beta1**step)) / largest, {"average": average, "largest": largest}


@rule("nadam", family="adam", slots={**_MOMENTS, "product": 1.0})
def nadam(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 2e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Epsilon = 1e-8,
    momentum_decay: Weight = 4e-3,
) -> Updated:
    """NAdam: Adam with Nesterov's look-ahead, and a momentum μ that warms up.

    Both averages m and v start at 0, the product p of all μ so far at 1.

        μ ← β1·(1 − 0.5·0.96^(t·ψ))
        ν ← β1·(1 − 0.5·0.96^((t + 1)·ψ))
        p ← p·μ
        m ← β1·m + (1 − β1)·g
        v ← β2·v + (1 − β2)·g²
        θ ← θ − η·((1 − μ)·g/(1 − p) + ν·m/(1 − p·ν))/(√(v/(1 − β2^t)) + ε)

    with η `lr`, β1 `beta1`, β2 `beta2`, ε `eps`, ψ `momentum_decay`, g the gradient, θ the parameter and t
    the step.

    Equals `torch.optim.NAdam`. The paper averages the gradient with μ; PyTorch and this rule use β1.

    Args:
        lr: The learning rate η.
        beta1: The decay rate β1 of the average gradient, and the limit of μ.
        beta2: The decay rate β2 of the average square.
        eps: The number ε that keeps the denominator nonzero, added outside the root.
        momentum_decay: The rate ψ at which the momentum μ rises from β1/2 to β1.

    Reference:
        Dozat, 2016, Incorporating Nesterov momentum into Adam.
    """
    now = beta1 * (1 - 0.5 * 0.96 ** (step * momentum_decay))
    following = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * momentum_decay))
    new = _moments(gradient, state, beta1, beta2)
    new["product"] = state["product"] * now
    ahead = (1 - now) * gradient / (1 - new["product"])
    ahead = ahead + following * new["average"] / (1 - new["product"] * following)
    correction = root(1 - beta2**step)
    return ahead * (-lr * correction) / (new["square"].sqrt() + eps * correction), new


@rule("radam", family="adam", slots=_MOMENTS)
def radam(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 1e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Epsilon = 1e-8,
) -> Updated:
    """RAdam: Adam that does not divide until its average square can be trusted, a built-in warm-up.

    With few samples the average square varies so much that the first steps are erratic. ρ counts the samples
    in the average: up to 5 the step is plain momentum, above 5 it is damped by r. m and v start at 0.

        m ← β1·m + (1 − β1)·g
        v ← β2·v + (1 − β2)·g²
        ρ_max ← 2/(1 − β2) − 1
        ρ ← ρ_max − 2·t·β2^t/(1 − β2^t)
        r ← √((ρ − 4)·(ρ − 2)·ρ_max/((ρ_max − 4)·(ρ_max − 2)·ρ)) if ρ > 5 else 0
        d ← r·√(1 − β2^t)/(√(v) + ε) if ρ > 5 else 1
        θ ← θ − η·m/(1 − β1^t)·d

    with η `lr`, β1 `beta1`, β2 `beta2`, ε `eps`, g the gradient, θ the parameter and t the step.

    Equals `torch.optim.RAdam`. The paper has no ε and switches at ρ = 4.

    Args:
        lr: The learning rate η.
        beta1: The decay rate β1 of the average gradient.
        beta2: The decay rate β2 of the average square; up to 2/3 every step is plain momentum.
        eps: The number ε that keeps the denominator nonzero, added outside the root, before the correction.

    Reference:
        Liu et al., 2020, On the variance of the adaptive learning rate and beyond, arXiv 1908.03265.
    """
    new = _moments(gradient, state, beta1, beta2)
    plain = new["average"] * (-lr / (1 - beta1**step))
    trusted, rectifier = _rectification(beta2, step)
    if isinstance(trusted, Tensor):
        divided = rectifier / (new["square"].sqrt() + eps)
        return plain * torch.where(trusted, divided, torch.ones_like(divided)), new
    return (plain * rectifier / (new["square"].sqrt() + eps) if trusted else plain), new


def _rectification(beta2: Scalar, step: int) -> tuple[bool | Tensor, Scalar]:
    """Whether ρ > 5, and r·√(1 − β2^t) where it is (otherwise the second value is meaningless)."""
    decayed = beta2**step
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * decayed / (1 - decayed)
    trusted = length > 5
    if not isinstance(trusted, Tensor) and not trusted:
        return False, 1.0
    ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return trusted, root(ratio * (1 - decayed))


@rule("adabelief", family="adam", slots={"average": 0.0, "surprise": 0.0})
def adabelief(
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    lr: Positive = 1e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Epsilon = 1e-16,
) -> Updated:
    """AdaBelief: Adam that divides by how far gradients deviate from their average, not by their size.

    Steps are long where gradients agree, and short where they surprise. Both m and s start at 0.

        m ← β1·m + (1 − β1)·g
        s ← β2·s + (1 − β2)·(g − m)² + ε
        θ ← θ − η·(m/(1 − β1^t))/(√(s/(1 − β2^t)) + ε)

    with η `lr`, β1 `beta1`, β2 `beta2`, ε `eps`, g the gradient, θ the parameter and t the step.

    This is the paper's formula, where ε enters twice and accumulates inside s; the default is that of the
    authors' later code. PyTorch has no counterpart.

    Args:
        lr: The learning rate η.
        beta1: The decay rate β1 of the average gradient.
        beta2: The decay rate β2 of the average squared surprise.
        eps: The number ε added to the squared surprise at each step, and to the denominator.

    Reference:
        Zhuang et al., 2020, AdaBelief optimizer, arXiv 2010.07468.
    """
    average = running_average(state["average"], gradient, beta1)
    surprise = running_average(state["surprise"], (gradient - average).square(), beta2) + eps
    new = {"average": average, "surprise": surprise}
    return _normalised(average, surprise, step, lr, beta1, beta2, eps), new
