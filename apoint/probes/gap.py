"""The generalisation gap: how much better a model does on training data than on held-out data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.probes.batch import Batch, as_batch
from apoint.probes.calibration import labels_of
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Loss, ModelFailedError, Subject, predictions_of
from apoint.registry import register
from apoint.settings import Count, WholeNumber


@register("probe", "generalisation-gap", course="K11", passes=9)
def generalisation_gap(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    test: Any = None,
    *,
    num_parts: Count = 32,
    seed: WholeNumber = 0,
) -> Reading:
    """The loss on test data minus that on training data.

    Distinguishes overfitting (a large gap) from underfitting (a large loss on both).

    Each batch is split at random into `num_parts` parts or, if it is smaller, into single examples. The loss
    of a batch is the mean over its parts, weighted by their sizes, and its standard error comes from how much
    they differ; that of the gap is the root of the sum of both squared. The details hold losses and, where
    there are classes, accuracies of both batches with their errors, and `accuracy_gap`, training minus test.

    The model is in eval mode, unlike in training: dropout is off for both batches.

    Args:
        num_parts: The number of parts to split a batch into.
        seed: Seed of the split.

    Reference: Keskar et al. (2017), On large-batch training for deep learning: generalization gap and sharp
    minima.
    """
    if test is None:
        return undefined("generalisation-gap", "there is no test batch")
    subject = Subject(model, batch, loss)
    held_out = Subject(model, as_batch(model, test), loss)
    try:
        train, other = (_score(side, num_parts, seed) for side in (subject, held_out))
    except ModelFailedError:
        raise
    except UsageError as error:
        return undefined("generalisation-gap", str(error))
    details = {"train_loss": train.loss, "train_loss_error": train.loss_error, "test_loss": other.loss,
               "test_loss_error": other.loss_error}  # fmt: skip
    if train.accuracy is not None and other.accuracy is not None:
        details |= {
            "train_accuracy": train.accuracy,
            "train_accuracy_error": train.accuracy_error,
            "test_accuracy": other.accuracy,
            "test_accuracy_error": other.accuracy_error,
            "accuracy_gap": train.accuracy - other.accuracy,
            "accuracy_gap_error": math.hypot(train.accuracy_error, other.accuracy_error),
        }
    return Reading(
        "generalisation-gap",
        other.loss - train.loss,
        f"estimated from {subject.batch.size} training and {held_out.batch.size} test examples",
        "estimated",
        uncertainty=math.hypot(train.loss_error, other.loss_error),
        details=details,
        notes=_notes(subject, held_out),
    )


@dataclass(frozen=True)
class _Score:
    loss: float
    loss_error: float
    accuracy: float | None
    accuracy_error: float


def _score(subject: Subject, num_parts: int, seed: int) -> _Score:
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(subject.batch.size, generator=generator)
    parts = [part for part in order.tensor_split(min(num_parts, len(order))) if len(part)]
    losses, rights = [], []
    with preserve_state(subject.model, seed, mode=False), torch.no_grad():
        for index in parts:
            part = subject.batch.select(index.to(subject.batch.tensors[0].device))
            raw = subject.raw_outputs(part)
            losses.append(float(subject.loss_of(raw, part)))
            rights.append(_share_right(subject, part, predictions_of(raw)))
    sizes = torch.tensor([float(len(part)) for part in parts], dtype=torch.float64)
    loss, loss_error = weighted_mean(torch.tensor(losses, dtype=torch.float64), sizes)
    if any(right is None for right in rights):
        return _Score(loss, loss_error, None, math.nan)
    return _Score(loss, loss_error, *weighted_mean(torch.tensor(rights, dtype=torch.float64), sizes))


def weighted_mean(values: Tensor, sizes: Tensor) -> tuple[float, float]:
    """The mean of parts weighted by their sizes, and its standard error.

    For parts of n_k examples each with independent values of equal variance, Σ n_k(v_k − v̄)²/(K − 1)
    estimates that variance, and the mean over N examples has variance 1/N of it.

    Args:
        values: The mean of each part.
        sizes: The number of examples of each part.
    """
    mean = float((values * sizes).sum() / sizes.sum())
    if len(values) < 2:
        return mean, math.nan
    variance = float((sizes * (values - mean).square()).sum() / (len(values) - 1))
    return mean, math.sqrt(variance / float(sizes.sum()))


def _share_right(subject: Subject, part: Batch, outputs: Tensor | None) -> float | None:
    """The share of correct classes in a part; None where there are no classes."""
    labels = labels_of(Subject(subject.model, part))
    if outputs is None or labels is None or labels.is_floating_point():
        return None
    if subject.likelihood(outputs) != "categorical" or outputs.dim() < 2:
        return None
    named = outputs.argmax(subject.class_axis(outputs))
    return float((named == labels).double().mean()) if named.shape == labels.shape else None


def _notes(train: Subject, test: Subject) -> tuple[str, ...]:
    if train.batch.size > 1 and test.batch.size > 1:
        return ()
    return ("a single example gives no standard error",)
