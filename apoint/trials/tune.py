"""Equal tuning: each arm gets the same search over its settings, on separate seeds, before the comparison.

Tuning an optimizer is worth as much as changing it (I10), so a comparison of one tuned arm with one untuned
arm says little. Here every arm tries the same number of settings, its own first, spread over the same points
of the unit cube and trained on the same seeds, which the comparison never uses. The best of each arm are then
compared; how much tuning gained, and how forgiving the arm is, is reported alongside.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from apoint.checking import ingredient_kind, markers
from apoint.data import Data
from apoint.engine.fleet import Fleet, Task
from apoint.engine.replica import load_data
from apoint.errors import UsageError, suggestion
from apoint.recipe import Recipe, load_recipe
from apoint.registry import registry
from apoint.settings import Count, Momentum
from apoint.store import storage_errors
from apoint.store.sealed import read_sealed, write_sealed
from apoint.trials import constant_baseline, record
from apoint.trials import declaration as declarations
from apoint.trials.arms import Arm, check_comparable, differences, make_arm
from apoint.trials.candidates import round_off
from apoint.trials.comparison import Comparison
from apoint.trials.evaluations import check_arms
from apoint.trials.outcome import Outcome, outcome_of
from apoint.verdict.card import as_subject

SCHEMA_VERSION = 1
FILE = "tuning.json"
TUNING_SEEDS = 1_000_000  # beyond the comparison's own seeds
NUM_SEEDS = 2
DECADES, WHOLE_DECADES = 1.5, 0.6
FROM_NOTHING = {"weight_decay": (1e-4, 1.0), "l2": (1e-6, 1e-2)}  # where a default of 0 gives no scale
FROM_NOTHING_ELSE = (1e-3, 1.0)
_KINDS = {
    "optimizer": "optimizer", "schedule": "schedule", "clip": "clip", "loss": "loss", "init": "init",
    "model": "model", "augment": "augmentation",
}  # fmt: skip


# -- what can be tuned ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchDimension:
    """A number in a recipe that tuning may change, and its range.

    Attributes:
        path: Where it is, such as `optimizer.lr`.
        default: Its value in the recipe.
        low: The smallest value tried.
        high: The largest value tried.
        scale: `log`, evenly over orders of magnitude; `linear`; or `complement`, over orders of magnitude of
            the distance to 1.
        whole: Whether it is a whole number.
    """

    path: str
    default: float
    low: float
    high: float
    scale: str
    whole: bool = False

    def at(self, share: float) -> float | int:
        """The value at a fraction of the range, from 0, the lower end, to 1, the upper end."""
        if self.scale == "linear":
            value = self.low + share * (self.high - self.low)
        elif self.scale == "log":
            value = self.low * (self.high / self.low) ** share
        else:
            value = 1 - (1 - self.low) * ((1 - self.high) / (1 - self.low)) ** share
        return round(value) if self.whole else min(max(round_off(value), self.low), self.high)


def dial(recipe: Recipe, name: str) -> SearchDimension:
    """The search dimension of a setting: `lr` is `optimizer.lr`; others are dotted, such as `clip.limit`.

    Args:
        recipe: The recipe whose setting it is.
        name: The setting.
    """
    path = name if "." in name or name == "batch_size" else f"optimizer.{name}"
    annotation, value = _locate(recipe, path)
    if isinstance(value, Mapping):
        raise UsageError(f"{path} is on a schedule and cannot be tuned; tune a setting that is one number")
    bounds = _bounds(annotation)
    if bounds is None or isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{path} is {value!r} and cannot be tuned; tune a setting that is one number")
    return _ranged(path, value, *bounds)


def _locate(recipe: Recipe, path: str) -> tuple[Any, Any]:
    """The type of a setting and its value."""
    if path == "batch_size":
        return Count, recipe.batch_size
    top, *inside = path.split(".")
    if top == "average" and inside == ["decay"] and recipe.average is not None:
        return Momentum, recipe.average.decay
    spec: Any = getattr(recipe, top) if top in _KINDS else None
    if top == "augment" and inside and inside[0].isdigit() and int(inside[0]) < len(recipe.augment):
        spec, inside = recipe.augment[int(inside[0])], inside[1:]
    if not isinstance(spec, Mapping) or "name" not in spec or not inside:
        raise UsageError(
            f"cannot tune {path!r} here: name a setting of the optimizer, such as lr, or a path to a number "
            "of an ingredient, such as clip.limit or model.dropout"
        )
    return _inside(_KINDS[top], spec, inside, path)


def _inside(kind: str, spec: Mapping[str, Any], parts: Sequence[str], path: str) -> tuple[Any, Any]:
    parameters = registry(kind)[spec["name"]].setting_parameters
    if parts[0] not in parameters:
        raise UsageError(
            f"cannot tune {path!r}: {kind} {spec['name']!r} has no setting {parts[0]!r}; "
            f"{suggestion(parts[0], parameters)}"
        )
    annotation, value = parameters[parts[0]][0], spec[parts[0]]
    if len(parts) == 1:
        return annotation, value
    below = ingredient_kind(annotation)
    if below is None or not isinstance(value, Mapping):
        raise UsageError(f"cannot tune {path!r}: {parts[0]!r} has no settings inside it")
    return _inside(below, value, parts[1:], path)


def _bounds(annotation: Any) -> tuple[float, float, bool] | None:
    """The bounds of a number's type and whether it is a whole number; None if the type is not a number."""
    kinds = _plain_types(annotation)
    if not kinds & {int, float}:
        return None
    whole = float not in kinds
    inside = 1.0 if whole else 1e-6  # how far to stay from an open end
    rules = [rule for mark in markers(annotation) for rule in getattr(mark, "metadata", ())]
    lows = [rule.ge for rule in rules if hasattr(rule, "ge")]
    lows += [rule.gt + inside for rule in rules if hasattr(rule, "gt")]
    highs = [rule.le for rule in rules if hasattr(rule, "le")]
    highs += [rule.lt - inside for rule in rules if hasattr(rule, "lt")]
    return max(lows, default=-math.inf), min(highs, default=math.inf), whole


def _plain_types(annotation: Any) -> set[Any]:
    """The types that an annotation allows, without their markers."""
    if get_origin(annotation) is Annotated:
        return _plain_types(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return {kind for member in get_args(annotation) for kind in _plain_types(member)}
    return {annotation}


def _ranged(path: str, default: float, low: float, high: float, whole: bool) -> SearchDimension:
    """The search dimension of a number with these bounds."""
    if default < 0:
        raise UsageError(f"{path} is {default:g}; only settings that are not negative can be tuned")
    if whole:
        factor = 10**WHOLE_DECADES
        most = min(high, max(default, 1) * factor)
        return SearchDimension(path, default, max(low, 1, round(default / factor)), round(most), "log", True)
    if high > 1:
        if default == 0:
            ends = FROM_NOTHING.get(path.rsplit(".", 1)[-1], FROM_NOTHING_ELSE)
        else:
            ends = (default / 10**DECADES, default * 10**DECADES)
        return SearchDimension(path, default, max(low, ends[0]), min(high, ends[1]), "log")
    if default <= 0.5 or default >= 1:
        ends = (0.5, 1.0) if default >= 1 else (0.0, max(0.5, min(0.9, 2 * default)))
        return SearchDimension(path, default, max(low, ends[0]), min(high, ends[1]), "linear")
    far = 1 - default
    return SearchDimension(
        path, default, max(low, 1 - min(0.9, 10 * far)), min(high, 1 - far / 10), "complement"
    )


# -- the search ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Search:
    """The search that every arm gets.

    Attributes:
        names: The settings that are tuned.
        num_tries: How many values of them each arm tries, including its own.
        seeds: The seeds that each of them is trained on.
        metric: What is compared.
        higher_is_better: Its direction.
        cap: What a failed replica counts as; None if unknown, and it then counts as the worst.
        last: A replica's number is the mean of this many of its last evaluations.
    """

    names: tuple[str, ...]
    num_tries: int
    seeds: tuple[int, ...]
    metric: str
    higher_is_better: bool
    cap: float | None = None
    last: int = 1

    def __post_init__(self) -> None:
        if not self.names:
            raise UsageError("tuning needs at least one setting, such as lr")
        if len(set(self.names)) < len(self.names):
            raise UsageError(f"a setting is named twice in {','.join(self.names)}; name each once")
        if self.num_tries < 2:
            raise UsageError(
                f"a tuning budget of {self.num_tries} tries nothing but the settings as written; give at "
                "least 2"
            )

    def goodness(self, value: float) -> float:
        """A value turned so that higher is better, with a failure counted as the cap."""
        sign = 1.0 if self.higher_is_better else -1.0
        if math.isnan(value):
            return sign * self.cap if self.cap is not None else -math.inf
        return max(sign * value, sign * self.cap) if self.cap is not None else sign * value


@dataclass(frozen=True)
class Try:
    """Settings that an arm was trained with, and the result.

    Attributes:
        changes: Dotted paths and values; empty for the settings as written.
        values: The metric on each tuning seed; NaN where training failed.
        mean: Their mean, with failures counted by the rule.
    """

    changes: dict[str, Any]
    values: tuple[float, ...]
    mean: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"changes": self.changes, "values": list(self.values), "mean": self.mean}


@dataclass(frozen=True)
class Tuning:
    """What an arm's search found.

    Attributes:
        arm: The arm as written.
        tries: Every try, the settings as written first.
        best: The try with the best mean; the earlier one in a tie.
        search: What was asked.
        from_cache: How many replicas had been trained before.
        core_seconds: What the search cost.
    """

    arm: Arm
    tries: tuple[Try, ...]
    best: Try
    search: Search
    from_cache: int = 0
    core_seconds: float = 0.0

    @property
    def default(self) -> Try:
        """The settings as written."""
        return self.tries[0]

    @property
    def gain(self) -> float:
        """How much better the best is than the settings as written; not corrected for selection."""
        sign = 1.0 if self.search.higher_is_better else -1.0
        return sign * (self.best.mean - self.default.mean)

    @property
    def seed_deviation(self) -> float:
        """How much the metric varies with the seed at the same settings; NaN if there is one seed."""
        sound = [each.values for each in self.tries if all(map(math.isfinite, each.values))]
        if not sound or len(self.search.seeds) < 2:
            return math.nan
        return math.sqrt(statistics.fmean(statistics.variance(values) for values in sound))

    @property
    def spread(self) -> float:
        """The standard deviation of the metric over the tries: how much the settings matter."""
        means = [each.mean for each in self.tries if math.isfinite(each.mean)]
        return statistics.stdev(means) if len(means) > 1 else math.nan

    @property
    def forgiving(self) -> float:
        """The share of tries within one standard deviation (across seeds) of the best."""
        reach = self.seed_deviation
        near = [abs(each.mean - self.best.mean) <= reach or each is self.best for each in self.tries]
        return sum(near) / len(near)

    def tuned_arm(self) -> Arm:
        """The arm with the best settings."""
        if not self.best.changes:
            return self.arm
        return make_arm(self.arm.name, self.arm.document, self.best.changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        numbers = ("gain", "seed_deviation", "spread", "forgiving", "from_cache", "core_seconds")
        return {
            "arm": self.arm.name,
            "fingerprint": self.arm.recipe.fingerprint,
            "default": self.default.to_dict(),
            "best": self.best.to_dict(),
            **{name: getattr(self, name) for name in numbers},
            "tries": [each.to_dict() for each in self.tries],
        }

    @property
    def sentence(self) -> str:
        """What the search found, in one sentence."""
        found = ", ".join(f"{path} {value:g}" for path, value in self.best.changes.items())
        chosen = f"best at {found}" if found else "best as written"
        metric = as_subject(self.search.metric, self.search.last)
        return (
            f"tuning of {self.arm.name}: {chosen} ({metric} {self.best.mean:.4g}, as written "
            f"{self.default.mean:.4g}); {self.forgiving:.0%} of the tries are within a seed's "
            "standard deviation of it"
        )


def settings_to_try(recipe: Recipe, names: Sequence[str], num_tries: int) -> list[dict[str, Any]]:
    """The changes of each try: none, then points that fill the ranges evenly, the same for every arm.

    The points are a Halton sequence with a fixed random shift, so they are the same for every arm and on
    every machine and day.
    """
    import numpy as np
    from scipy.stats import qmc

    dials = [dial(recipe, name) for name in names]
    shift = np.random.default_rng(20240607).random(len(dials))
    points = (qmc.Halton(len(dials), scramble=False).random(num_tries - 1) + shift) % 1
    spread = [
        {each.path: each.at(float(x)) for each, x in zip(dials, point, strict=True)} for point in points
    ]
    return [{}, *spread]


def tune_arms(arms: Sequence[Arm], search: Search, fleet: Fleet) -> tuple[Tuning, ...]:
    """Give every arm the same search, all replicas in one fleet."""
    tried = [settings_to_try(arm.recipe, search.names, search.num_tries) for arm in arms]
    tasks = [
        Task(*load_recipe(arm.document, changes), seed)
        for arm, settings in zip(arms, tried, strict=True)
        for changes in settings
        for seed in search.seeds
    ]
    ended = iter(fleet.train(tasks))
    found = []
    for arm, settings in zip(arms, tried, strict=True):
        outcomes = [
            [outcome_of(next(ended), search.metric, search.last) for _ in search.seeds] for _ in settings
        ]
        found.append(_tuning(arm, settings, outcomes, search))
    return tuple(found)


def tune(arm: Arm, search: Search, fleet: Fleet) -> Tuning:
    """Search the settings of one arm."""
    return tune_arms([arm], search, fleet)[0]


def _tuning(arm: Arm, settings: Sequence[dict[str, Any]], outcomes: Any, search: Search) -> Tuning:
    sign = 1.0 if search.higher_is_better else -1.0
    tries = []
    for changes, replicas in zip(settings, outcomes, strict=True):
        values = tuple(outcome.value for outcome in replicas)
        tries.append(Try(changes, values, sign * statistics.fmean(map(search.goodness, values))))
    best = max(tries, key=lambda each: sign * each.mean)
    every: list[Outcome] = [outcome for replicas in outcomes for outcome in replicas]
    cached, seconds = sum(each.cached for each in every), sum(each.seconds for each in every)
    return Tuning(arm, tuple(tries), best, search, cached, seconds)


# -- the comparison after it --------------------------------------------------------------------------------


@dataclass
class TunedComparison(Comparison):
    """A comparison of two arms that were given the same tuning first."""

    tunings: tuple[Tuning, ...] = ()

    @property
    def label(self) -> str:
        """The conditions under which the verdict was reached."""
        return f"after equal tuning of {self.tunings[0].search.num_tries} settings an arm"

    def _keep(self, state: str) -> None:
        super()._keep(state)
        if not self.result:
            return
        self.result |= {
            "label": self.label,
            "sentence": f"{self.label}: {self.result['sentence']}",
            "tuning": [{**each.to_dict(), "tries": len(each.tries)} for each in self.tunings],
        }
        record.write_result(self.folder, self.result)


def tuned_comparison(
    comparison: Comparison,
    names: str | Sequence[str],
    budget: int = 12,
    say: Callable[[str], None] | None = None,
    num_seeds: int = NUM_SEEDS,
) -> TunedComparison:
    """Tune both arms of a comparison the same way, and return the comparison of the tuned arms.

    Args:
        comparison: Two arms, with the rules by which to compare them.
        names: The settings, with commas or as a list: `lr,weight_decay`, or paths such as `clip.limit`.
        budget: How many settings each arm tries, including its own.
        say: Called with sentences for the user; by default the comparison's own.
        num_seeds: How many seeds each try is trained on.
    """
    say = say or comparison.say
    listed = names.split(",") if isinstance(names, str) else names
    asked = tuple(each.strip() for each in listed if each.strip())
    search, note = _search(comparison, asked, budget, num_seeds)
    _refuse_tuning_the_difference(comparison.arms, asked)
    _check_tries(comparison, search)
    say(
        f"tuning {', '.join(asked)}: {budget} settings an arm, each on {num_seeds} seeds that the comparison "
        f"does not use; {note}"
    )
    tunings = tune_arms(comparison.arms, search, comparison.fleet)
    for each in tunings:
        say(each.sentence)
    return _after(comparison, tunings, say, note)


def _check_tries(comparison: Comparison, search: Search) -> None:
    """Report what cannot be tuned, or has too few evaluations at some setting, before training anything."""
    for arm in comparison.arms:
        tried = settings_to_try(arm.recipe, search.names, search.num_tries)
        arms = (make_arm(arm.name, arm.document, changes) for changes in tried)
        with comparison.fleet.use_dataset_cache():
            check_arms(arms, search.last, search.seeds[0], comparison.fleet.options)


def _search(
    comparison: Comparison, names: tuple[str, ...], budget: int, num_seeds: int
) -> tuple[Search, str]:
    """What is searched, and by which metric, in words."""
    plan, baseline = comparison.declaration, comparison.arms[0]
    data_root = comparison.fleet.options.data_root
    with comparison.fleet.use_dataset_cache():
        data = load_data(baseline.recipe, plan.first_seed, data_root, baseline.document.folder)
    metric, note = tuning_metric(plan.metric, data)
    first = plan.first_seed + TUNING_SEEDS
    cap = constant_baseline.trivial_value(data, metric, baseline.recipe.loss["name"])
    seeds = tuple(range(first, first + num_seeds))
    return Search(names, budget, seeds, metric, plan.higher_is_better, cap, plan.last), note


def tuning_metric(metric: str, data: Data) -> tuple[str, str]:
    """The metric to tune by, and what that means, in words."""
    split, _, name = metric.partition("_")
    if split != "test":
        return metric, f"the choice is by {metric}"
    if data.validation is not None:
        return f"validation_{name}", f"the choice is by validation_{name}, so that the test data is untouched"
    return metric, (
        f"there is no validation data, so the choice is by {metric} on the tuning seeds; set data.validation "
        "to leave the test data untouched"
    )


def _refuse_tuning_the_difference(arms: Sequence[Arm], names: Sequence[str]) -> None:
    """Reject arms that differ only in what is tuned: they would end as the same recipe."""
    baseline, candidate = (arm.recipe for arm in arms)
    paths = {dial(baseline, name).path for name in names}
    differing = {each["path"] for each in differences(baseline.canonical(), candidate.canonical())}
    if differing <= paths:
        raise UsageError(
            f"the arms differ only in {', '.join(sorted(differing))}, which is what would be tuned in both; "
            "compare them without --tune, or tune something else"
        )


def _after(
    comparison: Comparison, tunings: tuple[Tuning, ...], say: Callable[[str], None], note: str
) -> TunedComparison:
    """The comparison of the tuned arms, with its own folder and declaration."""
    first, second = (each.tuned_arm() for each in tunings)
    search = tunings[0].search
    arms, plan = (first, second), comparison.declaration
    check_comparable(first, second, plan.metric)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    cached = None if plan.cached_baselines is None else ()  # what was found belongs to the arm before tuning
    wanted = replace(plan, arms=declarations.arm_facts(arms), created=now, cached_baselines=cached)
    root, untuned = comparison.folder.parent.parent, declarations.question(comparison.arms)
    stem = re.sub(rf"-{untuned}.*$", "", comparison.folder.name)
    folder, declaration, exploratory = declarations.place(root, f"{stem}-tuned", arms, wanted)
    request: dict[str, Any] = {"names": list(search.names), "num_tries": search.num_tries}
    if search.last > 1:
        request["last"] = search.last  # left out otherwise, to match tunings made before it could be set
    values = {
        "schema_version": SCHEMA_VERSION,
        "question": untuned,
        "request": request,
        "seeds": list(search.seeds),
        "metric": search.metric,
        "last": search.last,
        "note": note,
        "arms": [each.to_dict() for each in tunings],
    }
    earlier = _tuned_before(root, untuned, request)
    _write(folder, {**values, "earlier": earlier})
    return TunedComparison(
        arms=arms,
        declaration=declaration,
        folder=folder,
        exploratory=[*exploratory, *earlier],
        fleet=comparison.fleet,
        reproduce=comparison.reproduce,
        test_size=comparison.test_size,
        say=say,
        tunings=tunings,
    )


def _write(folder: Path, values: dict[str, Any]) -> None:
    with storage_errors(folder, "make"):
        folder.mkdir(parents=True, exist_ok=True)
    write_sealed(folder / FILE, values)


def _tuned_before(root: Path, untuned: str, request: dict[str, Any]) -> list[str]:
    """Sentences on earlier tunings of the same arms by other rules: choosing among them is a choice too."""
    found: dict[str, None] = {}
    for path in sorted((root / "comparisons").glob(f"*/{FILE}")):
        earlier = read_sealed(path)
        if earlier.get("question") != untuned:
            continue
        if earlier["request"] == request:
            found |= dict.fromkeys(earlier.get("earlier", ()))
        else:
            before = earlier["request"]
            tried = f"{before['num_tries']} settings of {', '.join(before['names'])}"
            found[f"these arms were tuned before with {tried}, in {path.parent.name}"] = None
    return list(found)
