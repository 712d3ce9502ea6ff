"""Many changes in rows: the mean and interval of each against the same zero and the same margin."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Sequence
from typing import Any

from apoint.report.figures.canvas import SMALL, Drawing, finite, key_area, key_line, label_ticks, sheet
from apoint.report.improvement.record import Entry
from apoint.report.palette import light
from apoint.report.panels import padded
from apoint.report.words import (
    NO_INTERVAL,
    OUTCOME_SYMBOLS,
    Digits,
    confidence,
    count,
    metric_name,
    metric_unit,
)

STYLES: dict[str, tuple[str, str]] = {  # the colour and the marker of an outcome
    "better": ("candidate", "^"),
    "worse": ("worsened", "v"),
    "equivalent": ("baseline", "s"),
    "undecided": ("ink", "o"),
    "": ("ink", "o"),  # screened: there is no verdict
}
_LABEL_LETTERS = 25
_ROW, _LINE, _AROUND = 30.0, 13.0, 118.0  # heights: a row, a further line of its label, title and legend
_REACH = 6.0  # beyond this many times what is usual, a row is cut at the edge, and its number written
_FEWEST_TO_CUT = 4
_CUT_WORDS = 0.15  # of what is shown


def effects(
    entries: Sequence[Entry], metric: str, margin: float, digits: Digits, name: str = "effects"
) -> str:
    """One row for each entry that has pairs, as SVG; the first on top.

    Args:
        entries: Screened changes, or comparisons.
        metric: The metric they compare.
        margin: The smallest difference that matters.
        digits: How numbers are written.
        name: A word that is unique on the page.
    """
    rows = [entry for entry in entries if entry.known]
    assert rows, "a figure needs an entry that has pairs"
    labels = [_wrapped(entry) for entry in rows]
    places = _places(labels)
    height = _AROUND + _ROW * len(rows) + _LINE * sum(label.count("\n") for label in labels)
    title = f"difference in {metric_name(metric)} ({metric_unit(metric)}), right of zero is better"
    with sheet(name, height, title) as drawing:
        limits = cut(rows, margin)
        _frame(drawing, labels, places, margin, limits)
        for entry, place in zip(rows, places, strict=True):
            _draw_pairs(drawing, entry, place, limits)
            _draw_row(drawing, entry, place, limits, digits)
        drawing.legend(_legend(rows, margin))
        return drawing.svg(_label(rows, digits))


def cut(rows: Sequence[Entry], margin: float) -> tuple[float, float]:
    """The range of the horizontal axis: every interval, unless one is so far away that others are unreadable.

    A change that makes training fail moves a metric a hundred times more than one that helps a little.
    """
    reaches = [max(finite([abs(end) for end in (*entry.interval, entry.effect)]), default=0.0)
               for entry in rows]  # fmt: skip
    ends = finite([end for entry in rows for end in (*entry.interval, entry.effect)])
    ends += [0.0, *finite([margin, -margin])]
    most = _REACH * max(statistics.median(reaches), *finite([margin]), 0.0)
    near = [end for end in ends if abs(end) <= most or len(rows) < _FEWEST_TO_CUT]
    low, high = min(near), max(near)
    words = _CUT_WORDS * (high - low)  # room for the number of a row that is cut
    return padded(low - words * (min(ends) < low), high + words * (max(ends) > high), 0.06)


def _wrapped(entry: Entry) -> str:
    symbol = OUTCOME_SYMBOLS.get(entry.outcome, "")
    lines = textwrap.wrap(entry.label, _LABEL_LETTERS, max_lines=3, placeholder=" …") or [""]
    return "\n".join([*lines[:-1], f"{lines[-1]} {symbol}".rstrip()])


def _places(labels: Sequence[str]) -> list[float]:
    """The heights of the rows, the last at 0; a label of several lines gets room for them."""
    places: list[float] = []
    height = half = 0.0
    for label in reversed(labels):
        room = 0.5 + label.count("\n") * _LINE / _ROW / 2
        height += half + room if places else 0.0
        places.append(height)
        half = room
    return places[::-1]


def _frame(
    drawing: Drawing,
    labels: Sequence[str],
    places: Sequence[float],
    margin: float,
    limits: tuple[float, float],
) -> None:
    from matplotlib.ticker import MaxNLocator

    axes = drawing.axes
    axes.set_xlim(*limits)
    air = 0.6 + labels[-1].count("\n") * _LINE / _ROW / 2, 0.6 + labels[0].count("\n") * _LINE / _ROW / 2
    axes.set_ylim(-air[0], places[0] + air[1])
    axes.grid(False)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    label_ticks(axes.xaxis, signed=True)
    if math.isfinite(margin):
        band = axes.axvspan(-margin, margin, color=light("margin"), linewidth=0, zorder=0)
        drawing.mark(band, "margin", value=margin)
    axes.axvline(0, color=light("ink"), linewidth=1.2, zorder=1)
    axes.set_yticks(list(places), list(labels))
    for words in axes.get_yticklabels():
        words.set_fontsize(SMALL)
        words.set_color(light("ink"))


def _draw_pairs(drawing: Drawing, entry: Entry, place: float, limits: tuple[float, float]) -> None:
    """Draw every pair as a short stroke behind the interval; those beyond the edge are not drawn."""
    inside = [value for value in entry.differences if limits[0] <= value <= limits[1]]
    if inside:
        (drawn,) = drawing.axes.plot(
            inside, [place - 0.28] * len(inside), color=light("edge"), marker="|", markersize=6,
            markeredgewidth=1.0, linestyle="none", zorder=2,
        )  # fmt: skip
        drawing.mark(drawn, "pairs", number=len(inside))


def _draw_row(
    drawing: Drawing, entry: Entry, place: float, limits: tuple[float, float], digits: Digits
) -> None:
    role, marker = STYLES.get(entry.outcome, STYLES["undecided"])
    outside = _within(entry.effect, limits) != entry.effect
    shape = (">" if entry.effect > 0 else "<") if outside else marker
    hollow = entry.outcome in ("undecided", "") and not outside
    (mean,) = drawing.axes.plot(
        [_within(entry.effect, limits)], [place], color=light(role), marker=shape, markersize=8.5,
        markerfacecolor=light("paper") if hollow else light(role),
        markeredgecolor=light(role) if hollow else light("paper"), markeredgewidth=1.6 if hollow else 1.0,
        linestyle="none", zorder=4 + entry.has_interval, clip_on=False,
    )  # fmt: skip
    pointed = mean
    if entry.has_interval:
        drawing.mark(mean, "effect-mean")
        (pointed,) = drawing.axes.plot(
            [_within(end, limits) for end in entry.interval], [place, place], color=light(role),
            linewidth=2.2, solid_capstyle="butt", marker="|", markersize=9, markeredgewidth=1.8, zorder=4,
        )  # fmt: skip
    low, high = entry.interval
    facts = {"effect": entry.effect, "lower": low, "upper": high}
    drawing.mark(pointed, f"mark effect {entry.outcome or 'screened'}", describe(entry, digits), **facts)
    if outside:
        sign = -1 if entry.effect > 0 else 1
        words = drawing.axes.annotate(
            digits.signed(entry.effect), (_within(entry.effect, limits), place), xytext=(sign * 10, 0),
            textcoords="offset points", va="center", ha="left" if sign > 0 else "right", fontsize=10.5,
            color=light("ink"), zorder=6,
        )  # fmt: skip
        drawing.mark(words, "halo wide")


def _within(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])


def describe(entry: Entry, digits: Digits) -> str:
    """The numbers of an entry, line by line."""
    sure = f"{confidence(entry.alpha)} interval" if entry.outcome else "one standard error:"
    change = f"{entry.change}\n" if entry.change else ""
    return (
        f"{entry.label}: {entry.outcome or 'screened'}\n{change}mean {digits.signed(entry.effect)} over "
        f"{count(entry.pairs, 'pair')}\n"
        f"{f'{sure} {digits.span(entry.interval)}' if entry.has_interval else NO_INTERVAL}"
    )


def _legend(rows: Sequence[Entry], margin: float) -> list[Any]:
    entries = []
    for outcome, (role, marker) in STYLES.items():
        if any(entry.outcome == outcome for entry in rows):
            words = f"{OUTCOME_SYMBOLS[outcome]} {outcome}" if outcome else "mean, one standard error"
            key = key_line(words, role, linewidth=2.2, marker=marker, markersize=7)
            if outcome in ("undecided", ""):
                key.set_markerfacecolor(light("paper"))
                key.set_markeredgecolor(light(role))
            entries.append(key)
    if math.isfinite(margin):
        entries.append(key_area("within the margin", "margin"))
    return entries


def _label(rows: Sequence[Entry], digits: Digits) -> str:
    told = "; ".join(describe(entry, digits).replace("\n", ", ") for entry in rows[:3])
    more = f"; and {len(rows) - 3} more" if len(rows) > 3 else ""
    return f"{count(len(rows), 'change')}, one row each. {told}{more}. Arrow keys step through them."
