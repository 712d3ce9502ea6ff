"""J3b: small batches break batch norm and not layer norm; J3c: layer norm in an LSTM."""

from __future__ import annotations

from typing import Any

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_most, ruled
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.verdict import Verdict

RECIPE: dict[str, Any] = {
    "data": "digits",
    "model": {"name": "mlp", "depth": 2, "width": 64},
    "init": "he",
    "optimizer": {"name": "adam", "lr": 3e-3},
    "evaluate_every": "100%",
}
LARGE = 64
FIRST_SEED = 100


@claim(
    "J3b",
    "Small batches break batch norm, not layer norm",
    kind="direction",
    statement=r"""
    A mean and a variance over two or four examples are poor estimates. In batches of 2 and 4 a network with
    layer norm ends with a lower test loss than the same network with batch norm, after the same number of
    updates; in batches of 64 the difference is less than a fifth of that at 2.
    """,
    refuted_by="a verdict other than better for layer norm in batches of 2 or 4, or a difference in batches "
    "of 64 that exceeds a fifth of that in batches of 2",
    seconds={"quick": 8, "standard": 300},
    planted={"is_swapped": True},
    details=r"""
    A perceptron on digits, Adam, 400 updates; at the scale `standard` Fashion-MNIST, 2,000 updates and more
    sizes. In batches of 2, batch norm maps each pair of values to 1 and -1, up to $\varepsilon$: only their
    order is left. Setting and bars were chosen on seeds 0 to 5, where batch norm was the better of the two in
    batches of 64; the claim does not ask for that. The rate is the same for all sizes.
    """,
    references=(
        "Ba, Kiros and Hinton (2016), Layer normalization, section 6.6",
        "Wu and He (2018), Group normalization",
    ),
)
def small_batches(run: Running, is_swapped: bool = False) -> Evidence:
    """Layer norm against batch norm at several batch sizes; `is_swapped` takes one for the other."""
    norms = ("layer", "batch") if is_swapped else ("batch", "layer")
    sizes = run.pick((2, 4, LARGE), (2, 4, 8, 16, LARGE))
    rules: dict[str, Any] = {"metric": "test_loss", "looks": run.pick((6, 12), (6, 12)), "max_pairs": 12}
    found: dict[int, Verdict] = {}
    for size in sizes:
        run.say(f"batches of {size}")
        recipe = {**RECIPE, "batch_size": size, "steps": run.pick(400, 2000)}
        recipe["model"] = {**RECIPE["model"], "norm": norms[0]}
        if run.scale != "quick":
            recipe["data"] = run.images("fashion-mnist", size=14, train=10_000, test=4_000)
        found[size] = run.compare(recipe, {"model.norm": norms[1]}, first_seed=FIRST_SEED, **rules)
    numbers = [
        ruled(f"batches of {size}: loss saved by layer norm", found[size], "better") for size in (2, 4)
    ]
    share = abs(found[LARGE].effect / found[2].effect)
    numbers.append(at_most(f"difference in batches of {LARGE}, by that in batches of 2", share, 0.2))
    return Evidence(numbers, pictures=[_picture(found)], would_take="more pairs of seeds")


def _picture(found: dict[int, Verdict]) -> Picture:
    effects = Series(
        "",
        list(found),
        [verdict.effect for verdict in found.values()],
        [verdict.interval[0] for verdict in found.values()],
        [verdict.interval[1] for verdict in found.values()],
        "points",
    )
    zero = Series("", [min(found), max(found)], [0.0, 0.0], style="dashed")
    panel = Panel(
        "Layer norm in place of batch norm",
        "batch size (examples)",
        "test loss saved (nats)",
        [effects, zero],
        x_log=True,
    )
    return Picture("95 % intervals over paired seeds; above 0 layer norm is better.", [panel])


LSTM: dict[str, Any] = {
    "data": {"name": "python-docs", "context": 16, "stride": 16, "test_share": 0.02},
    "model": {"name": "lstm-lm", "depth": 2, "width": 32, "norm": "none"},
    "init": "as-built",
    "optimizer": {"name": "adam", "lr": 1e-2},
    "schedule": {"name": "cosine", "warmup": "10%"},
    "batch_size": 16,
    "evaluate_every": "100%",
}


@claim(
    "J3c",
    "Layer norm in an LSTM",
    kind="direction",
    statement=r"""
    Layer norm needs no batch and no later time step, so it can be used in a recurrent network. An LSTM
    language model of two layers with layer norm on the input of each layer learns faster: after the same
    number of updates its test loss is lower than without a norm.
    """,
    refuted_by="a verdict in test loss of worse or equivalent over paired seeds",
    seconds={"quick": 8, "standard": 1000},
    planted={"is_swapped": True},
    details=r"""
    Characters of Python's own documentation, two layers of 32 units, 100 updates with Adam; at the scale
    `standard` 128 units and 3,000 updates. This is the model `lstm-lm` with `norm: layer`, which normalises
    what enters a layer at each step. Ba et al. put the norm inside the recurrence, on the sums of the gates
    and on the cell, which is not what is tested here. The setting was chosen on seeds 0 to 5. Rate and
    schedule are the same for both and were not tuned, so the claim is about the speed at this rate, and not
    about the best loss of each.
    """,
    references=("Ba, Kiros and Hinton (2016), Layer normalization, section 3.1",),
)
def in_an_lstm(run: Running, is_swapped: bool = False) -> Evidence:
    """Paired training with and without layer norm; `is_swapped` takes one for the other."""
    norms = ("layer", "none") if is_swapped else ("none", "layer")
    model = {**LSTM["model"], "norm": norms[0], "width": run.pick(32, 128)}
    recipe = {**LSTM, "model": model, "steps": run.pick(100, 3000)}
    verdict = run.compare(
        recipe,
        {"model.norm": norms[1]},
        metric="test_loss",
        looks=(6, 10),
        max_pairs=10,
        first_seed=FIRST_SEED,
    )
    return Evidence(
        [ruled("loss saved by layer norm (nats a character)", verdict, "better")],
        would_take="more pairs of seeds, or longer training",
    )
