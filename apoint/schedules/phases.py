"""Curves made of phases: from one value to another, along a shape, one phase after the other."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from apoint.schedules.base import ROUNDING

Shape = Callable[[float], float]
"""The share of the way from one value to the other, at each share of a phase: 0 at 0, 1 at 1."""


def straight(share: float) -> float:
    """A straight line."""
    return share


def half_cosine(share: float) -> float:
    """Half a period of a cosine: slow, fast, slow."""
    return (1 - math.cos(math.pi * share)) / 2


def square_root(share: float) -> float:
    """The square root: fast at first."""
    return math.sqrt(share)


def blend(first: float, last: float, share: float) -> float:
    """From `first` at share 0 to `last` at share 1; never outside the two, not even by rounding."""
    value = first * (1 - share) + last * share
    return min(max(value, min(first, last)), max(first, last))


@dataclass(frozen=True)
class Phase:
    """A part of training in which the value goes from `first` to `last`.

    Attributes:
        end: The progress at which the next phase begins.
        first: The value at the phase's beginning.
        last: The value that the phase approaches at its end.
        shape: How it goes from one to the other.
    """

    end: float
    first: float
    last: float
    shape: Shape = straight


def follow(phases: Sequence[Phase]) -> Callable[[float], float]:
    """The curve that goes through the phases, and then stays at the last value of the last phase.

    Phases of zero length are skipped. The last phase may end after training, which then cuts it off.
    """
    ends = [phase.end - ROUNDING for phase in phases]
    assert all(earlier <= later for earlier, later in pairwise(ends)), ends

    def curve(progress: float) -> float:
        index = bisect_right(ends, progress)
        if index == len(phases):
            return phases[-1].last
        begin = phases[index - 1].end if index else 0.0
        phase = phases[index]
        if progress - begin <= ROUNDING:  # a root would magnify a tiny difference
            return phase.first
        return blend(phase.first, phase.last, phase.shape((progress - begin) / (phase.end - begin)))

    return curve
