"""A race: many candidates against one baseline on the same seeds, until each is decided or time is over.

At every planned look all candidates are judged together, so that the chance of any false call is the
declared one. A candidate that is decided trains no more, and it is the rule that decides: nothing is dropped
for merely looking bad. The baseline's replicas serve every candidate.

What trains is handed in as a function, so that a race can also be run on numbers that were never trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from apoint.errors import DivergedError, StorageError, UsageError
from apoint.store.sealed import read_sealed
from apoint.trials.budget import FEWEST_PAIRS
from apoint.trials.comparison import told
from apoint.trials.outcome import Outcome
from apoint.verdict import Verdict, decide_arms
from apoint.verdict.decision import default_margin
from apoint.verdict.pairs import Pairs

PILOT_RULE = "half the standard deviation of the baseline's first {} seeds"
SCHEMA_VERSION = 1
DECLARATION = "declaration.json"
FRESH_SEEDS = {"confirmation": 2_000_000, "combination": 3_000_000, "result": 4_000_000}
BASELINE = "baseline"
TIERS = {  # the looks for so many pairs of each candidate, from ample to scarce
    32: (8, 16, 24, 32), 24: (8, 16, 24), 16: (8, 12, 16), 12: (8, 12), 8: (8,), 6: (FEWEST_PAIRS,),
}  # fmt: skip
ENOUGH_PAIRS, ENOUGH_CANDIDATES = 16, 4
RESERVED_WINNERS = 3


Train = Callable[[list[tuple[str, int]]], list[Outcome]]


# -- how much fits ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Programme:
    """What a time limit has room for, fixed before anything is trained.

    Attributes:
        num_candidates: How many candidates race.
        looks: The numbers of pairs at which the race is judged.
        num_winners: For how many winners there is time to confirm them, and then to put them together.
    """

    num_candidates: int
    looks: tuple[int, ...]
    num_winners: int

    @property
    def race_replicas(self) -> int:
        """The replicas of the race, if nothing is decided early."""
        return (self.num_candidates + 1) * self.looks[-1]

    @property
    def later_replicas(self) -> int:
        """The replicas of confirming winners, putting them together and measuring the result."""
        together = 4 if self.num_winners > 1 else 0
        return (self.num_winners + 1 + together) * self.looks[-1]


def programme(num_candidates: int, num_replicas: float) -> Programme:
    """The fullest programme for so many replicas: many pairs, then many candidates, then what is left.

    Args:
        num_candidates: How many candidates there are.
        num_replicas: How many replicas there is time for.
    """

    def room(pairs: int) -> Programme | None:
        for number in range(num_candidates, 0, -1):
            found = Programme(number, TIERS[pairs], min(number, RESERVED_WINNERS))
            if found.race_replicas + found.later_replicas <= num_replicas:
                return found
        return None

    for pairs in TIERS:
        found = room(pairs)
        enough = min(num_candidates, ENOUGH_CANDIDATES) if pairs <= ENOUGH_PAIRS else num_candidates
        if found and (pairs <= 8 or found.num_candidates >= enough):
            return found
    least = 4 * FEWEST_PAIRS
    raise UsageError(
        f"there is time for {math.floor(num_replicas)} replicas, and one candidate, tried and confirmed, "
        f"needs {least}; give more time, or shorten training"
    )


# -- what is declared ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Declared:
    """What is fixed before the first replica.

    Attributes:
        recipe: The name of the base.
        fingerprint: Its fingerprint.
        values: Its values.
        metric: The number compared.
        higher_is_better: Its direction.
        budget: How long each replica trains.
        time_budget: The seconds within which to stop.
        expected_seconds: What everything would take, if nothing is decided early.
        margin: The smallest difference that matters; None until the pilot has given it.
        margin_rule: Where it comes from.
        alpha: The error rate of the race over all looks and candidates, and of each confirmation.
        looks: The numbers of pairs at which the race and each confirmation look.
        num_winners: How many winners there is time to confirm.
        first_seed: Where the race's seeds begin; the fresh ones lie beyond.
        vary: What a seed changes.
        cap: What a failed replica counts as, and the rule it comes from.
        candidates: What is tried, in order.
        not_tried: What is not, and why.
        exploratory: Why this is not confirmatory; empty if it is.
        created: When this was declared.
    """

    recipe: str
    fingerprint: str
    values: dict[str, Any]
    metric: str
    higher_is_better: bool
    budget: dict[str, Any]
    time_budget: float
    expected_seconds: float
    margin: float | None
    margin_rule: str
    alpha: float
    looks: tuple[int, ...]
    num_winners: int
    first_seed: int
    vary: tuple[str, ...]
    cap: dict[str, Any]
    candidates: tuple[dict[str, Any], ...]
    not_tried: tuple[dict[str, str], ...] = ()
    exploratory: tuple[str, ...] = ()
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        seeds = {stage: self.first_seed + beyond for stage, beyond in FRESH_SEEDS.items()}
        kind = {"schema_version": SCHEMA_VERSION, "kind": "improvement"}
        return {**kind, **asdict(self), "method": "Holm", "fresh_seeds": seeds}


def read_declared(folder: Path) -> Declared | None:
    """The declaration kept in a folder; None if there is none."""
    path = folder / DECLARATION
    if not path.exists():
        return None
    try:
        values = read_sealed(path)
        known: dict[str, Any] = {each.name: values[each.name] for each in fields(Declared)}
    except (ValueError, KeyError, TypeError):
        raise StorageError(
            f"cannot read {path}: it was damaged, or written by another version; move it away"
        ) from None
    for name in ("looks", "vary", "candidates", "not_tried", "exploratory"):
        known[name] = tuple(known[name])
    return Declared(**known)


# -- the race -----------------------------------------------------------------------------------------------


@dataclass
class Lane:
    """A recipe in the race and what its replicas gave, in the order of seeds."""

    name: str
    outcomes: list[Outcome] = field(default_factory=list)
    verdict: Verdict | None = None

    @property
    def values(self) -> list[float]:
        """The numbers so far."""
        return [outcome.value for outcome in self.outcomes]

    @property
    def open(self) -> bool:
        """Whether it is still to be decided."""
        return self.verdict is None or self.verdict.outcome == "undecided"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "runs": [outcome.run for outcome in self.outcomes],
            "states": [outcome.state for outcome in self.outcomes],
            "core_seconds": sum(outcome.seconds for outcome in self.outcomes),
            "from_cache": sum(outcome.cached for outcome in self.outcomes),
            "verdict": self.verdict.to_dict() if self.verdict else None,
        }


def _silent(_: Any) -> None:
    pass


@dataclass
class Race:
    """Candidates against a baseline.

    Attributes:
        names: The candidates.
        rules: What is fixed beforehand.
        train: Trains (name, seed) pairs, the baseline under the name `baseline`.
        say: Called with sentences for the user.
        keep: Called after the pilot and after every look.
        has_time: Asked before each look but the first, with the number of replicas it needs.
        test_size: On how many examples the metric is measured.
        changes: What each candidate changes, in words.
    """

    names: Sequence[str]
    rules: Declared
    train: Train
    say: Callable[[str], None] = _silent
    keep: Callable[[Race], None] = _silent
    has_time: Callable[[int], bool] = lambda replicas: True
    test_size: int = 1000
    changes: Mapping[str, str] = field(default_factory=dict)
    margin: float | None = None
    ended_early: bool = False
    baseline: Lane = field(default_factory=lambda: Lane(BASELINE))
    lanes: dict[str, Lane] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.names, "a race needs a candidate"
        assert BASELINE not in self.names
        self.lanes = {name: Lane(name) for name in self.names}
        # A margin that comes from a pilot is taken anew from the sealed runs, also when a race is continued.
        self.margin = self.rules.margin if self.rules.margin_rule == "given" else None

    @property
    def cap(self) -> float | None:
        """What a failed replica counts as; None if that is not known."""
        value: float | None = self.rules.cap["value"]
        return value

    @property
    def open_lanes(self) -> list[Lane]:
        """The candidates that are not decided."""
        return [lane for lane in self.lanes.values() if lane.open]

    @property
    def winners(self) -> list[Lane]:
        """The candidates that are better, the largest effect first."""
        won = [lane for lane in self.lanes.values() if lane.verdict and lane.verdict.outcome == "better"]
        return sorted(won, key=_effect, reverse=True)

    def run(self) -> None:
        """Train and look until every candidate is decided, the plan ends, or time is over."""
        if self.margin is None:
            self._pilot()
        for pairs in self.rules.looks:
            missing = self._missing(pairs)
            if pairs != self.rules.looks[0] and not self.has_time(len(missing)):
                self.ended_early = True
                self.say(f"the time for the race ends before {pairs} pairs; what is decided stands")
                break
            self._train(missing)
            self._look(pairs)
            if not self.open_lanes:
                break

    def _missing(self, pairs: int) -> list[tuple[Lane, int]]:
        """The replicas that the next look needs: the baseline's, and those of undecided candidates."""
        first = self.rules.first_seed
        return [
            (lane, seed)
            for lane in (self.baseline, *self.open_lanes)
            for seed in range(first + len(lane.outcomes), first + pairs)
        ]

    def _train(self, missing: list[tuple[Lane, int]]) -> None:
        outcomes = self.train([(lane.name, seed) for lane, seed in missing])
        for (lane, _), outcome in zip(missing, outcomes, strict=True):
            lane.outcomes.append(outcome)

    def _pilot(self) -> None:
        """Train the baseline's seeds of the first look, and take the margin from their spread."""
        pairs = self.rules.looks[0]
        self.say(f"pilot: the baseline's first {pairs} seeds, to see how much they differ")
        first = self.rules.first_seed
        self._train([(self.baseline, seed) for seed in range(first, first + pairs)])
        _refuse_failing(self.baseline)
        values = np.array(self.baseline.values)
        self.margin, note = default_margin(
            Pairs(values, values, self.rules.higher_is_better, self.cap, self._resolution())
        )
        self.say(
            f"the smallest difference that matters is taken to be {self.margin:.3g} in {self.rules.metric}: "
            f"{note or PILOT_RULE.format(pairs)}"
        )
        self.keep(self)

    def _resolution(self) -> float | None:
        """The step of the metric: one example, if it is a share of them; else found from the numbers."""
        return 1 / self.test_size if self.rules.metric.endswith("accuracy") else None

    def _look(self, pairs: int) -> None:
        """Judge all candidates together on what is known, and keep it."""
        assert self.margin is not None
        before = {lane.name for lane in self.open_lanes}
        verdicts = self._verdicts()
        for name in before:
            self.lanes[name].verdict = verdicts[name]
        for lane in self.lanes.values():
            if lane.name in before and lane.verdict and not lane.open:
                self.say(f"after {pairs} pairs {lane.name} is {lane.verdict.outcome}: {told(lane.verdict)}")
        if self.open_lanes:
            self.say(f"after {pairs} pairs {len(self.open_lanes)} of {len(self.lanes)} are still open")
        self.keep(self)

    def _verdicts(self) -> dict[str, Verdict]:
        assert self.margin is not None
        rules, first = self.rules, self.rules.first_seed
        return decide_arms(
            self.baseline.values,
            {name: self._judged(lane.values) for name, lane in self.lanes.items()},
            self.margin,
            looks=rules.looks,
            alpha=rules.alpha,
            higher_is_better=rules.higher_is_better,
            metric=rules.metric,
            seeds=range(first, first + len(self.baseline.outcomes)),
            cap=self.cap,
            resolution=self._resolution(),
            exploratory=rules.exploratory,
            changes=self.changes,
        )

    def _judged(self, values: list[float]) -> list[float]:
        """A candidate's numbers; if it failed with every seed and no cap is known, the worst there are."""
        if self.cap is not None or not all(map(math.isnan, values)):
            return values
        worst = min if self.rules.higher_is_better else max
        known = [
            value
            for lane in (self.baseline, *self.lanes.values())
            for value in lane.values[: len(values)]
            if math.isfinite(value)
        ]
        return [worst(known)] * len(values) if known else values


def _effect(lane: Lane) -> float:
    assert lane.verdict is not None
    return lane.verdict.effect


def _refuse_failing(baseline: Lane) -> None:
    failed = [outcome for outcome in baseline.outcomes if outcome.state != "finished"]
    if 2 * len(failed) >= len(baseline.outcomes):
        raise DivergedError(
            f"the baseline failed in {len(failed)} of its first {len(baseline.outcomes)} seeds "
            f"({failed[0].reason}); mend it first, or say with --margin which difference matters and look "
            "for what mends it"
        )
