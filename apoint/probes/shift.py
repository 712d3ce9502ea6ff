"""Internal covariate shift, by two definitions: of the inputs of a layer, and of its gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.probes.operations import CONVOLUTIONS, Call, Operation
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Loss, ModelFailedError, Subject
from apoint.probes.watching import Watcher, watch
from apoint.registry import register
from apoint.settings import Count, Positive, WholeNumber


@register("probe", "covariate-shift", course="J1", passes=40)
def covariate_shift(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    start: Mapping[str, Tensor] | None = None,
    *,
    lr: Positive = 0.1,
    max_layers: Count = 32,
    seed: WholeNumber = 0,
) -> Reading:
    """How far the inputs of the layers have moved since training began, in units of their standard deviation.

    Shows what batch norm was meant to cure, and the quantity by which it was later found not to cure it.

    1. Of the inputs (Ioffe and Szegedy). The same batch is run with the weights `start` and with the current
       ones. With μ_u, σ_u the mean and standard deviation of unit u of a layer's input before, and μ′_u, σ′_u
       now, the shift is √(mean_u[(μ′_u − μ_u)² + (σ′_u − σ_u)²]) / s with s² = mean_u[(σ_u² + σ′_u²)/2]: the
       Wasserstein distance of two normal distributions for each unit, in typical standard deviations. The
       value is its mean over layers and norms, except those that take the data itself.
    2. Of the gradient (Santurkar et al.). G is a layer's gradient, G′ its gradient after all layers before
       it, in the order of execution, took a gradient step of rate `lr` on the same batch: `gradient_change`
       is ‖G − G′‖, `relative` this divided by ‖G‖, `cosine` the cosine of the angle between them.

    Both are in the details, as the tables `inputs` and `gradients`. The model stays in its current mode;
    dropout draws the same masks each time. Running statistics in eval mode are the present ones throughout.

    Args:
        lr: The learning rate of the step of the preceding layers, for the second definition.
        max_layers: The maximum number of layers, evenly chosen, for the second definition; each costs a
            gradient.
        seed: Seed of the dropout draws.

    Reference: Ioffe and Szegedy (2015), Batch normalization, section 2; Santurkar et al. (2018), How does
    batch normalization help optimization?, definition 2.1.
    """
    subject = Subject(model, batch, loss)
    if start is not None:
        check_start(model, start)
    now = _input_moments(subject, None, seed)
    notes: list[str] = []
    gradients = _gradient_part(subject, list(now[0]), lr, max_layers, seed, notes)
    details: dict[str, Any] = {"gradients": gradients} if gradients else {}
    if start is None:
        why = "the weights that training began with are not known"
        return undefined("covariate-shift", why, details=details, notes=tuple(notes))
    before = _input_moments(subject, start, seed)
    if [o.name for o in before[0]] != [o.name for o in now[0]]:
        why = "the model does not run the same operations with both sets of weights"
        return undefined("covariate-shift", why, details=details, notes=tuple(notes))
    table = _input_table(before, now)
    inner = [shift for shift, own in zip(table["shift"], table["takes_data"], strict=True) if not own]
    if not inner:
        why = "no layer takes what another gives"
        return undefined("covariate-shift", why, details={**details, "inputs": table}, notes=tuple(notes))
    return Reading(
        "covariate-shift",
        sum(inner) / len(inner),
        f"exact for {subject.batch.size} examples, mean over the inputs of {len(inner)} layers",
        "computed",
        unit="standard deviations",
        per_layer=_by_module(subject, table),
        coverage=_coverage(subject, table),
        details={**details, "inputs": table},
        notes=tuple(notes),
    )


def check_start(model: nn.Module, start: Mapping[str, Tensor]) -> None:
    """Raise if the weights are those of another model.

    Args:
        model: The model.
        start: Weights by name; every trainable parameter must be there.
    """
    known = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, tensor in start.items():
        if name not in known:
            raise UsageError(f"start has weights {name!r}, which the model does not have")
        if tensor.shape != known[name].shape:
            raise UsageError(
                f"start has {name!r} of shape {tuple(tensor.shape)}, and the model has it of "
                f"{tuple(known[name].shape)}"
            )
    missing = [name for name, p in model.named_parameters() if p.requires_grad and name not in start]
    if missing:
        raise UsageError(f"start lacks the weights {missing[0]!r}; give those of every trainable parameter")


# -- what layers are given -----------------------------------------------------------------------------------

Moments = tuple[list[Operation], list[tuple[Tensor, Tensor]]]


class _Inputs(Watcher):
    """Mean and standard deviation of each unit of the inputs of layers and norms."""

    def __init__(self) -> None:
        self.moments: dict[int, tuple[Tensor, Tensor]] = {}

    def before(self, operation: Operation, call: Call) -> None:
        if not operation.is_layer and operation.kind != "norm":
            return
        axis = 1 if operation.function in CONVOLUTIONS else -1 if operation.is_layer else operation.unit_axis
        x = call.input.movedim(axis, 0)
        x = x.reshape(len(x), -1).double().cpu()
        self.moments[operation.place] = x.mean(1), x.std(1, correction=0)


def _input_moments(subject: Subject, weights: Mapping[str, Tensor] | None, seed: int) -> Moments:
    seen = _Inputs()
    with preserve_state(subject.model, seed, weights=weights is not None):
        if weights is not None:
            tensors = dict(subject.model.named_parameters()) | dict(subject.model.named_buffers())
            with torch.no_grad():
                for name, values in weights.items():
                    tensors[name].copy_(values)
        operations, _ = watch(subject, seen)
    kept = [operation for operation in operations if operation.place in seen.moments]
    return kept, [seen.moments[operation.place] for operation in kept]


def _input_table(before: Moments, now: Moments) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "name": [o.name for o in now[0]],
        "module": [o.module for o in now[0]],
        "takes_data": [o.depth == o.is_layer for o in now[0]],
        "shift": [], "mean_shift": [], "log_deviation_ratio": [],
    }  # fmt: skip
    for old, new in zip(before[1], now[1], strict=True):
        shift, mean_shift, ratio = distribution_shift(*old, *new)
        columns["shift"].append(shift)
        columns["mean_shift"].append(mean_shift)
        columns["log_deviation_ratio"].append(ratio)
    return columns


def distribution_shift(
    mean_before: Tensor, deviation_before: Tensor, mean_now: Tensor, deviation_now: Tensor
) -> tuple[float, float, float]:
    """The shift, its part due to the means, and ln of the ratio of typical standard deviations.

    Args:
        mean_before: The mean of each unit before.
        deviation_before: Its standard deviation before.
        mean_now: The mean now.
        deviation_now: The standard deviation now.
    """
    means = (mean_now - mean_before).square().mean()
    deviations = (deviation_now - deviation_before).square().mean()
    old, new = deviation_before.square().mean(), deviation_now.square().mean()
    scale = (old + new) / 2
    if scale == 0:  # constants: moved by any number of standard deviations, or not at all
        return (0.0 if means == 0 else math.inf), (0.0 if means == 0 else math.inf), 0.0
    shift, mean_shift = ((means + deviations) / scale).sqrt(), (means / scale).sqrt()
    return float(shift), float(mean_shift), float((new / old).log() / 2)


def _by_module(subject: Subject, table: dict[str, list[Any]]) -> dict[str, float]:
    rows: dict[str, list[float]] = {}
    for module, shift in zip(table["module"], table["shift"], strict=True):
        rows.setdefault(module, []).append(shift)
    return {name: sum(rows[name]) / len(rows[name]) for name in subject.layers if name in rows}


def _coverage(subject: Subject, table: dict[str, list[Any]]) -> float:
    """The share of the parameters that the layers in the table hold, themselves or in their submodules."""
    modules = {name or "(model)": module for name, module in subject.model.named_modules()}
    held = {
        id(parameter)
        for owner in set(table["module"])
        for parameter in modules[owner].parameters(recurse=owner != "(model)")
    }
    return subject.coverage([name for name, p in subject.parameters.items() if id(p) in held])


# -- what gradients layers get -------------------------------------------------------------------------------


def _gradient_part(
    subject: Subject, seen: list[Operation], lr: float, max_layers: int, seed: int, notes: list[str]
) -> dict[str, list[Any]]:
    try:
        layers = _in_order(subject, seen)
        return gradient_shift(subject, layers, lr, max_layers, seed) if len(layers) > 1 else {}
    except ModelFailedError:
        raise
    except UsageError as error:
        notes.append(f"there are no gradients: {error}")
        return {}


def _in_order(subject: Subject, seen: list[Operation]) -> dict[str, list[str]]:
    """Layers in the order of execution; one that was not seen follows the one registered before it."""
    first: dict[str, int] = {}
    for operation in seen:
        first.setdefault(operation.module, operation.place)
    place, places = -1, {}
    for name in subject.layers:
        place = first.get(name, place)
        places[name] = place
    return {name: subject.layers[name] for name in sorted(places, key=lambda name: places[name])}


def gradient_shift(
    subject: Subject, layers: Mapping[str, list[str]], lr: float, max_layers: int, seed: int
) -> dict[str, list[Any]]:
    """How the gradients of layers change when the layers before them take a step.

    Args:
        subject: The model, the batch and the loss.
        layers: The names of the parameters of each layer, in the order of execution.
        lr: The learning rate of that step.
        max_layers: The maximum number of layers, evenly chosen.
        seed: Seed of the dropout draws.
    """
    gradients = _gradients(subject, list(subject.parameters), {}, seed)
    stepped = {name: p.detach() - lr * gradients[name] for name, p in subject.parameters.items()}
    names = list(layers)
    inner = range(1, len(names))
    chosen = (
        inner
        if len(inner) <= max_layers
        else [inner[i * len(inner) // max_layers] for i in range(max_layers)]
    )
    table: dict[str, list[Any]] = {"layer": [], "gradient_change": [], "relative": [], "cosine": []}
    for number in chosen:
        own = layers[names[number]]
        moved = {name: stepped[name] for layer in names[:number] for name in layers[layer]}
        after = _gradients(subject, own, moved, seed)
        old, new = (
            torch.cat([source[name].flatten().double() for name in own]) for source in (gradients, after)
        )
        change, size = float((old - new).norm()), float(old.norm())
        table["layer"].append(names[number])
        table["gradient_change"].append(change)
        table["relative"].append(change / size if size else math.nan)
        table["cosine"].append(float(torch.dot(old, new)) / (size * float(new.norm()) or math.nan))
    return table


def _gradients(
    subject: Subject, names: list[str], moved: Mapping[str, Tensor], seed: int
) -> dict[str, Tensor]:
    """The gradient with respect to some parameters, with other values for some of the others."""
    with preserve_state(subject.model, seed):
        for name, parameter in subject.parameters.items():
            parameter.requires_grad_(name in names)  # backpropagate only as far as needed
        loss = subject.loss(subject.batch.map(torch.clone), tensors=moved or None)
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        found = {name: subject.parameters[name].grad for name in names}
    return {name: torch.zeros_like(subject.parameters[name]) if g is None else g for name, g in found.items()}
