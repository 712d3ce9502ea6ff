"""Shared by all deficits: the contract, and the two meanings of strength.

A deficit is an impairment of the training data for part of training; the engine decides when it begins,
when it ends and how strong it is at each step.

Legend: B batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from apoint.data.streams import Draw
from apoint.errors import UsageError

Deficit = Callable[[Tensor, Tensor, Draw, float, int], tuple[Tensor, Tensor]]
"""(inputs, targets, draw, strength in [0, 1], num_classes) → (inputs, targets); never works in place."""


def check_strength(strength: float, who: str) -> None:
    """Raise if the strength is not between 0 and 1, which a schedule may have produced."""
    if not 0 <= strength <= 1:
        raise UsageError(f"{who}: strength must be between 0 and 1, got {strength:g}; change its schedule")


def blended(who: str, impair: Callable[[Tensor, Draw], Tensor]) -> Deficit:
    """A deficit whose strength s blends: (1−s)·x + s·impaired(x)."""

    def apply(x: Tensor, y: Tensor, draw: Draw, strength: float, num_classes: int) -> tuple[Tensor, Tensor]:
        check_strength(strength, who)
        if strength == 0:
            return x, y
        impaired = impair(x, draw)
        return (impaired if strength == 1 else torch.lerp(x, impaired, strength)), y

    return apply


def shared_out(who: str, impair: Callable[[Tensor, Draw], Tensor]) -> Deficit:
    """A deficit whose strength is the share of samples that it affects in full.

    A sample is affected while its own uniform number is below the strength, so that within an epoch a weaker
    deficit affects some of the samples that a stronger one affects, and no others.
    """

    def apply(x: Tensor, y: Tensor, draw: Draw, strength: float, num_classes: int) -> tuple[Tensor, Tensor]:
        check_strength(strength, who)
        if strength == 0:
            return x, y
        impaired = impair(x, draw)
        if strength < 1:
            spared = (draw.child("share").uniform() >= strength).nonzero().squeeze(1)
            impaired = impaired.index_copy(0, spared, x.index_select(0, spared))
        return impaired, y

    return apply
