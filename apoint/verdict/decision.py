"""From paired numbers to a verdict: look by look, stopping at the first look that decides.

A pure function of the numbers and of what was declared in advance. A verdict reached at a look does not
change when more pairs are given, because each look sees only the pairs up to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
from apoint.verdict.examples import ExampleNoise
from apoint.verdict.intervals import AnytimeRule, PlannedRule, Rule, critical_value
from apoint.verdict.moments import Moments
from apoint.verdict.pairs import Pairs, check_failures, check_margin, read_further, read_pairs
from apoint.verdict.planning import further_pairs
from apoint.verdict.record import (
    LONGEST_CHANGE,
    LONGEST_NAME,
    UNKNOWN,
    Look,
    Outcome,
    Verdict,
    call,
    is_negligible,
)
from apoint.verdict.sign_flips import sign_flip_p, smallest_p
from apoint.verdict.types import Interval, Numbers

TEST_NOISE = ("beside", "include")


@dataclass(frozen=True)
class Declaration:
    """What is fixed before the first pair is made."""

    margin: float | None  # None: half the baseline's standard deviation, from the pairs of each look
    plan: tuple[int, ...]  # empty: looks may happen at any time
    alpha: float
    higher_is_better: bool
    metric: str = ""
    exploratory: tuple[str, ...] = ()
    arms: int = 1
    includes_examples: bool = False  # whether the interval over seeds and examples decides

    @property
    def anytime(self) -> bool:
        """Whether looks may happen at any time."""
        return not self.plan

    def look_points(self, pairs: int) -> tuple[int, ...]:
        """The numbers of pairs at which to look, given this many pairs."""
        points = self.plan or range(first_look(self.arms), pairs + 1)
        return tuple(n for n in points if n <= pairs)

    def rule(self, alpha: float) -> Rule:
        """The rule that makes the interval at one look, with error rate `alpha` over all looks."""
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
    """Half the baseline's standard deviation; if the baseline does not vary, another margin and why."""
    spread = float(pairs.every_baseline().std(ddof=1))
    if spread > 0 or math.isnan(spread):
        return spread / 2, ""
    value = float(pairs.capped()[0][0])
    same = f"the baseline gives {value:g} with every seed"
    if pairs.resolution:
        return pairs.resolution, f"{same}, so that one step of the metric is taken as the margin"
    if value == 0:
        raise UsageError(f"{same}, so that no margin can be taken from it; give one with --margin")
    return abs(value) / 100, f"{same}, so that a hundredth of it is taken as the margin"


def margin_interval(pairs: Pairs) -> Interval | None:
    """The 90 % confidence interval for half the baseline's true standard deviation, for Gaussian scores."""
    from scipy.special import chdtri

    scores = pairs.every_baseline()
    degrees, spread = len(scores) - 1, float(scores.std(ddof=1))
    if not spread > 0:
        return None
    low, high = (spread / 2 * math.sqrt(degrees / chdtri(degrees, tail)) for tail in (0.05, 0.95))
    return low, high


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
    examples: ExampleNoise | None = None,
    test_noise: str = "beside",
    further_baseline: Numbers | Mapping[int, float] = (),
    baseline_name: str = "",
    candidate_name: str = "",
    change: str = "",
) -> Verdict:
    """Decide whether the candidate is better than the baseline, worse or equivalent, or leave it undecided.

    Each planned look computes an interval for the mean paired difference. Over all looks together, this
    interval misses the truth with probability `alpha`. If it is above 0, the candidate is better; if below,
    worse. If two one-sided bounds with the same error rate are inside ±`margin`, the arms are equivalent.
    Otherwise the next look follows.

    Args:
        baseline: One number per seed; NaN or infinite where the replica failed.
        candidate: The numbers of the same seeds with the change.
        margin: The smallest difference that matters; None: half the baseline's standard deviation,
            computed at each look from the pairs up to it.
        looks: The planned numbers of pairs; a single one means a fixed sample size.
        alpha: The rate of false calls over all looks.
        higher_is_better: The direction of the metric.
        anytime: Look after every pair, with a wider interval that allows it; `looks` is then not used.
        metric: The name of the metric, for the sentence.
        seeds: The seeds of the pairs.
        cap: What a failed replica counts as, and the worst value any replica can count as; by default the
            worst finite number of either arm up to the look.
        resolution: The smallest step of the metric, such as 1/10000 for an accuracy on 10,000 examples; by
            default inferred from the numbers.
        exploratory: Sentences that say why this is not confirmatory, such as a changed margin.
        examples: What the pairs share through their test examples; see `apoint.verdict.example_noise`.
        test_noise: With `beside`, seeds decide, and what `examples` add is reported separately. With
            `include`, the interval over seeds and examples decides at every look.
        further_baseline: Numbers of further replicas of the baseline, chosen before the first look; keyed by
            seed if some of these seeds may become pairs. A look uses those that are not among its pairs.
        baseline_name: What to call the baseline, such as `adamw`.
        candidate_name: What to call the candidate, such as `lion`.
        change: What was changed, for the sentence; by default built from the names: `lion instead of adamw`.
    """
    declared = declare(margin, looks, alpha, higher_is_better, anytime, metric, exploratory)
    declared = replace(declared, includes_examples=check_test_noise(test_noise) == "include")
    further = read_further(further_baseline, seeds)
    if declared.includes_examples and len(further.numbers):
        raise UsageError(
            "what test examples add was measured for pairs alone: leave further_baseline out, or test_noise"
        )
    pairs = read_pairs(baseline, candidate, declared.higher_is_better, cap, resolution, further)
    check_seeds(seeds, len(pairs))
    _check_examples(examples, len(pairs), declared)
    rule = declared.rule(declared.alpha)
    made: list[Look] = []
    for n in declared.look_points(len(pairs)):
        made.append(judge(pairs.first(n), declared, rule, examples))
        if made[-1].outcome != "undecided":
            break
    verdict = build(pairs, made, declared, rule, seeds=seeds, examples=examples)
    return named(verdict, baseline_name, candidate_name, change)


def check_test_noise(test_noise: str) -> str:
    """Return `beside` or `include`; raise a `UsageError` for anything else."""
    if test_noise not in TEST_NOISE:
        raise UsageError(f"test_noise must be {' or '.join(map(repr, TEST_NOISE))}, got {test_noise!r}")
    return test_noise


def _check_examples(examples: ExampleNoise | None, pairs: int, declared: Declaration) -> None:
    if examples is None and declared.includes_examples:
        raise UsageError(
            "test_noise='include' needs the differences on single examples: give examples=example_noise(…)"
        )
    if examples is not None and len(examples.shared) != pairs:
        raise UsageError(
            f"there are results of single examples for {len(examples.shared)} pairs, and there are {pairs} "
            "pairs: give them for each pair, None where a replica failed"
        )


def check_seeds(seeds: Sequence[int], pairs: int) -> None:
    """Check for one seed per pair and no duplicates, or raise a `UsageError`."""
    if len(seeds) not in (0, pairs):
        raise UsageError(f"there are {len(seeds)} seeds for {pairs} pairs: give one for each pair, or none")
    if len(set(seeds)) != len(seeds):
        twice = next(seed for seed in seeds if list(seeds).count(seed) > 1)
        raise UsageError(f"seed {twice} stands twice among the pairs: a replica made twice tells nothing new")


def judge(pairs: Pairs, declared: Declaration, rule: Rule, examples: ExampleNoise | None = None) -> Look:
    """The look at these pairs, which are the first of a comparison."""
    c = critical_value(rule, len(pairs))
    if math.isnan(pairs.cap_value()):  # one arm has only failed so far: the size of the effect is unknown
        return _open_look(pairs, math.nan, declared, c)
    both = with_examples(pairs, examples)
    if declared.includes_examples and both is None:
        return _open_look(pairs, float(pairs.differences().mean()), declared, c)
    moments, margin = pairs.moments(), declared.margin_for(pairs)
    over_seeds = _said(moments, rule, margin)
    over_both = _said(both, rule, margin) if both is not None else None
    beside = (over_both[0], over_both[2]) if over_both is not None else (UNKNOWN, "")
    decides = over_both if over_both is not None and declared.includes_examples else over_seeds
    interval, narrow, outcome = decides
    return Look(len(pairs), moments.mean, interval, c, outcome, narrow, margin, *beside)


def with_examples(pairs: Pairs, examples: ExampleNoise | None) -> Moments | None:
    """The moments of these pairs with the error from the choice of examples; None if it is unknown."""
    error = math.nan if examples is None else examples.error(len(pairs))
    # From the pairs alone: what examples add was measured without further replicas of the baseline.
    return None if math.isnan(error) else replace(pairs.paired_moments(), example_error=error)


def _said(moments: Moments, rule: Rule, margin: float) -> tuple[Interval, Interval, Outcome]:
    """The interval, the interval between one-sided bounds, and the outcome they give."""
    interval, narrow = (
        moments.interval(critical_value(rule, moments.pairs, one_sided)) for one_sided in (False, True)
    )
    return interval, narrow, call(interval, narrow, margin)


def _open_look(pairs: Pairs, effect: float, declared: Declaration, c: float) -> Look:
    """A look that can say nothing about the error of the effect."""
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
    examples: ExampleNoise | None = None,
) -> Verdict:
    """The verdict of the last look made, with its companion statistics."""
    # Before the first planned look an effect is known, but nothing about its error.
    last = made[-1] if made else _open_look(pairs, float(pairs.differences().mean()), declared, math.inf)
    used = pairs.first(last.pairs)
    check_failures(used)
    baseline, candidate = used.capped()
    differences, moments, paired = used.differences(), used.moments(), used.paired_moments()
    if declared.includes_examples:
        moments = with_examples(used, examples) or moments
    further = tuple(used.capped_further().tolist())
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
        # Seeds that now count as further replicas may become pairs later: rely on pairs only.
        further_pairs=further_pairs(
            replace(moments, deviation=paired.deviation), last, declared.plan, len(pairs), rule
        ),
        baseline=tuple(baseline.tolist()),
        candidate=tuple(candidate.tolist()),
        seeds=tuple(seeds)[: last.pairs],
        exploratory=declared.exploratory,
        notes=(*notes, *_notes(made, pairs, declared)),
        interval_alpha=rate,
        test_noise="include" if declared.includes_examples else "beside",
        both_outcome=last.both_outcome,
        both_interval=last.both_interval,
        test_examples=examples.size if examples else 0,
        test_pool=examples.pool if examples else 0,
        further_baseline=further,
        paired_interval=paired.interval(last.multiplier) if further else None,
        masked_skewness=moments.masked,
        margin_interval=margin_interval(used) if declared.margin is None else None,
    )


def named(verdict: Verdict, baseline_name: str, candidate_name: str, change: str = "") -> Verdict:
    """The verdict with names for its arms; a missing `change` follows from the two names."""
    baseline, candidate = cut(baseline_name, LONGEST_NAME), cut(candidate_name, LONGEST_NAME)
    if not change and baseline and candidate:
        change = f"{candidate} instead of {baseline}"
    change = cut(change, LONGEST_CHANGE)
    return replace(verdict, baseline_name=baseline, candidate_name=candidate, change=change)


def _notes(made: Sequence[Look], pairs: Pairs, declared: Declaration) -> list[str]:
    """What a reader must know about pairs that were given but not used."""
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
