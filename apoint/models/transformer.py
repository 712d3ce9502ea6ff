"""Code that transformers share: blocks of attention and feed-forward, and positions.

Shapes: B batch, T positions, E model dimension.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.nn.attention import SelfAttention
from apoint.nn.dropout import Dropout, Mode, StochasticDepth
from apoint.nn.gated import feed_forward as build_feed_forward
from apoint.nn.norms import norm as build_norm
from apoint.nn.residual import LayerScale, Residual
from apoint.registry import registry, split_spec
from apoint.settings import IngredientOf, Spec

FeedForwardSpec = Annotated[Spec, IngredientOf("feed-forward")]
Placement = Literal["pre", "post"]
Positional = Literal["learned", "sinusoidal"]


def transformer_blocks(
    width: int,
    depth: int,
    num_heads: int,
    *,
    causal: bool,
    feed_forward: Spec,
    expansion: float,
    activation: Spec | None,
    norm: Spec,
    placement: Placement,
    dropout: float,
    stochastic_depth: float,
    stochastic_depth_mode: Mode,
    layer_scale: float | None = None,
) -> nn.Sequential:
    """Blocks of two residual branches each: attention, then feed-forward; from [B, T, E] to the same.

    As in `nn.TransformerEncoderLayer`, dropout is applied to the attention weights, in the feed-forward's
    hidden layer and at the end of each branch; after that, if `layer_scale` is a number, come learned
    per-channel factors with this initial value. Stochastic depth counts blocks: both branches of block l of L
    survive with probability 1 - (l/L)·rate, each with its own draw. With `placement` "pre" there is one more
    norm at the end.
    """
    spec = _with_activation(feed_forward, activation)
    hidden = max(1, round(expansion * width))
    layers: list[nn.Module] = []
    for number in range(1, depth + 1):
        attention = SelfAttention(width, num_heads, causal=causal, dropout=Dropout(dropout))
        forward = build_feed_forward(spec, width, hidden, Dropout(dropout))
        layers += [
            Residual(
                _scaled(nn.Sequential(branch, Dropout(dropout)), width, layer_scale),
                norm=build_norm(norm, width),
                placement=placement,
                drop=StochasticDepth(stochastic_depth, number / depth, stochastic_depth_mode),
            )
            for branch in (attention, forward)
        ]
    if placement == "pre":
        layers.append(build_norm(norm, width))
    return nn.Sequential(*layers)


def _scaled(branch: nn.Sequential, width: int, initial: float | None) -> nn.Sequential:
    """A branch with per-channel factors at the end, if they have an initial value."""
    return branch if initial is None else branch.append(LayerScale(width, initial))


def _with_activation(feed_forward: Spec, activation: Spec | None) -> Spec:
    """The feed-forward's spec with the model's activation in it, if the model sets one."""
    if activation is None:
        return feed_forward
    name, settings = split_spec(feed_forward, "feed-forward")
    if "activation" not in registry("feed-forward")[name].setting_parameters:
        raise UsageError(
            f"feed_forward {name!r} has its own activation; leave out the model's, or choose 'plain'"
        )
    if "activation" in settings:
        raise UsageError("activation is set twice, in the model and in its feed_forward; set it in one place")
    return {"name": name, **settings, "activation": activation}


class Positions(nn.Module):
    """Adds a separate vector to each position, learned or sinusoidal.

    The sines are those of the first transformer: with ω_i = 10000^(-2i/E), entry 2i of position t is
    sin(ω_i t) and entry 2i + 1 is cos(ω_i t).

    Args:
        num_positions: The maximum number T of positions.
        width: The model dimension E.
        kind: "learned" (drawn from a normal distribution with standard deviation 0.02) or "sinusoidal".
    """

    def __init__(self, num_positions: int, width: int, kind: Positional) -> None:
        super().__init__()
        if kind == "learned":
            self.positions: Tensor = nn.Parameter(0.02 * torch.randn(num_positions, width))
        else:
            self.register_buffer("positions", sinusoids(num_positions, width), persistent=False)

    def forward(self, x_BTE: Tensor) -> Tensor:
        """x with the vectors of the first T positions added."""
        return x_BTE + self.positions[: x_BTE.shape[1]]


def sinusoids(num_positions: int, width: int) -> Tensor:
    """The table [T, E] of sines and cosines; see `Positions`."""
    frequencies = torch.exp(-math.log(10000.0) / width * torch.arange(0, width, 2, dtype=torch.float64))
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * frequencies
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    return table[:, :width].to(torch.float32)
