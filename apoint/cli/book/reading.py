"""How a claim and an exercise are shown in the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from apoint.book import Claim, Erratum, Exercise, Outcome, prose
from apoint.book.card import COLOURS, NOT_RUN, VERDICT_SIGNS, console, verdict_words
from apoint.report.words import clean


def print_claim(claim: Claim, outcome: Outcome | None) -> None:
    """Write what a claim says and how it is checked.

    Args:
        claim: The claim.
        outcome: Its last outcome, if it has been run.
    """
    to = console()
    verdict = outcome.verdict if outcome else None
    to.print(f"{claim.id}  {prose.plain(claim.title)}", style="bold", markup=False)
    to.print(verdict_words(verdict), style=COLOURS.get(verdict or "", "dim"), markup=False)
    costs = ", ".join(f"{scale} {seconds:g} s" for scale, seconds in claim.seconds.items())
    to.print(f"{claim.kind} · {claim.row.source} · {costs}\n", style="dim", markup=False)
    for label, words in _texts(claim):
        if words:
            shown = prose.paragraphs(words, to.width - 2, "  ")
            to.print(f"{label}\n{shown}\n" if label else f"{shown}\n", markup=False)
    to.print("Code of the check", markup=False)
    to.print(textwrap.indent(claim.code, "  ") + "\n", markup=False, soft_wrap=True)


def _texts(claim: Claim) -> list[tuple[str, str]]:
    erratum = claim.erratum
    return [
        ("", claim.statement),
        *_quoted(erratum),
        ("As written", erratum.written if erratum else ""),
        ("As corrected", erratum.corrected if erratum else ""),
        ("Why", erratum.why if erratum else ""),
        ("Details", claim.details),
        ("What would change the answer", claim.refuted_by),
        ("References", "\n".join(f"- {reference}" for reference in claim.references)),
    ]


def _quoted(erratum: Erratum | None) -> list[tuple[str, str]]:
    if erratum is None or not erratum.quote:
        return []
    return [("In the source", f"« {erratum.quote} » ({erratum.attribution})")]


def print_erratum(erratum: Erratum) -> None:
    """Write an erratum that belongs to no claim."""
    to = console()
    to.print(f"Erratum {erratum.id}  {prose.plain(erratum.title)}", style="bold", markup=False)
    texts = [
        *_quoted(erratum),
        ("As written", erratum.written),
        ("As corrected", erratum.corrected),
        ("Why", erratum.why),
        ("Source", erratum.citation),
    ]
    for label, words in texts:
        if words:
            to.print(f"{label}\n{prose.paragraphs(words, to.width - 2, '  ')}\n", markup=False)


def print_errata(found: Sequence[tuple[Erratum, str | None]]) -> None:
    """Write errata as a table.

    Args:
        found: Each erratum with the result of its check; `cited` where a publication takes its place.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for name in ("erratum", "in the source", "corrected", "check"):
        table.add_column(name, overflow="fold")
    for one, verdict in found:
        said = verdict_words(verdict) if verdict in VERDICT_SIGNS else verdict or NOT_RUN
        table.add_row(
            Text(one.id, style="bold"),
            Text(clean(f"« {prose.plain(one.quote)} » {one.place}")),
            Text(clean(prose.plain(one.corrected))),
            Text(said, style=COLOURS.get(verdict or "", "dim")),
        )
    console().print(table)


def print_exercise(exercise: Exercise, solutions: bool) -> None:
    """Write an exercise.

    Args:
        exercise: The exercise.
        solutions: Whether to print the hints and the solution.
    """
    to = console()
    to.print(f"Exercise {exercise.number}", style="bold", markup=False)
    to.print(prose.paragraphs(exercise.question, to.width - 2, "  ") + "\n", markup=False)
    if not solutions:
        to.print(f"  {len(exercise.hints)} hints and the solution: --solutions\n", style="dim", markup=False)
        return
    for place, hint in enumerate(exercise.hints, 1):
        to.print(f"  Hint {place}", style="dim", markup=False)
        to.print(prose.paragraphs(hint, to.width - 4, "    "), markup=False)
    to.print("\n  Solution", style="dim", markup=False)
    to.print(prose.paragraphs(exercise.solution, to.width - 4, "    ") + "\n", markup=False)
