"""Evaluation of a stack: the metrics of all replicas on a split, the same as `engine.measure` gives for each.

Axis letters: R replicas, b examples of a part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from apoint.data import Split, Task
from apoint.engine.examples import Each, collect, example_values
from apoint.engine.measure import BATCH, _regression_metrics, evaluating, predictions
from apoint.engine.stacked.batches import is_shared
from apoint.engine.stacked.losses import example_losses
from apoint.engine.stacked.stack import Stack
from apoint.nn import cross_entropy

ROWS = 1 << 12
"""At most this many examples at a time, over all replicas; but not fewer than SMALLEST per replica."""
SMALLEST = 64


@dataclass
class _Tally:
    """Sums over examples, [R] each in float64, by name."""

    task: Task
    num_replicas: int
    count: int = 0
    answers: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)
    each: Each | None = None

    def add(self, name: str, values: Tensor) -> None:
        """Add values of all replicas' examples, replica by replica."""
        total_R = values.reshape(self.num_replicas, -1).double().sum(1).cpu()
        self.sums[name] = self.sums[name] + total_R if name in self.sums else total_R

    def keep(self, losses: Tensor, right: Tensor | None, nats: Tensor | None) -> None:
        """Keep the metrics of single examples, [R, b] each, if requested."""
        if self.each is not None:
            values = example_values(losses, right, nats)
            collect(self.each, {name: value.view(self.num_replicas, -1) for name, value in values.items()})

    def metrics(self, row: int, targets: Tensor) -> dict[str, float]:
        """The metrics of one replica; see `engine.measure.evaluate`."""
        mean = float(self.sums["loss"][row]) / self.count
        if self.task == "regression":
            return {"loss": mean, **_regression_metrics(float(self.sums["squares"][row]), targets)}
        metrics = {"loss": mean, "accuracy": float(self.sums["correct"][row]) / self.answers}
        if self.task == "language":
            metrics["bits_per_character"] = float(self.sums["nats"][row]) / self.count / math.log(2)
        return metrics


def stacked_evaluate(
    stack: Stack,
    split: Literal["train", "validation", "test"],
    average: bool = False,
    each: Each | None = None,
) -> list[dict[str, float]]:
    """The metrics of each replica on its own split of this name.

    Args:
        stack: The replicas.
        split: Which split.
        average: Use the moving averages of the weights and running statistics instead of the current values.
        each: Receives the metrics of single examples, replica by replica.
    """
    first = stack.replicas[0]
    splits = [replica.data.splits[split] for replica in stack.replicas]
    tally = _Tally(first.data.facts.task, stack.num_replicas, each=each)
    leaves = stack.parameters.leaves
    own = stack.model.tensors
    if average:
        assert stack.average is not None
        leaves = stack.parameters.named(stack.average)
        stack.model.tensors = {**own, **stack.average_buffers}
    try:
        with evaluating(stack.model.template):
            for x, y, shared in _parts(stack, splits):
                _measure(stack, tally, leaves, x, y, shared)
    finally:
        stack.model.tensors = own
    return [tally.metrics(row, one.targets) for row, one in enumerate(splits)]


def _parts(stack: Stack, splits: list[Split]) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """Inputs and targets [R, b, …], part by part; inputs [b, …] where all replicas see the same."""
    size = min(BATCH, max(SMALLEST, ROWS // len(splits)))
    device, prepare = stack.stream.device, stack.stream.prepare
    shared = is_shared(splits)
    for start in range(0, len(splits[0]), size):
        rows = slice(start, start + size)
        if shared:
            x, y = splits[0].inputs[rows].to(device), splits[0].targets[rows].to(device)
            y = y.expand(len(splits), *y.shape)
            x = x if prepare.alike else x.expand(len(splits), *x.shape)
        else:
            x = torch.stack([split.inputs[rows] for split in splits]).to(device)
            y = torch.stack([split.targets[rows] for split in splits]).to(device)
        yield prepare(x), y, shared and prepare.alike


def _measure(
    stack: Stack, tally: _Tally, leaves: Mapping[str, Tensor], x: Tensor, y: Tensor, shared: bool
) -> None:
    outputs = stack.model(x, leaves, shared)
    losses, right, nats = example_losses(stack.replicas[0].loss, outputs, y), None, None
    tally.add("loss", losses)
    outputs, y = outputs.flatten(0, 1), y.flatten(0, 1)
    if tally.task == "language":  # with any loss, a character costs its negative log-likelihood
        nats = cross_entropy(outputs, y)
        tally.add("nats", nats)
    tally.count += len(y) // stack.num_replicas
    tally.answers += y.numel() // stack.num_replicas
    if tally.task == "regression":
        tally.add("squares", (outputs.reshape(y.shape) - y).double().square())
    else:
        right = predictions(outputs) == y
        tally.add("correct", right)
    tally.keep(losses.flatten(), right, nats)
