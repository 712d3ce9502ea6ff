"""An improvement folder as it can be read: whole, in progress or interrupted. Reading never writes."""

from __future__ import annotations

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
from apoint.report.words import Digits, together_words


@dataclass(frozen=True)
class Entry:
    """A verdict with its name: a change in the race, or a comparison on fresh seeds.

    Attributes:
        label: How it is called.
        verdict: What is known of it; without pairs if nothing is.
        course: The item of the course behind it; empty if there is none.
        reason: Why it was worth trying.
        changes: The recipe values it sets.
        comparison: The folder of the comparison on fresh seeds; empty for the race.
    """

    label: str
    verdict: VerdictRecord
    course: str = ""
    reason: str = ""
    changes: tuple[tuple[str, Any], ...] = ()
    comparison: str = ""

    @property
    def known(self) -> bool:
        """Whether there was a look at it."""
        return self.verdict.pairs > 0

    @property
    def differences(self) -> list[float]:
        """What every pair says, positive if the change is better."""
        sign = 1 if self.verdict.higher_is_better else -1
        pairs = zip(self.verdict.baseline, self.verdict.candidate, strict=False)
        return [sign * (second - first) for first, second in pairs]


@dataclass(frozen=True)
class ImprovementRecord:
    """What is known of a search.

    Attributes:
        state: `finished`, `interrupted`, `running`; `unknown` if nothing tells it.
        kept: The labels of the changes that were kept.
        difference: What they set: path, base's value, improved value.
        verdict: On improved against base; None if nothing helped.
        race: Every change that was tried, in the order tried.
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
    race: tuple[Entry, ...]
    checks: tuple[Entry, ...]
    unchecked: tuple[str, ...]
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
        result, stored = read_if_there(place / RESULT), read_if_there(place / DECLARATION)
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
            race=_race(result, declaration),
            checks=tuple(_check(fields.mapping(each), declaration) for each in _rows(result, "checks")),
            unchecked=tuple(filter(None, fields.texts(result.get("unchecked")))),
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
    def margin(self) -> float:
        """The smallest difference that matters; NaN if it is not known yet."""
        return fields.number(self.declaration.get("margin"))

    @property
    def winners(self) -> list[Entry]:
        """The changes that won the race."""
        return [entry for entry in self.race if entry.verdict.outcome == "better"]

    @property
    def digits(self) -> Digits:
        """How many digits numbers in the metric's unit have, on the whole page."""
        shown = [*self.race, *self.checks]
        halves = [(entry.verdict.interval[1] - entry.verdict.interval[0]) / 2 for entry in shown]
        scores = [score for entry in shown for score in entry.verdict.baseline]
        return Digits.for_spread([self.margin] if self.margin > 0 else halves, scores)


def _rows(result: Json, name: str) -> list[Json]:
    return [fields.mapping(each) for each in fields.items(result.get(name))]


def _race(result: Json, declaration: Json) -> tuple[Entry, ...]:
    """The changes as raced; before the first look, as declared."""
    rows = _rows(result, "race") or _rows(declaration, "candidates")
    return tuple(
        Entry(
            label=fields.text(row.get("label")),
            verdict=VerdictRecord.from_dict(fields.mapping(row.get("verdict")), declaration),
            course=fields.text(row.get("course")),
            reason=fields.text(row.get("reason")),
            changes=tuple(fields.mapping(row.get("changes")).items()),
        )
        for row in rows
    )


def _check(row: Json, declaration: Json) -> Entry:
    labels = [label for label in fields.texts(row.get("labels")) if label]
    together = together_words(labels)
    named = {
        "confirmation": together,
        "combination": f"{together}, against {labels[0]} alone" if labels else "",
        "result": f"{together}, against the base",
    }
    return Entry(
        label=named.get(fields.text(row.get("stage")), together),
        verdict=VerdictRecord.from_dict(fields.mapping(row.get("verdict")), declaration),
        comparison=fields.text(row.get("comparison")),
    )


def _difference(changes: Json, declaration: Json) -> tuple[tuple[str, Any, Any], ...]:
    base = fields.mapping(declaration.get("values"))
    return tuple((path, value_at(base, path.split(".")), value) for path, value in changes.items())


def value_at(values: Json, keys: Iterable[str]) -> Any:
    """What lies under these keys, one in the other; None if nothing does."""
    found: Any = values
    for key in keys:
        found = fields.mapping(found).get(key)
    return found
