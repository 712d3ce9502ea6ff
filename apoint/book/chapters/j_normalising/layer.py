"""J3: layer norm, over the features of one observation."""

from __future__ import annotations

import torch
from torch import Tensor

from apoint.book.chapters.j_normalising.formulas import batch_norm, layer_norm
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_least, at_most, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.nn.norms import norm

OBSERVATIONS, FEATURES, EPS = 6, 8, 1e-5


@claim(
    "J3",
    "Layer norm: rows in place of columns",
    kind="identity",
    statement=r"""
    Layer norm takes mean and variance over the $d$ features of one observation,
    $$\hat x_i=\frac{x_i-\mu}{\sqrt{\sigma^2+\varepsilon}},\quad\mu=\frac1d\sum_jx_j,\quad
    \sigma^2=\frac1d\sum_j(x_j-\mu)^2,\quad z_i=\gamma_i\hat x_i+\beta_i.$$
    On a matrix of observations in rows, batch norm normalises columns and layer norm rows. So an observation
    is normalised in the same way whatever else is in its batch, in training as at test time, and a position
    of a sequence does not see those after it. With batch norm all three are false.
    """,
    refuted_by="an output that differs from the formula, or that changes with the rest of the batch, with "
    "the mode, or with later positions",
    seconds={"quick": 1, "standard": 1},
    planted={"factor": 1.08},
    details=r"""
    The last point is why batch norm is hard to use in recurrent networks and in language models: statistics
    over all positions of a sequence contain what is to be predicted. A batch norm with statistics of its own
    for each time step does not look ahead, but has none for steps later than any in training; `lstm-lm` and
    `char-transformer` refuse batch norm. The formula is the course's; its index $i$ counts features, and
    $\gamma$ and $\beta$ have one value for each. The planted error multiplies the formula by 1.08.
    """,
    references=("Ba, Kiros and Hinton (2016), Layer normalization",),
)
def rows_not_columns(run: Running, factor: float = 1.0) -> Evidence:
    """The layer against its formula, other batches, the other mode and later positions."""
    x_nd = _matrix(run)
    scale = run.generator("scale")
    gamma_d, beta_d = (torch.rand(FEATURES, generator=scale, dtype=torch.float64) for _ in range(2))
    layers = {name: norm(name, FEATURES).double() for name in ("layer", "batch")}
    with torch.no_grad():
        for layer in layers.values():
            layer.get_parameter("weight").copy_(gamma_d)
            layer.get_parameter("bias").copy_(beta_d)
    formula_nd = factor * layer_norm(x_nd, gamma_d, beta_d, EPS)
    plain_nd = layer_norm(x_nd, torch.ones(FEATURES).double(), torch.zeros(FEATURES).double(), 0.0)
    squares = factor * plain_nd.square().mean(1)
    numbers = [
        at_most("the layer apart from its formula", _apart(layers["layer"](x_nd), formula_nd), 1e-12),
        at_most("means of rows, apart from 0", float(plain_nd.mean(1).abs().max()), 1e-12),
        at_most("mean squares of rows, apart from 1", float((squares - 1).abs().max()), 1e-12),
    ]
    changes = {name: _changes(layer, x_nd) for name, layer in layers.items()}
    for place, what in enumerate(("the rest of its batch", "the mode", "later positions")):
        numbers.append(at_most(f"layer norm: change with {what}", changes["layer"][place], 0.0))
        numbers.append(at_least(f"batch norm: change with {what}", changes["batch"][place], 0.01))
    state = {name: sum(1 for _ in layer.buffers()) > 0 for name, layer in layers.items()}
    numbers.append(same("layer norm keeps running statistics", state["layer"], False))
    return Evidence(numbers, pictures=[_picture(x_nd)])


def _matrix(run: Running) -> Tensor:
    """Observations whose features differ in mean and spread."""
    drawn_nd = torch.randn(OBSERVATIONS, FEATURES, generator=run.generator("matrix"), dtype=torch.float64)
    steps_d = torch.arange(FEATURES, dtype=torch.float64)
    return drawn_nd * (0.4 + 0.2 * steps_d) + 4 * torch.sin(1.5 * steps_d)


def _apart(found: Tensor, expected: Tensor) -> float:
    return float((found.detach() - expected).abs().max())


def _changes(layer: torch.nn.Module, x_nd: Tensor) -> tuple[float, float, float]:
    """How much the first row's output changes: with other rows, in the other mode, with later positions."""
    layer.train()
    first = layer(x_nd)[0].detach()
    other_nd = torch.cat([x_nd[:1], 2 * x_nd[1:] + 1])
    batch = _apart(layer(other_nd)[0], first)
    mode = _apart(layer.eval()(x_nd)[0], first)
    layer.train()
    sequence_btd = x_nd.reshape(2, OBSERVATIONS // 2, FEATURES)
    later_btd = sequence_btd.clone()
    later_btd[:, -1] += 1.0
    ahead = _apart(layer(later_btd)[:, 0], layer(sequence_btd)[:, 0].detach())
    return batch, mode, ahead


def _picture(x_nd: Tensor) -> Picture:
    one_d, zero_d = torch.ones(FEATURES).double(), torch.zeros(FEATURES).double()
    panels = []
    for title, y_nd in (
        ("The data", x_nd),
        ("Batch norm: each column", batch_norm(x_nd, one_d, zero_d, EPS)),
    ):
        panels.append(_columns(title, "feature (column)", y_nd))
    rows = layer_norm(x_nd, one_d, zero_d, EPS)
    panels.append(_columns("Layer norm: each row", "observation (row)", rows.t()))
    caption = (
        f"One matrix of {OBSERVATIONS} observations and {FEATURES} features, its values as dots; bars are "
        "mean and standard deviation of a column, or of a row. Batch norm makes all columns alike, layer norm"
        " all rows."
    )
    return Picture(caption, panels, "weights 3.2, batch norm and layer norm")


def _columns(title: str, x: str, y_nd: Tensor) -> Panel:
    count, width = y_nd.shape
    places = list(range(1, width + 1))
    means, deviations = y_nd.mean(0), y_nd.std(0, correction=0)
    dots = Series(
        "values",
        [place + 0.2 for place in places for _ in range(count)],
        y_nd.t().flatten().tolist(),
        style="points",
    )
    bars = Series(
        "mean ± standard deviation",
        [place - 0.1 for place in places],
        means.tolist(),
        (means - deviations).tolist(),
        (means + deviations).tolist(),
        "points",
    )
    return Panel(title, x, "value (no unit)", [bars, dots])
