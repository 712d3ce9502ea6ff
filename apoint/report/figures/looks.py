"""The looks: mean and interval at each, zero, the margin, the boundary, and the looks not reached."""

from __future__ import annotations

import math
from typing import Any

from apoint.errors import UsageError
from apoint.report.figures.canvas import Drawing, finite, key_area, key_line, label_ticks, sheet
from apoint.report.figures.slope import DASHED
from apoint.report.palette import light
from apoint.report.panels import padded
from apoint.report.record import ComparisonRecord
from apoint.report.scale import digits_of
from apoint.report.verdict_record import LookRecord, VerdictRecord
from apoint.report.words import NO_INTERVAL, confidence, count, metric_name, metric_unit

HEIGHT = 350
MOST_BARS = 12  # beyond, the intervals are drawn as one band
MOST_WORDED_LOOKS = 5


def looks(record: ComparisonRecord, name: str = "looks") -> str:
    """The interval at each look, as SVG.

    Args:
        record: The comparison.
        name: A word that is unique on the page.
    """
    verdict = record.verdict
    metric = f"{metric_name(verdict.metric)} ({metric_unit(verdict.metric)})"
    title = f"mean paired difference in {metric}\nabove zero: {verdict.arm_names['candidate']} better"
    with sheet(name, HEIGHT, title) as drawing:
        borders = boundary(verdict)
        _frame(drawing, record, borders)
        if borders:
            _draw_boundary(drawing, borders)
        if len(verdict.looks) <= MOST_BARS:
            _draw_bars(drawing, record)
        else:
            _draw_band(drawing, record)
        drawing.legend(_legend(record, borders))
        return drawing.svg(_label(record))


def not_reached(verdict: VerdictRecord) -> list[int]:
    """The planned looks that were not made."""
    made = {look.pairs for look in verdict.looks}
    return [pairs for pairs in verdict.planned_looks if pairs not in made]


def boundary(verdict: VerdictRecord) -> list[tuple[int, float]]:
    """How large the mean of symmetric differences must be at each look to decide `better` or `worse`.

    Tuples of pairs and height. For planned looks not reached, the height follows from the standard deviation
    of the last look. Empty if there is only one, which makes no line.
    """
    found = [(look.pairs, look.symmetric_half) for look in verdict.looks]
    if verdict.looks:
        last = verdict.looks[-1]
        known = last.multiplier > 0
        deviation = last.symmetric_half / last.multiplier * math.sqrt(last.pairs) if known else math.nan
        ahead = [pairs for pairs in not_reached(verdict) if pairs > last.pairs]
        found += [(pairs, _multiplier(verdict, pairs) * deviation / math.sqrt(pairs)) for pairs in ahead]
    found = [(pairs, height) for pairs, height in found if math.isfinite(height)]
    return found if len(found) > 1 else []


def _multiplier(verdict: VerdictRecord, pairs: int) -> float:
    """The multiplier c of the interval at a planned look; NaN if no valid plan was recorded."""
    from apoint.verdict import planned_multiplier

    try:
        return planned_multiplier(pairs, verdict.planned_looks, verdict.alpha)
    except UsageError:
        return math.nan


def _frame(drawing: Drawing, record: ComparisonRecord, borders: list[tuple[int, float]]) -> None:
    verdict, axes = record.verdict, drawing.axes
    ends = [end for look in verdict.looks for end in look.interval] + [height for _, height in borders]
    ends += [-height for _, height in borders] + [0.0, verdict.margin, -verdict.margin]
    known = finite(ends)
    axes.set_ylim(*padded(min(known), max(known), 0.07))
    if math.isfinite(verdict.margin):
        band = axes.axhspan(-verdict.margin, verdict.margin, color=light("margin"), linewidth=0, zorder=0)
        drawing.mark(band, "margin", value=verdict.margin)
    axes.axhline(0, color=light("ink"), linewidth=1.2, zorder=1)
    label_ticks(axes.yaxis, signed=True)
    _level_axis(drawing, verdict)


def _level_axis(drawing: Drawing, verdict: VerdictRecord) -> None:
    from matplotlib.ticker import MaxNLocator

    axes, missed = drawing.axes, set(not_reached(verdict))
    planned = sorted(missed | {look.pairs for look in verdict.looks})
    axes.set_xlabel("pairs")
    if not planned:
        return
    air = 0.1 * max(planned[-1] - planned[0], 4)
    axes.set_xlim(planned[0] - air, planned[-1] + air)
    if len(planned) > MOST_BARS:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        return
    worded = len(planned) <= MOST_WORDED_LOOKS
    words = [f"{pairs}\nnot reached" if pairs in missed and worded else str(pairs) for pairs in planned]
    axes.set_xticks(planned, words)
    for pairs in sorted(missed):
        (ring,) = axes.plot(
            [pairs], [0], marker="o", markersize=7, markerfacecolor=light("paper"),
            markeredgecolor=light("edge"), markeredgewidth=1.5, linestyle="none", zorder=4,
        )  # fmt: skip
        drawing.mark(ring, "not-reached", pairs=pairs)


def _draw_boundary(drawing: Drawing, borders: list[tuple[int, float]]) -> None:
    for sign in (1, -1):
        (line,) = drawing.axes.plot(
            [pairs for pairs, _ in borders], [sign * height for _, height in borders],
            color=light("worsened"), linestyle=DASHED, linewidth=1.4, marker="_",
            markersize=9, zorder=2,
        )  # fmt: skip
        drawing.mark(line, "boundary")


def _draw_bars(drawing: Drawing, record: ComparisonRecord) -> None:
    for look in record.verdict.looks:
        (mean,) = drawing.axes.plot(
            [look.pairs], [look.effect], marker="o", markersize=9, color=light("candidate"),
            markeredgecolor=light("paper"), markeredgewidth=1.4, linestyle="none",
            zorder=5 + look.has_interval,  # without a bar, it takes its turn when arrow keys step through
        )  # fmt: skip
        pointed = mean
        if look.has_interval:
            drawing.mark(mean, "look-mean")
            (pointed,) = drawing.axes.plot(
                [look.pairs] * 2, look.interval, color=light("candidate"), linewidth=2.6, marker="_",
                markersize=12, markeredgewidth=2.6, solid_capstyle="butt", zorder=5,
            )  # fmt: skip
        drawing.mark(
            pointed, "mark look", describe_look(record, look), pairs=look.pairs, effect=look.effect,
            lower=look.interval[0], upper=look.interval[1],
        )  # fmt: skip


def _draw_band(drawing: Drawing, record: ComparisonRecord) -> None:
    """Draw many looks: one band, and a strip to point at for each."""
    made = record.verdict.looks
    x = [look.pairs for look in made]
    nothing = (math.nan, math.nan)
    low, high = zip(*(look.interval if look.has_interval else nothing for look in made), strict=True)
    band = drawing.axes.fill_between(x, low, high, color=light("candidate"), alpha=0.2, linewidth=0, zorder=3)
    drawing.mark(band, "look-band")
    for ends in (low, high):
        drawing.axes.plot(x, ends, color=light("candidate"), linewidth=1.2, zorder=4)
    (mean,) = drawing.axes.plot(
        x, [look.effect for look in made], color=light("candidate"), linewidth=2.6, zorder=5
    )
    drawing.mark(mean, "look-mean")
    for look in made:
        drawing.strip(look.pairs, describe_look(record, look))


def describe_look(record: ComparisonRecord, look: LookRecord) -> str:
    """The numbers of a look, line by line."""
    digits = digits_of(record)
    lines = [f"Look at {count(look.pairs, 'pair')}: {look.outcome}", f"mean {digits.signed(look.effect)}"]
    if not look.has_interval:
        return "\n".join([*lines, NO_INTERVAL])
    narrow = digits.span(look.equivalence_interval)
    lines += [f"interval {digits.span(look.interval)}", f"for equivalence {narrow}"]
    return "\n".join([*lines, f"margin {digits.margin(look.margin)}"])


def _legend(record: ComparisonRecord, borders: list[tuple[int, float]]) -> list[Any]:
    verdict = record.verdict
    name = f"mean, {confidence(verdict.interval_alpha)} interval"
    entries = [key_line(name, "candidate", linewidth=2.6, marker="o", markersize=7)]
    if math.isfinite(verdict.margin):
        entries.append(key_area("within the margin", "margin"))
    if borders:
        entries.append(key_line("boundary for the mean", "worsened", linestyle=DASHED, linewidth=1.4))
    if not_reached(verdict):
        ring = key_line("look not reached", "paper", marker="o", markersize=7, linestyle="none")
        ring.set_markeredgecolor(light("edge"))
        entries.append(ring)
    return entries


def _label(record: ComparisonRecord) -> str:
    verdict = record.verdict
    if not verdict.looks:
        return "No look was made yet."
    told = "; ".join(describe_look(record, look).replace("\n", ", ") for look in verdict.looks[-3:])
    return f"{count(len(verdict.looks), 'look')} made, {len(not_reached(verdict))} not reached. {told}."
