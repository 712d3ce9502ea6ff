"""An improvement folder as read from disk: complete, in progress or interrupted. Reading never writes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apoint.errors import UsageError
from apoint.report import fields
from apoint.report.fields import Json
from apoint.report.record import DECLARATION, RESULT, read_if_there
from apoint.report.verdict_record import VerdictRecord
from apoint.report.words import Digits, check_words, unbroken

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Entry:
    """A change in the screen, or a comparison on fresh seeds.

    Attributes:
        label: Its name.
        pairs: The number of pairs; 0 if nothing is known yet.
        effect: The mean paired difference, positive if the change is better.
        interval: For a comparison, the interval of its verdict; for a screened change, one standard error
            around the mean.
        outcome: The verdict; empty for a screened change, which has none.
        alpha: The error rate of the interval; NaN for a screened change.
        differences: The difference of every pair, positive if the change is better.
        dropped: Whether the screen dropped it.
        course: The item of the course behind it; empty if there is none.
        reason: Why it was worth trying.
        changes: The recipe values it sets.
        change: The same in words, such as `optimizer.lr 3e-4 instead of 1e-3`; empty if not recorded.
        comparison: The folder of the comparison on fresh seeds; empty for the screen.
    """

    label: str
    pairs: int = 0
    effect: float = math.nan
    interval: tuple[float, float] = (-math.inf, math.inf)
    outcome: str = ""
    alpha: float = math.nan
    differences: tuple[float, ...] = ()
    dropped: bool = False
    course: str = ""
    reason: str = ""
    changes: tuple[tuple[str, Any], ...] = ()
    change: str = ""
    comparison: str = ""

    @property
    def known(self) -> bool:
        """Whether there are pairs."""
        return self.pairs > 0

    @property
    def has_interval(self) -> bool:
        """Whether the interval has two ends yet."""
        return all(map(math.isfinite, self.interval))


@dataclass(frozen=True)
class ImprovementRecord:
    """What is known about a search.

    Attributes:
        state: `finished`, `interrupted`, `running`; `unknown` if it is not recorded.
        kept: The labels of the changes that were kept.
        difference: What they set: path, base's value, improved value.
        verdict: The verdict on improved against base; None if nothing helped.
        screen: Every change that was screened, the best first; before the first step, as declared.
        checks: The comparisons on fresh seeds.
        improved: The text of the improved recipe; empty if it was not written.
    """

    folder: Path
    name: str
    state: str
    sentence: str
    kept: tuple[str, ...]
    difference: tuple[tuple[str, Any, Any], ...]
    verdict: VerdictRecord | None
    declaration: Json
    screen: tuple[Entry, ...]
    checks: tuple[Entry, ...]
    cost: Json
    fleet: str
    reproduce: str
    improved: str

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> ImprovementRecord:
        """The search in a folder.

        Args:
            folder: `<runs root>/improvements/<name>-<id>`.
        """
        place = Path(folder)
        result, stored = (read_if_there(place / name, SCHEMA_VERSION) for name in (RESULT, DECLARATION))
        if 1 in (result.get("schema_version"), stored.get("schema_version")):
            raise UsageError(
                f"{place} was written by an earlier apoint, which searched in another way; run improve again"
            )
        if not result and not stored:
            raise UsageError(
                f"there is no improvement folder at {place}; they lie in `improvements` under the runs root"
            )
        declaration = fields.mapping(result.get("declaration")) or stored
        verdict = fields.mapping(result.get("verdict"))
        return cls(
            folder=place,
            name=fields.text(result.get("name")) or place.name,
            state=fields.text(result.get("state")) or ("unknown" if result else "running"),
            sentence=fields.text(result.get("sentence")),
            kept=tuple(filter(None, fields.texts(result.get("kept")))),
            difference=_difference(fields.mapping(result.get("changes")), declaration),
            verdict=VerdictRecord.from_dict(verdict, declaration) if verdict else None,
            declaration=declaration,
            screen=tuple(map(_screened, _rows(result, "screen") or _rows(declaration, "candidates"))),
            checks=tuple(_check(fields.mapping(each), declaration) for each in _rows(result, "checks")),
            cost=fields.mapping(result.get("cost")),
            fleet=fields.text(result.get("fleet")),
            reproduce=fields.text(result.get("reproduce")),
            improved=fields.text(result.get("improved")),
        )

    @property
    def metric(self) -> str:
        """The number compared."""
        return fields.text(self.declaration.get("metric"))

    @property
    def screen_metric(self) -> str:
        """The number that the screen chooses by."""
        return fields.text(self.declaration.get("screen_metric")) or self.metric

    @property
    def margin(self) -> float:
        """The smallest difference that matters: declared, or that of the last check; NaN if none is known."""
        declared = fields.number(self.declaration.get("margin"))
        return self.verdict.margin if math.isnan(declared) and self.verdict is not None else declared

    @property
    def digits(self) -> Digits:
        """The digits of numbers in the metric's unit, for the whole page."""
        shown = [*self.screen, *self.checks]
        halves = [(entry.interval[1] - entry.interval[0]) / 2 for entry in shown]
        scores = list(self.verdict.baseline) if self.verdict is not None else []
        return Digits.for_spread([self.margin] if self.margin > 0 else halves, scores)


def _rows(result: Json, name: str) -> list[Json]:
    return [fields.mapping(each) for each in fields.items(result.get(name))]


def _screened(row: Json) -> Entry:
    effect, error = (fields.number(row.get(name)) for name in ("effect", "standard_error"))
    interval = (effect - error, effect + error)
    return Entry(
        label=fields.text(row.get("label")),
        pairs=fields.whole(row.get("pairs")),
        effect=effect,
        interval=interval if all(map(math.isfinite, interval)) else (-math.inf, math.inf),
        differences=fields.numbers(row.get("differences")),
        dropped=row.get("dropped") is True,
        course=fields.text(row.get("course")),
        reason=fields.text(row.get("reason")),
        changes=tuple(fields.mapping(row.get("changes")).items()),
        change=unbroken(fields.text(row.get("change"))),
    )


def _check(row: Json, declaration: Json) -> Entry:
    labels = [label for label in fields.texts(row.get("labels")) if label]
    verdict = VerdictRecord.from_dict(fields.mapping(row.get("verdict")), declaration)
    sign = 1 if verdict.higher_is_better else -1
    pairs = zip(verdict.baseline, verdict.candidate, strict=False)
    return Entry(
        label=check_words(fields.text(row.get("stage")), labels),
        pairs=verdict.pairs,
        effect=verdict.effect,
        interval=verdict.interval,
        outcome=verdict.outcome,
        alpha=verdict.interval_alpha,
        change=verdict.change,
        differences=tuple(sign * (second - first) for first, second in pairs),
        comparison=fields.text(row.get("comparison")),
    )


def _difference(changes: Json, declaration: Json) -> tuple[tuple[str, Any, Any], ...]:
    base = fields.mapping(declaration.get("values"))
    return tuple((path, value_at(base, path.split(".")), value) for path, value in changes.items())


def value_at(values: Json, keys: Iterable[str]) -> Any:
    """The value under these nested keys; None if there is none."""
    found: Any = values
    for key in keys:
        found = fields.mapping(found).get(key)
    return found
