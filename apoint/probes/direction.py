"""The direction of mini-batch gradients: how far they diverge, and deviate from that of all the data."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from apoint.probes.batch_dependence import look
from apoint.probes.examples import gradients_of
from apoint.probes.noise import jackknife
from apoint.probes.parts import (
    DEFAULT_PARTS,
    left_out_note,
    obstacle,
    obstacle_to_parts,
    parts_of,
    products_of,
)
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Loss, Subject
from apoint.registry import register
from apoint.settings import WholeNumber


@register("probe", "direction", course="C4", passes=7)
def gradient_direction(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    *,
    num_batches: WholeNumber = DEFAULT_PARTS,
    seed: WholeNumber = 0,
) -> Reading:
    """Variance of the direction of mini-batch gradients: the mean of ½(1 - cos) over all pairs.

        direction variance = 2/(n(n-1)) Σ_{i<j} ½ (1 - cos(g_i, g_j))
        direction error    = 1/n Σ_i ½ (1 - cos(g_i, ĝ))

    over the gradients g of n parts of `batch`, in the model's current mode; ĝ is the gradient of all of it
    with random layers off. 0: all point the same way; ½: at right angles, like random vectors; 1: opposite.
    The value is the direction variance; the error is in the details. Dropout is reported to make both smaller
    early in training. In the paper ĝ is that of the whole data set: use a large batch. Since ĝ contains the
    parts, the error is biased low, the more so the fewer parts there are.

    For ĝ, layers with running statistics keep their mode, since the weights around them are adapted to it.
    Standard errors are from the jackknife over parts. Layers without a gradient have no direction.

    Args:
        num_batches: The number of parts of at least two examples to split the batch into; 0 uses single
            examples, where they do not depend on each other.
        seed: Seed of the random layers and the split.

    Reference: Liu, Xu, Jin, Shen & Darrell (2023), Dropout reduces underfitting, arXiv 2303.01500, section 3.
    """
    subject = Subject(model, batch, loss)
    if why := obstacle(subject):
        return undefined("direction", why)
    with preserve_state(model, seed):
        seen = look(subject, seed)
        if why := obstacle_to_parts(subject, seen):
            return undefined("direction", why)
        parts = parts_of(subject.batch, num_batches or (DEFAULT_PARTS if seen.depends else 0), seed)
        with preserve_state(model, seed):
            reference = _at_rest(subject)
        products = products_of(subject, parts, reference)
    if not bool(torch.stack([*products.values()]).sum(0).diagonal().all()):
        return undefined("direction", "the gradient of a part of the batch is 0 and has no direction")
    used = len(parts) * parts[0].size
    how = (
        f"gradients of {len(parts)} parts of {parts[0].size} {'examples' if parts[0].size > 1 else 'example'}"
    )
    return _reading(subject, products, how, left_out_note(used, subject))


def _at_rest(subject: Subject) -> dict[str, Tensor | None]:
    """The gradient of the whole batch with random layers off; running statistics keep their mode."""
    for module in subject.model.modules():
        if not hasattr(module, "running_mean"):
            module.training = False
    return gradients_of(subject, subject.loss_of)


def _reading(subject: Subject, products: dict[str, Tensor], how: str, notes: tuple[str, ...]) -> Reading:
    whole = torch.stack([*products.values()]).sum(0)
    layers = {layer: directions(p) for layer, p in products.items() if bool(p.diagonal().all())}
    found = directions(whole)
    if not math.isfinite(found["variance"] or 0.0):
        notes += ("the gradients are not finite",)
    if found["variance_uncertainty"] is None:
        notes += ("two parts: there is no spread to see",)
    spreads = {layer: numbers["variance_uncertainty"] for layer, numbers in layers.items()}
    return Reading(
        "direction",
        found["variance"],
        how,
        "estimated",
        uncertainty=found["variance_uncertainty"],
        per_layer={layer: numbers["variance"] or 0.0 for layer, numbers in layers.items()},
        per_layer_uncertainty={layer: spread for layer, spread in spreads.items() if spread is not None},
        coverage=subject.coverage([name for layer in layers for name in subject.layers[layer]]),
        details={
            "direction_error": found["error"],
            "direction_error_uncertainty": found["error_uncertainty"],
            "direction_error_per_layer": {layer: numbers["error"] for layer, numbers in layers.items()},
            "gradient_norms": whole.diagonal()[1:].sqrt().tolist(),
        },
        notes=notes,
    )


def directions(products: Tensor) -> dict[str, float | None]:
    """Direction variance and direction error, with their standard errors.

    Args:
        products: Products of gradients, [1 + n, 1 + n], the reference first.
    """
    norms = products.diagonal().sqrt()
    distance = (1 - products / norms[:, None] / norms) / 2
    to_reference, pairs = distance[0, 1:], distance[1:, 1:]
    pairs = pairs - pairs.diagonal().diag()  # a gradient and itself are not a pair
    count = len(to_reference)
    found: dict[str, float | None] = {
        "variance": float(pairs.sum() / (count * (count - 1))),
        "error": float(to_reference.mean()),
        "variance_uncertainty": None,
        "error_uncertainty": None,
    }
    if count > 2:
        left_out = (pairs.sum() - 2 * pairs.sum(0)) / ((count - 1) * (count - 2))
        found["variance_uncertainty"] = jackknife(left_out)
        found["error_uncertainty"] = float(to_reference.std() / math.sqrt(count))
    return found
