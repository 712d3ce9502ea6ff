"""The page of a chapter: for each row its claims, with statement, numbers, pictures, code and exercises."""

from __future__ import annotations

from collections.abc import Sequence

from apoint.book import prose
from apoint.book.card import SIGNS, signed, value_words
from apoint.book.claim import Claim, Erratum, Exercise
from apoint.book.course import Row
from apoint.book.drawing import panel_svg
from apoint.book.evidence import Number, all_hold
from apoint.book.outcome import Outcome
from apoint.book.picture import Picture
from apoint.book.site.frame import badge, erratum_place, quotation, whole
from apoint.book.site.shelf import Shelf
from apoint.report.figures.svg import NAMESPACE
from apoint.report.markup import Markup, element, join, raw, table
from apoint.report.words import count, duration

_STATE_CLASSES = {True: "yes", False: "no", None: "open"}
_STATE_WORDS = {True: "met", False: "not met", None: "not decided"}


def page(shelf: Shelf, letter: str) -> str:
    """Return the page of a chapter."""
    title = f"{letter}. {shelf.chapters[letter]}"
    rows = [row for row in shelf.rows.values() if row.chapter == letter]
    head = element("header", element("h1", title), element("p", _lead(shelf, letter), class_="lead"))
    contents = element(
        "ul",
        [
            element("li", element("a", element("span", row.id, class_="id"), row.title, href=f"#{row.id}"))
            for row in rows
        ],
        class_="contents",
    )
    body = [_row(shelf, row) for row in rows]
    return whole(shelf, f"{letter.lower()}.html", title, head, contents, body, _onwards(shelf, letter))


def _lead(shelf: Shelf, letter: str) -> str:
    own = shelf.of_chapter(letter)
    if not own:
        return "Not yet written."
    verdicts = [shelf.verdict(claim) for claim in own]
    each = [
        f"{verdicts.count(verdict)} {verdict or 'not yet run'}"
        for verdict in sorted(set(verdicts), key=lambda one: one or "~")
    ]
    return f"{count(len(own), 'claim')}: {', '.join(each)}."


def _onwards(shelf: Shelf, letter: str) -> Markup:
    letters = list(shelf.chapters)
    here = letters.index(letter)
    before = letters[here - 1] if here else None
    after = letters[here + 1] if here + 1 < len(letters) else None
    links = [
        element("a", f"{arrow} {one}. {shelf.chapters[one]}", href=f"{one.lower()}.html") if one else None
        for arrow, one in (("←", before), ("→", after))
    ]
    return element("nav", links, class_="onwards", aria_label="Neighbouring chapters")


# -- rows and claims ------------------------------------------------------------------------------------


def _row(shelf: Shelf, row: Row) -> Markup:
    own = shelf.of_row(row.id)
    doubt = " · the source is wrong or loose here" if row.doubtful else ""
    alone = len(own) == 1
    title = prose.inline(own[0].title) if alone else row.title
    mark = badge(shelf.verdict(own[0])) if alone else None
    heading = element("h2", element("span", element("span", row.id, class_="id"), title), mark)
    source = element("p", f"{row.source}{doubt}", class_="kicker")
    if not own:
        body = [element("p", "Not yet written.", class_="soft")]
    else:
        body = [_claim(claim, shelf.outcomes.get(claim.id), headed=not alone) for claim in own]
    slips = _slips(shelf.entries_of(row.id))
    tasks = [_exercise(shelf, each) for each in shelf.exercises_of(row.id)]
    anchor = None if any(claim.id == row.id for claim in own) else row.id
    return element("section", heading, source, body, slips, tasks, id=anchor)


def _slips(errata: Sequence[Erratum]) -> Markup | None:
    """Errata that belong to no claim, one line each; the list of errata has the rest."""
    if not errata:
        return None
    lines = [
        element(
            "li",
            element("a", prose.inline(one.title), href=erratum_place(one)),
            f" ({one.place}): ",
            prose.inline(one.corrected),
        )
        for one in errata
    ]
    title = "Also wrong in the source"
    return element("div", element("h4", title), element("ul", lines), class_="slips")


def _claim(claim: Claim, outcome: Outcome | None, headed: bool) -> Markup:
    named = [element("span", claim.id, class_="id"), prose.inline(claim.title)]
    heading = element("h3", element("span", named), badge(outcome.verdict if outcome else None))
    parts = [
        heading if headed else None,
        element("p", _facts(claim, outcome), class_="kicker"),
        element("div", prose.markup(claim.statement), class_="prose statement"),
        _erratum(claim, outcome) if claim.erratum else None,
        element("div", prose.markup(claim.details), class_="prose") if claim.details else None,
        _evidence(claim, outcome),
        _code(claim),
        _references(claim),
    ]
    return element("article", parts, class_="claim", id=claim.id)


def _facts(claim: Claim, outcome: Outcome | None) -> str:
    if outcome is None:
        costs = ", ".join(f"{scale} {duration(seconds)}" for scale, seconds in claim.seconds.items())
        return f"{claim.kind} · to be run: {costs}"
    run = f"{outcome.scale} scale, {duration(outcome.seconds)}"
    when = f" · {outcome.date} with apoint {outcome.versions['apoint']}" if outcome.date else ""
    return f"{claim.kind} · {run}{when}"


def _erratum(claim: Claim, outcome: Outcome | None) -> Markup:
    assert claim.erratum is not None
    written = outcome.as_written if outcome else ()
    ways = [
        element(
            "div",
            element("h5", label),
            element("div", prose.markup(words), class_="prose"),
            _numbers(numbers, f"{claim.id}, {label.lower()}") if numbers else None,
        )
        for label, words, numbers in (
            ("As written", claim.erratum.written, written),
            ("As corrected", claim.erratum.corrected, outcome.numbers if outcome else ()),
        )
    ]
    why = element("div", prose.markup(claim.erratum.why), class_="prose") if claim.erratum.why else None
    words = quotation(claim.erratum)
    return element(
        "div", element("h4", "Erratum"), words, element("div", ways, class_="ways"), why, class_="erratum"
    )


def _evidence(claim: Claim, outcome: Outcome | None) -> Markup:
    if outcome is None:
        command = element("code", f"apoint book run {claim.id}")
        return element("p", "Not yet run: ", command, class_="soft")
    both_ways = claim.erratum is not None  # the numbers are next to those of the source
    parts = [
        None if both_ways else _numbers(outcome.numbers, f"Numbers of {claim.id}"),
        _said("", outcome.remark),
        _said("What would decide it: ", outcome.would_take),
        [picture_figure(one, f"{claim.id}-{place}") for place, one in enumerate(outcome.pictures)],
        _said("What would change the answer: ", claim.refuted_by),
    ]
    return join(parts)


def _said(label: str, words: str) -> Markup | None:
    if not words:
        return None
    return element("div", prose.markup(f"{label}{words}"), class_="prose soft")


def _numbers(numbers: Sequence[Number], label: str) -> Markup:
    rows = [
        (
            join(prose.inline(one.name), element("small", prose.inline(one.remark)) if one.remark else None),
            value_words(one),
            signed(prose.plain(one.requirement)),
            element(
                "span", SIGNS[one.holds], class_=_STATE_CLASSES[one.holds], title=_STATE_WORDS[one.holds]
            ),
        )
        for one in numbers
    ]
    return table(label, ("number", "value", "must be", ""), rows, "evidence")


def picture_figure(picture: Picture, name: str) -> Markup:
    """A picture with its caption.

    Args:
        picture: What to draw.
        name: A word that is unique on the page.
    """
    panels = [
        raw(panel_svg(panel, f"{name}-{place}").replace(f' xmlns="{NAMESPACE}"', "", 1))
        for place, panel in enumerate(picture.panels)
    ]
    again = f" Drawn again from our data: {picture.figure}." if picture.figure else ""
    caption = element("figcaption", prose.inline(picture.caption), again)
    return element("figure", element("div", panels, class_="panels"), caption, class_="pictures")


def _code(claim: Claim) -> Markup:
    module = claim.check.__module__.replace(".", "/")
    code = element("div", element("pre", claim.code), class_="code", tabindex=0)
    where = element("p", element("span", f"{module}.py", class_="path"), class_="soft")
    return element("details", element("summary", "Code of the check"), where, code)


def _references(claim: Claim) -> Markup | None:
    if not claim.references:
        return None
    return element("p", "After ", prose.inline("; ".join(claim.references)), ".", class_="soft")


# -- exercises ------------------------------------------------------------------------------------------


def _exercise(shelf: Shelf, exercise: Exercise) -> Markup:
    hints = [
        _folded(f"Hint {place}" if len(exercise.hints) > 1 else "Hint", prose.markup(hint))
        for place, hint in enumerate(exercise.hints, 1)
    ]
    solution = join(prose.markup(exercise.solution), _checked(shelf.answers.get(exercise.number, ())))
    return element(
        "div",
        element("h4", f"Exercise {exercise.number}"),
        element("div", prose.markup(exercise.question), class_="prose"),
        element("div", hints, _folded("Solution", solution), class_="aside"),
        class_="exercise",
        id=exercise_anchor(exercise),
    )


def exercise_anchor(exercise: Exercise) -> str:
    """The anchor of an exercise on its page."""
    letters = (letter if letter.isalnum() else "-" for letter in exercise.number)
    return f"exercise-{''.join(letters)}"


def _folded(title: str, inner: Markup) -> Markup:
    return element("details", element("summary", title), element("div", inner, class_="prose"))


def _checked(numbers: Sequence[Number]) -> Markup | None:
    if not numbers:
        return None
    state = all_hold(one.holds for one in numbers)
    words = {True: "Checked by the machine", False: "The machine says no", None: "Not decided by the machine"}
    rows = _numbers(numbers, "Numbers of the answer")
    return join(element("p", f"{words[state]}: {count(len(numbers), 'number')}.", class_="checked"), rows)
