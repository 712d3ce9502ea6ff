"""`apoint book`: the course as claims that run. List, show, run, draw, and build the pages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apoint.cli.terminal import say, say_json
from apoint.cli.writing import force_option

if TYPE_CHECKING:
    from apoint.book import Claim, Erratum, Exercise, Outcome

SCHEMA_VERSION = 1
NOT_AS_EXPECTED = 4
SCALES = ("quick", "standard", "paper")
_folder = click.option(
    "--folder", type=click.Path(), default="book", show_default=True, help="The folder of the records."
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")


@click.group()
def command() -> None:
    """The course as claims that run: each statement with its check, its verdict and its picture.

    \b
    apoint book list --chapter E
    apoint book show E2
    apoint book run E2 --scale quick
    apoint book figure E2
    apoint book errata --chapter E
    apoint book build --out site

    Exit codes: 0 done, 1 a check broke, 2 wrong input, 4 a claim does not hold and --expect-holds was given.
    """
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:  # a terminal without ✓ shows a question mark instead of an error
        reconfigure(errors="replace")


def _print_json(content: dict[str, Any]) -> None:
    say_json({"schema_version": SCHEMA_VERSION, **content})


# -- list -----------------------------------------------------------------------------------------------


@command.command("list")
@click.option("--chapter", help="Only the rows of this chapter, such as E.")
@_folder
@_as_json
def list_rows(chapter: str | None, folder: str, as_json: bool) -> None:
    """List all rows of the course with their claims and last verdicts."""
    from apoint.book import CHAPTERS, ROWS
    from apoint.errors import UnknownNameError

    wanted = chapter.strip().upper() if chapter else None
    if wanted is not None and wanted not in CHAPTERS:
        raise UnknownNameError("chapter", str(chapter), CHAPTERS)
    rows = [row for row in ROWS.values() if wanted in (None, row.chapter)]
    listed = _listed(rows, Path(folder))
    if as_json:
        _print_json({"folder": folder, "rows": listed})
    else:
        _print_list(listed)


def _listed(rows: Any, folder: Path) -> list[dict[str, Any]]:
    from apoint.book import claims
    from apoint.book.site.shelf import known_outcomes

    outcomes = known_outcomes(folder)
    found: list[dict[str, Any]] = []
    for row in rows:
        own = [claim for claim in claims().values() if claim.row is row]
        each = [_claim_facts(claim, outcomes.get(claim.id)) for claim in own]
        facts = {
            name: getattr(row, name) for name in ("id", "title", "chapter", "forms", "source", "doubtful")
        }
        found.append({**facts, "written": bool(own), "claims": each})
    return found


def _claim_facts(claim: Claim, outcome: Outcome | None) -> dict[str, Any]:
    return {
        "id": claim.id,
        "title": claim.title,
        "kind": claim.kind,
        "seconds": dict(claim.seconds),
        "erratum": claim.erratum is not None,
        "verdict": outcome and outcome.verdict,
        "scale": outcome and outcome.scale,
        "took": outcome and outcome.seconds,
    }


def _print_list(rows: list[dict[str, Any]]) -> None:
    from apoint.book import CHAPTERS
    from apoint.book.card import NOT_RUN, console, print_summary
    from apoint.report.words import duration

    to = console()
    for letter in dict.fromkeys(row["chapter"] for row in rows):
        to.print(f"\n{letter}. {CHAPTERS[letter]}", style="bold", markup=False)
        lines = []
        for row in rows:
            if row["chapter"] != letter:
                continue
            for one in row["claims"]:
                took = duration(one["took"]) if one["took"] is not None else ""
                lines.append((one["id"], one["title"], one["verdict"] or NOT_RUN, one["scale"] or "", took))
        print_summary(lines, to)


# -- show -----------------------------------------------------------------------------------------------


@command.command()
@click.argument("name")
@click.option("--solutions", is_flag=True, help="Also show hints and solutions of the exercises.")
@_folder
@_as_json
def show(name: str, solutions: bool, folder: str, as_json: bool) -> None:
    """Show the claims that NAME refers to: statement, erratum, exercises, the code of the check."""
    from apoint.book import errata, exercises, select
    from apoint.book.site.shelf import known_outcomes

    chosen, outcomes = select([name]), known_outcomes(Path(folder))
    rows = {claim.row.id for claim in chosen}
    own = [exercise for exercise in exercises().values() if exercise.row in rows]
    entries = [one for one in errata().values() if one.row.id in rows and not one.of_claim]
    if as_json:
        shown = [_claim_whole(claim, outcomes.get(claim.id)) for claim in chosen]
        wrong = [_erratum_whole(one) for one in entries]
        _print_json({"claims": shown, "errata": wrong, "exercises": [_exercise_whole(each) for each in own]})
        return
    from apoint.cli.book.reading import print_claim, print_erratum, print_exercise

    for claim in chosen:
        print_claim(claim, outcomes.get(claim.id))
    for one in entries:
        print_erratum(one)
    for exercise in own:
        print_exercise(exercise, solutions)


def _claim_whole(claim: Claim, outcome: Outcome | None) -> dict[str, Any]:
    return {
        **_claim_facts(claim, outcome),
        "source": claim.row.source,
        "statement": claim.statement,
        "details": claim.details,
        "refuted_by": claim.refuted_by,
        "erratum": claim.erratum and _erratum_whole(claim.erratum),
        "references": list(claim.references),
        "code": claim.code,
    }


def _erratum_whole(erratum: Erratum) -> dict[str, Any]:
    names = ("id", "title", "place", "quote", "written", "corrected", "why", "citation")
    return {name: getattr(erratum, name) for name in names}


def _exercise_whole(exercise: Exercise) -> dict[str, Any]:
    return {
        "number": exercise.number,
        "row": exercise.row,
        "question": exercise.question,
        "hints": list(exercise.hints),
        "solution": exercise.solution,
    }


# -- errata ---------------------------------------------------------------------------------------------


@command.command()
@click.option("--chapter", help="Only those of this chapter, such as E.")
@_folder
@_as_json
def errata(chapter: str | None, folder: str, as_json: bool) -> None:
    """List where the course is wrong: its words, their place, and the result of the check.

    Errata of claims take their verdict from the last record; the others are checked now.
    """
    from apoint.book import CHAPTERS, library
    from apoint.book.site.shelf import known_outcomes
    from apoint.errors import UnknownNameError

    wanted = chapter.strip().upper() if chapter else None
    if wanted is not None and wanted not in CHAPTERS:
        raise UnknownNameError("chapter", str(chapter), CHAPTERS)
    outcomes, found = known_outcomes(Path(folder)), []
    for id, one in library.errata().items():
        if wanted not in (None, one.row.chapter):
            continue
        verdict: str | None = "cited" if one.citation else None
        if one.check is not None:
            verdict, _ = library.examine(one)
        elif one.of_claim:
            verdict = outcomes[id].verdict if id in outcomes else None
        found.append((one, verdict))
    if as_json:
        _print_json({"errata": [{**_erratum_whole(one), "verdict": verdict} for one, verdict in found]})
        return
    from apoint.cli.book.reading import print_errata

    print_errata(found)


# -- run ------------------------------------------------------------------------------------------------


@command.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Run all claims that have no record yet.")
@click.option(
    "--scale",
    type=click.Choice(SCALES),
    default="quick",
    show_default=True,
    help="quick: at most a minute each, embedded data; standard: at most 90 minutes; paper: as published.",
)
@_folder
@click.option("--fresh", is_flag=True, help="With --all, also rerun claims that have a record.")
@click.option("--workers", type=click.IntRange(1), help="Number of processes; one per core by default.")
@click.option("--budget", help="Core time to spend, such as 8h; claims that do not fit are left out.")
@click.option(
    "--dry-run", is_flag=True, help="Show what would run and how long it would take, without running it."
)
@click.option("--expect-holds", is_flag=True, help="Exit with code 4 unless every claim holds; for tests.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@_as_json
def run(names: tuple[str, ...], **options: Any) -> None:
    """Run the checks of the claims that NAMES refer to, and save their records.

    \b
    apoint book run E2
    apoint book run A7 F2 --scale standard
    apoint book run --all --scale quick
    apoint book run B C --scale standard --dry-run
    """
    from apoint.cli.book.working import run_command

    sys.exit(run_command(names, options) or None)


# -- figure and build -----------------------------------------------------------------------------------


@command.command()
@click.argument("name")
@click.option(
    "--out", type=click.Path(), default="figures", show_default=True, help="The folder of the files."
)
@click.option("--scale", type=click.Choice(SCALES), default="quick", show_default=True)
@force_option
@_folder
def figure(name: str, out: str, scale: Any, force: bool, folder: str) -> None:
    """Draw the figures of the claims in NAME, from their records or by running them: SVG and PNG."""
    from apoint.book import select
    from apoint.book.batch import kept
    from apoint.book.drawing import save
    from apoint.cli.book.working import run_chosen
    from apoint.errors import ApointError, UsageError

    written: list[Path] = []
    for claim in select([name]):
        outcome = kept(claim, scale, Path(folder))
        if outcome is None:
            (done,) = run_chosen([claim], scale, Path(folder), None, quiet=False)
            if done.outcome is None:
                raise ApointError(f"{claim.id} broke: {done.problem}")
            outcome = done.outcome
        written += save(outcome.pictures, Path(out), claim.id, force)
    if not written:
        raise UsageError(f"{name} draws nothing; apoint book run {name} shows its numbers")
    for path in written:
        say(path)


@command.command()
@click.option("--out", type=click.Path(), default="site", show_default=True, help="The folder of the pages.")
@click.option(
    "--scale", type=click.Choice(SCALES), help="Only outcomes of this scale.  [default: the largest of each]"
)
@force_option
@_folder
def build(out: str, scale: Any, force: bool, folder: str) -> None:
    """Write the whole book as pages that work offline.

    Outcomes are those of apoint book run. A claim that was not run shows the outcome shipped with apoint, if
    there is one.
    """
    from apoint.book.batch import RECORDS
    from apoint.book.outcome import saved
    from apoint.book.site import write
    from apoint.book.site.shelf import Shelf

    shelf = Shelf.load(Path(folder), scale)
    pages = write(shelf, Path(out), force)
    if not any(scale in (None, of) for _, of in saved(Path(folder) / RECORDS)):
        words = f" of the scale {scale}" if scale else ""
        say(f"apoint: there are no records{words} in {folder}; apoint book run --all makes them", err=True)
    known = f"{len(shelf.outcomes)} of {len(shelf.claims)} claims have an outcome"
    say(f"{len(pages)} pages, {known}: {pages[0]}")
