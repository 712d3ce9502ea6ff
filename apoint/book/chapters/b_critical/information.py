"""B8: the trace of the Fisher information along trainings with a deficit, as a whole and by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from apoint.book.chapters.b_critical.critical_common import Setting, positive, recipe, series, setting, train
from apoint.book.chapters.b_critical.removal import ACHILLE
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, at_least, at_most
from apoint.book.picture import Panel, Picture
from apoint.book.running import Running
from apoint.store import Run

PROBES = {"fisher": "every 3 epochs", "budget": "100%"}
DETAILS = r"""
The networks of B2 at a constant rate, so that all of them come to fit their images: with an annealed rate
those with a long deficit never do, and their trace hardly moves. Training goes on for half as many clean
epochs more than in B2. The probe `fisher` is read every third epoch on the batch just trained on, blurred
while the deficit lasts, with labels drawn from the model. The trace falls as predictions become certain,
whatever the weights hold: that it measures information is the paper's reading.
"""


@dataclass(frozen=True)
class Traces:
    """Readings of an arm.

    Attributes:
        epochs: When.
        layers: The trace of each layer, [seed, epoch, layer]; a norm counts with its convolution.
    """

    epochs: np.ndarray
    layers: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """The trace of the whole network, [seed, epoch]."""
        return np.asarray(self.layers.sum(2))

    @property
    def shares(self) -> np.ndarray:
        """The share of each layer, [seed, epoch, layer]."""
        return np.asarray(self.layers / self.layers.sum(2, keepdims=True))

    @property
    def last(self) -> np.ndarray:
        """The share of the last convolution and the head together, [seed, epoch]."""
        return np.asarray(self.shares[:, :, -2:].sum(2))


def traces(run: Running, of: Setting) -> dict[int, Traces]:
    """Readings for no deficit, the middle one and the longest one."""
    epochs, num_seeds = of.total + of.clean // 2, run.pick(4, 3)
    lengths = (0, *of.lengths[1:])
    recipes: dict[str, dict[str, Any]] = {}
    for length in lengths:
        deficit = "blur" if length else None
        recipes[str(length)] = recipe(of, epochs, deficit, length, rates="constant", probes=PROBES)
    ended = train(run, recipes, num_seeds)
    grid = np.arange(0, epochs + 1, 3.0)
    found = {}
    for place, length in enumerate(lengths):
        runs = ended[place * num_seeds : (place + 1) * num_seeds]
        layers = np.stack([_layers(Run(each.folder).readings("fisher"), grid) for each in runs])
        found[length] = Traces(grid, layers)
    return found


def _layers(readings: list[dict[str, Any]], grid: np.ndarray) -> np.ndarray:
    """Traces by epoch and layer; a reading that was left out for want of time lies between its neighbours."""
    names = list(dict.fromkeys(name.rpartition(".")[0] or name for name in readings[0]["per_layer"]))
    epochs = [float(reading["epoch"]) for reading in readings]
    columns = []
    for layer in names:
        values = [
            sum(
                value
                for name, value in reading["per_layer"].items()
                if (name.rpartition(".")[0] or name) == layer
            )
            for reading in readings
        ]
        columns.append(np.interp(grid, epochs, values))
    return np.stack(columns, axis=1)


@claim(
    "B8",
    "Two phases with a deficit too, and the first is longer",
    kind="shape",
    statement=r"""
    With a deficit as without one, the trace of the Fisher information first rises and then falls. The longer
    the deficit, the later the trace is at its peak.
    """,
    refuted_by="a trace without a peak of half as much again as its start and its end, or a peak that "
    "comes no later with the longest deficit",
    seconds={"quick": 20, "standard": 900},
    planted={"is_reversed": True},
    details=DETAILS,
    references=(ACHILLE,),
)
def two_phases(run: Running, is_reversed: bool = False) -> Evidence:
    """Rise, fall and place of the peak; `is_reversed` runs time backwards in the deficit's arms."""
    of = setting(run)
    found = traces(run, of)
    if is_reversed:
        found |= {length: Traces(one.epochs, one.layers[:, ::-1]) for length, one in found.items() if length}
    numbers, peaks = [], {}
    for length, one in found.items():
        mean = one.total.mean(0)
        told = f"{length} epochs of blur" if length else "no deficit"
        numbers.append(at_least(f"{told}: trace at its peak by its start", mean.max() / mean[0], 1.5))
        numbers.append(at_most(f"{told}: trace at the end by its peak", mean[-1] / mean.max(), 2 / 3))
        peaks[length] = one.epochs[one.total.argmax(1)]
    _, middle, long = of.lengths
    numbers.append(
        positive(f"epochs that the peak comes later, blur {long} against none", peaks[long] - peaks[0])
    )
    numbers.append(
        positive(
            f"epochs that the peak comes later, blur {long} against {middle}", peaks[long] - peaks[middle]
        )
    )
    lines = [
        series(f"blur for {length} epochs" if length else "no deficit", one.epochs, list(one.total.T), style)
        for (length, one), style in zip(found.items(), ("dashed", "line", "line"), strict=True)
    ]
    panel = Panel("Information in all weights", "epoch", "trace of the Fisher information", lines)
    caption = (
        "The trace rises and falls, later the longer the blur. Means over seeds with two standard errors."
    )
    return Evidence(
        numbers,
        pictures=[Picture(caption, [panel], "notes fig. 1.5")],
        would_take="more seeds, or a longer training after the deficit",
    )


@claim(
    "B8b",
    "A longer deficit, no higher peak",
    kind="direction",
    statement=r"""
    The peak of the trace of the Fisher information is lower with a long deficit than without one.
    """,
    refuted_by="a peak that is as high or higher with the longest deficit than without one",
    seconds={"quick": 20, "standard": 900},
    planted={"is_swapped": True},
    erratum=Erratum(
        written="The longer the deficit is kept up, the more information is stored.",
        corrected="In these small networks the peak of the trace is lower after a long deficit.",
        why="The source describes a figure of the paper; here the peak comes later and is lower.",
        quote="plus le déficit est maintenu longtemps plus la quantité d'informations stockée est importante",
        place="notes 1.2.1",
    ),
    details=DETAILS
    + r"""
The number is the logarithm of the ratio of the peaks, seed by seed. The claim was first stated as the course
has it, and failed at the scale `quick` on the seeds 100 to 103: it was turned around then, and other seeds
decide. On the three seeds that chose the setting the heights were alike.
""",
    references=(ACHILLE,),
)
def peak_height(run: Running, is_swapped: bool = False) -> Evidence:
    """The height of the peak; `is_swapped` takes the longest deficit for none."""
    of = setting(run)
    peaks = {length: one.total.max(1) for length, one in traces(run, of).items()}
    gain = np.log(peaks[of.longest] / peaks[0]) * (-1 if is_swapped else 1)
    told = "peaks of " + ", ".join(f"{peak.mean():.0f} for {length}" for length, peak in peaks.items())
    name = f"log of the peak, {of.longest} epochs of blur by none"
    return Evidence(
        [positive(f"minus the {name}", -gain, f"{told} epochs")],
        [positive(f"the {name}", gain)],
        would_take="more seeds; images that a blur makes hard but not unreadable, as at `standard`",
    )


@claim(
    "B8c",
    "With a deficit the last layers carry more of it",
    kind="direction",
    statement=r"""
    Without a deficit the middle layers come to carry most of the information. As long as a deficit lasts, the
    last layers do. Over the whole of training, the share of the last layers is larger the longer the
    deficit is.
    """,
    refuted_by="a last layer ahead without deficit, a middle one ahead at the end of the longest deficit, "
    "or a share of the last layers that does not grow with the length of the deficit",
    seconds={"quick": 20, "standard": 900},
    planted={"is_swapped": True},
    details=DETAILS
    + r"""
The first and second number compare the largest of the middle convolutions with the larger of the last
convolution and the head. At the start of training the last layers are ahead in every network, and a
deficit that can hardly be learned from prolongs that state. In the paper the last layers stay ahead when the
deficit is removed; the remark says what they do here.
""",
    references=(ACHILLE,),
)
def layers_of_information(run: Running, is_swapped: bool = False) -> Evidence:
    """Shares of the layers; `is_swapped` takes the longest deficit for none."""
    of = setting(run)
    found = traces(run, of)
    none, middle, long = (found[length] for length in (0, *of.lengths[1:]))
    ending = int(np.flatnonzero(long.epochs <= of.longest)[-1])
    if is_swapped:
        none, long = long, none
    numbers = [
        positive(
            "no deficit, end of training: share of the middle less that of the last", -_ahead(none)[:, -1]
        ),
        positive(
            "end of the longest deficit: share of the last less that of the middle", _ahead(long)[:, ending]
        ),
        positive(
            "share of the last layers over training, longest deficit less none",
            long.last.mean(1) - none.last.mean(1),
        ),
        positive(
            "share of the last layers over training, longest deficit less the middle one",
            long.last.mean(1) - middle.last.mean(1),
        ),
    ]
    back = -_ahead(long)[:, -1].mean()
    remark = (
        f"At the end of training the middle is ahead by {back:.2f} of the trace after the longest deficit."
    )
    return Evidence(
        numbers, pictures=[_by_layer(found)], remark=remark, would_take="more seeds, or a deeper network"
    )


def _ahead(one: Traces) -> np.ndarray:
    """By how much of the trace the larger of the last layers is ahead of the largest in the middle."""
    return np.asarray(one.shares[:, :, -2:].max(2) - one.shares[:, :, 1:-2].max(2))


def _by_layer(found: dict[int, Traces]) -> Picture:
    panels = []
    for length, one in found.items():
        depth = one.layers.shape[2]
        lines = [
            series(
                "head" if layer == depth - 1 else f"convolution {layer + 1}",
                one.epochs,
                list(one.layers[:, :, layer].T),
            )
            for layer in range(depth)
        ]
        title = f"Blur for {length} epochs" if length else "No deficit"
        panels.append(Panel(title, "epoch", "trace of the Fisher information", lines))
    caption = "The trace by layer. Means over seeds with two standard errors."
    return Picture(caption, panels, "notes fig. 1.6")
