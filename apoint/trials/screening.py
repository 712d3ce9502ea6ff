"""A screen: many changes on the same few seeds as the base, halved repeatedly until one is left.

It only chooses. What it shows about a change is not evidence: the best of many is partly lucky. So nothing
here has an error rate, and the screen never looks at the examples that the confirmation is measured on, if
others are available.

Training is passed in as a function, so that a screen can also be run on numbers that were never trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from apoint.trials.outcome import Outcome, refuse_failing
from apoint.trials.search import BASELINE
from apoint.trials.search_plan import Rung
from apoint.verdict.pairs import Pairs
from apoint.verdict.types import Array

Train = Callable[[list[tuple[str, int]]], list[Outcome]]


def _silent(_: Any) -> None:
    pass


@dataclass
class Lane:
    """A recipe in the screen and the outcomes of its replicas, in seed order."""

    name: str
    outcomes: list[Outcome] = field(default_factory=list)
    dropped: bool = False

    @property
    def values(self) -> list[float]:
        """The numbers so far."""
        return [outcome.value for outcome in self.outcomes]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "runs": [outcome.run for outcome in self.outcomes],
            "states": [outcome.state for outcome in self.outcomes],
            "core_seconds": sum(outcome.seconds for outcome in self.outcomes),
            "from_cache": sum(outcome.cached for outcome in self.outcomes),
        }


@dataclass
class Screen:
    """Changes against a base.

    Attributes:
        names: The changes.
        rungs: The steps: how many pairs each change has, and how many changes continue.
        train: Trains (name, seed) pairs, the base under the name `baseline`.
        first_seed: The seeds are this one and those that follow.
        higher_is_better: The direction of the numbers.
        cap: What a failed replica counts as; None if unknown.
        must_train: Whether a base that mostly fails is rejected.
        say: Called with sentences for the user.
        keep: Called after every step.
        has_time: Asked before each step but the first, with the number of replicas it needs.
    """

    names: Sequence[str]
    rungs: Sequence[Rung]
    train: Train
    first_seed: int = 0
    higher_is_better: bool = True
    cap: float | None = None
    must_train: bool = True
    say: Callable[[str], None] = _silent
    keep: Callable[[Screen], None] = _silent
    has_time: Callable[[int], bool] = lambda replicas: True
    ended_early: bool = False
    baseline: Lane = field(default_factory=lambda: Lane(BASELINE))
    lanes: dict[str, Lane] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.names, "a screen needs a change"
        assert BASELINE not in self.names
        self.lanes = {name: Lane(name) for name in self.names}

    def run(self) -> None:
        """Train and halve until one change is left, or time runs out."""
        for place, (pairs, kept) in enumerate(self.rungs):
            missing = self._missing(pairs)
            if place and not self.has_time(len(missing)):
                self.ended_early = True
                self.say(f"no time for a screen of {pairs} pairs; the best so far is taken")
                return
            self._train(missing)
            if self.must_train and not place:
                self._check_baseline()
            self._halve(pairs, kept)
            self.keep(self)

    def _missing(self, pairs: int) -> list[tuple[Lane, int]]:
        lanes = (self.baseline, *(lane for lane in self.lanes.values() if not lane.dropped))
        end = self.first_seed + pairs
        return [(lane, seed) for lane in lanes for seed in range(self.first_seed + len(lane.outcomes), end)]

    def _train(self, missing: list[tuple[Lane, int]]) -> None:
        outcomes = self.train([(lane.name, seed) for lane, seed in missing])
        for (lane, _), outcome in zip(missing, outcomes, strict=True):
            lane.outcomes.append(outcome)

    def _check_baseline(self) -> None:
        outcomes = self.baseline.outcomes
        refuse_failing(self.first_seed, [each.state for each in outcomes], [each.reason for each in outcomes])

    def _halve(self, pairs: int, kept: int) -> None:
        going_on = self.ranking()[:kept]
        for lane in self.lanes.values():
            lane.dropped |= lane.name not in going_on
        self.say(f"screen, {pairs} pairs: {', '.join(going_on)} {'goes' if kept == 1 else 'go'} on")

    def ranking(self) -> list[str]:
        """All changes, best first: those that got further come before the others."""
        place = {name: number for number, name in enumerate(self.names)}  # ties go to the more promising
        return sorted(
            self.names,
            key=lambda name: (-len(self.lanes[name].outcomes), -self._rank(name), place[name]),
        )

    def _rank(self, name: str) -> float:
        mean = self.effect(name)
        return -math.inf if math.isnan(mean) else mean

    def differences(self, name: str) -> Array:
        """The paired differences of a change, positive where it is better; NaN if nothing can be said."""
        values = np.array(self.lanes[name].values, dtype=float)
        base = np.array(self.baseline.values[: len(values)], dtype=float)
        pairs = Pairs(base, values, self.higher_is_better, self.cap)
        return np.full(len(values), math.nan) if math.isnan(pairs.cap_value()) else pairs.differences()

    def effect(self, name: str) -> float:
        """The mean paired difference of a change so far; NaN before the first pair."""
        found = self.differences(name) if self.lanes[name].outcomes else np.array([])
        return float(found.mean()) if len(found) else math.nan

    def error(self, name: str) -> float:
        """The standard error of that mean; NaN with fewer than two pairs."""
        found = self.differences(name) if len(self.lanes[name].outcomes) > 1 else np.array([])
        return float(found.std(ddof=1)) / math.sqrt(len(found)) if len(found) else math.nan

    def to_dict(self, name: str) -> dict[str, Any]:
        """The screen's results for a change, as plain values for JSON."""
        lane = self.lanes[name]
        known = len(lane.outcomes) > 0
        return {
            **lane.to_dict(),
            "pairs": len(lane.outcomes),
            "effect": self.effect(name),
            "standard_error": self.error(name),
            "differences": self.differences(name).tolist() if known else [],
            "dropped": lane.dropped,
        }
