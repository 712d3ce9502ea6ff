"""B11b: near its trained weights, the loss of a residual network rises less than that of a plain one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from apoint.book.chapters.b_critical.fisher_trace import Trained, number_of, train_networks
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, ruled
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.probes import loss_slice
from apoint.verdict import decide

FIRST_SEED = 100
NEAR, REACH, DIRECTIONS, EXAMPLES = 0.1, 0.5, 5, 128


@claim(
    "B11b",
    "Skip connections smooth the loss near the weights",
    kind="direction",
    statement=r"""
    Take all skip connections out of a residual network with batch norm and train both alike. Then move the
    weights along random directions in which each filter is as long as that of the weights. At a tenth of
    that length the loss of the plain network has risen more than that of the residual one. The same is true
    against a residual network that is trained for half as long, whose loss is nearer to the plain one's.
    """,
    refuted_by="over paired networks, a verdict of equivalent or lower for the plain network's rise in loss, "
    "in logarithms",
    seconds={"quick": 45, "standard": 700},
    planted={"is_swapped": True},
    details=r"""
    Each network is measured along five directions to both sides, on training examples, in eval mode as in the
    paper. The residual network learns faster, so that at equal length of training it is better trained; the
    arm that is trained for half as long is there to tell smoothness from that. The claim is about the
    neighbourhood of the weights. Farther out, at half of the length of the filters and beyond, both losses
    are far above that of chance, and which is higher depends on how certain the network is of its wrong
    answers; the figure shows this and nothing is claimed of it. Distance and recipe were chosen with seeds 0
    and 1. The length of training matters: after six epochs at the scale `quick` the plain network has hardly
    begun to learn, with a loss of 1.5, and its loss rises no more than the residual one's.
    """,
    references=("Li et al. (2018), Visualizing the loss landscape of neural nets",),
)
def surface(run: Running, is_swapped: bool = False) -> Evidence:
    """Slices through the losses of pairs of networks; `is_swapped` exchanges the arms."""
    pairs = run.pick(6, 5)
    arms = {name: _slices(run, recipe, pairs) for name, recipe in recipes(run).items()}
    logs = {name: np.log([one.near for one in slices]) for name, slices in arms.items()}
    rules: dict[str, Any] = {"margin": math.log(1.1), "looks": (pairs,), "metric": "logarithm of the rise"}
    numbers = []
    for other in ("residual", "residual, half as long"):
        before, after = (logs["plain"], logs[other]) if is_swapped else (logs[other], logs["plain"])
        verdict = decide(before, after, **rules)
        numbers.append(ruled(f"rise, plain over {other}, logarithm", verdict, "better"))
    said = "; ".join(
        f"{name}: training loss {np.mean([one.loss for one in slices]):.3f}, rise "
        f"{np.exp(logs[name].mean()):.3f}"
        for name, slices in arms.items()
    )
    remark = f"Means over {pairs} networks, of the rise geometric. {said}. Higher counts as better here."
    return Evidence(numbers, pictures=[_picture(arms)], remark=remark, would_take="more pairs of networks")


def recipes(run: Running) -> dict[str, dict[str, Any]]:
    """The three arms."""
    if run.scale == "quick":
        base: dict[str, Any] = {
            "data": "digits",
            "model": {"name": "resnet-cifar", "depth": 20, "width": 4},
            "epochs": 12,
        }
    else:
        base = {
            "data": run.images("cifar-10", size=16, train=10_000, test=4_000),
            "model": {"name": "resnet-cifar", "depth": 20, "width": 8},
            "epochs": 12,
        }
    base |= {
        "name": "surface",
        "init": "he",
        "optimizer": {"name": "momentum", "lr": 0.1},
        "schedule": "cosine",
        "batch_size": 64,
        "evaluate_every": "100%",
    }
    return {
        "plain": {**base, "model": {**base["model"], "shortcut": "none"}},
        "residual": base,
        "residual, half as long": {**base, "epochs": base["epochs"] // 2},
    }


@dataclass(frozen=True)
class _Slice:
    """The loss of a network, how much it rises nearby, and the mean rise along the slices."""

    loss: float
    near: float
    along: list[float]
    rise: list[float]


def _slices(run: Running, recipe: dict[str, Any], pairs: int) -> list[_Slice]:
    networks = train_networks(run, recipe, FIRST_SEED, pairs)
    return [_slice(network, place) for place, network in enumerate(networks)]


def _slice(network: Trained, seed: int) -> _Slice:
    reading = loss_slice(
        network.model,
        network.part("train", EXAMPLES),
        reach=REACH,
        num_steps=5,
        distance=NEAR,
        num_directions=DIRECTIONS,
        seed=seed,
    )
    found = reading.details
    rise = np.array(found["curves"]).mean(0) - found["loss"]
    return _Slice(found["loss"], number_of(reading), found["along"], rise.tolist())


def _picture(arms: dict[str, list[_Slice]]) -> Picture:
    lines = []
    for name, slices in arms.items():
        values = np.array([[one.loss + rise for rise in one.rise] for one in slices])
        mean, error = values.mean(0), 2 * values.std(0, ddof=1) / math.sqrt(len(slices))
        lines.append(Series(name, slices[0].along, mean, mean - error, mean + error))
    near = [Series(s.label, s.x[3:8], s.y[3:8], s.low[3:8], s.high[3:8]) for s in lines if s.low and s.high]
    axis, loss = "step along the direction (lengths of the filters)", "training loss (nats)"
    panels = [
        Panel("Near the weights", axis, loss, near),
        Panel("Farther out", axis, loss, lines, y_log=True),
    ]
    count = len(next(iter(arms.values())))
    caption = f"Means of {count} networks, each along {DIRECTIONS} directions, with two standard errors."
    return Picture(caption, panels)
