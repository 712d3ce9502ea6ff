"""Residual multi-layer perceptrons: deep fully connected networks whose layers learn differences."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.shapes import has_norm
from apoint.nn.activations import activation as build_activation
from apoint.nn.dropout import Dropout, Mode, StochasticDepth
from apoint.nn.norms import norm as build_norm
from apoint.nn.residual import Residual, ScalarBias
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Rate


class ResidualMLP(nn.Module):
    """A linear embedding, residual blocks, and a linear head; inputs are flattened to vectors.

    Args:
        embedding: Maps inputs to the width of the blocks.
        blocks: The residual blocks.
        norm: Applied to the last block's output.
        head: The final linear layer.
    """

    def __init__(self, embedding: nn.Linear, blocks: nn.Module, norm: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.embedding = embedding
        self.blocks = blocks
        self.norm = norm
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """One logit for each class."""
        logits: Tensor = self.head(self.norm(self.blocks(self.embedding(x.flatten(1)))))
        return logits


@register("model", "residual-mlp", course="A1 A10 C6", inputs=("vector", "signal", "image"))
def residual_mlp(
    in_features: int,
    num_classes: int = 10,
    *,
    depth: Count = 8,
    width: Count = 128,
    activation: ActivationSpec = "relu",
    norm: NormSpec = "layer",
    placement: Literal["pre", "post"] = "pre",
    dropout: Rate = 0.0,
    stochastic_depth: Rate = 0.0,
    stochastic_depth_mode: Mode = "batch",
    fixup: bool = False,
) -> ResidualMLP:
    """A residual multi-layer perceptron, blocks x + W₂ f(W₁ norm(x)) between two linear layers.

    The smallest network in which residual blocks, stochastic depth and Fixup can be studied. With
    `placement: pre` there is one more norm before the head.

    Args:
        depth: The number of residual blocks; each has two linear layers.
        width: The number of units in each layer.
        activation: The activation f.
        norm: The norm of each block.
        placement: Whether the norm is inside the branch (`pre`) or applied to the sum (`post`).
        dropout: The probability of dropping a hidden unit of a branch.
        stochastic_depth: The probability of skipping the last branch; linearly lower for earlier branches.
        stochastic_depth_mode: Whether to draw once per `batch`, which saves time, or once per `sample`.
        fixup: Whether to replace norms and biases with Fixup's scalars; needs `norm: none`.

    Reference: He et al. (2016), Deep residual learning for image recognition.
    """
    if fixup and has_norm(norm):
        raise UsageError("model 'residual-mlp': fixup stands in for norms; set norm to none")
    blocks = []
    for number in range(1, depth + 1):
        drop = StochasticDepth(stochastic_depth, number / depth, stochastic_depth_mode)
        branch = _branch(width, activation, dropout, fixup)
        block_norm = build_norm(norm, width) if has_norm(norm) else None
        blocks.append(Residual(branch, norm=block_norm, placement=placement, drop=drop, fixup=fixup))
    last: nn.Module = build_norm(norm, width) if placement == "pre" else nn.Identity()
    last = ScalarBias() if fixup else last
    embedding, head = nn.Linear(in_features, width), nn.Linear(width, num_classes)
    return ResidualMLP(embedding, nn.Sequential(*blocks), last, head)


def _branch(width: int, activation: ActivationSpec, dropout: float, fixup: bool) -> nn.Sequential:
    """Linear, activation, dropout, linear; with Fixup, a scalar bias before each except the dropout."""
    layers = [nn.Linear(width, width, bias=not fixup), build_activation(activation), Dropout(dropout)]
    last = nn.Linear(width, width, bias=not fixup)
    if not fixup:
        return nn.Sequential(*layers, last)
    return nn.Sequential(layers[0], ScalarBias(), *layers[1:], ScalarBias(), last)
