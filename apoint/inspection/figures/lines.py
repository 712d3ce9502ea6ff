"""What line charts share: a logarithmic axis, names at the ends of lines, styles that need no colour."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apoint.report.figures.canvas import SMALL, Drawing, label_ticks
from apoint.report.palette import light
from apoint.report.panels import padded
from apoint.report.words import clean, short

HEIGHT = 320
LOG_ABOVE = 30.0  # a logarithmic axis if the largest value is more than this many times the smallest
STYLES: tuple[tuple[str, Any, str], ...] = (
    ("candidate", "solid", "o"),
    ("worsened", (0, (4.5, 2.0)), "s"),
    ("baseline", (0, (1.2, 1.8)), "^"),
    ("ink", (0, (7.0, 2.0, 1.5, 2.0)), "D"),
    ("soft", (0, (2.6, 1.4)), "v"),
)
_NAME_LETTERS, _MOST_LINES = 16, 3
_LINE_HEIGHT, _GAP = 14.5, 4.0


@dataclass(frozen=True)
class End:
    """The end of a line, where its name goes."""

    name: str
    role: str
    x: float
    y: float


def is_wide(values: Sequence[float]) -> bool:
    """Whether finite values span so wide a range that an axis should be logarithmic."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > LOG_ABOVE


def set_limits(drawing: Drawing, values: Sequence[float], logarithmic: bool) -> None:
    """Set a vertical axis that holds the values, with readable ticks."""
    if not logarithmic:
        drawing.axes.set_ylim(*padded(min(values), max(values)))
        label_ticks(drawing.axes.yaxis)
        return
    low, high = padded(math.log10(min(values)), math.log10(max(values)))
    if high - low < 1:  # less than a decade would exaggerate small differences
        low, high = (low + high) / 2 - 0.5, (low + high) / 2 + 0.5
    _set_log_scale(drawing, high - low)
    drawing.axes.set_ylim(10 ** max(low, -307), 10 ** min(high, 307))


def _set_log_scale(drawing: Drawing, decades: float) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    axis = drawing.axes.yaxis
    drawing.axes.set_yscale("log")
    subs = (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)
    axis.set_major_locator(LogLocator(10, subs=subs, numticks=8))
    axis.set_major_formatter(lambda value, _: short(value))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def name_ends(drawing: Drawing, found: Sequence[End]) -> None:
    """Put names right of the chart, each at the height of its line's end, moved apart where they touch."""
    names = [_name_end(drawing, end) for end in found]
    drawing.settle()
    axes = drawing.axes
    box = axes.get_window_extent()
    wanted = [float(axes.transData.transform((end.x, end.y))[1]) for end in found]
    sizes = [_LINE_HEIGHT * (1 + name.get_text().count("\n")) + _GAP for name in names]
    for name, old, new in zip(names, wanted, spread_out(wanted, sizes, box.y0, box.y1), strict=True):
        name.set_position((6, new - old))


def _name_end(drawing: Drawing, end: End) -> Any:
    lines = textwrap.wrap(clean(end.name), _NAME_LETTERS, max_lines=_MOST_LINES, placeholder=" …") or ["?"]
    words = drawing.axes.annotate(
        "\n".join(lines), (1, end.y), xycoords=drawing.axes.get_yaxis_transform(), xytext=(6, 0),
        textcoords="offset points", va="center", color=light(end.role), fontweight="bold", fontsize=SMALL,
        annotation_clip=False, linespacing=1.15,
    )  # fmt: skip
    drawing.mark(words, "name")
    return words


def spread_out(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Centres near the wanted ones, in the same order, with room for each size between two bounds.

    Args:
        wanted: The preferred centre of each.
        sizes: How much room each takes.
        low: The lower bound.
        high: The upper bound; if there is not enough room, the first ones extend beyond `low`.
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    centres = list(wanted)
    edge = low
    for place in order:
        centres[place] = max(centres[place], edge + sizes[place] / 2)
        edge = centres[place] + sizes[place] / 2
    edge = high
    for place in reversed(order):
        centres[place] = min(centres[place], edge - sizes[place] / 2)
        edge = centres[place] - sizes[place] / 2
    return centres
