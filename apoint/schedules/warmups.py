"""Warm-up, then decay: the family of schedules that most networks are trained with today.

The warm-up is a straight line from `start` at p = 0 to `peak` at p = `warmup`. Update k of T is at k / T,
so with `start` 0 the very first update has value 0, as in PyTorch's `LambdaLR` with k / warm-up steps.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from apoint.errors import UsageError
from apoint.schedules.base import (
    ROUNDING,
    Length,
    Schedule,
    register_schedule,
    share_of_training,
)
from apoint.schedules.phases import Phase, Shape, follow, half_cosine, square_root, straight
from apoint.settings import Real
from apoint.units import Horizon

_SHAPES: dict[str, Shape] = {"linear": straight, "cosine": half_cosine, "one-minus-sqrt": square_root}


@register_schedule("cosine", course="F8 F9 F10")
def cosine(
    horizon: Horizon | None = None,
    *,
    peak: Real = 1.0,
    floor: Real = 0.0,
    start: Real = 0.0,
    warmup: Length = "0%",
    end: Length = "100%",
    stretch: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0,
) -> Schedule:
    """Warm-up, then half a cosine from the peak to the floor.

    The usual choice when the length of training is known in advance. At progress p, lengths as shares:

        x = min((p - warmup) / (stretch * end - warmup), 1)
        decayed = floor + (peak - floor) * (1 + cos(pi * x)) / 2
        v = start + (peak - start) * p / warmup if p < warmup else decayed

    Hoffmann et al. find that a cosine as long as training, down to a tenth of its peak, does best;
    `stretch` above 1 gives the longer ones that they compare with, which the end of training cuts off.
    PyTorch's `CosineAnnealingLR` is the same without the warm-up, and rises again after its end.

    Args:
        peak: The value at the end of the warm-up.
        floor: The value at the end of the decay, and after it.
        start: The value at the beginning of the warm-up.
        warmup: The length of the warm-up.
        end: Where the decay ends, counted from the beginning of training.
        stretch: A factor on `end`, the end of the decay; above 1 the decay may be unfinished.

    Reference:
        Loshchilov and Hutter, SGDR: Stochastic gradient descent with warm restarts, 2017, eq. 5;
        Hoffmann et al., Training compute-optimal large language models, 2022, appendix B.
    """
    rise = _warm_up(horizon, start, peak, floor, warmup)
    stop = _end_of_decay(horizon, rise.end, end, stretch)
    return Schedule(follow([rise, Phase(stop, peak, floor, half_cosine)]))


@register_schedule("warmup-linear", course="F8 F10")
def warmup_linear(
    horizon: Horizon | None = None,
    *,
    peak: Real = 1.0,
    floor: Real = 0.0,
    start: Real = 0.0,
    warmup: Length = "0%",
    end: Length = "100%",
) -> Schedule:
    """Warm-up, then a straight line from the peak to the floor.

    Common for fine-tuning a pre-trained transformer. At progress p, lengths as shares:

        x = min((p - warmup) / (end - warmup), 1)
        decayed = peak + (floor - peak) * x
        v = start + (peak - start) * p / warmup if p < warmup else decayed

    PyTorch has it as a `SequentialLR` of two `LinearLR`, the first of which cannot start at 0.

    Args:
        peak: The value at the end of the warm-up.
        floor: The value at the end of the decay, and after it.
        start: The value at the beginning of the warm-up.
        warmup: The length of the warm-up.
        end: Where the decay ends, counted from the beginning of training.

    Reference:
        Goyal et al., Accurate, large minibatch SGD, 2017, for the warm-up;
        Devlin et al., BERT, 2019, appendix A.2, for the whole.
    """
    rise = _warm_up(horizon, start, peak, floor, warmup)
    stop = _end_of_decay(horizon, rise.end, end)
    return Schedule(follow([rise, Phase(stop, peak, floor)]))


@register_schedule("trapezoidal", course="F8 F10 I10")
def trapezoidal(
    horizon: Horizon | None = None,
    *,
    peak: Real = 1.0,
    floor: Real = 0.0,
    start: Real = 0.0,
    warmup: Length = "0%",
    decay: Length = "20%",
    shape: Literal["linear", "cosine", "one-minus-sqrt"] = "linear",
) -> Schedule:
    """Warm-up, a long stay at the peak, then a decay at the end of training.

    Also called warmup-stable-decay. Unlike a cosine, the stable part can be extended without making the
    training so far wrong. At progress p, lengths as shares:

        x = max((p - (1 - decay)) / decay, 0) if decay > 0 else 0
        bent = (1 - cos(pi * x)) / 2 if shape == 'cosine' else sqrt(x)
        way = x if shape == 'linear' else bent
        v = start + (peak - start) * p / warmup if p < warmup else peak + (floor - peak) * way

    PyTorch has no such scheduler; a `SequentialLR` of three makes one.

    Args:
        peak: The value from the end of the warm-up to the beginning of the decay.
        floor: The value at the end of training.
        start: The value at the beginning of the warm-up.
        warmup: The length of the warm-up.
        decay: The length of the decay, which ends with training.
        shape: The decay's shape: a line, half a cosine, or 1 - sqrt(x), which is steep at first.

    Reference:
        Xing et al., A walk with SGD, 2018; Hägele et al., Scaling laws and compute-optimal training beyond
        fixed training durations, 2024, for the shape one-minus-sqrt.
    """
    rise = _warm_up(horizon, start, peak, floor, warmup)
    length = share_of_training(decay, horizon, "decay")
    if rise.end + length > 1 + ROUNDING:
        raise UsageError(
            f"warmup of {_percent(rise.end)} and decay of {_percent(length)} are together longer than "
            f"training; shorten one of them"
        )
    begin = max(1 - length, rise.end)
    fall = [Phase(1.0, peak, floor, _SHAPES[shape])] if length > 0 else []
    return Schedule(follow([rise, Phase(begin, peak, peak), *fall]))


def _warm_up(horizon: Horizon | None, start: float, peak: float, floor: float, warmup: Length) -> Phase:
    """The rise from start to peak, after a check that the three values are in order."""
    if floor > peak:
        raise UsageError(f"floor must be at most peak, got floor {floor} and peak {peak}")
    length = share_of_training(warmup, horizon, "warmup")
    if length > 0 and start > peak:
        raise UsageError(f"start must be at most peak, got start {start} and peak {peak}")
    return Phase(length, start, peak)


def _end_of_decay(horizon: Horizon | None, warmup: float, end: Length, stretch: float = 1.0) -> float:
    stop = share_of_training(end, horizon, "end") * stretch
    if stop <= warmup + ROUNDING:
        raise UsageError(
            f"end must come after the warm-up, got an end of the decay at {_percent(stop)} and a warmup of "
            f"{_percent(warmup)}; the decay needs room in between"
        )
    return stop


def _percent(share: float) -> str:
    return f"{share * 100:.6g}%"
