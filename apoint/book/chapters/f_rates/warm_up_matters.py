"""F10: the length and the height of the warm-up matter."""

from __future__ import annotations

import copy
from typing import Any

from apoint.book.chapters.f_rates.cosine_length import RECIPE, RULES
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, ruled
from apoint.book.running import Running


@claim(
    "F10",
    "Length and height of the warm-up",
    kind="direction",
    statement=r"""
    How long the warm-up is and up to which rate it goes both decide the outcome. A warm-up over a twentieth
    of training does better than none and than one over four fifths; and a peak four times as high or four
    times as low as a good one does worse.
    """,
    refuted_by="one of the four changes with an equal or lower loss over paired seeds",
    seconds={"quick": 15, "standard": 60},
    planted={"own_warmup": "80%"},
    details=r"""
    The task of F9: a perceptron on MNIST-1D, one pass, Adam, cosine to a tenth. Popel and Bojar find for the
    translation of sentences by transformers that a warm-up that is too short, or a rate that is too high,
    makes training diverge, and that a longer warm-up allows a higher peak. In the transformer's own schedule
    the two cannot be told apart, since a shorter warm-up is also a higher one; here each is changed alone.
    """,
    references=("Popel and Bojar (2018), Training tips for the transformer model, sections 4.6 and 4.7",),
)
def warm_up_matters(run: Running, own_warmup: str = "5%") -> Evidence:
    """Four changes of the warm-up against the baseline; `own_warmup` makes the baseline's own a bad one."""
    recipe = copy.deepcopy(RECIPE)
    recipe["schedule"]["warmup"] = own_warmup
    peak = float(recipe["optimizer"]["lr"])
    longest = "80%" if own_warmup == "5%" else "5%"
    rules = {**RULES, "looks": run.pick((8, 16), (8, 16, 32)), "max_pairs": run.pick(16, 32)}
    changes: dict[str, dict[str, Any]] = {
        "no warm-up, loss saved": {"schedule.warmup": "0%"},
        f"warm-up over {longest}, loss saved": {"schedule.warmup": longest},
        "peak four times as high, loss saved": {"optimizer.lr": 4 * peak},
        "peak four times as low, loss saved": {"optimizer.lr": peak / 4},
    }
    numbers = [ruled(name, run.compare(recipe, change, **rules), "worse") for name, change in changes.items()]
    return Evidence(
        numbers, would_take="more pairs of seeds, or a deeper network, which needs its warm-up more"
    )
