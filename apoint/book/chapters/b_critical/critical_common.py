"""Recipes for the claims on critical periods: B2, B3, B8, B9 and B10 share their replicas.

Time is scaled to the paper's: its 160 clean epochs at 0.97 an epoch are `clean` epochs here, so that the
learning rate falls as far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np

from apoint.book.evidence import Number, at_least
from apoint.book.picture import Series, Style, Values
from apoint.book.running import Running
from apoint.engine import Options
from apoint.engine.fleet import Ended, Fleet, Task
from apoint.store import Run
from apoint.trials import make_arm
from apoint.verdict import Verdict, decide

Rates = Literal["annealed", "reset", "constant"]
FIRST_SEED = 200  # settings were chosen on seeds 0 to 7, and statements of B8b and B9b on 100 to 107
NUM_SEEDS = 8
L2 = 5e-4
PAPER_EPOCHS, PAPER_FACTOR = 160, 0.97


@dataclass(frozen=True)
class Setting:
    """What a scale trains.

    Attributes:
        data: The dataset.
        model: The network.
        batch_size: Examples per update.
        clean: Clean epochs after a deficit.
        lengths: Lengths of deficits that are removed, in epochs: short, middle, long.
        window: The length of a moving deficit, in epochs.
        onsets: Where it begins; the second and third are the paper's epochs 20 and 40.
        window_total: Epochs in all where it moves.
    """

    data: dict[str, Any]
    model: dict[str, Any]
    batch_size: int
    clean: int
    lengths: tuple[int, int, int]
    window: int
    onsets: tuple[float, ...]
    window_total: int

    @property
    def longest(self) -> int:
        """The longest deficit."""
        return self.lengths[-1]

    @property
    def total(self) -> int:
        """Epochs of the network with the longest deficit."""
        return self.clean + self.longest

    @property
    def factor(self) -> float:
        """What the annealed rate is multiplied by in each epoch."""
        return float(PAPER_FACTOR ** (PAPER_EPOCHS / self.clean))


def setting(run: Running) -> Setting:
    """Textures that a blur erases, or CIFAR-10 of 16 by 16 pixels."""
    if run.scale == "quick":
        textures = {
            "name": "procedural", "size": 8, "frequency": "high", "difficulty": 0.3,
            "num_train": 320, "num_test": 400,
        }  # fmt: skip
        small = {"name": "cnn", "depth": 3, "width": 8}
        return Setting(textures, small, 32, 16, (1, 4, 14), 4, (0, 2, 4, 8, 16), 24)
    images = run.images("cifar-10", size=16, train=10_000, test=4_000)
    network = {"name": "cnn", "depth": 5, "width": 16, "pool_every": 2}
    return Setting(images, network, 64, 20, (2, 5, 18), 5, (0, 2.5, 5, 10, 23), 30)


def recipe(
    of: Setting,
    epochs: int,
    deficit: str | None = None,
    length: float = 0,
    begin: float = 0,
    rates: Rates = "annealed",
    first: float = 1.0,
    l2: float = L2,
    **more: Any,
) -> dict[str, Any]:
    """A training with or without a deficit.

    Args:
        of: Data and network.
        epochs: How long in all.
        deficit: Its name.
        length: Its length in epochs; where rates are reset, they are so after as many, deficit or not.
        begin: The epoch at which it begins.
        rates: Annealed from the first epoch on, annealed anew after `length` epochs, or constant.
        first: What an annealed rate begins with, as a share of the full one.
        l2: The penalty on the weights.
        **more: Further entries of the recipe.
    """
    values: dict[str, Any] = {
        "name": "critical-period",
        "data": of.data,
        "model": of.model,
        "optimizer": {"name": "momentum", "form": "sum", "lr": 0.05, "momentum": 0.9, "l2": l2},
        "schedule": _schedule(of.factor, epochs, length, rates, first),
        "batch_size": of.batch_size,
        "epochs": epochs,
        "evaluate_every": "1 epoch",
        **more,
    }
    if deficit is not None:
        values["deficits"] = [
            {"name": deficit, "begin": f"{begin} epochs", "end": f"{begin + length} epochs"}
        ]
    return values


def _schedule(factor: float, epochs: int, length: float, rates: Rates, first: float) -> dict[str, Any]:
    if rates == "constant":
        return {"name": "constant"}
    if rates == "annealed":
        return {"name": "exponential", "start": first, "factor": factor, "every": "1 epoch"}
    falls = [(float(epoch), factor**epoch) for epoch in range(int(length))]
    jump = [(length - 1e-4, factor**length)]  # less than an update before the rate is back
    again = [(length + epoch, factor**epoch) for epoch in range(epochs - int(length) + 1)]
    points = [[f"{place:g} epochs", value] for place, value in [*falls, *jump, *again]]
    return {"name": "piecewise", "points": points}


@dataclass(frozen=True)
class Curves:
    """Test accuracies of an arm in percent, [seed, evaluation], and the epoch of each evaluation."""

    epochs: list[float]
    values: np.ndarray

    def at(self, epoch: float) -> np.ndarray:
        """The accuracy of each seed after an epoch."""
        return self.values[:, self.epochs.index(epoch)]

    @property
    def end(self) -> np.ndarray:
        """The accuracy of each seed at the end."""
        return self.values[:, -1]


def train(run: Running, recipes: Mapping[str, Mapping[str, Any]], num_seeds: int = NUM_SEEDS) -> list[Ended]:
    """Train every recipe with the same seeds, as far as they are not there; arm by arm.

    Replicas are stacked at the scale quick. Those of one arm always make one stack, so that numbers do not
    depend on which claim was first.
    """
    arms = [make_arm(name, values) for name, values in recipes.items()]
    seeds = range(FIRST_SEED, FIRST_SEED + num_seeds)
    is_watched = any(arm.recipe.probes for arm in arms)
    alone = "loop" if run.workers == 1 else "pool"
    backend = "stacked" if run.scale == "quick" and not is_watched else alone
    stack = num_seeds if backend == "stacked" else None
    with Fleet(Options(runs_root=run.folder), backend, run.workers, stack, run.say) as fleet:
        return fleet.train([Task(arm.recipe, arm.document, seed) for arm in arms for seed in seeds])


def accuracies(run: Running, recipes: Mapping[str, Mapping[str, Any]]) -> dict[str, Curves]:
    """Test accuracy along the training of every recipe."""
    ended = train(run, recipes)
    found = {}
    for place, (name, values) in enumerate(recipes.items()):
        mine = ended[place * NUM_SEEDS : (place + 1) * NUM_SEEDS]
        series = [Run(each.folder).metrics.series("test_accuracy") for each in mine]
        steps = series[0][0]
        epochs = [round(step * float(values["epochs"]) / steps[-1], 6) for step in steps]
        found[name] = Curves(epochs, 100 * np.array([accuracy for _, accuracy in series]))
    return found


def verdict(baseline: np.ndarray, candidate: np.ndarray, margin: float | None = None) -> Verdict:
    """The verdict over paired seeds, all at once."""
    return decide(baseline, candidate, margin, looks=(len(baseline),), metric="test_accuracy")


def positive(name: str, values: np.ndarray, remark: str = "") -> Number:
    """The mean over seeds must be above 0 by three standard errors."""
    return at_least(name, values.mean(), 0.0, _error(values), remark)


def spread(values: Sequence[np.ndarray]) -> tuple[list[float], list[float], list[float]]:
    """Means over seeds, and two standard errors below and above them."""
    middle = [float(each.mean()) for each in values]
    error = [2 * _error(each) for each in values]
    low = [one - wide for one, wide in zip(middle, error, strict=True)]
    high = [one + wide for one, wide in zip(middle, error, strict=True)]
    return middle, low, high


def series(label: str, x: Values, values: Sequence[np.ndarray], style: str = "line") -> Series:
    """Means over seeds with two standard errors to either side."""
    assert style in get_args(Style)
    return Series(label, x, *spread(values), cast(Style, style))


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))
