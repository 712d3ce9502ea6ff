"""`apoint runs`: list, show, compare by eye, reindex and remove runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apoint.cli.runs import options
from apoint.cli.runs.options import SCHEMA_VERSION
from apoint.cli.terminal import confirm, paint, say, say_json
from apoint.errors import UsageError, one_line

if TYPE_CHECKING:
    from apoint.store import Run

_COLOURS = ("cyan", "yellow", "magenta", "green", "red", "blue")


@click.group()
def command() -> None:
    """List, show, compare and remove runs.

    \b
    apoint runs list
    apoint runs show digits-mlp
    apoint runs curves digits-mlp-3f2a digits-mlp-77c1 --metric test_accuracy
    """


def _print_json(content: dict[str, Any]) -> None:
    say_json({"schema_version": SCHEMA_VERSION, **content})


# -- list -----------------------------------------------------------------------------------------------


@command.command("list")
@options.runs_root
@click.option("--state", help="Only runs in this state, such as finished or dead.")
@click.option(
    "--limit", default=30, show_default=True, help="Show at most this many, newest first; 0 for all."
)
@options.as_json
def list_runs(runs_root: str, state: str | None, limit: int, as_json: bool) -> None:
    """List the runs, the newest first."""
    from apoint.cli.runs.listing import as_dictionary, print_list
    from apoint.store import Catalogue

    with Catalogue(runs_root) as catalogue:
        catalogue.refresh()
        found = [each for each in catalogue.summaries() if state in (None, each.state)]
    shown = found if limit <= 0 or as_json else found[:limit]
    if as_json:
        _print_json({"runs_root": runs_root, "runs": [as_dictionary(each) for each in shown]})
    else:
        print_list(shown, len(found), runs_root)


# -- show and curves ------------------------------------------------------------------------------------


@command.command()
@options.run_argument("run", required=False)
@options.runs_root
@click.option(
    "--metric", "metrics", multiple=True, help="A curve to draw, such as test_accuracy; repeatable."
)
@click.option("--log", is_flag=True, help="Use a logarithmic axis for the values.")
@options.as_json
def show(run: str | None, runs_root: str, metrics: tuple[str, ...], log: bool, as_json: bool) -> None:
    """Show RUN, or the newest: its recipe, state, last metrics and curves."""
    from apoint.cli.runs.card import as_dictionary, print_run
    from apoint.store import find_run, newest_run

    found = find_run(run, runs_root) if run else newest_run(runs_root)
    if as_json:
        _print_json(as_dictionary(found, metrics))
    else:
        print_run(found, metrics, log)


@command.command()
@options.run_argument("runs", nargs=-1, required=True)
@options.runs_root
@click.option("--metric", required=True, help="The curve to compare, such as test_accuracy.")
@click.option("--log", is_flag=True, help="Use a logarithmic axis for the values.")
@options.as_json
def curves(runs: tuple[str, ...], runs_root: str, metric: str, log: bool, as_json: bool) -> None:
    """Draw one metric of several RUNS in one plot, each run with its own letter."""
    found = options.sound_runs(runs, runs_root)
    series = {run: run.metrics.series(metric) for run in found}
    if as_json:
        listed = [
            {"folder": str(run.folder), "seed": run.seed, "steps": steps, "values": values}
            for run, (steps, values) in series.items()
        ]
        _print_json({"metric": metric, "runs": listed})
    else:
        _print_curves(series, metric, log)


def _print_curves(series: dict[Run, tuple[list[int], list[float]]], metric: str, log: bool) -> None:
    from apoint.cli.runs.plot import LETTERS, plot_many, remark
    from apoint.cli.runs.text import columns, draws_unicode, number

    def in_colour(index: int, text: str) -> str:
        return paint(text, _COLOURS[index % len(_COLOURS)])

    drawn = dict(list(series.items())[: len(LETTERS)])
    say(one_line(metric))
    for line in plot_many(list(drawn.values()), columns(), 14, draws_unicode(), log, in_colour):
        say(line)
    for index, (run, curve) in enumerate(drawn.items()):
        letter, last = in_colour(index, LETTERS[index]), number(curve[1][-1])
        say(f"  {letter}  {one_line(run.folder.name)}   last {last}   {remark(curve, log)}")
    say("  #  several runs")
    if len(series) > len(drawn):
        say(f"{len(drawn)} of {len(series)} runs are drawn, as many as there are letters")


# -- reindex and rm -------------------------------------------------------------------------------------


@command.command()
@options.runs_root
@options.as_json
def reindex(runs_root: str, as_json: bool) -> None:
    """Rebuild the catalogue from the run folders."""
    from apoint.store import Catalogue

    if not Path(runs_root).is_dir():
        raise UsageError(f"there is no folder {runs_root}; name the one that holds the runs with --runs-root")
    began = time.perf_counter()
    with Catalogue(runs_root) as catalogue:
        count = catalogue.rebuild()
    seconds = time.perf_counter() - began
    if as_json:
        _print_json({"runs": count, "seconds": seconds, "catalogue": str(catalogue.path)})
    else:
        say(f"{count} runs indexed in {seconds:.2f} s")


@command.command()
@options.run_argument("runs", nargs=-1, required=True)
@options.runs_root
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.as_json
def rm(runs: tuple[str, ...], runs_root: str, yes: bool, as_json: bool) -> None:
    """Remove RUNS with everything in their folders."""
    from apoint.store import remove_run

    found = options.named_runs(runs, runs_root)
    names = ", ".join(one_line(run.folder.name) for run in found)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"removing {names} needs --yes where nobody can be asked")
        confirm(f"Remove {names} for good?")
    for run in found:
        remove_run(run)
    if as_json:
        _print_json({"removed": [str(run.folder) for run in found]})
    else:
        say(f"removed {names}")
