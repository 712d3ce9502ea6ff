"""A verdict in words: one sentence, and a plain-text card for the terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from apoint.verdict.moments import unseen_share
from apoint.verdict.record import Judged, other_outcomes
from apoint.verdict.types import Interval

if TYPE_CHECKING:
    from apoint.verdict.record import Verdict

WIDTH = 100
LABEL = 21
DRAWN = 72
MOST_REASONS = 4
HERE = "over seeds, on these test examples"
SCOPE = f"{HERE}: new examples or other data are another question"
POINTS, UNIT = 100.0, "1 point is 0.01"  # the card and all records are in the metric's own unit
_ROUNDING = 1e-12  # relative to the largest score: a difference no larger than this is rounding
NOTICED = 1.2  # a side of the interval this many times as long as the other is worth a line
NOTICED_TAIL = 0.2  # so is a masked skewness that makes both sides about 1.2 times as long


# -- numbers --------------------------------------------------------------------------------------------


def plural(number: int, noun: str) -> str:
    """A number with its noun: 1 pair, 2 pairs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Digits:
    """Writes numbers with as many digits as an interval's width justifies, or more if an end is near 0.

    Args:
        interval: What the numbers are compared with.
        effect: The number inside it; it sets the digits if there is no interval.
        zero: Values no larger than this come from rounding and are written as 0.
        scale: The factor that numbers are multiplied by before they are written, such as 100 for points.
    """

    def __init__(self, interval: Interval, effect: float, zero: float = 0.0, scale: float = 1.0) -> None:
        width = interval[1] - interval[0]
        known = width if math.isfinite(width) and width > zero else effect if abs(effect) > zero else 0.0
        decimals = 1 - _magnitude(scale * known)
        ends = [scale * end for end in interval if math.isfinite(end) and abs(end) > zero]
        needed = max((-_magnitude(end) for end in ends), default=0)
        self._decimals = max(decimals, min(needed, decimals + 3))
        self._zero, self._scale = zero, scale

    @classmethod
    def of(cls, verdict: Verdict, scale: float = 1.0) -> Digits:
        """The digits of a verdict's differences."""
        scores = [abs(score) for score in (*verdict.baseline, *verdict.candidate) if math.isfinite(score)]
        return cls(verdict.interval, verdict.effect, _ROUNDING * max(scores, default=0.0), scale)

    def __call__(self, value: float) -> str:
        """The number as text, without a minus sign before a zero."""
        if not math.isfinite(value):
            return "unknown"
        value = 0.0 if abs(value) <= self._zero else self._scale * value
        text = f"{value:.{self._decimals}f}" if 0 <= self._decimals <= 9 else f"{value:.3g}"
        return text.removeprefix("-") if float(text) == 0 else text

    def signed(self, value: float) -> str:
        """The number with its sign."""
        text = self(value)
        return f"+{text}" if text[0].isdigit() and float(text) else text

    def span(self, interval: Interval) -> str:
        """An interval with signs."""
        if not all(map(math.isfinite, interval)):
            return "no interval yet"
        return f"{self.signed(interval[0])} to {self.signed(interval[1])}"


def size(value: float) -> str:
    """A number on its own, with three significant digits."""
    return f"{value:.3g}" if math.isfinite(value) else "unknown"


def _magnitude(value: float) -> int:
    """The power of ten of a number's first digit."""
    return math.floor(math.log10(abs(value))) if math.isfinite(value) and abs(value) > 1e-300 else 0


# -- the sentence ---------------------------------------------------------------------------------------


def metric_words(metric: str, last: int) -> str:
    """What a replica's number is: the metric, or its mean over the last evaluations."""
    return metric if last == 1 else f"{metric}, mean of the last {last} evaluations"


def as_subject(metric: str, last: int) -> str:
    """The same as the subject of a sentence, with its closing comma."""
    return metric if last == 1 else f"{metric_words(metric, last)},"


def sentence(verdict: Verdict) -> str:
    """The verdict in one sentence: what was changed, and how the metric moved in its own direction."""
    metric = as_subject(verdict.metric or "the score", verdict.last)
    pairs = plural(verdict.pairs, "pair")
    begun = f"{verdict.outcome}: " + (f"with {verdict.change}, " if verdict.change else "")
    found = f"{metric} is {_moved(verdict)} ({_range(verdict)}) over {pairs}"
    matters = f"{_amount(verdict, verdict.margin)} is the smallest difference that matters"
    if verdict.outcome in ("better", "worse"):
        return f"{begun}{found}; {matters}."
    if verdict.outcome == "equivalent":
        what = f"is {_moved(verdict)}, which is" if verdict.negligible else "differs, if at all, by"
        small = f"less than the {_amount(verdict, verdict.margin)} that would matter"
        return f"{begun}{metric} {what} {small} ({_range(verdict)}) over {pairs}."
    if not all(map(math.isfinite, verdict.interval)):
        same = len({*verdict.baseline, *verdict.candidate}) == 1
        what = "all scores are the same, which shows nothing of how seeds differ"
        found = f"{what}, in {pairs}" if same else f"{pairs} are too few to say anything"
    if not math.isfinite(verdict.margin):
        matters = "the smallest difference that matters is not known yet"
    return f"{begun}{found}{_further(verdict)}; {matters}."


def in_points(verdict: Verdict) -> bool:
    """Whether differences are reported in points: those of an accuracy in fractions, not percentages."""
    scores = (*verdict.baseline, *verdict.candidate)
    return verdict.metric.endswith("accuracy") and all(0 <= score <= 1 for score in scores)


def _sentence_digits(verdict: Verdict) -> Digits:
    return Digits.of(verdict, POINTS if in_points(verdict) else 1.0)


def _amount(verdict: Verdict, value: float) -> str:
    """A size with its unit."""
    if not in_points(verdict):
        return size(value)
    points = size(POINTS * value)
    return f"{points} point{'' if points == '1' else 's'}"


def _moved(verdict: Verdict) -> str:
    """Which way the metric moved, and how far."""
    shown = _sentence_digits(verdict)(abs(verdict.effect))
    if shown == "unknown" or not float(shown):
        return "the same on average"
    direction = "higher" if (verdict.effect > 0) == verdict.higher_is_better else "lower"
    unit = "" if not in_points(verdict) else " point" if shown == "1" else " points"
    return f"{direction} by {shown}{unit}"


def _range(verdict: Verdict) -> str:
    """The interval in words: sizes if it is on one side of 0, otherwise from worse to better."""
    (lower, upper), show = verdict.interval, _sentence_digits(verdict)
    if lower > 0:
        inner = f"{show(lower)} to {show(upper)}"
    elif upper < 0:
        inner = f"{show(-upper)} to {show(-lower)}"
    else:
        inner = f"{show(-lower)} worse to {show(upper)} better"
    unit = f"; {UNIT}" if in_points(verdict) else ""
    return f"{_percent(verdict)} interval {inner}{unit}"


def _further(verdict: Verdict) -> str:
    if verdict.further_pairs is None:
        return ""
    return f"; {plural(verdict.further_pairs, 'further pair')} would probably settle it"


def _percent(verdict: Verdict) -> str:
    return f"{100 * (1 - verdict.interval_alpha):.3g} %"


# -- the scope ------------------------------------------------------------------------------------------


class Scoped(Protocol):
    """The parts of a verdict that its scope is derived from."""

    @property
    def outcome(self) -> str: ...
    @property
    def test_noise(self) -> str: ...
    @property
    def both_outcome(self) -> str: ...
    @property
    def both_unknown(self) -> str: ...
    @property
    def test_examples(self) -> int: ...
    @property
    def test_pool(self) -> int: ...


def scope(verdict: Scoped, both: str) -> str:
    """The seeds and examples for which a verdict holds.

    Args:
        verdict: The verdict.
        both: Its interval over seeds and examples, in words.
    """
    if not verdict.both_outcome:
        new = f"; on new ones from the same source not known: {verdict.both_unknown}"
        return f"{HERE}{new}" if verdict.both_unknown else SCOPE
    size = f"{verdict.test_examples:,}"
    if verdict.test_pool > verdict.test_examples:
        here = f"the {size} test examples that each seed draws from one data set"
    else:
        here = f"these {size} test examples"
    if verdict.test_noise == "include":
        return f"over seeds and test examples: holds for new examples from the same source as {here}"
    new = f"on new ones from the same source {verdict.both_outcome} ({both} over seeds and examples)"
    return f"over seeds: {verdict.outcome} on {here}; {new}"


# -- the card -------------------------------------------------------------------------------------------


def card(verdict: Verdict) -> str:
    """The verdict as plain text, at most 100 columns wide."""
    lines = [*textwrap.wrap(verdict.sentence, WIDTH), "", *_drawing(verdict), ""]
    for label, text in _rows(verdict):
        first, *rest = textwrap.wrap(text, WIDTH - LABEL - 2) or [""]
        lines.append(f"  {label:<{LABEL}}{first}")
        lines += [" " * (LABEL + 2) + line for line in rest]
    return "\n".join(line.rstrip() for line in lines)


def _rows(verdict: Verdict) -> list[tuple[str, str]]:
    show = Digits.of(verdict)
    improved, low, high = (100 * share for share in (verdict.improvement, *verdict.improvement_interval))
    rows = [
        (
            "effect",
            f"{show.signed(verdict.effect)} (above 0: {verdict.candidate_name or 'the candidate'} is better)",
        ),
        ("adjusted effect", _adjusted(verdict, show)),
        (f"{_percent(verdict)} interval", f"{show.span(verdict.interval)}, {_validity(verdict)}"),
        ("scope", scope(verdict, f"{_percent(verdict)} interval {show.span(verdict.both_interval)}")),
        ("further baseline", _further_baseline(verdict, show)),
        ("equivalence", _equivalence(verdict, show)),
        ("margin", margin_remark(verdict, size)),
        *_looks(verdict, show),
        ("improved", f"{improved:.0f} % of the pairs ({low:.0f} to {high:.0f} %)"),
        ("standardised effect", _standardised(verdict.standardised_effect)),
        ("robust mean", f"{show.signed(verdict.robust_mean)} (the middle half of the differences)"),
        ("sign-flip test", _sign_flip(verdict)),
        ("correlation", _correlation(verdict.correlation)),
        ("failed replicas", _failures(verdict)),
        *_reasons(verdict),
        ("skewness", _skewness(verdict)),
        ("not seen", _not_seen(verdict)),
        ("to settle it", _settling(verdict)),
        *(("exploratory", text) for text in verdict.exploratory),
        *(("note", text) for text in verdict.notes),
    ]
    return [(label, text) for label, text in rows if text]


def _validity(verdict: Verdict) -> str:
    if verdict.anytime:
        return "valid however often one looks"
    plan = ", ".join(str(n) for n in verdict.planned_looks)
    if len(verdict.planned_looks) == 1:
        return f"valid for a single look at {plan} pairs"
    return f"valid over the planned looks at {plan} pairs"


def _further_baseline(verdict: Verdict, show: Digits) -> str:
    """What replicas of the baseline beyond the pairs did to the interval."""
    if not verdict.further_baseline or verdict.paired_interval is None:
        return ""
    found = plural(len(verdict.further_baseline), "replica")
    if verdict.paired_interval == verdict.interval:
        return f"{found} beyond the pairs; no gain here, so the pairs alone are used"
    alone = f"from the pairs alone {show.span(verdict.paired_interval)}"
    does = "sharpens" if len(verdict.further_baseline) == 1 else "sharpen"
    return f"{found} beyond the pairs {does} the baseline's mean; {alone}"


def _looks(verdict: Verdict, show: Digits) -> list[tuple[str, str]]:
    """One line per planned look; for looks at any time, the last four."""
    shown = verdict.looks[-4:] if verdict.anytime else verdict.looks
    lines = [f"{look.pairs} pairs: {show.span(look.interval)}, {look.outcome}" for look in shown]
    if len(shown) < len(verdict.looks):
        lines = [f"the last {len(shown)} of {len(verdict.looks)}:", *lines]
    return list(zip(["looks", *[""] * len(lines)], lines or ["none yet"], strict=False))


def _standardised(value: float) -> str:
    if math.isinf(value):
        return "without limit, because the differences do not vary"
    return f"{value:.2f} standard deviations of the differences"


def _adjusted(verdict: Verdict, show: Digits) -> str:
    """The effect less the bias of stopping early; empty if stopping early was not possible."""
    no_bias = len(verdict.planned_looks) < 2 or math.isnan(verdict.adjusted_effect)
    if verdict.outcome == "undecided" or no_bias:
        return ""
    return f"{show.signed(verdict.adjusted_effect)} (without what stopping early adds on average)"


def _equivalence(verdict: Verdict, show: Digits) -> str:
    if math.isinf(verdict.equivalence_interval[0]) or verdict.outcome in ("better", "worse"):
        return ""
    where = "inside" if verdict.outcome == "equivalent" else "not inside"
    return (
        f"one-sided {_percent(verdict)} bounds {show.span(verdict.equivalence_interval)}: {where} "
        f"±{size(verdict.margin)}"
    )


def margin_remark(verdict: Judged, word: Callable[[float], str]) -> str:
    """How well a margin that follows from the baseline is known, and the verdict another would give.

    Args:
        verdict: The verdict.
        word: Puts a margin into words.
    """
    if verdict.margin_interval is None:
        return ""
    low, high = map(word, verdict.margin_interval)
    others = [f"{outcome} with {word(margin)}" for margin, outcome in other_outcomes(verdict)]
    doubt = f"; the verdict would be {' and '.join(others)}" if others else ""
    seeds = plural(verdict.pairs + len(verdict.further_baseline), "seed")
    words = f"half the baseline's standard deviation; {seeds} put it between {low} and {high} (90 % interval)"
    return f"{words} if its scores are Gaussian{doubt}"


def _skewness(verdict: Verdict) -> str:
    """What tails lengthen, if noticeable: one side of the interval, or both."""
    if not math.isfinite(verdict.interval[0]):
        return ""
    down, up = verdict.effect - verdict.interval[0], verdict.interval[1] - verdict.effect
    longer, shorter = max(down, up), min(down, up)
    told = []
    if shorter and longer >= NOTICED * shorter:
        told.append(
            f"{verdict.skewness:+.2f}: a tail on one side, so the interval reaches {longer / shorter:.1f} "
            f"times as far {'down' if down > up else 'up'}"
        )
    if verdict.masked_skewness >= NOTICED_TAIL:
        told.append(
            f"each arm has a tail and masks the other's by {verdict.masked_skewness:.2f}, so both sides of "
            "the interval are longer"
        )
    return "; ".join(told)


def _not_seen(verdict: Verdict) -> str:
    share = 100 * unseen_share(verdict.pairs)
    what = f"what happens in fewer than {share:.0f} % of seeds may not have shown in"
    return f"{what} {plural(verdict.pairs, 'pair')}"


def _sign_flip(verdict: Verdict) -> str:
    looks = len(verdict.looks)
    alone = f"; as if this were the only look, and it is number {looks}" if looks > 1 else ""
    return (
        f"p = {verdict.sign_flip_p:.2g}, no distribution assumed ({verdict.smallest_p:.2g} is the smallest "
        f"that {plural(verdict.pairs, 'pair')} can give){alone}"
    )


def _correlation(value: float) -> str:
    if math.isnan(value):
        return "none, because an arm does not vary"
    return f"{value:.2f} between the arms over seeds"


def _failures(verdict: Verdict) -> str:
    found = verdict.failures
    if not (found.baseline or found.candidate):
        return "" if found.cap is None else f"none; what is worse than {found.cap:.4g} counts as that"
    first, second = verdict.baseline_name, verdict.candidate_name
    baseline = f"{first} (baseline)" if first else "baseline"
    candidate = f"{second} (candidate)" if second else "candidate"
    return (
        f"{baseline} {found.baseline}, {candidate} {found.candidate} of {verdict.pairs} each, counted as "
        f"{found.cap:.4g}; McNemar's test for a difference in failures: p = {found.p:.2g} at this look alone"
    )


def _reasons(verdict: Verdict) -> list[tuple[str, str]]:
    """Why replicas have no number: the first few, each cut before its advice; the record has all of it."""
    shown = [reason.partition(";")[0] for reason in verdict.failure_reasons[:MOST_REASONS]]
    more = len(verdict.failure_reasons) - len(shown)
    lines = [*shown, *([f"and {more} more"] if more else [])]
    return list(zip(["why they failed", *[""] * len(lines)], lines, strict=False))


def _settling(verdict: Verdict) -> str:
    if verdict.outcome != "undecided":
        return ""
    if verdict.further_pairs is None:
        examples = ", or more test examples" if verdict.test_noise == "include" else ""
        return f"cannot be said, or would take over 10,000 further pairs{examples}"
    return f"about {plural(verdict.further_pairs, 'further pair')}, with a chance of 80 %"


def _drawing(verdict: Verdict) -> list[str]:
    """The interval on a line, with the margin on both sides of 0, and what the signs mean."""
    (lower, upper), margin = verdict.interval, verdict.margin
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return ["  (no interval to draw yet)"]
    reach, half = 1.1 * max(abs(lower), abs(upper), margin), DRAWN // 2

    def place(value: float) -> int:
        return half + round(value / reach * half)

    line = [" "] * (2 * half + 1)
    line[place(lower) : place(upper) + 1] = "=" * (place(upper) + 1 - place(lower))
    for value, mark in ((-margin, "["), (margin, "]"), (0.0, "|"), (verdict.effect, "o")):
        line[place(value)] = mark
    legend = (
        f"o effect · = interval · | no difference · [ ] the smallest difference that matters, {margin:.3g}"
    )
    return [f"  worse {''.join(line)} better", f"  {legend}"]
