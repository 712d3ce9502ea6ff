"""B9: critical periods with and without weight decay."""

from __future__ import annotations

from typing import Any

import numpy as np

from apoint.book.chapters.b_critical.critical_common import (
    L2,
    Curves,
    Setting,
    accuracies,
    positive,
    recipe,
    series,
    setting,
    verdict,
)
from apoint.book.chapters.b_critical.removal import ACHILLE, deficit_arms
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, ruled
from apoint.book.picture import Panel, Picture
from apoint.book.running import Running

DETAILS = r"""
The networks of B2 with an annealed rate; the decay is a penalty $\lambda/2\,\lVert w\rVert^2$ on the weights
of the layers. At the scale `standard` $\lambda$ is that of the course, 0, $5\cdot10^{-4}$ and $10^{-3}$, and
takes about half as much off the weights over a training as in the paper. The few hundred updates of `quick`
would not show such a decay at all, so there it is 20 times as strong.
"""


def decays(run: Running) -> tuple[float, float, float]:
    """The three strengths of the decay."""
    scale = run.pick(20, 1)
    return 0.0, L2 * scale, 2 * L2 * scale


def decay_arms(of: Setting, strengths: tuple[float, ...]) -> dict[str, dict[str, Any]]:
    """No deficit, the middle one and the longest one for each strength."""
    arms = {}
    _, middle, long = of.lengths
    shared = deficit_arms(of)
    for strength in strengths:
        if strength == L2:
            arms |= {f"{strength:g}/{length}": shared[f"blur {length}"] for length in (middle, long)}
            arms[f"{strength:g}/0"] = shared["reference"]
            continue
        arms[f"{strength:g}/0"] = recipe(of, of.total, l2=strength)
        for length in (middle, long):
            arms[f"{strength:g}/{length}"] = recipe(of, of.clean + length, "blur", length, l2=strength)
    return arms


def _loss(of: Setting, found: dict[str, Curves], strength: float, length: int) -> np.ndarray:
    epochs = of.clean + length
    return found[f"{strength:g}/0"].at(epochs) - found[f"{strength:g}/{length}"].at(epochs)


@claim(
    "B9",
    "Weight decay does not remove the critical period",
    kind="direction",
    statement=r"""
    With weight decay too, of each of three strengths, a network ends clearly worse if it was trained on
    blurred images for long.
    """,
    refuted_by="a strength of the decay with which a long deficit costs nothing",
    seconds={"quick": 16, "standard": 3900},
    planted={"is_swapped": True},
    details=DETAILS,
    references=(ACHILLE,),
)
def still_a_drop(run: Running, is_swapped: bool = False) -> Evidence:
    """The drop for three strengths of the decay; `is_swapped` takes the reference for the deficit."""
    of, strengths = setting(run), decays(run)
    found = accuracies(run, decay_arms(of, strengths))
    numbers = []
    for strength in strengths:
        pair = found[f"{strength:g}/0"].end, found[f"{strength:g}/{of.longest}"].end
        told = verdict(*(pair[::-1] if is_swapped else pair))
        numbers.append(
            ruled(f"accuracy, λ = {strength:g}: {of.longest} epochs of blur against none", told, "worse")
        )
    return Evidence(numbers, pictures=[_picture(of, strengths, found)], would_take="more seeds")


@claim(
    "B9b",
    "Weight decay softens the critical period a little",
    kind="direction",
    statement=r"""
    With the strongest of three weight decays a deficit costs less accuracy than without decay.
    """,
    refuted_by="a deficit that costs as much or more with decay as without",
    seconds={"quick": 16, "standard": 3900},
    planted={"is_removed": True},
    details=DETAILS
    + r"""
The number is the accuracy that a deficit costs without decay, less what it costs with the strongest, over
paired seeds: for the middle and for the longest deficit. Where the effect is small, as the course says it is,
few seeds do not decide it.
""",
    references=(ACHILLE,),
)
def softened(run: Running, is_removed: bool = False) -> Evidence:
    """How much less a deficit costs with decay; with `is_removed` it costs nothing without decay."""
    of, strengths = setting(run), decays(run)
    found = accuracies(run, decay_arms(of, strengths))
    numbers = []
    for length in of.lengths[1:]:
        plain, decayed = (_loss(of, found, strength, length) for strength in (0.0, strengths[-1]))
        if is_removed:
            plain = 0 * plain
        numbers.append(
            positive(
                f"{length} epochs of blur: points of accuracy that the decay saves",
                plain - decayed,
                f"the deficit costs {plain.mean():.1f} points without decay, {decayed.mean():.1f} with it",
            )
        )
    return Evidence(numbers, would_take="some 30 seeds, or the length of training of the paper")


def _picture(of: Setting, strengths: tuple[float, ...], found: dict[str, Curves]) -> Picture:
    _, middle, long = of.lengths
    lines = []
    for strength, style in zip(strengths, ("line", "dashed", "points"), strict=True):
        ends = [found[f"{strength:g}/0"].at(of.clean)]
        ends += [found[f"{strength:g}/{length}"].at(of.clean + length) for length in (middle, long)]
        lines.append(series(f"λ = {strength:g}", (0, middle, long), ends, style))  # type: ignore[arg-type]
    panel = Panel(
        "Deficits with weight decay",
        f"epochs of blur, before {of.clean} clean ones",
        "test accuracy at the end (percent)",
        lines,
    )
    return Picture("Means over seeds with two standard errors.", [panel], "notes fig. 1.7")
