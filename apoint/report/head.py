"""The top of the page: the verdict in one sentence, what a reader must know first, and the key numbers."""

from __future__ import annotations

import math

from apoint.report import fields
from apoint.report.curves import ComparisonRuns
from apoint.report.markup import Markup, element, join
from apoint.report.record import ComparisonRecord
from apoint.report.scale import digits_of
from apoint.report.words import (
    NO_BREAK,
    OUTCOME_SYMBOLS,
    OUTCOME_WORDS,
    Digits,
    budget_words,
    confidence,
    core_time,
    count,
    metric_name,
    metric_unit,
    unbroken,
)
from apoint.verdict.card import scope

_UNFINISHED = {
    "running": "The comparison is still running: this is what was known when the page was drawn.",
    "interrupted": "The comparison was interrupted: this is what is known so far. It can be resumed, and "
    "what is here stays valid.",
    "unknown": "The record does not say how the comparison ended: this is what can be read of it.",
}


def head(record: ComparisonRecord, runs: ComparisonRuns) -> Markup:
    """Sentence, notices and key numbers."""
    return element(
        "header", _kicker(record), element("h1", _headline(record)), _setting(record),
        _notices(record, runs), _numbers(record),
    )  # fmt: skip


def _headline(record: ComparisonRecord) -> Markup:
    """The sentence: the finding in large letters, its interval and what follows in small ones."""
    words = sentence(record)
    place = words.find(f" ({confidence(record.verdict.interval_alpha)} interval")
    return join(words) if place < 0 else join(words[:place], element("small", words[place:]))


def sentence(record: ComparisonRecord) -> str:
    """The verdict in plain words: as recorded, or composed where nothing was."""
    verdict = record.verdict
    if record.sentence:
        return as_headline(record.sentence, verdict.metric)
    if not verdict.looks and not verdict.pairs:
        return f"No verdict yet: no look at the {metric_name(verdict.number)} was made so far."
    digits = digits_of(record)
    word = OUTCOME_WORDS.get(verdict.outcome, "Undecided")
    return (
        f"{word} after {count(verdict.pairs, 'pair')}: the candidate's {metric_name(verdict.subject)} "
        f"differs by {digits.signed(verdict.effect)} ({digits.span(verdict.interval)}; positive means the "
        "candidate is better)."
    )


def as_headline(words: str, metric: str) -> str:
    """A sentence with an initial capital, the metric as words, and numbers kept together with their unit."""
    if metric:
        words = words.replace(metric, metric_name(metric))
    words = unbroken(words.strip().replace(" %", f"{NO_BREAK}%"))
    return words[:1].upper() + words[1:]


def _kicker(record: ComparisonRecord) -> Markup:
    outcome = record.verdict.outcome if record.verdict.outcome in OUTCOME_WORDS else "undecided"
    badge = element("span", f"{OUTCOME_SYMBOLS[outcome]} {OUTCOME_WORDS[outcome]}", class_=f"badge {outcome}")
    marks: list[Markup] = [badge]
    if record.verdict.exploratory:
        marks.append(element("span", "Exploratory", class_="badge worse"))
    if record.state in _UNFINISHED:
        marks.append(element("span", record.state.capitalize(), class_="badge"))
    return element("p", marks, element("span", f"Comparison {record.name}"), class_="kicker")


def _setting(record: ComparisonRecord) -> Markup:
    """What was compared, in a sentence."""
    verdict, budget = record.verdict, fields.mapping(record.declaration.get("budget"))
    after = budget_words(budget)
    first, second = record.baseline.recipe, record.candidate.recipe
    names = [first] if first == second else [first, second]
    recipes = " against ".join(filter(None, names))
    both = digits_of(record).span(verdict.both_interval)
    parts = [
        f"Recipe {recipes}" if recipes else "",
        f"{metric_name(verdict.number)} ({metric_unit(verdict.metric)}, "
        f"{'higher' if verdict.higher_is_better else 'lower'} is better)"
        + (f" after {after}" if after else ""),
        "both arms of a pair share their seed",
        scope(verdict, f"{confidence(verdict.interval_alpha)} interval {both}"),
    ]
    words = "; ".join(filter(None, parts)) + "."
    return element("p", words[:1].upper() + words[1:], class_="lead")


def _notices(record: ComparisonRecord, runs: ComparisonRuns) -> list[Markup]:
    found = []
    if record.verdict.exploratory:
        found.append(
            notice(
                "Exploratory, not confirmatory: something was changed after results had been seen, so the "
                "error rate below is not guaranteed. Confirm on fresh seeds.",
                *record.verdict.exploratory,
            )
        )
    if record.verdict.negligible:
        words = "A difference was shown, and it is smaller than what was declared to matter."
        found.append(notice(words))
    if record.state in _UNFINISHED:
        found.append(notice(_UNFINISHED[record.state]))
    if runs.num_missing:
        named = count(runs.num_named, "run")
        found.append(
            notice(f"Curves of {runs.num_missing} of {named} are missing: their folders cannot be read.")
        )
    return found


def notice(first: str, *reasons: str) -> Markup:
    """What a reader must know first, with its reasons."""
    items = element("ul", [element("li", reason) for reason in reasons]) if reasons else None
    return element("div", element("p", element("strong", first)), items, class_="notice", role="note")


def _numbers(record: ComparisonRecord) -> Markup:
    verdict, digits = record.verdict, digits_of(record)
    most = fields.maybe_whole(record.declaration.get("max_pairs"))
    what = "mean difference, with cached baselines" if verdict.further_baseline else "mean paired difference"
    rows = [
        ("Effect", digits.signed(verdict.effect),
         f"{what}; positive favours {verdict.arm_words['candidate']}"),
        (f"{confidence(verdict.interval_alpha)} interval", digits.span(verdict.interval),
         "valid over all looks together" if verdict.has_interval else "too few pairs so far"),
        ("Pairs", str(verdict.pairs), f"of {most} at most" if most else "seeds run in both arms"),
        ("Margin", digits.margin(verdict.margin), "the smallest difference that matters"),
        *([("Cost", *cost_words(record.cost))] if record.cost else []),
        ("Correlation of pairs", Digits(2).plain(verdict.correlation), _gain(verdict.correlation)),
    ]  # fmt: skip
    return element("dl", [key_number(*row) for row in rows], class_="numbers")


def key_number(name: str, value: str, remark: str) -> Markup:
    """One of the numbers at the top of a page."""
    return element("div", element("dt", name), element("dd", value, element("small", remark)))


def cost_words(cost: fields.Json) -> tuple[str, str]:
    """The time spent, and its unit with the number of replicas."""
    spent, _, unit = core_time(fields.number(cost.get("core_seconds"))).partition(" ")
    replicas = fields.maybe_whole(cost.get("replicas"))
    cached = fields.whole(cost.get("from_cache"))
    words = [unit, count(replicas, "replica") if replicas is not None else ""]
    words.append(f"{cached} of them from the cache" if cached else "")
    return spent, ", ".join(filter(None, words))


def _gain(correlation: float) -> str:
    """What pairing saved, in words; for arms of equal spread it multiplies the pairs needed by 1 − r."""
    if not math.isfinite(correlation):
        return "what pairing achieved"
    if correlation < 0.05:
        return "pairing gained nothing here"
    saved = f"about {1 / (1 - correlation):.2g}" if correlation < 0.99 else "over 100"
    return f"shared seeds need {saved} times fewer pairs"


def title(record: ComparisonRecord) -> Markup:
    """The title of the window."""
    word = OUTCOME_WORDS.get(record.verdict.outcome, "Undecided")
    return join(element("title", f"{word}: {record.verdict.change or record.name}"))
