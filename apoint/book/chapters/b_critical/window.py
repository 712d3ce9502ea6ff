"""B3: a deficit of fixed length whose beginning moves."""

from __future__ import annotations

from typing import Any

from apoint.book.chapters.b_critical.critical_common import (
    Curves,
    Setting,
    accuracies,
    recipe,
    series,
    setting,
    verdict,
)
from apoint.book.chapters.b_critical.removal import ACHILLE
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, ruled
from apoint.book.picture import Panel, Picture
from apoint.book.running import Running


def window_arms(of: Setting) -> dict[str, dict[str, Any]]:
    """No deficit, and one window of blur for each onset."""
    arms = {"reference": recipe(of, of.total)}  # longer than needed, and shared with B2
    for onset in of.onsets:
        arms[f"onset {onset:g}"] = recipe(of, of.window_total, "blur", of.window, onset)
    return arms


@claim(
    "B3",
    "A window of blur hurts most at the very start",
    kind="shape",
    statement=r"""
    Blur a window of fixed length and keep the number of epochs. The window that begins with the first epoch
    costs the most accuracy. It costs more than one that begins at what corresponds to epoch 20 or 40 of the
    paper, and far more than one near the end.
    """,
    refuted_by="a window at the second, third or last onset that costs as much as the one at the start",
    seconds={"quick": 11, "standard": 2400},
    planted={"is_reversed": True},
    erratum=Erratum(
        written="A window at the very first epochs hurts less than one at epochs 20 or 40; at the end a "
        "window hurts much less, but it does.",
        corrected="The window at the very first epochs hurts most.",
        why="The sensitivity falls with the onset from the start. A replication of the paper's experiment on "
        "CIFAR-10 with its own network finds 85.6 percent for onset 0 against 89.1 to 89.7 for all later "
        "ones.",
        quote="lorsque le déficit est appliqué sur les toutes premières époques, la sensibilité est plus "
        "faible que lorsqu'il s'agit des époques 20/40",
        place="notes 1.2",
    ),
    details=r"""
    The networks of B2 with an annealed rate. The paper's window is 40 epochs long, and lasts a quarter of the
    clean epochs here too. The onsets that stand for its epochs 20 and 40 are the second and third. The last
    window ends some epochs before training does. One that ends with it leaves batch norm with the running
    means of blurred images. On the seeds that chose the setting that halved the accuracy on clean images,
    though the rate was by then too low to change a weight: it has nothing to do with learning.

    Part of the effect is the annealed rate again: an early window takes away the epochs with the highest
    rates. The course says that kittens are alike: sensitive early in life, and hardly at its end.
    """,
    references=(ACHILLE,),
)
def moving_window(run: Running, is_reversed: bool = False) -> Evidence:
    """Final accuracy against the onset of a window of blur; `is_reversed` turns the onsets around."""
    of = setting(run)
    found = accuracies(run, window_arms(of))
    without = found["reference"].at(of.window_total)
    ends = [found[f"onset {onset:g}"].end for onset in of.onsets]
    if is_reversed:
        ends.reverse()
    first, last = ends[0], ends[-1]
    numbers = [ruled("accuracy, window at the start against none", verdict(without, first), "worse")]
    for onset, end in zip(of.onsets[1:3], ends[1:3], strict=True):
        numbers.append(ruled(f"accuracy, onset {onset:g} against onset 0", verdict(first, end), "better"))
    numbers.append(
        ruled(f"accuracy, onset {of.onsets[-1]:g} against onset 0", verdict(first, last), "better")
    )
    written = [
        ruled(f"accuracy, onset {onset:g} against onset 0", verdict(first, end), "worse")
        for onset, end in zip(of.onsets[1:3], ends[1:3], strict=True)
    ]
    written.append(ruled(f"accuracy, onset {of.onsets[-1]:g} against none", verdict(without, last), "worse"))
    return Evidence(
        numbers,
        written,
        [_picture(of, found)],
        would_take="more seeds, or a slower fall of the rate, which leaves later windows more to spoil",
    )


def _picture(of: Setting, found: dict[str, Curves]) -> Picture:
    without = found["reference"].at(of.window_total)
    lost = [without - found[f"onset {onset:g}"].end for onset in of.onsets]
    panel = Panel(
        f"A window of {of.window} epochs of {of.window_total}",
        "first epoch of the window",
        "test accuracy lost (points)",
        [series("loss against no deficit", of.onsets, lost)],
    )
    caption = "The window at the very start costs the most. Means over paired seeds with two standard errors."
    return Picture(caption, [panel], "notes fig. 1.4")
