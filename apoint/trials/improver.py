"""A search for a better recipe: screen all changes, confirm the best on fresh seeds, add the next best to it.

The best of many looks better than it is: its lead is partly luck. So nothing that the screen shows counts
until seeds that took no part in the choice have confirmed it, and the reported estimate is theirs. The whole
error rate is spent there. Once the best is confirmed, the next best is tried on top of it, and so on. The
screen fixed the order, and the first change that is not confirmed ends the search, so the chance of any
false step is at most the declared rate, however many steps there are. If several changes are kept, all of
them together are measured against the base once more, and that last check counts, whatever its outcome.

Everything was declared before the first replica (`improve.py`), and every stage leaves a record, from which
an interrupted search resumes.

Reference: Maurer, Hothorn and Lehmacher (1995), on tests in a fixed order at the full level.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from apoint.engine.fleet import Fleet, Task
from apoint.engine.replica import borrowed_randomness, rehearse
from apoint.engine.signals import TrainingInterruptedError
from apoint.errors import FaultError, TrainingError, UsageError
from apoint.notebook import NotebookDisplay
from apoint.recipe import Document, Recipe, load_recipe, to_yaml
from apoint.recipe.document import document_from_text
from apoint.store import storage_errors, write_atomically
from apoint.store.sealed import write_sealed
from apoint.trials.arms import Arm, make_arm
from apoint.trials.candidates import Candidate, mix
from apoint.trials.comparison import Comparison
from apoint.trials.declaration import Declaration, arm_facts
from apoint.trials.evaluations import assembled, check_evaluations
from apoint.trials.naming import name_arms
from apoint.trials.outcome import Outcome, outcome_of
from apoint.trials.record import RESULT
from apoint.trials.screening import Screen
from apoint.trials.search import BASELINE, DECLARATION, FRESH_SEEDS, SCHEMA_VERSION, Declared
from apoint.verdict import Verdict
from apoint.verdict.card import as_subject

IMPROVED = "improved.yaml"
UNFINISHED = "the search has not come to its end; what is confirmed so far holds"
SAMPLE_PAIRS = 8  # how many the fleet's prediction counts for
SEEDS_APART = 10_000  # between the seeds of one added change and the next
HEADER = "# improved by apoint:"


def silent(_: Any) -> None:
    """Discard the message."""


# -- the result ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Improvement(NotebookDisplay):
    """A recipe that is better, or the base if nothing was found to help.

    Attributes:
        recipe: The improved recipe.
        changes: How it differs from the base; empty if nothing helped.
        verdict: The last check, on seeds that took no part in any choice; None if the screen found nothing
            worth one.
        evidence: Everything that was declared, tried and found, as in `result.json`.
        folder: Where it is kept.
        text: The improved recipe as YAML, with the evidence above it.
    """

    recipe: Recipe
    changes: dict[str, Any]
    verdict: Verdict | None
    evidence: dict[str, Any]
    folder: Path
    text: str

    def to_yaml(self) -> str:
        """The improved recipe as YAML, with the evidence above it."""
        return self.text

    def __str__(self) -> str:
        return str(self.evidence["sentence"])


@dataclass(frozen=True)
class Check:
    """A comparison on fresh seeds: its question, where it is kept, and its verdict."""

    stage: str
    labels: tuple[str, ...]
    folder: str
    verdict: Verdict
    cost: dict[str, Any]

    @property
    def better(self) -> bool:
        """Whether the candidate was confirmed to be better."""
        return self.verdict.outcome == "better"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        kept = {"stage": self.stage, "labels": list(self.labels), "comparison": self.folder}
        return {**kept, "confirmed": self.better, "verdict": self.verdict.to_dict(), "cost": self.cost}


# -- the search ---------------------------------------------------------------------------------------------


@dataclass
class Improver:
    """A search for a better recipe, ready to run.

    Attributes:
        base: The recipe as an arm.
        document: The base as it was written, from which the improved recipe is written.
        entries: The changes that are screened, each with its arm.
        declared: The rules in force.
        folder: Where it is kept.
        fleet: What trains the replicas.
        test_size: The number of examples the metric is measured on.
        say: Called with sentences for the user.
    """

    base: Arm
    document: Document
    entries: dict[str, tuple[Candidate, Arm]]
    declared: Declared
    folder: Path
    fleet: Fleet
    test_size: int
    say: Callable[[str], None] = silent
    reproduce: str = ""
    screen: Screen = field(init=False)
    checks: list[Check] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    verdict: Verdict | None = None
    _begun: float = 0.0
    _trained: int = 0
    _training_seconds: float = 0.0

    def __post_init__(self) -> None:
        plan = self.declared
        self.screen = Screen(
            list(self.entries),
            plan.plan.rungs,
            self._train,
            first_seed=plan.first_seed,
            higher_is_better=plan.higher_is_better,
            cap=plan.screen_cap,
            must_train=plan.margin is None,
            say=self.say,
            keep=lambda _: self._keep_running(),
            has_time=self._has_time_to_screen,
        )

    @property
    def root(self) -> Path:
        """Where run folders are."""
        return self.folder.parent.parent

    def run(self) -> Improvement:
        """Screen, confirm and add; return the better recipe, or the base."""
        self._begun = time.monotonic()
        self._write_declaration()
        for reason in self.declared.exploratory:
            self.say(f"exploratory: {reason}")
        try:
            self.screen.run()
            self._confirm()
        except (TrainingInterruptedError, TrainingError, FaultError):
            self._keep("interrupted")
            raise
        return self._finish()

    def _keep_running(self) -> None:
        self._keep("running")

    # -- the screen --------------------------------------------------------------------------------------

    def _train(self, wanted: list[tuple[str, int]]) -> list[Outcome]:
        """Train replicas of the screen, which have separate examples to choose by."""
        arms = {name: self._screen_arm(name) for name in dict.fromkeys(name for name, _ in wanted)}
        tasks = [Task(arms[name].recipe, arms[name].document, seed) for name, seed in wanted]
        begun = time.monotonic()
        ended = self.fleet.train(tasks)
        outcomes = [
            outcome_of(each, arms[name].metric, self.declared.last)
            for (name, _), each in zip(wanted, ended, strict=True)
        ]
        self._count(sum(not outcome.cached for outcome in outcomes), begun)
        return outcomes

    def _screen_arm(self, name: str) -> Arm:
        labels = [] if name == BASELINE else [name]
        return self._arm(labels, name, self.declared.screen_metric, self.declared.screen_changes)

    def _count(self, trained: int, begun: float) -> None:
        """Record how long this many replicas took; those from the cache say nothing about that."""
        if trained:
            self._trained += trained
            self._training_seconds += time.monotonic() - begun

    def _has_time_to_screen(self, replicas: int) -> bool:
        """Whether this many more replicas leave enough time for the confirmation."""
        plan = self.declared.plan
        return self._has_time(replicas, self.declared.time_budget * plan.screen_replicas / plan.replicas)

    def _has_time(self, replicas: int, limit: float) -> bool:
        """Whether this many more replicas can be expected to end within `limit` seconds of the start."""
        predicted = self.declared.expected_seconds / self.declared.plan.replicas
        pace = (SAMPLE_PAIRS * predicted + self._training_seconds) / (SAMPLE_PAIRS + self._trained)
        return time.monotonic() - self._begun + pace * replicas <= 1.05 * limit

    # -- on fresh seeds ----------------------------------------------------------------------------------

    def _confirm(self) -> None:
        """Compare the best with the base, add what helps on top of it, and measure all of it together."""
        best, *others = self.screen.ranking()
        if not self._is_worth_a_check(best):
            return
        self.say(f"confirming on fresh seeds: {best}")
        confirmation = self._check("confirmation", (), (best,))
        self.verdict = confirmation.verdict
        if not confirmation.better:
            return
        self.kept = [best]
        self._add(others)
        if len(self.kept) > 1:
            last = self._check("result", (), tuple(self.kept))
            self.verdict = last.verdict
            if not last.better:  # the last check counts, whatever its outcome
                self.kept = []

    def _is_worth_a_check(self, label: str) -> bool:
        """False for a change that looked worse than the base; a single change was not screened."""
        return not self.screen.rungs or self.screen.effect(label) > 0

    def _add(self, labels: Sequence[str]) -> None:
        """Try the next best changes on top of what is kept, as long as each helps and there is time."""
        for label in labels:
            if not self._is_worth_a_check(label):
                return
            if not self._has_time(2 * self.declared.plan.check_replicas, self.declared.time_budget):
                self.say(f"no time is left to try {label} on top of {_together(self.kept)}")
                return
            together = mix(self._candidates([*self.kept, label]), self.base.recipe)
            if together.left_out:
                self.say(f"{label} changes the same settings as a better change, and is left out")
                continue
            if reason := self._why_not_together([*self.kept, label]):
                self.say(f"{label} does not go with {_together(self.kept)}, and is left out: {reason}")
                continue
            self.say(f"does {label} help on top of {_together(self.kept)}?")
            if not self._check("addition", tuple(self.kept), (*self.kept, label)).better:
                return
            self.kept.append(label)

    def _why_not_together(self, labels: Sequence[str]) -> str:
        """Why these changes, each trainable alone, cannot be trained together; empty if they can."""
        try:
            arm = self._arm(labels, labels[-1], self.declared.metric)
            with self.fleet.use_dataset_cache(), borrowed_randomness(0):
                replica = assembled(arm, self.declared.first_seed, self.fleet.options)
                check_evaluations(replica, self.declared.last, arm.name)
                rehearse(replica)
        except UsageError as error:
            return str(error)
        return ""

    def _candidates(self, labels: Sequence[str]) -> list[Candidate]:
        return [self.entries[label][0] for label in labels]

    @property
    def changes(self) -> dict[str, Any]:
        """What the kept changes set, all together."""
        return mix(self._candidates(self.kept), self.base.recipe).changes

    def _measured_by(self, labels: Sequence[str], metric: str) -> str:
        """The metric of the base with these changes: averaged weights have their own."""
        averaged = next((each for each in self._candidates(labels) if each.averaged), None)
        return averaged.metric(metric) if averaged else metric

    def _arm(
        self, labels: Sequence[str], name: str, metric: str, further: Mapping[str, Any] | None = None
    ) -> Arm:
        """The base with these changes, and further ones."""
        changes = mix(self._candidates(labels), self.base.recipe).changes
        measured = self._measured_by(labels, metric)
        return make_arm(name, self.base.document, {**changes, **(further or {})}, metric=measured)

    def _check(self, stage: str, before: Sequence[str], after: tuple[str, ...]) -> Check:
        """Compare two mixtures of changes on the fresh seeds of a stage."""
        plan = self.declared
        arms = self._arm(before, BASELINE, plan.metric), self._arm(after, "candidate", plan.metric)
        remaining = plan.time_budget - (time.monotonic() - self._begun)
        comparison = Comparison(
            arms=arms,
            declaration=self._declaration(stage, arms, max(1.0, remaining)),
            folder=self.root / "comparisons" / self._name(stage, after),
            exploratory=list(plan.exploratory),
            fleet=self.fleet,
            reproduce=self._reproduce(stage, before, after),
            test_size=self.test_size,
            say=self.say,
        )
        begun = time.monotonic()
        verdict = comparison.run()
        cost = comparison.result["cost"]
        self._count(cost["replicas"] - cost["from_cache"], begun)
        check = Check(stage, after, comparison.folder.name, verdict, cost)
        self.checks.append(check)
        self.say(f"{stage} of {_together(after)}: {verdict.sentence}")
        self._keep("running")
        return check

    def _declaration(self, stage: str, arms: tuple[Arm, Arm], seconds: float) -> Declaration:
        plan, budgets = self.declared, [arm.budget for arm in arms]
        return Declaration(
            metric=plan.metric,
            higher_is_better=plan.higher_is_better,
            budget=budgets[0] if budgets[0] == budgets[1] else {arm.name: arm.budget for arm in arms},
            margin=plan.margin,
            margin_rule=plan.margin_rule,
            alpha=plan.alpha,
            looks=plan.looks,
            anytime=False,
            max_pairs=plan.looks[-1],
            first_seed=self._first_seed(stage),
            vary=plan.vary,
            cap=plan.cap,
            arms=arm_facts(arms),
            time_budget=seconds,
            last=plan.last,
        )

    def _first_seed(self, stage: str) -> int:
        """Fresh seeds for each stage, and for each change that is added."""
        added = sum(check.stage == stage for check in self.checks)
        return self.declared.first_seed + FRESH_SEEDS[stage] + SEEDS_APART * added

    def _name(self, stage: str, labels: Sequence[str]) -> str:
        slug = re.sub(r"[^A-Za-z0-9.=_-]+", "-", "+".join(labels)).strip("-.")[:60]
        return f"{self.base.recipe.name}-vs-{slug}-{stage}-{self.folder.name.rsplit('-', 1)[-1]}"

    def _reproduce(self, stage: str, before: Sequence[str], after: Sequence[str]) -> str:
        plan = self.declared
        if before:
            return self.reproduce
        changes = mix(self._candidates(after), self.base.recipe).changes
        written = " ".join(
            f"--change {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in changes.items()
        )
        rules = (
            f"--metric {plan.metric} --last {plan.last} --first-seed {self._first_seed(stage)} "
            f"--looks {','.join(map(str, plan.looks))}"
        )
        margin = f" --margin {plan.margin!r}" if plan.margin is not None else ""
        return f"apoint compare {shlex.quote(self.document.name)} {written} {rules}{margin}"

    # -- what is kept ------------------------------------------------------------------------------------

    def _write_declaration(self) -> None:
        with storage_errors(self.folder, "make"):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_sealed(self.folder / DECLARATION, self.declared.to_dict())
        write_atomically(self.folder / "base.yaml", to_yaml(self.base.recipe))

    def _keep(self, state: str, improved: str = "") -> dict[str, Any]:
        result = {**self._result(state), "improved": improved}
        write_sealed(self.folder / RESULT, result)
        return result

    def _finish(self) -> Improvement:
        recipe, text = written_recipe(self.document, self.changes, self._header())
        write_atomically(self.folder / IMPROVED, text)
        result = self._keep("finished", text)
        return Improvement(recipe, self.changes, self.verdict, result, self.folder, text)

    def _result(self, state: str) -> dict[str, Any]:
        screen = self.screen
        outcomes = [each for lane in (screen.baseline, *screen.lanes.values()) for each in lane.outcomes]
        later = [check.cost for check in self.checks]
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "improvement",
            "name": self.folder.name,
            "state": state,
            "sentence": self.sentence if state == "finished" else f"{state}: {UNFINISHED}",
            "kept": self.kept,
            "changes": self.changes,
            "verdict": self.verdict.to_dict() if self.verdict else None,
            "declaration": self.declared.to_dict(),
            "baseline": screen.baseline.to_dict(),
            "screen": [self._screened(label) for label in screen.ranking()],
            "checks": [check.to_dict() for check in self.checks],
            "cost": {
                "core_seconds": sum(each.seconds for each in outcomes) + _sum(later, "core_seconds"),
                "wall_seconds": time.monotonic() - self._begun,
                "replicas": len(outcomes) + int(_sum(later, "replicas")),
                "from_cache": sum(each.cached for each in outcomes) + int(_sum(later, "from_cache")),
            },
            "fleet": self.fleet.sentence,
            "reproduce": self.reproduce,
        }

    def _screened(self, label: str) -> dict[str, Any]:
        candidate, arm = self.entries[label]
        named = {"fingerprint": arm.recipe.fingerprint, "change": name_arms(self.base, arm).change}
        return {**candidate.to_dict(), **named, **self.screen.to_dict(label)}

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        tried = len(self.entries)
        if self.verdict is None:
            what = f"none of the {tried} changes" if tried > 1 else "the change"
            return f"{what} screened looked better than the recipe, which stays as it is"
        if not self.kept:
            found = self.verdict.sentence.removesuffix(".")
            return f"{self._chosen()}; on fresh seeds: {found}; the recipe stays as it is"
        subject = f"{_together(self.kept)} {'help' if len(self.kept) > 1 else 'helps'}"
        return f"{subject}: {self._told(self.verdict)} on {self.verdict.pairs} fresh pairs of seeds"

    def _chosen(self) -> str:
        """What the last check was about, and why it was made."""
        last, tried = self.checks[-1], len(self.entries)
        if last.stage == "result":
            return f"{_together(last.labels)} were confirmed one after the other"
        return (
            f"{last.labels[0]} looked best of {tried} changes" if tried > 1 else f"{last.labels[0]} was tried"
        )

    def _told(self, verdict: Verdict) -> str:
        lower, upper = verdict.interval
        metric = as_subject(verdict.metric, verdict.last)
        better = f"{metric} is better by {verdict.effect:.3g} (between {lower:.3g} and {upper:.3g})"
        # A user's own change is named by what it sets, and several changes are listed by name.
        named = len(self.kept) == 1 and not self._candidates(self.kept)[0].own
        return f"with {verdict.change}, {better}" if named else better

    def _header(self) -> list[str]:
        """The evidence in three lines."""
        base = f"{self.base.recipe.name} ({load_recipe(self.document)[0].fingerprint})"
        measured = self._measured_by(self.kept, self.declared.metric)
        note = f"; measured as {measured}" if measured != self.declared.metric else ""
        confirmed = sum(check.better for check in self.checks)
        return [
            f"{HEADER} {self.sentence}{note}",
            f"# base: {base}; {len(self.entries)} screened, {len(self.checks)} checks on fresh seeds, "
            f"{confirmed} better",
            f"# all numbers: {self.folder.name}/{RESULT}",
        ]


def _together(labels: Sequence[str]) -> str:
    """Changes as words: `a`, `a with b`, or `a, b and c together`."""
    if len(labels) < 3:
        return " with ".join(labels)
    return f"{', '.join(labels[:-1])} and {labels[-1]} together"


def _sum(costs: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(sum(cost[name] for cost in costs))


class _Plain(yaml.SafeDumper):
    """YAML without anchors, which a recipe may not have."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def written_recipe(
    document: Document, changes: Mapping[str, Any], header: Sequence[str]
) -> tuple[Recipe, str]:
    """A recipe as it was written, with changes, and its text below a few comment lines."""
    recipe, changed = load_recipe(document, changes)
    values = yaml.dump(changed.values, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)
    text = "\n".join(header) + "\n" + values
    again = load_recipe(document_from_text(text, IMPROVED, document.folder))[0]
    assert again.fingerprint == recipe.fingerprint, "the improved recipe must read back as it is"
    return recipe, text
