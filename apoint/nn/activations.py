"""Activations: the nonlinear functions between layers, applied elementwise.

`activation("gelu")` or `activation({"name": "leaky-relu", "slope": 0.2})` builds one. Where PyTorch has
the module, it is used, so that other tools recognise it; the five classes below are those that PyTorch
lacks. φ and Φ are the density and the distribution function of the standard normal distribution,
σ(x) = 1/(1 + e⁻ˣ).
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.registry import register, registry
from apoint.settings import NonNegative, Positive, Share, Spec


def activation(spec: Spec) -> nn.Module:
    """Build an activation from its name, or from `{name: …, setting: value}`."""
    made: nn.Module = registry("activation").build(spec)
    return made


class Arctan(nn.Module):
    """arctan x, in (-π/2, π/2)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.atan(x)


class Squareplus(nn.Module):
    """(x + √(x² + b))/2, computed without the cancellation that this form suffers for x far below 0."""

    def __init__(self, b: float = 4.0) -> None:
        super().__init__()
        self.b = b

    def forward(self, x: Tensor) -> Tensor:
        # For x < 0 the two terms cancel, so expand by the conjugate: max(x, 0) + b / (2(√(x² + b) + |x|)).
        # |x| is written as 2·max(x, 0) - x, so that the slopes at x = 0 add up to the correct 1/2.
        positive = F.relu(x)
        magnitude = 2 * positive - x
        return positive + (self.b / 2) / (torch.sqrt(x * x + self.b) + magnitude)

    def extra_repr(self) -> str:
        return f"b={self.b}"


class Swish(nn.Module):
    """x·σ(βx), with β a constant or, if `trainable`, one parameter for the layer."""

    def __init__(self, beta: float = 1.0, trainable: bool = False) -> None:
        super().__init__()
        self.beta: float | nn.Parameter = nn.Parameter(torch.tensor(float(beta))) if trainable else beta

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.beta * x)

    def extra_repr(self) -> str:
        return "" if isinstance(self.beta, nn.Parameter) else f"beta={self.beta}"


class ReLUSquared(nn.Module):
    """max(x, 0)²."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).square()


class StochasticGELU(nn.Module):
    """x·m with m ~ Bernoulli(Φ(x)) in training; its mean, GELU, in evaluation.

    The masks are drawn from torch's default generator, as in `nn.Dropout`. No gradient flows through a mask:
    the slope in training is m, with mean Φ(x), not GELU's Φ(x) + x·φ(x).
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return x * torch.bernoulli(torch.special.ndtr(x.detach()))
        return F.gelu(x)


@register("activation", "identity")
def identity() -> nn.Module:
    """No activation, f(x) = x.

    For linear networks, and for the output of a network.

    Reference: `torch.nn.Identity`.
    """
    return nn.Identity()


@register("activation", "sigmoid", course="A4 A5")
def sigmoid() -> nn.Module:
    """The logistic function, f(x) = 1/(1 + e⁻ˣ), in (0, 1).

    Its slope is at most 1/4, so gradients vanish with depth. It is not odd: f(x) - 1/2 is.

    Reference: Rumelhart, Hinton and Williams (1986), Learning representations by back-propagating errors.
    """
    return nn.Sigmoid()


@register("activation", "tanh", course="A4 A5")
def tanh() -> nn.Module:
    """The hyperbolic tangent, f(x) = (eˣ - e⁻ˣ)/(eˣ + e⁻ˣ), in (-1, 1).

    Odd, with slope 1 at 0; saturates on both sides.

    Reference: LeCun, Bottou, Orr and Müller (1998), Efficient BackProp.
    """
    return nn.Tanh()


@register("activation", "arctan", course="A5")
def arctan() -> nn.Module:
    """The inverse tangent, f(x) = arctan x, in (-π/2, π/2).

    Odd, with slope 1 at 0; its slope 1/(1 + x²) falls more slowly than that of tanh. Not in PyTorch.

    Reference: Kamruzzaman and Aziz (2002), A note on activation function in multilayer feedforward learning.
    """
    return Arctan()


@register("activation", "softsign", course="A5")
def softsign() -> nn.Module:
    """The soft sign, f(x) = x/(1 + |x|), in (-1, 1).

    Odd; saturates more slowly than tanh.

    Reference: Bergstra et al. (2009), Quadratic polynomials learn better image features.
    """
    return nn.Softsign()


@register("activation", "hardtanh", course="A5")
def hardtanh() -> nn.Module:
    """The identity clipped to [-1, 1], f(x) = max(-1, min(x, 1)).

    A piecewise linear tanh; units outside the interval receive no gradient.

    Reference: Collobert (2004), Large scale machine learning (thesis).
    """
    return nn.Hardtanh()


@register("activation", "relu", course="A5")
def relu() -> nn.Module:
    """The rectifier, f(x) = max(x, 0).

    The slope is 1 for x > 0 and 0 elsewhere (also at 0): a unit whose inputs are all negative is dead.

    Reference: Nair and Hinton (2010), Rectified linear units improve restricted Boltzmann machines.
    """
    return nn.ReLU()


@register("activation", "leaky-relu", course="A5 A9")
def leaky_relu(*, slope: Share = 0.01) -> nn.Module:
    """The rectifier with a small slope below 0, f(x) = x for x > 0 and a·x elsewhere.

    Keeps units from dying. PyTorch also allows slopes a outside [0, 1], where f is no longer monotone or
    no longer contracting; here, as in the course, they are rejected.

    Args:
        slope: The slope a below 0.

    Reference: Maas, Hannun and Ng (2013), Rectifier nonlinearities improve neural network acoustic models.
    """
    return nn.LeakyReLU(slope)


@register("activation", "relu6", course="A5")
def relu6() -> nn.Module:
    """The rectifier clipped at 6, f(x) = min(max(x, 0), 6).

    Reference: Krizhevsky (2010), Convolutional deep belief networks on CIFAR-10.
    """
    return nn.ReLU6()


@register("activation", "relu-squared", course="A5")
def relu_squared() -> nn.Module:
    """The square of the rectifier, f(x) = max(x, 0)².

    Found by search for the feed-forward blocks of transformers. Not in PyTorch.

    Reference: So et al. (2021), Primer: searching for efficient transformers for language modeling.
    """
    return ReLUSquared()


@register("activation", "elu", course="A5")
def elu(*, alpha: Positive = 1.0) -> nn.Module:
    """The exponential linear unit, f(x) = x for x > 0 and α(eˣ - 1) elsewhere.

    Brings the mean of the outputs nearer to 0 than the rectifier. Its slope has a jump at 0 unless α = 1.

    Args:
        alpha: The size α of the saturation: f tends to -α.

    Reference: Clevert, Unterthiner and Hochreiter (2015), Fast and accurate deep network learning by ELUs.
    """
    return nn.ELU(alpha)


@register("activation", "celu", course="A5")
def celu(*, alpha: Positive = 1.0) -> nn.Module:
    """The continuously differentiable ELU, f(x) = max(x, 0) + min(0, α(e^(x/α) - 1)).

    Same as ELU for α = 1; its slope is continuous for every other α too.

    Args:
        alpha: The size α of the saturation, and the width over which it is reached.

    Reference: Barron (2017), Continuously differentiable exponential linear units.
    """
    return nn.CELU(alpha)


@register("activation", "selu", course="A5")
def selu() -> nn.Module:
    """The scaled ELU, f(x) = λ·x for x > 0 and λα(eˣ - 1) elsewhere, λ ≈ 1.0507, α ≈ 1.6733.

    The constants make mean 0 and variance 1 a stable fixed point from layer to layer, with weights of
    variance 1/fan-in (the initialisation `lecun`).

    Reference: Klambauer, Unterthiner, Mayr and Hochreiter (2017), Self-normalizing neural networks.
    """
    return nn.SELU()


@register("activation", "softplus", course="A5")
def softplus(*, beta: Positive = 1.0, threshold: Positive = 20.0) -> nn.Module:
    """The smooth rectifier, f(x) = ln(1 + e^(βx))/β; its slope is σ(βx).

    As in PyTorch, f(x) is x itself where βx is above a threshold τ; the error there is at most e^(-τ)/β.

    Args:
        beta: The sharpness β; the rectifier is its limit.
        threshold: The value τ of βx above which f(x) = x.

    Reference: Dugas et al. (2001), Incorporating second-order functional knowledge for better option pricing.
    """
    return nn.Softplus(beta, threshold)


@register("activation", "squareplus", course="A5")
def squareplus(*, b: Positive = 4.0) -> nn.Module:
    """The algebraic smooth rectifier, f(x) = (x + √(x² + b))/2.

    Like softplus without an exponential: with b = 4 ln²2 the two agree at 0, with b = 4 in curvature there.
    The paper's b = 0, the rectifier, is rejected: use `relu`. Not in PyTorch.

    Args:
        b: The size b of the smooth zone around 0.

    Reference: Barron (2021), Squareplus: a softplus-like algebraic rectifier.
    """
    return Squareplus(b)


@register("activation", "swish", course="A5 G2")
def swish(*, beta: NonNegative = 1.0, trainable: bool = False) -> nn.Module:
    """Swish, f(x) = x·σ(βx): x/2 for β = 0, SiLU for β = 1, the rectifier for β → ∞.

    PyTorch has only β = 1. If trained, β is one number for each layer, as in the paper.

    Args:
        beta: The sharpness β, or its initial value if it is trained.
        trainable: Whether β is a parameter, learned with the weights.

    Reference: Ramachandran, Zoph and Le (2017), Searching for activation functions.
    """
    return Swish(beta, trainable)


@register("activation", "silu", course="G2")
def silu() -> nn.Module:
    """The sigmoid linear unit, f(x) = x·σ(x).

    GELU with the logistic distribution in place of the normal one. Smooth, not monotone (its minimum is near
    -1.278), and with a nonzero slope for most negative inputs, so that units do not die.

    Reference: Hendrycks and Gimpel (2016), Gaussian error linear units (GELUs).
    """
    return nn.SiLU()


@register("activation", "hard-swish", course="A5")
def hard_swish() -> nn.Module:
    """Piecewise polynomial swish, f(x) = x·min(max(x + 3, 0), 6)/6.

    Cheap on small devices.

    Reference: Howard et al. (2019), Searching for MobileNetV3.
    """
    return nn.Hardswish()


@register("activation", "mish", course="A5")
def mish() -> nn.Module:
    """Mish, f(x) = x·tanh(ln(1 + eˣ)).

    Reference: Misra (2019), Mish: a self regularized non-monotonic activation function.
    """
    return nn.Mish()


@register("activation", "gelu", course="G1")
def gelu(*, approximate: Literal["none", "tanh"] = "none") -> nn.Module:
    """The Gaussian error linear unit, f(x) = x·Φ(x).

    The mean of x under a mask that keeps it with probability Φ(x) (see `stochastic-gelu`). Smooth, and
    not monotone (its minimum is near -0.752). `tanh` replaces Φ(x) by
    (1 + tanh(√(2/π)(x + 0.044715·x³)))/2, as GPT-2 does.

    Args:
        approximate: `none` for the exact Φ, `tanh` for the approximation.

    Reference: Hendrycks and Gimpel (2016), Gaussian error linear units (GELUs).
    """
    return nn.GELU(approximate)


@register("activation", "stochastic-gelu", course="G1")
def stochastic_gelu() -> nn.Module:
    """GELU as it was derived: x·m with m ~ Bernoulli(Φ(x)) in training, GELU in evaluation.

    Between the rectifier, which keeps or drops x by its sign, and dropout, which keeps or drops it at random.
    The masks come from torch's default generator, and the gradient treats them as constants. Not in PyTorch.

    Reference: Hendrycks and Gimpel (2016), Gaussian error linear units (GELUs), section 2.
    """
    return StochasticGELU()
