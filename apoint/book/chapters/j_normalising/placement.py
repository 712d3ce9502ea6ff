"""J5: norms before or after the sum of a residual branch, and the gradients at the start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, agrees, at_least, at_most
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.models.char_transformer import CharTransformer, char_transformer
from apoint.models.transformer import Placement
from apoint.nn.residual import Residual
from apoint.probes.gradients import gradient_norms

DEPTHS = (2, 4, 8, 16, 32)
PROFILED = 16
VOCABULARY, CONTEXT, SEQUENCES = 64, 8, 4
PLACEMENTS: tuple[Placement, ...] = ("post", "pre")
STATIONS: dict[Placement, tuple[str, ...]] = {
    "post": ("input", "attention", "sum", "norm", "feed-forward", "sum", "norm"),
    "pre": ("input", "norm", "attention", "sum", "norm", "feed-forward", "sum"),
}


@dataclass(frozen=True)
class _Start:
    """One network before training.

    Attributes:
        last: Norm of the gradient in the last feed-forward layer's second matrix, mean over positions.
        squares: Mean square of the hidden state after each block.
    """

    last: float
    squares: list[float]


@claim(
    "J5",
    "Gradients before training, pre-norm and post-norm",
    kind="size",
    statement=r"""
    A transformer normalises after each sum (post-norm, $N(x+B(x))$) or inside each branch, directly before
    attention and feed-forward (pre-norm, $x+B(N(x))$, and one norm at the end). Before training, the gradient
    of the last feed-forward layer does not depend on the number $L$ of blocks in a post-norm transformer, and
    falls as $L^{-1/2}$ in a pre-norm one. The reason is that with pre-norm the hidden state grows: its mean
    square after $l$ blocks lies between $1+l/2$ and $1+3l/2$, and the last norm divides the gradient by its
    root. With post-norm the mean square is 1 after every block.
    """,
    refuted_by="slopes of the logarithm of the gradient in ln L that differ from 0 and -1/2 by more than "
    "three standard errors, or a mean square outside its bounds",
    seconds={"quick": 6, "standard": 100},
    planted={"factor": 1.08},
    details=r"""
    The setting of Xiong et al.: one head, feed-forward layers as wide as the model, ReLU, weights of variance
    $1/d$, embeddings of variance 1, no biases at first, and random tokens with random targets under
    cross-entropy. The loss matters: the mean square of the output would be constant under post-norm and have
    no gradient at all. The norm at the end of pre-norm matters too, since without it the two kinds are not on
    one scale. The theorem is about the loss at one position, so the norm is taken for each position and then
    averaged. The gradient of a whole batch also counts how alike positions become in deep networks: in a
    trial with feed-forward layers four times as wide its slopes were near 0.2 and -0.35. The planted error
    multiplies slopes and mean squares by 1.08.

    The first figure shows where the norms stand in a block, with the size of the signal at each place; the
    second has the gradient over depth and over the layers. Over the layers it is flat here with post-norm and
    falls towards the output with pre-norm; in the paper's translation model it rises and is flat. Nothing is
    claimed about that.
    """,
    references=("Xiong et al. (2020), On layer normalization in the transformer architecture, theorem 1",),
)
def gradients_at_start(run: Running, factor: float = 1.0) -> Evidence:
    """Networks of several depths before training; `factor` multiplies slopes and mean squares."""
    width, count = run.pick(64, 256), 10
    found: dict[Placement, dict[int, list[_Start]]] = {}
    for placement in PLACEMENTS:
        run.say(f"gradients, {placement}-norm")
        found[placement] = {
            depth: [_start(run, placement, depth, width, number) for number in range(count)]
            for depth in DEPTHS
        }
    post, pre = (_slope(found[placement], factor) for placement in PLACEMENTS)
    by_square = _slope(found["pre"], factor, against_square=True)
    deep = np.mean([one.squares for one in found["pre"][DEPTHS[-1]]], axis=0) * factor
    blocks = np.arange(1, DEPTHS[-1] + 1)
    numbers = [
        agrees("slope of ln gradient in ln L, post-norm", *post, 0.0),
        agrees("slope of ln gradient in ln L, pre-norm", *pre, -0.5),
        agrees("slope in the logarithm of the last mean square, pre-norm", *by_square, -0.5),
        at_least(
            "pre-norm: least of (mean square - 1)/l over the blocks", float(min((deep - 1) / blocks)), 0.5
        ),
        at_most("pre-norm: largest of (mean square - 1)/l", float(max((deep - 1) / blocks)), 1.5),
        at_most(
            "post-norm: mean square after a block, apart from 1",
            max(abs(factor * square - 1) for one in found["post"][DEPTHS[-1]] for square in one.squares),
            1e-3,
        ),
    ]
    return Evidence(numbers, pictures=[_placement_picture(run, width), _gradient_picture(run, found, width)])


def _model(run: Running, placement: Placement, depth: int, width: int, number: int) -> CharTransformer:
    generator = run.generator(f"{placement} {depth} {number}")
    model = char_transformer(
        VOCABULARY,
        CONTEXT,
        depth=depth,
        width=width,
        num_heads=1,
        placement=placement,
        tied=False,
        activation="relu",
        expansion=1.0,
    )
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() == 2:
                std = 1.0 if name == "embedding.weight" else value.shape[1] ** -0.5
                value.normal_(0.0, 0.0 if "positions" in name else std, generator=generator)
            elif name.endswith("bias"):
                value.zero_()
    return model


def _start(run: Running, placement: Placement, depth: int, width: int, number: int) -> _Start:
    model = _model(run, placement, depth, width, number)
    tokens, targets = _batch(run, number)
    squares: list[float] = []
    kept: dict[str, Tensor] = {}
    blocks = list(model.blocks.children())[: 2 * depth]
    for block in blocks[1::2]:
        block.register_forward_hook(
            lambda _, __, given: squares.append(float(given.detach().square().mean()))
        )
    contracts = [part for name, part in model.named_modules() if name.endswith(".contract")]

    def keep(_: nn.Module, inputs: tuple[Tensor, ...], given: Tensor) -> None:
        given.retain_grad()
        kept.update(hidden=inputs[0].detach(), given=given)

    contracts[-1].register_forward_hook(keep)
    loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), reduction="sum")
    loss.backward()  # type: ignore[no-untyped-call]
    arriving = kept["given"].grad
    assert arriving is not None
    # The positions do not meet again behind the last feed-forward layer: each gradient is an outer product.
    last = float((arriving.norm(dim=-1) * kept["hidden"].norm(dim=-1)).mean())
    return _Start(last, squares)


def _over_layers(run: Running, placement: Placement, width: int, number: int) -> list[float]:
    """The gradient of a batch in each feed-forward layer's second matrix and bias, by the probe."""
    model = _model(run, placement, PROFILED, width, number)

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    norms = gradient_norms(model, _batch(run, number), loss).per_layer
    return [norm for name, norm in norms.items() if name.endswith(".contract")]


def _batch(run: Running, number: int) -> tuple[Tensor, Tensor]:
    draw = torch.randint(VOCABULARY, (2, SEQUENCES, CONTEXT), generator=run.generator(f"tokens {number}"))
    return draw[0], draw[1]


def _slope(
    found: dict[int, list[_Start]], factor: float, against_square: bool = False
) -> tuple[float, float]:
    """The slope of a line through logarithms, and its standard error."""
    pairs = [
        (one.squares[-1] if against_square else depth, one.last)
        for depth, rows in found.items()
        for one in rows
    ]
    x, y = np.log(np.array(pairs)).T
    line, covariance = np.polyfit(x, y, 1, cov=True)
    return factor * float(line[0]), float(covariance[0, 0] ** 0.5)


@torch.no_grad()
def _stations(run: Running, placement: Placement, width: int) -> list[float]:
    """The root mean square at each place of the fourth of eight blocks."""
    model = _model(run, placement, 8, width, 0)
    x = model.positions(model.embedding(_batch(run, 0)[0]))
    sizes: list[float] = []
    for place, block in enumerate(list(model.blocks.children())[:8]):
        assert isinstance(block, Residual)
        assert block.norm is not None
        branch = block.branch(block.norm(x) if placement == "pre" else x)
        if place >= 6:
            inside = [block.norm(x), branch, x + branch]
            after = [branch, x + branch, block.norm(x + branch)]
            sizes += [_size(value) for value in (inside if placement == "pre" else after)]
            sizes = [_size(x), *sizes] if place == 6 else sizes
        x = block(x)
    return sizes


def _size(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


def _placement_picture(run: Running, width: int) -> Picture:
    panels = []
    for placement in PLACEMENTS:
        sizes = _stations(run, placement, width)
        panels.append(
            Panel(
                f"{placement.capitalize()}-norm: one block from left to right",
                "place in the block",
                "root mean square of the signal",
                [Series("", range(len(sizes)), sizes, style="bars")],
                x_names=STATIONS[placement],
            )
        )
    caption = (
        "The fourth of eight blocks before training. Post-norm: the sum is normalised, and the next branch "
    )
    caption += "and the shortcut both take what the norm gives. Pre-norm: only the branch takes it."
    return Picture(caption, panels, "weights 3.3, placement of the norm")


def _gradient_picture(run: Running, found: dict[Placement, dict[int, list[_Start]]], width: int) -> Picture:
    over_depth, over_layers = [], []
    for placement, starts in found.items():
        label = f"{placement}-norm"
        lasts = [np.array([one.last for one in rows]) for rows in starts.values()]
        over_depth.append(_series(label, list(DEPTHS), lasts))
        count = len(starts[PROFILED])
        layers = np.array([_over_layers(run, placement, width, number) for number in range(count)]).T
        over_layers.append(_series(label, list(range(1, PROFILED + 1)), list(layers)))
    panels = [
        Panel("The last feed-forward layer", "blocks L", "gradient norm", over_depth, x_log=True, y_log=True),
        Panel(
            f"All layers of {PROFILED} blocks", "block", "gradient norm, whole batch", over_layers, y_log=True
        ),
    ]
    return Picture("Before training. Means over networks with two standard errors.", panels, "weights 3.3")


def _series(label: str, places: list[int], rows: list[np.ndarray]) -> Series:
    means = [float(row.mean()) for row in rows]
    errors = [2 * float(row.std(ddof=1)) / len(row) ** 0.5 for row in rows]
    low = [mean - error for mean, error in zip(means, errors, strict=True)]
    high = [mean + error for mean, error in zip(means, errors, strict=True)]
    return Series(label, places, means, low, high)
