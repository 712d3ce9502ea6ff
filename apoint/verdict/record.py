"""The record of a comparison: its looks, its failures and the verdict, as plain values that survive JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from apoint.errors import UsageError
from apoint.notebook import NotebookDisplay
from apoint.store.lines import NOT_FINITE, spell_out
from apoint.verdict.types import Interval

LONGEST_NAME, LONGEST_CHANGE = 44, 120  # characters: names go into legends, changes into headlines
Outcome = Literal["better", "worse", "equivalent", "undecided"]
UNKNOWN: Interval = (-math.inf, math.inf)


@dataclass(frozen=True)
class Look:
    """One look at the pairs made so far.

    `multiplier` is the critical value c: the interval is mean ± c·s/√n, and longer on the side of a tail.
    `equivalence_interval` is between the two one-sided bounds, each with the declared error rate: the arms
    are equivalent if it is inside ±`margin`.
    `both_interval` covers the choice of test examples as well as seeds, and `both_outcome` is the outcome it
    would give; empty if unknown. If it was declared to decide, it is `interval` itself.
    """

    pairs: int
    effect: float
    interval: Interval
    multiplier: float
    outcome: Outcome
    equivalence_interval: Interval
    margin: float
    both_interval: Interval = UNKNOWN
    both_outcome: str = ""


@dataclass(frozen=True)
class Failures:
    """Failed replicas in each arm, McNemar's exact p-value, and what a failed replica counts as."""

    baseline: int = 0
    candidate: int = 0
    only_baseline: int = 0
    only_candidate: int = 0
    p: float = 1.0
    cap: float | None = None


class Judged(Protocol):
    """The parts of a verdict needed to say what its margin rests on."""

    @property
    def outcome(self) -> str: ...
    @property
    def pairs(self) -> int: ...
    @property
    def further_baseline(self) -> tuple[float, ...]: ...
    @property
    def interval(self) -> Interval: ...
    @property
    def equivalence_interval(self) -> Interval: ...
    @property
    def margin_interval(self) -> Interval | None: ...


@dataclass(frozen=True)
class Verdict(NotebookDisplay):
    """The verdict on two arms, with its evidence. `print` shows it as a card.

    Differences are signed so that a positive one favours the candidate: candidate − baseline if higher is
    better, else baseline − candidate. `effect` is their mean at the look that decided, or at the last one.
    """

    outcome: Outcome
    effect: float
    interval: Interval
    pairs: int
    looks: tuple[Look, ...]
    margin: float
    alpha: float
    higher_is_better: bool
    metric: str
    planned_looks: tuple[int, ...]
    anytime: bool
    negligible: bool
    equivalence_interval: Interval
    adjusted_effect: float  # the effect less what stopping early adds to it on average
    skewness: float
    sign_flip_p: float
    smallest_p: float
    improvement: float
    improvement_interval: Interval
    standardised_effect: float
    robust_mean: float
    correlation: float
    failures: Failures
    further_pairs: int | None
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    seeds: tuple[int, ...] = ()
    exploratory: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    interval_alpha: float = 0.05  # the interval's own error rate: `alpha`, or less with several arms
    failure_reasons: tuple[str, ...] = ()  # arm, seed and cause of each replica that has no number
    last: int = 1  # a replica's number is the mean of this many last evaluations
    test_noise: str = "beside"  # "include": `interval` covers the choice of test examples too, and decides
    both_outcome: str = ""  # the outcome by the interval over seeds and examples; empty if unknown
    both_interval: Interval = UNKNOWN
    both_unknown: str = ""  # why it is unknown
    test_examples: int = 0  # how many examples a pair is measured on; 0 if unknown
    test_pool: int = 0  # how many different examples all pairs together are measured on
    further_baseline: tuple[float, ...] = ()  # replicas of the baseline beyond the pairs, at that look
    paired_interval: Interval | None = None  # from the pairs alone, if there were further replicas
    baseline_name: str = ""  # what the arms are called, such as `lr 1e-3`; empty if not given
    candidate_name: str = ""
    change: str = ""  # from baseline to candidate, such as `optimizer.lr 3e-4 instead of 1e-3`
    margin_interval: Interval | None = None  # where the true margin may lie, if it follows from the baseline
    masked_skewness: float = 0.0  # how much the arms' tails mask each other, which makes both sides longer

    @property
    def sentence(self) -> str:
        """The verdict as one sentence in plain words."""
        from apoint.verdict.card import sentence

        return sentence(self)

    def __str__(self) -> str:
        from apoint.verdict.card import card

        return card(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values under the same names; numbers that JSON cannot represent become text."""
        values: dict[str, Any] = spell_out(dataclasses.asdict(self))
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Verdict:
        """Restore a verdict from the output of `to_dict`, also after a round trip through JSON."""
        read = {field.name: values[field.name] for field in dataclasses.fields(cls) if field.name in values}
        try:
            read = {name: _read(name, value) for name, value in read.items()}
            read["looks"] = tuple(Look(**_read_all(look)) for look in values["looks"])
            read["failures"] = Failures(**_read_all(values["failures"]))
            return cls(**read)
        except (KeyError, TypeError) as error:
            raise UsageError(
                f"this is not a verdict as `to_dict` writes it: {error}; make it again from the scores"
            ) from None


_TEXTS = (
    "outcome", "metric", "exploratory", "notes", "failure_reasons", "test_noise", "both_outcome",
    "both_unknown", "baseline_name", "candidate_name", "change",
)  # fmt: skip


def _read(name: str, value: Any) -> Any:
    """A field as it was before JSON turned tuples into lists and non-finite numbers into text."""
    if isinstance(value, list | tuple):
        return tuple(_read(name, item) for item in value)
    if isinstance(value, str) and name not in _TEXTS:
        return NOT_FINITE.get(value, value)
    return value


def _read_all(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _read(name, value) for name, value in values.items()}


def call(interval: Interval, equivalence_interval: Interval, margin: float) -> Outcome:
    """The outcome: both one-sided bounds inside ±margin equivalent, else above 0 better, below 0 worse."""
    lower, upper = equivalence_interval
    if -margin < lower and upper < margin:
        return "equivalent"
    if interval[0] > 0:
        return "better"
    return "worse" if interval[1] < 0 else "undecided"


def other_outcomes(verdict: Judged) -> list[tuple[float, Outcome]]:
    """The ends of `margin_interval` at which the verdict would differ, and the outcome at each."""
    if verdict.margin_interval is None or not math.isfinite(verdict.interval[0]):
        return []
    bounds = verdict.interval, verdict.equivalence_interval
    found = [(margin, call(*bounds, margin)) for margin in verdict.margin_interval]
    return [(margin, outcome) for margin, outcome in found if outcome != verdict.outcome]


def is_negligible(outcome: Outcome, interval: Interval) -> bool:
    """Whether there is a difference, but one smaller than what matters."""
    return outcome == "equivalent" and (interval[0] > 0 or interval[1] < 0)
