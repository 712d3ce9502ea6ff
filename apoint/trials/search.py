"""What a search for a better recipe declares before its first replica, and where that is saved."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apoint.errors import StorageError
from apoint.store.sealed import read_sealed
from apoint.trials.search_plan import Plan
from apoint.verdict.card import metric_words

SCHEMA_VERSION = 2
DECLARATION = "declaration.json"
BASELINE = "baseline"
METHOD = "screen all changes, then confirm the best on fresh seeds"
FRESH_SEEDS = {"confirmation": 2_000_000, "addition": 3_000_000, "result": 4_000_000}


@dataclass(frozen=True)
class Declared:
    """What is fixed before the first replica.

    Attributes:
        recipe: The name of the base.
        fingerprint: Its fingerprint.
        values: Its values.
        metric: The number compared on fresh seeds.
        screen_metric: The number the screen chooses by.
        screen_changes: What the screen changes in every recipe, to have separate examples to choose by.
        screen_note: What that means, in words.
        higher_is_better: The direction of both metrics.
        budget: How long each replica trains.
        time_budget: The seconds within which to stop.
        expected_seconds: What screening and confirming would take, if no look decides early.
        margin: The smallest difference that matters; None if it follows from the baseline's spread.
        margin_rule: Where it comes from.
        alpha: The error rate of the comparisons on fresh seeds, over all of them.
        first_pairs: The pairs of each change in the first step of the screen.
        looks: The numbers of pairs at which to look in a comparison on fresh seeds.
        forecast: The chance of finding one change that helps, by how many standard deviations it helps.
        first_seed: Where the screen's seeds begin; the fresh ones are beyond.
        vary: What a seed changes.
        cap: What a failed replica counts as, and the rule it comes from.
        screen_cap: What a failed replica counts as in the screen.
        candidates: What is tried, in order.
        not_tried: What is not, and why.
        exploratory: Why this is not confirmatory; empty if it is.
        last: A replica's number is the mean of this many of its last evaluations.
        created: When this was declared.
    """

    recipe: str
    fingerprint: str
    values: dict[str, Any]
    metric: str
    screen_metric: str
    screen_changes: dict[str, Any]
    screen_note: str
    higher_is_better: bool
    budget: dict[str, Any]
    time_budget: float
    expected_seconds: float
    margin: float | None
    margin_rule: str
    alpha: float
    first_pairs: int
    looks: tuple[int, ...]
    forecast: dict[str, float]
    first_seed: int
    vary: tuple[str, ...]
    cap: dict[str, Any]
    screen_cap: float | None
    candidates: tuple[dict[str, Any], ...]
    not_tried: tuple[dict[str, str], ...] = ()
    exploratory: tuple[str, ...] = ()
    last: int = 1
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def number(self) -> str:
        """What a replica's number is: the metric, or its mean over the last evaluations."""
        return metric_words(self.metric, self.last)

    @property
    def plan(self) -> Plan:
        """The steps of the screen and the looks on fresh seeds."""
        return Plan(len(self.candidates), self.first_pairs, self.looks)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        seeds = {stage: self.first_seed + beyond for stage, beyond in FRESH_SEEDS.items()}
        kind = {"schema_version": SCHEMA_VERSION, "kind": "improvement", "method": METHOD}
        screen = [rung._asdict() for rung in self.plan.rungs]
        return {**kind, **asdict(self), "screen": screen, "fresh_seeds": seeds}


def read_declared(folder: Path) -> Declared | None:
    """The declaration saved in a folder; None if there is none."""
    path = folder / DECLARATION
    if not path.exists():
        return None
    try:
        values = read_sealed(path)
        values.setdefault("last", 1)  # the value before there was a choice
        known: dict[str, Any] = {each.name: values[each.name] for each in fields(Declared)}
    except (ValueError, KeyError, TypeError):
        raise StorageError(
            f"cannot read {path}: it was damaged, or written by another version; move it away"
        ) from None
    for name in ("looks", "vary", "candidates", "not_tried", "exploratory"):
        known[name] = tuple(known[name])
    return Declared(**known)
