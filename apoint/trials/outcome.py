"""What a replica gave to a comparison: its one number, how it ended, and where its record is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from apoint.engine.fleet import Ended
from apoint.errors import DivergedError
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


def refuse_failing(first_seed: int, states: Sequence[str], reasons: Sequence[str]) -> None:
    """Refuse a baseline that mostly fails: nothing can be said of how much its seeds differ."""
    failed = [place for place, state in enumerate(states) if state != "finished"]
    if states and 2 * len(failed) >= len(states):
        raise DivergedError(
            f"the baseline failed in {len(failed)} of its first {len(states)} seeds (seed "
            f"{first_seed + failed[0]}: {reasons[failed[0]]}); fix the baseline first, or say with --margin "
            "which difference matters and go on all the same"
        )
