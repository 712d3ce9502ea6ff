"""Texts by language: English is always there, other languages fall back to it, and nothing else is known."""

from __future__ import annotations

import copy
import pickle

import pytest

from apoint.book import claims, exercises
from apoint.book.text import LANGUAGES, Text


def test_a_text_is_its_english_version() -> None:
    text = Text({"en": "  A ball\n  is round.", "fr": "Une boule est ronde."})
    assert text == "A ball\nis round."
    assert text.into("fr") == "Une boule est ronde."
    assert text.into("en") == str(text)
    assert Text("only English").into("fr") == "only English"


def test_a_text_survives_copying() -> None:
    text = Text({"en": "ball", "fr": "boule"})
    for again in (copy.deepcopy(text), pickle.loads(pickle.dumps(text)), Text(text)):
        assert again.by_language == text.by_language


@pytest.mark.parametrize(
    ("source", "words"), [({"fr": "boule"}, "English"), ({"en": "ball", "de": "Ball"}, "language as de")]
)
def test_a_text_without_english_or_of_an_unknown_language_is_refused(
    source: dict[str, str], words: str
) -> None:
    with pytest.raises(AssertionError, match=words):
        Text(source)


def test_every_text_of_the_book_is_keyed_by_language() -> None:
    texts = [
        text
        for claim in claims().values()
        for text in (claim.title, claim.statement, claim.refuted_by, claim.details)
    ]
    errata = [claim.erratum for claim in claims().values() if claim.erratum]
    texts += [text for erratum in errata for text in (erratum.written, erratum.corrected, erratum.why)]
    texts += [text for each in exercises().values() for text in (each.question, each.solution, *each.hints)]
    assert all(isinstance(text, Text) and set(text.by_language) <= set(LANGUAGES) for text in texts)
