"""A verdict as recorded: the fields of `apoint.verdict.Verdict`, read from JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from apoint.report import fields
from apoint.report.fields import Json
from apoint.report.words import unbroken
from apoint.verdict.card import as_subject, metric_words

_NAMES = ("baseline_name", "candidate_name", "change")


@dataclass(frozen=True)
class LookRecord:
    """One look at the pairs; see `apoint.verdict`."""

    pairs: int
    effect: float
    interval: tuple[float, float]
    multiplier: float
    outcome: str
    equivalence_interval: tuple[float, float]
    margin: float

    @classmethod
    def from_dict(cls, content: Json) -> LookRecord:
        """The look in a JSON object."""
        return cls(
            pairs=fields.whole(content.get("pairs")),
            effect=fields.number(content.get("effect")),
            interval=fields.interval(content.get("interval")),
            multiplier=fields.number(content.get("multiplier")),
            outcome=fields.text(content.get("outcome")) or "undecided",
            equivalence_interval=fields.interval(content.get("equivalence_interval")),
            margin=fields.number(content.get("margin")),
        )

    @property
    def has_interval(self) -> bool:
        """Whether the interval has two ends yet."""
        return all(map(math.isfinite, self.interval))

    @property
    def symmetric_half(self) -> float:
        """The shorter half of the interval, which the skewness of the differences does not lengthen."""
        return min(self.effect - self.interval[0], self.interval[1] - self.effect)


@dataclass(frozen=True)
class FailuresRecord:
    """Replicas that failed or diverged, by arm."""

    baseline: int = 0
    candidate: int = 0
    only_baseline: int = 0
    only_candidate: int = 0
    p: float = math.nan
    cap: float = math.nan

    @classmethod
    def from_dict(cls, content: Json) -> FailuresRecord:
        """The failures in a JSON object."""
        names = ("baseline", "candidate", "only_baseline", "only_candidate")
        counts = {name: fields.whole(content.get(name)) for name in names}
        return cls(**counts, p=fields.number(content.get("p")), cap=fields.number(content.get("cap")))

    @property
    def total(self) -> int:
        """The number of replicas that failed, over both arms."""
        return self.baseline + self.candidate


@dataclass(frozen=True)
class VerdictRecord:
    """The verdict; unknown values are NaN, empty or None. Positive differences favour the candidate."""

    outcome: str
    effect: float
    interval: tuple[float, float]
    pairs: int
    looks: tuple[LookRecord, ...]
    margin: float
    alpha: float
    higher_is_better: bool
    metric: str
    planned_looks: tuple[int, ...]
    anytime: bool
    negligible: bool
    equivalence_interval: tuple[float, float]
    adjusted_effect: float
    skewness: float
    sign_flip_p: float
    smallest_p: float
    improvement: float
    improvement_interval: tuple[float, float]
    standardised_effect: float
    robust_mean: float
    correlation: float
    failures: FailuresRecord
    further_pairs: int | None
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    seeds: tuple[int, ...]
    exploratory: tuple[str, ...]
    notes: tuple[str, ...]
    interval_alpha: float
    last: int
    test_noise: str
    both_outcome: str
    both_interval: tuple[float, float]
    both_unknown: str
    test_examples: int
    test_pool: int
    further_baseline: tuple[float, ...]
    paired_interval: tuple[float, float]
    baseline_name: str
    candidate_name: str
    change: str
    masked_skewness: float
    margin_interval: tuple[float, float] | None

    @property
    def number(self) -> str:
        """What a replica's number is: the metric, or its mean over the last evaluations."""
        return metric_words(self.metric, self.last)

    @property
    def subject(self) -> str:
        """The same, as the subject of a sentence."""
        return as_subject(self.metric, self.last)

    @property
    def has_interval(self) -> bool:
        """Whether the interval has two ends yet."""
        return all(map(math.isfinite, self.interval))

    @property
    def arm_names(self) -> dict[str, str]:
        """The name of each arm on the page: what it is, if that was recorded, otherwise its part."""
        return {"baseline": self.baseline_name or "baseline", "candidate": self.candidate_name or "candidate"}

    @property
    def arm_words(self) -> dict[str, str]:
        """The name of each arm in a sentence."""
        return {part: f"the {part}" if name == part else name for part, name in self.arm_names.items()}

    @property
    def arm_titles(self) -> dict[str, str]:
        """The same, with each arm's part after its name."""
        return {part: name if name == part else f"{name} ({part})" for part, name in self.arm_names.items()}

    @classmethod
    def from_dict(cls, content: Json, declaration: Json) -> VerdictRecord:
        """The verdict in a JSON object; what it leaves out is taken from the declaration.

        Args:
            content: The verdict, or nothing if none was written yet.
            declaration: What was declared in advance.
        """
        own = tuple(LookRecord.from_dict(fields.mapping(each)) for each in fields.items(content.get("looks")))
        return cls(**_known(content, declaration, own), **_companions(content))


def _known(content: Json, declaration: Json, looks: tuple[LookRecord, ...]) -> dict[str, Any]:
    """What was declared, and what the last look says."""
    last = looks[-1] if looks else LookRecord.from_dict({})
    either = {**declaration, **content}
    planned = fields.wholes(content.get("planned_looks")) or fields.wholes(declaration.get("looks"))
    alpha = fields.first_known([fields.number(either.get("alpha")), 0.05])
    own_alpha = fields.first_known([fields.number(content.get("interval_alpha")), alpha])
    anytime = either.get("anytime") is True
    return {
        "outcome": fields.text(content.get("outcome")) or last.outcome,
        "effect": fields.first_known([fields.number(content.get("effect")), last.effect]),
        "interval": fields.interval(content.get("interval")) if "interval" in content else last.interval,
        "pairs": fields.whole(content.get("pairs"), last.pairs),
        "looks": looks,
        "margin": fields.number(either.get("margin")),
        "alpha": alpha,
        "interval_alpha": own_alpha,
        "higher_is_better": either.get("higher_is_better") is not False,
        "metric": fields.text(content.get("metric")) or fields.text(declaration.get("metric")),
        "last": _evaluations(either),
        "planned_looks": () if anytime else planned,
        "anytime": anytime,
    }


def _evaluations(content: Json) -> int:
    """The number of evaluations that a replica's number averages; 1 where that was not recorded."""
    return max(1, fields.whole(content.get("last"), 1))


def declared_number(declaration: Json) -> str:
    """What a replica's number was declared to be."""
    return metric_words(fields.text(declaration.get("metric")), _evaluations(declaration))


def _maybe_interval(value: Any) -> tuple[float, float] | None:
    low, high = fields.interval(value)
    return (low, high) if low < high else None


def _companions(content: Json) -> dict[str, Any]:
    """What is reported along with the interval."""
    single = ["adjusted_effect", "skewness", "sign_flip_p", "smallest_p", "improvement"]
    single += ["standardised_effect", "robust_mean", "correlation"]
    return {
        **{name: fields.number(content.get(name)) for name in single},
        "negligible": content.get("negligible") is True,
        "equivalence_interval": fields.interval(content.get("equivalence_interval")),
        "improvement_interval": fields.interval(content.get("improvement_interval")),
        "failures": FailuresRecord.from_dict(fields.mapping(content.get("failures"))),
        "further_pairs": fields.maybe_whole(content.get("further_pairs")),
        "baseline": fields.numbers(content.get("baseline")),
        "candidate": fields.numbers(content.get("candidate")),
        "seeds": fields.wholes(content.get("seeds")),
        "further_baseline": fields.numbers(content.get("further_baseline")),
        "paired_interval": fields.interval(content.get("paired_interval")),
        "exploratory": tuple(filter(None, fields.texts(content.get("exploratory")))),
        "notes": tuple(filter(None, fields.texts(content.get("notes")))),
        **{name: fields.text(content.get(name)) for name in ("both_outcome", "both_unknown")},
        **{name: fields.whole(content.get(name)) for name in ("test_examples", "test_pool")},
        "test_noise": fields.text(content.get("test_noise")) or "beside",
        "both_interval": fields.interval(content.get("both_interval")),
        **{name: unbroken(fields.text(content.get(name))) for name in _NAMES},
        "margin_interval": _maybe_interval(content.get("margin_interval")),
        "masked_skewness": fields.number(content.get("masked_skewness", 0.0)),
    }
