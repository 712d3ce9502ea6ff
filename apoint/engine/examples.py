"""Per-example metrics at an evaluation, and which of them a run keeps.

A metric that is a mean over examples has a value for each of them. The values of the last evaluation are
kept in the run folder, so that a verdict can apply to other test examples too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from apoint.data import Data, Split, Task

MOST_EXAMPLES = 100_000
"""Per-example values are not kept for a split with more examples."""
NO_MEANS = ("rmse", "explained")
"""Metrics that are not a mean over examples."""

Each = dict[str, list[Tensor]]
"""Values by metric, one tensor per part of a split; the last axis is the examples."""


def example_values(losses: Tensor, right: Tensor | None, nats: Tensor | None) -> dict[str, Tensor]:
    """The metrics of each example.

    Args:
        losses: The loss of each example.
        right: Whether the answers are right, one or several per example; None for regression.
        nats: The negative log-likelihood of each example, for language.
    """
    values = {"loss": losses.float()}
    if right is not None:
        values["accuracy"] = right if right.dim() == 1 else right.float().flatten(1).mean(1)
    if nats is not None:
        values["bits_per_character"] = nats.float() / math.log(2)
    return values


def collect(each: Each, values: Mapping[str, Tensor]) -> None:
    """Append the values of one part of the split."""
    for name, value in values.items():
        each.setdefault(name, []).append(value.cpu())


def joined(each: Each, prefix: str) -> dict[str, Tensor]:
    """Concatenate all parts of a split, by metric name with the prefix."""
    return {f"{prefix}{name}": torch.cat(parts, -1) for name, parts in each.items()}


def why_not_kept(metric: str, data: Data) -> str:
    """Why a run on this data does not keep a metric's per-example values; empty if it does."""
    split, _, name = metric.partition("_")
    if name.removeprefix("average_") in NO_MEANS:
        return f"{metric} is not a mean over examples"
    return why_not_of_split(data.splits[split], data.facts.task)


def why_not_of_split(split: Split, task: Task) -> str:
    """Why per-example values of a split are not kept; empty if they are."""
    if len(split) > MOST_EXAMPLES:
        return f"single ones of {len(split):,} examples are not kept, {MOST_EXAMPLES:,} are the most"
    if task == "language" and split.inputs.stride(0) < split.inputs.shape[1]:
        return "the windows of the text overlap, so that they are no separate examples"
    return ""


def rows_of(data: Data) -> dict[str, Any]:
    """Which examples of the source each split holds, as arrays, where a seed drew them."""
    drawn = {name: split.rows for name, split in data.splits.items() if split.rows is not None}
    return {name: rows.to(torch.int32).numpy() for name, rows in drawn.items()}
