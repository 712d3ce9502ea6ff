"""The ranges in which signs lie for healthy trainings, as `healthy.json` has them.

The file is written by `python -m studies.clinic.calibrate` from a suite of healthy trainings; nothing in it
is
typed by hand.
"""

from __future__ import annotations

import functools
import json
import math
from importlib import resources
from typing import Any


@functools.cache
def table() -> dict[str, dict[str, Any]]:
    """Every calibrated sign with its healthy range and where it comes from."""
    text = resources.files("apoint.doctor").joinpath("healthy.json").read_text()
    signs: dict[str, dict[str, Any]] = json.loads(text)["signs"]
    return signs


# The suite has many networks and few datasets, so what it says of data and of habits is too narrow. These
# ranges are never made narrower by calibration, only wider.
AT_LEAST: dict[str, tuple[float | None, float | None]] = {
    "input-scale": (0.1, 5.0),
    "constant-features": (None, 0.25),
    "class-ratio": (None, 10.0),
    "neighbour-agreement": (4.0, None),
    "label-disagreement": (None, 0.12),
    "duplicates": (None, 0.05),
    "telling-feature": (None, 0.95),
    "initial-loss-ratio": (None, 2.0),
    "schedule-peak": (0.9, None),
    "schedule-alive": (0.4, None),
    "clipped-factor": (0.5, None),
    "norm-decay": (None, 0.1),
    "batch-norm-examples": (8.0, None),
    "saturated-share": (None, 0.4),
    "slower-advantage": (None, 0.1),
    "memorised-loss": (None, 0.5),
    "mode-gap": (None, 0.2),
    "generalisation-gap": (None, 0.4),
}


def low(sign: str) -> float:
    """The lowest healthy value of a sign."""
    bounds = (table()[sign]["lower"], AT_LEAST.get(sign, (None, None))[0])
    return min((float(bound) for bound in bounds if bound is not None), default=-math.inf)


def high(sign: str) -> float:
    """The highest healthy value of a sign."""
    bounds = (table()[sign]["upper"], AT_LEAST.get(sign, (None, None))[1])
    return max((float(bound) for bound in bounds if bound is not None), default=math.inf)


def healthy(sign: str) -> tuple[float | None, float | None]:
    """Both, None where there is no bound."""
    ends = low(sign), high(sign)
    return (ends[0] if math.isfinite(ends[0]) else None), (ends[1] if math.isfinite(ends[1]) else None)


def too_high(sign: str, value: float | None) -> bool:
    """Whether a value lies above the healthy range; what is not a number does not."""
    return value is not None and value > high(sign)


def too_low(sign: str, value: float | None) -> bool:
    """Whether a value lies below the healthy range; what is not a number does not."""
    return value is not None and value < low(sign)
