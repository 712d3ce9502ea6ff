"""Residual blocks: a shortcut plus a branch, with its norm, its stochastic depth and Fixup's scalars."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.nn.dropout import StochasticDepth
from apoint.nn.norms import Layout

Placement = Literal["pre", "post", "none"]


class ScalarBias(nn.Module):
    """x + b with one learned number b, initially zero; Fixup puts one before each layer and activation."""

    def __init__(self) -> None:
        super().__init__()
        self.scalar_bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """x + b."""
        return x + self.scalar_bias


class Residual(nn.Module):
    """A shortcut plus a branch: the branch learns the difference.

    With s the shortcut (the identity unless given), B the branch, N the norm and f the activation:

        "pre":   f(s(x) + B(N(x)))     the norm inside the branch; the shortcut is never normalised
        "post":  f(N(s(x) + B(x)))     the norm on the sum, as in the first Transformer
        "none":  f(s(x) + B(x))        also where no norm is given

    With `fixup`, B(x) becomes scale · B(x + b_in) + b_out with three learned scalars (1, 0, 0 at first):
    what Fixup needs, besides its initialisation, to work without a norm. Its further biases belong inside the
    branch, as `ScalarBias`.

    Args:
        branch: B. Initialisations find the layers of a branch under this name.
        shortcut: s; needed where B changes the shape.
        norm: N.
        placement: Where N is applied.
        drop: Drops B(N(x)) at random in training, without computing it in its "batch" mode.
        fixup: Whether to add Fixup's three scalars.
        activation: f, applied to the sum; the identity unless given.

    Reference: He et al. (2016), Deep residual learning; Zhang, Dauphin and Ma (2019), Fixup initialization.
    """

    def __init__(
        self,
        branch: nn.Module,
        *,
        shortcut: nn.Module | None = None,
        norm: nn.Module | None = None,
        placement: Placement = "pre",
        drop: StochasticDepth | None = None,
        fixup: bool = False,
        activation: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if placement not in get_args(Placement):
            raise UsageError(f"Residual: placement must be 'pre', 'post' or 'none', got {placement!r}")
        if placement == "none" and norm is not None:
            raise UsageError("Residual: placement 'none' leaves no place for a norm; give norm=None")
        self.placement = placement
        self.norm = norm
        self.branch = branch
        self.shortcut = shortcut
        self.activation = activation
        self.drop = drop
        self.bias_in = ScalarBias() if fixup else None
        self.bias_out = ScalarBias() if fixup else None
        self.scale = nn.Parameter(torch.ones(())) if fixup else None

    def forward(self, x: Tensor) -> Tensor:
        """The sum of shortcut and branch, as in the class's table."""
        straight = x if self.shortcut is None else self.shortcut(x)
        total = straight + self._branch(x) if self.drop is None else self.drop.add(straight, self._branch, x)
        if self.norm is not None and self.placement == "post":
            total = self.norm(total)
        out: Tensor = total if self.activation is None else self.activation(total)
        return out

    def _branch(self, x: Tensor) -> Tensor:
        if self.norm is not None and self.placement == "pre":
            x = self.norm(x)
        if self.scale is None or self.bias_in is None or self.bias_out is None:
            out: Tensor = self.branch(x)
            return out
        return self.bias_out(self.scale * self.branch(self.bias_in(x)))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return f"placement={self.placement!r}, fixup={self.scale is not None}"


class LayerScale(nn.Module):
    """γ·x with one learned factor for each channel, initially small, at the end of a residual branch.

    Args:
        num_features: The number of channels.
        initial: The initial value of all factors.
        layout: `features` for [B, T, F], `channels` for [B, C, *space].

    Reference: Touvron et al. (2021), Going deeper with image transformers.
    """

    def __init__(self, num_features: int, initial: float, layout: Layout = "features") -> None:
        super().__init__()
        self.layout = layout
        self.factor = nn.Parameter(torch.full((num_features,), float(initial)))

    def forward(self, x: Tensor) -> Tensor:
        """Each channel times its factor."""
        if self.layout == "features":
            return x * self.factor
        return x * self.factor.view(-1, *[1] * (x.dim() - 2))

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return f"{len(self.factor)}, layout={self.layout!r}"
