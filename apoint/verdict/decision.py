"""From paired numbers to a verdict: look by look, stopping at the first that decides.

A pure function of the numbers and of what was declared beforehand. A verdict reached at a look does not
change when more pairs are given, because each look sees the pairs up to it and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from apoint.errors import UsageError, cut
from apoint.verdict.calibration import DEFAULT_LOOKS, check_alpha, check_plan, first_look, levels
from apoint.verdict.companions import (
    interquartile_mean,
    pair_correlation,
    probability_of_improvement,
    standardised_effect,
)
from apoint.verdict.estimate import adjusted_effect
from apoint.verdict.intervals import AnytimeRule, PlannedRule, Rule, critical_value
from apoint.verdict.pairs import Pairs, check_failures, check_margin, read_pairs
from apoint.verdict.planning import further_pairs
from apoint.verdict.record import LONGEST_CHANGE, LONGEST_NAME, Look, Verdict, call, is_negligible
from apoint.verdict.sign_flips import sign_flip_p, smallest_p
from apoint.verdict.types import Numbers


@dataclass(frozen=True)
class Declaration:
    """What is fixed before the first pair is made."""

    margin: float | None  # None: half the baseline's standard deviation, by the pairs of each look
    plan: tuple[int, ...]  # empty: one looks whenever one likes
    alpha: float
    higher_is_better: bool
    metric: str = ""
    exploratory: tuple[str, ...] = ()
    arms: int = 1

    @property
    def anytime(self) -> bool:
        """Whether one looks whenever one likes."""
        return not self.plan

    def look_points(self, pairs: int) -> tuple[int, ...]:
        """The numbers of pairs at which one looks, if so many are made."""
        points = self.plan or range(first_look(self.arms), pairs + 1)
        return tuple(n for n in points if n <= pairs)

    def rule(self, alpha: float) -> Rule:
        """How an interval with error rate `alpha` over all looks is made at one of them."""
        return AnytimeRule(alpha) if self.anytime else PlannedRule(levels(self.plan, alpha))

    def margin_for(self, pairs: Pairs) -> float:
        """The smallest difference that matters at a look at these pairs."""
        return default_margin(pairs)[0] if self.margin is None else self.margin


def declare(
    margin: float | None,
    looks: Sequence[int],
    alpha: float,
    higher_is_better: bool,
    anytime: bool,
    metric: str = "",
    exploratory: Sequence[str] = (),
    arms: int = 1,
) -> Declaration:
    """The declaration, checked."""
    plan = () if anytime else check_plan(looks, alpha)
    return Declaration(
        check_margin(margin),
        plan,
        check_alpha(alpha),
        bool(higher_is_better),
        metric,
        tuple(exploratory),
        arms,
    )


def default_margin(pairs: Pairs) -> tuple[float, str]:
    """Half the baseline's standard deviation; and why it is something else, if the baseline does not vary."""
    spread = pairs.spread()
    if spread > 0 or math.isnan(spread):
        return spread / 2, ""
    value = float(pairs.capped()[0][0])
    same = f"the baseline gives {value:g} with every seed"
    if pairs.resolution:
        return pairs.resolution, f"{same}, so that one step of the metric is taken as the margin"
    if value == 0:
        raise UsageError(f"{same}, so that no margin can be taken from it; give one with --margin")
    return abs(value) / 100, f"{same}, so that a hundredth of it is taken as the margin"


def decide(
    baseline: Numbers,
    candidate: Numbers,
    margin: float | None = None,
    looks: Sequence[int] = DEFAULT_LOOKS,
    alpha: float = 0.05,
    higher_is_better: bool = True,
    *,
    anytime: bool = False,
    metric: str = "",
    seeds: Sequence[int] = (),
    cap: float | None = None,
    resolution: float | None = None,
    exploratory: Sequence[str] = (),
    baseline_name: str = "",
    candidate_name: str = "",
    change: str = "",
) -> Verdict:
    """Whether the candidate is better than the baseline, worse, equivalent, or whether that is undecided.

    At each planned look an interval for the mean paired difference is made that misses the truth with
    probability `alpha` over all looks together. If it lies above 0, the candidate is better; below, worse.
    If two one-sided bounds of the same error rate lie inside ±`margin`, the arms are equivalent. Else the
    next look is made.

    Args:
        baseline: One number for each seed; NaN or infinite where the replica failed.
        candidate: The same seeds' numbers with the change.
        margin: The smallest difference that matters; None: half the baseline's standard deviation, taken at
            each look from the pairs up to it.
        looks: The planned numbers of pairs; a single one is a fixed sample.
        alpha: The rate of false calls over all looks.
        higher_is_better: The direction of the metric.
        anytime: Look after every pair, with a wider interval that allows it; `looks` is not used then.
        metric: The name of the number, for the sentence.
        seeds: The seeds of the pairs.
        cap: What a failed replica counts as, and the worst that any replica can count as; by default the
            worst finite number of either arm up to the look.
        resolution: The smallest step of the metric, such as 1/10000 for an accuracy on 10,000 examples; by
            default found from the numbers.
        exploratory: Sentences that say why this does not confirm anything, such as a changed margin.
        baseline_name: What to call the baseline, such as `adamw`.
        candidate_name: What to call the candidate, such as `lion`.
        change: What was changed, for the sentence; `lion instead of adamw` follows from the names.
    """
    declared = declare(margin, looks, alpha, higher_is_better, anytime, metric, exploratory)
    pairs = read_pairs(baseline, candidate, declared.higher_is_better, cap, resolution)
    check_seeds(seeds, len(pairs))
    rule = declared.rule(declared.alpha)
    made: list[Look] = []
    for n in declared.look_points(len(pairs)):
        made.append(judge(pairs.first(n), declared, rule))
        if made[-1].outcome != "undecided":
            break
    verdict = build(pairs, made, declared, rule, seeds=seeds)
    return named(verdict, baseline_name, candidate_name, change)


def check_seeds(seeds: Sequence[int], pairs: int) -> None:
    """One seed for each pair and none twice, or a `UsageError`."""
    if len(seeds) not in (0, pairs):
        raise UsageError(f"there are {len(seeds)} seeds for {pairs} pairs: give one for each pair, or none")
    if len(set(seeds)) != len(seeds):
        twice = next(seed for seed in seeds if list(seeds).count(seed) > 1)
        raise UsageError(f"seed {twice} stands twice among the pairs: a replica made twice tells nothing new")


def judge(pairs: Pairs, declared: Declaration, rule: Rule) -> Look:
    """The look at these pairs."""
    c = critical_value(rule, len(pairs))
    if math.isnan(pairs.cap_value()):  # one arm has only failed so far: its size is anybody's guess
        return _open_look(pairs, math.nan, declared, c)
    moments = pairs.moments()
    interval = moments.interval(c)
    narrow = moments.interval(critical_value(rule, len(pairs), one_sided=True))
    margin = declared.margin_for(pairs)
    return Look(len(pairs), moments.mean, interval, c, call(interval, narrow, margin), narrow, margin)


def _open_look(pairs: Pairs, effect: float, declared: Declaration, c: float) -> Look:
    """A look that can say nothing of the error of the effect."""
    everything = (-math.inf, math.inf)
    margin = math.nan if math.isnan(pairs.cap_value()) else declared.margin_for(pairs)
    return Look(len(pairs), effect, everything, c, "undecided", everything, margin)


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
    # Before the first planned look an effect is known, and nothing about its error.
    last = made[-1] if made else _open_look(pairs, float(pairs.differences().mean()), declared, math.inf)
    used = pairs.first(last.pairs)
    check_failures(used)
    baseline, candidate = used.capped()
    differences, moments = used.differences(), used.moments()
    improvement, improvement_interval = probability_of_improvement(differences, declared.alpha)
    rate = declared.alpha if interval_alpha is None else interval_alpha
    return Verdict(
        outcome=last.outcome,
        effect=last.effect,
        interval=last.interval,
        pairs=last.pairs,
        looks=tuple(made),
        margin=last.margin,
        alpha=declared.alpha,
        higher_is_better=declared.higher_is_better,
        metric=declared.metric,
        planned_looks=declared.plan,
        anytime=declared.anytime,
        negligible=is_negligible(last.outcome, last.interval),
        equivalence_interval=last.equivalence_interval,
        adjusted_effect=adjusted_effect(moments, last.pairs, declared.plan, rate),
        skewness=moments.skewness,
        sign_flip_p=sign_flip_p(differences),
        smallest_p=smallest_p(last.pairs),
        improvement=improvement,
        improvement_interval=improvement_interval,
        standardised_effect=standardised_effect(differences),
        robust_mean=interquartile_mean(differences),
        correlation=pair_correlation(baseline, candidate),
        failures=used.failures(),
        further_pairs=further_pairs(moments, last, declared.plan, len(pairs), rule),
        baseline=tuple(baseline.tolist()),
        candidate=tuple(candidate.tolist()),
        seeds=tuple(seeds)[: last.pairs],
        exploratory=declared.exploratory,
        notes=(*notes, *_notes(made, pairs, declared)),
        interval_alpha=rate,
    )


def named(verdict: Verdict, baseline_name: str, candidate_name: str, change: str = "") -> Verdict:
    """The verdict with names for its arms; what was changed follows from two names if it is not given."""
    baseline, candidate = cut(baseline_name, LONGEST_NAME), cut(candidate_name, LONGEST_NAME)
    if not change and baseline and candidate:
        change = f"{candidate} instead of {baseline}"
    change = cut(change, LONGEST_CHANGE)
    return replace(verdict, baseline_name=baseline, candidate_name=candidate, change=change)


def _notes(made: Sequence[Look], pairs: Pairs, declared: Declaration) -> list[str]:
    """What a reader must know about pairs that were given and not used."""
    total = len(pairs)
    if not made:
        first = declared.plan[0] if declared.plan else first_look(declared.arms)
        return [f"the first look is at {first} pairs, and there are {total}"]
    unused = total - made[-1].pairs
    if not unused:
        return []
    if made[-1].outcome != "undecided":
        return [f"not used: {unused} of {total} pairs, made after the look that decided"]
    if made[-1].pairs == declared.plan[-1]:
        return [f"not used: {unused} of {total} pairs, beyond the last planned look ({declared.plan[-1]})"]
    return [f"not used yet: {unused} of {total} pairs, because they wait for the next planned look"]
