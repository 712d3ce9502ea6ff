"""Several candidates against one baseline, with the error rate held over all of them together.

*Up to ten arms, planned looks*: Holm's procedure over the arms at every look. With K arms of which R are
already called better or worse, an arm is tested at the error rate α/(K − R) over all looks, calibrated for
the plan; so the chance that any arm without effect is ever called is at most α, whatever the arms share. An
arm called better or worse carries the interval at the rate at which it was called, which excludes 0 exactly
then. Equivalence is judged at α/K throughout, and every other arm carries the interval at α/K: a rate that
others' calls have raised would let equivalence be called too easily.

*Beyond ten, or at any time*: e-BH on the anytime e-values. With k calls, an arm is called if its e-value is
at least K/(k·α): the expected share of false calls among all calls is at most α, whatever the arms share and
whenever one stops. An arm called carries the interval at the rate k·α/K.

In both an arm that is decided stops, and its verdict never changes afterwards. Differences that are skewed
need the wide interval here too.

Reference: Holm (1979), A simple sequentially rejective multiple test procedure; Wang and Ramdas (2022), False
discovery rate control with e-values; Xu, Wang and Ramdas (2024), Post-selection inference for e-value based
confidence intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from apoint.errors import UsageError
from apoint.verdict.decision import DEFAULT_LOOKS, Declaration, build, check_seeds, declare, judge
from apoint.verdict.intervals import evidence
from apoint.verdict.pairs import Pairs, read_numbers, read_pairs
from apoint.verdict.record import Look, Verdict
from apoint.verdict.types import Array, Numbers

MOST_FOR_HOLM = 10


@dataclass
class _Arm:
    """A candidate on its way to a verdict."""

    pairs: Pairs
    looks: list[Look] = field(default_factory=list)
    alpha: float = 0.0  # the error rate of the last look's interval, over all looks

    @property
    def outcome(self) -> str:
        return self.looks[-1].outcome if self.looks else "undecided"

    @property
    def called(self) -> bool:
        """Whether a difference from the baseline is claimed."""
        return self.outcome in ("better", "worse")

    def settle(self, look: Look, alpha: float) -> None:
        self.looks[-1], self.alpha = look, alpha


def decide_arms(
    baseline: Numbers,
    candidates: Mapping[str, Numbers],
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
) -> dict[str, Verdict]:
    """A verdict for each candidate, valid for all of them together.

    An arm may have fewer numbers than the baseline, because it was stopped: they belong to the first seeds.
    The other arguments are those of `decide`. More than ten arms are looked at after every pair.
    """
    if not candidates:
        raise UsageError("there is no arm to compare with the baseline: give at least one candidate")
    many = anytime or len(candidates) > MOST_FOR_HOLM
    declared = declare(margin, looks, alpha, higher_is_better, many, metric, exploratory)
    shared = read_numbers(baseline, "baseline")
    check_seeds(seeds, len(shared))
    arms = {name: _arm(name, shared, numbers, declared, cap) for name, numbers in candidates.items()}
    for n in declared.look_points(max(len(arm.pairs) for arm in arms.values())):
        active = [arm for arm in arms.values() if arm.outcome == "undecided" and len(arm.pairs) >= n]
        look = _look_ebh if many else _look_holm
        look(list(arms.values()), active, n, declared)
    return {name: _verdict(arm, declared, len(arms), seeds) for name, arm in arms.items()}


def _arm(name: str, shared: Array, numbers: Numbers, declared: Declaration, cap: float | None) -> _Arm:
    try:
        own = read_numbers(numbers, "candidate")
        if len(own) > len(shared):
            raise UsageError(
                f"it has {len(own)} numbers and the baseline {len(shared)}: each needs its partner, so train "
                "the baseline on the same seeds"
            )
        return _Arm(read_pairs(shared[: len(own)], own, declared.higher_is_better, cap))
    except UsageError as error:
        raise UsageError(f"arm {name!r}: {error}") from None


def _look_holm(arms: list[_Arm], active: list[_Arm], n: int, declared: Declaration) -> None:
    """One look of the step-down procedure: each call eases the next one's error rate."""
    _look_at_all(arms, active, n, declared)
    while waiting := [arm for arm in active if arm.outcome == "undecided"]:
        rate = declared.alpha / (len(arms) - sum(arm.called for arm in arms))
        found = _differing(waiting, n, declared, rate)
        if not found:
            return
        for arm, look in found:
            arm.settle(look, rate)


def _look_ebh(arms: list[_Arm], active: list[_Arm], n: int, declared: Declaration) -> None:
    """One look of e-BH: the largest number of calls whose common error rate all of them stand."""
    _look_at_all(arms, active, n, declared)
    before = sum(arm.called for arm in arms)
    waiting = [arm for arm in active if arm.outcome == "undecided"]
    e_values = [evidence(arm.pairs.first(n).differences()) for arm in waiting]
    for calls in range(len(arms), before, -1):
        rate = calls * declared.alpha / len(arms)
        strong = [arm for arm, e in zip(waiting, e_values, strict=True) if e * rate > 1 - 1e-9]
        if before + len(strong) < calls:
            continue
        found = _differing(strong, n, declared, rate)
        if before + len(found) >= calls:
            for arm, look in found:
                arm.settle(look, rate)
            return


def _look_at_all(arms: list[_Arm], active: list[_Arm], n: int, declared: Declaration) -> None:
    """Look at each active arm at the strictest rate, α/K: the only one at which equivalence is called."""
    rate = declared.alpha / len(arms)
    for arm in active:
        arm.looks.append(judge(arm.pairs.first(n), declared.margin, declared.rule(rate)))
        arm.alpha = rate


def _differing(waiting: list[_Arm], n: int, declared: Declaration, rate: float) -> list[tuple[_Arm, Look]]:
    """The arms that differ at this error rate, and not just by less than what matters."""
    rule = declared.rule(rate)
    looks = [(arm, judge(arm.pairs.first(n), declared.margin, rule)) for arm in waiting]
    return [(arm, look) for arm, look in looks if look.outcome in ("better", "worse")]


def _verdict(arm: _Arm, declared: Declaration, num_arms: int, seeds: Sequence[int]) -> Verdict:
    notes = []
    if num_arms > 1:
        how = "e-BH, the share of false calls" if declared.anytime else "Holm, the chance of any false call"
        notes.append(f"one of {num_arms} arms: {how} among them all is at most {declared.alpha:.3g}")
    rate = arm.alpha or declared.alpha / num_arms
    return build(
        arm.pairs,
        arm.looks,
        declared,
        declared.rule(rate),
        seeds=tuple(seeds)[: len(arm.pairs)],
        notes=notes,
        interval_alpha=rate,
    )
