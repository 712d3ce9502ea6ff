"""C4: gradient norm, distance and direction under dropout, as Liu et al. measure them."""

from __future__ import annotations

from typing import Any

import numpy as np

from apoint.book.chapters.c_dropout.regimes import FIRST_SEED, under
from apoint.book.chapters.c_dropout.walk import training_set, walk
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, at_least, at_most
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.engine.replica import Replica
from apoint.probes import distance, gradient_direction

RATE = 0.1
STOPS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
EARLY = (0.02, 0.05, 0.1, 0.2)
QUANTITIES = ("norm", "distance", "variance", "error")
Curves = np.ndarray[Any, Any]  # by seed, stop and quantity


@claim(
    "C4",
    "Gradients under dropout",
    kind="direction",
    statement=r"""
    With dropout of 0.1 the gradients of mini-batches have a smaller norm once training is under way. At equal
    weights their direction varies more, since masks are one more source of noise: the direction variance, the
    mean of $\frac12(1-\cos(g_i,g_j))$ over pairs of mini-batches, is larger, and so is the direction error,
    the mean of $\frac12(1-\cos(g_i,\hat g))$ with $\hat g$ the gradient of all examples without dropout. In
    small networks this stays so while they train, and with AdamW the weights move less far from their start,
    not farther.
    """,
    refuted_by="a difference of the other sign, by three standard errors over paired seeds",
    seconds={"quick": 16, "standard": 600},
    planted={"is_swapped": True},
    erratum=Erratum(
        written="A model with dropout has smaller gradients, goes farther in the space of weights, and its "
        "gradients vary less in direction from batch to batch.",
        corrected="The gradients are smaller. Distance and direction depend on the network and on the phase "
        "of training; in small networks the direction varies more.",
        why="The paper measures a ViT-T on ImageNet with batches of 4096, and finds the direction variance "
        "and error lower in the first thousand updates only, and higher afterwards; the source leaves this "
        "out. Masks add noise to a gradient, so a lower variance must come from where training went.",
        quote="Un modèle avec un dropout présente une variance de direction des gradients plus faible",
        place="start (early dropout)",
    ),
    details=r"""
    Both networks of a pair share start, order and data. At the start they have the same weights, so that the
    difference there is the masks' own. Definitions are the paper's: whole-model gradients of mini-batches in
    training mode, distance $\|w_t-w_0\|_2$, and $\hat g$ in inference mode; but $\hat g$ is over the same
    1,024 examples that the mini-batches are drawn from (2,048 at `standard`). The networks are those of C3
    in its under-fitting regime, with batches of 64, trained by AdamW and by plain SGD; at `standard` for 3
    epochs without augmentation. On other seeds (0 to 3) it was the same with batches of 512 and, on three
    seeds, for a small vision transformer on textured blobs. The figures show two things
    more. In the first updates the norm is larger with dropout, not smaller. And with plain SGD the weights do
    go farther at first, as the source says, until about half of training.
    """,
    references=("Liu, Xu, Jin, Shen and Darrell (2023), Dropout reduces underfitting, section 3",),
)
def gradients(run: Running, is_swapped: bool = False) -> Evidence:
    """Pairs with and without dropout, looked at on the way; `is_swapped` takes one for the other."""
    seeds = range(FIRST_SEED, FIRST_SEED + run.pick(6, 4))
    optimizers: dict[str, dict[str, Any]] = {
        "AdamW": {"name": "adamw", "lr": run.pick(3e-3, 2e-3)},
        "SGD": {"name": "sgd", "lr": run.pick(0.2, 0.05)},
    }
    found: dict[str, tuple[Curves, Curves]] = {}
    for name, optimizer in optimizers.items():
        pair = [np.array([_curves(run, optimizer, rate, seed) for seed in seeds]) for rate in (0.0, RATE)]
        found[name] = (pair[1], pair[0]) if is_swapped else (pair[0], pair[1])
    adam, sgd = found["AdamW"], found["SGD"]
    numbers = [
        _number("AdamW: gradient norm at half of training", adam, "norm", (0.5,), -1),
        _number("SGD: the same", sgd, "norm", (0.5,), -1),
        _number("direction variance at equal weights", adam, "variance", (0.0,), 1),
        _number("direction error at equal weights", adam, "error", (0.0,), 1),
        _number("AdamW: direction variance, first fifth", adam, "variance", EARLY, 1),
        _number("AdamW: direction error, first fifth", adam, "error", EARLY, 1),
        _number("SGD: direction error, first fifth", sgd, "error", EARLY, 1),
        _number("AdamW: distance at the end", adam, "distance", (1.0,), -1),
    ]
    written = [
        _number("AdamW: distance at the end", adam, "distance", (1.0,), 1),
        _number("AdamW: direction variance, first fifth", adam, "variance", EARLY, -1),
    ]
    remark = "Each number is relative to the network without dropout, mean over pairs of seeds."
    return Evidence(numbers, written, _pictures(found), remark, "more pairs of seeds")


def _number(
    name: str, pair: tuple[Curves, Curves], quantity: str, stops: tuple[float, ...], sign: int
) -> Number:
    """The relative difference that dropout makes, and whether it has the sign."""
    change = _changes(pair, quantity)[:, [STOPS.index(stop) for stop in stops]].mean(1)
    value, error = float(change.mean()), float(change.std(ddof=1) / len(change) ** 0.5)
    return at_least(name, value, 0.0, error) if sign > 0 else at_most(name, value, 0.0, error)


def _changes(pair: tuple[Curves, Curves], quantity: str) -> Curves:
    """Relative differences by seed and stop; 0 where both are 0."""
    without, dropped = (curves[:, :, QUANTITIES.index(quantity)] for curves in pair)
    return np.asarray((dropped - without) / np.where(without == 0, 1.0, without))


def _curves(run: Running, optimizer: dict[str, Any], rate: float, seed: int) -> list[list[float]]:
    run.say(f"{optimizer['name']}, dropout {rate:g}, seed {seed}")
    recipe = {**under(run), "optimizer": optimizer, "batch_size": 64}
    if run.scale != "quick":
        recipe = {**recipe, "epochs": 3, "augment": []}
    recipe["model"] = {**recipe["model"], "dropout": rate}
    start: dict[str, Any] = {}
    examples = run.pick(1024, 2048)

    def look(replica: Replica, step: int) -> list[float]:
        if not step:
            start.update({name: w.detach().clone() for name, w in replica.model.named_parameters()})
        batch = training_set(replica, examples)
        reading = gradient_direction(
            replica.model, batch, replica.loss, num_batches=examples // 64, seed=step
        )
        assert reading.value is not None
        moved = distance(replica.model, start).value
        assert moved is not None
        norms = float(np.mean(reading.details["gradient_norms"]))
        return [norms, moved, reading.value, float(reading.details["direction_error"])]

    return list(walk(recipe, seed, STOPS, look).values())


def _pictures(found: dict[str, tuple[Curves, Curves]]) -> list[Picture]:
    titles = {
        "norm": "Gradient norm",
        "distance": "Distance from the start",
        "variance": "Direction variance",
        "error": "Direction error",
    }
    places = [max(100 * stop, 1.0) for stop in STOPS]
    panels = []
    for quantity, title in titles.items():
        lines = []
        for name, pair in found.items():
            change = 100 * _changes(pair, quantity)
            middle, error = change.mean(0), 2 * change.std(0, ddof=1) / len(change) ** 0.5
            lines.append(Series(name, places, middle, middle - error, middle + error))
        lines.append(Series("no difference", [1.0, 100.0], [0.0, 0.0], style="dashed"))
        panels.append(Panel(title, "share of training (%)", "change by dropout (%)", lines, x_log=True))
    count = len(next(iter(found.values()))[0])
    caption = (
        f"What dropout of 0.1 changes against none: means over {count} pairs of seeds with two standard "
        "errors. The point at 1 % is the start, at equal weights."
    )
    return [Picture(caption, panels[:2]), Picture(caption, panels[2:])]
