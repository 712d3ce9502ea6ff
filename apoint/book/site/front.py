"""The front page: what the book is, the outcomes at a glance, the table of all rows, and the search."""

from __future__ import annotations

from apoint.book import prose
from apoint.book.outcome import RULINGS
from apoint.book.site import search
from apoint.book.site.frame import NAME, badge, place, whole
from apoint.book.site.shelf import Shelf
from apoint.report.markup import Child, Markup, element, raw, table
from apoint.report.words import duration

_LEAD = (
    "A course on training neural networks in which every statement is a check that runs. A statement holds, "
    "holds as corrected (the source has it wrong, and the number shows it), fails, or is not decided at the "
    "scale at which it was run."
)


def page(shelf: Shelf) -> str:
    """Return the front page."""
    head = element("header", element("h1", NAME), element("p", _LEAD, class_="lead"), _tally(shelf))
    parts = [_chapter(shelf, letter) for letter in shelf.chapters]
    return whole(shelf, "index.html", NAME, head, _search(), parts, script=search.script(shelf))


def _tally(shelf: Shelf) -> Markup:
    verdicts = [shelf.verdict(claim) for claim in shelf.claims.values()]
    unwritten = sum(not shelf.of_row(row) for row in shelf.rows)
    items = [(badge(verdict), verdicts.count(verdict)) for verdict in RULINGS if verdict in verdicts]
    if None in verdicts:
        items.append((badge(None), verdicts.count(None)))
    shown = [element("li", element("b", str(number)), " ", mark) for mark, number in items]
    if unwritten:
        shown.append(element("li", element("b", str(unwritten)), " rows not yet written", class_="soft"))
    return element("ul", shown, class_="tally")


def _search() -> Markup:
    box = raw(
        '<input type="search" class="find" id="find" autocomplete="off" aria-label="Search the book" '
        'placeholder="Search: Glorot, kernel, volume …">'
    )
    found = element("ul", class_="found", id="found")
    return element("div", box, element("p", id="found-words", class_="soft", role="status"), found,
                   class_="search", id="search")  # fmt: skip


def _chapter(shelf: Shelf, letter: str) -> Markup:
    title = element("a", f"{letter}. {shelf.chapters[letter]}", href=f"{letter.lower()}.html")
    rows = [row for row in shelf.rows.values() if row.chapter == letter]
    own = shelf.of_chapter(letter)
    if not own:
        names = ", ".join(row.title for row in rows)
        return element(
            "section", element("h2", title), element("p", f"Not yet written: {names}.", class_="soft")
        )
    lines = [line for row in rows for line in _lines(shelf, row.id)]
    inner = table(f"Outcomes of chapter {letter}", ("", "statement", "verdict", "scale"), lines, "outcomes")
    return element("section", element("h2", title), inner)


def _lines(shelf: Shelf, row: str) -> list[list[Child]]:
    own = shelf.of_row(row)
    if not own:
        link = element("a", row, href=f"{row[0].lower()}.html#{row}")
        return [[link, shelf.rows[row].title, element("span", "not yet written", class_="soft"), ""]]
    lines: list[list[Child]] = []
    for claim in own:
        outcome = shelf.outcomes.get(claim.id)
        scale = f"{outcome.scale}, {duration(outcome.seconds)}" if outcome else ""
        link = element("a", claim.id, href=place(claim))
        took = element("span", scale, class_="took")
        lines.append([link, prose.inline(claim.title), badge(outcome.verdict if outcome else None), took])
    return lines
