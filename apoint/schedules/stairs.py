"""Piecewise constant values: constant, stairs down, stairs up, windows.

A jump at a moment m takes effect with the first update at or after it, p ≥ m.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable

from apoint.errors import UsageError
from apoint.schedules.base import (
    ROUNDING,
    Length,
    Schedule,
    ShrinkFactor,
    moments_in_order,
    register_schedule,
    share_of_training,
    some_of_training,
)
from apoint.schedules.phases import Phase, follow
from apoint.settings import Momentum, Real
from apoint.units import Duration, Horizon

_HALF_AND_THREE_QUARTERS: list[Length] = ["50%", "75%"]


@register_schedule("constant", course="F2 I10")
def constant(horizon: Horizon | None = None, *, value: Real = 1.0) -> Schedule:
    """The same value throughout.

    The baseline that any schedule has to beat. At every progress:

        v = value

    Args:
        value: The value.

    Reference:
        Bottou, Curtis and Nocedal, Optimization methods for large-scale machine learning, 2018, th. 4.8.
    """
    return Schedule(lambda progress: value)


@register_schedule("step")
def step(
    horizon: Horizon | None = None,
    *,
    start: Real = 1.0,
    factor: ShrinkFactor = 0.1,
    milestones: list[Length] | None = None,
    every: Length | None = None,
) -> Schedule:
    """Stairs: the value drops by a factor at milestones, or at regular intervals.

    With n the number of milestones at or before progress p, or n = floor(p / every):

        v = start * factor ** n

    PyTorch's `MultiStepLR` and `StepLR`. Without `milestones` and `every` it drops at 50% and 75%, as in
    the first training of residual networks on CIFAR-10.

    Args:
        start: The value before the first drop.
        factor: What each drop multiplies the value by.
        milestones: Where it drops: lengths from the beginning of training, in order.
        every: The interval from one drop to the next, instead of milestones.

    Reference:
        He et al., Deep residual learning for image recognition, 2016, section 4.2.
    """
    if milestones is not None and every is not None:
        raise UsageError("milestones and every exclude each other; leave one of them out")
    if every is None:
        count = _count_of_milestones(horizon, _HALF_AND_THREE_QUARTERS if milestones is None else milestones)
    else:
        count = _count_of_multiples(some_of_training(every, horizon, "every"))
    return Schedule(lambda progress: start * factor ** count(progress))


@register_schedule("window", course="C3 C7")
def window(
    horizon: Horizon | None = None,
    *,
    value: Real = 1.0,
    outside: Real = 0.0,
    begin: Length = "0%",
    end: Length = "100%",
) -> Schedule:
    """One value inside a window of training, another outside it.

    Early dropout is a window that ends early, late dropout one that begins late. At progress p, lengths as
    shares:

        v = value if begin <= p < end else outside

    A window that ends with training includes the end, p = 1.

    Args:
        value: The value from `begin` up to, but not including, `end`.
        outside: The value before and after the window.
        begin: Where the window begins.
        end: Where the window ends, counted from the beginning of training.

    Reference:
        Liu et al., Dropout reduces underfitting, 2023.
    """
    opens, closes = share_of_training(begin, horizon, "begin"), share_of_training(end, horizon, "end")
    if closes <= opens + ROUNDING:
        raise UsageError(
            f"end must come after begin, got a window from {Duration.parse(begin)} to {Duration.parse(end)}"
        )
    after = [Phase(1.0, outside, outside)] if closes < 1 - ROUNDING else []
    return Schedule(follow([Phase(opens, outside, outside), Phase(closes, value, value), *after]))


@register_schedule("nesterov-momentum", course="F11 I2")
def nesterov_momentum(
    horizon: Horizon | None = None, *, ceiling: Momentum = 0.99, interval: Length = "1%"
) -> Schedule:
    """A momentum that climbs from 1/2 towards 1 in ever smaller stairs, up to a ceiling.

    For Nesterov's method, whose guarantees require a momentum that rises like 1 - 3 / (t + 5). At
    progress p, the length as a share:

        v = min(1 - 2 ** (-1 - log2(floor(p / interval) + 1)), ceiling)

    The paper's interval is 250 updates, and it lowers the momentum to 0.9 for the last updates, which is
    left out here.

    Args:
        ceiling: The largest momentum.
        interval: The length of each stair.

    Reference:
        Sutskever et al., On the importance of initialization and momentum in deep learning, 2013, eq. 5.
    """
    count = _count_of_multiples(some_of_training(interval, horizon, "interval"))
    return Schedule(lambda progress: min(1 - 0.5 / (count(progress) + 1), ceiling))


def _count_of_multiples(distance: float) -> Callable[[float], int]:
    """The number of whole distances that fit into the progress."""
    return lambda progress: math.floor((progress + ROUNDING) / distance)


def _count_of_milestones(horizon: Horizon | None, milestones: list[Length]) -> Callable[[float], int]:
    """The number of milestones at or before the progress, after a check that they are in order."""
    if not milestones:
        raise UsageError("milestones must name at least one; for a value that never drops, use constant")
    places = moments_in_order(milestones, horizon, "milestones")
    if places[0] <= ROUNDING:
        raise UsageError("milestones must come after the beginning of training, got 0%; lower start instead")
    return lambda progress: bisect_right(places, progress + ROUNDING)
