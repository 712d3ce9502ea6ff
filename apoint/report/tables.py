"""The tables: companions of the interval, recipe difference, declaration, and every pair."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from apoint.report import fields
from apoint.report.markup import Markup, element, join, table
from apoint.report.record import ComparisonRecord, Pair
from apoint.report.scale import digits_of
from apoint.report.verdict_record import VerdictRecord, declared_number
from apoint.report.words import (
    NO_INTERVAL,
    Digits,
    budget_words,
    capital,
    confidence,
    count,
    duration,
    listed,
    metric_name,
    p_value,
    percent,
    short,
)
from apoint.store import strict_json
from apoint.verdict.card import NOTICED, NOTICED_TAIL, margin_remark, size

Row = tuple[str, str, str]
MOST_OPEN_LOOKS = 6
_TEST_NOISE = "beside: seeds decide; include: the interval over seeds and test examples decides"


def companions_section(record: ComparisonRecord) -> Markup:
    """What is reported along with the interval."""
    verdict, digits = record.verdict, digits_of(record)
    low, high = (percent(share) for share in verdict.improvement_interval)
    equivalence = _equivalence_row(record)
    rows: list[Row] = [
        *_adjusted_row(record),
        *_paired_row(record),
        *equivalence,
        *_margin_row(record),
        ("Probability of improvement", percent(verdict.improvement),
         f"share of pairs in which {verdict.arm_words['candidate']} was better, ties half; {low} to {high}"),
        _standardised_row(verdict.standardised_effect),
        ("Robust mean", digits.signed(verdict.robust_mean),
         "mean of the middle half of the differences; far from the effect if few pairs decide it"),
        ("Sign-flip p", p_value(verdict.sign_flip_p),
         f"no distribution assumed; the smallest that {count(verdict.pairs, 'pair')} can give is "
         f"{p_value(verdict.smallest_p)}; not corrected for repeated looks"),
        ("Skewness", Digits(2).signed(verdict.skewness), f"of the differences; {_sides(verdict)}"),
        _failures_row(record),
    ]  # fmt: skip
    if verdict.further_pairs is not None:
        rows.append(("Further pairs", f"about {verdict.further_pairs}", "would probably settle it"))
    they = "Apart from the equivalence interval they" if equivalence else "They"
    lead = f"Companions of the verdict. {they} do not decide; if they disagree with it, look at the pairs."
    notes = element("ul", [element("li", note) for note in verdict.notes]) if verdict.notes else None
    return element(
        "section", element("h2", "Beside the interval"), element("p", lead, class_="soft"), notes,
        table("Companions of the verdict", ("Quantity", "Value", "Meaning"), rows, "wide words"),
    )  # fmt: skip


def _adjusted_row(record: ComparisonRecord) -> list[Row]:
    """The effect without the bias of stopping early; empty if undecided, or if there was one look."""
    verdict = record.verdict
    no_bias = len(verdict.planned_looks) < 2 or math.isnan(verdict.adjusted_effect)
    if verdict.outcome == "undecided" or no_bias:
        return []
    shown = digits_of(record).signed(verdict.adjusted_effect)
    return [("Adjusted effect", shown, "without what stopping early adds on average")]


def _paired_row(record: ComparisonRecord) -> list[Row]:
    """The interval from the pairs alone, if there were further replicas of the baseline."""
    verdict = record.verdict
    if not verdict.further_baseline:
        return []
    beyond = f"{count(len(verdict.further_baseline), 'cached replica')} of the baseline beyond the pairs"
    return [("From the pairs alone", digits_of(record).span(verdict.paired_interval), f"without {beyond}")]


def _equivalence_row(record: ComparisonRecord) -> list[Row]:
    verdict, digits = record.verdict, digits_of(record)
    if verdict.outcome in ("better", "worse"):
        return []
    words = (
        f"{confidence(2 * verdict.interval_alpha)} interval between two one-sided bounds; inside "
        f"{digits.margin(verdict.margin)} means equivalent"
    )
    return [("Equivalence interval", digits.span(verdict.equivalence_interval), words)]


def _margin_row(record: ComparisonRecord) -> list[Row]:
    """How well a margin that was derived from the baseline is known."""
    words, digits = margin_remark(record.verdict, size), digits_of(record)
    return [("Margin", digits.margin(record.verdict.margin), words)] if words else []


def _standardised_row(value: float) -> Row:
    if math.isinf(value):
        return "Standardised effect", "without limit", "the paired differences do not vary"
    words = "effect in standard deviations of the paired difference"
    return "Standardised effect", Digits(2).plain(value), words


def _sides(verdict: VerdictRecord) -> str:
    """Which side of the interval is longer, if one is noticeably so, or both."""
    if not verdict.has_interval:
        return NO_INTERVAL
    down, up = verdict.effect - verdict.interval[0], verdict.interval[1] - verdict.effect
    if max(down, up) >= NOTICED * min(down, up) > 0:
        side = "below" if down > up else "above"
        told = f"the interval is longer on the side of the tail, {side} the effect"
    else:
        told = "the interval is nearly symmetric"
    if verdict.masked_skewness >= NOTICED_TAIL:
        hidden = f"{verdict.masked_skewness:.2f}"
        told += f"; the arms' tails mask each other by {hidden}, and both sides are longer for it"
    return told


def _failures_row(record: ComparisonRecord) -> Row:
    failures = record.verdict.failures
    if not failures.total:
        return "Failures", "none", "no replica diverged or failed in either arm"
    first, second = record.verdict.arm_words.values()
    words = (
        f"replicas of {first} and of {second} that diverged or failed; alone in their pair: "
        f"{failures.only_baseline} and "
        f"{failures.only_candidate}, McNemar's exact p = {p_value(failures.p)}; "
        f"counted as {digits_of(record).plain(record.cap)}"
    )
    return "Failures", f"{failures.baseline} and {failures.candidate}", words


def looks_table(record: ComparisonRecord) -> Markup:
    """Every look with its numbers; collapsed if there are many."""
    digits = digits_of(record)
    rows = [
        (
            str(look.pairs),
            digits.signed(look.effect),
            digits.span(look.interval),
            look.outcome,
        )
        for look in record.verdict.looks
    ]
    body = table("Looks", ("Pairs", "Mean", "Interval", "Outcome"), rows, "looks")
    if len(rows) <= MOST_OPEN_LOOKS:
        return body
    return element("details", element("summary", f"All {len(rows)} looks as a table"), body)


def difference_section(record: ComparisonRecord) -> Markup:
    """The recipe values in which the arms differ."""
    if not record.difference:
        body = element("p", "The record names no difference between the recipes.", class_="soft")
    else:
        rows = [
            (element("code", path), element("code", setting(first)), element("code", setting(second)))
            for path, first, second in record.difference
        ]
        body = table("Recipe difference", ("Setting", "Baseline", "Candidate"), rows, "wide")
    arms = [arm for arm in (record.baseline, record.candidate) if arm.fingerprint]
    prints = ", ".join(f"{arm.name} {arm.recipe} ({arm.fingerprint})" for arm in arms)
    tail = element("p", f"Fingerprints: {prints}.", class_="soft") if prints else None
    return element("section", element("h2", "What was changed"), body, tail)


def setting(value: Any) -> str:
    """A value of a recipe on one line."""
    if value is None:
        return "not set"
    return value if isinstance(value, str) else strict_json(value)


def declaration_section(record: ComparisonRecord) -> Markup:
    """What was declared before the first replica, and whether it was kept."""
    declaration = record.declaration
    if not declaration:
        body: object = element("p", "No declaration was found in the folder.", class_="soft")
    else:
        body = declared_table(declaration, digits_of(record))
    kept = (
        element("p", element("strong", "Changed afterwards: "), " ".join(record.verdict.exploratory))
        if record.verdict.exploratory
        else element("p", "Nothing of this was changed afterwards.", class_="soft")
    )
    return element(
        "section", element("h2", "Declared in advance"), kept if declaration else None, body
    )  # fmt: skip


def declared_table(declaration: fields.Json, digits: Digits) -> Markup:
    """What was declared, as rows of name, value and remark."""
    rows = _declared(declaration, digits)
    return table("Declaration", ("What", "Declared", "Remark"), rows, "wide words")


def _declared(declaration: fields.Json, digits: Digits) -> list[Row]:
    budget = budget_words(fields.mapping(declaration.get("budget")))
    looks = fields.wholes(declaration.get("looks"))
    anytime = declaration.get("anytime") is True
    metric = metric_name(declared_number(declaration))
    higher = declaration.get("higher_is_better") is not False
    alpha = fields.number(declaration.get("alpha"))
    cap = fields.mapping(declaration.get("cap"))
    cap_value = digits.plain(fields.number(cap.get("value")))
    varied = listed(fields.texts(declaration.get("vary")))
    margin, limit = (fields.number(declaration.get(name)) for name in ("margin", "time_budget"))
    rows = [
        ("Metric", metric, "higher is better" if higher else "lower is better"),
        ("Training budget", budget or "not known", "for each replica; never chosen after looking"),
        ("Margin", "by rule" if math.isnan(margin) else digits.margin(margin), _margin_remark(declaration)),
        ("Error rate", short(alpha), f"{confidence(alpha)} intervals, over all looks together"),
        ("Looks", "at any time" if anytime else listed(looks), "" if anytime else "pairs"),
        ("Pairs at most", str(declaration.get("max_pairs", "not known")), _first_seed(declaration)),
        ("Varied by the seed", varied, "shared by both arms of a pair"),
        ("Test noise", fields.text(declaration.get("test_noise")), _TEST_NOISE),
        ("Cached baseline", listed(fields.wholes(declaration.get("cached_baselines"))),
         "seeds whose baseline was there already; those beyond the pairs sharpen its mean"),
        ("Failed replicas", f"count as {cap_value}", fields.text(cap.get("rule"))),
        ("Time to stop within", duration(limit) if limit > 0 else "", "of the whole comparison"),
        ("Declared at", fields.text(declaration.get("created")).replace("T", " ")[:16], ""),
    ]  # fmt: skip
    return [row for row in rows if row[1]]


def _margin_remark(declaration: fields.Json) -> str:
    return "; ".join(
        filter(None, (fields.text(declaration.get(name)) for name in ("margin_rule", "margin_note")))
    )


def _first_seed(declaration: fields.Json) -> str:
    seed = fields.maybe_whole(declaration.get("first_seed"))
    return "" if seed is None else f"seeds from {seed} on"


def pairs_table(record: ComparisonRecord, beside: Path | None) -> Markup | None:
    """Every pair with its numbers and its run folders, collapsed.

    Args:
        record: The comparison.
        beside: The folder of the page, to which paths are relative; None for no links.
    """
    if not record.pairs:
        return None
    folders = ("Run folders",) if record.baseline.runs or record.candidate.runs else ()
    head = ("Seed", *map(capital, record.verdict.arm_titles.values()), "Difference", *folders)
    rows = [_pair_row(record, pair, beside)[: len(head)] for pair in record.pairs]
    summary = element("summary", f"All {count(len(rows), 'pair')} as a table")
    return element(
        "section", element("h2", "The numbers"),
        element("details", summary, table("All pairs", head, rows, "wide pairs")),
    )  # fmt: skip


def _pair_row(record: ComparisonRecord, pair: Pair, beside: Path | None) -> list[object]:
    digits = digits_of(record)
    values = [
        join(digits.plain(value), _failed(state, reason))
        for value, state, reason in zip(
            (pair.baseline, pair.candidate), pair.states, pair.reasons, strict=True
        )
    ]
    seed = str(pair.number if pair.seed is None else pair.seed)
    links: list[object] = []
    for name in filter(None, pair.runs):
        links += [_run_link(record, name, beside), element("br")]
    return [seed, *values, digits.signed(pair.difference), links[:-1]]


def _failed(state: str, reason: str) -> Markup | None:
    """How a replica that did not finish ended, and why."""
    if state in ("", "finished"):
        return None
    return element("small", f"{state}: {reason}" if reason else state)


def _run_link(record: ComparisonRecord, name: str, beside: Path | None) -> Markup:
    """The path of a run folder from the page; a link where possible."""
    folder = record.run_folder(name)
    if folder is None or beside is None:
        return element("span", name, class_="path")
    path = os.path.relpath(folder, beside).replace(os.sep, "/")
    return element("a", path, href=quote(path, safe="/."), class_="path")
