"""The course as claims that run: each statement with its check, its verdict, its picture and its erratum.

`claim.py` has the object, `evidence.py` what a check hands in, `course.py` the rows of the course,
`chapters/` a folder for each chapter with a file for each row, `site/` the book as pages.

    import apoint
    outcome = apoint.book.run("E2", scale="quick")
    print(outcome.verdict, [number.value for number in outcome.numbers])
"""

from apoint.book.claim import Claim, Erratum, Exercise, claim, exercise
from apoint.book.course import CHAPTERS, ROWS, Row
from apoint.book.evidence import Evidence, Number
from apoint.book.library import claims, exercises, run, select
from apoint.book.outcome import RULINGS, Outcome
from apoint.book.picture import Field, Panel, Picture, Series
from apoint.book.running import SCALES, Running

__all__ = [
    "CHAPTERS",
    "ROWS",
    "RULINGS",
    "SCALES",
    "Claim",
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
    "claim",
    "claims",
    "exercise",
    "exercises",
    "run",
    "select",
]
