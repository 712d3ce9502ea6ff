"""C1: dropout by its definition, and its two conventions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_most, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.models.mlp import MLP, mlp
from apoint.nn.dropout import Dropout

INPUTS, WIDTHS, CLASSES, KEEP = 9, [8, 7], 4, 0.7


@claim(
    "C1",
    "Dropout",
    kind="identity",
    statement=r"""
    While training, each unit of every layer, the inputs included and the outputs not, is kept with
    probability $p$ and dropped with $1-p$, independently and anew in each pass. A pass computes the
    sub-network in which dropped units are deleted. At test time nothing is dropped and the weights behind a
    dropped layer are multiplied by $p$, so that each unit receives the mean over masks of what it received in
    training. Dividing by $p$ in training instead ("inverted dropout") is the same thing: same outputs in
    training, same outputs at test time, with weights that are $p$ times as large.
    """,
    refuted_by="outputs that differ from those of the explicit sub-network by more than rounding, a share of "
    "kept units other than $p$, a dropped output, or conventions that disagree",
    seconds={"quick": 1, "standard": 5},
    planted={"factor": 1.05},
    details=r"""
    The network is `mlp` in double precision with 9 inputs, hidden layers of 8 and 7 units and $p=0.7$. The
    masks of a pass are read from what each dropout module did to its input, and the sub-network is computed
    from submatrices of the weights alone. The mean over masks is exact for the first layer: all $2^9$ masks
    of the inputs are gone through, each with its probability. Units of later layers receive the mean only
    approximately (C2), since a mean does not pass through a ReLU.

    Seen as an ensemble, the $9+8+7=24$ units that may be dropped give $2^{24}$ sub-networks with shared
    weights: no pass in training need ever see the same one twice. Bagging trains its members apart.
    """,
    references=(
        "Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov (2014), Dropout: a simple way to "
        "prevent neural networks from overfitting",
    ),
)
def definition(run: Running, factor: float = 1.0) -> Evidence:
    """Passes against explicit sub-networks; `factor` multiplies the p of test time."""
    passes, count = run.pick(200, 2000), 32
    draw = run.generator("network")
    model = mlp(INPUTS, CLASSES, depth=2, width=WIDTHS, dropout=1 - KEEP, input_dropout=1 - KEEP).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=draw, dtype=torch.float64))
    x_BF = torch.randn(count, INPUTS, generator=draw, dtype=torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.generator("masks").initial_seed())
        found = [_masks_of_a_pass(model, x_BF) for _ in range(passes)]
    apart = [
        float((logits[0] - _deleted(model, x_BF[0], [mask[0] for mask in masks])).abs().max())
        for logits, masks in found
    ]
    numbers = [
        same("layers with dropout: the input and two hidden ones", len(found[0][1]), 3),
        at_most("pass against the explicit sub-network, largest difference", max(apart), 1e-10),
        *_shares(found),
        same("outputs that are zero", sum(int((logits == 0).sum()) for logits, _ in found), 0),
        *_mean_over_masks(model, x_BF[0], factor),
        *_conventions(model, x_BF, found[0], factor),
    ]
    return Evidence(numbers, pictures=[_picture(run)])


def _masks_of_a_pass(model: MLP, x_BF: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits of a training pass, and which units each dropout module kept."""
    kept: list[Tensor] = []

    def see(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        kept.append((output != 0) | (inputs[0] == 0))  # a unit that was zero already counts as kept

    hooks = [module.register_forward_hook(see) for module in model.modules() if isinstance(module, Dropout)]
    logits = model.train()(x_BF).detach()
    for hook in hooks:
        hook.remove()
    return logits, kept


def _linears(model: MLP) -> list[nn.Linear]:
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def _deleted(model: MLP, x_F: Tensor, masks: Sequence[Tensor]) -> Tensor:
    """The logits of the network that is left when dropped units are cut out, its weights divided by p."""
    layers, value = _linears(model), x_F[masks[0]]
    for number, layer in enumerate(layers):
        rows = masks[number + 1] if number + 1 < len(layers) else torch.ones(CLASSES, dtype=torch.bool)
        value = layer.weight[rows][:, masks[number]] @ value / KEEP + layer.bias[rows]
        if number + 1 < len(layers):
            value = value.clamp_min(0)
    return value.detach()


def _shares(found: Sequence[tuple[Tensor, list[Tensor]]]) -> list[Number]:
    """The share of inputs kept; a hidden unit may be zero without being dropped, so inputs are counted."""
    kept = torch.cat([masks[0] for _, masks in found]).double()
    error = (KEEP * (1 - KEEP) / kept.numel()) ** 0.5
    return [agrees("share of kept inputs", float(kept.mean()), error, KEEP)]


def _mean_over_masks(model: MLP, x_F: Tensor, factor: float) -> list[Number]:
    """All masks of the inputs with their probabilities, against the weights times p."""
    masks_MF = torch.tensor(list(itertools.product((0.0, 1.0), repeat=INPUTS)), dtype=torch.float64)
    chance_M = KEEP ** masks_MF.sum(1) * (1 - KEEP) ** (INPUTS - masks_MF.sum(1))
    weight = _linears(model)[0].weight.detach()
    received_M = (masks_MF * x_F) @ weight[0]
    at_rest = float(factor * KEEP * weight[0].dot(x_F))
    return [
        close("probabilities of all masks, sum", float(chance_M.sum()), 1.0, 1e-12),
        close(
            "what a unit receives, mean over masks against p·w·x",
            float(chance_M @ received_M),
            at_rest,
            1e-10,
        ),
    ]


def _conventions(model: MLP, x_BF: Tensor, seen: tuple[Tensor, list[Tensor]], factor: float) -> list[Number]:
    """The paper's dropout with weights divided by p: the same masks, the same outputs, in both modes."""
    masks = seen[1]

    def forward(value: Tensor, scale: float, dropped: bool) -> Tensor:
        layers = _linears(model)
        for number, layer in enumerate(layers):
            value = value * masks[number] if dropped else value * scale
            value = value @ (layer.weight.T / KEEP) + layer.bias
            if number + 1 < len(layers):
                value = value.clamp_min(0)
        return value.detach()

    training = (forward(x_BF, 1.0, True) - seen[0]).abs().max()
    testing = (forward(x_BF, factor * KEEP, False) - model.eval()(x_BF)).detach().abs().max()
    module = Dropout(1 - KEEP, scaling="test").eval()
    return [
        at_most("conventions in training, largest difference", float(training), 1e-10),
        at_most("conventions at test time, largest difference", float(testing), 1e-10),
        close("the module of the paper's convention at test time, x = 2", module(torch.tensor(2.0)).item(),
              2 * KEEP * factor, 1e-6),
    ]  # fmt: skip


def _picture(run: Running) -> Picture:
    sizes, random = [5, 5, 5, 3], run.random("picture")
    full = [[True] * size for size in sizes]
    kept = [(random.random(size) < 0.5).tolist() for size in sizes[:-1]] + [full[-1]]
    panels = [_network("Without dropout", sizes, full), _network("One pass with p = 0.5", sizes, kept)]
    caption = (
        "A network, and the sub-network of one pass in training. Dropped units lose all their connections; "
        "outputs are never dropped."
    )
    return Picture(caption, panels, "notes fig. 1.8")


def _network(title: str, sizes: Sequence[int], kept: Sequence[Sequence[bool]]) -> Panel:
    places = [np.arange(size) - (size - 1) / 2 for size in sizes]
    x: list[float] = []
    y: list[float] = []
    for layer in range(len(sizes) - 1):
        pairs = itertools.product(range(sizes[layer]), range(sizes[layer + 1]))
        for start, end in pairs:
            if kept[layer][start] and kept[layer + 1][end]:
                x += [layer, layer + 1, layer + 1]
                y += [places[layer][start], places[layer + 1][end], float("nan")]
    series = [Series("connection", x, y)]
    for label, state in (("unit", True), ("dropped unit", False)):
        units = [
            (layer, places[layer][k])
            for layer, size in enumerate(sizes)
            for k in range(size)
            if kept[layer][k] == state
        ]
        if units:
            series.append(Series(label, [u[0] for u in units], [u[1] for u in units], style="points"))
    return Panel(
        title, "layer", "place in the layer", series, x_names=["input", "hidden 1", "hidden 2", "output"]
    )
