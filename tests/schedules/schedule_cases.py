"""What each schedule is compared with: settings, a change of each setting, and a reference for them all.

A reference computes the whole trajectory from the same settings without our code: by PyTorch's schedulers,
by numpy, or by a closed form over whole steps. The contract test asks for one for every registered schedule,
compares at the base settings and after each single change, and asks that each change has an effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)

from apoint.units import Duration, Horizon

TOTAL = 60
HORIZON = Horizon(total_steps=TOTAL, steps_per_epoch=12)

Settings = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A schedule's settings, other values of each, and the trajectory they should give."""

    base: Settings
    changes: Settings
    reference: Callable[..., Sequence[float]]

    def variants(self) -> Iterable[tuple[str, Settings]]:
        """The base, and the base with each setting changed alone, under a name."""
        yield "base", self.base
        for name, value in self.changes.items():
            # A change that needs company, such as decay and gamma, is a mapping.
            change = value if isinstance(value, dict) else {name: value}
            yield name, {key: entry for key, entry in (self.base | change).items() if entry is not None}


def torch_values(make: Callable[[Optimizer], LRScheduler], lr: float, num_steps: int = TOTAL) -> list[float]:
    """The learning rates that a PyTorch scheduler gives to the updates 0, 1, …"""
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = make(optimizer)
    values = []
    for _ in range(num_steps):
        values.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return values


def steps(length: str) -> int:
    """`'6 steps'` as 6."""
    return int(length.split()[0])


def _after_warmup(
    peak: float, start: float, warmup: str, rest: Sequence[tuple[int, Callable[[Optimizer], LRScheduler]]]
) -> list[float]:
    """PyTorch's sequence of a linear warm-up and further schedulers, each with the step it begins at."""

    def make(optimizer: Optimizer) -> LRScheduler:
        rise = LinearLR(optimizer, start_factor=start / peak, total_iters=steps(warmup))
        return SequentialLR(optimizer, [rise, *(made(optimizer) for _, made in rest)], [at for at, _ in rest])

    return torch_values(make, lr=peak)


def _hold(value: float, peak: float) -> Callable[[Optimizer], LRScheduler]:
    return lambda optimizer: ConstantLR(optimizer, factor=value / peak, total_iters=10 * TOTAL)


def _cosine(
    *, peak: float, floor: float, start: float, warmup: str, end: str, stretch: float
) -> Sequence[float]:
    rise, stop = steps(warmup), round(steps(end) * stretch)
    fall = [(rise, lambda optimizer: CosineAnnealingLR(optimizer, T_max=stop - rise, eta_min=floor))]
    rest = [(stop, _hold(floor, peak))] if stop < TOTAL else []
    return _after_warmup(peak, start, warmup, [*fall, *rest])


def _warmup_linear(*, peak: float, floor: float, start: float, warmup: str, end: str) -> Sequence[float]:
    rise, stop = steps(warmup), steps(end)
    fall = lambda optimizer: LinearLR(optimizer, 1.0, floor / peak, total_iters=stop - rise)  # noqa: E731
    return _after_warmup(peak, start, warmup, [(rise, fall)])


def _trapezoidal(
    *, peak: float, floor: float, start: float, warmup: str, decay: str, shape: str
) -> Sequence[float]:
    rise, fall = steps(warmup), steps(decay)
    falls: dict[str, Callable[[Optimizer], LRScheduler]] = {
        "linear": lambda optimizer: LinearLR(optimizer, 1.0, floor / peak, total_iters=fall),
        "cosine": lambda optimizer: CosineAnnealingLR(optimizer, T_max=fall, eta_min=floor),
        "one-minus-sqrt": lambda optimizer: LambdaLR(
            optimizer, lambda k: (floor + (peak - floor) * (1 - (k / fall) ** 0.5)) / peak
        ),
    }
    return _after_warmup(peak, start, warmup, [(rise, _hold(peak, peak)), (TOTAL - fall, falls[shape])])


def _inverse_root(
    *, peak: float, start: float, warmup: str, power: float, timescale: str | None = None
) -> Sequence[float]:
    rise = steps(warmup)
    scale = steps(timescale or warmup)

    def factor(k: int) -> float:
        if k < rise:
            return (start + (peak - start) * k / rise) / peak
        return float((scale / (k - rise + scale)) ** power)

    return torch_values(lambda optimizer: LambdaLR(optimizer, factor), lr=peak)


def _noam(*, model_dim: int, warmup: str, factor: float) -> Sequence[float]:
    tau = steps(warmup)
    rate = lambda k: factor * model_dim**-0.5 * min((k + 1) ** -0.5, (k + 1) * tau**-1.5)  # noqa: E731
    return torch_values(lambda optimizer: LambdaLR(optimizer, rate), lr=1.0)


def _linear(*, start: float, end: float, length: str) -> Sequence[float]:
    top = max(start, end)
    make = lambda optimizer: LinearLR(optimizer, start / top, end / top, total_iters=steps(length))  # noqa: E731
    return torch_values(make, lr=top)


def _exponential(*, start: float, factor: float, every: str) -> Sequence[float]:
    return torch_values(
        lambda optimizer: ExponentialLR(optimizer, gamma=factor ** (1 / steps(every))), lr=start
    )


def _piecewise(*, points: list[tuple[str, float]]) -> Sequence[float]:
    places, values = [steps(place) for place, _ in points], [value for _, value in points]
    return [float(value) for value in np.interp(np.arange(TOTAL), places, values)]


def _constant(*, value: float) -> Sequence[float]:
    return torch_values(lambda optimizer: ConstantLR(optimizer, factor=1.0), lr=value)


def _step(
    *, start: float, factor: float, milestones: list[str] | None = None, every: str | None = None
) -> Sequence[float]:
    if every is not None:
        return torch_values(lambda optimizer: StepLR(optimizer, steps(every), gamma=factor), lr=start)
    at = [steps(place) for place in milestones or []]
    return torch_values(lambda optimizer: MultiStepLR(optimizer, at, gamma=factor), lr=start)


def _window(*, value: float, outside: float, begin: str, end: str) -> Sequence[float]:
    return [value if steps(begin) <= k < steps(end) else outside for k in range(TOTAL)]


def _nesterov_momentum(*, ceiling: float, interval: str) -> Sequence[float]:
    return [min(1 - 2 ** (-1 - math.log2(k // steps(interval) + 1)), ceiling) for k in range(TOTAL)]


def _triangular(
    *,
    low: float,
    high: float,
    rise: float,
    decay: str,
    cycle: str | None = None,
    num_cycles: int | None = None,
    gamma: float | None = None,
) -> Sequence[float]:
    length = steps(cycle) if cycle else TOTAL // (num_cycles or 4)
    up = round(rise * length)

    def make(optimizer: Optimizer) -> LRScheduler:
        return CyclicLR(
            optimizer,
            base_lr=low,
            max_lr=high,
            step_size_up=up,
            step_size_down=length - up,
            mode={"none": "triangular", "halving": "triangular2", "exponential": "exp_range"}[decay],
            gamma=(gamma or 1.0) ** (1 / length),
            cycle_momentum=False,
        )

    return torch_values(make, lr=low)


def _cosine_restarts(
    *,
    peak: float | list[float],
    floor: float | list[float],
    cycle: str | list[str],
    multiplier: float = 1.0,
    peak_decay: float = 1.0,
) -> Sequence[float]:
    """One PyTorch cosine for each cycle, one after the other."""
    values: list[float] = []
    for i in range(TOTAL):
        listed = isinstance(cycle, list)
        length = steps(cycle[i]) if listed else round(steps(cycle) * multiplier**i)
        high = peak[i] if isinstance(peak, list) else peak * peak_decay**i
        low = floor[i] if isinstance(floor, list) else floor

        def make(optimizer: Optimizer, length: int = length, low: float = low) -> LRScheduler:
            return CosineAnnealingLR(optimizer, T_max=length, eta_min=low)

        values += torch_values(make, lr=high, num_steps=length)
        if len(values) >= TOTAL:
            return values[:TOTAL]
        if listed and i + 1 == len(cycle):
            return values + [low] * (TOTAL - len(values))
    raise AssertionError("training is longer than all cycles")


def one_cycle_scheduler(
    *, peak: float, initial_divisor: float, final_divisor: float, rise: str, anneal: str, num_phases: int
) -> Callable[[Optimizer], OneCycleLR]:
    """PyTorch's cycle over one update more than training has: its last update is at our p = 1."""
    return lambda optimizer: OneCycleLR(
        optimizer,
        max_lr=peak,
        total_steps=TOTAL + 1,
        pct_start=(steps(rise) + 1) / (TOTAL + 1),
        anneal_strategy="cos" if anneal == "cosine" else "linear",
        cycle_momentum=False,
        div_factor=initial_divisor,
        final_div_factor=final_divisor,
        three_phase=num_phases == 3,
    )


def _one_cycle(**settings: Any) -> Sequence[float]:
    return torch_values(one_cycle_scheduler(**settings), lr=1.0)


CASES: dict[str, Case] = {
    "constant": Case({"value": 0.3}, {"value": 0.7}, _constant),
    "cosine": Case(
        {"peak": 0.8, "floor": 0.1, "start": 0.2, "warmup": "7 steps", "end": "60 steps", "stretch": 1.0},
        {"peak": 0.9, "floor": 0.05, "start": 0.3, "warmup": "12 steps", "end": "45 steps", "stretch": 1.5},
        _cosine,
    ),
    "cosine-restarts": Case(
        {"peak": 0.8, "floor": 0.1, "cycle": "7 steps", "multiplier": 2.0, "peak_decay": 0.9},
        {
            "peak": {"peak": [0.9, 0.4, 0.7, 0.6], "peak_decay": 1.0},
            "floor": [0.2, 0.1, 0.3, 0.05],
            "cycle": {"cycle": ["13 steps", "5 steps", "31 steps"], "multiplier": 1.0},
            "multiplier": 1.0,
            "peak_decay": 0.8,
        },
        _cosine_restarts,
    ),
    "exponential": Case(
        {"start": 0.9, "factor": 0.5, "every": "9 steps"},
        {"start": 0.4, "factor": 1.7, "every": "13 steps"},
        _exponential,
    ),
    "inverse-root": Case(
        {"peak": 0.8, "start": 0.2, "warmup": "11 steps", "power": 0.5},
        {"peak": 0.9, "start": 0.3, "warmup": "7 steps", "power": 1.0, "timescale": "29 steps"},
        _inverse_root,
    ),
    "linear": Case(
        {"start": 0.9, "end": 0.1, "length": "37 steps"},
        {"start": 0.05, "end": 0.3, "length": "60 steps"},
        _linear,
    ),
    "nesterov-momentum": Case(
        {"ceiling": 0.8, "interval": "7 steps"}, {"ceiling": 0.9, "interval": "9 steps"}, _nesterov_momentum
    ),
    "noam": Case(
        {"model_dim": 64, "warmup": "13 steps", "factor": 1.0},
        {"model_dim": 100, "warmup": "20 steps", "factor": 2.0},
        _noam,
    ),
    "one-cycle": Case(
        {
            "peak": 0.8,
            "initial_divisor": 20.0,
            "final_divisor": 50.0,
            "rise": "17 steps",
            "anneal": "cosine",
            "num_phases": 2,
        },
        {
            "peak": 0.9,
            "initial_divisor": 10.0,
            "final_divisor": 5.0,
            "rise": "23 steps",
            "anneal": "linear",
            "num_phases": 3,
        },
        _one_cycle,
    ),
    "piecewise": Case(
        {"points": [("5 steps", 0.1), ("13 steps", 0.9), ("14 steps", -0.2), ("41 steps", 0.5)]},
        {"points": [("0 steps", 0.4), ("60 steps", 0.9)]},
        _piecewise,
    ),
    "step": Case(
        {"start": 0.9, "factor": 0.3, "milestones": ["7 steps", "29 steps", "44 steps"]},
        {
            "start": 0.4,
            "factor": 0.5,
            "milestones": ["7 steps", "30 steps"],
            "every": {"milestones": None, "every": "7 steps"},
        },
        _step,
    ),
    "trapezoidal": Case(
        {
            "peak": 0.8,
            "floor": 0.1,
            "start": 0.2,
            "warmup": "7 steps",
            "decay": "19 steps",
            "shape": "linear",
        },
        {
            "peak": 0.9,
            "floor": 0.05,
            "start": 0.3,
            "warmup": "12 steps",
            "decay": "31 steps",
            "shape": "cosine",
            "another shape": {"shape": "one-minus-sqrt"},
        },
        _trapezoidal,
    ),
    "triangular": Case(
        {"low": 0.1, "high": 0.8, "cycle": "20 steps", "rise": 0.5, "decay": "none"},
        {
            "low": 0.2,
            "high": 0.9,
            "cycle": "14 steps",
            "num_cycles": {"cycle": None, "num_cycles": 6},
            "rise": 0.3,
            "decay": "halving",
            "gamma": {"decay": "exponential", "gamma": 0.6},
            "another gamma": {"decay": "exponential", "gamma": 0.7},
        },
        _triangular,
    ),
    "warmup-linear": Case(
        {"peak": 0.8, "floor": 0.1, "start": 0.2, "warmup": "7 steps", "end": "60 steps"},
        {"peak": 0.9, "floor": 0.05, "start": 0.3, "warmup": "12 steps", "end": "45 steps"},
        _warmup_linear,
    ),
    "window": Case(
        {"value": 0.8, "outside": 0.1, "begin": "7 steps", "end": "29 steps"},
        {"value": 0.5, "outside": 0.2, "begin": "8 steps", "end": "30 steps"},
        _window,
    ),
}


def every_variant() -> list[tuple[str, str, Settings]]:
    """(schedule, what is changed, settings) for all cases."""
    return [(name, change, settings) for name, case in CASES.items() for change, settings in case.variants()]


def with_lengths(settings: Settings, write: Callable[[int], Any]) -> Settings:
    """The same settings with each length in steps written in another way."""

    def rewritten(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(rewritten(item) for item in value)
        return write(steps(value)) if isinstance(value, str) and value.endswith(" steps") else value

    return {key: rewritten(value) for key, value in settings.items()}


def as_share(length: int) -> Duration:
    return Duration(length / TOTAL, "share")
