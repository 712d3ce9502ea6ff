"""Slices of the loss around the weights, along directions that are normalised filter by filter."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Loss, Subject
from apoint.registry import register
from apoint.settings import Count, Positive, WholeNumber

Direction = dict[str, Tensor]


@register("probe", "slice", course="B11", passes=100)
def loss_slice(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    *,
    reach: Positive = 1.0,
    num_steps: Count = 10,
    distance: Positive = 0.5,
    num_directions: Count = 5,
    plane: bool = False,
    mode: Literal["eval", "train"] = "eval",
    seed: WholeNumber = 0,
) -> Reading:
    """How much the loss rises around the weights, on filter-normalised slices of the loss.

    Every filter of a random direction has the norm of the same filter of the weights, so that networks whose
    weights differ in scale can be compared: a filter before a batch norm may be scaled, and the slices in
    train mode stay the same.

        d_i ← d_i·‖θ_i‖/‖d_i‖,  value = mean over directions d and both signs of f(θ ± `distance`·d) − f(θ)

    with f the `loss` on the `batch`, θ_i the i-th filter of a convolution or the weights of the i-th unit of
    a matrix. Directions are 0 on biases and on the parameters of norms, as in the paper, so `coverage` is the
    share of the others. A filter of zeros does not move. `details` holds `along`, the steps from −`reach` to
    `reach`; `curves`, the loss along each direction there; the second derivative at the middle of each curve;
    the share of it that curves downwards; with `plane`, the loss over the first two directions. A small rise
    means a flat region. Single slices are noisy: the standard error is that over directions.

    By default the model is measured in eval mode, as in the paper: running statistics are fixed, dropout is
    off.

    Args:
        reach: How far the slices extend to both sides, in norms of the weights.
        num_steps: The number of steps to each side.
        distance: The distance at which the rise is the value.
        num_directions: The number of random directions to average.
        plane: Whether to measure the plane of the first two directions too.
        mode: The mode of the model: eval, or train with the same draws at every point.
        seed: Seed of the random draws.

    Reference:
        Li, Xu, Taylor, Studer and Goldstein, 2018, Visualizing the loss landscape of neural nets.
    """
    with preserve_state(model, seed, mode=mode == "train"):
        subject = Subject(model, batch, loss)
        if not subject.parameters:
            return undefined("slice", "the model has no trainable parameters")
        names = [name for name, p in subject.parameters.items() if p.dim() > 1]
        if not names:
            return undefined(
                "slice", "every trainable parameter is a bias or a scale, which slices leave alone"
            )
        generator = torch.Generator().manual_seed(seed)
        directions = [filter_normalised(subject, generator) for _ in range(max(num_directions, 1 + plane))]
        along = _along(reach, num_steps, distance)
        middle = loss_beside(subject, [(0.0, directions[0])], seed)
        curves = [
            [middle if a == 0 else loss_beside(subject, [(a, direction)], seed) for a in along]
            for direction in directions[:num_directions]
        ]
        details: dict[str, Any] = {"along": along, "curves": curves, "loss": middle, "mode": mode}
        if plane:
            details["plane"] = _plane(subject, directions, reach, num_steps, seed)
        ends = along.index(-distance), along.index(distance)
        rises = torch.tensor(
            [[curve[end] - middle for end in ends] for curve in curves], dtype=torch.float64
        ).mean(1)
        return _reading(subject, names, rises, details)


def _along(reach: float, num_steps: int, distance: float) -> list[float]:
    """Even steps to both sides, including those at the distance."""
    even = [reach * i / num_steps for i in range(-num_steps, num_steps + 1)]
    apart = [a for a in even if abs(abs(a) - distance) > 1e-6 * reach]
    return sorted([*apart, -distance, distance])


def _reading(subject: Subject, names: list[str], rises: Tensor, details: dict[str, Any]) -> Reading:
    along, curves = details["along"], details["curves"]
    bends = [_second_differences(along, curve) for curve in curves]
    centre = along.index(0.0) - 1
    details["curvature"] = [bend[centre] for bend in bends]
    details["share_curving_down"] = [sum(b < 0 for b in bend) / len(bend) for bend in bends]
    notes = []
    if len(rises) == 1:
        notes.append("one direction shows no spread; average several")
    if not bool(rises.isfinite().all()):
        notes.append("the loss is not finite somewhere on the slices")
    return Reading(
        "slice",
        float(rises.mean()),
        f"estimated from {len(rises)} random directions, in {details['mode']} mode",
        "estimated",
        uncertainty=float(rises.std() / math.sqrt(len(rises))) if len(rises) > 1 else None,
        coverage=subject.coverage(names),
        details=details,
        notes=tuple(notes),
    )


def filter_normalised(subject: Subject, generator: torch.Generator) -> Direction:
    """A random direction whose filters have the norms of those of the weights; 0 on vectors and scalars."""
    axes = _filter_axes(subject.model)
    direction = {}
    for name, parameter in subject.parameters.items():
        weights = parameter.detach()
        if weights.dim() < 2:
            direction[name] = torch.zeros_like(weights)
            continue
        drawn = torch.randn(weights.shape, generator=generator, dtype=torch.float64).to(weights)
        rest = [axis for axis in range(weights.dim()) if axis != axes.get(name, 0)]
        lengths = torch.linalg.vector_norm(weights, dim=rest, keepdim=True)
        own = torch.linalg.vector_norm(drawn, dim=rest, keepdim=True)
        tiny = torch.finfo(own.dtype).tiny
        direction[name] = drawn * (lengths / own.clamp(min=tiny))
    return direction


def _filter_axes(model: nn.Module) -> dict[str, int]:
    """The axis of the filters, where it is not the first: transposed convolutions have inputs first."""
    kinds = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    found = {id(module.weight): 1 for module in model.modules() if isinstance(module, kinds)}
    return {name: found[id(p)] for name, p in model.named_parameters() if id(p) in found}


def loss_beside(subject: Subject, steps: list[tuple[float, Direction]], seed: int) -> float:
    """The loss after some steps along directions, with the same random draws each time."""
    moved = {name: parameter.detach() for name, parameter in subject.parameters.items()}
    for length, direction in steps:
        moved = {name: value + length * direction[name] for name, value in moved.items()}
    with preserve_state(subject.model, seed), torch.no_grad():
        return float(subject.loss(tensors=moved))


def _plane(
    subject: Subject, directions: list[Direction], reach: float, num_steps: int, seed: int
) -> dict[str, Any]:
    """The loss on a square grid over two directions; rows go along the first."""
    axis = [reach * i / num_steps for i in range(-num_steps, num_steps + 1)]
    first, second = directions[:2]
    rows = [[loss_beside(subject, [(a, first), (b, second)], seed) for b in axis] for a in axis]
    return {"axis": axis, "loss": rows}


def _second_differences(along: list[float], curve: list[float]) -> list[float]:
    """The second derivative at every inner point of an uneven grid, by divided differences."""
    slopes = [(curve[i + 1] - curve[i]) / (along[i + 1] - along[i]) for i in range(len(along) - 1)]
    return [2 * (slopes[i + 1] - slopes[i]) / (along[i + 2] - along[i]) for i in range(len(slopes) - 1)]
