"""The report of a search for a better recipe: one HTML file, drawn from its folder alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from apoint.report import closing, fields
from apoint.report.figures.effects import effects
from apoint.report.frame import document, figure, section
from apoint.report.head import as_headline, cost_words, key_number, notice
from apoint.report.improvement.record import Entry, ImprovementRecord
from apoint.report.markup import Markup, element, join, table
from apoint.report.page import PAGE
from apoint.report.tables import declared_table, setting
from apoint.report.verdict_record import declared_number
from apoint.report.words import (
    NO_INTERVAL,
    OUTCOME_SYMBOLS,
    OUTCOME_WORDS,
    budget_words,
    confidence,
    count,
    duration,
    listed,
    metric_name,
    metric_unit,
)
from apoint.store import write_atomically

_UNFINISHED = {
    "running": "The search is still running: this is what was known when the page was drawn.",
    "interrupted": "The search was interrupted: this is what is known so far. The same command resumes "
    "it, and what is here stays valid.",
    "unknown": "The record does not say how the search ended: this is what can be read of it.",
}
_STYLE = """
.changes th:first-child{width:auto}
.changes thead th{white-space:nowrap}
.changes td:nth-child(2){white-space:nowrap;font-weight:600}
.changes td:nth-child(n+3){white-space:nowrap}
.changes .why{display:block;color:var(--soft);font-size:.88rem}
figure.single svg{max-width:600px}
@media screen and (max-width:719px){
 .changes thead{display:none}
 .changes tr{display:grid;grid-template-columns:auto auto 1fr;gap:0 1em;padding:.45em 0;
  border-bottom:1px solid var(--rule)}
 .changes th,.changes td{border:0;padding:.05em 0}
 .changes th[scope=row]{grid-column:1/-1}
 .changes td:nth-child(4){grid-column:1/3;color:var(--soft)}
 .changes td:nth-child(5):not(:empty)::after{content:" pairs"}
}
"""


def improvement_html(folder: str | os.PathLike[str], beside: str | os.PathLike[str] | None = None) -> str:
    """The report of a search as HTML; the same folder gives the same bytes.

    Args:
        folder: The improvement folder, `<runs root>/improvements/<name>-<id>`.
        beside: The folder of the page, to which links to comparisons are relative; default `folder`.
    """
    record = ImprovementRecord.read(folder)
    place = Path(folder if beside is None else beside).resolve()
    body = [
        _head(record),
        _checks_section(record, place),
        _screen_section(record),
        _recipe_section(record),
        _not_tried_section(record),
        _declaration_section(record),
        _cost_section(record),
        closing.reproduce_section(record.reproduce),
        closing.foot("improvement folder"),
    ]
    title = element("title", f"{'Improved' if record.kept else 'Not improved'}: {record.name}")
    return document(title, element("main", body), _STYLE)


def write_improvement_report(
    folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None
) -> Path:
    """Write the report of a search; an existing one is replaced in one step.

    Args:
        folder: The improvement folder.
        path: The path of the page; default `report.html` in the folder.
    """
    place = Path(folder) / PAGE if path is None else Path(path)
    write_atomically(place, improvement_html(folder, place.resolve().parent))
    return place


# -- the top ------------------------------------------------------------------------------------------------


def _head(record: ImprovementRecord) -> Markup:
    sentence = as_headline(record.sentence, record.metric) or "Nothing was trained yet."
    return element(
        "header", _kicker(record), element("h1", sentence), _setting(record), _notices(record),
        _numbers(record),
    )  # fmt: skip


def _kicker(record: ImprovementRecord) -> Markup:
    if record.state in _UNFINISHED:
        badges = [element("span", record.state.capitalize(), class_="badge")]
    elif record.kept:
        badges = [element("span", f"{OUTCOME_SYMBOLS['better']} Improved", class_="badge better")]
    else:
        badges = [element("span", "Stays as it is", class_="badge")]
    if fields.texts(record.declaration.get("exploratory")):
        badges.append(element("span", "Exploratory", class_="badge worse"))
    return element("p", badges, element("span", f"Search {record.name}"), class_="kicker")


def _setting(record: ImprovementRecord) -> Markup:
    declaration = record.declaration
    after = budget_words(fields.mapping(declaration.get("budget")))
    higher = declaration.get("higher_is_better") is not False
    words = [
        f"Recipe {fields.text(declaration.get('recipe'))}",
        f"{metric_name(declared_number(declaration))} ({metric_unit(record.metric)}, "
        f"{'higher' if higher else 'lower'} is better)" + (f" after {after}" if after else ""),
        "every change is trained with the same seeds as the recipe itself",
        fields.text(declaration.get("screen_note")).replace(
            record.screen_metric, metric_name(record.screen_metric)
        ),
    ]
    return element("p", "; ".join(filter(None, words)) + ".", class_="lead")


def _notices(record: ImprovementRecord) -> list[Markup]:
    found = []
    exploratory = tuple(filter(None, fields.texts(record.declaration.get("exploratory"))))
    if exploratory:
        found.append(notice("Exploratory, not confirmatory: these seeds were seen before.", *exploratory))
    if record.state in _UNFINISHED:
        found.append(notice(_UNFINISHED[record.state]))
    return found


def _numbers(record: ImprovementRecord) -> Markup:
    digits, verdict = record.digits, record.verdict
    rows = []
    if verdict is not None:
        rows = [
            ("Gain" if verdict.outcome == "better" else "Last check", digits.signed(verdict.effect),
             "mean paired difference on fresh seeds"),
            (f"{confidence(verdict.interval_alpha)} interval", digits.span(verdict.interval),
             f"from {count(verdict.pairs, 'pair')} that took no part in the choice"),
        ]  # fmt: skip
    better = sum(check.outcome == "better" for check in record.checks)
    rows += [
        ("Screened", str(len(record.screen)), "changes, against the recipe on the same seeds"),
        ("On fresh seeds", str(len(record.checks)), f"comparisons, {better} of them better"),
        ("Margin", digits.margin(record.margin), "the smallest difference that matters"),
        ("Cost", *cost_words(record.cost)),
    ]
    return element("dl", [key_number(*row) for row in rows], class_="numbers")


# -- what was found -----------------------------------------------------------------------------------------


def _checks_section(record: ImprovementRecord, place: Path) -> Markup | None:
    """The comparisons on fresh seeds, the only ones that count."""
    if not record.checks:
        return None
    rows = [[_compared(record, entry, place), *_cells(record, entry)] for entry in record.checks]
    lead = (
        "The best of many is partly lucky. So it is compared with the recipe again, on seeds that took no "
        "part in the choice, and the next best on top of it; only these numbers count. The first change that "
        "is not confirmed ends the search, which holds the chance of any false step at the declared rate."
    )
    body = table("Comparisons on fresh seeds", ("Comparison", "Verdict", "Mean", "Interval", "Pairs"), rows,
                 "wide changes")  # fmt: skip
    return section("On fresh seeds", lead, _drawn(record, record.checks, "fresh", record.metric), body)


def _compared(record: ImprovementRecord, entry: Entry, place: Path) -> Markup:
    """A comparison with its link, and what was changed in it."""
    change = entry.change
    told = element("small", change, class_="why") if change else None
    return join(_link(record, entry, place), told)


def _link(record: ImprovementRecord, entry: Entry, place: Path) -> Markup:
    """The name of a comparison, linked to its own report if that exists."""
    name = entry.comparison
    if name and name == Path(name).name:
        page = record.folder.resolve().parent.parent / "comparisons" / name / PAGE
        if page.is_file():
            path = os.path.relpath(page, place).replace(os.sep, "/")
            return element("a", entry.label, href=quote(path, safe="/."))
    return join(entry.label)


def _screen_section(record: ImprovementRecord) -> Markup:
    """Every change in the screen, as a figure and a table."""
    steps = [fields.mapping(each) for each in fields.items(record.declaration.get("screen"))]
    pairs = listed([fields.whole(step.get("pairs")) for step in steps])
    lead = (
        f"All changes on the same seeds, the better half going on after {pairs} pairs. This only chooses: "
        "there is no error rate here, and the best one's mean is flattered by its having been chosen."
        if steps
        else "A single change needs no screen: it is compared on fresh seeds at once."
    )
    told = [[_told(entry), *_screen_cells(record, entry)] for entry in record.screen]
    heads = ("Change", "Screen", "Mean", "Standard error", "Pairs")
    body = table("Every change", heads, told, "wide changes")
    return section("The screen", lead, _drawn(record, record.screen, "screen", record.screen_metric), body)


def _screen_cells(record: ImprovementRecord, entry: Entry) -> list[str]:
    if not entry.known:
        return ["not yet", "", "", ""]
    error = (entry.interval[1] - entry.interval[0]) / 2
    shown = record.digits.margin(error) if entry.has_interval else NO_INTERVAL
    return [
        "dropped" if entry.dropped else "best",
        record.digits.signed(entry.effect),
        shown,
        str(entry.pairs),
    ]


def _told(entry: Entry) -> Markup:
    """A change with what it sets, why it was tried, and the course item."""
    item = f" (course item {entry.course})" if entry.course else ""
    written = ", ".join(f"{path}={setting(value)}" for path, value in entry.changes)
    change = element("small", entry.change, class_="why") if entry.change else None
    return join(
        element("span", entry.label),
        change,
        element("small", f"{entry.reason}{item}", class_="why") if entry.reason else None,
        element("small", element("code", written), class_="why")
        if written not in ("", entry.label) and not change
        else None,
    )


def _cells(record: ImprovementRecord, entry: Entry) -> list[str]:
    if not entry.known:
        return ["not yet", "", "", ""]
    outcome = entry.outcome if entry.outcome in OUTCOME_WORDS else "undecided"
    word = f"{OUTCOME_SYMBOLS[outcome]} {OUTCOME_WORDS[outcome]}"
    return [word, record.digits.signed(entry.effect), record.digits.span(entry.interval), str(entry.pairs)]


def _drawn(record: ImprovementRecord, entries: Sequence[Entry], name: str, metric: str) -> Markup | None:
    known = [entry for entry in entries if entry.known]
    if not known:
        return None
    svg = effects(known, metric, record.margin, record.digits, name)
    alphas = [entry.alpha for entry in known if entry.outcome]
    of = f"{confidence(min(alphas))} intervals, valid over all looks" if alphas else "one standard error"
    caption = (
        f"{len(known)} of {len(entries)} drawn: mean paired differences with {of}; short strokes are single "
        "pairs of seeds, no smoothing. What lies beyond the edge is an arrow with its number. The shaded "
        f"band is the margin. Unit: {metric_unit(metric)}."
    )
    return figure(svg, caption, "single")


# -- what came of it ----------------------------------------------------------------------------------------


def _recipe_section(record: ImprovementRecord) -> Markup | None:
    """What the improved recipe changes, and its whole text to be copied."""
    if not record.improved:
        return None
    if not record.difference:
        lead, body = "Nothing was found to help, so this is the recipe as it was.", None
    else:
        lead = f"{listed(record.kept)}: what was confirmed, and nothing else."
        rows = [
            (element("code", path), element("code", setting(before)), element("code", setting(after)))
            for path, before, after in record.difference
        ]
        body = table("What was changed", ("Setting", "Before", "Improved"), rows, "wide")
    summary = element("summary", "The recipe as a file")
    text = element("details", summary, closing.to_copy(record.improved, "recipe"))
    return section("The improved recipe" if record.kept else "The recipe", lead, body, text)


def _not_tried_section(record: ImprovementRecord) -> Markup | None:
    listed_rows = [fields.mapping(each) for each in fields.items(record.declaration.get("not_tried"))]
    rows = [(fields.text(row.get("label")), fields.text(row.get("why"))) for row in listed_rows]
    if not rows:
        return None
    lead = "These were on the list and were not screened."
    return section("Not tried", lead, table("Not tried", ("Change", "Why not"), rows, "wide"))


def _declaration_section(record: ImprovementRecord) -> Markup:
    looks = fields.wholes(record.declaration.get("looks"))
    declaration = {**record.declaration, "max_pairs": looks[-1]} if looks else record.declaration
    lead = "Written down before the first replica was trained."
    return section("Declared in advance", lead, declared_table(declaration, record.digits))


def _cost_section(record: ImprovementRecord) -> Markup:
    spent, unit = cost_words(record.cost)
    wall = duration(fields.number(record.cost.get("wall_seconds")))
    expected = duration(fields.number(record.declaration.get("expected_seconds")))
    rows = [
        ("Training", f"{spent} {unit.split(',')[0]}", closing.replicas_words(record.cost)),
        ("By the clock", wall, f"{expected} were expected at most"),
    ]
    fleet = element("p", f"Fleet: {record.fleet}.", class_="soft") if record.fleet else None
    body = table("Cost", ("What", "Time", "Remark"), rows, "wide words")
    return element("section", element("h2", "Cost"), body, fleet)
