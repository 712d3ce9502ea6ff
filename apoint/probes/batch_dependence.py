"""Whether the examples of a batch are independent of each other: in the model, and in the loss.

This is tested on a few examples, regardless of the types of layers. Gradients of single examples are part of
training only where both are independent.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from apoint.probes.batch import Batch
from apoint.probes.example_rules import Recorder, Use
from apoint.probes.preserving import preserve_state
from apoint.probes.subject import ModelFailedError, Subject, predictions_of


@dataclass(frozen=True)
class Look:
    """What two small batches show.

    Attributes:
        few: The predictions for a few examples; None if the model returns only its loss.
        size: The number of these examples.
        depends: Whether the output for an example depends on the other examples of its batch, or cannot be
            tested, since the model takes the batch only as a whole.
        splits: Whether the model accepts a part of the batch.
        aligned: Parameters whose layer sees the examples along its first axis, each in its own row.
    """

    few: Tensor | None
    size: int
    depends: bool
    splits: bool = True
    aligned: frozenset[str] = frozenset()

    @property
    def reason(self) -> str:
        """Why examples cannot be evaluated one by one."""
        return (
            "examples depend on their batch" if self.splits else "the model takes the batch only as a whole"
        )


# Small batches around the first example, by the size of the whole one, and of another size; of three, since
# batch norm turns any two examples into +1 and -1.
_SMALL = {1: ([0, 0], [0, 0]), 2: ([0, 1, 1], [0, 0, 1]), 3: ([0, 1, 2, 1], [0, 1, 2, 2])}


def look(subject: Subject, seed: int = 0) -> Look:
    """Try a few examples. Call it inside `preserve_state`.

    The first example is put into two small batches of the same size, with the same random draws but different
    other examples, and its output must be the same. Batch norm fails this in train mode and passes in eval
    mode.
    """
    try:
        return _look_at_few(subject, seed)
    except ModelFailedError:
        with preserve_state(subject.model, seed), torch.no_grad():  # if this fails as well, it is the model
            whole = predictions_of(subject.raw_outputs())
        return Look(whole, subject.batch.size, depends=True, splits=False)


def _look_at_few(subject: Subject, seed: int) -> Look:
    batch = subject.batch
    first, second = _SMALL.get(batch.size, ([0, 1, 2], [0, 1, 3]))
    with preserve_state(subject.model, seed):
        with Recorder(subject.parameters) as recorder:
            few = predictions_of(subject.raw_outputs(batch.select(first)))
        aligned = frozenset(_aligned(few, recorder.uses, len(first)))
    few = None if few is None else few.detach()
    if batch.size == 1:  # alone, it is the whole batch
        return Look(few, len(first), depends=False, aligned=aligned)
    with preserve_state(subject.model, seed), torch.no_grad():
        other = predictions_of(subject.raw_outputs(batch.select(second)))
    if few is None or other is None:
        depends = _loss_couples(subject, seed)
    else:
        depends = _differ(few, other, len(first))
    return Look(few, len(first), depends, aligned=aligned)


def _aligned(outputs: Tensor | None, uses: list[Use], size: int) -> set[str]:
    """The parameters whose layer sees each example in its own row.

    The first axis of a layer must be as long as this other batch too, and the output for the first example
    must not depend on the layer's other rows.
    """
    if not uses or outputs is None or len(outputs) != size or not outputs.requires_grad:
        return set()
    first = outputs[0].flatten()
    weights = torch.arange(len(first), device=first.device).cos().to(first.dtype)  # a sum may always be 1
    try:
        rows = torch.autograd.grad((first * weights).sum(), [use.edge for use in uses], allow_unused=True)
    except RuntimeError:  # the older kind of checkpointing supports only `backward`
        return set()
    return {
        name
        for use, row in zip(uses, rows, strict=True)
        if row is not None and len(use.input) == len(row) == size and not row[1:].any()
        for name in use.names.values()
    }


def _differ(one: Tensor, other: Tensor, size: int) -> bool:
    """Whether the output for the first example differs, wherever it is."""
    if one.shape != other.shape:
        return True
    views = zip(_first_examples(one, size), _first_examples(other, size), strict=True)
    return not any(_agree(a, b) for a, b in views)


def _first_examples(outputs: Tensor, size: int) -> list[Tensor]:
    """What is the first example's, or may be, if examples are on another axis or joined with positions."""
    if len(outputs) == size:
        return [outputs[0]]
    found = [outputs.select(axis, 0) for axis, length in enumerate(outputs.shape) if length == size]
    if len(outputs) % size == 0:
        rest = outputs.shape[1:]
        found += [outputs.reshape(size, -1, *rest)[0], outputs.reshape(-1, size, *rest)[:, 0]]
    return found


def _loss_couples(subject: Subject, seed: int) -> bool:
    """Whether examples depend on each other, for a model that returns only its loss.

    If the loss of two examples is a sum of one term for each, then changing the second changes it by the same
    amount for any first one; random masks, which depend on the position, cancel.
    """
    losses = []
    for first, second in ((0, 0), (0, 1), (1, 0), (1, 1)):
        with preserve_state(subject.model, seed), torch.no_grad():
            losses.append(subject.loss(subject.batch.select([first, second])))
    return not _agree(losses[0] + losses[3], losses[1] + losses[2])


def _agree(one: Tensor, other: Tensor) -> bool:
    """Whether two results are equal up to rounding, relative to their largest entry."""
    if not one.is_floating_point():
        return torch.equal(one, other)
    tolerance = torch.finfo(one.dtype).eps ** 0.5
    scale = float(one.abs().nan_to_num(0, 0, 0).max()) if one.numel() else 0.0
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def is_mean_of_examples(subject: Subject, seed: int = 0) -> bool:
    """Whether the loss of the batch is the mean of the losses that its examples would have alone.

    It is not for contrastive losses, with class weights, or where padding is left out of a mean.
    """
    batch = subject.batch
    with preserve_state(subject.model, seed), torch.no_grad():
        raw = subject.raw_outputs(batch)
        if isinstance(raw, Tensor) and raw.dim() > 0 and len(raw) == batch.size:
            whole, rows = subject.loss_of(raw, batch), Batch((raw,), {}, batch.targets)
            each = [subject.loss_of(raw[n : n + 1], rows.select([n])) for n in range(batch.size)]
            return _agree(whole, torch.stack(each).mean())
    return _is_mean_of_own_losses(subject, seed)


def _is_mean_of_own_losses(subject: Subject, seed: int, at_most: int = 16) -> bool:
    """The same test through the whole model, where the loss is computed inside; random layers are off."""
    batch = subject.batch.select(slice(0, at_most))
    losses = []
    for part in (batch, *(batch.select([n]) for n in range(batch.size))):
        with preserve_state(subject.model, seed, mode=False), torch.no_grad():
            losses.append(subject.loss(part))
    return _agree(losses[0], torch.stack(losses[1:]).mean())
