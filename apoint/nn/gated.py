"""Gated linear units, and the feed-forward blocks of transformers, plain and gated.

A gated unit multiplies two linear maps of its input, one of them through an activation a:
a(xW + b) ⊗ (xV + c). The *first* factor is the gate. The five functions take the results of the two maps;
`GatedUnit` holds the maps; a feed-forward block is a plain layer or a gated unit, followed by the linear map
back to the model dimension.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.errors import UnknownNameError
from apoint.nn.activations import activation as build_activation
from apoint.registry import register, registry
from apoint.settings import ActivationSpec, Spec

GateName = Literal["glu", "bilinear", "reglu", "geglu", "swiglu"]
_GATE_ACTIVATIONS: dict[GateName, str] = {
    "glu": "sigmoid",
    "bilinear": "identity",
    "reglu": "relu",
    "geglu": "gelu",
    "swiglu": "silu",
}


def glu(gate: Tensor, value: Tensor) -> Tensor:
    """σ(gate) ⊗ value. `torch.nn.functional.glu` takes both in one tensor, the value first."""
    return torch.sigmoid(gate) * value


def bilinear(gate: Tensor, value: Tensor) -> Tensor:
    """gate ⊗ value."""
    return gate * value


def reglu(gate: Tensor, value: Tensor) -> Tensor:
    """ReLU(gate) ⊗ value."""
    return F.relu(gate) * value


def geglu(gate: Tensor, value: Tensor) -> Tensor:
    """GELU(gate) ⊗ value."""
    return F.gelu(gate) * value


def swiglu(gate: Tensor, value: Tensor) -> Tensor:
    """SiLU(gate) ⊗ value."""
    return F.silu(gate) * value


class GatedUnit(nn.Module):
    """a(xW + b) ⊗ (xV + c), with two linear maps of equal size.

    The maps are two `nn.Linear` modules, not one of twice the width, so that an initialisation sees the
    fan-out of each.

    Args:
        in_features: The size of x.
        out_features: The size of the result.
        kind: The kind of unit, which determines the activation a of the gate.
        bias: Whether to use the biases b and c.
    """

    def __init__(self, in_features: int, out_features: int, kind: GateName, bias: bool = True) -> None:
        super().__init__()
        if kind not in _GATE_ACTIVATIONS:
            raise UnknownNameError("gated unit", kind, _GATE_ACTIVATIONS)
        self.gate = nn.Linear(in_features, out_features, bias=bias)
        self.activation = build_activation(_GATE_ACTIVATIONS[kind])
        self.value = nn.Linear(in_features, out_features, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        gated: Tensor = self.activation(self.gate(x)) * self.value(x)
        return gated


class PlainFeedForward(nn.Module):
    """a(xW + b)U + d, with dropout, if any, before U."""

    def __init__(
        self, model_dim: int, hidden_dim: int, activation: nn.Module, bias: bool, dropout: nn.Module | None
    ) -> None:
        super().__init__()
        self.expand = nn.Linear(model_dim, hidden_dim, bias=bias)
        self.activation = activation
        self.dropout = dropout if dropout is not None else nn.Identity()
        self.contract = nn.Linear(hidden_dim, model_dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.contract(self.dropout(self.activation(self.expand(x))))
        return out


class GatedFeedForward(nn.Module):
    """(a(xW + b) ⊗ (xV + c))U + d, with dropout, if any, before U."""

    def __init__(
        self, model_dim: int, hidden_dim: int, kind: GateName, bias: bool, dropout: nn.Module | None
    ) -> None:
        super().__init__()
        self.unit = GatedUnit(model_dim, hidden_dim, kind, bias)
        self.dropout = dropout if dropout is not None else nn.Identity()
        self.contract = nn.Linear(hidden_dim, model_dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.contract(self.dropout(self.unit(x)))
        return out


def feed_forward(spec: Spec, model_dim: int, hidden_dim: int, dropout: nn.Module | None = None) -> nn.Module:
    """Build a feed-forward block from its name, or from `{name: …, setting: value}`.

    Args:
        spec: The name, optionally with settings.
        model_dim: The size of the block's input and output.
        hidden_dim: The size of the plain block's hidden layer; gated blocks derive theirs from it.
        dropout: Applied to the hidden layer, after the activation or the product.
    """
    made: nn.Module = registry("feed-forward").build(spec, model_dim, hidden_dim, dropout)
    return made


def matched_width(model_dim: int, hidden_dim: int, bias: bool) -> int:
    """The hidden size at which a gated block has as many parameters as a plain one of `hidden_dim`.

    With D = model_dim and H = hidden_dim, a plain block has 2DH + H + D parameters and a gated one of
    width w has 3Dw + 2w + D; so w is H(2D + 1)/(3D + 2), or without bias 2H/3, rounded to the nearest whole
    number (ties round down), and at least 1.
    """
    wanted = hidden_dim * (2 * model_dim + bias)
    per_unit = 3 * model_dim + 2 * bias
    return max(1, -((per_unit - 2 * wanted) // (2 * per_unit)))


def _gated(
    kind: GateName, model_dim: int, hidden_dim: int, dropout: nn.Module | None, bias: bool, match: bool
) -> nn.Module:
    width = matched_width(model_dim, hidden_dim, bias) if match else hidden_dim
    return GatedFeedForward(model_dim, width, kind, bias, dropout)


@register("feed-forward", "plain", course="G5")
def plain_feed_forward(
    model_dim: int,
    hidden_dim: int,
    dropout: nn.Module | None = None,
    *,
    activation: ActivationSpec = "gelu",
    bias: bool = True,
) -> nn.Module:
    """The block of the first transformer, a(xW + b)U + d.

    It is applied to each position separately. W is model_dim × hidden_dim; U maps back. The paper uses `relu`
    for a; the default here is that of BERT, GPT-2 and the vision transformer.

    Args:
        activation: The activation a.
        bias: Whether to use the biases b and d.

    Reference: Vaswani et al. (2017), Attention is all you need, section 3.3.
    """
    return PlainFeedForward(model_dim, hidden_dim, build_activation(activation), bias, dropout)


@register("feed-forward", "glu", course="G4 G5")
def glu_feed_forward(
    model_dim: int,
    hidden_dim: int,
    dropout: nn.Module | None = None,
    *,
    bias: bool = True,
    match_parameters: bool = True,
) -> nn.Module:
    """The block with a sigmoid gate, (σ(xW + b) ⊗ (xV + c))U + d.

    Dauphin et al. write the gate as the second factor; only the names W and V are swapped.

    Args:
        bias: Whether to use the biases b, c and d; Shazeer uses none.
        match_parameters: Whether to narrow the hidden layer (to 2/3 without bias, see `matched_width`) so
            that the block has as many parameters as the plain one of `hidden_dim`.

    Reference: Dauphin, Fan, Auli and Grangier (2016), Language modeling with gated convolutional networks.
    """
    return _gated("glu", model_dim, hidden_dim, dropout, bias, match_parameters)


@register("feed-forward", "bilinear", course="G4 G5")
def bilinear_feed_forward(
    model_dim: int,
    hidden_dim: int,
    dropout: nn.Module | None = None,
    *,
    bias: bool = True,
    match_parameters: bool = True,
) -> nn.Module:
    """The block with no activation except the product, ((xW + b) ⊗ (xV + c))U + d.

    Args:
        bias: Whether to use the biases b, c and d; Shazeer uses none.
        match_parameters: Whether to narrow the hidden layer (to 2/3 without bias, see `matched_width`) so
            that the block has as many parameters as the plain one of `hidden_dim`.

    Reference: Shazeer (2020), GLU variants improve transformer.
    """
    return _gated("bilinear", model_dim, hidden_dim, dropout, bias, match_parameters)


@register("feed-forward", "reglu", course="G4 G5")
def reglu_feed_forward(
    model_dim: int,
    hidden_dim: int,
    dropout: nn.Module | None = None,
    *,
    bias: bool = True,
    match_parameters: bool = True,
) -> nn.Module:
    """The block with a rectified gate, (ReLU(xW + b) ⊗ (xV + c))U + d.

    Args:
        bias: Whether to use the biases b, c and d; Shazeer uses none.
        match_parameters: Whether to narrow the hidden layer (to 2/3 without bias, see `matched_width`) so
            that the block has as many parameters as the plain one of `hidden_dim`.

    Reference: Shazeer (2020), GLU variants improve transformer.
    """
    return _gated("reglu", model_dim, hidden_dim, dropout, bias, match_parameters)


@register("feed-forward", "geglu", course="G4 G5")
def geglu_feed_forward(
    model_dim: int,
    hidden_dim: int,
    dropout: nn.Module | None = None,
    *,
    bias: bool = True,
    match_parameters: bool = True,
) -> nn.Module:
    """The block with a GELU gate, (GELU(xW + b) ⊗ (xV + c))U + d.

    Args:
        bias: Whether to use the biases b, c and d; Shazeer uses none.
        match_parameters: Whether to narrow the hidden layer (to 2/3 without bias, see `matched_width`) so
            that the block has as many parameters as the plain one of `hidden_dim`.

    Reference: Shazeer (2020), GLU variants improve transformer.
    """
    return _gated("geglu", model_dim, hidden_dim, dropout, bias, match_parameters)


@register("feed-forward", "swiglu", course="G4 G5")
def swiglu_feed_forward(
    model_dim: int,
    hidden_dim: int,
    dropout: nn.Module | None = None,
    *,
    bias: bool = True,
    match_parameters: bool = True,
) -> nn.Module:
    """The block with a SiLU gate, (SiLU(xW + b) ⊗ (xV + c))U + d.

    Args:
        bias: Whether to use the biases b, c and d; Shazeer uses none.
        match_parameters: Whether to narrow the hidden layer (to 2/3 without bias, see `matched_width`) so
            that the block has as many parameters as the plain one of `hidden_dim`.

    Reference: Shazeer (2020), GLU variants improve transformer.
    """
    return _gated("swiglu", model_dim, hidden_dim, dropout, bias, match_parameters)
