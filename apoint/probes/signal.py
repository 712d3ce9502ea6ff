"""The signal through depth: the output of every activation and layer, and the gradient that arrives there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.probes.operations import Call, Operation, is_bounded
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Loss, ModelFailedError, Subject
from apoint.probes.watching import Watcher, watch
from apoint.registry import register
from apoint.settings import Share, WholeNumber

_FORWARD = ("mean", "variance", "second_moment", "spread", "zeros")
_BACKWARD = ("gradient_mean", "gradient_variance", "gradient_second_moment", "gradient_norm")


@register("probe", "signal", course="A4 A6 K7", passes=5)
def signal(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    *,
    saturation: Share = 0.05,
    seed: WholeNumber = 0,
) -> Reading:
    """How much the signal grows or shrinks with each layer, forward and backward.

    Finds signals and gradients that vanish or explode, and activations that saturate, before and during
    training. Every operation is seen, including those that are not modules.

    With q(l) = E[z²] the second moment of the output z of a layer at depth l, over units and examples, the
    value is the slope of ln q(l) over l by least squares: 0 preserves the signal, ln 2 doubles its square
    with each layer. The recursion q(l) = n·V[w]·E[f(z)²] gives it for random weights. A layer is an operation
    with weights that mixes units; its depth is the number of layers on the longest path to it.

    The details hold `backward_slope`, the same for ‖g‖² of the gradient g that arrives at z (above 0,
    gradients shrink on their way back; a norm, since weights of variance c/n, with n inputs, preserve it from
    one width to another), `spread_slope`, the same for the variance of z between examples (a signal may keep
    its size but lose its information about the input), and `operations`, a table with one row for each
    operation in the order of execution:

    - `mean`, `variance`, `second_moment` over all entries; `spread`, the variance between examples, averaged
      over units; `zeros`, the share of entries that are 0;
    - `saturation`, for bounded activations: the share of inputs x with |f′(x)| below 5 % of the largest
      slope. Where f stays at 0 for all x < 0, as in ReLU6, only x > 0 counts;
    - `gradient_mean`, `gradient_variance`, `gradient_second_moment`, `gradient_norm` of the gradient of the
      loss with respect to the operation's output; None where none arrives.

    The model stays in its current mode; dropout is drawn once.

    Args:
        saturation: The share of the largest slope below which an activation counts as saturated.
        seed: Seed of the dropout draws.

    Reference: Glorot and Bengio (2010), Understanding the difficulty of training deep feedforward neural
    networks; He et al. (2015), Delving deep into rectifiers.
    """
    subject = Subject(model, batch, loss)
    seen = _Statistics(saturation)
    notes: list[str] = []
    with preserve_state(model, seed):
        operations = _passes(subject, seen, notes)
    table = _table(operations, seen)
    layers = [operation for operation in operations if operation.is_layer]
    details = {"operations": table, "num_layers": len(layers)}
    if len({operation.depth for operation in layers}) < 2:
        why = f"a slope over depth needs two layers, and the model has {len(layers)}"
        return undefined("signal", why, details=details, notes=tuple(notes))
    squares = [None if norm is None else norm**2 for norm in table["gradient_norm"]]
    forward, spread, backward = (
        slope_over_depth(layers, values) for values in (table["second_moment"], table["spread"], squares)
    )
    notes += _trouble(table)
    return Reading(
        "signal",
        forward[0],
        f"exact for {subject.batch.size} examples",
        "computed",
        unit="per layer",
        uncertainty=forward[1],
        per_layer=_per_layer(subject, operations, table["second_moment"]),
        details={
            **details,
            "forward_slope": forward[0],
            "forward_slope_error": forward[1],
            "spread_slope": spread[0],
            "spread_slope_error": spread[1],
            "backward_slope": backward[0],
            "backward_slope_error": backward[1],
        },
        notes=tuple(notes),
    )


class _Statistics(Watcher):
    """Moments of outputs and gradients, kept on the device until the end."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.outputs: list[Tensor] = []
        self.gradients: dict[int, Tensor] = {}
        self.saturated: dict[int, Tensor] = {}

    def before(self, operation: Operation, call: Call) -> None:
        if operation.kind == "activation" and is_bounded(operation, call):
            self.saturated[operation.place] = share_saturated(call, self.threshold)

    def after(self, operation: Operation, output: Tensor) -> None:
        assert operation.place == len(self.outputs)
        self.outputs.append(_output_moments(output))

    def gradient(self, operation: Operation, gradient: Tensor) -> None:
        self.gradients[operation.place] = _gradient_moments(gradient)


def _wide(x: Tensor) -> Tensor:
    """In float64, where squares neither overflow nor cancel; PyTorch's own variance is far slower."""
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64).reshape(len(x), -1)


def _output_moments(output: Tensor) -> Tensor:
    x = _wide(output)
    second, over_examples = torch.dot(x.flatten(), x.flatten()) / x.numel(), x.mean(0)
    mean = over_examples.mean()
    spread = second - torch.dot(over_examples, over_examples) / over_examples.numel()
    spread = spread.clamp_min(0) if len(x) > 1 else spread * math.nan
    zeros = 1 - output.count_nonzero() / output.numel()
    return torch.stack([mean, (second - mean * mean).clamp_min(0), second, spread, zeros.to(mean)])


def _gradient_moments(gradient: Tensor) -> Tensor:
    g = _wide(gradient)
    mean, total = g.mean(), torch.dot(g.flatten(), g.flatten())
    second = total / g.numel()
    return torch.stack([mean, (second - mean * mean).clamp_min(0), second, total.sqrt()])


def share_saturated(call: Call, threshold: float) -> Tensor:
    """The share of inputs at which a bounded activation is nearly flat, relative to its largest slope.

    Args:
        call: The call of the activation.
        threshold: The share of the largest slope below which it is flat.
    """
    slopes = call.slope().abs()
    try:
        grid = torch.linspace(-12, 12, 4801, dtype=call.input.dtype, device=call.input.device)
        on_grid = call.slope(grid).abs()
        largest = torch.maximum(on_grid.max(), slopes.max())
        rests = bool((on_grid[: len(grid) // 2] == 0).all())
    except (RuntimeError, IndexError, ValueError, TypeError):  # a function tied to its number of units
        largest, rests = slopes.max(), False
    flat = slopes < threshold * largest
    if rests:
        flat &= call.input > 0
    return flat.to(torch.get_default_dtype()).mean()


def _passes(subject: Subject, seen: _Statistics, notes: list[str]) -> list[Operation]:
    """Forward and, if there is a loss, backward."""
    try:
        return watch(subject, seen, backward=True)[0]
    except ModelFailedError:
        raise
    except UsageError as error:
        notes.append(f"there are no gradients: {error}")
        seen.outputs.clear()
        return watch(subject, seen)[0]


def _table(operations: list[Operation], seen: _Statistics) -> dict[str, list[Any]]:
    outputs = torch.stack(seen.outputs).tolist() if seen.outputs else []
    gradients = {place: moments.tolist() for place, moments in seen.gradients.items()}
    saturated = {place: float(share) for place, share in seen.saturated.items()}
    table: dict[str, list[Any]] = {
        "name": [operation.name for operation in operations],
        "kind": [operation.kind for operation in operations],
        "layer": [operation.layer for operation in operations],
        "depth": [operation.depth for operation in operations],
    }
    table |= {name: [row[column] for row in outputs] for column, name in enumerate(_FORWARD)}
    table["saturation"] = [saturated.get(operation.place) for operation in operations]
    for column, name in enumerate(_BACKWARD):
        rows = (gradients.get(operation.place) for operation in operations)
        table[name] = [None if row is None else row[column] for row in rows]
    return table


def slope_over_depth(
    layers: Sequence[Operation], values: Sequence[float | None]
) -> tuple[float, float | None]:
    """The slope of ln(value) over the depth of layers by least squares, with its standard error.

    Values that are absent, 0 or not finite are left out; the slope is nan if fewer than two depths remain,
    the error None if two points do.

    Args:
        layers: The layers.
        values: A value for each operation, by its place.
    """
    points = [(layer.depth, values[layer.place]) for layer in layers]
    kept = [(depth, math.log(q)) for depth, q in points if q is not None and 0 < q < math.inf]
    if len({depth for depth, _ in kept}) < 2:
        return math.nan, None
    x, y = np.array(kept, dtype=float).T
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    if len(kept) < 3:
        return slope, None
    residuals = y - y.mean() - slope * centred
    return slope, float(np.sqrt(residuals @ residuals / (len(kept) - 2) / (centred @ centred)))


def _per_layer(subject: Subject, operations: list[Operation], values: list[float]) -> dict[str, float]:
    """The value at the last operation of each module that owns parameters; layers take precedence."""
    found: dict[str, Operation] = {}
    for operation in operations:
        previous = found.get(operation.module)
        if operation.module in subject.layers and (
            operation.is_layer or not (previous and previous.is_layer)
        ):
            found[operation.module] = operation
    return {name: values[found[name].place] for name in subject.layers if name in found}


def _trouble(table: dict[str, list[Any]]) -> list[str]:
    """Where values first stop being finite, and layers whose output is all 0."""
    notes = []
    broken = [n for n, q in zip(table["name"], table["second_moment"], strict=True) if not math.isfinite(q)]
    if broken:
        notes.append(f"values are not finite from {broken[0]} on, and are left out of the slope")
    silent = [n for n, q in zip(table["name"], table["second_moment"], strict=True) if q == 0]
    if silent:
        notes.append(f"the output of {silent[0]} is nothing but 0, and is left out of the slope")
    return notes
