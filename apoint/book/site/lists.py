"""The list of errata and the reading list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from apoint.book import prose
from apoint.book.card import SIGNS, signed, value_words
from apoint.book.claim import Claim, Erratum
from apoint.book.evidence import Number
from apoint.book.site.frame import badge, erratum_place, place, quotation, whole
from apoint.book.site.shelf import Shelf
from apoint.report.markup import Markup, element, join
from apoint.report.words import count


def errata_page(shelf: Shelf) -> str:
    """Return the page of all errata: the words of the source, as written, as corrected, and the evidence."""
    found = shelf.errata
    cited = sum(not one.of_claim and one.check is None for one in found.values())
    decided = sum(_ruling(shelf, one) == "holds as corrected" for one in found.values())
    ways = {
        "shown by a number that the printed form gets wrong": decided,
        "by a publication": cited,
        "not decided or not yet run": len(found) - decided - cited,
    }
    lead = (
        f"{count(len(found), 'place')} where the course is wrong, loose, or not what small networks show "
        + "here: "
        + ", ".join(f"{number} {words}" for words, number in ways.items() if number)
        + ". The French words are quoted from the course."
    )
    head = element("header", element("h1", "Errata"), element("p", lead, class_="lead"))
    parts = [_errata_of_chapter(shelf, letter) for letter in shelf.chapters]
    return whole(shelf, "errata.html", "Errata", head, _contents(found.values()), parts)


def _ruling(shelf: Shelf, one: Erratum) -> str | None:
    """The verdict of an erratum's check, if it has one and it was run."""
    if one.of_claim:
        outcome = shelf.outcomes.get(one.id)
        return outcome.verdict if outcome else None
    return shelf.examined[one.id][0] if one.id in shelf.examined else None


def _contents(errata: Iterable[Erratum]) -> Markup:
    lines = [
        element(
            "li",
            element(
                "a",
                element("span", one.id, class_="id"),
                element("span", prose.inline(one.title)),
                href=f"#{_anchor(one)}",
            ),
        )
        for one in errata
    ]
    return element("ul", lines, class_="contents numbered")


def _errata_of_chapter(shelf: Shelf, letter: str) -> Markup | None:
    own = [one for one in shelf.errata.values() if one.row.chapter == letter]
    if not own:
        return None
    title = element("a", f"{letter}. {shelf.chapters[letter]}", href=f"{letter.lower()}.html")
    return element("section", element("h2", title), [_erratum(shelf, one) for one in own])


def _anchor(erratum: Erratum) -> str:
    return erratum_place(erratum).partition("#")[2]


def _erratum(shelf: Shelf, erratum: Erratum) -> Markup:
    verdict, written, corrected = _found(shelf, erratum)
    row = erratum.row
    target = erratum.id if erratum.of_claim else row.id
    named = element(
        "a",
        element("span", erratum.id, class_="id"),
        prose.inline(erratum.title),
        href=f"{row.chapter.lower()}.html#{target}",
    )
    is_cited = not erratum.of_claim and erratum.check is None
    mark = element("span", "cited", class_="badge none") if is_cited else badge(verdict)
    ways = [
        element(
            "div",
            element("h5", label),
            element("div", prose.markup(words), class_="prose"),
            _decisive(*numbers),
        )
        for label, words, numbers in (
            ("As written", erratum.written, (written, False)),
            ("As corrected", erratum.corrected, (corrected, True)),
        )
    ]
    why = element("div", prose.markup(erratum.why), class_="prose soft") if erratum.why else None
    source = element("p", "Source: ", prose.inline(erratum.citation), ".", class_="soft")
    return element(
        "article",
        element("h3", named, mark),
        quotation(erratum),
        element("div", ways, class_="ways"),
        why,
        source if erratum.citation else None,
        class_="entry",
        id=_anchor(erratum),
    )


def _found(shelf: Shelf, erratum: Erratum) -> tuple[str | None, Sequence[Number], Sequence[Number]]:
    """The verdict, and the numbers of the printed and of the corrected form, if there are any."""
    if erratum.of_claim:
        outcome = shelf.outcomes.get(erratum.id)
        return (outcome.verdict, outcome.as_written, outcome.numbers) if outcome else (None, (), ())
    if erratum.id not in shelf.examined:
        return None, (), ()
    verdict, evidence = shelf.examined[erratum.id]
    return verdict, evidence.as_written, evidence.numbers


def _decisive(numbers: Sequence[Number], wanted: bool) -> Markup | None:
    """The first number that shows what it should: that the source is wrong, or the correction right."""
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
        class_="soft decisive",
    )


def reading_page(shelf: Shelf) -> str:
    """Return the page of all references, with the claims that rest on them."""
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
