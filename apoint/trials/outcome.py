"""What a replica gave to a comparison: its one number, how it ended, and where its record is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from apoint.engine.fleet import Ended
from apoint.store import Run


@dataclass(frozen=True)
class Outcome:
    """What a replica gave: its number, NaN if it diverged, and where its record is."""

    value: float
    state: str = "finished"
    reason: str = ""
    run: str = ""
    seconds: float = 0.0
    cached: bool = False


def outcome_of(ended: Ended, metric: str) -> Outcome:
    """The outcome of a replica that a fleet trained: the metric at its last step, as it is sealed."""
    value = Run(ended.folder).result(metric) if ended.state == "finished" else math.nan
    return Outcome(value, ended.state, ended.reason, ended.folder.name, ended.seconds, ended.cached)
