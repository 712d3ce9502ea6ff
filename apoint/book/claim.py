"""Claims: a statement of the course and the check that decides it; also exercises with checked answers.

    @claim(
        "E2", "Volume near the surface", kind="identity",
        statement=r"A ball of radius $R$ in dimension $n$ has the share $1-(1-\\varepsilon/R)^n$ …",
        refuted_by="a share of drawn points that differs from the formula by more than its error",
        seconds={"quick": 1, "standard": 10},
        planted={"power": 1},
    )
    def shell_share(run: Running, power: int | None = None) -> Evidence: ...

`planted` names settings of the check that replace the statement with a wrong version. The tests run every
check with them and require it to detect the error: a check that cannot fail decides nothing. For a claim
about a quantity (kinds identity, bound and size), the error is small: a setting `factor`, 1 by default,
multiplies that quantity, and is planted between 5 and 10 % off. A direction or a shape is planted reversed.

Where the source is wrong, a claim carries an `Erratum`. An erratum that belongs to no claim is a separate
entry with its own check or, for a fact about the world, with a citation:

    @erratum(
        "I2.1", "Momentum 1", place="weights 1.1", quote="la valeur du momentum …",
        written=r"$\\gamma\\in[0,1]$", corrected=r"$\\gamma\\in[0,1[$", why="…",
    )
    def momentum_one(run: Running) -> Evidence: ...

Its numbers `as_written` must fail and its `numbers` must hold.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from apoint.book.course import AUTHORS, ROWS, Row
from apoint.book.evidence import Evidence, Number
from apoint.book.running import SCALES, Running
from apoint.book.text import Text, Words

Kind = Literal["identity", "bound", "direction", "size", "shape"]
KINDS = ("identity", "bound", "direction", "size", "shape")
Check = Callable[..., Evidence]
_ID = re.compile(r"([A-K]\d+)[a-z]?")
_ERRATUM_ID = re.compile(r"([A-K]\d+)(?:[a-z]?|\.\d+)")


@dataclass(frozen=True)
class Erratum:
    """An error in the source.

    Attributes:
        written: What the source says, in our own words, with mathematics between dollar signs.
        corrected: The correct statement.
        why: The reason, in a sentence or two.
        quote: The words of the source in the original French, as short as it takes to show the error.
        place: Where the source says it, such as `weights 1.4`.
        id: `I5.1` for the first entry of row I5; for an erratum of a claim, the claim's id.
        title: A short title; for an erratum of a claim, the claim's title.
        check: Computes numbers for both forms; None if the claim has the check, or if a citation replaces it.
        citation: The authority for it, if it is a fact about the world.
    """

    written: str
    corrected: str
    why: str = ""
    quote: str = ""
    place: str = ""
    id: str = ""
    title: str = ""
    check: Check | None = None
    citation: str = ""

    def __post_init__(self) -> None:
        for name in ("written", "corrected", "why", "title"):
            object.__setattr__(self, name, Text(getattr(self, name)))

    @property
    def row(self) -> Row:
        """The row of the course."""
        found = _ERRATUM_ID.fullmatch(self.id)
        assert found is not None, f"erratum {self.id!r}: no id such as I5.1"
        return ROWS[found[1]]

    @property
    def attribution(self) -> str:
        """The author of the words and their place in the source."""
        author = AUTHORS.get(self.place.split(" ", 1)[0])
        return f"{author}, {self.place}" if author else self.place

    @property
    def of_claim(self) -> bool:
        """Whether it belongs to a claim, whose check decides it."""
        return "." not in self.id


@dataclass(frozen=True)
class Claim:
    """One statement and its check.

    Attributes:
        id: The row of the course, with a letter if the row has several claims: `A5`, `A5b`.
        title: A short title.
        kind: What sort of statement it is: an identity, a bound, a direction (better, rising), a size or a
            shape.
        statement: The statement in our own words, with mathematics between dollar signs.
        refuted_by: Which numbers would change the answer.
        seconds: Approximate duration of the check on one core, for each scale that it has.
        check: The function that finds the evidence.
        planted: Settings of the check that replace the statement with a wrong version.
        erratum: The error in the source, if there is one.
        details: Further paragraphs: the argument, the protocol, what to look at in the figure.
        references: Papers and books that it is based on.
    """

    id: str
    title: str
    kind: Kind
    statement: str
    refuted_by: str
    seconds: Mapping[str, float]
    check: Check
    planted: Mapping[str, Any]
    erratum: Erratum | None = None
    details: str = ""
    references: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("title", "statement", "refuted_by", "details"):
            object.__setattr__(self, name, Text(getattr(self, name)))
        if self.erratum is not None:
            object.__setattr__(self, "erratum", replace(self.erratum, id=self.id, title=self.title))

    @property
    def row(self) -> Row:
        """The row of the course."""
        found = _ID.fullmatch(self.id)
        assert found is not None
        return ROWS[found[1]]

    @property
    def code(self) -> str:
        """The source code of the check, without the `@claim` decorator."""
        lines = inspect.getsource(self.check).splitlines()
        start = next(place for place, line in enumerate(lines) if line.startswith("def "))
        return "\n".join(lines[start:])


@dataclass(frozen=True)
class Exercise:
    """An exercise of the course, with an answer that is checked.

    Attributes:
        number: Its number in the course, with the source: `notes 1.1`.
        row: The row of the course that it belongs to.
        question: The question in our own words.
        hints: Hints in order, each giving away more.
        solution: The answer with its steps.
        check: Returns the numbers that the answer must meet.
        planted: Settings of the check that replace the answer with a wrong one.
    """

    number: str
    row: str
    question: str
    hints: Sequence[str]
    solution: str
    check: Callable[..., Sequence[Number]]
    planted: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("question", "solution"):
            object.__setattr__(self, name, Text(getattr(self, name)))
        object.__setattr__(self, "hints", tuple(Text(hint) for hint in self.hints))


_claims: dict[str, Claim] = {}
_exercises: dict[str, Exercise] = {}
_errata: dict[str, Erratum] = {}


def claim(
    id: str,
    title: Words,
    *,
    kind: Kind,
    statement: Words,
    refuted_by: Words,
    seconds: Mapping[str, float],
    planted: Mapping[str, Any],
    erratum: Erratum | None = None,
    details: Words = "",
    references: Sequence[str] = (),
) -> Callable[[Check], Check]:
    """Register a check as a claim of the book; see `Claim` for the arguments."""
    found = _ID.fullmatch(id)
    assert found is not None, f"claim {id!r}: no id such as A5 or A5b"
    assert found[1] in ROWS, f"claim {id!r}: not a row of the course"
    assert kind in KINDS, f"claim {id!r}: no such kind as {kind!r}"
    assert {"quick"} <= set(seconds) <= set(SCALES), f"claim {id!r}: seconds are given for quick and others"
    assert planted, f"claim {id!r}: needs a wrong version that its check rejects"

    def enter(check: Check) -> Check:
        assert id not in _claims, f"claim {id!r} exists twice"
        _claims[id] = Claim(
            id=id,
            title=Text(title),
            kind=kind,
            statement=Text(statement),
            refuted_by=Text(refuted_by),
            seconds=dict(seconds),
            check=check,
            planted=dict(planted),
            erratum=erratum,
            details=Text(details),
            references=tuple(references),
        )
        return check

    return enter


def exercise(
    number: str,
    row: str,
    *,
    question: Words,
    solution: Words,
    planted: Mapping[str, Any],
    hints: Sequence[Words] = (),
) -> Callable[[Callable[..., Sequence[Number]]], Callable[..., Sequence[Number]]]:
    """Register an exercise of the book; see `Exercise` for the arguments."""
    assert row in ROWS, f"exercise {number!r}: {row!r} is not a row of the course"

    def enter(check: Callable[..., Sequence[Number]]) -> Callable[..., Sequence[Number]]:
        assert number not in _exercises, f"exercise {number!r} exists twice"
        texts = tuple(Text(hint) for hint in hints)
        _exercises[number] = Exercise(
            number, row, Text(question), texts, Text(solution), check, dict(planted)
        )
        return check

    return enter


def erratum(
    id: str,
    title: Words,
    *,
    place: str,
    quote: str,
    written: Words,
    corrected: Words,
    why: Words = "",
    citation: str = "",
) -> Callable[[Check], Check]:
    """Register an error in the source, with the check that shows it; see `Erratum`."""
    found = Erratum(
        Text(written), Text(corrected), Text(why), quote, place, id, Text(title), citation=citation
    )

    def enter(check: Check) -> Check:
        _enter_erratum(replace(found, check=check))
        return check

    return enter


def cited_erratum(
    id: str,
    title: Words,
    *,
    place: str,
    quote: str,
    written: Words,
    corrected: Words,
    citation: str,
    why: Words = "",
) -> None:
    """Register an error in the source about a fact of the world, with a citation; see `Erratum`."""
    assert citation, f"erratum {id!r}: a fact about the world needs a citation"
    _enter_erratum(
        Erratum(Text(written), Text(corrected), Text(why), quote, place, id, Text(title), citation=citation)
    )


def _enter_erratum(one: Erratum) -> None:
    assert not one.of_claim, f"erratum {one.id!r}: an entry of its own is numbered, as in I5.1"
    assert one.row.id in ROWS
    assert one.quote, f"erratum {one.id!r}: needs the words of the source"
    assert one.place.split()[0] in AUTHORS, f"erratum {one.id!r}: the place begins with a source"
    assert one.id not in _errata, f"erratum {one.id!r} exists twice"
    _errata[one.id] = one


def entered() -> tuple[dict[str, Claim], dict[str, Exercise], dict[str, Erratum]]:
    """Return the claims, exercises and errata that the imported chapters have registered."""
    return _claims, _exercises, _errata


def settings_of(check: Callable[..., Any]) -> list[str]:
    """Return the settings of a check that a planted error may change."""
    return [name for name in inspect.signature(check).parameters if name != "run"]


__all__ = [
    "Claim",
    "Erratum",
    "Evidence",
    "Exercise",
    "Running",
    "cited_erratum",
    "claim",
    "erratum",
    "exercise",
]
