"""What the best constant answer reaches: the value that a diverged replica counts as.

A replica that diverged has no number. Leaving it out would reward an arm for failing, and an infinity
would decide the verdict by itself; so it counts as having learned nothing. A replica that ends worse
than that counts the same, which keeps the differences bounded.
"""

from __future__ import annotations

import math

import torch

from apoint.data import Data, Split
from apoint.errors import UsageError

RULE = "a replica that diverges, fails or ends worse counts as the best constant answer"


def trivial_value(data: Data, metric: str, loss_name: str) -> float | None:
    """The metric of the best constant answer on the data, or None if it is unknown.

    Args:
        data: The data of any replica.
        metric: Such as `test_accuracy`.
        loss_name: The recipe's loss, which decides what `loss` means.
    """
    split_name, _, name = metric.partition("_")
    split = data.splits[split_name]
    name = name.removeprefix("average_")
    if data.facts.task == "regression":
        return _regression(split, name, loss_name)
    shares = _class_shares(split, data.facts.num_outputs)
    entropy = -sum(share * math.log(share) for share in shares if share > 0)
    if name == "accuracy":
        return max(shares)
    if name == "bits_per_character":
        return entropy / math.log(2)
    if name == "loss" and loss_name in ("cross-entropy", "binary-cross-entropy"):
        return entropy
    return None


def _class_shares(split: Split, num_classes: int) -> list[float]:
    counts = torch.bincount(split.targets.flatten(), minlength=num_classes).double()
    shares: list[float] = (counts / counts.sum()).tolist()
    return shares


def _regression(split: Split, name: str, loss_name: str) -> float | None:
    spread = (split.targets.double() - split.targets.double().mean(0)).square()
    if name == "explained":
        return 0.0
    if name == "rmse":
        return math.sqrt(float(spread.mean()))
    return float(spread.mean()) if name == "loss" and loss_name == "squared-error" else None


def known_metrics(data: Data, with_average: bool) -> list[str]:
    """Every metric that training on this data logs for the splits that are not trained on."""
    from apoint.engine.measure import METRICS

    names = list(METRICS[data.facts.task])
    if with_average:
        names += [f"average_{name}" for name in names]
    return [f"{split}_{name}" for split in reversed(list(data.splits)) if split != "train" for name in names]


def default_metric(data: Data) -> str:
    """The usual test metric: accuracy, bits per character, or root mean squared error."""
    chosen = {"classification": "accuracy", "language": "bits_per_character", "regression": "rmse"}
    return f"test_{chosen[data.facts.task]}"


def check_metric(metric: str, known: list[str]) -> str:
    """Return the metric, or raise an error that names the nearest ones."""
    from apoint.errors import UnknownNameError

    if metric.startswith("train_"):
        raise UsageError(f"{metric} is measured on what was learned from; choose one of {', '.join(known)}")
    if metric not in known:
        raise UnknownNameError("metric", metric, known, where="these recipes log no such metric")
    return metric
