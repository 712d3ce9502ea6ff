"""H7b: verdicts on the steps from ResNet to ConvNeXt, on small images."""

from __future__ import annotations

import itertools
from typing import Any

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, ruled
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.models.resnet_to_convnext import Step, steps
from apoint.verdict import Verdict

EXPECTED = {"depthwise convolution": "worse", "more channels": "better"}
RECIPE: dict[str, Any] = {
    "name": "road",
    "data": {"name": "procedural", "size": 16, "difficulty": 0.6},
    "init": "as-built",
    "optimizer": {"name": "adamw", "lr": 3e-3, "weight_decay": 0.05},
    "schedule": {"name": "cosine", "warmup": "10%"},
    "batch_size": 32,
    "evaluate_every": "100%",
}


@claim(
    "H7b",
    "What a depthwise convolution costs, channels pay back",
    kind="direction",
    statement=r"""
    Of all steps from ResNet to ConvNeXt two change the most. Convolutions that look at each channel alone,
    with half of the multiply-adds, make the network worse; one and a half times as many channels make it
    better. So it is in the paper on ImageNet (79.5 to 78.3 and to 80.5 percent), and so on small images too.
    """,
    refuted_by="a verdict in test loss of better or equivalent for the first step, or of worse or equivalent "
    "for the second",
    seconds={"quick": 55, "standard": 3600},
    planted={"backwards": True},
    details=r"""
    Each step is compared with the network just before it on the road, over paired seeds: a small network with
    five blocks on textured blobs of $16\times16$ pixels, AdamW, a cosine, the same for both. At the scale
    `standard` the images are 10,000 of CIFAR-10 at $16\times16$ pixels, seen five times, and every step has
    its verdict, in the figure and the remark; what helps after 300 epochs of ImageNet need not help here, and
    only the two large steps are claimed. `recipes/road-micro.yaml` takes the same road on
    Fashion-MNIST. The planted error walks it backwards.
    """,
    references=("Liu et al. (2022), A ConvNet for the 2020s, table 10",),
)
def verdicts(run: Running, backwards: bool = False) -> Evidence:
    """Paired training before and after steps; `backwards` takes each step back instead."""
    looks = run.pick((8,), (8, 16))
    road, rules = steps(), {"metric": "test_loss", "looks": looks, "max_pairs": looks[-1]}
    chosen = [
        (before, step)
        for before, step in itertools.pairwise(road)
        if step.change and (run.scale != "quick" or step.name in EXPECTED)
    ]
    found: dict[str, Verdict] = {}
    for before, step in chosen:
        run.say(step.name)
        first, second = (step, before) if backwards else (before, step)
        found[step.name] = run.compare(_recipe(first, run), {}, _recipe(second, run), **rules)
    numbers = [ruled(f"{name}, loss saved", found[name], EXPECTED[name]) for name in EXPECTED]
    words = "; ".join(f"{name} {verdict.outcome}" for name, verdict in found.items())
    return Evidence(
        numbers,
        pictures=[_picture(found)],
        remark=f"Verdicts: {words}.",
        would_take="more pairs of seeds, or longer training",
    )


def _recipe(step: Step, run: Running) -> dict[str, Any]:
    model = {"name": "resnet-to-convnext-micro", **step.settings}
    if run.scale == "quick":
        return {**RECIPE, "model": model, "steps": 100}
    images = run.images(size=16, train=10_000, test=4_000)
    return {**RECIPE, "data": images, "model": model, "batch_size": 64, "epochs": 5}


def _picture(found: dict[str, Verdict]) -> Picture:
    effects = Series(
        "",
        range(len(found)),
        [verdict.effect for verdict in found.values()],
        [verdict.interval[0] for verdict in found.values()],
        [verdict.interval[1] for verdict in found.values()],
        style="points",
    )
    panel = Panel("What each step saves", "step", "test loss saved, nats", [effects], x_names=list(found))
    return Picture("With 95 % intervals over paired seeds; above 0 is better.", [panel])
