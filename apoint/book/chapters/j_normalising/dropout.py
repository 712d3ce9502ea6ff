"""J1e: with batch norm dropout has less left to gain."""

from __future__ import annotations

import math
import statistics
from typing import Any

from apoint.book.chapters.j_normalising.trained import train
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_least, at_most
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running

RECIPE: dict[str, Any] = {
    "data": {"name": "mnist-1d", "num_samples": 2500, "limit": 800},
    "model": {"name": "mlp", "depth": 2, "width": 128},
    "init": "he",
    "optimizer": {"name": "adam", "lr": 3e-3},
    "schedule": {"name": "cosine"},
    "batch_size": 32,
    "evaluate_every": "100%",
}
RATE = 0.3
FIRST_SEED = 100
LABELS = {"none": "without", "batch": "with batch norm"}


@claim(
    "J1e",
    "Less left for dropout",
    kind="direction",
    statement=r"""
    Batch norm regularises as well, so dropout has less left to gain: on few examples, dropping 30 % of the
    hidden units saves less test loss in a network with batch norm than in the same network without.
    """,
    refuted_by="a gain from dropout that is as large or larger with batch norm",
    seconds={"quick": 12, "standard": 400},
    planted={"is_swapped": True},
    details=r"""
    The paper removes dropout from Inception and loses nothing, and the course advises to remove or reduce it.
    Here a perceptron overfits 800 signals of MNIST-1D; at the scale `standard`, 2,000 images of
    Fashion-MNIST. The number is the difference of two differences over the same seeds. The setting was chosen
    on seeds 0 to 3. It is one where dropout helps: with 2,000 signals and 12 epochs it harmed both networks.
    Less is not nothing: here the loss is still lower with dropout than without, even under batch norm, so
    to reduce dropout is supported by this claim and to remove it is not.
    """,
    references=("Ioffe and Szegedy (2015), Batch normalization, sections 3.4 and 4.2.1",),
)
def less_dropout(run: Running, is_swapped: bool = False) -> Evidence:
    """Four arms over the same seeds; `is_swapped` takes one network for the other."""
    rates = run.pick((0.0, RATE), (0.0, 0.1, 0.2, RATE, 0.5))
    seeds = range(FIRST_SEED, FIRST_SEED + run.pick(6, 12))
    losses: dict[str, dict[float, list[float]]] = {}
    for norm in LABELS:
        run.say(f"dropout with norm {norm}")
        losses[norm] = {rate: _losses(run, norm, rate, seeds) for rate in rates}
    gains = {
        norm: [bare - dropped for bare, dropped in zip(found[0.0], found[RATE], strict=True)]
        for norm, found in losses.items()
    }
    plain, normed = ("batch", "none") if is_swapped else ("none", "batch")
    apart = [one - other for one, other in zip(gains[plain], gains[normed], strict=True)]
    better = [one - other for one, other in zip(losses[plain][0.0], losses[normed][0.0], strict=True)]
    means = {norm: statistics.mean(gain) for norm, gain in gains.items()}
    numbers = [
        at_least(
            "loss that dropout saves, without batch norm more than with it",
            statistics.mean(apart),
            0.0,
            _error(apart),
            remark=f"{means[plain]:.3f} and {means[normed]:.3f} nats, {len(seeds)} paired seeds",
        ),
        at_most(
            "without dropout: loss that batch norm adds",
            -statistics.mean(better),
            0.0,
            _error(better),
        ),
    ]
    return Evidence(numbers, pictures=[_picture(losses)], would_take="more seeds, or a larger network")


def _losses(run: Running, norm: str, rate: float, seeds: range) -> list[float]:
    data: Any = RECIPE["data"]
    if run.scale != "quick":
        data = {**run.images("fashion-mnist", size=14, train=10_000, test=4_000), "limit": 2000}
    model = {**RECIPE["model"], "norm": norm, "dropout": rate}
    ended = train(run, {**RECIPE, "data": data, "model": model, "epochs": run.pick(30, 40)}, seeds)
    return [float("inf") if one is None else one.result("test_loss") for one in ended]


def _error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def _picture(losses: dict[str, dict[float, list[float]]]) -> Picture:
    lines = []
    for norm, label in LABELS.items():
        rows = list(losses[norm].values())
        means, errors = [statistics.mean(row) for row in rows], [2 * _error(row) for row in rows]
        low = [mean - error for mean, error in zip(means, errors, strict=True)]
        high = [mean + error for mean, error in zip(means, errors, strict=True)]
        lines.append(Series(label, list(losses[norm]), means, low, high))
    panel = Panel("Dropout and batch norm", "dropout (share of hidden units)", "test loss (nats)", lines)
    return Picture("Means over seeds with two standard errors.", [panel], "weights 3.1")
