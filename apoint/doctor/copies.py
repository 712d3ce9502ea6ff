"""Copies of a model and its optimizer for experiments; the originals keep their state."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from apoint.errors import UsageError, first_line


class CannotCopyError(UsageError):
    """Raised when a model or an optimizer cannot be copied; gives the reason."""


def copied(
    model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> tuple[nn.Module, torch.optim.Optimizer | None]:
    """Copy both together, so that the copied optimizer updates the copied model."""
    for parameter in model.parameters():
        if not parameter.is_leaf:
            raise CannotCopyError(
                "a parameter of the model is the result of a computation, and cannot be copied"
            )
    gradients = [parameter.grad for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = None
    try:
        twin, other = _deep_copies(model, optimizer)
    except Exception as error:
        raise CannotCopyError(f"the model cannot be copied: {first_line(error)}") from error
    finally:
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
    return twin, other


def _deep_copies(
    model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> tuple[nn.Module, torch.optim.Optimizer | None]:
    memo: dict[int, Any] = {}
    twin, other = copy.deepcopy(model, memo), copy.deepcopy(optimizer, memo)
    if optimizer is not None and other is not None:
        # PyTorch copies only an optimizer's groups and state; L-BFGS and others keep more than that.
        for name in optimizer.__dict__.keys() - other.__dict__.keys():
            other.__dict__[name] = copy.deepcopy(optimizer.__dict__[name], memo)
        # A scheduler replaces `step` with a wrapper that keeps a reference to the original optimizer.
        other.__dict__.pop("step", None)
    return twin, other


def scaled_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Multiply every learning rate by a factor, in place."""
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * factor


def rates(optimizer: torch.optim.Optimizer | None) -> list[float]:
    """The learning rates of all parameter groups."""
    return [] if optimizer is None else [float(group["lr"]) for group in optimizer.param_groups]


def default_optimizer(model: nn.Module) -> torch.optim.Optimizer | None:
    """The optimizer for experiments if none was given: AdamW at 1e-3; None for a model without weights."""
    weights: list[Any] = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(weights, lr=1e-3, weight_decay=0.0) if weights else None
