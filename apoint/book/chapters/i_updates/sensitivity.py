"""I10: how much the learning rate matters beside the other settings."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running

FACTOR = 8
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
FIRST_PILOT, FIRST = 1000, 100
SETTINGS = ("learning rate", "1 − beta1", "1 − beta2", "weight decay", "batch size", "width")


@claim(
    "I10c",
    "The learning rate is the most sensitive setting",
    kind="direction",
    statement=r"""
    Around a tuned point, multiply and divide one setting at a time by 8. The test loss varies more with the
    learning rate than with each of the others: $1-\beta_1$, $1-\beta_2$, weight decay, batch size and width.
    """,
    refuted_by="a setting over whose three values the test loss has a range as large as over those of the "
    "rate, in the mean over seeds",
    seconds={"quick": 8, "standard": 240},
    planted={"claimed": "weight decay"},
    details=r"""
    A perceptron of one hidden layer on digits with AdamW, for a fixed number of updates. The rate is tuned on
    two pilot seeds over four values; the other settings begin at $\beta_1=0.9$, $\beta_2=0.999$, weight decay
    0.01, batches of 32 and 128 units. The factor, the grid and the requirement were declared before the
    first run, on seeds from 100 on. For each seed the range is the largest less the smallest loss of the
    three values, the tuned one among them; the number is the range of the rate less that of the other,
    with its standard error over seeds. A range can only be made larger by noise, so that this is in favour
    of settings that do nothing. With a fixed number of epochs in place of updates a larger batch also means
    fewer updates.

    At the scale `quick` this is not decided. The rate matters three to sixty times as much as the settings of
    AdamW and as the width. The batch size matters as much as the rate: with 120 updates a batch of 4 has
    seen 480 examples. "By far the most sensitive" holds here among what belongs to the update rule.
    """,
    references=(
        "Schmidt, Schneider and Hennig (2021), Descending through a crowded valley, ICML",
        "Godbole et al. (2023), Deep learning tuning playbook",
    ),
)
def most_sensitive(run: Running, claimed: str = "learning rate") -> Evidence:
    """Ranges of the loss over each setting; `claimed` is the setting said to matter most."""
    pilots = {
        rate: statistics.mean(_loss(run, rate, seed) for seed in (FIRST_PILOT, FIRST_PILOT + 1))
        for rate in RATES
    }
    best = min(pilots, key=lambda rate: pilots[rate])
    seeds = range(FIRST, FIRST + run.pick(4, 12))
    middle = np.array([_loss(run, best, seed) for seed in seeds])
    found: dict[str, np.ndarray] = {}
    for setting in SETTINGS:
        run.say(f"varying the {setting}")
        ends = [
            [_loss(run, best, seed, {setting: times}) for seed in seeds] for times in (1 / FACTOR, FACTOR)
        ]
        found[setting] = np.array([ends[0], middle, ends[1]])
    ranges = {setting: np.ptp(losses, axis=0) for setting, losses in found.items()}
    numbers: list[Number] = []
    for setting in SETTINGS:
        if setting != claimed:
            more = ranges[claimed] - ranges[setting]
            error = float(more.std(ddof=1) / math.sqrt(len(more)))
            ratio = f"{ranges[claimed].mean() / ranges[setting].mean():.2g} times as large"
            name = f"range over the {claimed} less that over {setting} (nats)"
            numbers.append(at_least(name, float(more.mean()), 0.0, error, ratio))
    return Evidence(numbers, pictures=[_picture(found, best)], would_take="more seeds")


def _loss(run: Running, rate: float, seed: int, times: dict[str, float] | None = None) -> float:
    """The test loss of one training; that of a guess for a run that diverges."""
    from apoint.engine import train
    from apoint.errors import DivergedError

    factor = dict.fromkeys(SETTINGS, 1.0) | (times or {})
    recipe: dict[str, Any] = {
        "data": "digits",
        "model": {"name": "mlp", "depth": 1, "width": round(128 * factor["width"])},
        "optimizer": {
            "name": "adamw",
            "lr": rate * factor["learning rate"],
            "beta1": 1 - 0.1 * factor["1 − beta1"],
            "beta2": 1 - 0.001 * factor["1 − beta2"],
            "weight_decay": 0.01 * factor["weight decay"],
        },
        "batch_size": round(32 * factor["batch size"]),
        "steps": run.pick(120, 600),
        "evaluate_every": "100%",
    }
    try:
        return min(float(train(recipe, seed, runs_root=run.folder).result("test_loss")), 10.0)
    except DivergedError:
        return 10.0


def _picture(found: dict[str, np.ndarray], best: float) -> Picture:
    lines = []
    for setting, losses in found.items():
        means = losses.mean(1)
        errors = 2 * losses.std(1, ddof=1) / math.sqrt(losses.shape[1])
        low, high = (means - errors).tolist(), (means + errors).tolist()
        lines.append(Series(setting, (1 / FACTOR, 1, FACTOR), means.tolist(), low, high))
    panel = Panel(
        f"Around the tuned rate {best:g}", "setting (times its value)", "test loss (nats)", lines,
        x_log=True, y_log=True,
    )  # fmt: skip
    return Picture("Means over seeds, with two standard errors. One setting at a time.", [panel])
