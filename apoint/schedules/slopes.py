"""Slopes without a warm-up: straight, geometric, or through given points."""

from __future__ import annotations

import math
import sys
from itertools import pairwise

from apoint.errors import UsageError
from apoint.schedules.base import (
    Length,
    Schedule,
    moments_in_order,
    register_schedule,
    some_of_training,
)
from apoint.schedules.phases import Phase, follow
from apoint.settings import Positive, Real
from apoint.units import Duration, Horizon

_LARGEST_LOGARITHM = math.log(sys.float_info.max)


@register_schedule("linear", course="C3 F11")
def linear(
    horizon: Horizon | None = None, *, start: Real = 1.0, end: Real = 0.0, length: Length = "100%"
) -> Schedule:
    """A straight line from one value to another.

    Up or down: a momentum that rises, a learning rate that falls, a dropout rate that is annealed over the
    first epochs. At progress p, the length as a share:

        v = start + (end - start) * min(p / length, 1)

    PyTorch's `LinearLR`, with absolute values in place of its two factors.

    Args:
        start: The value at the beginning of training.
        end: The value after `length`.
        length: How long the change takes.

    Reference:
        Liu et al., Dropout reduces underfitting, 2023, for early dropout that falls in a line.
    """
    return Schedule(follow([Phase(some_of_training(length, horizon, "length"), start, end)]))


@register_schedule("exponential", course="B2")
def exponential(
    horizon: Horizon | None = None, *, start: Real = 1.0, factor: Positive = 0.01, every: Length = "100%"
) -> Schedule:
    """A geometric decay: the same factor over every stretch of the same length.

    At progress p, the length as a share:

        v = start * factor ** (p / every)

    It changes at each update; to change once per epoch, as PyTorch's `ExponentialLR` is mostly used, use
    `step` with `every: 1 epoch`. With a factor above 1 it grows, as in a search for the largest learning
    rate.

    Args:
        start: The value at the beginning of training.
        factor: What the value is multiplied by over each `every`.
        every: The length over which the factor applies once.

    Reference:
        Achille, Rovere and Soatto, Critical learning periods in deep networks, 2019, with 0.97 an epoch.
    """
    length = some_of_training(every, horizon, "every")
    if math.log(factor) / length + math.log(max(abs(start), 1.0)) > _LARGEST_LOGARITHM:
        raise UsageError(
            f"a factor of {factor} every {Duration.parse(every)} grows beyond the largest number that there "
            f"is; lower the factor or lengthen every"
        )
    return Schedule(lambda progress: start * factor ** (progress / length))


@register_schedule("piecewise", course="F11")
def piecewise(horizon: Horizon | None = None, *, points: list[tuple[Length, Real]]) -> Schedule:
    """Straight lines through given points.

    For any shape without a named schedule. Between neighbouring points at progress p0 and p1 with values v0
    and v1:

        v = v0 + (v1 - v0) * (p - p0) / (p1 - p0)

    Before the first point and after the last one the value is that of the point, as in `numpy.interp`.

    Args:
        points: Pairs of a length, counted from the beginning of training, and the value there, in order.

    Reference:
        Page, How to train your ResNet, 2018, which trains along such lines.
    """
    if len(points) < 2:
        raise UsageError(f"points must be at least two, got {len(points)}; for one value, use constant")
    places = moments_in_order([place for place, _ in points], horizon, "points")
    values = [value for _, value in points]
    lines = [Phase(place, *ends) for place, ends in zip(places[1:], pairwise(values), strict=True)]
    return Schedule(follow([Phase(places[0], values[0], values[0]), *lines]))
