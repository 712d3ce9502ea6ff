"""The differences: one row per pair, sorted, with the mean and its interval below them."""

from __future__ import annotations

import math
from typing import Any

from apoint.errors import cut
from apoint.report.figures.canvas import SMALL, Drawing, key_area, key_line, label_ticks, sheet
from apoint.report.figures.slope import HEIGHT, STYLES, describe_pair
from apoint.report.palette import light
from apoint.report.panels import padded
from apoint.report.record import ComparisonRecord, Pair
from apoint.report.scale import digits_of
from apoint.report.words import NO_INTERVAL, confidence, metric_name, metric_unit

MOST_LABELLED_ROWS = 24
_WORDED_ROW = 13.0  # the height of a row with words in it
_MEAN_ROW = 13.0  # how far the mean is below the last pair, at least
_MOST_LETTERS = 20  # of an arm's name on the larger side of zero
_ROWS_HEIGHT = 0.72 * HEIGHT  # what title, axis and legend leave for rows


def forest(record: ComparisonRecord, name: str = "forest") -> str:
    """Every pair's difference as a row, as SVG.

    Args:
        record: The comparison.
        name: A word that is unique on the page.
    """
    pairs = sorted(record.pairs, key=lambda pair: (pair.difference, pair.number))
    metric = record.verdict.metric
    with sheet(name, HEIGHT, f"difference in {metric_name(metric)} ({metric_unit(metric)})") as drawing:
        limits = _limits(record, pairs)
        heights = _heights(pairs, limits)
        _frame(drawing, record, list(zip(pairs, heights, strict=True)), limits)
        for pair, height in zip(pairs, heights, strict=True):
            _draw_row(drawing, record, pair, height, limits)
        _draw_mean(drawing, record, _mean_height(len(pairs)))
        drawing.legend(_legend(record))
        return drawing.svg(_label(record))


def _limits(record: ComparisonRecord, pairs: list[Pair]) -> tuple[float, float]:
    """The range of the horizontal axis: all pairs that did not fail, the interval, the margin and zero."""
    verdict = record.verdict
    values = [pair.difference for pair in pairs if not any(pair.failed)]
    values += [*verdict.interval, verdict.effect, 0.0, verdict.margin, -verdict.margin]
    values = [value for value in values if math.isfinite(value)]
    return padded(min(values), max(values), 0.05)


def _is_outside(pair: Pair, limits: tuple[float, float]) -> bool:
    return not limits[0] <= pair.difference <= limits[1]


def _heights(pairs: list[Pair], limits: tuple[float, float]) -> list[float]:
    """The heights of the rows, the last at 1; a row with words gets room for them."""
    room = max(1.0, _WORDED_ROW / _ROWS_HEIGHT * len(pairs))
    heights, height = [], 1.0
    for pair in reversed(pairs):
        half = (room if _is_outside(pair, limits) else 1.0) / 2
        height += half - 0.5
        heights.append(height)
        height += half + 0.5
    return heights[::-1]


def _mean_height(num_rows: int) -> float:
    """The height of the mean: a row below zero, more where rows are narrow."""
    return -max(0.95, _MEAN_ROW / _ROWS_HEIGHT * num_rows)


def _frame(
    drawing: Drawing, record: ComparisonRecord, rows: list[tuple[Pair, float]], limits: tuple[float, float]
) -> None:
    from matplotlib.ticker import MaxNLocator

    axes, margin = drawing.axes, record.verdict.margin
    axes.set_xlim(*limits)
    top, mean = rows[0][1], _mean_height(len(rows))
    axes.set_ylim(2 * mean, top + 1.0 + top / 14)
    axes.grid(False)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    label_ticks(axes.xaxis, signed=True)
    if math.isfinite(margin):
        drawing.mark(axes.axvspan(-margin, margin, color=light("margin"), linewidth=0, zorder=0), "margin")
    axes.axvline(0, color=light("ink"), linewidth=1.2, zorder=1)
    axes.axhline(0, color=light("rule"), linewidth=1.0, zorder=1)
    _say_direction(drawing, record, limits)
    named = [(mean, "mean")]
    if len(rows) <= MOST_LABELLED_ROWS:
        named += [(height, pair.name) for pair, height in rows]
    axes.set_yticks([height for height, _ in named], [words for _, words in named])
    for words in axes.get_yticklabels():
        words.set_fontsize(SMALL if len(rows) <= 16 else 11)
    axes.get_yticklabels()[0].set_color(light("ink"))
    axes.get_yticklabels()[0].set_fontsize(SMALL)


def _say_direction(drawing: Drawing, record: ComparisonRecord, limits: tuple[float, float]) -> None:
    """Write which arm the larger side of zero favours, at its top."""
    right = limits[1] > -limits[0]
    names = {part: cut(name, _MOST_LETTERS) for part, name in record.verdict.arm_names.items()}
    words = drawing.axes.annotate(
        f"{names['candidate']} better →" if right else f"← {names['baseline']} better", (0, 1),
        xycoords=drawing.axes.get_xaxis_transform(), xytext=(7 if right else -7, -1),
        textcoords="offset points", ha="left" if right else "right", va="top", fontsize=SMALL,
        color=light("soft"),
    )  # fmt: skip
    drawing.mark(words, "direction")


def _draw_row(
    drawing: Drawing, record: ComparisonRecord, pair: Pair, row: float, limits: tuple[float, float]
) -> None:
    """Draw a stem from zero to the difference; an arrow at the edge if a failed replica leads out of it."""
    role, line = STYLES[pair.kind]
    outside = _is_outside(pair, limits)
    end = min(max(pair.difference, limits[0]), limits[1])
    marker: Any = (">" if end > 0 else "<") if outside else "X" if any(pair.failed) else "o"
    (drawn,) = drawing.axes.plot(
        [0, end], [row, row], color=light(role), linestyle=line, linewidth=1.5, marker=marker, markevery=[1],
        markersize=7 if marker != "o" else 5, markeredgewidth=0, zorder=3, clip_on=False,
    )  # fmt: skip
    tip = describe_pair(record, pair)
    drawing.mark(drawn, f"mark row {pair.kind}", tip, difference=pair.difference)
    if outside:
        words = drawing.axes.annotate(
            f"{digits_of(record).signed(pair.difference)}, failed", (end, row),
            xytext=(-9 if end > 0 else 9, 0), textcoords="offset points", va="center",
            ha="right" if end > 0 else "left", fontsize=10.5, color=light("ink"), zorder=6,
        )  # fmt: skip
        drawing.mark(words, "halo wide")


def _draw_mean(drawing: Drawing, record: ComparisonRecord, height: float) -> None:
    verdict = record.verdict
    if verdict.has_interval:
        (line,) = drawing.axes.plot(
            verdict.interval, [height, height], color=light("ink"), linewidth=2.4, marker="|", markersize=11,
            markeredgewidth=2.0, solid_capstyle="butt", zorder=5, clip_on=False,
        )  # fmt: skip
        digits = digits_of(record)
        tip = f"Mean difference {digits.signed(verdict.effect)}\ninterval {digits.span(verdict.interval)}"
        drawing.mark(line, "mark interval", tip, lower=verdict.interval[0], upper=verdict.interval[1])
    (mean,) = drawing.axes.plot(
        [verdict.effect], [height], color=light("ink"), marker="D", markersize=9,
        markeredgecolor=light("paper"), markeredgewidth=1.2, linestyle="none", zorder=6, clip_on=False,
    )  # fmt: skip
    drawing.mark(mean, "mean", effect=verdict.effect)


def _legend(record: ComparisonRecord) -> list[Any]:
    verdict = record.verdict
    name = f"{confidence(verdict.interval_alpha)} interval" if verdict.has_interval else NO_INTERVAL
    mean = key_line(f"mean, {name}", "ink", linewidth=2.4, marker="D", markersize=7)
    margin = key_area("within the margin", "margin")
    return [mean, margin] if math.isfinite(verdict.margin) else [mean]


def _label(record: ComparisonRecord) -> str:
    digits, verdict = digits_of(record), record.verdict
    interval = f"interval {digits.span(verdict.interval)}" if verdict.has_interval else NO_INTERVAL
    return (
        f"Differences of {verdict.pairs} pairs, sorted; mean {digits.signed(verdict.effect)}, {interval}. "
        "Arrow keys step through the pairs."
    )
