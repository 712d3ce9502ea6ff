"""The report of a comparison: one HTML file that opens offline, drawn from its folder alone."""

from __future__ import annotations

import os
from pathlib import Path

from apoint.report import charts, closing, tables
from apoint.report.curves import ComparisonRuns
from apoint.report.frame import document
from apoint.report.head import head, title
from apoint.report.markup import element
from apoint.report.record import ComparisonRecord
from apoint.store import write_atomically

PAGE = "report.html"


def comparison_html(folder: str | os.PathLike[str], beside: str | os.PathLike[str] | None = None) -> str:
    """The report of a comparison as HTML; the same folder gives the same bytes.

    Args:
        folder: The comparison folder, `<runs root>/comparisons/<name>-<id>`.
        beside: The folder that the page will lie in, from where run folders are linked; default `folder`.
    """
    record = ComparisonRecord.read(folder)
    return record_html(record, Path(folder if beside is None else beside).resolve())


def record_html(record: ComparisonRecord, beside: Path | None = None) -> str:
    """The report of a comparison that was read, or made in memory from scores alone.

    Args:
        record: The comparison. If it has no folder, the page leaves out what only a folder can tell.
        beside: The folder that the page will lie in, from where run folders are linked; None for no links.
    """
    runs = ComparisonRuns.read(record)
    in_folder = record.folder is not None
    body = [
        head(record, runs),
        charts.pairs_section(record),
        charts.looks_section(record),
        charts.curves_section(record, runs),
        tables.companions_section(record),
        tables.difference_section(record) if in_folder else None,
        tables.declaration_section(record) if in_folder else None,
        tables.pairs_table(record, beside),
        closing.cost_section(record) if in_folder else None,
        closing.reproduce_section(record.reproduce),
        closing.versions_section(runs) if in_folder else None,
        closing.foot() if in_folder else closing.foot("scores"),
    ]
    return document(title(record), element("main", body))


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


def is_report_of(path: str | os.PathLike[str], command: str) -> bool:
    """Whether a file is the report that this command wrote when it was given before.

    Args:
        path: The file; there may be none.
        command: What was typed.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return text.startswith("<!DOCTYPE html>") and closing.reproduce_section(command) in text
