"""Several candidates against one baseline, with the error rate controlled over all of them together.

This is Holm's procedure over the arms at every look. With K arms of which R are already called better or
worse, an arm is tested at the error rate α/(K − R) over all looks, planned or at any time; so the chance that
any arm without effect is ever called is at most α, no matter what the arms share. An arm called better or
worse carries the interval at the rate at which it was called, which excludes 0 exactly in that case.
Equivalence is judged at α/K throughout, and every other arm carries the interval at α/K: a rate raised by the
calls of other arms would make equivalence too easy to call.

A decided arm stops, and its verdict never changes afterwards.

Reference: Holm (1979), A simple sequentially rejective multiple test procedure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from apoint.errors import UsageError
from apoint.verdict.calibration import default_looks
from apoint.verdict.decision import Declaration, build, check_seeds, declare, judge, named
from apoint.verdict.pairs import Pairs, read_numbers, read_pairs
from apoint.verdict.record import Look, Verdict
from apoint.verdict.types import Array, Numbers


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
    margin: float | None = None,
    looks: Sequence[int] | None = None,
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
    changes: Mapping[str, str] | None = None,
) -> dict[str, Verdict]:
    """Return a verdict for each candidate, valid for all of them together.

    An arm that was stopped may have fewer numbers than the baseline: they belong to the first seeds. The
    other arguments are those of `decide`; the more arms there are, the later the default looks begin. If
    `baseline_name` or `changes` (what was changed in each arm) is given, the verdicts name the arms.
    """
    if not candidates:
        raise UsageError("there is no arm to compare with the baseline: give at least one candidate")
    plan = default_looks(len(candidates)) if looks is None else looks
    declared = declare(margin, plan, alpha, higher_is_better, anytime, metric, exploratory, len(candidates))
    shared = read_numbers(baseline, "baseline")
    check_seeds(seeds, len(shared))
    arms = {
        name: _arm(name, shared, numbers, declared, cap, resolution) for name, numbers in candidates.items()
    }
    for n in declared.look_points(max(len(arm.pairs) for arm in arms.values())):
        active = [arm for arm in arms.values() if arm.outcome == "undecided" and len(arm.pairs) >= n]
        _look(list(arms.values()), active, n, declared)
    verdicts = {name: _verdict(arm, declared, len(arms), seeds) for name, arm in arms.items()}
    if not baseline_name and not changes:
        return verdicts
    told = changes or {}
    return {name: named(each, baseline_name, name, told.get(name, "")) for name, each in verdicts.items()}


def _arm(
    name: str,
    shared: Array,
    numbers: Numbers,
    declared: Declaration,
    cap: float | None,
    resolution: float | None,
) -> _Arm:
    try:
        own = read_numbers(numbers, "candidate")
        if len(own) > len(shared):
            raise UsageError(
                f"it has {len(own)} numbers and the baseline {len(shared)}: each needs its partner, so train "
                "the baseline on the same seeds"
            )
        return _Arm(read_pairs(shared[: len(own)], own, declared.higher_is_better, cap, resolution))
    except UsageError as error:
        raise UsageError(f"arm {name!r}: {error}") from None


def _look(arms: list[_Arm], active: list[_Arm], n: int, declared: Declaration) -> None:
    """One look of the step-down procedure: each call relaxes the error rate of the next."""
    _look_at_all(arms, active, n, declared)
    while waiting := [arm for arm in active if arm.outcome == "undecided"]:
        rate = declared.alpha / (len(arms) - sum(arm.called for arm in arms))
        found = _differing(waiting, n, declared, rate)
        if not found:
            return
        for arm, look in found:
            arm.settle(look, rate)


def _look_at_all(arms: list[_Arm], active: list[_Arm], n: int, declared: Declaration) -> None:
    """Look at each active arm at the strictest rate, α/K: the only one at which equivalence is called."""
    rate = declared.alpha / len(arms)
    for arm in active:
        arm.looks.append(judge(arm.pairs.first(n), declared, declared.rule(rate)))
        arm.alpha = rate


def _differing(waiting: list[_Arm], n: int, declared: Declaration, rate: float) -> list[tuple[_Arm, Look]]:
    """The arms that differ at this error rate, without those that differ by less than what matters."""
    rule = declared.rule(rate)
    looks = [(arm, judge(arm.pairs.first(n), declared, rule)) for arm in waiting]
    return [(arm, look) for arm, look in looks if look.outcome in ("better", "worse")]


def _verdict(arm: _Arm, declared: Declaration, num_arms: int, seeds: Sequence[int]) -> Verdict:
    notes = []
    if num_arms > 1:
        notes.append(
            f"one of {num_arms} arms: the chance of any false call among them all is at most "
            f"{declared.alpha:.3g} (Holm)"
        )
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
