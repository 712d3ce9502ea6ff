"""Laws of the errata: the printed form fails, the corrected one holds, the words of the source are there."""

from __future__ import annotations

import pytest

from apoint.book import ROWS, Erratum, Evidence, claims, errata, prose
from apoint.book.claim import cited_erratum, erratum
from apoint.book.course import AUTHORS
from apoint.book.evidence import at_most
from apoint.book.library import course_order, examine
from apoint.book.text import Text

ERRATA = errata()
CHECKED = [id for id, one in ERRATA.items() if one.check is not None]
ARGUMENTS = {"place": "notes C.1", "quote": "mot", "written": "One.", "corrected": "Two."}


def made(written: float, corrected: float) -> Erratum:
    """An entry whose two forms hold where their number is at most 0."""

    def check(run: object) -> Evidence:
        return Evidence([at_most("number", corrected, 0.0)], [at_most("number", written, 0.0)])

    return Erratum("One.", "Two.", id="E2.99", title="Made up", check=check)


@pytest.mark.parametrize("id", CHECKED)
def test_the_printed_form_fails_and_the_corrected_one_holds(id: str) -> None:
    verdict, evidence = examine(ERRATA[id])
    assert verdict == "holds as corrected", evidence
    assert examine(ERRATA[id])[1] == evidence, "the same numbers again"


def test_an_entry_is_rejected_if_the_source_is_right_or_the_correction_wrong() -> None:
    assert examine(made(written=1, corrected=-1))[0] == "holds as corrected"
    assert examine(made(written=-1, corrected=-1))[0] == "holds"
    assert examine(made(written=1, corrected=1))[0] == "fails"
    assert examine(made(written=-1, corrected=1))[0] == "fails"


@pytest.mark.parametrize("id", list(ERRATA))
def test_an_erratum_says_all_it_must(id: str) -> None:
    one = ERRATA[id]
    assert one.id == id
    assert one.row.id in ROWS
    assert one.title
    assert one.quote
    assert one.place.split()[0] in AUTHORS
    assert one.attribution.endswith(one.place)
    assert one.written != one.corrected
    assert one.of_claim or one.check is not None or one.citation, "a check or a citation"
    for text in (one.title, one.written, one.corrected, one.why, one.quote, one.citation):
        prose.markup(text)
        assert "\\" not in prose.plain(text), text
    assert all(isinstance(text, Text) for text in (one.title, one.written, one.corrected, one.why))


def test_errata_of_claims_are_among_them_in_the_order_of_the_course() -> None:
    own = {id: claim.erratum for id, claim in claims().items() if claim.erratum}
    assert own.items() <= ERRATA.items()
    assert list(ERRATA) == sorted(ERRATA, key=course_order)
    assert sorted(["I10", "I5.2", "I5b", "I5.10", "I5", "H1"], key=course_order) == [
        "H1",
        "I5",
        "I5b",
        "I5.2",
        "I5.10",
        "I10",
    ]


def test_an_entry_without_number_source_or_citation_is_refused() -> None:
    for id in ("E2", "Z9.1", "E2.x"):
        with pytest.raises((AssertionError, KeyError)):
            cited_erratum(id, "Title", citation="Someone (1901)", **ARGUMENTS)
    with pytest.raises(AssertionError, match="citation"):
        cited_erratum("E2.98", "Title", citation="", **ARGUMENTS)
    with pytest.raises(AssertionError, match="begins with a source"):
        erratum("E2.98", "Title", **{**ARGUMENTS, "place": "page 3"})(lambda run: Evidence([]))
    with pytest.raises(AssertionError, match="words of the source"):
        erratum("E2.98", "Title", **{**ARGUMENTS, "quote": ""})(lambda run: Evidence([]))
    assert "E2.98" not in errata()
