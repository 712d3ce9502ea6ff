"""From paired numbers to a verdict: look by look, stopping at the first that decides.

A pure function of the numbers and of what was declared beforehand. A verdict reached at a look does not
change when more pairs are given, because each look sees the pairs up to it and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apoint.errors import UsageError
from apoint.verdict.companions import (
    interquartile_mean,
    pair_correlation,
    probability_of_improvement,
    standardised_effect,
)
from apoint.verdict.intervals import check_alpha, check_plan, nominal_alpha
from apoint.verdict.pairs import Pairs, check_failures, check_margin, read_pairs
from apoint.verdict.planning import further_pairs
from apoint.verdict.record import Look, Verdict, call, is_negligible
from apoint.verdict.sign_flips import sign_flip_p, smallest_p
from apoint.verdict.skew import (
    HEAVILY_SKEWED,
    SKEWED,
    AnytimeRule,
    PlannedRule,
    Rule,
    is_constant,
    skewness,
    t_interval,
    wide_interval,
)
from apoint.verdict.types import Numbers

DEFAULT_LOOKS = (8, 16, 24, 32)


@dataclass(frozen=True)
class Declaration:
    """What is fixed before the first pair is made."""

    margin: float
    plan: tuple[int, ...]  # empty: one looks whenever one likes
    alpha: float
    higher_is_better: bool
    metric: str = ""
    exploratory: tuple[str, ...] = ()

    @property
    def anytime(self) -> bool:
        """Whether one looks whenever one likes."""
        return not self.plan

    def look_points(self, pairs: int) -> tuple[int, ...]:
        """The numbers of pairs at which one looks, if so many are made."""
        points = self.plan or range(2, pairs + 1)
        return tuple(n for n in points if n <= pairs)

    def rule(self, alpha: float) -> Rule:
        """How an interval with error rate `alpha` over all looks is made at one of them."""
        return AnytimeRule(alpha) if self.anytime else PlannedRule(nominal_alpha(self.plan, alpha))


def declare(
    margin: float,
    looks: Sequence[int],
    alpha: float,
    higher_is_better: bool,
    anytime: bool,
    metric: str = "",
    exploratory: Sequence[str] = (),
) -> Declaration:
    """The declaration, checked."""
    plan = () if anytime else check_plan(looks, alpha)
    return Declaration(
        check_margin(margin), plan, check_alpha(alpha), bool(higher_is_better), metric, tuple(exploratory)
    )


def decide(
    baseline: Numbers,
    candidate: Numbers,
    margin: float,
    looks: Sequence[int] = DEFAULT_LOOKS,
    alpha: float = 0.05,
    higher_is_better: bool = True,
    *,
    anytime: bool = False,
    metric: str = "",
    seeds: Sequence[int] = (),
    cap: float | None = None,
    exploratory: Sequence[str] = (),
) -> Verdict:
    """Whether the candidate is better than the baseline, worse, equivalent, or whether that is undecided.

    At each planned look the interval mean ± c·s/√n of the paired differences is made, with c such that it
    misses the truth with probability `alpha` over all looks together. If it lies inside ±`margin`, the arms
    are equivalent; else if it lies above 0 the candidate is better, below 0 worse; else the next look is
    made. Skewed differences need a wider interval (`apoint.verdict.skew`).

    Args:
        baseline: One number for each seed; NaN or infinite where the replica failed.
        candidate: The same seeds' numbers with the change.
        margin: The smallest difference that matters.
        looks: The planned numbers of pairs; a single one is a fixed sample.
        alpha: The rate of false calls over all looks.
        higher_is_better: The direction of the metric.
        anytime: Look after every pair, with a wider interval that allows it; `looks` is not used then.
        metric: The name of the number, for the sentence.
        seeds: The seeds of the pairs.
        cap: What a failed replica counts as, and the worst that any replica can count as; by default the
            worst finite number of either arm up to the look.
        exploratory: Sentences that say why this does not confirm anything, such as a changed margin.
    """
    declared = declare(margin, looks, alpha, higher_is_better, anytime, metric, exploratory)
    pairs = read_pairs(baseline, candidate, declared.higher_is_better, cap)
    check_seeds(seeds, len(pairs))
    rule = declared.rule(declared.alpha)
    made: list[Look] = []
    for n in declared.look_points(len(pairs)):
        made.append(judge(pairs.first(n), declared.margin, rule))
        if made[-1].outcome != "undecided":
            break
    return build(pairs, made, declared, rule, seeds=seeds)


def check_seeds(seeds: Sequence[int], pairs: int) -> None:
    """One seed for each pair and none twice, or a `UsageError`."""
    if len(seeds) not in (0, pairs):
        raise UsageError(f"there are {len(seeds)} seeds for {pairs} pairs: give one for each pair, or none")
    if len(set(seeds)) != len(seeds):
        twice = next(seed for seed in seeds if list(seeds).count(seed) > 1)
        raise UsageError(f"seed {twice} stands twice among the pairs: a replica made twice tells nothing new")


def judge(pairs: Pairs, margin: float, rule: Rule) -> Look:
    """The look at these pairs: the t interval's call, or the wide one's where skewness demands it."""
    multiplier = rule.multiplier(len(pairs))
    if math.isnan(pairs.cap_value()):  # one arm has only failed so far: its size is anybody's guess
        return Look(len(pairs), math.nan, (-math.inf, math.inf), multiplier, "undecided", "t")
    differences = pairs.differences()
    effect, interval = float(differences.mean()), t_interval(differences, multiplier)
    outcome = call(interval, margin)
    shape, constant = abs(skewness(differences)), is_constant(differences)
    rule_name = "t"
    if constant or shape > HEAVILY_SKEWED or (shape > SKEWED and outcome != "undecided"):
        wide = wide_interval(differences, rule)
        confirmed = call(wide, margin)
        if constant or shape > HEAVILY_SKEWED or confirmed != outcome:
            interval, outcome, rule_name = wide, confirmed, "sign-flip"
    return Look(len(pairs), effect, interval, multiplier, outcome, rule_name)


def build(
    pairs: Pairs,
    made: Sequence[Look],
    declared: Declaration,
    rule: Rule,
    *,
    seeds: Sequence[int] = (),
    notes: Iterable[str] = (),
    interval_alpha: float | None = None,
) -> Verdict:
    """The verdict of the last look made, with its companions."""
    last = made[-1] if made else _no_look(pairs)
    used = pairs.first(last.pairs)
    check_failures(used)
    baseline, candidate = used.capped()
    differences = used.differences()
    improvement, improvement_interval = probability_of_improvement(differences, declared.alpha)
    return Verdict(
        outcome=last.outcome,
        effect=last.effect,
        interval=last.interval,
        pairs=last.pairs,
        looks=tuple(made),
        margin=declared.margin,
        alpha=declared.alpha,
        higher_is_better=declared.higher_is_better,
        metric=declared.metric,
        planned_looks=declared.plan,
        anytime=declared.anytime,
        negligible=is_negligible(last.outcome, last.interval),
        skewness=skewness(differences),
        switched=last.rule != "t",
        switch_reason=_switch_reason(last, used, declared),
        sign_flip_p=sign_flip_p(differences),
        smallest_p=smallest_p(last.pairs),
        improvement=improvement,
        improvement_interval=improvement_interval,
        standardised_effect=standardised_effect(differences),
        robust_mean=interquartile_mean(differences),
        correlation=pair_correlation(baseline, candidate),
        failures=used.failures(),
        further_pairs=further_pairs(differences, last, declared.margin, declared.plan, len(pairs), rule),
        baseline=tuple(baseline.tolist()),
        candidate=tuple(candidate.tolist()),
        seeds=tuple(seeds)[: last.pairs],
        exploratory=declared.exploratory,
        notes=(*notes, *_notes(made, pairs, declared)),
        interval_alpha=declared.alpha if interval_alpha is None else interval_alpha,
    )


def _no_look(pairs: Pairs) -> Look:
    """What is known before the first planned look: an effect, and nothing about its error."""
    effect = float(pairs.differences().mean())
    return Look(len(pairs), effect, (-math.inf, math.inf), math.inf, "undecided", "t")


def _switch_reason(last: Look, used: Pairs, declared: Declaration) -> str:
    """Why the wide interval took over, in one sentence; empty if it did not."""
    if last.rule == "t":
        return ""
    free = "the sign test's at any time" if declared.anytime else "the sign-flip test's"
    does = f"the interval also spans {free}, which assumes no distribution"
    if math.isinf(last.interval[0]) or math.isinf(last.interval[1]):
        does += f" and needs more than {last.pairs} pairs"
    if is_constant(used.differences()):
        return f"the differences do not vary, so that a deviation says nothing: {does}"
    found = skewness(used.differences())
    if abs(found) > HEAVILY_SKEWED:
        return f"the differences are heavily skewed (skewness {found:.2f}): {does}, and a skew-corrected one"
    unconfirmed = call(t_interval(used.differences(), last.multiplier), declared.margin)
    return (
        f"the differences are skewed (skewness {found:.2f}), and the t interval's call ({unconfirmed}) hangs "
        f"on their symmetry: {does}, and a skew-corrected one"
    )


def _notes(made: Sequence[Look], pairs: Pairs, declared: Declaration) -> list[str]:
    """What a reader must know about pairs that were given and not used."""
    total = len(pairs)
    if not made:
        first = declared.plan[0]
        return [f"the first planned look is at {first} pairs, and there are {total}"]
    unused = total - made[-1].pairs
    if not unused:
        return []
    if made[-1].outcome != "undecided":
        return [f"not used: {unused} of {total} pairs, made after the look that decided"]
    if made[-1].pairs == declared.plan[-1]:
        return [f"not used: {unused} of {total} pairs, beyond the last planned look ({declared.plan[-1]})"]
    return [f"not used yet: {unused} of {total} pairs, because they wait for the next planned look"]
