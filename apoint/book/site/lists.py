"""The list of errata and the reading list."""

from __future__ import annotations

from collections.abc import Sequence

from apoint.book import prose
from apoint.book.card import SIGNS, signed, value_words
from apoint.book.claim import Claim
from apoint.book.evidence import Number
from apoint.book.site.frame import badge, place, whole
from apoint.book.site.shelf import Shelf
from apoint.report.markup import Markup, element, join
from apoint.report.words import count


def errata_page(shelf: Shelf) -> str:
    """All errata: as written, as corrected, and a number for each."""
    wrong = [claim for claim in shelf.claims.values() if claim.erratum]
    lead = (
        f"{count(len(wrong), 'statement')} of the course, checked as written and as corrected, each with the "
        "number that shows it."
    )
    head = element("header", element("h1", "Errata"), element("p", lead, class_="lead"))
    return whole(shelf, "errata.html", "Errata", head, [_erratum(shelf, claim) for claim in wrong])


def _erratum(shelf: Shelf, claim: Claim) -> Markup:
    assert claim.erratum is not None
    outcome = shelf.outcomes.get(claim.id)
    named = element("a", f"{claim.id} ", prose.inline(claim.title), href=place(claim))
    ways = [
        element(
            "div",
            element("h5", label),
            element("div", prose.markup(words), class_="prose"),
            _decisive(numbers, wanted),
        )
        for label, words, numbers, wanted in (
            ("As written", claim.erratum.written, outcome.as_written if outcome else (), False),
            ("As corrected", claim.erratum.corrected, outcome.numbers if outcome else (), True),
        )
    ]
    why = element("div", prose.markup(claim.erratum.why), class_="prose soft") if claim.erratum.why else None
    return element(
        "section",
        element("h2", named),
        element("p", claim.row.source, badge(outcome.verdict if outcome else None), class_="kicker"),
        element("div", ways, class_="ways"),
        why,
    )


def _decisive(numbers: Sequence[Number], wanted: bool) -> Markup | None:
    """The first number that says what it should: that the source is wrong, or the correction right."""
    if not numbers:
        return None
    one = next((each for each in numbers if each.holds is wanted), numbers[0])
    words = f": {value_words(one)}, must be "
    return element(
        "p",
        f"{SIGNS[one.holds]} ",
        prose.inline(one.name),
        words,
        signed(prose.plain(one.requirement)),
        class_="soft",
    )


def reading_page(shelf: Shelf) -> str:
    """All references with the claims that rest on them."""
    by_reference: dict[str, list[Claim]] = {}
    for claim in shelf.claims.values():
        for reference in claim.references:
            by_reference.setdefault(" ".join(reference.split()), []).append(claim)
    items = [
        element("li", prose.inline(reference), " ", element("span", _claims(own), class_="soft"))
        for reference, own in sorted(by_reference.items(), key=lambda item: item[0].casefold())
    ]
    lead = f"{count(len(items), 'work')} behind the claims, and where each is used."
    head = element("header", element("h1", "Reading"), element("p", lead, class_="lead"))
    return whole(shelf, "reading.html", "Reading", head, element("ul", items, class_="reading"))


def _claims(own: list[Claim]) -> Markup:
    links = [element("a", claim.id, href=place(claim)) for claim in own]
    return join("(", [join(", " if number else None, link) for number, link in enumerate(links)], ")")
