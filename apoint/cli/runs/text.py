"""Text for a terminal: fitted to its width, in tables, with readable numbers and times."""

from __future__ import annotations

import math
import shutil
import sys
import time
import unicodedata
from collections.abc import Container, Mapping, Sequence
from typing import Any

from apoint.cli.terminal import paint
from apoint.store.lines import spelling

STATE_COLOURS = {
    "running": "cyan",
    "finished": "green",
    "failed": "red",
    "diverged": "red",
    "dead": "red",
    "stalled": "yellow",
    "interrupted": "yellow",
}


def columns() -> int:
    """The width to write in: that of the terminal, between 60 and 120."""
    return max(60, min(120, shutil.get_terminal_size((100, 24)).columns))


def draws_unicode() -> bool:
    """Whether standard output can show block and line characters."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "│└⣿…·".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def display_width(text: str) -> int:
    """How many cells a text takes: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def shorten(text: str, width: int) -> str:
    """The text in at most `width` cells; the middle of a longer text is left out."""
    if display_width(text) <= width:
        return text
    mark = "…" if draws_unicode() else "~"
    tail = (width - 1) // 2
    head = width - 1 - tail
    while head > 0 and display_width(text[:head] + text[-tail:]) > width - 1:  # wide characters
        head -= 1
    return text[:head] + mark + text[-tail:]


def table(
    rows: Sequence[Sequence[str]], right: Container[int] = (), colours: Mapping[str, str] | None = None
) -> list[str]:
    """Lines of a plain table, the first row its header.

    Args:
        rows: The cells.
        right: The columns to align right.
        colours: The colour of cells with this text.
    """
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for place, (text, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - display_width(text))
            shown = paint(text, (colours or {}).get(text))
            cells.append(blank + shown if place in right else shown + blank)
        lines.append("  ".join(cells).rstrip())
    return lines


def number(value: Any) -> str:
    """A metric in readable form: four digits, with an exponent for large and small values."""
    if not isinstance(value, int | float):
        return "-"
    return f"{value:.4g}" if math.isfinite(value) else spelling(value)


def ago(moment: float | None, now: float | None = None) -> str:
    """How long ago a moment was, such as `3 h ago`."""
    if moment is None:
        return "-"
    seconds = max(0.0, (time.time() if now is None else now) - moment)
    return f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """A length of time in its natural unit, such as `14 s` or `3 h`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
