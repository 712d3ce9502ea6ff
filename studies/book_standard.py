"""`python -m studies.book_standard`: run the long claims of the book once, and publish what they gave.

Claims are run one after the other, each with all cores, in a fixed order. Each outcome goes into the package
(`apoint/book/published.jsonl`) and into `docs/outcomes-standard.md`, its figures into `docs/figures`, as soon
as it is there. Claims that are published already are skipped; name one to run it again. Replicas are kept in
`--folder`, so that an interrupted claim goes on.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from apoint.book import Claim, Outcome, claims
from apoint.book.batch import cores
from apoint.book.drawing import picture_svg
from apoint.book.library import run_claim
from apoint.book.published import publish, published
from apoint.errors import ApointError
from apoint.report.words import duration

DOCS = Path(__file__).parent.parent / "docs"
DOCUMENT, FIGURES = DOCS / "outcomes-standard.md", DOCS / "figures"
ORDER = ("B", "C", "J", "I10", "H7b", "G4b", "G5b")
MOST_HOURS = 16.0  # of one core
FINDINGS: dict[str, str] = {}
"""By row: what was found, and what it does not say; written after the run."""
HEAD = """# What the book says at the scale `standard`
Claims that need real images or long training, run once: `python -m studies.book_standard` runs those that are missing and writes this page. Bars were declared before the runs. *Not decided* and *fails* are results. The outcomes come with the package, so that `apoint book build` shows them without running anything.
"""  # noqa: E501


def planned() -> list[Claim]:
    """The claims in the order in which they are run."""
    known = [claim for claim in claims().values() if "standard" in claim.seconds]
    return [
        claim
        for name in ORDER
        for claim in known
        if name in (claim.id, claim.row.chapter) or (name == claim.row.id and name[-1].isdigit())
    ]


def main() -> None:
    """Run what is missing, or what was named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="claims to run, though they are published")
    parser.add_argument("--folder", type=Path, default=Path("book"))
    parser.add_argument("--hours", type=float, default=MOST_HOURS, help="of one core, at most")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    there = published()
    wanted = [
        claim for claim in planned() if claim.id in options.names or not (options.names or claim.id in there)
    ]
    left = 3600 * options.hours
    for claim in wanted:
        cost = claim.seconds["standard"]
        print(f"{claim.id:<5} {duration(cost):>9}  {claim.title}", flush=True)
        if cost > left:
            print(f"      left out: {duration(left)} of one core are left", flush=True)
            continue
        left -= cost
        if not options.dry_run:
            _run(claim, options.folder)
    if options.dry_run:
        print(f"in all {duration(3600 * options.hours - left)} of one core")
    else:
        write()


def _run(claim: Claim, folder: Path) -> None:
    try:
        outcome = run_claim(claim, "standard", folder=folder, workers=cores())
    except ApointError as error:
        print(f"      broke: {error}", flush=True)
        return
    publish([outcome])
    FIGURES.mkdir(exist_ok=True)
    for place, picture in enumerate(outcome.pictures, 1):
        (FIGURES / _figure(outcome, place)).write_text(picture_svg(picture))
    write()
    print(f"      {outcome.verdict}, {duration(outcome.seconds)} on {cores()} cores", flush=True)


def _figure(outcome: Outcome, place: int) -> str:
    return f"{outcome.id}-{place}.svg"


def write() -> None:
    """Write the page from what is published."""
    found = published()
    order = [claim for claim in planned() if claim.id in found]
    counts = Counter(found[claim.id].verdict for claim in order)
    summary = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    lines = [HEAD, f"{len(order)} claims: {summary}." if order else "None has been run yet.", ""]
    for claim in order:
        lines += _section(claim, found[claim.id])
    missing = [claim.id for claim in planned() if claim.id not in found]
    if missing:
        lines.append(f"Not run yet: {', '.join(missing)}.")
    DOCUMENT.write_text("\n".join(lines).rstrip() + "\n")


def _section(claim: Claim, outcome: Outcome) -> list[str]:
    lines = [
        f"## {claim.id}. {claim.title}",
        f"**{outcome.verdict}** · {duration(outcome.seconds)} on two cores · {outcome.date}, apoint "
        f"{outcome.versions['apoint']}, torch {outcome.versions['torch']}",
        "",
        claim.statement,
        "",
        "| number | value | must be | met | |",
        "|---|---|---|---|---|",
    ]
    states = {True: "yes", False: "no", None: "not decided"}
    for label, numbers in (("as written: ", outcome.as_written), ("", outcome.numbers)):
        for one in numbers:
            error = f" ± {one.error:.2g}" if one.error else ""
            cells = (f"{label}{one.name}", f"{one.value:.4g}{error}", one.requirement, states[one.holds])
            lines.append(
                "| " + " | ".join(str(cell).replace("|", "∣") for cell in (*cells, one.remark)) + " |"
            )
    lines += ["", *(f"![{picture.caption}](figures/{_figure(outcome, place)})\n" for place, picture in
                    enumerate(outcome.pictures, 1))]  # fmt: skip
    for words in (outcome.remark, outcome.would_take and f"It would take {outcome.would_take}."):
        lines += [words, ""] if words else []
    if claim.id == claim.row.id and claim.row.id in FINDINGS:
        lines += [f"**What we found, and what it does not say.** {FINDINGS[claim.row.id]}", ""]
    return lines


if __name__ == "__main__":
    main()
