"""The charts with their captions; each caption says what is drawn, from what, and what the band means."""

from __future__ import annotations

import math
from collections.abc import Mapping

from apoint.report import figures
from apoint.report.curves import QUANTILES, ComparisonRuns
from apoint.report.figures.looks import MOST_BARS, boundary, not_reached
from apoint.report.figures.slope import BrokenScale
from apoint.report.frame import figure, section
from apoint.report.markup import Markup, element
from apoint.report.panels import Panel
from apoint.report.record import ComparisonRecord
from apoint.report.scale import digits_of
from apoint.report.tables import looks_table
from apoint.report.thinning import BUCKETS, THIN_ABOVE
from apoint.report.words import (
    NO_INTERVAL,
    THIN_SPACE,
    confidence,
    count,
    listed,
    metric_name,
    metric_unit,
    percent,
)

TRAINING_LOSS = "train_loss"
_ENLARGED_BELOW = 0.5  # of the whole height: below it, the second half of training is drawn separately


def pairs_section(record: ComparisonRecord) -> Markup | None:
    """The slope graph and the differences."""
    if not record.pairs:
        return None
    body = [
        figure(figures.slope(record), _slope_caption(record)),
        figure(figures.forest(record), _forest_caption(record)),
    ]
    lead = "Each line is one seed, in both arms."
    return section("Every pair", lead, element("div", body, class_="grid"))


def _slope_caption(record: ComparisonRecord) -> str:
    pairs = record.pairs
    values = 2 * len(pairs)
    words = [
        f"All {values} of {values} values are drawn, {count(len(pairs), 'seed')} in each arm; no smoothing, "
        "no band. Solid lines improved, dashed lines got worse."
    ]
    if any(any(pair.failed) for pair in pairs):
        known = math.isfinite(record.cap)
        counted = f", counted as {digits_of(record).plain(record.cap)}" if known else ""
        words.append(f"A cross marks a replica that failed{counted}.")
    if BrokenScale.of(record).broken:
        words.append("The upright axis is broken between that value and the others.")
    return " ".join([*words, f"Unit: {metric_unit(record.verdict.metric)}."])


def _forest_caption(record: ComparisonRecord) -> str:
    verdict = record.verdict
    interval = f"with its {confidence(verdict.interval_alpha)} interval"
    return (
        f"The same {count(len(record.pairs), 'pair')} as differences, the least on top; all are drawn, no "
        f"smoothing. At the bottom is the mean {interval if verdict.has_interval else f'({NO_INTERVAL})'}; "
        f"the shaded band is the margin of {digits_of(record).margin(verdict.margin)}. "
        f"Unit: {metric_unit(verdict.metric)}."
    )


def looks_section(record: ComparisonRecord) -> Markup | None:
    """The interval at each look, with notes on how to read it."""
    verdict = record.verdict
    if not verdict.looks:
        return None
    drawn = figure(figures.looks(record), _looks_caption(record))
    reading = element("div", element("h3", "How to read it"), _reading(record), looks_table(record))
    lead = (
        "Looked at whenever one liked, with an interval that stays valid for that."
        if verdict.anytime
        else f"Looks were planned at {listed(verdict.planned_looks)} pairs."
    )
    return section("How the evidence grew", lead, element("div", drawn, reading, class_="grid"))


def _looks_caption(record: ComparisonRecord) -> str:
    verdict = record.verdict
    made = f"Looks drawn: {len(verdict.looks)} of {len(verdict.looks)} made"
    missed = not_reached(verdict)
    ahead = f"; not reached: {listed(missed)} pairs" if missed else ""
    seeds = f"{verdict.pairs} seeds in each arm at the last"
    bars = "Bars are" if len(verdict.looks) <= MOST_BARS else "The band is"
    open_looks = not all(look.has_interval for look in verdict.looks)
    alone = " A look that has no interval yet shows its mean alone." if open_looks else ""
    return (
        f"{made}{ahead}; {seeds}. No smoothing. {bars} the {confidence(verdict.interval_alpha)} interval, "
        f"valid over all looks together.{alone} The stripe around zero is the margin. "
        f"Unit: {metric_unit(verdict.metric)}."
    )


def _reading(record: ComparisonRecord) -> Markup:
    margin = digits_of(record).margin(record.verdict.margin)
    rules = [
        (
            "Equivalent",
            f"the equivalence interval lies inside the shaded margin of {margin}. It is made of two "
            "one-sided bounds, so its ends are not those drawn.",
        ),
        ("Better", "the interval lies above zero, and the arms are not equivalent."),
        ("Worse", "the interval lies below zero, and the arms are not equivalent."),
        ("Undecided", "none of these yet: more pairs, until the plan is used up."),
    ]
    items = [element("li", element("b", f"{name}: "), words) for name, words in rules]
    return element("div", element("ul", items), _boundary_words(record))


def _boundary_words(record: ComparisonRecord) -> Markup | None:
    """What the dashed lines mean, if there are any."""
    words = []
    if boundary(record.verdict):
        words.append(
            "Dashed lines are the stopping boundary for symmetric differences: a mean beyond them makes the "
            "interval clear zero. If the differences have a tail towards zero, it takes more."
        )
        if not_reached(record.verdict):
            words.append("For looks not reached it is drawn from the last standard deviation seen.")
    return element("p", " ".join(words), class_="soft") if words else None


def curves_section(record: ComparisonRecord, runs: ComparisonRuns) -> Markup | None:
    """Training curves of both arms, and the paired difference along training."""
    chosen = {record.verdict.metric: record.verdict.higher_is_better}
    chosen.setdefault(TRAINING_LOSS, False)
    panels = [Panel.of_metric(runs, metric, higher) for metric, higher in chosen.items()]
    body = [
        figure(figures.training_curves(record, panel, f"curves{place}"), _curve_caption(record, panel))
        for place, panel in enumerate(panels)
        if panel is not None
    ]
    body += _differences(record, runs)
    if not body:
        return None
    lead = "Medians over seeds, with bands; each arm's numbers are its own, whatever else is shown."
    remark = _budget_remark(runs)
    if len(body) % 2:  # the remark fills the place next to the last figure
        return section("Training", lead, element("div", body, remark, class_="grid"))
    return section("Training", lead, element("div", body, class_="grid"), remark)


def _differences(record: ComparisonRecord, runs: ComparisonRuns) -> list[Markup]:
    """The paired difference along training, and its second half enlarged where that shows more."""
    whole = Panel.of_difference(record, runs)
    if whole is None:
        return []
    found = [figure(figures.difference_curve(record, whole), _difference_caption(whole))]
    late = Panel.of_difference(record, runs, second_half=True)
    if late is not None and late.height < _ENLARGED_BELOW * whole.height:
        svg = figures.difference_curve(record, late, "late", second_half=True)
        left_out = record.verdict.has_interval and 'class="interval"' not in svg
        caption = f"The same from half of training on, enlarged. {_difference_caption(late)}"
        caption += " The verdict's interval is wider than this frame and left out." * left_out
        found.append(figure(svg, caption))
    return found


def _curve_caption(record: ComparisonRecord, panel: Panel) -> str:
    names = record.verdict.arm_words
    seeds = " and ".join(
        f"{count(found.num_curves, 'seed')} of {names[arm]}" for arm, found in panel.bands.items()
    )
    return (
        f"{metric_name(panel.metric).capitalize()}: {_points(panel, 'logged')}, from {seeds}. "
        f"{_smoothing(panel)} {_band_words(panel, 'seeds')}{_shrinking(panel, names)} "
        f"Units: {metric_unit(panel.metric)}, {panel.unit}."
    )


def _difference_caption(panel: Panel) -> str:
    found = panel.bands["candidate"]
    words = (
        f"Paired difference: {_points(panel, 'where both arms logged')}, from "
        f"{count(found.num_curves, 'pair')}. {_smoothing(panel)} {_band_words(panel, 'pairs')}"
    )
    if found.seeds[-1] < found.num_curves:
        words += (
            f" At the end {found.seeds[-1]} of {found.num_curves} pairs still had two finite values; the "
            "verdict counts the others at the declared cap."
        )
    return f"{words} The stripe around zero is the margin. Units: {metric_unit(panel.metric)}, {panel.unit}."


def _points(panel: Panel, which: str) -> str:
    used = f"{panel.num_used:,}".replace(",", THIN_SPACE)
    words = f"{used} of {count(panel.num_logged, 'point')} {which} are in the picture"
    left = panel.num_logged - panel.num_used
    return words + (f" ({left} are not finite or were logged by few runs)" if left else "")


def _smoothing(panel: Panel) -> str:
    longest = max(len(each.x) for each in panel.bands.values())
    if longest <= THIN_ABOVE:
        return "No smoothing."
    return (
        f"No smoothing; for drawing, {count(longest, 'place')} along training are thinned to the least and "
        f"the largest of {BUCKETS} buckets."
    )


def _band_words(panel: Panel, things: str) -> str:
    low, high = (percent(share) for share in QUANTILES)
    parts = [f"Lines are medians over {things}"]
    if any(each.has_quantiles for each in panel.bands.values()):
        parts.append(f"bands reach from the {low} to the {high} quantile over {things}")
    if any(panel.lines.values()):
        parts.append(f"thin lines are single {things}")
    if panel.num_outside:
        parts.append(f"{count(panel.num_outside, 'point')} of them, far from the rest, outside the frame")
    return "; ".join(parts) + "."


def _shrinking(panel: Panel, names: Mapping[str, str]) -> str:
    """How many runs are left at the end, since runs that stop early leave the statistics."""
    words = [
        f" At the end {found.seeds[-1]} of {found.num_curves} runs of {names[arm]} still had a finite value."
        for arm, found in panel.bands.items()
        if found.seeds[-1] < found.num_curves
    ]
    return "".join(words)


def _budget_remark(runs: ComparisonRuns) -> Markup:
    words = (
        "Only the end counts: the verdict holds for the end of the declared budget alone. Effects often "
        f"change their sign along training, so this curve shows what another number of {runs.unit} might "
        "have said; choosing that number after looking would make the comparison exploratory."
    )
    return element("p", words, class_="soft remark")
