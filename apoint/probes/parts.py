"""Gradients of the parts of a batch, as mini-batches would give them, and their inner products."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from apoint.probes.batch import Batch
from apoint.probes.batch_dependence import Look
from apoint.probes.examples import gradients_of
from apoint.probes.subject import Subject

DEFAULT_PARTS = 8


def obstacle(subject: Subject) -> str:
    """Why there are no gradients to compare; empty if there are."""
    if not subject.parameters:
        return "the model has no trainable parameters"
    if subject.batch.size < 2:
        return "one example shows no noise; give a batch of several"
    return ""


def obstacle_to_parts(subject: Subject, seen: Look) -> str:
    """Why the batch cannot be split; empty if it can."""
    if not seen.splits:
        return f"{seen.reason}, so that it cannot be split"
    if seen.depends and subject.batch.size < 4:
        return f"{seen.reason}, and parts of two need a batch of at least 4"
    return ""


def parts_of(batch: Batch, number: int, seed: int) -> list[Batch]:
    """Equal parts of a batch in random order.

    Args:
        batch: The batch.
        number: The number of parts; 0 for single examples. There are fewer if parts would have less than two
            examples.
        seed: Seed of the random order.
    """
    number = max(2, min(number, batch.size // 2)) if number else batch.size
    size = batch.size // number
    order = torch.randperm(batch.size, generator=torch.Generator().manual_seed(seed))
    order = order.to(batch.tensors[0].device)
    return [batch.select(order[k * size : (k + 1) * size]) for k in range(number)]


def products_of(
    subject: Subject, parts: list[Batch], reference: Mapping[str, Tensor | None] | None = None
) -> dict[str, Tensor]:
    """Inner products of the gradients of the parts, [n, n], by layer, in double precision.

    Call it inside `preserve_state`. It holds n gradients of the model at once.

    Args:
        subject: The model and its loss.
        parts: The n parts.
        reference: Another gradient, placed first, so that the products are [1 + n, 1 + n].
    """
    found = [] if reference is None else [_flat_layers(subject, reference)]
    found += [_flat_layers(subject, gradients_of(subject, subject.loss_of, part)) for part in parts]
    products = {}
    for layer in subject.layers:
        rows = torch.stack([gradients.pop(layer) for gradients in found]).double()
        products[layer] = (rows @ rows.mT).cpu()
    return products


def _flat_layers(subject: Subject, gradients: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """The gradient of each layer as one vector; 0 where no gradient arrives."""

    def flat(name: str) -> Tensor:
        gradient = gradients[name]
        return (
            (torch.zeros_like(subject.parameters[name]) if gradient is None else gradient).detach().flatten()
        )

    return {layer: torch.cat([flat(name) for name in names]) for layer, names in subject.layers.items()}


def left_out_note(used: int, subject: Subject) -> tuple[str, ...]:
    """A note on examples that are in no part."""
    left = subject.batch.size - used
    return (f"{left} of {subject.batch.size} examples are left out, for parts of equal size",) if left else ()
