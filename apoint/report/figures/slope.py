"""The slope graph: every pair as a line from its baseline's value to its candidate's, and the mean."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apoint.report.figures.canvas import SMALL, Drawing, finite, key_line, sheet, tick_words
from apoint.report.palette import light
from apoint.report.panels import padded
from apoint.report.record import ComparisonRecord, Pair
from apoint.report.scale import digits_of
from apoint.report.words import axis_title, clean

HEIGHT = 430
DASHED = (0, (4.2, 2.2))
STYLES: dict[str, tuple[str, Any]] = {
    "improved": ("candidate", "solid"),
    "worsened": ("worsened", DASHED),
    "equal": ("baseline", (0, (1, 1.6))),
}
_COLUMN_LETTERS = 22
_STRIP = 0.17  # the share of the height that the cap gets below or above a broken axis
_BROKEN_BEYOND = 0.75  # the axis is broken if the cap is farther away than this share of the others' span


@dataclass(frozen=True)
class BrokenScale:
    """Heights between 0 and 1: the values fill them, and a cap that is far away gets a separate place."""

    low: float
    high: float
    cap: float
    broken: bool

    @classmethod
    def around(cls, values: Sequence[float], failed: Sequence[float]) -> BrokenScale:
        """The scale for these values; those of failed replicas are set apart if they are far away.

        Args:
            values: Values of replicas that finished, and the means.
            failed: Values of replicas that failed: all equal, or none.
        """
        inner = finite(values) or finite(failed) or [0.0, 1.0]
        low, high = min(inner), max(inner)
        cap = next(iter(finite(failed)), math.nan)
        broken = high > low and max(low - cap, cap - high) > _BROKEN_BEYOND * (high - low)
        if not broken:
            low, high = min(finite([low, *failed])), max(finite([high, *failed]))
        return cls(*padded(low, high, 0.04), cap, broken)

    @classmethod
    def of(cls, record: ComparisonRecord) -> BrokenScale:
        """The scale of a comparison's pairs."""
        ends = [
            (value, failed)
            for pair in record.pairs
            for value, failed in zip((pair.baseline, pair.candidate), pair.apart, strict=True)
        ]
        whole = [value for value, failed in ends if not failed]
        return cls.around([*whole, *_means(record)], [value for value, failed in ends if failed])

    @property
    def cap_is_below(self) -> bool:
        """Whether the cap is below the values."""
        return self.cap < self.low

    def height(self, value: float) -> float:
        """The height of a value."""
        if not math.isfinite(value):
            return math.nan
        if not self.broken:
            return (value - self.low) / (self.high - self.low)
        if value == self.cap:
            return _STRIP / 3 if self.cap_is_below else 1 - _STRIP / 3
        inner = (value - self.low) / (self.high - self.low) * (1 - _STRIP)
        return inner + _STRIP if self.cap_is_below else inner

    def ticks(self) -> list[float]:
        """Round values for the axis, without the cap's."""
        from matplotlib.ticker import MaxNLocator

        found = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high)
        return [float(tick) for tick in found if self.low <= tick <= self.high]


def slope(record: ComparisonRecord, name: str = "slope") -> str:
    """The slope graph of all pairs, as SVG.

    Args:
        record: The comparison.
        name: A word that is unique on the page.
    """
    pairs, verdict = record.pairs, record.verdict
    scale, means = BrokenScale.of(record), _means(record)
    with sheet(name, HEIGHT, axis_title(verdict.metric, verdict.higher_is_better)) as drawing:
        _draw_columns(drawing, record, scale, means)
        for pair in pairs:
            _draw_pair(drawing, record, pair, scale)
        _draw_mean(drawing, means, scale)
        if any(any(pair.apart) for pair in pairs):
            _draw_cap(drawing, record, scale)
        drawing.legend(_legend(pairs))
        return drawing.svg(_label(pairs, verdict.metric))


def _means(record: ComparisonRecord) -> list[float]:
    """The means of baseline and candidate."""
    columns = [pair.baseline for pair in record.pairs], [pair.candidate for pair in record.pairs]
    return [sum(column) / len(column) if column else math.nan for column in columns]


def _draw_columns(drawing: Drawing, record: ComparisonRecord, scale: BrokenScale, means: list[float]) -> None:
    """Draw the two vertical lines with their names, and the axis."""
    axes, digits = drawing.axes, digits_of(record)
    axes.set_xlim(-0.16, 1.16)
    axes.set_ylim(-0.02, 1.02)
    ticks = scale.ticks()
    axes.set_yticks([scale.height(tick) for tick in ticks], [tick_words(tick, ticks) for tick in ticks])
    names = [
        f"{_below(title)}\nmean {digits.plain(mean)}"
        for title, mean in zip(record.verdict.arm_titles.values(), means, strict=True)
    ]
    axes.set_xticks([0, 1], names, color=light("ink"))
    axes.tick_params(axis="x", length=0, pad=6)
    axes.spines["bottom"].set_visible(False)
    for place in (0, 1):
        axes.axvline(place, color=light("edge"), linewidth=1.0, zorder=1)


def _below(title: str) -> str:
    """An arm's name below its vertical line: narrow lines, so that the two do not touch."""
    return "\n".join(textwrap.wrap(clean(title), _COLUMN_LETTERS, max_lines=3, placeholder=" …"))


def _draw_pair(drawing: Drawing, record: ComparisonRecord, pair: Pair, scale: BrokenScale) -> None:
    role, line = STYLES[pair.kind]
    heights = [scale.height(pair.baseline), scale.height(pair.candidate)]
    whole = [place for place in (0, 1) if not pair.failed[place]]
    (drawn,) = drawing.axes.plot(
        [0, 1], heights, color=light(role), linestyle=line, linewidth=1.4, alpha=0.8, marker="o",
        markersize=3.6, markeredgewidth=0, markevery=whole, zorder=3, clip_on=False,
    )  # fmt: skip
    drawing.mark(
        drawn, f"mark pair {pair.kind}", describe_pair(record, pair), seed="" if pair.seed is None else
        str(pair.seed), baseline=pair.baseline, candidate=pair.candidate, difference=pair.difference,
    )  # fmt: skip
    failed = [place for place in (0, 1) if pair.failed[place]]
    if failed:
        (crosses,) = drawing.axes.plot(
            failed, [heights[place] for place in failed], linestyle="none", marker="X", markersize=8,
            markerfacecolor=light("ink"), markeredgecolor=light("paper"), markeredgewidth=0.9, zorder=6,
            clip_on=False,
        )  # fmt: skip
        drawing.mark(crosses, "failed")


def describe_pair(record: ComparisonRecord, pair: Pair) -> str:
    """The numbers of a pair, line by line."""
    digits = digits_of(record)
    lines = [pair.name.capitalize()]
    names = record.verdict.arm_names.values()
    rows = zip(names, (pair.baseline, pair.candidate), pair.states, pair.capped, strict=True)
    for name, value, state, capped in rows:
        how = ", ".join(
            filter(None, [state if state != "finished" else "", "counted at the cap" if capped else ""])
        )
        lines.append(f"{name}: {digits.plain(value)}" + (f" ({how})" if how else ""))
    return "\n".join([*lines, f"difference: {digits.signed(pair.difference)}"])


def _draw_mean(drawing: Drawing, means: list[float], scale: BrokenScale) -> None:
    (drawn,) = drawing.axes.plot(
        [0, 1], [scale.height(mean) for mean in means], color=light("ink"), linewidth=3.2, marker="D",
        markersize=8, markeredgecolor=light("paper"), markeredgewidth=1.2, zorder=5, clip_on=False,
    )  # fmt: skip
    drawing.mark(drawn, "mean", baseline=means[0], candidate=means[1])


def _draw_cap(drawing: Drawing, record: ComparisonRecord, scale: BrokenScale) -> None:
    """Draw the level that failed replicas count as, and the axis break before it."""
    axes, place = drawing.axes, scale.height(record.cap)
    line = axes.axhline(place, color=light("soft"), linewidth=1.2, linestyle=(0, (1.2, 2.4)), zorder=2)
    drawing.mark(line, "cap", value=record.cap)
    words = axes.text(
        0.5, place + 0.012, f"failed: counted as {digits_of(record).plain(record.cap)}",
        ha="center", va="bottom", color=light("soft"), fontsize=SMALL, zorder=7,
    )  # fmt: skip
    drawing.mark(words, "halo")
    if scale.broken:
        level = _STRIP * 0.8 if scale.cap_is_below else 1 - _STRIP * 0.8
        for upright in (0, 1):
            for shift in (-0.012, 0.012):
                axes.plot(
                    [upright - 0.022, upright + 0.022], [level + shift - 0.008, level + shift + 0.008],
                    color=light("edge"), linewidth=1.3, zorder=4, clip_on=False,
                )  # fmt: skip


def _legend(pairs: list[Pair]) -> list[Any]:
    counts = Counter(pair.kind for pair in pairs)
    entries = [
        key_line(f"{kind} ({counts[kind]})", role, linestyle=line, linewidth=1.6)
        for kind, (role, line) in STYLES.items()
        if counts[kind]
    ]
    entries.append(key_line("mean", "ink", linewidth=3.2, marker="D", markersize=7))
    failed = sum(sum(pair.failed) for pair in pairs)
    if failed:
        entries.append(key_line(f"failed ({failed})", "ink", marker="X", markersize=8, linestyle="none"))
    return entries


def _label(pairs: list[Pair], metric: str) -> str:
    counts = Counter(pair.kind for pair in pairs)
    return (
        f"Slope graph of {metric or 'the metric'}: {len(pairs)} pairs, {counts['improved']} improved, "
        f"{counts['worsened']} worsened, {counts['equal']} equal. Arrow keys step through the pairs."
    )
