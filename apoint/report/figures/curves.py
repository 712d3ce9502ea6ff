"""Training curves: both arms with bands over seeds, and the paired difference along training."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from apoint.report.curves import Band, Curve
from apoint.report.figures.canvas import SMALL, Drawing, finite, key_line, label_ticks, sheet
from apoint.report.figures.slope import DASHED
from apoint.report.palette import light
from apoint.report.panels import Panel, padded
from apoint.report.record import ComparisonRecord
from apoint.report.scale import digits_of
from apoint.report.thinning import thin
from apoint.report.words import axis_title, count, metric_name, metric_unit, short

HEIGHT = 320
_LINES: dict[str, Any] = {"baseline": DASHED, "candidate": "solid"}


def training_curves(record: ComparisonRecord, panel: Panel, name: str = "curves") -> str:
    """One metric of both arms along training, as SVG.

    Args:
        record: The comparison.
        panel: What to draw, from `Panel.of_metric`.
        name: A word that is unique on the page.
    """
    title = axis_title(panel.metric, panel.higher_is_better) + (", log scale" if panel.logarithmic else "")
    with sheet(name, HEIGHT, title) as drawing:
        if panel.logarithmic:
            _set_log_scale(drawing)
        else:
            label_ticks(drawing.axes.yaxis)
        drawing.axes.set_ylim(*panel.limits)
        for arm in panel.bands:
            _draw_arm(drawing, panel, arm)
        _level_axis(drawing, panel.unit, panel.bands.values())
        drawing.legend(_legend(record, panel))
        _tell(drawing, record, panel)
        return drawing.svg(_label(record, panel))


def _set_log_scale(drawing: Drawing) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axis = drawing.axes.yaxis
    drawing.axes.set_yscale("log")
    axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0), numticks=7))
    axis.set_major_formatter(lambda value, _: short(value))
    axis.set_minor_formatter(NullFormatter())
    drawing.axes.tick_params(axis="y", which="minor", length=0)


def _draw_arm(drawing: Drawing, panel: Panel, arm: str) -> None:
    """Draw the median, the band, and single seeds where there are few."""
    found, line = panel.bands[arm], _LINES[arm]
    for curve in panel.lines[arm]:
        _draw_single(drawing, arm, line, curve)
    x, (median, low, high) = thin(found.x, found.median, found.low, found.high)
    if found.has_quantiles:
        area = drawing.axes.fill_between(x, low, high, color=light(arm), alpha=0.2, linewidth=0, zorder=2)
        drawing.mark(area, f"band {arm}")
    (middle,) = drawing.axes.plot(
        x, median, color=light(arm), linewidth=2.4, linestyle=line, zorder=5,
        marker="o" if len(x) == 1 else None,
    )  # fmt: skip
    drawing.mark(middle, f"median {arm}", seeds=str(found.num_curves), last=float(found.median[-1]))


def _draw_single(drawing: Drawing, arm: str, line: Any, curve: Curve) -> None:
    x, (values,) = thin(curve.x, np.where(np.isfinite(curve.values), curve.values, np.nan))
    (drawn,) = drawing.axes.plot(
        x, values, color=light(arm), linewidth=0.8, linestyle=line, alpha=0.55, zorder=3
    )
    drawing.mark(drawn, f"single {arm}", seed="" if curve.seed is None else str(curve.seed))


def _level_axis(drawing: Drawing, unit: str, bands: Collection[Band], from_zero: bool = True) -> None:
    from matplotlib.ticker import MaxNLocator

    last = max(float(each.x[-1]) for each in bands)
    first = min(float(each.x[0]) for each in bands)
    start = min(0.0, first) if from_zero else first
    drawing.axes.set_xlim(start, last if last > start else start + 1.0)
    drawing.axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    drawing.axes.set_xlabel(unit)


def _legend(record: ComparisonRecord, panel: Panel) -> list[Any]:
    """The arms by their names, which are too long to be placed at the ends of the lines."""
    titles = record.verdict.arm_titles
    return [key_line(titles[arm], arm, linewidth=2.4, linestyle=_LINES[arm]) for arm in panel.bands]


def _tell(drawing: Drawing, record: ComparisonRecord, panel: Panel) -> None:
    """Add what a reader sees when pointing at a place along training."""
    places = sorted({x for each in panel.bands.values() for x in each.x.tolist()})
    known = {arm: {x: place for place, x in enumerate(each.x.tolist())} for arm, each in panel.bands.items()}
    for x in places:
        lines = [
            _told(record.verdict.arm_names[arm], each, known[arm][x], "seed", _four_digits)
            for arm, each in panel.bands.items()
            if x in known[arm]
        ]
        drawing.strip(x, "\n".join([_place(panel.unit, x), *lines]))


def _four_digits(value: float) -> str:
    return short(value, 4)


def _place(unit: str, x: float) -> str:
    return f"{unit.removesuffix('s').capitalize()} {x:.6g}"


def _told(name: str, each: Band, place: int, thing: str, write: Callable[[float], str]) -> str:
    median, low, high = (write(float(line[place])) for line in (each.median, each.low, each.high))
    between = f" ({low} to {high})" if each.has_quantiles else ""
    return f"{name}: {median}{between}, {count(each.seeds[place], thing)}"


def _label(record: ComparisonRecord, panel: Panel) -> str:
    names = record.verdict.arm_names
    ends = ", ".join(
        f"{names[arm]} ends at a median of {short(float(each.median[-1]), 4)}"
        for arm, each in panel.bands.items()
    )
    name = metric_name(panel.metric)
    return f"{name} along training in {panel.unit}: {ends}. Arrow keys step along training."


def difference_curve(
    record: ComparisonRecord, panel: Panel, name: str = "difference", second_half: bool = False
) -> str:
    """The paired difference of the verdict's metric along training, as SVG.

    Args:
        record: The comparison.
        panel: What to draw, from `Panel.of_difference`.
        name: A word that is unique on the page.
        second_half: Whether the panel is only the second half of training.
    """
    found = panel.bands["candidate"]
    title = f"paired difference in {metric_name(panel.metric)} ({metric_unit(panel.metric)})\n"
    title += (
        "second half of training, enlarged"
        if second_half
        else f"above zero: {record.verdict.arm_names['candidate']} better"
    )
    with sheet(name, HEIGHT, title) as drawing:
        _draw_arm(drawing, panel, "candidate")
        _level_axis(drawing, panel.unit, [found], from_zero=not second_half)
        _draw_zero(drawing, record, panel, with_interval=not second_half)
        _draw_effect(drawing, record)
        for place, x in enumerate(found.x.tolist()):
            told = _told("median difference", found, place, "pair", digits_of(record).signed)
            drawing.strip(x, f"{_place(panel.unit, x)}\n{told}")
        return drawing.svg(_difference_label(record, panel))


def _draw_zero(drawing: Drawing, record: ComparisonRecord, panel: Panel, with_interval: bool) -> None:
    """Draw zero and the margin, in limits that hold them, the curves and, where wanted, the interval."""
    axes, verdict = drawing.axes, record.verdict
    ends = finite([0.0, verdict.margin, -verdict.margin, *panel.limits])
    if with_interval or verdict.interval[1] - verdict.interval[0] <= 2 * (max(ends) - min(ends)):
        ends += finite(verdict.interval)
    axes.set_ylim(*padded(min(ends), max(ends), 0.02))
    if math.isfinite(verdict.margin):
        stripe = axes.axhspan(-verdict.margin, verdict.margin, color=light("margin"), linewidth=0, zorder=0)
        drawing.mark(stripe, "margin", value=verdict.margin)
    axes.axhline(0, color=light("ink"), linewidth=1.2, zorder=1)
    label_ticks(axes.yaxis, signed=True)


def _draw_effect(drawing: Drawing, record: ComparisonRecord) -> None:
    """Draw the verdict's own mean and interval next to the end of the curve, if there is room."""
    effect, (low, high) = record.verdict.effect, record.verdict.interval
    bottom, top = drawing.axes.get_ylim()
    if not (bottom <= low and high <= top and math.isfinite(effect)):
        return
    place = drawing.axes.get_yaxis_transform()
    style: dict[str, Any] = {"color": light("ink"), "transform": place, "clip_on": False, "zorder": 6}
    (bar,) = drawing.axes.plot(
        [1.035] * 2, [low, high], linewidth=2.2, marker="_", markersize=9, markeredgewidth=2.2, **style
    )
    drawing.mark(bar, "interval", lower=low, upper=high)
    drawing.axes.plot([1.035], [effect], marker="D", markersize=7, markeredgecolor=light("paper"), **style)
    drawing.axes.annotate(
        "verdict", (1.035, effect), xycoords=place, xytext=(9, 0), textcoords="offset points", va="center",
        color=light("ink"), fontsize=SMALL, annotation_clip=False,
    )  # fmt: skip


def _difference_label(record: ComparisonRecord, panel: Panel) -> str:
    digits, found = digits_of(record), panel.bands["candidate"]
    return (
        f"Paired difference along training in {panel.unit}, {count(found.num_curves, 'pair')}: the median "
        f"ends at {digits.signed(float(found.median[-1]))}. Arrow keys step along training."
    )
