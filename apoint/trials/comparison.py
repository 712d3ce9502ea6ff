"""A comparison: two arms over paired seeds, look by look, until the statistics allow a verdict.

    compare("base.yaml", changes={"optimizer.name": "lion", "optimizer.lr": 1e-4})

The order matters. The rules are declared and written down first. Pairs are added up to the next planned
look, and no further once it decides. Trained replicas are in run folders and are never trained again, so an
interrupted comparison resumes where it stopped, and gives the same numbers.
"""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from apoint.data import Data
from apoint.engine import Options
from apoint.engine.examples import why_not_kept
from apoint.engine.fleet import Ended, Fleet, FleetMoment, Prediction, Task
from apoint.engine.measure import larger_is_better
from apoint.engine.replica import load_data
from apoint.engine.signals import TrainingInterruptedError
from apoint.errors import FaultError, TrainingError, UsageError
from apoint.store import Run
from apoint.trials import constant_baseline, record
from apoint.trials import declaration as declarations
from apoint.trials.arms import Arm, Source, check_averaged, check_comparable, make_arm
from apoint.trials.budget import looks_within, seconds_of
from apoint.trials.cached import ORDINARY_SEEDS, cached_seeds, cached_values
from apoint.trials.declaration import ANYTIME_PAIRS, Declaration
from apoint.trials.evaluations import check_arms, check_last
from apoint.trials.examples import LAST_ALONE, TOO_FEW, PairedExamples
from apoint.trials.naming import name_arms
from apoint.trials.outcome import outcome_of, refuse_failing, resolution
from apoint.trials.record import ArmRecord
from apoint.verdict import DEFAULT_LOOKS, ExampleNoise, Verdict, check_plan, decide
from apoint.verdict.card import Digits
from apoint.verdict.decision import check_test_noise, default_margin
from apoint.verdict.pairs import Pairs, read_further

MARGIN_RULE = (
    "half the standard deviation of the baseline over the seeds of each look, cached replicas included"
)


def _silent(_: Any) -> None:
    pass


@dataclass(frozen=True)
class Rules:
    """What a user may declare; None is the default, inferred from the recipes.

    Attributes:
        metric: The number compared; by default the usual test metric of the task.
        last: A replica's number is the mean of the metric over this many of its last evaluations.
        margin: The smallest difference that matters; by default half the baseline's standard deviation
            across seeds.
        alpha: The error rate over all looks.
        looks: The numbers of pairs at which to look.
        anytime: Look after every pair, by the rule that allows it.
        max_pairs: Where to end; by default the last look, or 64 with `anytime`.
        first_seed: The seeds are this one and the following.
        budget: A time limit such as `20m`: as many pairs as fit.
        vary: What the seed changes.
        test_noise: `beside`: seeds decide, and the interval over seeds and test examples is reported
            separately; `include`: the latter decides.
        cached_baselines: Whether baseline replicas that already exist, with seeds beyond the pairs of a
            look, sharpen the baseline's mean.
    """

    metric: str | None = None
    last: int = 1
    margin: float | None = None
    alpha: float = 0.05
    looks: Sequence[int] | None = None
    anytime: bool = False
    max_pairs: int | None = None
    first_seed: int = 0
    budget: str | float | None = None
    vary: Sequence[str] | None = None
    test_noise: str = "beside"
    cached_baselines: bool = True

    def __post_init__(self) -> None:
        check_last(self.last)
        check_test_noise(self.test_noise)
        if self.margin is not None and (isinstance(self.margin, bool) or not self.margin > 0):
            raise UsageError(
                f"the margin is the smallest difference that matters and must be above 0, got {self.margin:g}"
            )
        if self.anytime and self.looks is not None:
            raise UsageError("looks are planned, or made at any time; give --looks or --anytime, not both")
        if self.budget is not None and self.looks is not None:
            raise UsageError("a time budget plans the looks itself; give --budget or --looks, not both")
        if self.looks is not None:
            check_plan(tuple(self.looks), self.alpha)
        if not 0 < self.alpha < 1:
            raise UsageError(f"alpha must be between 0 and 1, got {self.alpha}")
        if self.max_pairs is not None and self.max_pairs < 3:
            raise UsageError(
                f"a comparison of {self.max_pairs} pairs cannot tell an effect from the noise of seeds; give "
                "at least 6"
            )


@dataclass
class Comparison:
    """A question about two arms, ready to run.

    Attributes:
        arms: Baseline and candidate.
        declaration: The rules in force.
        folder: Where it is kept.
        exploratory: Why it is not confirmatory; empty if it is.
        fleet: What trains the replicas.
        reproduce: The command that reproduces the comparison.
        test_size: The number of examples the metric is measured on.
        say: Called with sentences for the user.
    """

    arms: tuple[Arm, Arm]
    declaration: Declaration
    folder: Path
    exploratory: list[str]
    fleet: Fleet
    reproduce: str
    test_size: int
    say: Callable[[str], None] = _silent
    verdict: Verdict | None = None
    result: dict[str, Any] = field(default_factory=dict)
    _records: list[ArmRecord] = field(default_factory=list)
    _examples: PairedExamples = field(default_factory=PairedExamples)
    _further: dict[int, float] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        return self.folder.name

    # -- running -----------------------------------------------------------------------------------------

    def run(self) -> Verdict:
        """Train pairs up to the look that decides, or to the last one, and return the verdict."""
        self._records, self._examples = [ArmRecord(arm) for arm in self.arms], PairedExamples()
        self._read_cached()
        declarations.write_declaration(self.folder, self.declaration)
        record.write_recipes(self.folder, self.arms)
        for reason in self.exploratory:
            self.say(f"exploratory: {reason}")
        self._fix_backend()
        try:
            for pairs in self._look_points():
                if not self._has_time_for(pairs):
                    self.say(
                        f"the time budget ends before {pairs} pairs; the verdict is that of the last look"
                    )
                    break
                self._train(pairs)
                if self.verdict is None and self.declaration.margin is None:
                    self._check_baseline()
                if self._look() != "undecided":
                    break
        except (TrainingInterruptedError, TrainingError, FaultError):
            self._keep("interrupted")
            raise
        if self.verdict is None:
            self._look()
        assert self.verdict is not None
        self._keep("undecided" if self.verdict.outcome == "undecided" else "decided")
        return self.verdict

    def _read_cached(self) -> None:
        """Read the declared cached replicas; a damaged one is left out, but not after a look."""
        declared = self.declaration.cached_baselines
        if not declared:
            return
        baseline, looked = self.arms[0], record.read_result(self.folder) is not None
        metric = baseline.metric or self.declaration.metric
        leave_out = None if looked else self.say
        last = self.declaration.last
        self._further = cached_values(baseline, self.fleet, declared, metric, last, leave_out)
        self.declaration = replace(self.declaration, cached_baselines=tuple(self._further))
        if number := len(self._further):
            does = "replica sharpens" if number == 1 else "replicas sharpen"
            self.say(f"{number} cached baseline {does} the baseline's mean")

    def _fix_backend(self) -> None:
        """Choose how to train once for all looks; a resumed comparison trains in the same way."""
        if self.fleet.backend != "auto":
            return
        kept = record.read_fleet(self.folder)
        if kept is None:
            pairs = self._look_points()[0]
            predicted = self.fleet.plan(self.tasks(pairs), begin=True)
            if not predicted.seconds:
                return  # all of them exist
            kept = predicted.way, predicted.sentence
            record.write_fleet(self.folder, *kept)
        self.fleet.settle(*kept)

    def _look_points(self) -> list[int]:
        """The numbers of pairs after which to look."""
        plan = self.declaration
        if not plan.anytime:
            return list(plan.looks)
        block = max(2, self.fleet.width)
        return [*range(block, plan.max_pairs, block), plan.max_pairs]

    def _seeds(self, pairs: int) -> range:
        return range(self.declaration.first_seed, self.declaration.first_seed + pairs)

    def _tasks(self, arm: Arm, seeds: Sequence[int]) -> list[Task]:
        return [Task(arm.recipe, arm.document, seed) for seed in seeds]

    def tasks(self, pairs: int) -> list[Task]:
        """All replicas of this many pairs, one arm after the other."""
        return [task for arm in self.arms for task in self._tasks(arm, self._seeds(pairs))]

    def _check_baseline(self) -> None:
        """Reject a baseline that mostly fails, as the margin follows from its spread; report the margin."""
        baseline, plan = self._records[0], self.declaration
        refuse_failing(plan.first_seed, baseline.states, baseline.reasons)
        values = np.array(baseline.values)
        cached = read_further(self._further, self._seeds(len(values))).beyond(len(values))
        pairs = Pairs(values, values, plan.higher_is_better, plan.cap["value"], self._resolution(), cached)
        margin, note = default_margin(pairs)
        self.say(
            f"the smallest difference that matters is taken to be about {margin:.3g} in {plan.number}: "
            f"{note or plan.margin_rule}"
        )

    def _resolution(self) -> float | None:
        return resolution(self.declaration.metric, self.declaration.last, self.test_size)

    def _train(self, pairs: int) -> None:
        """Ensure that the first `pairs` seeds of both arms are trained, and record their results."""
        missing = [
            (each, task)
            for each in self._records
            for task in self._tasks(each.arm, self._seeds(pairs)[len(each.runs) :])
        ]
        ended = self.fleet.train([task for _, task in missing])
        for (each, _), outcome in zip(missing, ended, strict=True):
            self._note(each, outcome)

    def _note(self, kept: ArmRecord, outcome: Ended) -> None:
        kept.runs.append(outcome.folder.name)
        kept.states.append(outcome.state)
        kept.reasons.append(outcome.reason)
        kept.values.append(outcome_of(outcome, self._metric(kept), self.declaration.last).value)
        kept.core_seconds += outcome.seconds
        kept.from_cache += outcome.cached

    def _metric(self, kept: ArmRecord) -> str:
        return kept.arm.metric or self.declaration.metric

    def _example_noise(self, pairs: int) -> ExampleNoise | None:
        """The noise of the test examples, as far as the runs show it; without it, `include` is rejected."""
        first, second = self._records
        if self.declaration.last > 1:
            self._examples.missing = LAST_ALONE
            return None
        for place in range(len(self._examples), pairs):
            runs = [Run(self.fleet.options.root / kept.runs[place]) for kept in (first, second)]
            self._examples.add((runs[0], runs[1]), (self._metric(first), self._metric(second)))
        if self._examples.missing and self.declaration.test_noise == "include":
            raise UsageError(
                f"--test-noise include cannot decide: {self._examples.missing}; train it again, or leave the "
                "option out"
            )
        return self._examples.noise()

    def _look(self) -> str:
        """Decide on the results so far, and save the verdict."""
        plan = self.declaration
        pairs = min(len(kept.values) for kept in self._records)
        verdict = decide(
            self._records[0].values[:pairs],
            self._records[1].values[:pairs],
            plan.margin,
            looks=plan.looks or DEFAULT_LOOKS,
            alpha=plan.alpha,
            higher_is_better=plan.higher_is_better,
            anytime=plan.anytime,
            metric=plan.metric,
            seeds=tuple(self._seeds(pairs)),
            cap=plan.cap["value"],
            resolution=self._resolution(),
            exploratory=tuple(self.exploratory),
            examples=self._example_noise(pairs),
            test_noise=plan.test_noise,
            further_baseline=self._further,
            **asdict(name_arms(*self.arms)),
        )
        unknown = (self._examples.missing or TOO_FEW) if verdict.looks and not verdict.both_outcome else ""
        reasons = [reason for kept in self._records for reason in kept.failure_reasons(self._seeds(pairs))]
        self.verdict = replace(verdict, failure_reasons=tuple(reasons), last=plan.last, both_unknown=unknown)
        self._keep("running")
        if self.verdict.outcome == "undecided":
            self.say(f"after {pairs} pairs: {told(self.verdict)}; going on")
        return self.verdict.outcome

    def _keep(self, state: str) -> None:
        if self.verdict is None:
            return
        self.result = record.result(
            name=self.name,
            state=state,
            verdict=self.verdict,
            declaration=self.declaration,
            arms=self._records,
            wall_seconds=time.monotonic() - self._begun,
            fleet=self.fleet.sentence,
            reproduce=self.reproduce,
        )
        record.write_result(self.folder, self.result)

    def _has_time_for(self, pairs: int) -> bool:
        """Whether the next look's replicas can be expected to fit into the time budget."""
        limit = self.declaration.time_budget
        if limit is None or pairs == self._look_points()[0]:
            return True
        spent = time.monotonic() - self._begun
        missing = pairs - len(self._records[1].runs)
        done = max(1, len(self._records[1].runs))
        return spent + spent / done * missing <= limit * 1.05


def told(verdict: Verdict) -> str:
    """An effect and its interval in a few words."""
    (lower, upper), show = verdict.interval, Digits.of(verdict)
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return f"{show.signed(verdict.effect)}, no interval yet"
    return f"{show.signed(verdict.effect)}, between {show.signed(lower)} and {show.signed(upper)}"


# -- preparing -----------------------------------------------------------------------------------------------


def prepare(
    baseline: Source,
    candidate: Source | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    rules: Rules | None = None,
    shared: Mapping[str, Any] | None = None,
    options: Options | None = None,
    backend: str = "auto",
    workers: int | None = None,
    stack: int | None = None,
    files: Sequence[str] = (),
    reproduce: str = "",
    say: Callable[[str], None] | None = None,
    watch: Callable[[FleetMoment], None] | None = None,
    **ray: Any,
) -> Comparison:
    """Check everything, find or make the declaration, and return a comparison that is ready to run.

    Args:
        baseline: A recipe.
        candidate: Another recipe; None if the candidate is the baseline with `changes`.
        changes: Dotted paths and new values, for the candidate alone.
        rules: What is declared.
        shared: Dotted paths and new values for both arms.
        options: Where runs and data are, and the like; see `apoint.engine.Options`.
        backend: How to train the fleet; see `apoint.engine.fleet.Fleet`.
        workers: Processes of the fleet.
        stack: Replicas in one computation.
        files: Python files that register ingredients, for the workers.
        reproduce: The command that asks this question.
        say: Called with sentences for the user.
        watch: Called with the state of the fleet.
        **ray: Further settings of the fleet.
    """
    rules, options = rules or Rules(), options or Options()
    if candidate is None and not changes:
        raise UsageError("a comparison needs a second recipe, or a change such as --change optimizer.lr=3e-4")
    arms = (
        make_arm("baseline", baseline, shared, rules.vary),
        make_arm(
            "candidate",
            baseline if candidate is None else candidate,
            {**(shared or {}), **(changes or {})},
            rules.vary,
        ),
    )
    say = say or _silent
    options = replace(options, threads=options.threads or 1)
    fleet = Fleet(
        options,
        backend=backend,
        workers=workers,
        stack=stack,
        say=say,
        watch=watch or _silent,
        files=tuple(files),
        **ray,
    )
    with fleet.use_dataset_cache():
        data = load_data(arms[0].recipe, rules.first_seed, options.data_root, arms[0].document.folder)
        wanted = declare(arms, rules, data)
        check_arms(arms, rules.last, rules.first_seed, options)
    folder, declaration, exploratory = declarations.place(options.root, _name(arms, changes), arms, wanted)
    comparison = Comparison(
        arms,
        declaration,
        folder,
        exploratory,
        fleet,
        reproduce or _reproduce(arms, changes),
        len(data.splits[wanted.metric.partition("_")[0]]),
        say,
    )
    if declaration is wanted:
        if rules.budget is not None:
            comparison.declaration = _within_budget(comparison, rules, wanted)
        if declaration.cached_baselines is not None and not options.fresh:
            comparison.declaration = _with_cached(comparison)
    return comparison


def _with_cached(comparison: Comparison) -> Declaration:
    """The declaration with the existing baseline replicas beyond the pairs of the first look."""
    plan = comparison.declaration
    beyond = plan.first_seed + comparison._look_points()[0]
    seeds = range(beyond, plan.first_seed + ORDINARY_SEEDS)
    found = cached_seeds(comparison.arms[0], comparison.fleet, seeds, comparison.say)
    return replace(plan, cached_baselines=found)


def declare(arms: tuple[Arm, Arm], rules: Rules, data: Data) -> Declaration:
    """The rules of a comparison with every default inferred from the recipes and their data."""
    baseline, candidate = arms
    metric = rules.metric or constant_baseline.default_metric(data)
    check_averaged(arms, metric)
    constant_baseline.check_metric(
        metric, constant_baseline.known_metrics(data, baseline.recipe.average is not None)
    )
    check_comparable(baseline, candidate, metric)
    reason = LAST_ALONE if rules.last > 1 else why_not_kept(metric, data)
    if rules.test_noise == "include" and reason:
        raise UsageError(f"--test-noise include needs results of single examples: {reason}")
    looks, most = _plan(rules)
    return Declaration(
        metric=metric,
        higher_is_better=larger_is_better(metric),
        budget=_budget(arms),
        margin=rules.margin,
        margin_rule="given" if rules.margin is not None else MARGIN_RULE,
        alpha=rules.alpha,
        looks=looks,
        anytime=rules.anytime,
        max_pairs=most,
        first_seed=rules.first_seed,
        vary=tuple(baseline.recipe.vary),
        cap={
            "value": constant_baseline.trivial_value(data, metric, baseline.recipe.loss["name"]),
            "rule": constant_baseline.RULE,
        },
        arms=declarations.arm_facts(arms),
        time_budget=seconds_of(rules.budget) if rules.budget is not None else None,
        last=rules.last,
        test_noise=rules.test_noise,
        # What examples add was measured for pairs alone.
        cached_baselines=() if rules.cached_baselines and rules.test_noise == "beside" else None,
    )


def _plan(rules: Rules) -> tuple[tuple[int, ...], int]:
    """The looks and where they end."""
    if rules.anytime:
        return (), rules.max_pairs or ANYTIME_PAIRS
    looks = tuple(rules.looks or DEFAULT_LOOKS)
    if rules.max_pairs is not None and rules.max_pairs != looks[-1]:
        if rules.looks is not None:
            raise UsageError(
                "the last look is where a comparison ends; give --looks or --max-pairs, not both"
            )
        looks = looks_within(rules.max_pairs, rules.max_pairs)
    return looks, looks[-1]


def _budget(arms: tuple[Arm, Arm]) -> dict[str, Any]:
    """How long the arms train; separately for each if they differ."""
    first, second = (arm.budget for arm in arms)
    return first if first == second else {arm.name: arm.budget for arm in arms}


def _within_budget(comparison: Comparison, rules: Rules, wanted: Declaration) -> Declaration:
    """The declaration with looks that fit into the time available, as the fleet predicts."""
    sample = comparison.tasks(DEFAULT_LOOKS[0])
    predicted = comparison.fleet.plan(sample)
    assert wanted.time_budget is not None
    per_pair = predicted.seconds / DEFAULT_LOOKS[0]
    affordable = int(wanted.time_budget / max(per_pair, 1e-9))
    if rules.anytime:
        return replace(wanted, max_pairs=max(2, min(wanted.max_pairs, affordable)))
    looks = looks_within(affordable)
    return replace(wanted, looks=looks, max_pairs=looks[-1])


def predict(comparison: Comparison) -> tuple[Prediction, Prediction]:
    """What the first look and the whole comparison would cost at most."""
    first, last = comparison._look_points()[0], comparison._look_points()[-1]
    return comparison.fleet.plan(comparison.tasks(first)), comparison.fleet.plan(comparison.tasks(last))


def _name(arms: tuple[Arm, Arm], changes: Mapping[str, Any] | None) -> str:
    """A name for the folder: the baseline, and the other recipe or the change."""
    other = " ".join(f"{key}={value}" for key, value in changes.items()) if changes else arms[1].recipe.name
    slug = re.sub(r"[^A-Za-z0-9.=_-]+", "-", other).strip("-.")[:60]
    return f"{arms[0].recipe.name}-vs-{slug}"


def _reproduce(arms: tuple[Arm, Arm], changes: Mapping[str, Any] | None) -> str:
    source = arms[0].document.name
    if changes:
        written = " ".join(f"--change {shlex.quote(f'{key}={value}')}" for key, value in changes.items())
        return f"apoint compare {shlex.quote(source)} {written}"
    return f"apoint compare {shlex.quote(source)} {shlex.quote(arms[1].document.name)}"
