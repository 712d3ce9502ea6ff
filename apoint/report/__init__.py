"""Standalone pages, drawn from records alone: nothing is trained, nothing is fetched.

    record      a comparison folder as it can be read, whole or not
    curves      the runs it names: curves, bands over seeds, paired differences
    figures     each chart alone, as SVG with text as text
    page        the report: one HTML file that opens offline

Names load on first use, so that importing the package does not import matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apoint.report.page import comparison_html as comparison_html
    from apoint.report.page import write_comparison_report as write_comparison_report
    from apoint.report.record import ComparisonRecord as ComparisonRecord

_NAMES = {
    "ComparisonRecord": "apoint.report.record",
    "comparison_html": "apoint.report.page",
    "write_comparison_report": "apoint.report.page",
}

__all__ = ["ComparisonRecord", "comparison_html", "write_comparison_report"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'apoint.report' has no attribute {name!r}")
