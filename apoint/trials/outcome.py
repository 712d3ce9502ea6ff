"""What a replica contributes to a comparison: its one number, how it ended, and where its record is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from apoint.engine.fleet import Ended
from apoint.errors import DivergedError
from apoint.store import Run


@dataclass(frozen=True)
class Outcome:
    """The result of a replica: its number, NaN if it diverged, and where its record is."""

    value: float
    state: str = "finished"
    reason: str = ""
    run: str = ""
    seconds: float = 0.0
    cached: bool = False


def outcome_of(ended: Ended, metric: str, last: int) -> Outcome:
    """The outcome of a replica that a fleet trained, as sealed.

    Args:
        ended: The replica.
        metric: The metric of its number, such as `test_accuracy`.
        last: The number is the mean of this many evaluations, up to the one at the last step.
    """
    value = Run(ended.folder).result(metric, last) if ended.state == "finished" else math.nan
    return Outcome(value, ended.state, ended.reason, ended.folder.name, ended.seconds, ended.cached)


def refuse_failing(first_seed: int, states: Sequence[str], reasons: Sequence[str]) -> None:
    """Reject a baseline that mostly fails: nothing can be said about how much its seeds differ."""
    failed = [place for place, state in enumerate(states) if state != "finished"]
    if states and 2 * len(failed) >= len(states):
        raise DivergedError(
            f"the baseline failed in {len(failed)} of its first {len(states)} seeds (seed "
            f"{first_seed + failed[0]}: {reasons[failed[0]]}); fix the baseline first, or say with --margin "
            "which difference matters and continue anyway"
        )


def resolution(metric: str, last: int, num_examples: int) -> float | None:
    """The step of a replica's number: one example in one evaluation, if the metric is a fraction of examples.

    Args:
        metric: The metric of the number.
        last: The number is the mean of this many evaluations.
        num_examples: The number of examples in each evaluation.
    """
    return 1 / (last * num_examples) if metric.endswith("accuracy") else None
