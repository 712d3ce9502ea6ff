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
from apoint.book.claim import Erratum, claim
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
    arms: dict[str, dict[str, Any]] = {}
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
    return np.asarray(found[f"{strength:g}/0"].at(epochs) - found[f"{strength:g}/{length}"].at(epochs))


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
    "What a deficit costs hardly depends on weight decay",
    kind="direction",
    statement=r"""
    The strongest of three weight decays changes what a deficit costs by less than a fifth.
    """,
    refuted_by="a deficit that costs a fifth more or less with decay than without",
    seconds={"quick": 16, "standard": 3900},
    planted={"factor": 0.7},
    erratum=Erratum(
        written="Weight decay makes the start of training a little less sensitive to a deficit.",
        corrected="It makes no difference of a fifth; at the scale quick a long deficit costs slightly more.",
        why="Most of the drop comes from the annealed rate (B2b), which a weight decay does not change.",
        quote="la régularisation rend la période critique du début d'entraînement un peu moins sensible",
        place="notes 1.2.1",
    ),
    details=DETAILS
    + r"""
Costs are in points of accuracy, over paired seeds, for the middle and for the longest deficit. The claim was
first stated as the course has it, and failed at the scale `quick` on the seeds 100 to 107: it was turned
around then, its bar of a fifth was set, and other seeds decide.
""",
    references=(ACHILLE,),
)
def hardly_softened(run: Running, factor: float = 1.0) -> Evidence:
    """What a deficit costs with and without decay; `factor` multiplies the cost with decay."""
    of, strengths = setting(run), decays(run)
    found = accuracies(run, decay_arms(of, strengths))
    numbers, written = [], []
    for length in of.lengths[1:]:
        plain = _loss(of, found, 0.0, length)
        decayed = factor * _loss(of, found, strengths[-1], length)
        told = f"the deficit costs {plain.mean():.1f} points without decay, {decayed.mean():.1f} with it"
        name, saved = f"{length} epochs of blur", plain - decayed
        numbers += [
            positive(f"{name}: a fifth of the cost, less what the decay saves", plain / 5 - saved, told),
            positive(f"{name}: a fifth of the cost, less what the decay adds", plain / 5 + saved),
        ]
        written.append(positive(f"{name}: points of accuracy that the decay saves", saved, told))
    return Evidence(numbers, written, would_take="more seeds, or the length of training of the paper")


def _picture(of: Setting, strengths: tuple[float, ...], found: dict[str, Curves]) -> Picture:
    _, middle, long = of.lengths
    lines = []
    for strength, style in zip(strengths, ("line", "dashed", "points"), strict=True):
        ends = [found[f"{strength:g}/0"].at(of.clean)]
        ends += [found[f"{strength:g}/{length}"].at(of.clean + length) for length in (middle, long)]
        lines.append(series(f"λ = {strength:g}", (0, middle, long), ends, style))
    panel = Panel(
        "Deficits with weight decay",
        f"epochs of blur, before {of.clean} clean ones",
        "test accuracy at the end (percent)",
        lines,
    )
    return Picture("Means over seeds with two standard errors.", [panel], "notes fig. 1.7")
