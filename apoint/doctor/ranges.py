"""What the doctor has learned from a clinic of training runs: healthy ranges, and how far to trust each code.

`python -m studies.clinic.calibrate` writes `healthy.json` from a suite of healthy and of broken training
runs; nothing in it is typed by hand.
"""

from __future__ import annotations

import functools
import json
import math
from importlib import resources
from typing import Any

FEWEST_RAISED = 5  # below this a share says nothing


@functools.cache
def table() -> dict[str, dict[str, Any]]:
    """Every calibrated sign with its healthy range and where it comes from."""
    signs: dict[str, dict[str, Any]] = _learnt()["signs"]
    return signs


@functools.cache
def _learnt() -> dict[str, Any]:
    text = resources.files("apoint.doctor").joinpath("healthy.json").read_text()
    learnt: dict[str, Any] = json.loads(text)
    return learnt


def trust(code: str) -> float | None:
    """How often a code was right when it was raised in the clinic; None if it was raised too rarely to say.

    One success and one failure are added, so that a code that was always right is not taken as certain.
    """
    row = _learnt().get("raised", {}).get(code, {"raised": 0, "right": 0})
    return (row["right"] + 1) / (row["raised"] + 2) if row["raised"] >= FEWEST_RAISED else None


# The suite has many networks and few datasets, so its ranges for data and habits are too narrow. Calibration
# never makes the ranges below narrower, only wider.
AT_LEAST: dict[str, tuple[float | None, float | None]] = {
    "input-scale": (0.1, 5.0),
    "constant-features": (None, 0.25),
    "class-ratio": (None, 10.0),
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
    "generalisation-gap": (None, 0.3),
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
    """Both bounds; None where there is none."""
    ends = low(sign), high(sign)
    return (ends[0] if math.isfinite(ends[0]) else None), (ends[1] if math.isfinite(ends[1]) else None)


def too_high(sign: str, value: float | None) -> bool:
    """Whether a value is above the healthy range; False for None and NaN."""
    return value is not None and value > high(sign)


def too_low(sign: str, value: float | None) -> bool:
    """Whether a value is below the healthy range; False for None and NaN."""
    return value is not None and value < low(sign)
