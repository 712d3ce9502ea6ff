"""The findings as cards: what was seen against what is healthy, why, and next to that what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apoint.inspection.figures import against
from apoint.inspection.values import ends, failed_stages, number, range_words
from apoint.report import fields
from apoint.report.markup import Markup, element
from apoint.report.words import count, listed, percent

LEVELS = {"severe": "■ Severe", "warning": "▲ Warning", "note": "○ Note"}
_BADGES = {"severe": "badge worse full", "warning": "badge worse", "note": "badge"}


def badge(level: str) -> Markup:
    """A level as a word, a symbol and a shape."""
    known = level if level in LEVELS else "note"
    return element("span", LEVELS[known], class_=_BADGES[known])


def findings_section(report: Mapping[str, Any]) -> Markup:
    """The root causes, the most probable first; then the findings that follow from them."""
    found = [fields.mapping(each) for each in fields.items(report.get("findings"))]
    if found:
        lead = "The most probable cause first. Fix it, inspect again, and only then turn to the next."
        body: list[Markup] = [_card(place, finding) for place, finding in enumerate(found, 1)]
    else:
        failed = failed_stages(report)
        lead = "None: nothing that was looked at points to something wrong."
        lead += f" Not all was: {listed(failed)} could not be checked." if failed else ""
        body = []
    follows = [fields.mapping(each) for each in fields.items(report.get("follows"))]
    return element(
        "section", element("h2", "Findings"), element("p", lead, class_="soft"), body, _follows(follows)
    )


def _card(place: int, finding: fields.Json) -> Markup:
    treatment = fields.mapping(finding.get("treatment"))
    seen = element(
        "div", element("p", finding.get("symptom"), class_="symptom"), _place(finding), strip(finding),
        _quantity(finding), element("p", finding.get("cause")), _details(finding),
    )  # fmt: skip
    body = element("div", seen, _treatment(treatment, place), class_="beside")
    level = fields.text(finding.get("level"))
    return element(
        "article", element("h3", f"{place}. ", _code(finding)), _facts(finding), body, class_=f"card {level}",
        aria_label=f"Finding {place}",
    )  # fmt: skip


def _place(finding: fields.Json) -> Markup | None:
    place = fields.text(finding.get("place"))
    return element("p", "At ", element("code", place)) if place else None


def _details(finding: fields.Json) -> Markup | None:
    facts = fields.mapping(finding.get("details"))
    rows = [element("div", element("dt", name), element("dd", str(fact))) for name, fact in facts.items()]
    return element("dl", rows, class_="unchecked") if rows else None


def _code(finding: fields.Json) -> list[Markup | str]:
    layer = fields.text(finding.get("layer"))
    where: list[Markup | str] = [" in ", element("code", layer)] if layer else []
    return [fields.text(finding.get("code")), *where]


def _facts(finding: fields.Json) -> Markup:
    stage = fields.text(finding.get("stage"))
    course = fields.texts(finding.get("course"))
    facts = [f"confidence {percent(number(finding.get('confidence')))}"]
    facts += [f"stage: {stage}"] if stage else []
    facts += [f"course: {listed(course)}"] if course else []
    spans = [element("span", fact) for fact in facts]
    return element("p", badge(fields.text(finding.get("level"))), spans, class_="kicker")


def strip(finding: fields.Json) -> Markup | None:
    """Draw the number against its healthy range."""
    pair = (*fields.items(finding.get("healthy")), None, None)[:2]
    value, level = number(finding.get("value")), fields.text(finding.get("level"))
    return against(value, ends(*pair), fields.text(finding.get("unit")), level)


def _quantity(finding: fields.Json) -> Markup | None:
    """What the number is, where the symptom does not show it."""
    quantity = fields.text(finding.get("quantity"))
    return element("p", f"The number is the {quantity}.", class_="soft") if quantity else None


def _treatment(treatment: fields.Json, place: int) -> Markup:
    """The change in words, as code and as the comparison that tests it, the last two with a copy button."""
    code, command = fields.text(treatment.get("code")), fields.text(treatment.get("command"))
    parts = [element("p", treatment.get("words"))]
    parts += [copied(code, f"code{place}")] if code else []
    if command:
        named = "base.yaml" in command  # the name that stands for a recipe that is not known
        words = "Test it, with your recipe in place of base.yaml:" if named else "Test it:"
        parts += [element("p", words, class_="soft"), copied(command, f"command{place}")]
    return element("div", element("h4", "What to change"), parts, class_="treatment")


def copied(text: str, name: str) -> Markup:
    """Lines of code with a copy button.

    Args:
        text: The lines.
        name: A name that is unique on the page.
    """
    lines = element("pre", element("code", text, id=name))
    button = element("button", "Copy", type="button", data_copy=name, hidden=True)
    return element("div", lines, button, class_="command")


def _follows(follows: Sequence[fields.Json]) -> Markup | None:
    if not follows:
        return None
    causes = list(dict.fromkeys(fields.text(each.get("explained_by")) for each in follows))
    verb = "follows" if len(follows) == 1 else "follow"
    summary = f"Also seen: {count(len(follows), 'finding')} that {verb} from {listed(causes)}"
    return element("details", element("summary", summary), [_consequence(each) for each in follows])


def _consequence(finding: fields.Json) -> Markup:
    treatment = fields.mapping(finding.get("treatment"))
    pair = (*fields.items(finding.get("healthy")), None, None)[:2]
    healthy = range_words(ends(*pair))
    range_ = f" Healthy: {healthy}." if healthy else ""
    origin = f"Follows from {fields.text(finding.get('explained_by'))}. If it stays after that is fixed: "
    return element(
        "article", element("h3", _code(finding)), _facts(finding),
        element("p", f"{fields.text(finding.get('symptom'))}{range_} {fields.text(finding.get('cause'))}"),
        element("p", origin, fields.text(treatment.get("words")), class_="soft"), class_="card minor",
    )  # fmt: skip
