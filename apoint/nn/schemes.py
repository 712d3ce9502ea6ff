"""Initialisation schemes: how the weights of one layer are drawn, given its fans and a gain.

Each registered `init` builds a `Scheme`; `apoint.nn.initialisation.initialise` applies it to a whole model
and decides on the fans and the gain of each layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from apoint.registry import register
from apoint.settings import Positive

Distribution = Literal["normal", "uniform", "truncated"]
FanMode = Literal["fan-in", "fan-out"]
Gain = Positive | Literal["auto"]
Bias = Literal["zero", "as-built"]
_TRUNCATED_STD = 0.8796256610342398  # of a standard normal cut off at ±2


@dataclass(frozen=True)
class Fans:
    """The number of terms that each output sums, and the number of outputs that each input reaches."""

    fan_in: int
    fan_out: int


Draw = Callable[[torch.Size, Fans, float, torch.Generator], Tensor]
"""Maps shape, fans, gain and generator to a float32 tensor."""


@dataclass(frozen=True)
class Scheme:
    """What an `init` ingredient builds.

    Attributes:
        name: The name used in a recipe.
        draw: How a weight is drawn; `None` leaves the model as built.
        gain: A number, or "auto" for the gain of the model's activation.
        backward: Whether "auto" means the gain for gradients rather than for activations.
        bias: How biases are set.
        fixup: Whether residual branches are scaled down, and their last layers and the head zeroed.
        embeddings: Whether the scheme also draws embeddings.
    """

    name: str
    draw: Draw | None
    gain: Gain = 1.0
    backward: bool = False
    bias: Bias = "zero"
    fixup: bool = False
    embeddings: bool = False


def sample(shape: torch.Size, std: float, distribution: Distribution, generator: torch.Generator) -> Tensor:
    """Numbers with mean 0 and standard deviation `std`; float32 for every model, so that seeds agree."""
    values = torch.empty(shape, dtype=torch.float32, device=generator.device)
    if distribution == "uniform":
        return values.uniform_(-math.sqrt(3), math.sqrt(3), generator=generator).mul_(std)
    if distribution == "truncated":
        nn.init.trunc_normal_(values, 0.0, 1.0, -2.0, 2.0, generator=generator)
        return values.mul_(std / _TRUNCATED_STD)
    return values.normal_(generator=generator).mul_(std)


def _scaled(std_of: Callable[[Fans], float], distribution: Distribution) -> Draw:
    """Draws with standard deviation gain · std_of(fans)."""

    def draw(shape: torch.Size, fans: Fans, gain: float, generator: torch.Generator) -> Tensor:
        return sample(shape, gain * std_of(fans), distribution, generator)

    return draw


def _draw_orthogonal(shape: torch.Size, fans: Fans, gain: float, generator: torch.Generator) -> Tensor:
    """A random matrix with orthonormal rows or columns, whichever are fewer, times the gain."""
    rows, columns = shape[0], shape.numel() // shape[0]
    tall = sample(torch.Size((max(rows, columns), min(rows, columns))), 1.0, "normal", generator)
    q, r = torch.linalg.qr(tall)
    q = q * r.diagonal().sign()  # without this, QR's sign convention makes the distribution uneven
    matrix: Tensor = gain * (q if rows >= columns else q.T)
    return matrix.reshape(shape)


@register("init", "glorot", course="A7")
def glorot(*, distribution: Distribution = "normal", gain: Gain = 1.0, bias: Bias = "zero") -> Scheme:
    """Glorot's (Xavier's) initialisation, standard deviation gain·√(2/(fan-in + fan-out)).

    A compromise between keeping the variance of activations (1/fan-in) and that of gradients (1/fan-out),
    derived for activations that are linear near 0, so the gain is 1 unless set. Same as
    `torch.nn.init.xavier_*`, except for the fan-out of grouped convolutions. The uniform distribution has
    bounds ±gain·√(6/(fan-in + fan-out)).

    Args:
        distribution: `normal`, `uniform`, or `truncated` (a normal cut at two standard deviations, rescaled).
        gain: A factor on the standard deviation, or `auto` for the gain of the model's activation.
        bias: `zero`, or `as-built` to keep the biases from the layers' constructors.

    Reference: Glorot and Bengio (2010), Understanding the difficulty of training deep feedforward networks.
    """
    draw = _scaled(lambda fans: math.sqrt(2 / (fans.fan_in + fans.fan_out)), distribution)
    return Scheme("glorot", draw, gain, bias=bias)


@register("init", "he", course="A8 A9")
def he(
    *,
    mode: FanMode = "fan-in",
    distribution: Distribution = "normal",
    gain: Gain = "auto",
    bias: Bias = "zero",
) -> Scheme:
    """He's (Kaiming's) initialisation, standard deviation gain/√fan.

    Preserves the variance of activations through depth (`fan-in`) or that of gradients (`fan-out`). With the
    gain `auto` this holds for any activation f, not only for ReLU: 1/√E[f(Z)²] for `fan-in` and
    1/√E[f'(Z)²] for `fan-out`, both √2 for ReLU. Same as `torch.nn.init.kaiming_*` for ReLU and leaky ReLU;
    for other activations PyTorch has a table of gains, such as 5/3 for tanh in both modes. The uniform
    distribution has bounds ±gain·√(3/fan).

    Args:
        mode: Which fan divides: `fan-in` or `fan-out`.
        distribution: `normal`, `uniform`, or `truncated` (a normal cut at two standard deviations, rescaled).
        gain: `auto` for the gain of the model's activation, or a factor on the standard deviation of hidden
            layers.
        bias: `zero`, or `as-built` to keep the biases from the layers' constructors.

    Reference: He et al. (2015), Delving deep into rectifiers.
    """
    return Scheme("he", _he_draw(mode, distribution), gain, backward=mode == "fan-out", bias=bias)


def _he_draw(mode: FanMode, distribution: Distribution) -> Draw:
    if mode == "fan-in":
        return _scaled(lambda fans: 1 / math.sqrt(fans.fan_in), distribution)
    return _scaled(lambda fans: 1 / math.sqrt(fans.fan_out), distribution)


@register("init", "lecun", course="A7 A8")
def lecun(*, distribution: Distribution = "normal", gain: Gain = 1.0, bias: Bias = "zero") -> Scheme:
    """LeCun's initialisation, standard deviation gain/√fan-in.

    He's initialisation without a gain: right for linear networks, for SELU (whose gain is 1), and for tanh
    scaled to have gain 1, as the paper proposes. The uniform distribution has bounds ±gain·√(3/fan-in).

    Args:
        distribution: `normal`, `uniform`, or `truncated` (a normal cut at two standard deviations, rescaled).
        gain: A factor on the standard deviation, or `auto` for the gain of the model's activation.
        bias: `zero`, or `as-built` to keep the biases from the layers' constructors.

    Reference: LeCun, Bottou, Orr and Müller (1998), Efficient backprop.
    """
    return Scheme("lecun", _he_draw("fan-in", distribution), gain, bias=bias)


@register("init", "orthogonal", course="A8 A9")
def orthogonal(*, gain: Gain = "auto", bias: Bias = "zero") -> Scheme:
    """Orthogonal initialisation: gain times a random matrix with orthonormal rows or columns.

    A linear network of square layers then preserves every length exactly, not only on average. A
    convolution's kernel is treated as the matrix [output channels, the rest]; each group, gate or projection
    is a separate matrix, while `torch.nn.init.orthogonal_` treats the whole tensor as one.

    Args:
        gain: `auto` for the gain of the model's activation, or a factor on the matrix of hidden layers.
        bias: `zero`, or `as-built` to keep the biases from the layers' constructors.

    Reference: Saxe, McClelland and Ganguli (2014), Exact solutions to the nonlinear dynamics of learning.
    """
    return Scheme("orthogonal", _draw_orthogonal, gain, bias=bias)


@register("init", "standard", course="A6 A7")
def standard(*, std: Positive = 0.01, distribution: Distribution = "normal", bias: Bias = "zero") -> Scheme:
    """The same standard deviation for every layer, regardless of its size, as was usual before Glorot.

    Each layer multiplies the variance of activations by fan-in·std²·E[f(Z)²], so the activations of deep
    networks vanish or explode; small transformers with norms use 0.02 and train well. It also applies to
    embeddings.

    Args:
        std: The standard deviation of all weights.
        distribution: `normal`, `uniform` (bounds ±std·√3), or `truncated` (a normal cut at two standard
            deviations, rescaled to standard deviation std).
        bias: `zero`, or `as-built` to keep the biases from the layers' constructors.

    Reference: Krizhevsky, Sutskever and Hinton (2012), ImageNet classification (standard deviation 0.01).
    """
    return Scheme("standard", _scaled(lambda fans: std, distribution), bias=bias, embeddings=True)


@register("init", "fixup", course="A10")
def fixup(
    *,
    mode: FanMode = "fan-in",
    distribution: Distribution = "normal",
    gain: Gain = "auto",
    bias: Bias = "zero",
) -> Scheme:
    """Fixup: He's initialisation, adapted to deep residual networks without normalisation.

    In a network of L residual branches with m weight layers each, an update of size η should change the
    function by Θ(η), regardless of depth. So, after He: the last layer of each branch and the head are zero,
    and the other layers of each branch are multiplied by L^(-1/(2m - 2)). Fixup's scalars are part of the
    model: build it with `fixup: true` and without a norm. A branch is a module's attribute `branch`; m counts
    the linear layers and convolutions in it. The authors' code uses fan-out.

    Args:
        mode: Which fan divides: `fan-in` or `fan-out`.
        distribution: `normal`, `uniform`, or `truncated` (a normal cut at two standard deviations, rescaled).
        gain: `auto` for the gain of the model's activation, or a factor on the standard deviation of hidden
            layers.
        bias: `zero`, or `as-built` to keep the biases from the layers' constructors.

    Reference: Zhang, Dauphin and Ma (2019), Fixup initialization: residual learning without normalization.
    """
    draw = _he_draw(mode, distribution)
    return Scheme("fixup", draw, gain, backward=mode == "fan-out", bias=bias, fixup=True)


@register("init", "as-built")
def as_built() -> Scheme:
    """Keep what the layers' constructors did; nothing is set.

    For a model that initialises itself, or comes with weights. The constructors draw from torch's default
    generator; linear layers and convolutions use a uniform distribution with bounds ±1/√fan-in.

    Reference: `torch.nn.Linear.reset_parameters` and its like.
    """
    return Scheme("as-built", None)
