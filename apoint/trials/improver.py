"""A search for a better recipe: candidates raced, winners confirmed on fresh seeds, put together with care.

Choosing the best of many flatters it: the effect by which it won is partly luck. So nothing that the race
found counts until seeds that took no part in the choice have confirmed it, and it is their estimate that is
reported. Winners are put together only if together they beat the best of them alone, on seeds that are fresh
again; the whole is then measured against the base on still others. Everything was declared before the first
replica (`improve.py`), and every stage leaves a record that can be gone on with.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from apoint.engine.fleet import Fleet, Task
from apoint.engine.signals import TrainingInterruptedError
from apoint.errors import FaultError, TrainingError
from apoint.recipe import Document, Recipe, load_recipe, to_yaml
from apoint.recipe.document import document_from_text
from apoint.store import storage_errors, write_atomically
from apoint.store.sealed import write_sealed
from apoint.trials.arms import Arm, make_arm
from apoint.trials.candidates import Candidate, Mixture, mix
from apoint.trials.comparison import Comparison
from apoint.trials.declaration import Declaration, arm_facts
from apoint.trials.naming import name_arms
from apoint.trials.outcome import Outcome, outcome_of
from apoint.trials.race import (
    BASELINE,
    DECLARATION,
    FRESH_SEEDS,
    SCHEMA_VERSION,
    Declared,
    Programme,
    Race,
)
from apoint.trials.record import RESULT
from apoint.verdict import Verdict

IMPROVED = "improved.yaml"
UNFINISHED = "the search has not come to its end; what is decided so far holds"
SAMPLE_PAIRS = 8  # how many the fleet's prediction stands for
HEADER = "# improved by apoint:"


def silent(_: Any) -> None:
    """Tell nobody."""


# -- what comes of it ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Improvement:
    """A recipe that is better, or the base if nothing was found to help.

    Attributes:
        recipe: The improved recipe.
        changes: In what it differs from the base; empty if nothing helped.
        verdict: The last check, on seeds that took no part in any choice; None if there was nothing to check.
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
    """A comparison on fresh seeds: what was asked, where it is kept, what it said."""

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


# -- doing it -----------------------------------------------------------------------------------------------


@dataclass
class Improver:
    """A search for a better recipe, ready to be run.

    Attributes:
        base: The recipe as an arm.
        document: The base as it was written, which the improved recipe is written from.
        entries: The candidates that race, each with its arm.
        declared: The rules that hold.
        folder: Where it is kept.
        fleet: What trains the replicas.
        test_size: On how many examples the metric is measured.
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
    race: Race | None = None
    checks: list[Check] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    kept: Mixture = field(default_factory=Mixture)
    verdict: Verdict | None = None
    _begun: float = 0.0
    _trained: int = 0
    _training_seconds: float = 0.0

    @property
    def root(self) -> Path:
        """Where run folders are."""
        return self.folder.parent.parent

    def run(self) -> Improvement:
        """Race, confirm, put together; returns the better recipe, or the base."""
        self._begun = time.monotonic()
        self._write_declaration()
        for reason in self.declared.exploratory:
            self.say(f"exploratory: {reason}")
        try:
            self._race()
            self._put_together(self._confirm())
        except (TrainingInterruptedError, TrainingError, FaultError):
            self._keep("interrupted")
            raise
        return self._finish()

    def _race(self) -> None:
        plan = self.declared
        room = Programme(len(self.entries), plan.looks, plan.num_winners)
        share = room.race_replicas / (room.race_replicas + room.later_replicas)

        def has_time(replicas: int) -> bool:
            return self._has_time(replicas, share * plan.time_budget)

        changes = {label: name_arms(self.base, arm).change for label, (_, arm) in self.entries.items()}
        self.race = Race(
            list(self.entries), plan, self._train, self.say, self._note, has_time, self.test_size, changes
        )
        self.race.run()

    def _train(self, wanted: list[tuple[str, int]]) -> list[Outcome]:
        arms = {BASELINE: self.base, **{label: arm for label, (_, arm) in self.entries.items()}}
        tasks = [Task(arms[name].recipe, arms[name].document, seed) for name, seed in wanted]
        begun = time.monotonic()
        ended = self.fleet.train(tasks)
        outcomes = [
            outcome_of(each, self._metric([name] if name != BASELINE else []))
            for (name, _), each in zip(wanted, ended, strict=True)
        ]
        self._count(sum(not outcome.cached for outcome in outcomes), begun)
        return outcomes

    def _count(self, trained: int, begun: float) -> None:
        """Note how long so many replicas took; what came from the cache tells nothing of that."""
        if trained:
            self._trained += trained
            self._training_seconds += time.monotonic() - begun

    def _metric(self, labels: Sequence[str]) -> str:
        """The metric of the base with these changes."""
        chosen = [self.entries[label][0] for label in labels]
        averaged = next((candidate for candidate in chosen if candidate.averaged), None)
        return averaged.metric(self.declared.metric) if averaged else self.declared.metric

    def _note(self, race: Race) -> None:
        """Keep what the race knows; the first time, also the margin that its pilot gave."""
        if self.declared.margin != race.margin:
            self.declared = replace(self.declared, margin=race.margin)
            self._write_declaration()
        self._keep("running")

    def _has_time(self, replicas: int, limit: float) -> bool:
        """Whether so many more replicas can be expected to end within `limit` seconds of the start."""
        plan = Programme(len(self.entries), self.declared.looks, self.declared.num_winners)
        predicted = self.declared.expected_seconds / (plan.race_replicas + plan.later_replicas)
        pace = (SAMPLE_PAIRS * predicted + self._training_seconds) / (SAMPLE_PAIRS + self._trained)
        return time.monotonic() - self._begun + pace * replicas <= 1.05 * limit

    # -- on fresh seeds ----------------------------------------------------------------------------------

    def _confirm(self) -> list[Check]:
        """Compare each winner with the base on fresh seeds; those confirmed, the largest effect first."""
        assert self.race is not None
        winners = [lane.name for lane in self.race.winners]
        if not winners:
            return []
        self.say(f"confirming on fresh seeds: {', '.join(winners)}")
        for position, label in enumerate(winners):
            ahead = 2 * self.declared.looks[0]
            if position >= self.declared.num_winners and not self._has_time(ahead, self.declared.time_budget):
                self.unchecked.append(label)
                self.say(f"there is no time left to confirm {label}; it is left out")
                continue
            self._check("confirmation", (), (label,), len(winners) - position)
        confirmed = [check for check in self.checks if check.better]
        return sorted(confirmed, key=lambda check: check.verdict.effect, reverse=True)

    def _put_together(self, confirmed: Sequence[Check]) -> None:
        """Keep the best winner, or all of them together if that is better still.

        Where there was a choice, what was chosen is measured once more, on seeds that took no part in it.
        """
        if not confirmed:
            return
        ordered = [self.entries[check.labels[0]][0] for check in confirmed]
        self.kept, self.verdict = mix(ordered[:1], self.base.recipe), confirmed[0].verdict
        if len(ordered) == 1:
            return
        self.kept = self._best_mixture(mix(ordered, self.base.recipe))
        final = self._check("result", (), tuple(candidate.label for candidate in self.kept.members), 1)
        self.verdict = final.verdict
        if not final.better:  # the last check counts, whatever it says
            self.kept = Mixture()

    def _best_mixture(self, together: Mixture) -> Mixture:
        """All winners, if together they are better than the best alone; else that one."""
        for candidate in together.left_out:
            self.say(f"{candidate.label} changes the same settings as a better winner, and is left out")
        if len(together.members) < 2:
            return self.kept
        labels = tuple(candidate.label for candidate in together.members)
        self.say(f"do they help each other? {_together(labels)} against {labels[0]} alone")
        if self._check("combination", labels[:1], labels, 2).better:
            return together
        self.say(f"together they are not better than {labels[0]} alone, which is kept")
        return self.kept

    def _arm(self, labels: Sequence[str], name: str) -> Arm:
        """The base with the changes of these candidates."""
        changes = mix([self.entries[label][0] for label in labels], self.base.recipe).changes
        return make_arm(name, self.base.document, changes, metric=self._metric(labels))

    def _check(self, stage: str, before: Sequence[str], after: tuple[str, ...], left: int) -> Check:
        """Compare two mixtures on the fresh seeds of a stage; `left` comparisons share the time there is."""
        plan = self.declared
        arms = self._arm(before, BASELINE), self._arm(after, "candidate")
        remaining = plan.time_budget - (time.monotonic() - self._begun)
        comparison = Comparison(
            arms=arms,
            declaration=self._declaration(stage, arms, max(1.0, remaining / left)),
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
        assert plan.margin is not None
        return Declaration(
            metric=plan.metric,
            higher_is_better=plan.higher_is_better,
            budget=budgets[0] if budgets[0] == budgets[1] else {arm.name: arm.budget for arm in arms},
            margin=plan.margin,
            margin_rule=f"that of the race: {plan.margin_rule}",
            alpha=plan.alpha,
            looks=plan.looks,
            anytime=False,
            max_pairs=plan.looks[-1],
            first_seed=plan.first_seed + FRESH_SEEDS[stage],
            vary=plan.vary,
            cap=plan.cap,
            arms=arm_facts(arms),
            time_budget=seconds,
        )

    def _name(self, stage: str, labels: Sequence[str]) -> str:
        slug = re.sub(r"[^A-Za-z0-9.=_-]+", "-", "+".join(labels)).strip("-.")[:60]
        return f"{self.base.recipe.name}-vs-{slug}-{stage}-{self.folder.name.rsplit('-', 1)[-1]}"

    def _reproduce(self, stage: str, before: Sequence[str], after: Sequence[str]) -> str:
        plan = self.declared
        if before:
            return self.reproduce
        changes = mix([self.entries[label][0] for label in after], self.base.recipe).changes
        written = " ".join(
            f"--change {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in changes.items()
        )
        rules = (
            f"--first-seed {plan.first_seed + FRESH_SEEDS[stage]} --looks {','.join(map(str, plan.looks))}"
        )
        return f"apoint compare {shlex.quote(self.document.name)} {written} {rules} --margin {plan.margin!r}"

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
        header = self._header()
        recipe, text = written_recipe(self.document, self.kept.changes, header)
        write_atomically(self.folder / IMPROVED, text)
        result = self._keep("finished", text)
        return Improvement(recipe, self.kept.changes, self.verdict, result, self.folder, text)

    def _result(self, state: str) -> dict[str, Any]:
        race = self.race
        lanes = [race.baseline, *race.lanes.values()] if race else []
        outcomes = [outcome for lane in lanes for outcome in lane.outcomes]
        later = [check.cost for check in self.checks]
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "improvement",
            "name": self.folder.name,
            "state": state,
            "sentence": self.sentence if state == "finished" else f"{state}: {UNFINISHED}",
            "kept": [candidate.label for candidate in self.kept.members],
            "changes": self.kept.changes,
            "verdict": self.verdict.to_dict() if self.verdict else None,
            "declaration": self.declared.to_dict(),
            "baseline": {**race.baseline.to_dict(), "verdict": None} if race else None,
            "race": [self._raced(label) for label in self.entries] if race else [],
            "checks": [check.to_dict() for check in self.checks],
            "unchecked": self.unchecked,
            "cost": {
                "core_seconds": sum(each.seconds for each in outcomes) + _sum(later, "core_seconds"),
                "wall_seconds": time.monotonic() - self._begun,
                "replicas": len(outcomes) + int(_sum(later, "replicas")),
                "from_cache": sum(each.cached for each in outcomes) + int(_sum(later, "from_cache")),
            },
            "fleet": self.fleet.sentence,
            "reproduce": self.reproduce,
        }

    def _raced(self, label: str) -> dict[str, Any]:
        assert self.race is not None
        candidate, arm = self.entries[label]
        fingerprint = {"fingerprint": arm.recipe.fingerprint}
        return {**candidate.to_dict(), **fingerprint, **self.race.lanes[label].to_dict()}

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        tried, winners = len(self.entries), len(self.race.winners) if self.race else 0
        of = f"the {tried} changes tried" if tried > 1 else "one change tried"
        if self.verdict is None:
            found = (
                f"{winners} of {of} won the race and none was confirmed on fresh seeds"
                if winners
                else (f"none of {of} was found to help")
            )
            return f"{found}; the recipe stays as it is"
        if not self.kept.members:
            return (
                f"{winners} of {of} won the race; on seeds that took no part in any choice what was chosen "
                f"is {self.verdict.sentence.removesuffix('.')}; the recipe stays as it is"
            )
        labels = [candidate.label for candidate in self.kept.members]
        subject = f"{_together(labels)} {'help' if len(labels) > 1 else 'helps'}"
        return f"{subject}: {self._told(self.verdict)} on {self.verdict.pairs} fresh pairs of seeds"

    def _told(self, verdict: Verdict) -> str:
        lower, upper = verdict.interval
        better = f"{verdict.metric} is better by {verdict.effect:.3g} (between {lower:.3g} and {upper:.3g})"
        return f"with {verdict.change}, {better}" if verdict.change else better

    def _header(self) -> list[str]:
        """The evidence in three lines."""
        confirmed = sum(check.better for check in self.checks if check.stage == "confirmation")
        winners = len(self.race.winners) if self.race else 0
        base = f"{self.base.recipe.name} ({load_recipe(self.document)[0].fingerprint})"
        measured = self._metric([candidate.label for candidate in self.kept.members])
        note = f"; measured as {measured}" if measured != self.declared.metric else ""
        return [
            f"{HEADER} {self.sentence}{note}",
            f"# base: {base}; {len(self.entries)} tried, {winners} won the race, {confirmed} confirmed",
            f"# all verdicts: {self.folder.name}/{RESULT}",
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
    """A recipe as it was written, with changes, and its text under a few lines of comment."""
    recipe, changed = load_recipe(document, changes)
    values = yaml.dump(changed.values, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)
    text = "\n".join(header) + "\n" + values
    again = load_recipe(document_from_text(text, IMPROVED, document.folder))[0]
    assert again.fingerprint == recipe.fingerprint, "the improved recipe must read back as it is"
    return recipe, text
