"""The report of a comparison: one HTML file that opens offline, drawn from its folder alone."""

from __future__ import annotations

import os
from pathlib import Path

from apoint.report import charts, closing, tables
from apoint.report.curves import ComparisonRuns
from apoint.report.head import head, title
from apoint.report.markup import Markup, element, join, raw
from apoint.report.record import ComparisonRecord
from apoint.report.script import SCRIPT, policy
from apoint.report.style import sheet
from apoint.store import write_atomically

PAGE = "report.html"


def comparison_html(folder: str | os.PathLike[str], beside: str | os.PathLike[str] | None = None) -> str:
    """The report of a comparison as HTML; the same folder gives the same bytes.

    Args:
        folder: The comparison folder, `<runs root>/comparisons/<name>-<id>`.
        beside: The folder that the page will lie in, from where run folders are linked; default `folder`.
    """
    record = ComparisonRecord.read(folder)
    runs = ComparisonRuns.read(record)
    place = Path(folder if beside is None else beside).resolve()
    body = [
        head(record, runs),
        charts.pairs_section(record),
        charts.looks_section(record),
        charts.curves_section(record, runs),
        tables.companions_section(record),
        tables.difference_section(record),
        tables.declaration_section(record),
        tables.pairs_table(record, place),
        closing.cost_section(record),
        closing.reproduce_section(record),
        closing.versions_section(runs),
        closing.foot(),
    ]
    return "<!DOCTYPE html>\n" + _document(title(record), element("main", body)) + "\n"


def _document(heading: Markup, main: Markup) -> Markup:
    tip = element("div", id="tip", role="status", hidden=True)
    top = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy()),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        heading,
        element("style", raw(sheet())),
    ]
    script = element("script", raw(SCRIPT))
    lines = join(element("head", top), "\n", element("body", main, tip, script))
    return element("html", lines, lang="en")


def write_comparison_report(
    folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None
) -> Path:
    """Write the report of a comparison; an existing one is replaced in one step.

    Args:
        folder: The comparison folder.
        path: Where the page shall be; default `report.html` in the folder.
    """
    place = Path(folder) / PAGE if path is None else Path(path)
    write_atomically(place, comparison_html(folder, place.resolve().parent))
    return place
