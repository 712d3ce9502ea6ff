"""C6: the residual block, stochastic depth, the expected depth and the operations that it saves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, agrees, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.models.counting import count
from apoint.models.residual_mlp import residual_mlp
from apoint.models.resnet_cifar import resnet_cifar
from apoint.nn.dropout import StochasticDepth
from apoint.nn.residual import Residual
from apoint.theory import stochastic_depth

BLOCKS, LAST = 54, 0.5
COUNTED = 12  # blocks of the network whose operations are counted


@claim(
    "C6",
    "Stochastic depth",
    kind="size",
    statement=r"""
    A residual block gives $f(x+B(x))$, where the branch $B$ is convolution, batch norm, activation,
    convolution, batch norm, and the lower path carries $x$ unchanged. Stochastic depth keeps the branch of
    block $l$ of $L$ with probability $p_l=1-\frac lL(1-p_L)$, so that the mean number of branches that run is
    $$\sum_{l=1}^Lp_l=L-\frac{(L+1)(1-p_L)}{2},$$
    40.25 of 54 for $p_L=\frac12$. A branch that is dropped for the whole batch is not computed: training is
    spared the share $\frac{L+1}{L}\cdot\frac{1-p_L}{2}$ of the blocks' operations, a quarter for
    $p_L=\frac12$, forward and backward.
    """,
    refuted_by="a block that differs from the formula, a mean depth or a number of operations counted in "
    "training passes that differs from the formula by more than three standard errors",
    seconds={"quick": 6, "standard": 60},
    planted={"factor": 1.05},
    details=r"""
    The survival probabilities are read from the 54 blocks of the 110-layer network as built, and depths are
    counted in passes through its drop modules, with branches that only count. Operations are multiply-adds,
    counted by PyTorch's own counter in forward and backward passes with drawn depths through a residual
    perceptron of 12 equal blocks; what embeds and reads out, which is never skipped, is not in the share. In
    the 110-layer network two blocks are cheaper than the others; its share of all operations follows from the
    cost of each block. The paper reports 25 % less time on its machine: a time depends on the machine, a
    count does not. With a draw for each sample instead of each batch nothing is saved, since every branch
    runs for some sample.
    """,
    references=("Huang, Sun, Liu, Sedra and Weinberger (2016), Deep networks with stochastic depth",),
)
def depth(run: Running, factor: float = 1.0) -> Evidence:
    """Blocks, depths and operations, counted; `factor` multiplies what the theory expects of them."""
    passes = run.pick(4000, 40_000)
    network = resnet_cifar(depth=110, width=1, stochastic_depth=1 - LAST)
    built = [module for module in network.modules() if isinstance(module, StochasticDepth)]
    expected = stochastic_depth.survival_probabilities(BLOCKS, LAST)
    apart = max(abs(one.survival - p) for one, p in zip(built, expected, strict=True))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.generator("depths").initial_seed())
        depths = _depths(built, passes)
        saved, error = _saved_operations(run.pick(60, 400))
    mean = factor * stochastic_depth.expected_depth(BLOCKS, LAST)
    spread = stochastic_depth.depth_variance(BLOCKS, LAST)
    saving = factor * stochastic_depth.expected_saving(BLOCKS, LAST)
    numbers = [
        at_most("block against its formula, largest difference", _block_error(run), 1e-5),
        at_most("p_l of the network as built against the formula", apart, 1e-12),
        close("sum of the p_l as built", sum(one.survival for one in built), mean, 1e-9),
        agrees("mean depth in training, L = 54", float(depths.mean()), (spread / passes) ** 0.5, mean),
        agrees("variance of the depth", float(depths.var(ddof=1)), spread * (2 / passes) ** 0.5, spread),
        agrees(
            f"share of the blocks' operations saved, L = {COUNTED}",
            saved,
            error,
            factor * stochastic_depth.expected_saving(COUNTED, LAST),
        ),
        close("share of all operations saved, ResNet-110", _saving_of_resnet(expected), saving, 0.03),
    ]
    return Evidence(numbers, pictures=[_block_picture(), _depth_picture(expected, depths)])


def _block_error(run: Running) -> float:
    """The first block of a ResNet in training, against the formula written out."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.generator("weights").initial_seed())
        model = resnet_cifar(depth=8, width=4).train()
    block = next(one for one in model.modules() if isinstance(one, Residual))
    first, norm_1, _, _, second, norm_2 = block.branch.children()
    assert isinstance(first, nn.Conv2d)
    assert isinstance(second, nn.Conv2d)
    x = torch.randn(6, 4, 8, 8, generator=run.generator("block"))

    def normalised(value: Tensor, norm: nn.Module) -> Tensor:
        mean, variance = value.mean((0, 2, 3), keepdim=True), value.var((0, 2, 3), False, keepdim=True)
        return (value - mean) / (variance + norm.eps).sqrt()  # type: ignore[operator]

    inner = normalised(F.conv2d(x, first.weight, padding=1), norm_1).relu()
    branch = normalised(F.conv2d(inner, second.weight, padding=1), norm_2)
    return float((block(x) - (x + branch).relu()).detach().abs().max())


def _depths(drops: Sequence[StochasticDepth], passes: int) -> np.ndarray:
    """How many branches ran in each pass; what a branch gives is counted only."""
    ran = 0

    def branch(value: Tensor) -> Tensor:
        nonlocal ran
        ran += 1
        return value

    found, x = [], torch.zeros(1)
    for _ in range(passes):
        ran = 0
        for drop in drops:
            drop.train()(branch, x)
        found.append(ran)
    return np.array(found, dtype=float)


def _saved_operations(passes: int) -> tuple[float, float]:
    """The share of the blocks' operations that drawn passes spare, forward and backward, with its error."""

    def cost(blocks: int, rate: float) -> float:
        model = residual_mlp(8, 4, depth=blocks, width=8, stochastic_depth=rate).train()
        with FlopCounterMode(display=False) as counter:
            model(torch.ones(2, 8)).square().sum().backward()
        return float(counter.get_total_flops())

    block = cost(2, 0.0) - cost(1, 0.0)
    full = cost(COUNTED, 0.0)
    drawn = np.array([(full - cost(COUNTED, 1 - LAST)) / (COUNTED * block) for _ in range(passes)])
    return float(drawn.mean()), float(drawn.std(ddof=1) / passes**0.5)


def _saving_of_resnet(expected: np.ndarray) -> float:
    """The expected share of all multiply-adds of the 110-layer network that is spared."""
    model, shapes = resnet_cifar(depth=110).to("meta"), list[tuple[Residual, tuple[int, ...]]]()
    for block in model.modules():
        if isinstance(block, Residual):
            block.register_forward_pre_hook(
                lambda module, inputs: shapes.append((module, tuple(inputs[0].shape[1:])))
            )
    model(torch.zeros(1, 3, 32, 32, device="meta"))
    costs = [count(block.branch, shape).whole.multiply_adds for block, shape in list(shapes)]
    return float(((1 - expected) * costs).sum() / count(model, (3, 32, 32)).whole.multiply_adds)


def _block_picture() -> Picture:
    """The block as two paths over the same stations."""
    names = ["input", "conv", "norm", "ReLU", "conv", "norm", "sum", "ReLU", "output"]
    upper = Series("branch, skipped with 1 - p", [0, 1, 2, 3, 4, 5, 6], [0, 1, 1, 1, 1, 1, 0])
    lower = Series("input, carried unchanged", [0, 6], [0, 0], style="dashed")
    after = Series("after the sum", [6, 7, 8], [0, 0, 0])
    panel = Panel(
        "A residual block",
        "what happens on the way",
        "1: branch, 0: shortcut",
        [upper, lower, after],
        x_names=names,
    )
    caption = (
        "Above: two convolutions, each with batch norm. Below: the input as it is. Stochastic depth leaves "
        "out the upper path, and the block is then the activation of its input."
    )
    return Picture(caption, [panel], "notes fig. 1.9")


def _depth_picture(expected: np.ndarray, depths: np.ndarray) -> Picture:
    law = stochastic_depth.depth_distribution(BLOCKS, LAST)
    shown = range(28, 53)
    shares = np.array([float((depths == number).mean()) for number in shown])
    errors = 2 * np.sqrt(shares * (1 - shares) / len(depths))
    low, high = (shares - errors).tolist(), (shares + errors).tolist()
    panels = [
        Panel(
            "Survival of each block",
            "block l of 54",
            "probability p_l",
            [Series("p_l = 1 - l/L (1 - p_L)", range(1, BLOCKS + 1), expected.tolist())],
        ),
        Panel(
            "Blocks that run in a training step",
            "number of blocks",
            "probability",
            [
                Series("law", shown, [law[number] for number in shown]),
                Series("counted", shown, shares.tolist(), low, high, "points"),
            ],
        ),
    ]
    caption = (
        f"The network of 110 layers with 54 blocks and p_L = 0.5. Dots: {len(depths):,} passes with two "
        "standard errors; the mean is 40.25."
    )
    return Picture(caption, panels)
