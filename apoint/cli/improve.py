"""`apoint improve`: which changes really help this recipe?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apoint.cli.compare import _once_each, _parsed, fleet_options, last_option
from apoint.cli.terminal import say, say_json
from apoint.cli.using import use
from apoint.cli.writing import command_line, force_option

if TYPE_CHECKING:
    from apoint.trials.improver import Improvement, Improver

SCREENED = {"item": 6, "mean": 11, "error": 11, "pairs": 6, "": 0}
CHECKED = {"verdict": 11, "effect": 11, "interval": 24, "pairs": 0}


@click.command()
@click.argument("recipe", type=click.Path())
@click.argument("overrides", nargs=-1)
@click.option("--budget", default="1h", show_default=True, help="The time to spend, such as 20m.")
@click.option(
    "--candidate",
    "--change",
    "own",
    multiple=True,
    help="Your own change to try, such as 'optimizer.lr=3e-3'; several keys separated by spaces make one "
    "candidate. Repeatable.",
)
@click.option("--only-mine", is_flag=True, help="Try only your own candidates, not the curated list.")
@click.option("--metric", help="The metric to compare; the usual test metric of the task by default.")
@last_option
@click.option(
    "--margin",
    type=float,
    help="The smallest difference that matters; by default half the baseline's standard deviation across "
    "seeds.",
)
@click.option(
    "--alpha", type=float, default=0.05, show_default=True, help="Error rate over all candidates together."
)
@click.option(
    "--first-seed", type=int, default=0, show_default=True, help="The first seed; the others follow it."
)
@click.option("--vary", help="What the seed changes, such as init,order,split; everything by default.")
@click.option(
    "--output", type=click.Path(dir_okay=False), help="Write a copy of the improved recipe to this file."
)
@force_option
@click.option(
    "--dry-run", is_flag=True, help="Show what would be tried and what it would cost, without training."
)
@fleet_options
def command(
    recipe: str,
    overrides: tuple[str, ...],
    budget: str,
    own: tuple[str, ...],
    only_mine: bool,
    output: str | None,
    force: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Screen changes to RECIPE, confirm the best on fresh seeds, and write the better recipe.

    \b
    apoint improve base.yaml --budget 1h --output improved.yaml
    apoint improve base.yaml --candidate 'model.norm=batch optimizer.lr=5e-3' --only-mine
    apoint improve base.yaml epochs=5          key=value without an option is for the base itself

    Exit codes: 0 done, also if nothing helps; 1 failure, 2 wrong input, 3 the base diverges.
    """
    from apoint.engine import TrainingInterruptedError
    from apoint.progress import FleetLine
    from apoint.trials.compare import split_settings
    from apoint.trials.improve import prepare_improvement, write_reports

    target = _vacant(output, force)
    line = FleetLine(quiet)
    use(settings["files"], [recipe])
    search = prepare_improvement(
        recipe,
        budget,
        own,
        only_mine=only_mine,
        shared=_shared(overrides),
        say=line.say,
        watch=line,
        reproduce=command_line(),
        **split_settings(_parsed(settings)),
    )
    if dry_run:
        _show_plan(search, as_json)
        return
    try:
        with search.fleet:
            found = search.run()
    except TrainingInterruptedError:
        line.close()
        _show_so_far(search.folder, write_reports(search.folder), as_json)
        raise
    finally:
        line.close()
    reports = write_reports(found.folder)
    if target:
        _copy(found, search, target)
    _show_result(found, reports, target, as_json)


def _vacant(output: str | None, force: bool) -> Path | None:
    """The path for the improved recipe; a file that `improve` did not write is not overwritten."""
    from apoint.errors import UsageError
    from apoint.trials.improver import HEADER

    if output is None:
        return None
    target = Path(output)
    try:
        if not force and target.exists() and not target.read_text(errors="replace").startswith(HEADER):
            raise UsageError(
                f"{target} exists and was not written by improve; choose another --output, or overwrite it "
                "with --force"
            )
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}; choose another --output") from None
    if not target.resolve().parent.is_dir():
        raise UsageError(f"there is no folder {target.parent} for the improved recipe; make it first")
    return target


def _shared(overrides: tuple[str, ...]) -> dict[str, Any]:
    from apoint.errors import UsageError

    strange = [each for each in overrides if "=" not in each]
    if strange:
        raise UsageError(
            f"improve takes one recipe and key=value changes to it, and {strange[0]!r} is neither; compare "
            "two recipes with apoint compare"
        )
    return _once_each(overrides)


def _copy(found: Improvement, search: Improver, target: Path) -> None:
    from apoint.store import write_atomically

    write_atomically(target, found.to_yaml())
    named = [search.document.values.get(part) for part in ("data", "model")]
    relative = any(
        isinstance(spec, dict) and not Path(str(spec.get(key, "/"))).is_absolute()
        for spec in named
        for key in ("path", "file")
    )
    if relative and target.resolve().parent != search.document.folder.resolve():
        search.say(f"file names in {target} are relative to {search.document.folder}; put it there to use it")


# -- showing ------------------------------------------------------------------------------------------------


def _show_plan(search: Improver, as_json: bool) -> None:
    from apoint.progress import duration

    plan = search.declared
    if as_json:
        say_json({"schema_version": 1, "folder": str(search.folder), **plan.to_dict()})
        return
    margin = f"{plan.margin:g}" if plan.margin is not None else plan.margin_rule
    say(f"folder       {search.folder}")
    say(f"metric       {plan.number}, {'higher' if plan.higher_is_better else 'lower'} is better")
    say(f"training     {', '.join(f'{value:g} {unit}' for unit, value in plan.budget.items())}")
    say(f"screen       {_screen_words(search)}")
    say(f"choice       {plan.screen_note}")
    say(
        f"confirmation on fresh seeds, looks at {', '.join(map(str, plan.looks))} pairs; error rate "
        f"{plan.alpha:g} over all"
    )
    say(f"margin       {margin}")
    say(f"forecast     {_forecast(plan.forecast)}")
    say(
        f"expected     at most {duration(plan.expected_seconds)} of the {duration(plan.time_budget)} there is"
    )
    say(f"\n{len(plan.candidates)} to try:")
    for candidate, _ in search.entries.values():
        say(f"  {candidate.label:<24} {candidate.course or 'yours':<6} {candidate.reason}")
        if not candidate.own:
            say(f"  {'':<24} {'':<6} {candidate.written}")
    _show_not_tried(plan.not_tried)


def _screen_words(search: Improver) -> str:
    """The steps of the screen: how many changes on how many pairs."""
    plan = search.declared.plan
    sizes = [plan.num_candidates, *(rung.kept for rung in plan.rungs)]
    steps = [
        f"{size} {'changes' if size > 1 else 'change'} on {rung.pairs} pairs"
        for size, rung in zip(sizes, plan.rungs, strict=False)
    ]
    return ", then ".join(steps) or "none: a single change is compared at once"


def _forecast(forecast: dict[str, float]) -> str:
    """The chance of finding a change that helps, by how much it helps."""
    chances = ", ".join(f"{chance:.0%} for {effect}" for effect, chance in forecast.items())
    return f"the chance to find one change that helps is {chances} standard deviations of the differences"


def _show_not_tried(not_tried: Any) -> None:
    if not_tried:
        say("\nnot tried:")
    for each in not_tried:
        say(f"  {each['label']:<24} {each['why']}")


def _show_result(found: Improvement, reports: list[Path], target: Path | None, as_json: bool) -> None:
    path = target or found.folder / "improved.yaml"
    if as_json:
        written = {"folder": str(found.folder), "improved": str(path), "reports": list(map(str, reports))}
        say_json({**found.evidence, **written})
        return
    _show_evidence(found.evidence)
    _show_not_tried(found.evidence["declaration"]["not_tried"])
    _show_places(found.folder, reports)
    say(f"improved  {path}{'' if found.changes else ' (the base as it was)'}")


def _show_so_far(folder: Path, reports: list[Path], as_json: bool) -> None:
    """Show what was known at an interruption; in JSON, the last line reports only the interruption."""
    from apoint.trials.record import read_result

    result = read_result(folder)
    if result and not as_json:
        _show_evidence(result)
        _show_places(folder, reports)


def _show_evidence(result: dict[str, Any]) -> None:
    say(f"{result['sentence']}.\n")
    if result["checks"]:
        say("on fresh seeds:")
    for line in table("comparison", CHECKED, [_checked(check) for check in result["checks"]]):
        say(line)
    if any(row["pairs"] for row in result["screen"]):
        say(f"{'' if not result['checks'] else chr(10)}the screen, which only chooses:")
    for line in table("change", SCREENED, [_screened(row, result["kept"]) for row in result["screen"]]):
        say(line)


def _show_places(folder: Path, reports: list[Path]) -> None:
    say(f"\nrecord    {folder}")
    if reports:
        say(f"report    {reports[0]}")  # which leads to the others


def _checked(check: dict[str, Any]) -> list[str]:
    """A comparison on fresh seeds as the cells of a row."""
    from apoint.report.words import check_words

    verdict = check["verdict"]
    lower, upper = verdict["interval"]
    known = isinstance(lower, int | float)
    interval = f"{lower:+.3g} to {upper:+.3g}" if known else "no interval yet"
    label = check_words(check["stage"], check["labels"])
    return [label, verdict["outcome"], _number(verdict["effect"]), interval, str(verdict["pairs"])]


def _screened(row: dict[str, Any], kept: list[str]) -> list[str]:
    """A screened change as the cells of a row."""
    best = bool(row["pairs"]) and not row["dropped"]
    became = "kept" if row["label"] in kept else "best" if best else ""
    numbers = [_number(row["effect"]), _number(row["standard_error"]).replace("+", "± ")]
    cells = numbers if row["pairs"] else ["not yet", ""]
    return [row["label"], row["course"] or "yours", *cells, str(row["pairs"] or ""), became]


def table(title: str, columns: dict[str, int], rows: list[list[str]]) -> list[str]:
    """Rows of cells as lines of a table; `columns` has the width of each column but the first."""
    if not rows:
        return []
    first = max(len(title), *(len(row[0]) for row in rows))
    return [_line(cells, [first + 1, *columns.values()]) for cells in ([title, *columns], *rows)]


def _line(cells: list[str], widths: list[int]) -> str:
    columns = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)]
    return f"  {' '.join(columns)}".rstrip()


def _number(value: Any) -> str:
    """A difference with its sign; non-finite values are text in JSON."""
    if not isinstance(value, int | float):
        return "not known"
    return f"{value:+.3g}" if abs(value) > 1e-12 else "0"
