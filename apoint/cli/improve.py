"""`apoint improve`: which changes really help this recipe?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apoint.cli.compare import _once_each, _parsed, fleet_options
from apoint.cli.terminal import say, say_json
from apoint.cli.using import use
from apoint.cli.writing import command_line, force_option

if TYPE_CHECKING:
    from apoint.trials.improver import Improvement, Improver

WIDTHS = (6, 10, 11, 24, 5)  # item, verdict, effect, interval, pairs


@click.command()
@click.argument("recipe", type=click.Path())
@click.argument("overrides", nargs=-1)
@click.option("--budget", default="1h", show_default=True, help="The time there is, such as 20m.")
@click.option(
    "--candidate",
    "--change",
    "own",
    multiple=True,
    help="A change of your own to try, such as 'optimizer.lr=3e-3'; several keys with blanks between them "
    "are one candidate. May be repeated.",
)
@click.option("--only-mine", is_flag=True, help="Try your own candidates and not the curated list.")
@click.option("--metric", help="The number compared; the usual test metric of the task by default.")
@click.option(
    "--margin",
    type=float,
    help="The smallest difference that matters; by default half the baseline's deviation over seeds.",
)
@click.option("--alpha", type=float, default=0.05, show_default=True, help="Error rate over all candidates.")
@click.option(
    "--first-seed", type=int, default=0, show_default=True, help="Seeds are this and the next ones."
)
@click.option("--vary", help="What seeds change, such as init,order,split; by default everything.")
@click.option("--output", type=click.Path(dir_okay=False), help="Where a copy of the improved recipe goes.")
@force_option
@click.option("--dry-run", is_flag=True, help="Say what would be tried and what it would cost.")
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
    """Race changes to RECIPE, confirm the winners on fresh seeds, and write the better recipe.

    \b
    apoint improve base.yaml --budget 1h --output improved.yaml
    apoint improve base.yaml --candidate 'model.norm=batch optimizer.lr=5e-3' --only-mine
    apoint improve base.yaml epochs=5          key=value without an option is for the base itself

    Exit codes: 0 done, also if nothing helps; 1 failure, 2 wrong input, 3 the base diverges.
    """
    from apoint.cli.progress import FleetLine
    from apoint.engine import TrainingInterruptedError
    from apoint.trials.comparison import split_settings
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
    """Where the improved recipe may go: nothing that is not ours is written over."""
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
    from apoint.cli.progress import duration

    plan = search.declared
    if as_json:
        say_json({"schema_version": 1, "folder": str(search.folder), **plan.to_dict()})
        return
    margin = f"{plan.margin:g}" if plan.margin is not None else plan.margin_rule
    say(f"folder       {search.folder}")
    say(f"metric       {plan.metric}, {'higher' if plan.higher_is_better else 'lower'} is better")
    say(f"training     {', '.join(f'{value:g} {unit}' for unit, value in plan.budget.items())}")
    say(f"looks        {', '.join(map(str, plan.looks))} pairs; error rate {plan.alpha:g} over all")
    say(f"margin       {margin}")
    say(f"winners      confirmed on fresh seeds; time is kept for {plan.num_winners}")
    say(
        f"expected     at most {duration(plan.expected_seconds)} of the {duration(plan.time_budget)} there is"
    )
    say(f"\n{len(plan.candidates)} to try:")
    for candidate, _ in search.entries.values():
        say(f"  {candidate.label:<24} {candidate.course or 'yours':<6} {candidate.reason}")
        if not candidate.own:
            say(f"  {'':<24} {'':<6} {candidate.written}")
    _show_not_tried(plan.not_tried)


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
    """What was known when somebody stopped it; in JSON the last line tells of the interruption alone."""
    from apoint.trials.record import read_result

    result = read_result(folder)
    if result and not as_json:
        _show_evidence(result)
        _show_places(folder, reports)


def _show_evidence(result: dict[str, Any]) -> None:
    say(f"{result['sentence']}.\n")
    for line in table(result["race"]):
        say(line)
    if result["checks"]:
        say("\non fresh seeds:")
    for line in table([_as_row(check) for check in result["checks"]], "comparison"):
        say(line)
    for label in result["unchecked"]:
        say(f"  {label}: no time was left to confirm it")
    verdicts = {row["label"]: row["verdict"] for row in result["race"]}
    open_still = [label for label, known in verdicts.items() if known and known["outcome"] == "undecided"]
    if open_still:
        say(f"\nundecided, which more time would settle: {', '.join(open_still)}")


def _show_places(folder: Path, reports: list[Path]) -> None:
    say(f"\nrecord    {folder}")
    if reports:
        say(f"report    {reports[0]}")  # which leads to the others


def _as_row(check: dict[str, Any]) -> dict[str, Any]:
    from apoint.report.words import together_words

    labels = check["labels"]
    together = together_words(labels)
    named = {
        "confirmation": together,
        "combination": f"{together} against {labels[0]}",
        "result": f"{together} against the base",
    }
    return {"label": named[check["stage"]], "course": "", "verdict": check["verdict"]}


def table(rows: list[dict[str, Any]], title: str = "change") -> list[str]:
    """Rows of label, course item and verdict as lines of a table."""
    if not rows:
        return []
    first = max(len(title), *(len(row["label"]) for row in rows))
    heads = ("item", "verdict", "effect", "interval", "pairs")
    lines = [_line(title, first, heads)]
    for row in rows:
        verdict = row["verdict"]
        if verdict is None:
            cells: tuple[str, ...] = (row["course"] or "yours", "not yet", "", "", "")
        else:
            lower, upper = verdict["interval"]
            interval = f"{_number(lower)} to {_number(upper)}"
            facts = (verdict["outcome"], _number(verdict["effect"]), interval, str(verdict["pairs"]))
            cells = ("yours" if row["course"] is None else row["course"], *facts)
        lines.append(_line(row["label"], first, cells))
    return lines


def _line(label: str, first: int, cells: tuple[str, ...]) -> str:
    columns = [f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)]
    return f"  {label:<{first}}  {' '.join(columns)}".rstrip()


def _number(value: Any) -> str:
    """A difference with its sign; JSON has text for what is not finite."""
    return f"{value:+.3g}" if isinstance(value, int | float) else str(value)
