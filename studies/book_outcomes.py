"""Write `docs/outcomes.md` from the records of `apoint book run --all`.

apoint book run --all --scale quick
python -m studies.book_outcomes book
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from apoint.book import CHAPTERS, Outcome, claims
from apoint.book.outcome import load, record_path

DOCUMENT = Path(__file__).parent.parent / "docs" / "outcomes.md"
HEAD = (
    "# What the book says\n"
    "Every claim of the chapters that are written, as `apoint book run --all --scale quick` decides it; "
    "`python -m studies.book_outcomes book` writes this page from the records. The number shown is the first "
    "that is not met, else the first of all; `apoint book run` shows all of them.\n"
)


def main(folder: str = "book", scale: str = "quick") -> None:
    """Write the page.

    Args:
        folder: Where the records are.
        scale: Of which scale.
    """
    outcomes = {id: load(record_path(Path(folder) / "records", id, scale)) for id in claims()}
    counts = Counter(outcome.verdict for outcome in outcomes.values())
    summary = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    seconds = sum(outcome.seconds for outcome in outcomes.values())
    lines = [HEAD, f"{len(outcomes)} claims: {summary}; {seconds / 60:.0f} minutes of one core in all.", ""]
    for letter, title in CHAPTERS.items():
        own = {id: outcome for id, outcome in outcomes.items() if id[0] == letter}
        if own:
            lines += [f"## {letter}. {title}", "| claim | statement | verdict | a number | must be | s |"]
            lines += ["|---|---|---|---|---|---|", *(_row(outcome) for outcome in own.values()), ""]
    missing = [f"{letter}. {title}" for letter, title in CHAPTERS.items() if not _any(outcomes, letter)]
    lines.append(f"Not yet written: {'; '.join(missing)}." if missing else "")
    DOCUMENT.write_text("\n".join(lines).rstrip() + "\n")
    print(f"{len(outcomes)} claims: {summary}")


def _any(outcomes: dict[str, Outcome], letter: str) -> bool:
    return any(id[0] == letter for id in outcomes)


def _row(outcome: Outcome) -> str:
    number = next((one for one in outcome.numbers if one.holds is not True), outcome.numbers[0])
    cells = (
        outcome.id,
        outcome.title,
        outcome.verdict,
        f"{number.name}: {number.value:.4g}",
        number.requirement,
        f"{outcome.seconds:.1f}",
    )
    return "| " + " | ".join(cell.replace("|", "∣") for cell in cells) + " |"


if __name__ == "__main__":
    main(*sys.argv[1:])
