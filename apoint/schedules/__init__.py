"""Schedules: pure functions of progress, for the learning rate or any other number.

A schedule maps progress p in [0, 1], the share of training that is done, to a value; update number k of
T, counted from 0, is at p = k / T. It has no state, so it can be evaluated in any order, plotted before
training, and resumed at no cost.

    >>> from apoint.schedules import cosine
    >>> rate = cosine(peak=1.0, warmup=0.05, floor=0.1)
    >>> rate(0.0), rate(0.05), rate(1.0)
    (0.0, 1.0, 0.1)

Lengths are shares of training (`0.05`, `"5%"`) or have a unit (`"500 steps"`, `"2 epochs"`); the latter
need the `horizon`, which the engine or a direct call passes first. Values such as `peak`, `floor` and
`start` are absolute, all in the same unit. Impossible settings are rejected, never shortened to fit.
"""

from __future__ import annotations

from apoint.schedules.base import Schedule, register_schedule
from apoint.schedules.cycles import cosine_restarts, one_cycle, triangular
from apoint.schedules.roots import inverse_root, noam
from apoint.schedules.slopes import exponential, linear, piecewise
from apoint.schedules.stairs import constant, nesterov_momentum, step, window
from apoint.schedules.warmups import cosine, trapezoidal, warmup_linear

__all__ = [
    "Schedule",
    "constant",
    "cosine",
    "cosine_restarts",
    "exponential",
    "inverse_root",
    "linear",
    "nesterov_momentum",
    "noam",
    "one_cycle",
    "piecewise",
    "register_schedule",
    "step",
    "trapezoidal",
    "triangular",
    "warmup_linear",
    "window",
]
