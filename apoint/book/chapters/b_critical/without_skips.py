"""B11c: Fixup does without normalisation and stays competitive; it does not do without skip connections."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, at_least
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.nn.initialisation import initialise
from apoint.registry import registry
from apoint.verdict import Verdict

FIRST_SEED = 100


@claim(
    "B11c",
    "A good start can stand in for normalisation, not for skip connections",
    kind="direction",
    statement=r"""
    A residual network without any normalisation that starts with Fixup, and has Fixup's scalars, reaches the
    test accuracy of the same network with batch norm up to a small margin, each at its own learning rate. It
    keeps its skip connections: without them Fixup's start has no gradient at all, and a plain network of the
    same depth with the start that is right for it, He's, falls far behind.
    """,
    refuted_by="an interval for the difference in test accuracy, Fixup less batch norm over paired seeds, "
    "that lies below the margin of $-0.01$ ($-0.02$ at the scale `standard`)",
    seconds={"quick": 20, "standard": 700},
    planted={"is_plain": True},
    erratum=Erratum(
        written="What is particular to residual networks, their skip connections, can be replaced by a good "
        "initialisation with competitive results.",
        corrected="Their normalisation can be replaced. The skip connections stay.",
        why="The paper is about residual learning without normalization. Fixup sets the last layer of each "
        "branch to 0, so that a block begins as its skip connection; without that connection it begins as 0.",
        quote="les skip connections, peuvent être remplacées par une bonne initialisation",
        place="notes 1.2.1",
    ),
    details=r"""
    At the scale `quick` residual perceptrons of 33 layers on handwritten digits, ten epochs of stochastic
    gradient descent. Learning rates were chosen with seeds 0 to 3: 0.05 for batch norm (0.1 was no better),
    0.2 for Fixup (0.05 cost it two points), 0.01 for the plain network (at 0.05 it learns nothing). At
    `standard` networks of 20 layers on small photographs; there the rates are the same for both, and the
    scalars have the rate of the weights, where the paper gives them a tenth. The margins were set before
    these seeds were run. Competitive means: the whole interval lies above minus the margin; a gap that is
    certain and smaller than the margin does not refute the claim.
    """,
    references=(
        "Zhang, Dauphin and Ma (2019), Fixup initialization: residual learning without normalization",
    ),
)
def competitive(run: Running, is_plain: bool = False) -> Evidence:
    """Paired training of three arms; `is_plain` puts the plain network in Fixup's place."""
    margin, pairs = run.pick(0.01, 0.02), run.pick(12, 6)
    arms = _arms(run)
    rules: dict[str, Any] = {
        "metric": "test_accuracy",
        "margin": margin,
        "looks": (pairs,),
        "max_pairs": pairs,
        "first_seed": FIRST_SEED,
    }
    plain = run.compare(arms["batch norm"], {}, arms["plain"], **rules)
    fixup = plain if is_plain else run.compare(arms["batch norm"], {}, arms["Fixup"], **rules)
    numbers = [_not_inferior("test accuracy, Fixup less batch norm", fixup, margin)]
    written = [
        _not_inferior("test accuracy, no skip connections less batch norm", plain, margin),
        at_least("largest gradient at Fixup's start without skip connections", _largest_gradient(run), 1e-12),
    ]
    verdicts = {"Fixup": fixup, "no skip connections": plain}
    return Evidence(numbers, written, [_picture(verdicts, margin)], would_take="more pairs of seeds")


def _not_inferior(name: str, verdict: Verdict, margin: float) -> Number:
    low, high = verdict.interval
    holds = True if low >= -margin else False if high < -margin else None
    said = f"95 % interval {low:.3g} to {high:.3g} over {verdict.pairs} pairs; verdict {verdict.outcome}"
    return Number(name, verdict.effect, f"surely above {-margin:g}", holds, None, said)


def _arms(run: Running) -> dict[str, dict[str, Any]]:
    if run.scale == "quick":
        shared: dict[str, Any] = {"data": "digits", "batch_size": 32, "epochs": 10}
        model: dict[str, Any] = {"name": "residual-mlp", "depth": 16, "width": 48}
        plain: dict[str, Any] = {"name": "mlp", "depth": 33, "width": 48}
        optimizer, rates = "sgd", (0.05, 0.2, 0.01)
    else:
        data = run.images("cifar-10", size=16, train=10_000, test=4_000)
        shared = {
            "data": data,
            "batch_size": 128,
            "epochs": 10,
            "schedule": {"name": "cosine", "warmup": "5%"},
        }
        model = {"name": "resnet-cifar", "depth": 20, "width": 8}
        plain = {**model, "norm": "none", "shortcut": "none"}
        optimizer, rates = "momentum", (0.05, 0.05, 0.01)

    def arm(model: dict[str, Any], init: str, lr: float) -> dict[str, Any]:
        spec = {"name": optimizer, "lr": lr}
        return {
            "name": "competitive",
            "model": model,
            "init": init,
            "optimizer": spec,
            "evaluate_every": "100%",
            **shared,
        }

    return {
        "batch norm": arm({**model, "norm": "batch"}, "he", rates[0]),
        "Fixup": arm({**model, "norm": "none", "fixup": True}, "fixup", rates[1]),
        "plain": arm(plain, "he", rates[2]),
    }


def _largest_gradient(run: Running) -> float:
    """Of all weights of layers, the head's included, in a network whose skip connections are taken out."""
    spec = {"name": "resnet-cifar", "depth": 8, "width": 4, "norm": "none", "fixup": True, "shortcut": "none"}
    model: nn.Module = registry("model").build(spec, 1, 10, 8)
    generator = run.generator("gradient")
    initialise(model, "fixup", generator=generator)
    x = torch.randn(16, 1, 8, 8, generator=generator)
    y = torch.randint(10, (16,), generator=generator)
    weights = [p for p in model.parameters() if p.dim() > 1]
    gradients = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), weights)
    return max(float(gradient.abs().max()) for gradient in gradients)


def _picture(verdicts: dict[str, Verdict], margin: float) -> Picture:
    places = list(range(len(verdicts)))
    effects = [verdict.effect for verdict in verdicts.values()]
    low = [verdict.interval[0] for verdict in verdicts.values()]
    high = [verdict.interval[1] for verdict in verdicts.values()]
    panel = Panel(
        "Against the residual network with batch norm",
        "network",
        "difference in test accuracy",
        [
            Series("mean of pairs", places, effects, low, high, "points"),
            Series("margin", [-0.4, places[-1] + 0.4], [-margin, -margin], style="dashed"),
        ],
        x_names=list(verdicts),
    )
    return Picture("Paired seeds; bars are 95 % intervals.", [panel])
