"""J5b: post-norm transformers need a warm-up, pre-norm ones do not."""

from __future__ import annotations

import copy
from typing import Any

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, ruled
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.verdict import Verdict

RECIPE: dict[str, Any] = {
    "data": {"name": "python-docs", "context": 16, "stride": 16, "test_share": 0.02},
    "model": {"name": "char-transformer", "depth": 6, "width": 32, "num_heads": 2, "tied": False},
    "init": "glorot",
    "optimizer": {"name": "adam", "lr": 3e-3},
    "schedule": {"name": "trapezoidal", "warmup": "0%", "decay": "20%"},
    "batch_size": 16,
    "evaluate_every": "100%",
}
WARM_UP = "40%"
FIRST_SEED = 100


@claim(
    "J5b",
    "Pre-norm trains without a warm-up",
    kind="direction",
    statement=r"""
    At a rate where it matters, a post-norm transformer needs a warm-up: without it it ends with a higher test
    loss than with it. A pre-norm transformer trained at the same rate without any warm-up ends no higher than
    the post-norm one with its warm-up.
    """,
    refuted_by="a verdict other than better for the warm-up of post-norm, or of worse for pre-norm without "
    "warm-up against post-norm with it",
    seconds={"quick": 25, "standard": 1500},
    planted={"is_swapped": True},
    details=r"""
    Six blocks of width 32 with Glorot's initialisation on Python's own documentation, Adam at 0.003, 200
    updates; the warm-up takes 40 % of them. At the scale `standard` 8 blocks of width 64 and 1,500 updates.
    The rate was chosen on seeds 0 to 3 among 0.001 and 0.003: at 0.001 a warm-up harmed post-norm, since it
    only costs steps there (2.44 without, 2.57 with), and with PyTorch's own, smaller initial weights
    post-norm learned without a warm-up at both rates. With 8 blocks and 120 updates post-norm did not get
    beyond the frequencies of the characters, with or without a warm-up. So the need for a warm-up is one of
    depth, rate and initialisation together. The paper sees 8.45 BLEU for post-norm without warm-up, and about
    34 with it or with pre-norm. The planted error takes pre-norm for post-norm and the other way round.
    """,
    references=("Xiong et al. (2020), On layer normalization in the transformer architecture, section 3",),
)
def without_warm_up(run: Running, is_swapped: bool = False) -> Evidence:
    """Post-norm with and without warm-up, and pre-norm without; `is_swapped` exchanges the placements."""
    post, pre = ("pre", "post") if is_swapped else ("post", "pre")
    recipe = copy.deepcopy(RECIPE)
    width, depth = run.pick((32, 6), (64, 8))
    recipe["model"] |= {"width": width, "depth": depth, "placement": post}
    recipe["steps"] = run.pick(200, 1500)
    rules: dict[str, Any] = {
        "metric": "test_loss",
        "looks": run.pick((6,), (6, 12)),
        "max_pairs": run.pick(6, 12),
        "first_seed": FIRST_SEED,
    }
    run.say("warm-up of post-norm")
    warmed = run.compare(recipe, {"schedule.warmup": WARM_UP}, **rules)
    recipe["schedule"]["warmup"] = WARM_UP
    run.say("pre-norm without warm-up")
    bare = run.compare(recipe, {"schedule.warmup": "0%", "model.placement": pre}, **rules)
    numbers = [
        ruled("post-norm: loss saved by the warm-up", warmed, "better"),
        ruled(
            "loss saved by pre-norm without warm-up, against post-norm with it", bare, "better", "equivalent"
        ),
    ]
    return Evidence(numbers, pictures=[_picture(warmed, bare)], would_take="more pairs of seeds")


def _picture(warmed: Verdict, bare: Verdict) -> Picture:
    names = ["post-norm, warm-up", "pre-norm, no warm-up"]
    verdicts = (warmed, bare)
    effects = Series(
        "",
        range(2),
        [verdict.effect for verdict in verdicts],
        [verdict.interval[0] for verdict in verdicts],
        [verdict.interval[1] for verdict in verdicts],
        "points",
    )
    zero = Series("", [-0.4, 1.4], [0.0, 0.0], style="dashed")
    panel = Panel(
        "With and without a warm-up", "change", "test loss saved (nats)", [effects, zero], x_names=names
    )
    return Picture(
        "Left: against post-norm without warm-up; right: against post-norm with it. 95 % "
        "intervals over paired seeds; above 0 is better.",
        [panel],
    )
