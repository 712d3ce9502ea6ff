"""C6b: stochastic depth is not for ResNets alone; and what is left when a branch is skipped."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, at_least, at_most, same
from apoint.book.running import Running
from apoint.nn.dropout import StochasticDepth
from apoint.registry import registry

RATE = 0.5
IMAGES = {"in_channels": 3, "num_classes": 10, "input_size": (32, 32)}
NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "vit": (IMAGES, {"depth": 3, "width": 16, "num_heads": 2}),
    "swin-micro": (IMAGES, {}),
    "convnext-micro": (IMAGES, {}),
    "residual-mlp": ({"in_features": 3 * 32 * 32, "num_classes": 10}, {"depth": 3, "width": 16}),
    "char-transformer": ({"vocab_size": 20, "context": 16}, {"depth": 3, "width": 16, "num_heads": 2}),
}
"""Networks that are no ResNets: what the data say of them, and settings that keep them small."""


@claim(
    "C6b",
    "Stochastic depth outside of ResNets",
    kind="identity",
    statement=r"""
    Stochastic depth needs blocks of the form $x+B(x)$ and nothing else. Transformers are made of them, for
    images and for text, and so are ConvNeXt and residual perceptrons: in all of them the last branch is
    skipped with the probability asked for, earlier ones in proportion, and a skipped branch leaves its input
    as it was.
    """,
    refuted_by="a network of another family without such branches, or one whose output, with all branches "
    "skipped, still depends on their weights",
    seconds={"quick": 1, "standard": 2},
    planted={"factor": 1.05},
    erratum=Erratum(
        written="Stochastic depth is for ResNets only and has no equivalent for other networks.",
        corrected="It works in every network with residual branches, transformers among them.",
        why="The next sentence of the source names a transformer that uses it, Gato, which skips attention "
        "and feed-forward layers. The same under other names: DropPath in Swin, ViT and ConvNeXt, LayerDrop "
        "in language models.",
        quote="Cette méthode est unique pour les ResNet, et il n'existe pas d'équivalent",
        place="notes 1.3",
    ),
    details=r"""
    Each network is built with a rate of one half. Then all branches are dropped, by a rate of nearly 1 and a
    depth share of 1, and the weights of every branch are changed: the output must stay the same to the bit.
    """,
    references=(
        "Reed et al. (2022), A generalist agent, section on training",
        "Fan, Grave and Joulin (2020), Reducing transformer depth on demand with structured dropout",
        "Liu et al. (2021), Swin transformer",
        "Larsson, Maire and Shakhnarovich (2017), FractalNet, where DropPath comes from",
    ),
)
def elsewhere(run: Running, factor: float = 1.0) -> Evidence:
    """Networks of five families, with branches at random and with none; `factor` multiplies the rate."""
    found: dict[str, int] = {}
    numbers = []
    for name, (facts, settings) in NETWORKS.items():
        model = registry("model").build({"name": name, **settings, "stochastic_depth": RATE}, **facts)
        drops = [module for module in model.modules() if isinstance(module, StochasticDepth)]
        found[name] = len(drops)
        last = max(1 - drop.survival for drop in drops)
        numbers.append(at_most(f"{name}: rate of the last branch less 0.5", abs(factor * last - RATE), 1e-9))
        with torch.random.fork_rng(devices=[]):
            differing = _differing(model, drops, facts, run)
        numbers.append(same(f"{name}: outputs without branches that differ", differing, 0))
    numbers.append(at_least("families with branches to skip", sum(count > 0 for count in found.values()), 5))
    written = [same("families other than ResNets in which it works", len(found), 0)]
    said = ", ".join(f"{name} {count}" for name, count in found.items())
    return Evidence(numbers, written, remark=f"Branches that may be skipped: {said}.")


@torch.no_grad()
def _differing(model: nn.Module, drops: list[StochasticDepth], facts: dict[str, Any], run: Running) -> int:
    """How many outputs change when the weights of skipped branches are changed."""
    x = _example(facts, run)
    for drop in drops:
        drop.rate, drop.depth_share, drop.mode = 1 - 1e-12, 1.0, "batch"
    torch.manual_seed(run.generator("draws").initial_seed())
    before = model.train()(x)
    for module in model.modules():
        branch = getattr(module, "branch", None)
        if isinstance(branch, nn.Module):
            for weight in branch.parameters():
                weight.add_(1.0)
    return int((model(x) != before).sum())


def _example(facts: dict[str, Any], run: Running) -> Tensor:
    generator = run.generator("example")
    if "vocab_size" in facts:
        return torch.randint(facts["vocab_size"], (2, facts["context"]), generator=generator)
    return torch.randn(2, 3, 32, 32, generator=generator)
