"""A small book of made-up claims: every verdict, every kind of picture, and texts that mean harm."""

from __future__ import annotations

import numpy as np

from apoint.book import (
    Arrow,
    Box,
    Claim,
    Diagram,
    Erratum,
    Evidence,
    Exercise,
    Field,
    Number,
    Outcome,
    Panel,
    Picture,
    Series,
)
from apoint.book.site.shelf import Shelf

HARM = "<script>window.hacked=1</script><img src=x onerror=alert(1)>&\"'"
BLOCK = Diagram(
    "A residual block",
    "The input passes a convolution, and beside it, and both are added.",
    [
        Box("x", 0, 0, "$x_{l-1}$", shape="text"),
        Box("branch", 0, 0.8, shape="dot"),
        Box("frame", 0, 1.5, "block", shape="frame", width=1.6, height=1.6),
        Box("convolution", 0, 1.6, "convolution\n3×3", colour=1),
        Box("+", 0, 3, shape="circle", colour=3),
    ],
    [
        Arrow("x", "branch"),
        Arrow("branch", "convolution"),
        Arrow("convolution", "+", "$f(x)$", style="dashed"),
        Arrow("branch", "+", "identity", [(1.2, 0.8), (1.2, 3)], colour=4),
    ],
)
VERSIONS = {"apoint": "0.1.0", "torch": "2.13.0"}


def check(run: object, wrong: bool = False) -> Evidence:
    """Stands in for a check; its own text has <b>tags</b> & more, and a line that is longer than a page is wide: 0123456789."""  # noqa: E501
    return Evidence([Number("n", 1.0, "1", not wrong)])


def numbers(*states: bool | None) -> list[Number]:
    return [
        Number(f"number {place} of $x_{place}^2$ {HARM if place == 0 else ''}", 0.1 * place - 0.05,
               "at most -0.5", state, 0.01 if place % 2 else None, "a remark" if place else "")
        for place, state in enumerate(states)
    ]  # fmt: skip


def made_claim(id: str, title: str, erratum: Erratum | None = None) -> Claim:
    return Claim(
        id,
        title,
        "identity",
        r"""For every $x\in\mathbb{R}^n$ and `code_with_a_name`, <i>the</i> sum is
        $$\sum_{i=1}^{n}\left(1-\frac{\varepsilon}{R}\right)^i\le\frac{\operatorname{Var}(X)}{\sqrt{2\pi\sigma^2}}
        \quad\text{and so on, and on, and on}\quad\begin{aligned}a&=b\\c&=\log d\end{aligned}$$
        and it holds

        - first for $p=1$;
        - then for $p=\infty$, where $"""
        + "+".join(f"x_{{{place}}}" for place in range(30))
        + "$ is wide.",
        f"another sum than $n$ {HARM}",
        {"quick": 1, "standard": 10},
        check,
        {"wrong": True},
        erratum,
        f"Details with $\\text{{<script>window.hacked=1</script>}}$ {HARM}",
        ("Vershynin (2018), High-dimensional probability", f"Nobody <b>(2020)</b> {HARM}"),
    )


def pictures() -> list[Picture]:
    x = np.linspace(0.01, 10, 60)
    lines = [
        Series(f"width {2**k}", x, np.exp(-x / k) * k, np.exp(-x / k) * k * 0.8, np.exp(-x / k) * k * 1.2)
        for k in range(1, 8)
    ]
    grid = np.linspace(-2, 2, 21)
    heights = [[a * a + 3 * b * b for a in grid] for b in grid]
    path = [Series("path of descent", [-1.8, -1, -0.5, 0], [1.5, -0.8, 0.2, 0])]
    bars = [
        Series("as written", [1, 2, 3], [0.2, 0.5, 0.9], [0.1, 0.4, 0.8], [0.3, 0.6, 0.95], "bars"),
        Series("as corrected", [1, 2, 3], [0.3, 0.4, 0.8], style="bars"),
    ]
    others = [
        Series("area", [0, 1, 1, 0], [0, 0, 1, 1], style="area"),
        Series("a bound with a name that is much too long for two columns of a legend", [0, 2], [0, 2],
               style="dashed"),
        Series("steps", [0, 1, 2], [0.2, 0.6, 1.9], [0.1, 0.5, 1.8], [0.3, 0.7, 2.0], "steps"),
        Series("drawn", [0, 1, 2], [0.3, float("nan"), 1.2], [0.2, 0.1, 1.1], [0.4, 0.2, 1.3], "points"),
        Series("", [0.5], [0.5], style="points"),
    ]  # fmt: skip
    return [
        Picture(
            f"Bands: two standard errors of $\\ell$. {HARM}",
            [
                Panel("Seven lines, and a title that says so at rather more length than it must",
                      "time (epochs)", "loss (mean per example, nats)", lines, y_log=True),
                Panel("A map", "weight $w_1$ (no unit)", "weight $w_2$ (no unit)", path, equal=True,
                      field=Field(grid, grid, heights, r"loss $\ell(w)$")),
            ],
            "notes fig. C.2",
        ),
        Picture("", [Panel("Bars", "depth (layers)", "share", bars), Panel(HARM, HARM, HARM, others), BLOCK]),
    ]  # fmt: skip


def sample_shelf() -> Shelf:
    """The book; a row with several claims, one that is not run, and chapters without any."""
    erratum = Erratum(
        f"The sum is $n^2$. {HARM}",
        "The sum is $n$.",
        "A factor $n$ too many.",
        f"la somme {HARM}",
        "notes C.1",
    )
    checked = Erratum(
        "The sum is negative.",
        "It is not.",
        f"Why {HARM}",
        f"somme $<0$ {HARM}",
        "theory 3",
        "E2.1",
        f"The sign $s$ {HARM}",
        check,
    )
    cited = Erratum(
        "In 1900.", "In 1901.", "", "en 1900", "llm 3", "B1.1", "The year", citation=f"Someone (1901) {HARM}"
    )  # fmt: skip
    known = [
        made_claim("E1", f"A volume $V_n$ {HARM}", erratum),
        made_claim("E1b", "The volume again"),
        made_claim("E2", "Volume in the shell"),
        made_claim("E3", "Fails"),
        made_claim("E4", "Not decided"),
        made_claim("E5", "Not run"),
    ]
    both = {"pictures": pictures(), "versions": VERSIONS, "seconds": 1.2}
    outcomes = [
        Outcome("E1", "", "quick", "holds as corrected", numbers(True, True), numbers(False, None), **both),
        Outcome("E1b", "", "standard", "holds", numbers(True), versions=VERSIONS, remark=f"A remark. {HARM}"),
        Outcome("E2", "", "quick", "holds", numbers(True, True, True), versions=VERSIONS),
        Outcome("E3", "", "quick", "fails", numbers(False, True), versions=VERSIONS),
        Outcome("E4", "", "quick", "not decided at this scale", numbers(None), would_take="more pairs"),
    ]
    exercise = Exercise(
        "notes C.1",
        "E2",
        f"Show that $a=b$. {HARM}",
        ("First $a$.", f"Then {HARM}"),
        "$$a=b$$",
        lambda: numbers(True),
    )
    return Shelf(
        {claim.id: claim for claim in known},
        {exercise.number: exercise},
        {outcome.id: outcome for outcome in outcomes},
        {exercise.number: numbers(True, True)},
        entries={one.id: one for one in (cited, checked)},
        examined={checked.id: ("holds as corrected", Evidence(numbers(True), numbers(False)))},
    )
