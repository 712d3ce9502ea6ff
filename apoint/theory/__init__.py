"""Closed-form mathematics of the course, without training; numpy, scipy and torch only.

One module per idea:

    signals        gaussian, backpropagation, propagation, stochastic_depth
    information    divergence, scores
    descent        convexity, regularity, descent, stochastic, adam, weight_decay
    dimension      balls, concentration, hull
    expression     approximation, expressivity, symmetry
    wide networks  ntk, linearise, overparametrisation, lazy, mean_field, teacher_student
    landscapes     paths

Modules load on first use: `apoint.theory.balls.volume(5)`.
"""

from __future__ import annotations

import importlib
from typing import Any

from apoint.theory.gaussian import backward_gain, expectation, gain, second_moment

MODULES = (
    "adam",
    "approximation",
    "backpropagation",
    "balls",
    "concentration",
    "convexity",
    "descent",
    "divergence",
    "expressivity",
    "gaussian",
    "hull",
    "lazy",
    "mean_field",
    "ntk",
    "overparametrisation",
    "paths",
    "propagation",
    "regularity",
    "scores",
    "stochastic",
    "stochastic_depth",
    "symmetry",
    "teacher_student",
    "weight_decay",
)

__all__ = ["backward_gain", "expectation", "gain", "linearise", "second_moment"]


def __getattr__(name: str) -> Any:
    if name == "linearise":  # the function; its module has the same name
        return importlib.import_module("apoint.theory.linearise").linearise
    if name in MODULES:
        return importlib.import_module(f"apoint.theory.{name}")
    raise AttributeError(f"module 'apoint.theory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *MODULES])
