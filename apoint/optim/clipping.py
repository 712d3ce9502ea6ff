"""Clipping: a limit on the gradient before the rule sees it (course I9).

Pure functions on a gradient of all parameters in one vector (P), or of a stack of replicas (R, P) with one
limit each (R, 1). Replicas do not affect each other: each has its own norm, and a norm that is not finite
affects only its own replica.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from apoint.optim.base import Scalar
from apoint.registry import register, registry
from apoint.settings import Schedulable

Limit = Annotated[float, Field(gt=0), Schedulable()]
"""The largest size of a gradient. May be put on a schedule."""


@dataclass(frozen=True)
class Clip:
    """A clipping method with its checked limit.

    Attributes:
        name: Its name in a recipe.
        function: The pure function of a gradient and a limit.
        limit: The recipe's limit.
    """

    name: str
    function: Callable[[Tensor, Scalar], Tensor]
    limit: float

    def __call__(self, gradient: Tensor, limit: Scalar | None = None) -> Tensor:
        """Clip the gradient; `limit` replaces the recipe's, as a schedule or a stack of replicas needs."""
        return self.function(gradient, self.limit if limit is None else limit)


def clip_by_value(gradient: Tensor, limit: Scalar) -> Tensor:
    """Clamp each coordinate to [−limit, limit]."""
    return torch.clamp(gradient, -limit, limit)  # type: ignore[arg-type]  # both numbers or both tensors


def clip_by_norm(gradient: Tensor, limit: Scalar) -> Tensor:
    """g·min(1, limit/‖g‖), with the Euclidean norm over the last axis.

    If the norm is infinite, or too large for the dtype (about 1e19 in float32), the result is PyTorch's: 0
    in finite coordinates, NaN in infinite ones.
    """
    norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    limits = torch.as_tensor(limit, dtype=norm.dtype, device=norm.device)  # number / tensor would round twice
    return gradient * torch.clamp(limits / norm, max=1.0)


def keep(gradient: Tensor, limit: Scalar) -> Tensor:
    """Return the gradient unchanged, at any limit."""
    return gradient


@register("clip", "none")
def none() -> Clip:
    """No clipping.

    The gradient reaches the rule unchanged: g ← g.
    """
    return Clip("none", keep, math.inf)


@register("clip", "value", course="I9")
def value(*, limit: Limit = 1.0) -> Clip:
    """Clipping by value: each coordinate is clamped to an interval around 0, which may change the direction.

        g ← max(−α, min(g, α)), coordinate by coordinate

    with α `limit`. Equals `torch.nn.utils.clip_grad_value_`.

    Args:
        limit: The largest magnitude α that a coordinate of the gradient may have.

    Reference:
        Mikolov, 2012, Statistical language models based on neural networks.
    """
    return Clip("value", clip_by_value, limit)


@register("clip", "norm", course="I9")
def norm(*, limit: Limit = 1.0) -> Clip:
    """Clipping by norm: the whole gradient is scaled down to a maximum norm, which keeps its direction.

        g ← g·min(1, α/‖g‖)

    with α `limit` and ‖g‖ the Euclidean norm over all parameters of one replica. This is the course's formula
    exactly; `torch.nn.utils.clip_grad_norm_` adds 1e-6 to ‖g‖, and so scales down a little more.

    Args:
        limit: The largest Euclidean norm α that the gradient may have.

    Reference:
        Pascanu, Mikolov and Bengio, 2013, On the difficulty of training recurrent neural networks.
    """
    return Clip("norm", clip_by_norm, limit)


@torch.no_grad()
def clip_gradients_(
    parameters: Iterable[Tensor], *, by: Literal["norm", "value"] = "norm", limit: float = 1.0
) -> Tensor:
    """Clip gradients in place, between `backward` and `step`; return their norm before clipping.

    Args:
        parameters: Such as `model.parameters()`; all on one device. Those without a gradient are skipped.
        by: Whether the limit is on the "norm" of all gradients together or the "value" of each coordinate.
        limit: The limit.
    """
    clip: Clip = registry("clip").build(by, limit=limit)
    gradients = [param.grad for param in parameters if param.grad is not None]
    if not gradients:
        return torch.zeros(())
    flat_P = torch.cat([gradient.flatten() for gradient in gradients])
    parts = torch.split(clip(flat_P), [gradient.numel() for gradient in gradients])
    for gradient, clipped in zip(gradients, parts, strict=True):
        gradient.copy_(clipped.view_as(gradient))
    norm: Tensor = torch.linalg.vector_norm(flat_P)
    return norm
