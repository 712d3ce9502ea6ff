"""The search for a better recipe: everything checked, declared and planned before the first replica.

    better = improve("base.yaml", budget="1h")
    better.recipe, better.evidence, better.to_yaml()

`improver.py` carries out a search once it is planned.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from apoint.data import Data
from apoint.engine import Options, custom
from apoint.engine.fleet import Fleet, FleetMoment, Task
from apoint.engine.measure import larger_is_better
from apoint.engine.replica import borrowed_randomness, load_data, rehearse
from apoint.errors import UsageError
from apoint.progress import FleetLine, is_wanted
from apoint.recipe import load_recipe
from apoint.trials import constant_baseline
from apoint.trials.arms import Arm, Source, check_averaged, check_comparable, make_arm
from apoint.trials.budget import seconds_of
from apoint.trials.candidates import Candidate, own_candidate, propose, situation
from apoint.trials.compare import SearchArguments, split_settings
from apoint.trials.comparison import MARGIN_RULE, Rules
from apoint.trials.evaluations import assembled, check_evaluations
from apoint.trials.improver import SAMPLE_PAIRS, Improvement, Improver, silent
from apoint.trials.record import read_result
from apoint.trials.search import BASELINE, DECLARATION, Declared, read_declared
from apoint.trials.search_plan import EFFECTS, choose_plan
from apoint.verdict.card import metric_words

SCREEN_SHARE = 0.2  # of the training examples, held out to choose by if there is no validation data
SAMPLE_SEEDS = 9_000_000  # seeds for the fleet's prediction, with nothing from a cache


def prepare_improvement(
    recipe: Source,
    budget: str | float = "1h",
    candidates: Sequence[str | Mapping[str, Any] | Candidate] | None = None,
    *,
    only_mine: bool = False,
    rules: Rules | None = None,
    options: Options | None = None,
    shared: Mapping[str, Any] | None = None,
    reproduce: str = "",
    say: Callable[[str], None] | None = None,
    watch: Callable[[FleetMoment], None] | None = None,
    **fleet: Any,
) -> Improver:
    """Check everything, plan what fits into the time, and return a search that is ready to run.

    Args:
        recipe: The base.
        budget: The time available, such as `20m` or `1h`.
        candidates: The user's own: text such as `optimizer.lr=3e-3`, or mappings; screened first.
        only_mine: Whether to leave the curated list out.
        rules: Metric and its evaluations, margin, error rate, first seed, and what seeds vary.
        options: Where runs and data are, and the like; see `apoint.engine.Options`.
        shared: Dotted paths and new values for the base itself.
        reproduce: The command that asks for this search.
        say: Called with sentences for the user.
        watch: Called with the state of the fleet.
        **fleet: Settings of the fleet, such as `backend` and `workers`.
    """
    rules, options, say = rules or Rules(), options or Options(), say or silent
    if rules.anytime or rules.looks is not None or rules.max_pairs is not None:
        raise UsageError("improve plans its own looks from the time there is; leave looks and pairs out")
    if rules.test_noise != "beside":
        raise UsageError(
            "improve decides over seeds; leave test_noise out, and compare what it finds with "
            "--test-noise include"
        )
    if only_mine and not candidates:
        raise UsageError(
            "--only-mine leaves nothing to try; give at least one --candidate such as optimizer.lr=3e-3"
        )
    limit, options = seconds_of(budget), replace(options, threads=options.threads or 1)
    base, document = make_arm(BASELINE, recipe, shared, rules.vary), load_recipe(recipe, shared)[1]
    own = [own_candidate(each) for each in candidates or ()]
    trainer = Fleet(options, say=say, watch=watch or silent, **_fleet_settings(fleet))
    with trainer.use_dataset_cache():
        data = load_data(base.recipe, rules.first_seed, options.data_root, base.document.folder)
        metric = _metric(rules, base, data)
        proposed = propose(base.document, situation(base.recipe, data), own, curated=not only_mine)
        rules = replace(rules, metric=metric)
        entries, not_tried = _fitting(base, proposed, rules, options)
        choice = _choice(base, metric, data, rules.first_seed, options)
    declared, folder = _declare(base, entries, not_tried, rules, limit, data, choice, trainer, options.root)
    chosen = _declared_entries(declared, entries)
    size = len(data.splits[metric.partition("_")[0]])
    reproduce = reproduce or f"apoint improve {shlex.quote(document.name)} --budget {budget}"
    return Improver(base, document, chosen, declared, folder, trainer, size, say, reproduce)


def _metric(rules: Rules, base: Arm, data: Data) -> str:
    metric = rules.metric or constant_baseline.default_metric(data)
    check_averaged([base], metric)
    return constant_baseline.check_metric(
        metric, constant_baseline.known_metrics(data, base.recipe.average is not None)
    )


@dataclass(frozen=True)
class Choice:
    """What the screen chooses by.

    Attributes:
        metric: The metric.
        changes: What is changed in every recipe of the screen, to have separate examples.
        note: What that means, in words.
        cap: What a failed replica counts as; None if unknown.
    """

    metric: str
    changes: dict[str, Any]
    note: str
    cap: float | None


def _choice(base: Arm, metric: str, data: Data, seed: int, options: Options) -> Choice:
    """How to choose without the examples that the confirmation is measured on."""
    split, _, name = metric.partition("_")
    loss = base.recipe.loss["name"]
    if split != "test":
        note = f"the screen chooses by {metric}, on the examples that the confirmation is measured on"
        return Choice(metric, {}, note, constant_baseline.trivial_value(data, metric, loss))
    metric, changes = f"validation_{name}", {}
    note = f"the screen chooses by {metric}; the test examples are kept for the confirmation"
    if data.validation is None:
        changes = {"data.validation": SCREEN_SHARE}
        note += f"; the screen holds out {SCREEN_SHARE:.0%} of the training examples for that"
        held_out = make_arm(BASELINE, base.document, changes)
        data = load_data(held_out.recipe, seed, options.data_root, held_out.document.folder)
    return Choice(metric, changes, note, constant_baseline.trivial_value(data, metric, loss))


def _fleet_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings, "files": tuple(settings.get("files", ()))}


def _fitting(
    base: Arm, proposed: Sequence[Candidate], rules: Rules, options: Options
) -> tuple[dict[str, tuple[Candidate, Arm]], list[dict[str, str]]]:
    """The candidates that can be trained and compared, each with its arm; and the others, with the reason."""

    def try_out(arm: Arm) -> None:
        with borrowed_randomness(0):
            replica = assembled(arm, rules.first_seed, options)
            check_evaluations(replica, rules.last, arm.name)
            rehearse(replica)

    assert rules.metric is not None
    entries, others = {}, []
    try_out(base)  # an error in the recipe itself is reported for it, not for every candidate
    for candidate in proposed:
        arm = make_arm(candidate.label, base.document, candidate.changes)
        try:
            check_comparable(base, arm, rules.metric)
            try_out(arm)
        except UsageError as error:
            if candidate.own:
                raise UsageError(f"the candidate {candidate.written!r} cannot be tried: {error}") from None
            others.append({"label": candidate.label, "why": str(error)})
            continue
        entries[candidate.label] = (candidate, arm)
    if not entries:
        raise UsageError("no change on the list fits this recipe; give your own with --candidate")
    return entries, others


def _declare(
    base: Arm,
    entries: Mapping[str, tuple[Candidate, Arm]],
    not_tried: Sequence[dict[str, str]],
    rules: Rules,
    limit: float,
    data: Data,
    choice: Choice,
    fleet: Fleet,
    root: Path,
) -> tuple[Declared, Path]:
    """The declaration in force: the saved one if this was asked before, otherwise a new one."""
    assert rules.metric is not None
    arms = [arm for _, arm in entries.values()]
    asked = [base.recipe.fingerprint, *(arm.recipe.fingerprint for arm in arms)]
    number = metric_words(rules.metric, rules.last)
    text = json.dumps([asked, number, rules.margin, rules.alpha, rules.first_seed, limit])
    identifier = hashlib.sha256(text.encode()).hexdigest()[:8]
    folder = root / "improvements" / f"{base.recipe.name}-{identifier}"
    kept = read_declared(folder)
    if kept is not None:
        return kept, folder
    seconds = replica_seconds(fleet, [base, *arms], rules.first_seed)
    plan = choose_plan(len(entries), limit / max(seconds, 1e-9))
    chosen = list(entries.values())[: plan.num_candidates]
    too_many = [{"label": label, "why": "no time"} for label in list(entries)[plan.num_candidates :]]
    cap = constant_baseline.trivial_value(data, rules.metric, base.recipe.loss["name"])
    return Declared(
        recipe=base.recipe.name,
        fingerprint=base.recipe.fingerprint,
        values=base.recipe.canonical(),
        metric=rules.metric,
        screen_metric=choice.metric,
        screen_changes=choice.changes,
        screen_note=choice.note,
        higher_is_better=larger_is_better(rules.metric),
        budget=base.budget,
        time_budget=limit,
        expected_seconds=seconds * plan.replicas,
        margin=rules.margin,
        margin_rule="given" if rules.margin is not None else MARGIN_RULE,
        alpha=rules.alpha,
        first_pairs=plan.first_pairs,
        looks=plan.looks,
        forecast={f"{effect:g}": plan.chance(effect, rules.alpha) for effect in EFFECTS},
        first_seed=rules.first_seed,
        vary=tuple(base.recipe.vary),
        cap={"value": cap, "rule": constant_baseline.RULE},
        screen_cap=choice.cap,
        candidates=tuple({**each.to_dict(), "fingerprint": arm.recipe.fingerprint} for each, arm in chosen),
        not_tried=(*not_tried, *too_many),
        exploratory=_searched_before(folder, base.recipe.fingerprint, rules.first_seed),
        last=rules.last,
    ), folder


def _declared_entries(
    declared: Declared, entries: Mapping[str, tuple[Candidate, Arm]]
) -> dict[str, tuple[Candidate, Arm]]:
    """What was declared, under the labels it was declared with: another version may label it differently."""
    known = {arm.recipe.fingerprint: (candidate, arm) for candidate, arm in entries.values()}
    found = [(each["label"], *known[each["fingerprint"]]) for each in declared.candidates]
    return {label: (replace(candidate, label=label), arm) for label, candidate, arm in found}


def replica_seconds(fleet: Fleet, arms: Sequence[Arm], first_seed: int) -> float:
    """The wall-clock seconds of a replica, on average over these arms, as the fleet predicts."""
    first = first_seed + SAMPLE_SEEDS
    seeds = range(first, first + SAMPLE_PAIRS)
    tasks = [Task(arm.recipe, arm.document, seed) for arm in arms for seed in seeds]
    return fleet.plan(tasks).seconds / len(tasks)


def _searched_before(folder: Path, fingerprint: str, first_seed: int) -> tuple[str, ...]:
    """Sentences on earlier searches from the same base with other rules: their seeds have been seen."""
    found = []
    for path in sorted(folder.parent.glob(f"*/{DECLARATION}")):
        earlier = read_declared(path.parent)
        if earlier and (earlier.fingerprint, earlier.first_seed) == (fingerprint, first_seed):
            found.append(
                f"this recipe was searched before by other rules on the same seeds, in {path.parent.name}; "
                "give another --first-seed for seeds that were not used yet"
            )
    return tuple(found)


def improve(
    recipe: Source,
    budget: str | float = "1h",
    candidates: Sequence[str | Mapping[str, Any] | Candidate] | None = None,
    *,
    only_mine: bool = False,
    say: Callable[[str], None] | None = None,
    watch: Callable[[FleetMoment], None] | None = None,
    progress: bool | None = None,
    report: bool = True,
    allow_code: bool = False,
    **settings: Unpack[SearchArguments],
) -> Improvement:
    """Look for changes that make a recipe better, and return the better recipe with its evidence.

    Args:
        recipe: A recipe file, a mapping, or a recipe.
        budget: The time available, such as `20m` or `1h`.
        candidates: Your own changes, as text such as `"optimizer.lr=3e-3"` or as mappings; tried first.
        only_mine: Whether to leave the curated list out.
        say: Called with sentences for the user, instead of showing them.
        watch: Called with the state of the fleet, instead of showing progress.
        progress: Whether to show progress and notes; by default in a terminal and in a notebook.
        report: Whether to draw the search's report and one for each comparison on fresh seeds.
        allow_code: Whether a recipe in a run folder or the like may run the files that it names.
        **settings: Of `Rules` (metric, last, margin, alpha, first_seed, vary), of `apoint.engine.Options`
            (runs_root, data_root, …), and `backend`, `workers`, `stack`.
    """
    sorted_settings = split_settings(settings)
    with custom.allowing_code(allow_code), FleetLine() as line:
        if is_wanted(progress):
            watch, say = watch or line, say or line.say
        search = prepare_improvement(
            recipe, budget, candidates, only_mine=only_mine, say=say, watch=watch, **sorted_settings
        )
        with search.fleet:
            found = search.run()
    if report:
        write_reports(found.folder)
    return found


def write_reports(folder: Path) -> list[Path]:
    """Draw a search's report and that of each comparison on fresh seeds, as far as the search got.

    Returns:
        Where the reports are, with that of the search first.
    """
    from apoint.report import write_comparison_report, write_improvement_report

    checks = (read_result(folder) or {"checks": []})["checks"]
    root = folder.parent.parent / "comparisons"
    pages = [Path(write_comparison_report(root / check["comparison"])) for check in checks]
    return [write_improvement_report(folder), *pages]  # last, because it links to the pages that exist
