"""C2b: dropout makes a network redundant: units can be deleted from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apoint.book.chapters.c_dropout.regimes import FIRST_SEED
from apoint.book.chapters.c_dropout.walk import metrics, walk
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_least
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.engine.replica import Replica
from apoint.nn.dropout import Dropout

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
DRAWS = 5
Curves = np.ndarray[Any, Any]


@claim(
    "C2b",
    "Redundancy",
    kind="direction",
    statement=r"""
    A network trained with dropout does not lean on single units. If 30 or 50 % of its hidden units are
    deleted after training, at random and for good, it keeps more of its accuracy than the same network
    trained without; and so it does if what is left is scaled up to make up for the loss.
    """,
    refuted_by="an accuracy after deletion that is not above that of the network without dropout, by three "
    "standard errors over paired seeds",
    seconds={"quick": 4, "standard": 250},
    planted={"is_swapped": True},
    details=r"""
    A perceptron on the digits with two hidden layers of 64 units, half of which are dropped in training; at
    the scale `standard` three layers of 256 units on CIFAR-10 at $16\times16$ pixels with a rate of 0.3.
    Pairs share their seed: the same start, the same order. Each share is deleted five times in each
    network, the same units in both. Deletion is what the one network was trained for, up to scaling; so the
    claim is about what dropout does, not about whether it is the best way to robustness.
    """,
    references=(
        "Srivastava et al. (2014), Dropout: a simple way to prevent neural networks from overfitting",
    ),
)
def deleted_units(run: Running, is_swapped: bool = False) -> Evidence:
    """Accuracies after deletion, with and without dropout; `is_swapped` takes one for the other."""
    pairs = run.pick(6, 6)
    curves = {rate: np.array([_curve(run, rate, FIRST_SEED + seed) for seed in range(pairs)])
              for rate in (0.0, run.pick(0.5, 0.3))}  # fmt: skip
    without, dropped = curves.values()
    if is_swapped:
        without, dropped = dropped, without
    numbers = []
    for kind, name in enumerate(("deleted", "deleted, rest scaled up")):
        for share in (0.3, 0.5):
            gains = dropped[:, kind, SHARES.index(share)] - without[:, kind, SHARES.index(share)]
            error = float(gains.std(ddof=1) / pairs**0.5)
            numbers.append(at_least(f"{share:.0%} {name}: accuracy gained", float(gains.mean()), 0.0, error))
    whole = dropped[:, 0, 0] - without[:, 0, 0]
    remark = f"With all units, dropout changes the accuracy by {whole.mean():+.3f}."
    return Evidence(numbers, pictures=[_picture(without, dropped)], remark=remark)


def _curve(run: Running, rate: float, seed: int) -> Curves:
    """Accuracies by kind of deletion and share deleted, mean over draws."""
    run.say(f"rate {rate:g}, seed {seed}")
    images = run.scale != "quick"
    recipe = {
        "data": run.images(size=16, train=10_000, test=4_000) if images else "digits",
        "model": {"name": "mlp", "depth": 3, "width": 256} if images else {"name": "mlp", "width": 64},
        "optimizer": {"name": "adam", "lr": 1e-3},
        "batch_size": 32,
        "epochs": 10,
    }
    recipe["model"] = {**recipe["model"], "dropout": rate}  # type: ignore[dict-item]

    def look(replica: Replica, step: int) -> Curves:
        found = np.zeros((2, len(SHARES)))
        for draw in range(DRAWS):
            for place, share in enumerate(SHARES):
                generator = run.generator(f"{seed} {draw}")
                for kind, scale in enumerate((1.0, 1 / (1 - share))):
                    with _without(replica.model, share, scale, generator.clone_state()):
                        found[kind, place] += metrics(replica, "test")["accuracy"] / DRAWS
        return found

    return walk(recipe, seed, [1.0], look)[1.0]


@contextmanager
def _without(model: nn.Module, share: float, scale: float, generator: torch.Generator) -> Iterator[None]:
    """The network with a share of the units of each hidden layer deleted, the others times `scale`."""
    masks: dict[nn.Module, Tensor] = {}

    def delete(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if module not in masks:
            order = torch.rand(output.shape[1:], generator=generator).argsort()
            masks[module] = (order >= round(share * len(order))) * scale
        return output * masks[module]

    hooks = [
        module.register_forward_hook(delete)
        for module in model.modules()
        if isinstance(module, Dropout) and module.knob == "dropout"
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _picture(without: Curves, dropped: Curves) -> Picture:
    lines = []
    for label, curves in (("with dropout", dropped), ("without", without)):
        middle = curves[:, 0].mean(0)
        error = 2 * curves[:, 0].std(0, ddof=1) / len(curves) ** 0.5
        lines.append(Series(label, [100 * share for share in SHARES], middle, middle - error, middle + error))
    panel = Panel("Units deleted after training", "hidden units deleted (%)", "test accuracy", lines)
    caption = f"Means over {len(without)} seeds with two standard errors; nothing is scaled up."
    return Picture(caption, [panel])
