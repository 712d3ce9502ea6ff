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
        beside: The folder of the page, to which links to run folders are relative; default `folder`.
    """
    record = ComparisonRecord.read(folder)
    return record_html(record, Path(folder if beside is None else beside).resolve())


def record_html(record: ComparisonRecord, beside: Path | None = None) -> str:
    """The report of a comparison that was read, or built in memory from scores alone.

    Args:
        record: The comparison. If it has no folder, the page leaves out what only a folder provides.
        beside: The folder of the page, to which links to run folders are relative; None for no links.
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
        path: The path of the page; default `report.html` in the folder.
    """
    place = Path(folder) / PAGE if path is None else Path(path)
    write_atomically(place, comparison_html(folder, place.resolve().parent))
    return place


def is_report_of(path: str | os.PathLike[str], command: str) -> bool:
    """Whether a file is the report that an earlier run of this command wrote.

    Args:
        path: The file; it need not exist.
        command: The command as typed.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return text.startswith("<!DOCTYPE html>") and closing.reproduce_section(command) in text
