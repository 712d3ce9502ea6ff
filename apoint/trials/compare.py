"""`apoint.compare`, with its arguments as editors and type checkers see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from apoint.engine import Options, custom
from apoint.engine.api import OptionArguments
from apoint.engine.fleet import FleetMoment
from apoint.engine.signals import TrainingInterruptedError
from apoint.progress import FleetLine, is_wanted
from apoint.trials.arms import Source
from apoint.trials.comparison import Comparison, Rules, prepare
from apoint.trials.tune import tuned_comparison
from apoint.verdict import Verdict


class FleetArguments(TypedDict, total=False):
    """How the replicas are trained; see `apoint.engine.fleet.Fleet`."""

    backend: str
    workers: int | None
    stack: int | None
    files: Sequence[str | Path]
    shared: Mapping[str, Any] | None
    reproduce: str
    address: str | None
    allow_open_cluster: bool


class SearchArguments(OptionArguments, FleetArguments, total=False):
    """What `apoint.improve` takes besides its own arguments."""

    metric: str | None
    last: int
    margin: float | None
    alpha: float
    first_seed: int
    vary: Sequence[str] | None


class ComparisonArguments(SearchArguments, total=False):
    """What `apoint.compare` takes besides its own arguments: all of `Rules`, `Options` and the fleet's."""

    looks: Sequence[int] | None
    anytime: bool
    max_pairs: int | None
    budget: str | float | None
    test_noise: str
    cached_baselines: bool


def compare(
    baseline: Source,
    candidate: Source | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    say: Callable[[str], None] | None = None,
    watch: Callable[[FleetMoment], None] | None = None,
    progress: bool | None = None,
    tune: str | Sequence[str] | None = None,
    tune_budget: int = 12,
    report: bool = True,
    allow_code: bool = False,
    **settings: Unpack[ComparisonArguments],
) -> Verdict:
    """Train two arms over paired seeds until the statistics allow a verdict.

    Args:
        baseline: A recipe file, a mapping, or a recipe.
        candidate: Another recipe; None if the candidate is the baseline with `changes`.
        changes: Dotted paths and new values, such as `{"optimizer.name": "lion", "optimizer.lr": 1e-4}`.
        say: Called with sentences for the user, instead of showing them.
        watch: Called with the state of the fleet, instead of showing progress.
        progress: Whether to show progress and notes; by default in a terminal and in a notebook.
        tune: Settings to tune first in each arm, such as `lr,weight_decay`, on separate seeds.
        tune_budget: How many settings each arm tries.
        report: Whether to draw `report.html` in the comparison's folder.
        allow_code: Whether a recipe in a run folder or the like may run the files that it names.
        **settings: Of `Rules` (metric, last, margin, alpha, looks, anytime, max_pairs, first_seed, budget,
            vary, test_noise, cached_baselines), of `apoint.engine.Options` (runs_root, data_root, …), and
            `backend`, `workers`, `stack`.
    """
    sorted_settings = split_settings(settings)
    with custom.allowing_code(allow_code), FleetLine() as line:
        if is_wanted(progress):
            watch, say = watch or line, say or line.say
        comparison = prepare(baseline, candidate, changes, say=say, watch=watch, **sorted_settings)
        question = Question(comparison, tune, tune_budget)
        try:
            verdict = question.answer()
        except TrainingInterruptedError:  # the verdict of the last look is valid: draw it as well
            if report and question.comparison.verdict is not None:
                _draw(question.comparison)
            raise
    if report:
        _draw(question.comparison)
    return verdict


def _draw(comparison: Comparison) -> None:
    from apoint.report import write_comparison_report

    write_comparison_report(comparison.folder)


@dataclass
class Question:
    """A comparison on its way to its verdict; both arms are tuned first if requested.

    Attributes:
        comparison: The comparison; after tuning, that of the tuned arms.
        tune: The settings to tune, or None.
        tune_budget: How many settings each arm tries.
    """

    comparison: Comparison
    tune: str | Sequence[str] | None = None
    tune_budget: int = 12

    def answer(self) -> Verdict:
        """Train until the statistics allow a verdict."""
        with self.comparison.fleet:
            if self.tune:
                self.comparison = tuned_comparison(self.comparison, self.tune, self.tune_budget)
            return self.comparison.run()


def split_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Sort keyword arguments as users give them into rules, options and fleet settings."""
    from apoint.errors import UnknownNameError

    rest = dict(settings)
    rules = {name: rest.pop(name) for name in Rules.__dataclass_fields__ if name in rest}
    options = {name: rest.pop(name) for name in Options.__dataclass_fields__ if name in rest}
    known = FleetArguments.__annotations__
    for name in rest:
        if name not in known:
            names = [*Rules.__dataclass_fields__, *Options.__dataclass_fields__, *known]
            raise UnknownNameError("setting of compare", name, names)
    return {"rules": Rules(**rules), "options": Options(**options), **rest}
