"""Initialisation of a whole model by one rule: Glorot, He, LeCun, orthogonal, plain normal, Fixup.

`initialise(model, "he", generator=…)` walks the modules in order and sets every parameter whose meaning it
knows from the kind of its layer. It leaves the others as built, and its report lists them. All numbers come
from the given generator, in float32, in the order of the modules: the same seed gives the same weights.

What is set, and how:

    weights of linear and convolution layers   by the scheme, with fans and gain as below
    recurrent and attention matrices           by the scheme, each gate or projection as a matrix of its own
    embeddings                                 normal, std 1/√dimension (a tied output layer: LeCun)
    class tokens, positions, also relative     normal, std 0.02
    scales and biases of norms, Fixup scalars  1 and 0
    other biases                               0, unless the scheme says `as-built`

*Fans.* An output of a linear layer or convolution sums fan-in = (input channels / groups) · kernel size
terms, and an input reaches fan-out = (output channels / groups) · kernel size outputs; strides are ignored.
`torch.nn.init` ignores groups in its fan-out, and swaps the fans of transposed convolutions.

*Gain.* The gain multiplies the standard deviation. With `gain: auto` a layer gets the gain of the model's
activation (see `apoint.theory.gain`); with a number, that number. Layers known not to be followed by an
activation get 1: the head; the layers of an attention or recurrent module; those under a name that contains
`shortcut`, `downsample` or `embed`; the ungated factor of a gated unit; the last layer of a `Residual`'s
branch, unless an activation follows the sum. Strictly, the gain compensates for the activation *before* a
layer, so it belongs on the head and not on the first layer; over the depth of a network the product is the
same, and He et al. and PyTorch do it this way too.
"""

from __future__ import annotations

import copy
import math
import re
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from apoint import theory
from apoint.errors import UsageError
from apoint.nn.activations import activation as build_activation
from apoint.nn.attention import SelfAttention
from apoint.nn.gated import GatedUnit
from apoint.nn.recurrent import LSTMCell
from apoint.nn.residual import Residual, ScalarBias
from apoint.nn.schemes import Draw, Fans, Scheme, sample
from apoint.registry import registry
from apoint.settings import Spec

TOKEN_STD = 0.02
_TOKEN = re.compile(
    r"(class|cls|mask|register|distill?ation|dist)_?tokens?|pos(itions?|itional)?(_?embed\w*)?"
    r"|(\w*_)?bias_table|relative_\w+"
)
_UNACTIVATED = re.compile(r"shortcut|downsample|embed")
_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_ATTENTION = (SelfAttention, nn.MultiheadAttention)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase, LSTMCell)
_NOT_ELEMENTWISE = (nn.MultiheadAttention, nn.GLU, nn.Softmax, nn.Softmin, nn.Softmax2d, nn.LogSoftmax)


# -- gains -------------------------------------------------------------------------------------------


def gain(activation: Spec, *, backward: bool = False) -> float:
    """The factor on the weights' standard deviation that compensates for an activation f, by quadrature.

    1/√E[f(Z)²], or 1/√E[f'(Z)²] if `backward`, for a standard normal Z: √2 for `relu` both ways.
    """
    return _module_gain(build_activation(activation), backward)


def _module_gain(module: nn.Module, backward: bool) -> float:
    if isinstance(module, nn.PReLU):  # it has a slope for each channel; quadrature needs one
        module = nn.LeakyReLU(float(module.weight.detach().mean()))
    function = copy.deepcopy(module).double().eval()  # in training mode some draw random numbers
    return theory.backward_gain(function) if backward else theory.gain(function)


def _found_activation(model: nn.Module) -> nn.Module | None:
    """The first activation module in the model, if any."""
    homes = ("torch.nn.modules.activation", "apoint.nn.activations")
    found = (module for module in model.modules() if type(module).__module__ in homes)
    return next((module for module in found if not isinstance(module, _NOT_ELEMENTWISE)), None)


def _hidden_gain(model: nn.Module, scheme: Scheme, activation: Spec | None) -> float:
    if scheme.gain != "auto":
        return scheme.gain
    module = _found_activation(model) if activation is None else build_activation(activation)
    return 1.0 if module is None else _module_gain(module, scheme.backward)


# -- which layer is which ----------------------------------------------------------------------------


def _weight_layers(module: nn.Module) -> list[nn.Module]:
    """The linear layers and convolutions in a module, in order."""
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear | _ConvNd)]


def _head(model: nn.Module) -> nn.Module | None:
    """The output layer: the last layer of the attribute `head`, or else the last linear layer."""
    named = getattr(model, "head", None)
    layers = _weight_layers(named if isinstance(named, nn.Module) else model)
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    return (linear or layers or [None])[-1]


def _branches(model: nn.Module) -> list[nn.Module]:
    held = (getattr(module, "branch", None) for module in model.modules())
    return [branch for branch in held if isinstance(branch, nn.Module)]


def _unactivated(model: nn.Module) -> set[nn.Module | None]:
    """The layers known not to be followed by an activation; see the module docstring."""
    found = {_head(model)}
    for path, module in model.named_modules():
        if isinstance(module, _ATTENTION) or _UNACTIVATED.search(path):
            found.update(_weight_layers(module))
        if isinstance(module, GatedUnit):
            found.add(module.value)
        if isinstance(module, Residual) and module.activation is None:
            found.update(_weight_layers(module.branch)[-1:])
    return found


def _fixup_factors(model: nn.Module) -> dict[nn.Module | None, float]:
    """Fixup's factors: L^(-1/(2m-2)) in branches, but 0 for their last layers and the head."""
    branches = _branches(model)
    if not branches:
        raise UsageError(
            "init 'fixup': the model has no residual branch (a module with an attribute `branch`); "
            "choose a residual model, or 'he'"
        )
    factors: dict[nn.Module | None, float] = {_head(model): 0.0}
    for layers in map(_weight_layers, branches):
        for layer in layers[:-1]:
            factors[layer] = len(branches) ** (-1 / (2 * len(layers) - 2))
        factors.update(dict.fromkeys(layers[-1:], 0.0))
    return factors


Role = Literal["weight", "embedding", "token", "one", "zero", "bias", "unknown"]


def _role(module: nn.Module, name: str) -> Role:
    """The role of a parameter, from the kind of module that holds it and its name in that module."""
    is_bias = "bias" in name
    if isinstance(module, (nn.Linear, _ConvNd, *_RECURRENT)):
        return "bias" if is_bias else "weight"
    if isinstance(module, nn.MultiheadAttention):  # its bias_k and bias_v are tokens, not biases
        return "bias" if name == "in_proj_bias" else "weight" if "proj_weight" in name else "unknown"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return "embedding"
    if isinstance(module, _NORMS):
        return "zero" if is_bias else "one"
    if isinstance(module, ScalarBias):
        return "zero"
    if isinstance(module, Residual):
        return "one"
    return "token" if _TOKEN.fullmatch(name) else "unknown"


def _num_blocks(module: nn.Module, name: str, weight: Tensor, fused: bool) -> int:
    """The number of separate matrices stacked in a weight: groups, gates, or attention projections."""
    if isinstance(module, _ConvNd):
        return module.groups
    if isinstance(module, _RECURRENT):
        return max(1, len(weight) // module.hidden_size)
    return 3 if fused or name == "in_proj_weight" else 1


def _fans(module: nn.Module, weight: Tensor, num_blocks: int) -> Fans:
    first, second = len(weight) // num_blocks, weight.shape[1]
    size = weight[0, 0].numel()
    if isinstance(module, _ConvTransposeNd):
        return Fans(fan_in=first * size, fan_out=second * size)
    return Fans(fan_in=second * size, fan_out=first * size)


# -- a model as a whole ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """How one parameter was set.

    Attributes:
        name: The parameter, as in `named_parameters`.
        how: In words, such as `he, gain 1.414`; `left as built` if it was not set.
    """

    name: str
    how: str


@dataclass(frozen=True)
class Report:
    """What `initialise` did, parameter by parameter."""

    settings: tuple[Setting, ...]

    @property
    def left(self) -> tuple[str, ...]:
        """The parameters left as built by their constructors."""
        return tuple(setting.name for setting in self.settings if setting.how == LEFT)

    def __str__(self) -> str:
        width = max((len(setting.name) for setting in self.settings), default=0)
        return "\n".join(f"{setting.name:<{width}}  {setting.how}" for setting in self.settings)


LEFT = "left as built"


@torch.no_grad()
def initialise(
    model: nn.Module, spec: Spec, *, activation: Spec | None = None, generator: torch.Generator
) -> Report:
    """Set the parameters of a whole model by one scheme; see the module docstring for the rules.

    Args:
        model: Any module. Parameters whose meaning is unknown are left as built.
        spec: An `init` ingredient, such as `he` or `{name: glorot, distribution: uniform}`.
        activation: The activation that the gain `auto` compensates for; by default the first activation
            module in the model, and no gain if there is none (a call of `F.relu` cannot be seen: name it
            here).
        generator: The source of all random numbers.

    Returns:
        How each parameter was set, and which were left as built.
    """
    scheme: Scheme = registry("init").build(spec)
    applied = _Application(model, scheme, activation, generator)
    settings: dict[int, Setting] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in settings:  # tied weights are set once, in the role met first
                full = f"{path}.{name}" if path else name
                settings[id(parameter)] = Setting(full, applied.set(module, name, full, parameter))
    return Report(tuple(settings.values()))


class _Application:
    """One scheme on one model: the gains and factors of its layers, and how to set a parameter."""

    def __init__(
        self, model: nn.Module, scheme: Scheme, activation: Spec | None, generator: torch.Generator
    ) -> None:
        self.scheme, self.generator = scheme, generator
        self.hidden_gain = _hidden_gain(model, scheme, activation) if scheme.draw else 1.0
        self.unactivated = _unactivated(model)
        self.fused = {module.qkv for module in model.modules() if isinstance(module, SelfAttention)}
        self.factors = _fixup_factors(model) if scheme.fixup else {}

    def set(self, module: nn.Module, name: str, full: str, parameter: nn.Parameter) -> str:
        """Set one parameter and return how, in words."""
        role = _role(module, name)
        if self.scheme.draw is None or role == "unknown" or (role == "bias" and self.scheme.bias != "zero"):
            return LEFT
        if nn.parameter.is_lazy(parameter):
            raise UsageError(
                f"init {self.scheme.name!r}: {full} has no shape yet; run a batch through the model first"
            )
        if role == "weight":
            return self._set_weight(module, name, parameter, self.scheme.draw)
        if role in ("embedding", "token"):
            return self._set_table(module, role, parameter, self.scheme.draw)
        parameter.fill_(1.0 if role == "one" else 0.0)
        if isinstance(module, LSTMCell) and module.forget_bias is not None and name == "bias_ih":
            parameter.view(4, -1)[1] = module.forget_bias  # gates are in the order i, f, g, o
            return f"zero, forget gate {module.forget_bias:g}"
        return "one" if role == "one" else "zero"

    def _set_weight(self, module: nn.Module, name: str, weight: Tensor, draw: Draw) -> str:
        factor = self.factors.get(module, 1.0)
        if factor == 0:
            weight.zero_()
            return f"{self.scheme.name}, zero"
        is_hidden = isinstance(module, nn.Linear | _ConvNd) and module not in self.unactivated
        gain = factor * (self.hidden_gain if is_hidden else 1.0)
        num_blocks = _num_blocks(module, name, weight, fused=module in self.fused)
        fans = _fans(module, weight, num_blocks)
        blocks = [draw(block.shape, fans, gain, self.generator) for block in weight.chunk(num_blocks)]
        weight.copy_(torch.cat(blocks))
        return f"{self.scheme.name}, gain {gain:.4g}"

    def _set_table(self, module: nn.Module, role: Role, table: Tensor, draw: Draw) -> str:
        if role == "embedding" and self.scheme.embeddings:
            values, how = draw(table.shape, Fans(1, 1), 1.0, self.generator), self.scheme.name
        else:
            std = 1 / math.sqrt(table.shape[-1]) if role == "embedding" else TOKEN_STD
            values = sample(table.shape, std, "normal", self.generator)
            how = f"normal, deviation {std:.4g}"
        table.copy_(values)
        padding = getattr(module, "padding_idx", None)
        if padding is not None:
            table[padding] = 0.0
        return how
