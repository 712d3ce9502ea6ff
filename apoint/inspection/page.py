"""The report of an inspection: one HTML file that opens offline, drawn only from its plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import apoint
from apoint.inspection import cards, charts, tables
from apoint.inspection.values import count_levels, failed_stages, healthy_of, number
from apoint.report import fields
from apoint.report.frame import document
from apoint.report.markup import Markup, element
from apoint.report.words import THIN_SPACE, count, duration

_STYLE = """
.badge.full{background:var(--worsened);color:var(--paper);border-color:var(--worsened)}
.numbers.inspected{grid-template-columns:1.3fr 1.2fr .8fr 1.2fr .9fr .9fr}
.card{border:1px solid var(--rule);border-left:5px solid var(--edge);border-radius:4px;
 padding:1em 1.2em;margin:1.1em 0}
.card.severe{border-left-color:var(--worsened)}
.card.warning{border-left:5px double var(--worsened)}
.card h3{font-size:1.15rem;margin:0 0 .35em}
.card h3 code{font-weight:600}
.card h4{margin:0 0 .3em;font-size:1rem}
.card.minor{border-width:1px 0 0;border-radius:0;padding:.8em 0 .2em;margin:.6em 0 0}
.card.minor h3{font-size:1rem}
.beside{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:1em 2em;margin-top:.7em}
.beside>div>p:first-child{margin-top:0}
.symptom{font-weight:600}
.treatment{background:var(--panel);border-radius:4px;padding:.8em 1em;align-self:start}
.treatment .command{background:var(--paper);border:1px solid var(--rule);margin:.5em 0;padding:.55em .8em;
 justify-content:flex-end}
.treatment pre{flex:1 1 auto;max-width:100%;font-size:.84rem}
.treatment button{padding:.1em .8em}
.against{margin:.8em 0}
.against svg{max-width:400px;font-family:var(--font)}
.against figcaption{margin-top:.1em}
.against text{fill:var(--ink);font-size:12px}
.against text.soft{fill:var(--soft)}
.against text.ink{font-weight:700}
.against .track{stroke:var(--edge);stroke-width:1.5px;fill:none}
.against .band{fill:var(--margin);stroke:none}
.against .ends{stroke:var(--ink);stroke-width:2px;fill:none}
.against .number{fill:var(--ink);stroke:var(--paper);stroke-width:1px}
.against .number.worse{fill:var(--worsened)}
.heat .cells,.heat .bar{shape-rendering:crispEdges}
.heat .cells .none{fill:var(--panel)}
.heat .cells .sign{fill:none;stroke:var(--ink);stroke-width:1.2px;pointer-events:none;shape-rendering:auto}
.heat .cells .on{stroke:var(--ink);stroke-width:2px}
.heat .frame{fill:none;stroke:var(--edge);stroke-width:1px;pointer-events:none}
.heat .bar .tick{stroke:var(--edge);fill:none}
.heat text.soft{fill:var(--soft)}
.figures,.signs{overflow-wrap:normal}
.figures td,.figures thead th,.signs td,.signs thead th{white-space:nowrap}
.figures th:first-child{width:auto}
.figures th[scope=row],.signs th[scope=row],.signs td:last-child{overflow-wrap:anywhere;min-width:8em}
.figures td:nth-child(n+3),.figures thead th:nth-child(n+3),.signs td:nth-child(2),
.signs thead th:nth-child(2){text-align:right}
.words td small{display:block;color:var(--soft)}
.times{grid-template-columns:repeat(auto-fill,minmax(118px,1fr))}
.unchecked dt{font-weight:600}
.unchecked dd{margin:0 0 .6em;color:var(--soft)}
@media screen and (max-width:719px){
 .numbers.inspected{grid-template-columns:repeat(2,minmax(0,1fr))}
 .beside{grid-template-columns:minmax(0,1fr)}
 .card{padding:.8em .9em}
 .figures,.signs{font-size:.86rem}
 .figures th,.figures td,.signs th,.signs td{padding-right:.9em}
}
@media print{
 .card:not(.minor),.card.minor{break-inside:avoid}
 .figures,.signs{font-size:8pt}
 .figures th,.figures td,.signs th,.signs td{padding-right:.8em}
 .treatment,.treatment .command{border:1px solid var(--rule)}
}
"""


def inspection_html(report: Mapping[str, Any]) -> str:
    """The report of an inspection as HTML; the same values give the same bytes.

    Args:
        report: What `Report.to_dict` returns, or its JSON loaded again.
    """
    body = [
        _head(report),
        cards.findings_section(report),
        charts.trainings_section(report),
        charts.depth_section(report),
        tables.operations_section(report),
        tables.readings_section(report),
        tables.signs_section(report),
        tables.unchecked_section(report),
        tables.stages_section(report),
        _foot(),
    ]
    title = element("title", f"{_outcome(report)[1]}: {_name(report)}")
    return document(title, element("main", body), _STYLE)


def _name(report: Mapping[str, Any]) -> str:
    return fields.text(report.get("name")) or "a model"


def _outcome(report: Mapping[str, Any]) -> tuple[str, str]:
    """The worst level, and the word for it."""
    levels = count_levels(report.get("findings"))
    for level, word in (("severe", "Severe"), ("warning", "Warning")):
        if levels[level]:
            return level, word
    return "", "Not all checked" if failed_stages(report) else "Nothing wrong"


def _head(report: Mapping[str, Any]) -> Markup:
    """The outcome in plain words, what was inspected, and the key numbers."""
    level, word = _outcome(report)
    sound = element("span", f"✓ {word}", class_="badge better")
    open_ = element("span", f"? {word}", class_="badge worse")
    mark = cards.badge(level) if level else open_ if failed_stages(report) else sound
    kind = fields.text(fields.mapping(report.get("model")).get("class"))
    what = f"Inspection of {_name(report)}" + (f", a {kind}" if kind not in ("", _name(report)) else "")
    headline, rest = _headline(fields.text(report.get("sentence")) or f"{word}.")
    return element(
        "header", element("p", mark, element("span", what), class_="kicker"), element("h1", headline),
        element("p", rest, class_="lead") if rest else None, _numbers(report),
    )  # fmt: skip


def _headline(sentence: str) -> tuple[str, str]:
    """The outcome as a headline, and the line under it with the number that shows it."""
    first, full_stop, rest = sentence.partition(". ")
    return (f"{first}.", rest) if full_stop else (sentence, "")


def _numbers(report: Mapping[str, Any]) -> Markup:
    model = fields.mapping(report.get("model"))
    signs = fields.mapping(report.get("signs"))
    outside = sum(bool(tables.side(number(value), healthy_of(name))) for name, value in signs.items())
    left_out = len(fields.mapping(report.get("unchecked")))
    spent = tables.total_seconds(report)
    rows = [
        ("Findings", *_findings(report)),
        ("Parameters", _large(model.get("parameters")), _trainable(model)),
        ("Layers", str(len(fields.mapping(model.get("layers")))), "with parameters of their own"),
        ("Signs looked at", str(len(signs)), f"{outside} outside the healthy range"),
        ("Not checked", str(left_out), "the reasons are below" if left_out else "nothing was left out"),
        ("Time", duration(spent) if math.isfinite(spent) else "not known", "all stages together"),
    ]
    return element("dl", [_number(*row) for row in rows], class_="numbers inspected")


def _number(name: str, value: str, remark: str) -> Markup:
    return element("div", element("dt", name), element("dd", value, element("small", remark)))


def _findings(report: Mapping[str, Any]) -> tuple[str, str]:
    levels = count_levels(report.get("findings"))
    words = [f"{number} {level}" if level == "severe" else count(number, level)
             for level, number in levels.items() if number]  # fmt: skip
    follow = len(fields.items(report.get("follows")))
    words += [f"{follow} more {'follows' if follow == 1 else 'follow'} from them"] if follow else []
    none = "not all could be checked" if failed_stages(report) else "nothing wrong was seen"
    return str(sum(levels.values())), ", ".join(words) or none


def _large(value: Any) -> str:
    whole = fields.maybe_whole(value)
    return "not known" if whole is None else f"{whole:,}".replace(",", THIN_SPACE)


def _trainable(model: fields.Json) -> str:
    if model.get("trainable") == model.get("parameters"):
        return "all trainable"
    return f"{_large(model.get('trainable'))} trainable"


def _foot() -> Markup:
    words = (
        f"Drawn by apoint {apoint.__version__} from the plain values of the inspection alone. This file "
        "loads nothing; deleting it loses nothing."
    )
    return element("footer", element("p", words))
