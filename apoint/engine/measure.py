"""Evaluation: a model's metrics on a split, by task.

Classification: loss, accuracy. Language: loss, bits per character, accuracy. Regression: loss, root
mean squared error and the share of variance explained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from apoint.data import Split, Task
from apoint.data.stored import prefetch
from apoint.engine.examples import Each, collect, example_values
from apoint.nn import cross_entropy

BATCH = 512
METRICS: dict[Task, tuple[str, ...]] = {
    "classification": ("loss", "accuracy"),
    "language": ("loss", "accuracy", "bits_per_character"),
    "regression": ("loss", "rmse", "explained"),
}
LARGER_IS_BETTER = ("accuracy", "explained")


def larger_is_better(metric: str) -> bool:
    """Whether larger is better for a metric given by split and name, such as `test_accuracy`."""
    return metric.endswith(LARGER_IS_BETTER)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module's mode is restored afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():  # not inference mode: what a module keeps from here may enter autograd later
            yield
    finally:
        for module, training in modes:
            module.training = training


def evaluate(
    model: nn.Module,
    split: Split,
    task: Task,
    loss: Callable[[Tensor, Tensor], Tensor],
    prepare: Callable[[Tensor], Tensor],
    device: torch.device,
    batch_size: int = BATCH,
    each: Each | None = None,
) -> dict[str, float]:
    """The metrics of a model on a split; weights and modes are left unchanged.

    If `each` is given, per-example metrics are added to it.
    """
    total, nats, correct, squares, count, answers = 0.0, 0.0, 0.0, 0.0, 0, 0
    with evaluating(model):
        for start in range(0, len(split), batch_size):
            x = prepare(split.inputs[start : start + batch_size].to(device))
            prefetch(split.inputs, slice(start + batch_size, start + 2 * batch_size))
            y = split.targets[start : start + batch_size].to(device)
            outputs = model(x)
            losses, right, nats_b = loss(outputs, y), None, None
            total += float(losses.double().sum())
            count += len(y)
            answers += y.numel()
            if task == "regression":
                squares += float((outputs.reshape(y.shape) - y).double().square().sum())
            else:
                right = predictions(outputs) == y
                correct += float(right.sum())
            if task == "language":  # with any loss, a character costs its negative log-likelihood
                nats_b = cross_entropy(outputs, y)
                nats += float(nats_b.double().sum())
            if each is not None:
                collect(each, example_values(losses, right, nats_b))
    mean = total / count
    if task == "regression":
        return {"loss": mean, **_regression_metrics(squares, split.targets)}
    metrics = {"loss": mean, "accuracy": correct / answers}
    if task == "language":
        metrics["bits_per_character"] = nats / count / math.log(2)
    return metrics


def predictions(outputs: Tensor) -> Tensor:
    """The predicted classes: the largest output, or the sign where one output represents two classes."""
    if outputs.dim() == 1 or outputs.shape[-1] == 1:
        return (outputs > 0).long().reshape(len(outputs))
    return outputs.argmax(dim=-1)


def _regression_metrics(squares: float, targets: Tensor) -> dict[str, float]:
    spread = float((targets.double() - targets.double().mean(0)).square().sum())
    return {
        "rmse": math.sqrt(squares / targets.numel()),
        "explained": 1 - squares / spread if spread > 0 else math.nan,
    }
