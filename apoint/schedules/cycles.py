"""Cycles: up and down once or many times, or down in cosines with restarts."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from apoint.errors import UsageError
from apoint.schedules.base import (
    ROUNDING,
    Length,
    Schedule,
    ShrinkFactor,
    register_schedule,
    share_of_training,
    some_of_training,
)
from apoint.schedules.phases import Phase, blend, follow, half_cosine, straight
from apoint.settings import Count, Positive, Real
from apoint.units import Duration, Horizon

_MOST_CYCLES = 10_000


def _read_per_cycle(raw: Any) -> Any:
    """A finite number, or a list of them; parsed here so that the error is one sentence."""
    try:
        numbers = [float(item) for item in raw] if isinstance(raw, list | tuple) else float(raw)
    except (TypeError, ValueError):
        numbers = math.nan
    if not all(map(math.isfinite, numbers if isinstance(numbers, list) else [numbers])):
        raise ValueError(f"expected a finite number, or a list with one for each cycle, got {raw!r}")
    return numbers


PerCycle = Annotated[float | list[float], BeforeValidator(_read_per_cycle)]
"""One number for all cycles, or a list with one for each."""


@register_schedule("triangular", course="F6")
def triangular(
    horizon: Horizon | None = None,
    *,
    low: Real = 0.0,
    high: Real = 1.0,
    cycle: Length | None = None,
    num_cycles: Count | None = None,
    rise: Annotated[float, Field(gt=0, lt=1)] = 0.5,
    decay: Literal["none", "halving", "exponential"] = "none",
    gamma: ShrinkFactor | None = None,
) -> Schedule:
    """Cycles of a linear rise and a linear fall between two bounds; the upper bound may decay.

    Sweeps a whole range of learning rates repeatedly, instead of searching for one. At progress
    p, the cycle as a share:

        i = floor(p / cycle)
        x = p / cycle - i
        height = x / rise if x <= rise else (1 - x) / (1 - rise)
        scale = 1 if decay == 'none' else 2 ** -i if decay == 'halving' else gamma ** (p / cycle)
        v = low + (high - low) * height * scale

    PyTorch's `CyclicLR`: `halving` is its mode triangular2, and `exponential` its mode exp_range, whose
    gamma applies once per step; here it applies once per cycle.

    Args:
        low: The lower bound, where each cycle begins and ends.
        high: The upper bound; if it decays, that of the first cycle.
        cycle: The length of a cycle; the last one may be cut off by the end of training.
        num_cycles: The number of cycles in training, instead of `cycle`; 4 if neither is given.
        rise: The share of each cycle in which the value rises.
        decay: How the distance between the bounds shrinks: not at all, by half after each cycle, or smoothly.
        gamma: The factor on the distance over one cycle, if the decay is exponential.

    Reference:
        Smith, Cyclical learning rates for training neural networks, 2017, section 3.
    """
    if low > high:
        raise UsageError(f"low must be at most high, got low {low} and high {high}")
    if cycle is not None and num_cycles is not None:
        raise UsageError("cycle and num_cycles exclude each other; leave one of them out")
    if (gamma is None) == (decay == "exponential"):
        raise UsageError(f"gamma belongs to the decay 'exponential', got gamma {gamma} and decay {decay!r}")
    length = 1 / (num_cycles or 4) if cycle is None else some_of_training(cycle, horizon, "cycle")

    def curve(progress: float) -> float:
        index = math.floor((progress + ROUNDING) / length)
        x = max(progress / length - index, 0.0)
        height = x / rise if x <= rise else (1 - x) / (1 - rise)
        scales = {"none": 1.0, "halving": 2.0**-index, "exponential": (gamma or 1.0) ** (progress / length)}
        return blend(low, high, height * scales[decay])

    return Schedule(curve)


@register_schedule("cosine-restarts", course="F7")
def cosine_restarts(
    horizon: Horizon | None = None,
    *,
    peak: PerCycle = 1.0,
    floor: PerCycle = 0.0,
    cycle: Length | list[Length] = "25%",
    multiplier: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0,
    peak_decay: ShrinkFactor = 1.0,
) -> Schedule:
    """Half cosines from a peak to a floor, one after the other, each restarting at its peak.

    Each cycle ends with a model worth keeping. At progress p in cycle i, which begins at `begin` and has
    the length `length`, both shares of training, and its own bounds:

        x = (p - begin) / length
        v = floor_i + (peak_i - floor_i) * (1 + cos(pi * x)) / 2

    Length, peak and floor of the cycles follow a rule, length · multiplier^i and peak · peak_decay^i, or
    are listed one by one. Under the rule the end of training may cut the last cycle off; after the last
    listed cycle the value stays at its floor. The end of training, p = 1, is the end of a cycle that ends
    there, not another restart. PyTorch's `CosineAnnealingWarmRestarts` has neither lists nor decay.

    Args:
        peak: Where cycles begin: one number for all, or a list with one for each cycle.
        floor: Where cycles end: one number for all, or a list with one for each cycle.
        cycle: The length of the first cycle, or a list with the length of each.
        multiplier: The factor on the length from one cycle to the next.
        peak_decay: The factor on the peak from one cycle to the next.

    Reference:
        Loshchilov and Hutter, SGDR: Stochastic gradient descent with warm restarts, 2017, eq. 5.
    """
    if isinstance(cycle, list):
        ends = _listed_ends(horizon, cycle, multiplier)
    else:
        ends = _growing_ends(some_of_training(cycle, horizon, "cycle"), multiplier)
    if isinstance(peak, list) and peak_decay != 1:
        raise UsageError(
            f"peak_decay has no meaning for peaks that are listed, got {peak_decay}; leave it out"
        )
    peaks = [height * peak_decay**i for i, height in enumerate(_for_each_cycle("peak", peak, len(ends)))]
    floors = _for_each_cycle("floor", floor, len(ends))
    for i, (high, low) in enumerate(zip(peaks, floors, strict=True), start=1):
        if low > high:
            raise UsageError(f"floor must be at most peak, got floor {low:g} and peak {high:g} in cycle {i}")
    cycles = zip(ends, peaks, floors, strict=True)
    return Schedule(follow([Phase(end, high, low, half_cosine) for end, high, low in cycles]))


@register_schedule("one-cycle", course="F6 F11")
def one_cycle(
    horizon: Horizon | None = None,
    *,
    peak: Real = 1.0,
    initial_divisor: Positive = 25.0,
    final_divisor: Positive = 10_000.0,
    rise: Length = "30%",
    anneal: Literal["cosine", "linear"] = "cosine",
    num_phases: Literal[2, 3] = 2,
) -> Schedule:
    """One cycle over all of training: up to a high peak, then down far below the start.

    For fast training at rates too high for the whole run. With x the share of the current phase that is
    done, and `first` and `last` the values at its two ends:

        way = x if anneal == 'linear' else (1 - cos(pi * x)) / 2
        v = first + (last - first) * way

    Two phases: from initial = peak / initial_divisor up to the peak over `rise`, then down to
    initial / final_divisor. Three: up, down to initial over another `rise`, then on to the last value.
    PyTorch's `OneCycleLR` ends its phases one update earlier, so that the last update has the last value;
    here, as in every schedule, that value belongs to the end of training, p = 1. For the momentum of a
    cycle, which dips where the rate peaks, use an `initial_divisor` below 1 and a `final_divisor` of 1.

    Args:
        peak: The value at the top of the cycle.
        initial_divisor: The ratio of the peak to the initial value.
        final_divisor: The ratio of the initial value to the final value.
        rise: The length of the rise.
        anneal: The shape of the phases: half a cosine or a line.
        num_phases: 2, or 3 for a fall as long as the rise before the last descent.

    Reference:
        Smith and Topin, Super-convergence: very fast training of neural networks using large learning
        rates, 2019.
    """
    length = share_of_training(rise, horizon, "rise")
    if (num_phases - 1) * length > 1 - ROUNDING:
        raise UsageError(
            f"rise must leave room for the last descent, got {Duration.parse(rise)} in a cycle of "
            f"{num_phases} phases; at most {100 // (num_phases - 1)}% of training is there"
        )
    initial, shape = peak / initial_divisor, straight if anneal == "linear" else half_cosine
    up, down = Phase(length, initial, peak, shape), Phase(2 * length, peak, initial, shape)
    middle = [up, down] if num_phases == 3 else [up]
    return Schedule(follow([*middle, Phase(1.0, middle[-1].last, initial / final_divisor, shape)]))


def _growing_ends(first: float, multiplier: float) -> list[float]:
    """The ends of cycles with lengths first · multiplier^i, up to the one in which training ends."""
    ends: list[float] = []
    for num_firsts in accumulate(multiplier**i for i in range(_MOST_CYCLES)):
        ends.append(first * num_firsts)
        if ends[-1] >= 1 - ROUNDING:
            return ends
    raise UsageError(f"cycle makes more than {_MOST_CYCLES} cycles in training; lengthen it")


def _listed_ends(horizon: Horizon | None, cycles: list[Length], multiplier: float) -> list[float]:
    """The ends of the listed cycles, after a check that they fit into training."""
    if multiplier != 1:
        raise UsageError(
            f"multiplier has no meaning for cycles that are listed, got {multiplier}; leave it out"
        )
    if not cycles:
        raise UsageError("cycle must list at least one cycle")
    ends = list(accumulate(some_of_training(each, horizon, f"cycle.{i}") for i, each in enumerate(cycles)))
    if ends[-1] > 1 + ROUNDING:
        raise UsageError(
            f"cycle lists lengths that sum to {ends[-1] * 100:.6g}% of training; they must fit into 100%"
        )
    return ends


def _for_each_cycle(what: str, values: float | list[float], num_cycles: int) -> list[float]:
    if not isinstance(values, list):
        return [values] * num_cycles
    if len(values) != num_cycles:
        raise UsageError(
            f"{what} must list one value for each cycle, got {len(values)} for {num_cycles} cycles"
        )
    return values
