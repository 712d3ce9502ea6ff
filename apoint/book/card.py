"""The card of an outcome for the terminal: verdict, statement, numbers with their requirements, erratum.

Colour is used only if the terminal has it and NO_COLOR is not set; signs and words say the same without it.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from apoint.book import prose
from apoint.book.claim import Claim
from apoint.book.evidence import Number
from apoint.book.outcome import Outcome
from apoint.report.words import MINUS, clean, duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

SIGNS = {True: "✓", False: "✗", None: "?"}
VERDICT_SIGNS = {
    "holds": "✓",
    "holds as corrected": "✎",
    "fails": "✗",
    "not decided at this scale": "?",
    "broke": "!",
}
COLOURS = {
    "holds": "green",
    "holds as corrected": "cyan",
    "fails": "red",
    "not decided at this scale": "yellow",
    "broke": "red",
}
_STATE_COLOURS = {True: "green", False: "red", None: "yellow"}
NOT_RUN = "not yet run"
WIDEST, NO_TERMINAL = 110, 100


def console(stream: TextIO | None = None, width: int | None = None) -> Console:
    """The console that cards are written to: as wide as the terminal, up to a readable width."""
    from apoint.book.clean_console import CleanConsole

    stream = stream or sys.stdout
    columns = shutil.get_terminal_size((NO_TERMINAL, 24)).columns if stream.isatty() else NO_TERMINAL
    wide = width or max(40, min(WIDEST, columns))
    return CleanConsole(file=stream, width=wide, highlight=False, emoji=False)


def value_words(number: Number) -> str:
    """Format a number with its standard error, to the digits that are meaningful."""
    if number.requirement in ("yes", "no") and number.value in (0, 1):
        return "yes" if number.value else "no"
    if number.error is None or not math.isfinite(number.error) or number.error <= 0:
        return signed(f"{number.value + 0.0:.6g}")
    places = max(0, min(12, 1 - math.floor(math.log10(number.error))))
    if abs(number.value) >= 1e6 or places > 8:
        return signed(f"{number.value:.4g} ± {number.error:.2g}")
    return signed(f"{number.value:.{places}f} ± {number.error:.{places}f}")


def signed(words: str) -> str:
    """Format numbers with true minus signs."""
    if words in ("inf", "nan"):
        return {"inf": "∞", "nan": "not a number"}[words]
    return re.sub(r"(?<![\w.])-|(?<=e)-", MINUS, words)


def verdict_words(verdict: str | None) -> str:
    """A verdict with its sign."""
    return NOT_RUN if verdict is None else f"{VERDICT_SIGNS[verdict]} {verdict}"


def print_card(claim: Claim, outcome: Outcome, to: Console | None = None) -> None:
    """Write the card of an outcome.

    Args:
        claim: The claim that was checked.
        outcome: Its outcome.
        to: The console to write to; standard output by default.
    """
    to = to or console()
    to.print(*_parts(claim, outcome, to.width), sep="\n", soft_wrap=False)


def _parts(claim: Claim, outcome: Outcome, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [
        _head(claim, outcome),
        _text(prose.paragraphs(claim.statement, width - 2, "  ")),
        _text(""),
    ]
    if claim.erratum is None:
        parts.append(numbers_table(outcome.numbers))
    else:
        parts += _both_ways(claim, outcome, width)
    parts.append(_text(""))
    closing = [("Remark", outcome.remark), ("It would take", outcome.would_take)]
    closing.append(("What would change the answer", claim.refuted_by))
    for label, words in closing:
        if words:
            parts.append(_text(prose.paragraphs(f"{label}: {words}", width - 2, "  "), "dim"))
    return parts


def _head(claim: Claim, outcome: Outcome) -> RenderableType:
    from rich.text import Text

    facts = (claim.kind, claim.row.source, outcome.scale, duration(outcome.seconds))
    return Text.assemble(
        (f"{claim.id}  {prose.plain(claim.title)}", "bold"),
        "   ",
        (verdict_words(outcome.verdict), f"bold {COLOURS[outcome.verdict]}"),
        "\n",
        (" · ".join(facts), "dim"),
        "\n",
    )


def _both_ways(claim: Claim, outcome: Outcome, width: int) -> list[RenderableType]:
    assert claim.erratum is not None
    parts: list[RenderableType] = []
    for label, words, numbers in (
        ("As written", claim.erratum.written, outcome.as_written),
        ("As corrected", claim.erratum.corrected, outcome.numbers),
    ):
        parts.append(_text(prose.paragraphs(f"{label}: {words}", width - 2, "  "), "bold"))
        parts += [numbers_table(numbers), _text("")]
    if claim.erratum.why:
        parts.append(_text(prose.paragraphs(f"Why: {claim.erratum.why}", width - 2, "  ")))
    return parts


def numbers_table(numbers: Sequence[Number]) -> Table:
    """A table of numbers, their requirements, and whether they meet them."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("number", overflow="fold")
    table.add_column("value", justify="right", overflow="fold")
    table.add_column("must be", overflow="fold")
    for number in numbers:
        name = prose.plain(number.name) + (f" ({prose.plain(number.remark)})" if number.remark else "")
        sign = _text(f"  {SIGNS[number.holds]}", _STATE_COLOURS[number.holds])
        table.add_row(
            sign, _text(name), _text(value_words(number)), _text(signed(prose.plain(number.requirement)))
        )
    return table


def print_summary(rows: Iterable[tuple[str, str, str, str, str]], to: Console | None = None) -> None:
    """Write one line per claim.

    Args:
        rows: For each claim, its id, title, verdict, scale and duration.
        to: The console to write to; standard output by default.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for name in ("claim", "", "verdict", "scale"):
        table.add_column(name, overflow="fold")
    table.add_column("time", justify="right")
    for id, title, verdict, scale, seconds in rows:
        shown = verdict_words(verdict) if verdict in VERDICT_SIGNS else verdict
        cells = (id, prose.plain(title), shown, scale, seconds)
        colours = ("bold", "", COLOURS.get(verdict, "dim"), "", "")
        table.add_row(*(_text(cell, colour) for cell, colour in zip(cells, colours, strict=True)))
    (to or console()).print(table)


def _text(words: str, style: str = "") -> RenderableType:
    """Words in which rich interprets no markup."""
    from rich.text import Text

    return Text(clean(words), style=style)
