"""The two regimes that the chapter tries dropout in, for C2c, C3, C5 and C7.

Under-fitting: training ends while more of it would still help, here since no example is seen twice or since
augmentation is strong. Over-fitting: few examples, seen many times. The test of Liu et al. for which of the
two it is: whether dropout all the time makes the network worse or better.
"""

from __future__ import annotations

import copy
from typing import Any

from apoint.book.running import Running

FIRST_SEED = 100
"""Settings were chosen on seeds 0 to 11."""
LATER_SEED = 300
"""For C2c and C3c, which had been run on the seeds from 100 before the regimes were as they are now."""
_SIGNALS: dict[str, Any] = {
    "model": {"name": "mlp", "depth": 3, "width": 100},
    "optimizer": {"name": "adamw", "lr": 3e-3},
    "schedule": {"name": "cosine", "floor": 0.0, "warmup": "10%"},
    "batch_size": 32,
    "evaluate_every": "100%",
}
_IMAGES: dict[str, Any] = {
    "init": "as-built",
    "model": {"name": "vit", "depth": 4, "width": 48, "num_heads": 4},
    "optimizer": {"name": "adamw", "lr": 2e-3, "weight_decay": 0.05},
    "schedule": {"name": "cosine", "floor": 0.0, "warmup": "16%"},
    "batch_size": 128,
    "evaluate_every": "100%",
}
STRONG = ["flip", {"name": "crop", "padding": 2}, "random-erasing", {"name": "mix-up", "alpha": 0.8}]


def under(run: Running) -> dict[str, Any]:
    """Under-fitting: one pass over 16,000 signals; at `standard` strongly augmented images."""
    if run.scale == "quick":
        data = {"name": "mnist-1d", "num_samples": 20_000}
        return {**copy.deepcopy(_SIGNALS), "name": "under", "data": data, "epochs": 1}
    images = run.images(size=16, train=10_000, test=4_000)
    return {**copy.deepcopy(_IMAGES), "name": "under", "data": images, "augment": STRONG, "epochs": 12}


def over(run: Running) -> dict[str, Any]:
    """Over-fitting: 1,000 signals, 20 times each; at `standard` 2,000 images, 30 times each."""
    if run.scale == "quick":
        data = {"name": "mnist-1d", "limit": 1_000}
        return {**copy.deepcopy(_SIGNALS), "name": "over", "data": data, "epochs": 20}
    images = {**run.images(size=16, train=10_000, test=4_000), "limit": 2_000}
    return {**copy.deepcopy(_IMAGES), "name": "over", "data": images, "epochs": 30}


def rules(run: Running, **changed: Any) -> dict[str, Any]:
    """How the comparisons of the chapter are looked at."""
    return {
        "metric": "test_loss",
        "looks": run.pick((6, 12), (6, 10)),
        "max_pairs": run.pick(12, 10),
        "first_seed": FIRST_SEED,
        **changed,
    }


def early(rate: float, length: str) -> dict[str, Any]:
    """A rate that falls linearly to 0 over the first part of training, as in the paper."""
    return {"name": "linear", "start": rate, "end": 0.0, "length": length}


def late(rate: float, begin: str) -> dict[str, Any]:
    """A rate that is 0 at first and constant afterwards."""
    return {"name": "window", "value": rate, "begin": begin}
