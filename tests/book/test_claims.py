"""The laws of the book, for every claim and exercise: it is decided, and a wrong version is rejected."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from apoint.book import ROWS, Exercise, Outcome, claims, exercises
from apoint.book.claim import Claim, settings_of
from apoint.book.evidence import all_hold
from apoint.book.library import answer, run_claim
from apoint.book.outcome import load

CLAIMS, EXERCISES = claims(), exercises()
LONG_SECONDS = 2.0
"""Checks that take longer run in `make study`, with the whole book."""
IN_TESTS = [id for id, one in CLAIMS.items() if one.seconds["quick"] <= LONG_SECONDS]
IN_STUDY = [id for id in CLAIMS if id not in IN_TESTS]
QUANTITIES = ("identity", "bound", "size")
WHOLE = {
    "K2b": "a whole number of neurons, of which one fewer is planted",
    "H1d": "a yes or no: the output moves with the input, and with zero padding it does not",
}
"""Claims about a quantity that has no error of a few percent."""
BOTH = [*IN_TESTS, *(pytest.param(id, marks=pytest.mark.slow) for id in IN_STUDY)]


def problems(outcome: Outcome) -> str:
    numbers = [*outcome.numbers, *outcome.as_written]
    return "; ".join(f"{n.name}: {n.value:.6g}, {n.requirement}: {n.holds}" for n in numbers)


@pytest.mark.parametrize("id", BOTH)
def test_a_claim_is_decided_and_its_wrong_version_rejected(id: str, tmp_path: Path) -> None:
    claim = CLAIMS[id]
    outcome = run_claim(claim, "quick", folder=tmp_path)
    assert outcome.verdict != "fails", problems(outcome)
    if claim.erratum is not None and outcome.verdict != "not decided at this scale":
        assert outcome.verdict == "holds as corrected", problems(outcome)
    path = outcome.save(tmp_path)
    assert load(path).to_plain() == outcome.to_plain()
    json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} in the record"))
    wrong = run_claim(claim, "quick", folder=tmp_path, **claim.planted)
    assert wrong.verdict == "fails", problems(wrong)


@pytest.mark.parametrize("number", list(EXERCISES))
def test_an_answer_is_right_and_a_wrong_one_rejected(number: str) -> None:
    exercise: Exercise = EXERCISES[number]
    assert all_hold(one.holds for one in answer(exercise)) is True, answer(exercise)
    assert all_hold(one.holds for one in answer(exercise, **exercise.planted)) is False
    assert exercise.hints
    assert exercise.question
    assert exercise.solution


@pytest.mark.parametrize("id", list(CLAIMS))
def test_a_claim_says_all_it_must(id: str) -> None:
    claim: Claim = CLAIMS[id]
    assert claim.statement
    assert claim.refuted_by
    assert claim.title
    assert set(claim.planted) <= set(settings_of(claim.check)), (
        "planted settings must be settings of the check"
    )
    assert claim.check.__doc__, "a check says in its first line what it does"
    assert claim.seconds["quick"] <= 60
    assert claim.seconds.get("standard", 0) <= 90 * 60
    assert claim.code.startswith("def ")
    for text in (claim.statement, claim.details, claim.refuted_by):
        assert text.count("$") % 2 == 0, f"a formula without end in {text!r}"


@pytest.mark.parametrize("id", [id for id, one in CLAIMS.items() if one.kind in QUANTITIES])
def test_a_quantity_is_planted_a_few_percent_off(id: str) -> None:
    claim = CLAIMS[id]
    if id in WHOLE:
        assert "factor" not in claim.planted
        return
    assert set(claim.planted) == {"factor"}, "a claim about a quantity multiplies it by a factor"
    assert 0.05 <= round(abs(claim.planted["factor"] - 1), 12) <= 0.10
    assert inspect.signature(claim.check).parameters["factor"].default == 1.0


def test_every_row_of_the_written_chapters_has_its_claim_and_its_erratum() -> None:
    rows = dict(ROWS)
    by_row: dict[str, list[Claim]] = {id: [] for id in rows}
    for claim in CLAIMS.values():
        by_row.setdefault(claim.row.id, []).append(claim)
    assert not [id for id in rows if not by_row[id]], "rows without a claim"
    doubtful = {id for id, row in rows.items() if row.doubtful}
    assert not [id for id in doubtful if not any(claim.erratum for claim in by_row[id])], "errata missing"
