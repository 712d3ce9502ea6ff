"""F6 and F7: triangles, and cosines with warm restarts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_most, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.schedules import cosine_restarts, triangular

STEPS = 800
Scheduler = torch.optim.lr_scheduler.LRScheduler
# Progress is k/T in float64, and cycles turn at whole steps: what is left is rounding, relative to the peak.
ROUNDING = 1e-9


def by_torch(make: Callable[[torch.optim.Optimizer], Scheduler], steps: int, base: float = 1.0) -> np.ndarray:
    """The rates that a scheduler of PyTorch gives an optimiser."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base, momentum=0.9)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return np.array(rates)


@claim(
    "F6",
    "Triangular cycles, with decaying bounds too",
    kind="identity",
    statement=r"""
    The triangular schedule rises in a straight line from a lower to an upper bound over half a cycle and
    falls back over the other half; the distance of the bounds may be halved after each cycle, or shrink by a
    factor with every step.
    """,
    refuted_by="a step at which the schedule differs from PyTorch's CyclicLR in one of its three modes",
    seconds={"quick": 1, "standard": 1},
    planted={"factor": 1.05},
    details=r"""
    Four cycles of 200 steps are laid over `CyclicLR` in its modes triangular, triangular2 and exp_range, and
    over Smith's formula $\eta_{\min}+(\eta_{\max}-\eta_{\min})\max(0,1-x)$ with
    $x=|t/s-2\lfloor 1+t/2s\rfloor+1|$ for half a cycle of $s$ steps.
    """,
    references=("Smith (2017), Cyclical learning rates for training neural networks, section 3",),
)
def triangles(run: Running, factor: float = 1.0) -> Evidence:
    """Three modes against PyTorch and Smith's formula, whose upper bound `factor` multiplies."""
    low, high, half, gamma = 0.001, 0.006, 100, 0.995
    modes = {
        "triangular": ("none", None),
        "triangular2": ("halving", None),
        "exp_range": ("exponential", gamma ** (2 * half)),
    }
    numbers, lines = [], []
    for mode, (decay, shrink) in modes.items():
        settings: dict[str, Any] = {
            "low": low,
            "high": high,
            "cycle": 2 * half / STEPS,
            "decay": decay,
            "gamma": shrink,
        }
        ours = np.array(triangular(**settings).values(STEPS))
        theirs = by_torch(_cyclic(low, factor * high, half, mode, gamma), STEPS, low)
        numbers.append(
            at_most(f"{mode}: largest difference", float(np.abs(ours - theirs).max()), ROUNDING * high)
        )
        lines.append(Series(mode, list(range(0, STEPS, 4)), ours[::4].tolist()))
        if mode == "triangular":
            t = np.arange(STEPS)
            x = np.abs(t / half - 2 * np.floor(1 + t / (2 * half)) + 1)
            smith = low + (factor * high - low) * np.maximum(0, 1 - x)
            numbers.append(
                at_most(
                    "Smith's formula: largest difference", float(np.abs(ours - smith).max()), ROUNDING * high
                )
            )
    panel = Panel("Four cycles", "step (count)", "learning rate (no unit)", lines)
    return Evidence(numbers, pictures=[Picture("The three modes.", [panel], "llm 1.2, triangular schedule")])


def _cyclic(
    low: float, high: float, half: int, mode: Any, gamma: float
) -> Callable[[torch.optim.Optimizer], Scheduler]:
    kind = torch.optim.lr_scheduler.CyclicLR
    return lambda optimizer: kind(
        optimizer, low, high, step_size_up=half, mode=mode, gamma=gamma, cycle_momentum=False
    )


@claim(
    "F7",
    "Cosine with warm restarts",
    kind="identity",
    statement=r"""
    In cycle $i$, after $T_{\text{cur}}$ of its $T_i$ steps, the rate is
    $\eta^i_{\min}+\frac{1}{2}(\eta^i_{\max}-\eta^i_{\min})\left(1+\cos\frac{\pi T_{\text{cur}}}{T_i}\right)$;
    each cycle may have bounds and a length of its own.
    """,
    refuted_by="a step at which the schedule differs from PyTorch's, or, with bounds of each cycle, from the "
    "formula written out",
    seconds={"quick": 1, "standard": 1},
    planted={"factor": 1.05},
    details=r"""
    Cycles of equal length and cycles that double are laid over `CosineAnnealingWarmRestarts`; listed lengths
    with bounds of their own, which PyTorch does not have, over a loop that counts $T_{\text{cur}}$.
    """,
    references=("Loshchilov and Hutter (2017), SGDR: stochastic gradient descent with warm restarts, eq. 5",),
)
def warm_restarts(run: Running, factor: float = 1.0) -> Evidence:
    """Restarts against PyTorch and the formula, step by step; `factor` multiplies what is expected."""
    first = STEPS // 8
    plain = np.array(cosine_restarts(cycle=1 / 8, floor=0.01).values(STEPS))
    growing = np.array(cosine_restarts(cycle=1 / 8, floor=0.01, multiplier=2.0).values(STEPS))
    lengths, peaks, floors = (100, 300, 400), (1.0, 0.6, 0.3), (0.1, 0.05, 0.0)
    listed = np.array(
        cosine_restarts(cycle=[n / STEPS for n in lengths], peak=list(peaks), floor=list(floors)).values(
            STEPS
        )
    )
    numbers = []
    for name, ours, growth in (("equal", plain, 1), ("doubling", growing, 2)):
        theirs = factor * by_torch(_restarts(first, growth), STEPS)
        numbers.append(
            at_most(f"{name} cycles: largest difference", float(np.abs(ours - theirs).max()), ROUNDING)
        )
    by_hand = [
        floor + (peak - floor) * (1 + math.cos(math.pi * current / length)) / 2
        for length, peak, floor in zip(lengths, peaks, floors, strict=True)
        for current in range(length)
    ]
    difference = float(np.abs(listed - factor * np.array(by_hand)).max())
    numbers.append(at_most("bounds of each cycle: largest difference", difference, ROUNDING))
    jumps = int((np.diff(growing) > 0.5).sum())
    numbers.append(same("restarts within 8 first lengths that double", jumps, 3))
    numbers.append(
        close("halfway through a cycle", float(plain[first // 2]), factor * (1 + 0.01) / 2, 0, ROUNDING)
    )
    lines = [
        Series(name, list(range(0, STEPS, 4)), values[::4].tolist())
        for name, values in (("equal", plain), ("doubling", growing), ("listed", listed))
    ]
    panel = Panel("Warm restarts", "step (count)", "rate over its peak (no unit)", lines)
    return Evidence(
        numbers, pictures=[Picture("Three ways to set cycles.", [panel], "llm 1.2, cosine schedule")]
    )


def _restarts(first: int, factor: int) -> Callable[[torch.optim.Optimizer], Scheduler]:
    kind = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts
    return lambda optimizer: kind(optimizer, first, factor, eta_min=0.01)
