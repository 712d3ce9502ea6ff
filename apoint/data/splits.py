"""Splitting samples: stratified and seeded for classes, at random for regression, contiguous for text.

A split is a pair of index tensors (kept, held out), both in ascending order, disjoint and complete. The
same seed gives the same split, regardless of what else the run draws.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from apoint.data.core import Source, Split
from apoint.data.streams import generator
from apoint.errors import UsageError


def quotas(counts: Tensor, total: int, *, keep_one: bool = True) -> Tensor:
    """How many samples of each class to take so that `total` are taken in proportion to `counts`.

    The largest-remainder method: each class gets ⌊total · counts / N⌋, and the rest goes to the classes that
    lost most by rounding, so that each class is within one of its exact share. With `keep_one` no class is
    taken completely, because a class that is only held out cannot be learned; fewer than `total` are then
    taken if reaching `total` would break either rule.
    """
    counts = counts.to(torch.int64)
    scaled = counts * total  # integers: float rounding must not decide which class gets the last place
    samples = int(counts.sum())
    taken = scaled // samples
    ceiling = (counts - 1).clamp_min(0) if keep_one else counts
    taken = torch.minimum(taken, ceiling)
    by_remainder = torch.argsort(scaled - taken * samples, descending=True, stable=True)
    missing = total - int(taken.sum())
    for label in by_remainder.tolist():
        if missing <= 0:
            break
        room = int(ceiling[label] - taken[label])
        if room > 0 and int(taken[label]) * samples < int(scaled[label]):
            taken[label] += 1
            missing -= 1
    return taken


def stratified(
    labels: Tensor, total: int, seed: int, counter: int = 0, *, keep_one: bool = True
) -> tuple[Tensor, Tensor]:
    """Indices (kept, held out) with `total` held out, each class in proportion, drawn at random by `seed`.

    Args:
        labels: The class of each sample.
        total: The number of samples to hold out.
        seed: Selects the samples; the same seed gives the same samples.
        counter: Separates splits of the same data that must not be related.
        keep_one: Whether every class keeps at least one sample.
    """
    _, position, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    order = torch.randperm(len(labels), generator=generator(seed, "split", counter))
    grouped = order[torch.argsort(position[order], stable=True)]  # by class, at random within each
    chosen = quotas(counts, total, keep_one=keep_one)
    starts = torch.cumsum(counts, 0) - counts
    rank = torch.arange(len(labels)) - torch.repeat_interleave(starts, counts)
    return _divide(grouped, rank < torch.repeat_interleave(chosen, counts))


def unstratified(samples: int, total: int, seed: int, counter: int = 0) -> tuple[Tensor, Tensor]:
    """Indices (kept, held out) with `total` of `samples` held out, drawn at random by `seed`."""
    order = torch.randperm(samples, generator=generator(seed, "split", counter))
    return _divide(order, torch.arange(samples) < total)


def _divide(order: Tensor, is_held_out: Tensor) -> tuple[Tensor, Tensor]:
    return torch.sort(order[~is_held_out]).values, torch.sort(order[is_held_out]).values


def contiguous(split: Split, total: int) -> tuple[Split, Split]:
    """The windows of a text as (kept, held out): the last `total` are held out; the parts share no character.

    Windows that overlap the held-out text, including its first target, are left out of the kept part.
    """
    windows, context = split.inputs.shape
    stride = split.inputs.stride(0) or context
    # Window i reads characters i·stride … i·stride + context, the last of them as a target only.
    gap = math.ceil((context + 1) / stride) - 1
    kept = windows - total - gap
    if kept < 1:
        raise UsageError(
            f"holding out {total} of {windows} windows of {context} characters leaves nothing to learn from; "
            "hold out less, shorten context or bring a longer text"
        )
    return split.take(slice(0, kept)), split.take(slice(windows - total, windows))


def hold_out(
    split: Split, share: float, task: str, seed: int, counter: int, what: str
) -> tuple[Split, Split]:
    """`split` as (kept, held out), split as its task requires, with `share` of the samples held out."""
    if not 0 < share < 1:
        raise UsageError(f"{what} must be a share between 0 and 1, both excluded, got {share:g}")
    total = round(share * len(split))
    if not 0 < total < len(split):
        raise UsageError(
            f"{what} of {share:g} holds out {total} of {len(split)} samples, and both parts need at least "
            "one; change the share or bring more samples"
        )
    if task == "language":
        return contiguous(split, total)
    kept, held = _indices(split, total, task, seed, counter)
    named = split if split.rows is not None else replace(split, rows=torch.arange(len(split)))
    return named.take(kept), named.take(held)


def limited(split: Split, limit: int, task: str, seed: int) -> Split:
    """`limit` samples of `split`: each class in proportion, or the first windows of a text."""
    if not 1 <= limit <= len(split):
        raise UsageError(
            f"limit must be between 1 and the {len(split)} training samples there are, got {limit}"
        )
    if task == "language":
        return split.take(slice(0, limit))
    if task == "regression":
        return split.take(unstratified(len(split), limit, seed, 2)[1])
    return split.take(stratified(split.targets, limit, seed, 2, keep_one=False)[1])


def _indices(split: Split, total: int, task: str, seed: int, counter: int) -> tuple[Tensor, Tensor]:
    if task == "classification":
        return stratified(split.targets, total, seed, counter)
    return unstratified(len(split), total, seed, counter)


def divide(
    source: Source, *, seed: int, validation: float, test_share: float, limit: int | None
) -> dict[str, Split]:
    """The splits of a source by name: the published ones if any, else held out from training.

    The test part is held out first, then the validation part from what remains, then the limit is applied:
    so neither the limit nor the validation share changes the test set.
    """
    train, test, checked = source.train, source.test, source.validation
    task = source.facts.task
    if test is None:
        train, test = hold_out(train, test_share, task, seed, 0, "test_share")
    if validation and checked is not None:
        raise UsageError(
            f"validation: the dataset brings its own {len(checked)} validation samples; leave the setting at "
            "0"
        )
    if validation:
        train, checked = hold_out(train, validation, task, seed, 1, "validation")
    if limit is not None:
        train = limited(train, limit, task, seed)
    train = replace(train, rows=None)  # not needed for training samples
    found = {"train": train, "validation": checked, "test": test}
    for name, split in found.items():
        if split is not None and not len(split):
            raise UsageError(
                f"there are too few samples in each class to hold any out: the {name} part is empty; bring "
                "more samples, or see whether the target column is the right one"
            )
    return {name: split for name, split in found.items() if split is not None}
