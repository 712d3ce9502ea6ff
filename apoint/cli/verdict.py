"""`apoint verdict`: the verdict on a CSV file of paired scores, wherever they were trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apoint.cli.terminal import say, say_json
from apoint.cli.writing import check_report, command_line, force_option

if TYPE_CHECKING:
    from apoint.verdict import Verdict
    from apoint.verdict.scores import Scores

EXPECTATIONS = ("better", "equivalent", "worse", "not-worse")
UNNAMED = ("baseline", "candidate")  # column names that say nothing about the arms
NOT_AS_EXPECTED = 4


@click.command()
@click.argument("scores", type=click.Path())
@click.option("--baseline", help="The baseline's column, or arm in the long form.  [default: baseline]")
@click.option(
    "--candidate",
    "candidates",
    multiple=True,
    help="The candidate's column or arm; repeat it for several.  [default: candidate, or all other arms]",
)
@click.option("--metric", default="", help="What the scores measure, for the report.")
@click.option("--lower-is-better", is_flag=True, help="The scores are losses or errors.")
@click.option(
    "--margin",
    type=float,
    help="The smallest difference that matters; by default half the baseline's standard deviation.",
)
@click.option("--alpha", type=float, default=0.05, show_default=True, help="The error rate.")
@click.option("--looks", help="Planned looks such as 8,16,24,32; one look at all pairs by default.")
@click.option(
    "--anytime",
    is_flag=True,
    help="The scores were looked at after any number of pairs; uses a wider interval.",
)
@click.option("--cap", type=float, help="The score of a failed replica (nan), and the worst possible score.")
@click.option(
    "--expect",
    type=click.Choice(EXPECTATIONS),
    help="Exit with code 4 unless this is the verdict; not-worse is better or equivalent.",
)
@click.option(
    "--report", "report_path", type=click.Path(), help="Write the verdict as an HTML page to this file."
)
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    scores: str,
    baseline: str | None,
    candidates: tuple[str, ...],
    expect: str | None,
    report_path: str | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Decide whether one column of SCORES, a CSV file with one line per seed, is better than another.

    \b
    apoint verdict scores.csv
    apoint verdict scores.csv --metric loss --lower-is-better --margin 0.01
    apoint verdict scores.csv --baseline adamw --candidate lion --report page.html

    The columns are baseline and candidate, and seed if there is one; or arm, seed and score with one line
    per replica. A failed replica is nan.

    Exit codes: 0 done, 1 failure, 2 wrong input, 4 not as expected.
    """
    from apoint.verdict.scores import read_scores

    check_report(report_path, force)
    table = read_scores(scores, baseline, candidates)
    if report_path is not None:
        _check_one(table)
    verdicts = _decide(table, {**options, "baseline": baseline or "baseline"}, quiet=as_json)
    written = _write_report(scores, verdicts, report_path) if report_path is not None else ""
    _show(verdicts, written, as_json)
    if expect:
        _meet(expect, verdicts)


def _decide(table: Scores, options: dict[str, Any], quiet: bool) -> dict[str, Verdict]:
    """The verdict on each candidate; reports what was not declared in advance."""
    from apoint.verdict import decide, decide_arms

    pairs = len(table.baseline)
    exploratory: list[str] = []
    margin = options["margin"]
    if margin is None:
        margin = _margin_from(table, exploratory)
    looks = _looks(options["looks"], options["anytime"], pairs)
    if not quiet and options["looks"] is None and not options["anytime"]:
        say(f"one look at all {pairs} pairs, as if their number had been fixed in advance", err=True)
    settings = {
        "looks": looks,
        "alpha": options["alpha"],
        "higher_is_better": not options["lower_is_better"],
        "anytime": options["anytime"],
        "metric": options["metric"],
        "seeds": table.seeds,
        "cap": options["cap"],
        "exploratory": exploratory,
    }
    named = options["baseline"]
    if len(table.candidates) > 1:
        return decide_arms(table.baseline, table.candidates, margin, **settings, baseline_name=named)
    name, numbers = next(iter(table.candidates.items()))
    if (named, name) != UNNAMED:
        settings |= {"baseline_name": named, "candidate_name": name}
    return {name: decide(table.baseline, numbers, margin, **settings)}


def _check_one(table: Scores) -> None:
    from apoint.errors import UsageError

    if len(table.candidates) > 1:
        raise UsageError(
            f"a report shows one comparison, and there are {len(table.candidates)} candidates "
            f"({', '.join(table.candidates)}); name one with --candidate, or leave --report out"
        )


def _write_report(scores: str, verdicts: dict[str, Verdict], path: str) -> str:
    """Write the page that `compare` writes, as far as scores alone allow; return its path."""
    from apoint.report import ComparisonRecord, record_html
    from apoint.store import storage_errors, write_atomically

    (verdict,) = verdicts.values()
    result = {
        "name": Path(scores).name,
        "state": "undecided" if verdict.outcome == "undecided" else "decided",
        "sentence": verdict.sentence,
        "verdict": verdict.to_dict(),
        "reproduce": command_line(),
    }
    with storage_errors(Path(path).parent):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), record_html(ComparisonRecord.from_result(result)))
    return path


def _margin_from(table: Scores, exploratory: list[str]) -> float:
    """Half the baseline's standard deviation, marked as taken from the data."""
    import math
    import statistics

    from apoint.errors import UsageError

    finite = [score for score in table.baseline if math.isfinite(score)]
    margin = statistics.stdev(finite) / 2 if len(finite) > 1 else 0.0
    if not margin > 0:
        raise UsageError(
            "the baseline does not vary over seeds, so that no margin can be taken from it: say by --margin "
            "what is the smallest difference that matters"
        )
    exploratory.append(
        f"the margin, {margin:.3g}, is half the baseline's standard deviation in the same data, not "
        "declared in advance (--margin)"
    )
    return margin


def _looks(text: str | None, anytime: bool, pairs: int) -> tuple[int, ...]:
    from apoint.errors import UsageError
    from apoint.verdict.calibration import SMALLEST_LOOK

    if text is None:
        if 1 < pairs < SMALLEST_LOOK and not anytime:
            raise UsageError(
                f"{pairs} pairs are too few for an interval: {SMALLEST_LOOK} are the least, 8 a good start"
            )
        return (max(pairs, SMALLEST_LOOK),)
    if anytime:
        raise UsageError("looks are planned, or made at any time: give --looks or --anytime, not both")
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"--looks must be whole numbers with commas, such as 8,16,24,32, got {text!r}"
        ) from None


def _show(verdicts: dict[str, Verdict], report: str, as_json: bool) -> None:
    drawn = {"report": report} if report else {}
    if as_json:
        each = {name: {"sentence": one.sentence, **one.to_dict()} for name, one in verdicts.items()}
        shown = next(iter(each.values())) if len(each) == 1 else {"arms": each}
        say_json({"schema_version": 1, **shown, **drawn})
        return
    for name, verdict in verdicts.items():
        if len(verdicts) > 1:
            say(f"{name}\n{'-' * len(name)}")
        say(f"{verdict}" + ("\n" if len(verdicts) > 1 else ""))
    if report:
        say(f"\nreport  {report}")


def _meet(expected: str, verdicts: dict[str, Verdict]) -> None:
    """Exit with code 4 if a verdict is not the expected one."""
    welcome = ("better", "equivalent") if expected == "not-worse" else (expected,)
    for name, verdict in verdicts.items():
        if verdict.outcome not in welcome:
            say(f"apoint: expected {expected}, and {name} is {verdict.outcome}", err=True)
            sys.exit(NOT_AS_EXPECTED)
