"""Standalone pages, drawn from records alone: nothing is trained, nothing is fetched.

    record      a comparison folder as it can be read, whole or not
    curves      the runs it names: curves, bands over seeds, paired differences
    figures     each chart alone, as SVG with text as text
    page        the report: one HTML file that opens offline
    improvement the same for a search for a better recipe

Names load on first use, so that importing the package does not import matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apoint.report.improvement.page import improvement_html as improvement_html
    from apoint.report.improvement.page import write_improvement_report as write_improvement_report
    from apoint.report.improvement.record import ImprovementRecord as ImprovementRecord
    from apoint.report.page import comparison_html as comparison_html
    from apoint.report.page import record_html as record_html
    from apoint.report.page import write_comparison_report as write_comparison_report
    from apoint.report.record import ComparisonRecord as ComparisonRecord

_NAMES = {
    "ImprovementRecord": "apoint.report.improvement.record",
    "improvement_html": "apoint.report.improvement.page",
    "write_improvement_report": "apoint.report.improvement.page",
    "ComparisonRecord": "apoint.report.record",
    "comparison_html": "apoint.report.page",
    "record_html": "apoint.report.page",
    "write_comparison_report": "apoint.report.page",
}

__all__ = [
    "ComparisonRecord",
    "ImprovementRecord",
    "comparison_html",
    "improvement_html",
    "record_html",
    "write_comparison_report",
    "write_improvement_report",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'apoint.report' has no attribute {name!r}")
