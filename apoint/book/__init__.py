"""The course as executable claims: each statement with its check, verdict, picture and erratum.

`claim.py` has the claim object, `evidence.py` what a check returns, `course.py` the rows of the course,
`chapters/` a folder per chapter with one file per row and one for its errata, and `site/` the book as pages.

    import apoint
    outcome = apoint.book.run("E2", scale="quick")
    print(outcome.verdict, [number.value for number in outcome.numbers])
"""

from apoint.book.claim import Claim, Erratum, Exercise, cited_erratum, claim, erratum, exercise
from apoint.book.course import CHAPTERS, ROWS, Row
from apoint.book.evidence import Evidence, Number
from apoint.book.library import claims, errata, exercises, run, select
from apoint.book.outcome import RULINGS, Outcome
from apoint.book.picture import Arrow, Box, Diagram, Field, Panel, Picture, Series
from apoint.book.running import SCALES, Running

__all__ = [
    "CHAPTERS",
    "ROWS",
    "RULINGS",
    "SCALES",
    "Arrow",
    "Box",
    "Claim",
    "Diagram",
    "Erratum",
    "Evidence",
    "Exercise",
    "Field",
    "Number",
    "Outcome",
    "Panel",
    "Picture",
    "Row",
    "Running",
    "Series",
    "cited_erratum",
    "claim",
    "claims",
    "errata",
    "erratum",
    "exercise",
    "exercises",
    "run",
    "select",
]
