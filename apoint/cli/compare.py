"""`apoint compare`: does this change really help, or is it noise?"""

from __future__ import annotations

import _thread
import contextlib
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apoint.cli.terminal import say, say_json
from apoint.cli.using import allow_code_option, use
from apoint.cli.writing import check_report, command_line, force_option

if TYPE_CHECKING:
    from apoint.engine.fleet import FleetMoment
    from apoint.trials import Comparison
    from apoint.verdict import Verdict

EXPECTATIONS = ("better", "equivalent", "worse", "not-worse")
last_option = click.option(
    "--last",
    type=int,
    default=1,
    show_default=True,
    help="Compare the mean of the metric over the last N evaluations.",
)


def fleet_options(command: Any) -> Any:
    """Add the options that `compare` and `improve` share: paths, and how the fleet is trained."""
    for option in reversed(
        [
            click.option("--backend", "--engine", "backend", default="auto", show_default=True,
                         help="auto, loop, pool, stacked, pool+stacked or ray."),
            click.option("--workers", type=int, help="Worker processes; one per core by default."),
            click.option("--stack", type=int, help="Replicas stacked in one computation."),
            click.option("--address", help="The Ray cluster, with --engine ray."),
            click.option("--allow-open-cluster", is_flag=True,
                         help="Use a Ray cluster that needs no token."),
            click.option("--runs-root", envvar="APOINT_RUNS", default="runs", show_default=True,
                         help="The folder of the runs."),
            click.option("--data-root", type=click.Path(), help="The folder to search for datasets first."),
            click.option("--device", default="cpu", show_default=True, help="cpu, cuda, mps or auto."),
            click.option("--use", "files", multiple=True, type=click.Path(),
                         help="A Python file that registers ingredients."),
            allow_code_option,
            click.option("--quiet", is_flag=True, help="Show no progress; notes are still printed."),
            click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("recipe", type=click.Path())
@click.argument("others", nargs=-1)
@click.option("--change", "changes", multiple=True, help="A key=value change for the candidate; repeatable.")
@click.option("--metric", help="The metric to compare; the usual test metric of the task by default.")
@last_option
@click.option(
    "--margin",
    type=float,
    help="The smallest difference that matters; by default half the baseline's standard deviation across "
    "seeds.",
)
@click.option(
    "--alpha", type=float, default=0.05, show_default=True, help="Error rate over all looks together."
)
@click.option("--looks", help="Numbers of pairs to look at; 6,7,8,10,12,14,16,20,24,28,32 by default.")
@click.option("--anytime", is_flag=True, help="Look after every pair, with the rule that allows it.")
@click.option("--max-pairs", type=int, help="Stop after this many pairs.")
@click.option(
    "--first-seed", type=int, default=0, show_default=True, help="The first seed; the others follow it."
)
@click.option("--budget", help="A time limit such as 20m; as many pairs as fit are run.")
@click.option("--vary", help="What the seed changes, such as init,order,split; everything by default.")
@click.option(
    "--test-noise",
    type=click.Choice(("beside", "include")),
    default="beside",
    show_default=True,
    help="Whether the interval that also covers new test examples decides, or is only reported.",
)
@click.option(
    "--cached-baselines/--no-cached-baselines",
    default=True,
    help="Whether to use cached baseline replicas to sharpen the baseline's mean; on by default.",
)
@click.option(
    "--tune", help="Settings to tune first in each arm, such as lr,weight_decay, on separate seeds."
)
@click.option(
    "--tune-budget", type=int, default=12, show_default=True, help="Number of settings to try in each arm."
)
@click.option(
    "--expect",
    type=click.Choice(EXPECTATIONS),
    help="Exit with code 4 unless this is the verdict; for continuous integration.",
)
@click.option("--report", "report_path", type=click.Path(), help="Write the HTML report to this file.")
@force_option
@click.option(
    "--dry-run", is_flag=True, help="Show what would be declared and what it would cost, without training."
)
@fleet_options
def command(
    recipe: str,
    others: tuple[str, ...],
    changes: tuple[str, ...],
    expect: str | None,
    report_path: str | None,
    force: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    tune: str | None,
    tune_budget: int,
    **settings: Any,
) -> None:
    """Compare RECIPE with a change to it, or with another recipe, over paired seeds.

    \b
    apoint compare base.yaml --change optimizer.name=lion --change optimizer.lr=1e-4
    apoint compare a.yaml b.yaml epochs=5          key=value without --change is for both

    Exit codes: 0 done, 1 failure, 2 wrong input, 3 the baseline diverges, 4 not as expected.
    """
    from apoint.engine import TrainingInterruptedError
    from apoint.progress import FleetLine
    from apoint.trials.compare import Question, split_settings
    from apoint.trials.comparison import prepare

    candidate, shared = _sorted_arguments(others)
    check_report(report_path, force)
    line = FleetLine(quiet)
    use(settings["files"], [recipe, candidate])
    comparison = prepare(
        recipe,
        candidate,
        _once_each(changes),
        shared=shared,
        say=line.say,
        watch=_Ahead(line),
        reproduce=command_line(),
        **split_settings(_parsed(settings)),
    )
    if dry_run:
        _show_plan(comparison, as_json)
        return
    question = Question(comparison, tune, tune_budget)
    try:
        verdict = question.answer()
    except TrainingInterruptedError:
        line.close()
        _show_so_far(question.comparison, report_path, as_json)
        raise
    finally:
        line.close()
    written = _write_report(question.comparison, report_path)
    _show_result(question.comparison, verdict, written, as_json)
    if expect:
        exit_unless_expected(expect, verdict)


class _Ahead:
    """Watches a fleet; once replicas train, uses the time to import what the report will need."""

    def __init__(self, watch: Callable[[FleetMoment], None]) -> None:
        self._watch, self._begun = watch, False

    def __call__(self, moment: FleetMoment) -> None:
        if moment.progress > 0 and not self._begun:
            self._begun = True
            # Not `threading.Thread`, which waits forever for a thread that has no memory to start.
            with contextlib.suppress(RuntimeError, MemoryError):
                _thread.start_new_thread(self._import, ())
        self._watch(moment)

    def _import(self) -> None:
        with contextlib.suppress(MemoryError):  # imported again where they are needed
            for name in ("matplotlib.figure", "matplotlib.backends.backend_svg", "scipy.optimize"):
                importlib.import_module(name)


def _sorted_arguments(others: tuple[str, ...]) -> tuple[str | None, dict[str, Any]]:
    """The second recipe, if there is one, and the changes to both."""
    from apoint.errors import UsageError

    recipes = [each for each in others if "=" not in each]
    if len(recipes) > 1:
        raise UsageError(
            f"a comparison has two arms, and there are {1 + len(recipes)} recipes; compare them two by two"
        )
    return (recipes[0] if recipes else None), _once_each([each for each in others if "=" in each])


def _once_each(pairs: Any) -> dict[str, Any]:
    """Changes by key; raises if a key is changed twice."""
    from apoint.errors import UsageError
    from apoint.recipe import parse_overrides

    keys = [pair.partition("=")[0].strip() for pair in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise UsageError(f"{key!r} is changed twice; keep one of the two")
    return parse_overrides(pairs)


def _parsed(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with comma-separated lists parsed and omitted options dropped."""
    from apoint.errors import UsageError

    parsed = {name: value for name, value in settings.items() if value not in (None, ())}
    if "looks" in parsed:
        try:
            parsed["looks"] = tuple(int(each) for each in parsed["looks"].split(","))
        except ValueError:
            raise UsageError(
                f"--looks must be whole numbers with commas, such as 8,16,24,32, got {parsed['looks']!r}"
            ) from None
    if "vary" in parsed:
        parsed["vary"] = [each.strip() for each in parsed["vary"].split(",") if each.strip()]
    if parsed.get("backend") != "ray":
        parsed.pop("allow_open_cluster", None)
    return parsed


def _show_plan(comparison: Comparison, as_json: bool) -> None:
    from apoint.progress import duration
    from apoint.trials import predict

    first, whole = predict(comparison)
    plan = comparison.declaration
    if as_json:
        cost = {"seconds": whole.seconds, "memory_bytes": whole.memory_bytes, "fleet": whole.sentence}
        values = {"folder": str(comparison.folder), "declaration": plan.to_dict(), "cost": cost}
        say_json({"schema_version": 1, **values})
        return
    looks = ", ".join(map(str, plan.looks)) if plan.looks else f"after every pair, up to {plan.max_pairs}"
    margin = f"{plan.margin:g}" if plan.margin is not None else plan.margin_rule
    say(f"folder       {comparison.folder}")
    say(f"metric       {plan.number}, {'higher' if plan.higher_is_better else 'lower'} is better")
    say(f"training     {', '.join(f'{value} {unit}' for unit, value in plan.budget.items())}")
    say(f"looks        {looks}; error rate {plan.alpha:g} over all of them")
    say(f"margin       {margin}")
    say(f"test noise   {'decides with seeds' if plan.test_noise == 'include' else 'told beside'}")
    say(f"seeds        from {plan.first_seed}; they vary {', '.join(plan.vary)}")
    if plan.cached_baselines:
        say(
            f"cached       {len(plan.cached_baselines)} baseline replicas, beyond the pairs of the first look"
        )
    say(f"{whole.sentence}")
    say(
        f"expected     {duration(first.seconds)} to the first look, at most {duration(whole.seconds)}, "
        f"{whole.memory_bytes / 2**20:.0f} MiB of memory"
    )


def _write_report(comparison: Comparison, path: str | None) -> str:
    from apoint.report import write_comparison_report
    from apoint.store import storage_errors

    if path is not None:
        with storage_errors(Path(path).parent):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
    return str(write_comparison_report(comparison.folder, path))


def _show_so_far(comparison: Comparison, report_path: str | None, as_json: bool) -> None:
    """Show what was known at an interruption: the verdict of the last look, which is valid, and the page."""
    if comparison.verdict is None:
        return
    written = _write_report(comparison, report_path)
    if not as_json:  # in JSON, the last line reports the interruption
        _show_result(comparison, comparison.verdict, written, as_json)


def _show_result(comparison: Comparison, verdict: Verdict, report: str, as_json: bool) -> None:
    if as_json:
        say_json({**comparison.result, "folder": str(comparison.folder), "report": report})
        return
    say(f"{verdict}\n\narms    {comparison.result['label']}")
    say(f"record  {comparison.folder}\nreport  {report}")


def exit_unless_expected(expected: str, verdict: Verdict) -> None:
    """Exit with code 4 if the verdict is not the expected one."""
    met = verdict.outcome == expected
    if expected == "not-worse":
        met = verdict.outcome in ("better", "equivalent")
    if not met:
        say(f"apoint: expected {expected}, and the verdict is {verdict.outcome}", err=True)
        sys.exit(4)
