"""E2: nearly all of the volume of a ball in high dimension lies just under its surface."""

from __future__ import annotations

import numpy as np

from apoint.book.claim import claim, exercise
from apoint.book.evidence import Evidence, Number, agrees, at_least, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import balls

THICKNESS = 0.1
DIMENSIONS = (1, 2, 3, 5, 10, 20, 50, 100)


@claim(
    "E2",
    "Volume in the shell",
    kind="identity",
    statement=r"""
    Of a ball of radius $R$ in dimension $n$, whichever its norm, the share of the volume that lies within
    $\varepsilon$ of the surface is
    $$1-\left(1-\frac{\varepsilon}{R}\right)^n,$$
    which goes to 1 as $n$ grows: points drawn from a ball lie on its surface, nearly all of them.
    """,
    refuted_by="a share of points drawn from the ball that differs from the formula by more than three "
    "standard errors, or a share in dimension 100 that is not near 1",
    seconds={"quick": 1, "standard": 10},
    planted={"factor": 1.05},
    details=r"""
    A ball shrunk by the factor $1-\varepsilon/R$ has $(1-\varepsilon/R)^n$ of the volume. The check draws
    points uniformly from balls of the norms 1, 2 and $\infty$ and counts those in the shell, by their norm
    and not by the formula. Balls of radius 1, 1/2 and 4 show that it is the ratio $\varepsilon/R$ that
    counts.
    """,
    references=("Vershynin (2018), High-dimensional probability, section 3.1",),
)
def shell_share(run: Running, factor: float = 1.0) -> Evidence:
    """Points are drawn from balls and counted; `factor` multiplies the formula."""
    count, random = run.pick(20_000, 400_000), run.random()
    numbers, lines = [], []
    for p, name in ((1.0, "1"), (2.0, "2"), (np.inf, "∞")):
        shares, errors = [], []
        for dimension in DIMENSIONS:
            points = balls.sample(count, dimension, p, random)
            share = float((np.linalg.norm(points, p, axis=1) > 1 - THICKNESS).mean())
            shares.append(share)
            errors.append((share * (1 - share) / count) ** 0.5 + 1 / count)
        for dimension, share, error in zip(DIMENSIONS, shares, errors, strict=True):
            if dimension in (3, 10, 20):
                expected = factor * balls.shell_share(dimension, THICKNESS)
                numbers.append(agrees(f"share for norm {name}, n = {dimension}", share, error, expected))
        low = [share - 2 * error for share, error in zip(shares, errors, strict=True)]
        high = [share + 2 * error for share, error in zip(shares, errors, strict=True)]
        lines.append(Series(f"drawn, norm {name}", DIMENSIONS, shares, low, high, "points"))
    for radius in (0.5, 4.0):
        points = radius * balls.sample(count, 5, 2.0, random)
        for thickness in (0.1, 0.3):
            share = float((np.linalg.norm(points, axis=1) > radius - thickness).mean())
            error = (share * (1 - share) / count) ** 0.5
            name = f"share of the outer {thickness:g} of a ball of radius {radius:g}, n = 5"
            numbers.append(agrees(name, share, error, factor * balls.shell_share(5, thickness, radius)))
    numbers.append(at_least("share in dimension 100", balls.shell_share(100, THICKNESS), 0.9999))
    formula = [balls.shell_share(n, THICKNESS) for n in range(1, 101)]
    lines.insert(0, Series("formula", range(1, 101), formula))
    panel = Panel(
        "Share of the volume in the outer tenth", "dimension n", "share of the volume", lines, x_log=True
    )
    caption = f"Dots: {count:,} points drawn from each ball, with two standard errors."
    return Evidence(numbers, pictures=[Picture(caption, [panel], "notes ex. C.1")])


@exercise(
    "notes C.1",
    "E2",
    question=r"Show that a ball of radius $R$ in dimension $n$ has the share $1-(1-\varepsilon/R)^n$ of its "
    r"volume within $\varepsilon$ of its surface.",
    hints=(
        r"What is the volume of a ball whose radius is $c$ times as large?",
        r"The shell is the ball without the ball of radius $R-\varepsilon$.",
    ),
    solution=r"""
    $x\mapsto cx$ multiplies volumes by $c^n$, so that $V_n(R)=R^n V_n(1)$. The shell has the volume
    $V_n(R)-V_n(R-\varepsilon)=(R^n-(R-\varepsilon)^n)V_n(1)$, and dividing by $R^nV_n(1)$ gives the share.
    """,
    planted={"power": 1},
)
def shell(power: int = 0) -> list[Number]:
    """The share from volumes by the gamma function, against the formula."""
    numbers = []
    for n in (1, 2, 7, 40):
        inner, whole = balls.log_volume(n, radius=1.7), balls.log_volume(n, radius=2.0)
        formula = 1 - (1 - 0.3 / 2.0) ** (n + power)
        numbers.append(close(f"share in dimension {n}", 1 - float(np.exp(inner - whole)), formula, 1e-9))
    return numbers
