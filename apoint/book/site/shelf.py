"""What the pages are made from: claims, exercises, records, errata, and the checks run while loading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from apoint.book.batch import RECORDS
from apoint.book.claim import Claim, Erratum, Exercise
from apoint.book.course import CHAPTERS, ROWS, Row
from apoint.book.evidence import Evidence, Number
from apoint.book.library import all_errata, answer, claims, errata, examine, exercises
from apoint.book.outcome import Outcome, Ruling, load, saved
from apoint.book.published import published
from apoint.book.running import SCALES, Scale


@dataclass(frozen=True)
class Shelf:
    """The whole book.

    Attributes:
        claims: Claims by id.
        exercises: Exercises by number.
        outcomes: Outcomes of the claims that have been run, by id of the claim.
        answers: The numbers of the exercises' checks, by number of the exercise.
        chapters: Titles by letter.
        rows: Rows of the course, by id.
        entries: Errata that belong to no claim, by id.
        examined: Verdict and numbers of those entries that have a check, by id.
    """

    claims: Mapping[str, Claim]
    exercises: Mapping[str, Exercise]
    outcomes: Mapping[str, Outcome]
    answers: Mapping[str, Sequence[Number]] = field(default_factory=dict)
    chapters: Mapping[str, str] = field(default_factory=lambda: CHAPTERS)
    rows: Mapping[str, Row] = field(default_factory=lambda: ROWS)
    entries: Mapping[str, Erratum] = field(default_factory=dict)
    examined: Mapping[str, tuple[Ruling, Evidence]] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path, scale: Scale | None = None) -> Shelf:
        """Load the current book; answers of exercises and errata are checked while loading.

        Args:
            folder: The folder of `apoint book run`.
            scale: Load only outcomes of this scale; by default, those of the largest scale of each claim.
        """
        known = claims()
        outcomes = {id: one for id, one in known_outcomes(folder, scale).items() if id in known}
        answers = {number: answer(exercise) for number, exercise in exercises().items()}
        entries = {id: one for id, one in errata().items() if not one.of_claim}
        examined = {id: examine(one) for id, one in entries.items() if one.check is not None}
        return cls(known, exercises(), outcomes, answers, entries=entries, examined=examined)

    def of_row(self, row: str) -> list[Claim]:
        """The claims of a row."""
        return [claim for claim in self.claims.values() if claim.row.id == row]

    def of_chapter(self, letter: str) -> list[Claim]:
        """The claims of a chapter."""
        return [claim for claim in self.claims.values() if claim.row.chapter == letter]

    def exercises_of(self, row: str) -> list[Exercise]:
        """The exercises of a row."""
        return [exercise for exercise in self.exercises.values() if exercise.row == row]

    @property
    def errata(self) -> dict[str, Erratum]:
        """All errata by id, in the order of the course."""
        return all_errata(self.claims, self.entries)

    def entries_of(self, row: str) -> list[Erratum]:
        """The errata of a row that belong to no claim."""
        return [one for one in self.entries.values() if one.row.id == row]

    def verdict(self, claim: Claim) -> str | None:
        """The verdict on a claim; None if it has not been run."""
        outcome = self.outcomes.get(claim.id)
        return outcome.verdict if outcome else None


def known_outcomes(folder: Path, scale: Scale | None = None) -> dict[str, Outcome]:
    """Return the outcomes by claim: from a folder's records, or if there are none, from the package.

    Args:
        folder: The folder of `apoint book run`.
        scale: Load only outcomes of this scale; by default, those of the largest scale of each claim.
    """
    found: dict[str, Outcome] = {}
    records = saved(folder / RECORDS)
    for each in SCALES if scale is None else (scale,):
        found |= {id: one for id, one in published().items() if one.scale == each}
        found |= {id: load(path) for (id, of), path in records.items() if of == each}
    return found
