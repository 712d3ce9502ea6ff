"""B11: gradients of deep plain networks look like white noise; those of residual networks do not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_least, between
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.nn.initialisation import initialise
from apoint.probes import shattering
from apoint.registry import registry

POINTS, LAGS, WIDTH, DEEP = 256, 15, 200, 24
NETWORKS = ("plain", "centred", "batch norm", "residual", "residual, batch norm")

Array = np.ndarray[Any, np.dtype[np.float64]]


@claim(
    "B11",
    "Shattered gradients, and what it takes to shatter them",
    kind="direction",
    statement=r"""
    Take a network of one input and one output at its random start, and follow the derivative of the output
    along 256 points from $-2$ to 2. With one hidden layer, neighbouring points have nearly the same
    derivative. With 24 layers whose units are centred, by batch norm or by taking off their mean alone,
    neighbours are uncorrelated, as in white noise: the gradients are shattered. With skip connections around
    every two layers, with batch norm or without, neighbours stay correlated. A plain deep network without
    centring does not shatter either.
    """,
    refuted_by="an autocorrelation at lag 1 above 0.2 for a deep centred network without skip connections, "
    "below 0.5 for a residual one or for a plain one without centring, or below 0.9 for one layer",
    seconds={"quick": 5, "standard": 30},
    planted={"is_swapped": True},
    details=r"""
    Layers of 200 ReLU units, He's initialisation, biases uniform within $\pm1/\sqrt n$. Means and standard
    deviations are those over the 256 points and are then held fixed, so that the derivative is that of a
    function. The autocorrelation is that of the probe `shattering`, a mean over random networks with three
    standard errors kept from the bars.

    Centring is the ingredient that summaries of this result tend to leave out. He's initialisation keeps the
    mean square of a signal, but much of that is a mean that all inputs share: what differs between two inputs
    is a small part, and few units switch between them. Centring takes the shared part away in each layer and
    so makes the switches of different units independent. The paper's theory, a correlation that halves with
    each layer, is about that case; a replication without centring finds nothing.
    """,
    references=(
        "Balduzzi et al. (2017), The shattered gradients problem: if resnets are the answer, then what is "
        "the question?",
    ),
)
def shattered(run: Running, is_swapped: bool = False) -> Evidence:
    """Autocorrelations of derivatives; `is_swapped` takes residual networks for plain ones."""
    repeats = run.pick(8, 40)
    curves: dict[str, Array] = {"one layer": _curves(run, "plain", 1, repeats)}
    for name in NETWORKS:
        curves[name] = _curves(run, name, DEEP, repeats)
    named = dict(curves)
    if is_swapped:
        named["batch norm"], named["residual, batch norm"] = (
            curves["residual, batch norm"],
            curves["batch norm"],
        )
    numbers = []
    for name, values in named.items():
        mean, error = float(values[:, 1].mean()), float(values[:, 1].std(ddof=1)) / math.sqrt(repeats)
        label = f"lag 1, {name}" if name == "one layer" else f"lag 1, {DEEP} layers, {name}"
        if name in ("centred", "batch norm"):
            numbers.append(between(label, mean, -0.2, 0.2, error))
        else:
            numbers.append(at_least(label, mean, 0.9 if name == "one layer" else 0.5, error))
    return Evidence(numbers, pictures=[_picture(run, curves, repeats)], would_take="more random networks")


class _Centre(nn.Module):
    """Takes the mean over the batch off; keeps that of the last batch seen in train mode."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = x.detach().mean(0)
        return x - self.mean


def _network(kind: str, depth: int, generator: torch.Generator) -> nn.Module:
    norm = "batch" if kind in ("centred", "batch norm", "residual, batch norm") else "none"
    spec: dict[str, Any] = {"name": "mlp", "depth": depth, "width": WIDTH, "norm": norm}
    if kind.startswith("residual"):
        spec |= {"name": "residual-mlp", "depth": depth // 2}
    model: nn.Module = registry("model").build(spec, 1, 1)
    initialise(model, "he", generator=generator)
    for module in list(model.modules()):
        if isinstance(module, nn.Linear):
            reach = 1 / math.sqrt(module.in_features)
            with torch.no_grad():
                module.bias.uniform_(-reach, reach, generator=generator)
        for name, child in list(module.named_children()):
            if kind == "centred" and hasattr(child, "running_mean"):
                setattr(module, name, _Centre())
    return model.double()


def _curves(run: Running, kind: str, depth: int, repeats: int) -> Array:
    """The autocorrelation at each lag, a row for each random network."""
    line = torch.linspace(-2, 2, POINTS, dtype=torch.float64)[:, None]
    ends, rows = line[[0, -1]], []
    for number in range(repeats):
        model = _network(kind, depth, run.generator(f"{kind} {depth} {number}"))
        for module in model.modules():
            if hasattr(module, "momentum"):
                module.momentum = 1.0  # type: ignore[assignment]
        with torch.no_grad():
            model.train()(line)  # which sets the statistics
        reading = shattering(model.eval(), ends, num_points=POINTS, num_paths=1, num_lags=LAGS)
        rows.append(reading.details["autocorrelation"])
    return np.array(rows)


def _picture(run: Running, curves: dict[str, Array], repeats: int) -> Picture:
    lags = list(range(LAGS + 1))
    lines = []
    for name, values in curves.items():
        mean, error = values.mean(0), 2 * values.std(0, ddof=1) / math.sqrt(repeats)
        lines.append(Series(name, lags, mean, mean - error, mean + error))
    depths = run.pick((4, 8, 16), (4, 8, 16, 32, 50))
    by_depth = []
    for name in ("plain", "batch norm", "residual, batch norm"):
        found = [_curves(run, name, depth, run.pick(4, 40))[:, 1] for depth in depths]
        found.append(curves[name][:, 1])
        places = [*depths, DEEP]
        order = np.argsort(places)
        mean = np.array([one.mean() for one in found])[order]
        error = np.array([2 * one.std(ddof=1) / math.sqrt(len(one)) for one in found])[order]
        by_depth.append(
            Series(name, sorted(places), mean.tolist(), (mean - error).tolist(), (mean + error).tolist())
        )
    panels = [
        Panel(f"One layer, and {DEEP} layers", "lag (points of 256)", "autocorrelation", lines),
        Panel("By depth", "layers", "autocorrelation at lag 1", by_depth, x_log=True),
    ]
    caption = (
        "Derivative of the output along a line of inputs: means over random networks, two standard errors. "
        "White noise would be at 0 from lag 1 on."
    )
    return Picture(caption, panels)
