"""A10: Fixup, which starts deep residual networks without normalisation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from apoint.book.chapters.a_signal.measured import mean_and_error
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_most, close, ruled
from apoint.book.running import Running
from apoint.nn.initialisation import initialise
from apoint.nn.residual import Residual
from apoint.registry import registry

WIDTH = 128


@claim(
    "A10",
    "What Fixup does to a residual network at its start",
    kind="identity",
    statement=r"""
    A residual block $x+W_2\max(W_1x,0)$ under He's initialisation doubles the mean square of the signal, so
    that a network of $L$ blocks without normalisation starts with outputs $2^L$ times too large. Fixup sets
    the last layer of every branch and the head to 0 and multiplies the other layers of a branch of $m$ layers
    by $L^{-1/(2m-2)}$: every block starts as the identity, the signal is kept exactly at any depth, and what
    one step of descent changes in the output does not grow with $L$.
    """,
    refuted_by="a mean square that does not double per block under He's law or changes under Fixup; a "
    "factor on a branch of two, three or four layers other than $L^{-1/(2m-2)}$; or a first step whose "
    "effect "
    "grows with depth",
    seconds={"quick": 0.5, "standard": 4},
    planted={"factor": 1.05},
    details=r"""
    The factor is read off the weights of networks of 9 and 25 branches with two, three and four layers each:
    with two layers alone $L^{-1/m}$ could not be told from it.
    The effect of a step is measured on the outputs: one step of plain descent on the cross-entropy of random
    inputs and labels, with a rate of 0.01, in networks of 4 and of 32 blocks. As the head is 0 at first, the
    first step moves the head alone; the check takes two, so that the branches' last layers move too. Under
    He's law the same ratio is astronomically large.
    """,
    references=(
        "Zhang, Dauphin and Ma (2019), Fixup initialization: residual learning without normalization",
    ),
)
def at_the_start(run: Running, factor: float = 1.0) -> Evidence:
    """Signals by block, factors on weights and effects of steps; `factor` multiplies Fixup's own."""
    numbers: list[Number] = []
    networks = run.pick(12, 100)
    for depth in run.pick((6,), (6, 20)):
        doubled = np.array([_growth("he", depth, run.generator(f"he {n} {depth}")) for n in range(networks)])
        mean, error = mean_and_error(doubled / 2**depth)
        # Means over weights are exact; the square of one network's signal strays as in A8.
        numbers.append(agrees(f"growth through {depth} blocks over 2^{depth}, He", mean, error, 1.0))
        kept = [_growth("fixup", depth, run.generator(f"fixup {n}")) for n in range(3)]
        numbers.append(close(f"growth through {depth} blocks, Fixup", max(kept), 1.0, 1e-12))
    numbers += [_factor(run, depth, layers, factor) for layers in (2, 3, 4) for depth in (9, 25)]
    effects = [_effect("fixup", depth, run.generator("step")) for depth in (4, 32)]
    numbers.append(at_most("effect of two steps, 32 blocks over 4", effects[1] / effects[0], 2.0))
    return Evidence(numbers)


def _model(init: str, depth: int, generator: torch.Generator) -> nn.Module:
    fixed = init == "fixup"
    spec = {"name": "residual-mlp", "depth": depth, "width": WIDTH, "norm": "none", "fixup": fixed}
    model: nn.Module = registry("model").build(spec, WIDTH, 10).double()
    initialise(model, init, generator=generator)
    return model


def _growth(init: str, depth: int, generator: torch.Generator) -> float:
    """The mean square after all blocks over that before them."""
    blocks = _model(init, depth, generator).get_submodule("blocks")
    x = torch.randn(16, WIDTH, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        return float(blocks(x).square().mean() / x.square().mean())


def _factor(run: Running, depth: int, layers: int, factor: float) -> Number:
    """The mean square of the weights in all branches, without the last layers, over He's 2/n."""
    branches = []
    for _ in range(depth):
        inner = [part for _ in range(layers - 1) for part in (nn.Linear(32, 32), nn.ReLU())]
        branches.append(nn.Sequential(*inner, nn.Linear(32, 32)))
    blocks = [Residual(branch, placement="none") for branch in branches]
    model = nn.Sequential(*blocks, nn.Linear(32, 10)).double()
    initialise(model, "fixup", generator=run.generator(f"factor {depth} {layers}"))
    linear = [[part for part in branch if isinstance(part, nn.Linear)] for branch in branches]
    squares = (
        torch.stack([layer.weight.detach() for group in linear for layer in group[:-1]]).square() * 32 / 2
    )
    error = float(squares.std() / squares.numel() ** 0.5)
    expected = (factor * depth ** (-1 / (2 * layers - 2))) ** 2
    return agrees(f"variance over He's, L = {depth}, m = {layers}", float(squares.mean()), error, expected)


def _effect(init: str, depth: int, generator: torch.Generator) -> float:
    """The root mean square change of the outputs by two steps of descent."""
    model = _model(init, depth, generator)
    x = torch.randn(64, WIDTH, generator=generator, dtype=torch.float64)
    y = torch.randint(10, (64,), generator=generator)
    start = _outputs(model, x)
    parameters = list(model.parameters())
    for _ in range(2):
        loss = nn.functional.cross_entropy(model(x), y)
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.data -= 0.01 * gradient
    return float((_outputs(model, x) - start).square().mean().sqrt())


def _outputs(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        outputs: Tensor = model(x)
    return outputs


@claim(
    "A10b",
    "Fixup trains without normalisation where He's law diverges",
    kind="direction",
    statement=r"""
    A residual perceptron of sixteen blocks without any normalisation diverges in its first steps when it is
    initialised by He's law, and learns with Fixup, at the same rate.
    """,
    refuted_by="a verdict other than better for Fixup in test accuracy",
    seconds={"quick": 5, "standard": 60},
    planted={"swapped": True},
    details=r"""
    Handwritten digits, 48 units per layer, stochastic gradient descent with a rate of 0.05. A replica that
    diverges counts with the accuracy of chance, as the record of the comparison says. A far smaller rate
    would let He's network train as well: the claim is about one rate for all depths, as Fixup promises.
    """,
    references=(
        "Zhang, Dauphin and Ma (2019), Fixup initialization: residual learning without normalization",
    ),
)
def trains(run: Running, swapped: bool = False) -> Evidence:
    """Paired training of both arms; `swapped` exchanges them."""
    arms = {"he": {"init": "he", "model.fixup": False}, "fixup": {"init": "fixup", "model.fixup": True}}
    before, after = ("fixup", "he") if swapped else ("he", "fixup")
    recipe = {
        "name": "residual-without-norm",
        "data": "digits",
        "model": {
            "name": "residual-mlp",
            "depth": 16,
            "width": 48,
            "norm": "none",
            "fixup": before == "fixup",
        },
        "init": before,
        "optimizer": {"name": "sgd", "lr": 0.05},
        "batch_size": 32,
        "epochs": run.pick(1, 8),
    }
    verdict = run.compare(recipe, arms[after], margin=0.02, looks=(8, 16))
    failed = verdict.failures.only_candidate if swapped else verdict.failures.only_baseline
    remark = f"Of {verdict.pairs} replicas with He's initialisation {failed} diverged."
    return Evidence([ruled("gain in test accuracy by Fixup", verdict, "better")], remark=remark)
