"""Gradients of one batch, layer by layer: relative to the weights, to each other, and over depth."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from apoint.probes.example_rules import Recorder, Use
from apoint.probes.examples import backward_from
from apoint.probes.graph import first_used, graph_of
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Loss, Subject
from apoint.registry import register
from apoint.settings import WholeNumber


@register("probe", "gradients", course="A4 A5 J5", passes=2)
def gradient_norms(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    seed: WholeNumber = 0,
) -> Reading:
    """Norm of the gradient of one batch, in total and by layer, relative to the weights and over depth.

    For each layer l: |g_l|, the norm |w_l| of its weights, |g_l|/|w_l|, and the ratio |g_l|/|g_{l-1}| to the
    layer before it, in the order in which layers are first used. Over depth: the slope s of a straight line
    through the logarithms of norms, counted from the input, so that the norm changes by exp(-s) per layer on
    the way back. Healthy networks have s near 0; s > 0 means gradients that vanish towards the input, s < 0
    gradients that explode. There are two: `weight_slope` of |g_l| of weight matrices, which train, and
    `output_slope` of the gradients that arrive at the outputs of linear and convolutional layers. The second
    also shows an explosion that is hidden from the weights by signals that grow as fast on their way forward.
    A sigmoid, whose slope is at most 1/4, adds ln 4 or more to it unless the weights compensate.

    Parameters that get no gradient at all (detached from the loss, or unused) are listed separately from
    those whose gradient is exactly 0 for this batch, as behind dead units. With an `optimizer`, its next step
    with this gradient is made on copies of weights and state, and |Δw_l|/|w_l| is reported: a value near 10⁻³
    is usual. Manual clipping before the step, and hooks of the optimizer, are not seen.

    Modes stay unchanged, and random layers stay active.

    Args:
        seed: Seed of the random layers.

    Reference: Glorot & Bengio (2010), Understanding the difficulty of training deep feedforward neural
    networks; the usual ratio of update to weight is a rule of thumb of practice.
    """
    subject = Subject(model, batch, loss)
    if not subject.parameters:
        return undefined("gradients", "the model has no trainable parameters")
    with preserve_state(model, seed):
        with Recorder(subject.parameters) as recorder:
            value = subject.loss()
        order = _depth_order(subject, value)
        arriving = _watch_outputs(recorder.uses)
        gradients = backward_from(subject, value)
        updates, remark = _updates(subject, gradients, optimizer)
    norms = _by_layer(subject, {n: g for n, g in gradients.items() if g is not None}, order)
    weights = _by_layer(subject, subject.parameters, order)
    total = math.sqrt(sum(value**2 for value in norms.values()))
    silent, still = _without_gradient(gradients)
    details: dict[str, Any] = {
        "weight_norm": weights,
        "gradient_to_weight": _ratios(norms, weights),
        "ratio_to_layer_before": _neighbours(norms),
        **_slopes(subject, gradients, arriving, order),
        "no_gradient": silent,
        "zero_gradient": still,
    }
    if updates is not None:
        moved = _by_layer(subject, updates, order)
        details["update_norm"], details["update_to_weight"] = moved, _ratios(moved, weights)
        whole = math.sqrt(sum(value**2 for value in weights.values()))
        details["update_to_weight_whole"] = _ratio(math.hypot(*moved.values()), whole)
        details["not_in_optimizer"] = [name for name in subject.parameters if name not in updates]
    return Reading(
        "gradients", total, f"the gradient of {subject.batch.size} examples", "computed", per_layer=norms,
        coverage=subject.coverage(list(subject.parameters)), details=details,
        notes=_notes(total, silent, still, remark),
    )  # fmt: skip


def _notes(total: float, silent: list[str], still: list[str], remark: str) -> tuple[str, ...]:
    notes = [remark] if remark else []
    if not math.isfinite(total):
        notes.append("the gradient is not finite")
    if silent:
        notes.append(f"no gradient arrives at {', '.join(silent)}; it counts as 0")
    if still:
        notes.append(f"the gradient is exactly 0 for {', '.join(still)}")
    return tuple(notes)


def _depth_order(subject: Subject, value: Tensor) -> list[str]:
    """The layers in the order in which their parameters are first used; unused layers come last."""
    graph = graph_of(value)
    times = {
        layer: min(first_used(graph, subject.parameters[name]) for name in names)
        for layer, names in subject.layers.items()
    }
    return sorted(times, key=lambda layer: times[layer])


def _by_layer(subject: Subject, tensors: Mapping[str, Tensor], order: Sequence[str]) -> dict[str, float]:
    """The norm of each layer's tensors together; what is missing counts as 0."""
    squares = {name: _norm(tensor) ** 2 for name, tensor in tensors.items() if name in subject.parameters}
    return {
        layer: math.sqrt(sum(squares.get(name, 0.0) for name in subject.layers[layer])) for layer in order
    }


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.detach().double()))


def _ratio(above: float, below: float) -> float:
    """A quotient that may be infinite, or 0/0."""
    if below == 0:
        return math.nan if above == 0 or math.isnan(above) else math.inf
    return above / below


def _ratios(above: Mapping[str, float], below: Mapping[str, float]) -> dict[str, float]:
    return {name: _ratio(above[name], below[name]) for name in above}


def _neighbours(norms: Mapping[str, float]) -> dict[str, float]:
    """The ratio of each norm to that of the layer before it, except for the first layer."""
    return {name: _ratio(norms[name], norms[before]) for before, name in itertools.pairwise(norms)}


def _without_gradient(gradients: Mapping[str, Tensor | None]) -> tuple[list[str], list[str]]:
    silent = [name for name, gradient in gradients.items() if gradient is None]
    still = [name for name, g in gradients.items() if g is not None and not g.any()]
    return silent, still


def _watch_outputs(uses: Sequence[Use]) -> dict[str, list[Tensor]]:
    """Hook the outputs of layers with a matrix: record the squared norm of what arrives there, by layer."""
    found: dict[str, list[Tensor]] = {}
    for use in uses:
        name = use.names.get("weight")
        if name is None or use.arguments["weight"].dim() < 2 or not use.input.is_floating_point():
            continue
        noted = found.setdefault(name.rpartition(".")[0] or "(model)", [])

        def note(arriving: Sequence[Tensor | None], noted: list[Tensor] = noted, use: Use = use) -> None:
            gradient = arriving[use.edge.output_nr]
            if gradient is not None:
                noted.append(torch.linalg.vector_norm(gradient).double().square())

        use.edge.node.register_prehook(note)
    return found


def _slopes(
    subject: Subject,
    gradients: Mapping[str, Tensor | None],
    arriving: Mapping[str, list[Tensor]],
    order: Sequence[str],
) -> dict[str, Any]:
    """Fit straight lines to log norms over depth: of weight matrices, and of layer outputs."""
    matrices = {}
    for layer in order:
        found = [gradients[name] for name in subject.layers[layer]]
        matrices[layer] = math.hypot(*(_norm(g) for g in found if g is not None and g.dim() >= 2))
    outputs = {layer: math.sqrt(sum(map(float, arriving[layer]))) for layer in order if layer in arriving}
    details: dict[str, Any] = {"output_gradient_norm": outputs}
    for name, norms in (("weight_slope", matrices), ("output_slope", outputs)):
        logarithms = [math.log(norm) for norm in norms.values() if norm > 0 and math.isfinite(norm)]
        slope, error = fitted_slope(logarithms)
        details |= {name: slope, f"{name}_uncertainty": error, f"{name}_layers": len(logarithms)}
    return details


def fitted_slope(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The slope of a least-squares line through values at 0, 1, 2, …, and its standard error.

    Two points give no error, one point no slope.
    """
    count = len(values)
    if count < 2:
        return None, None
    places = [place - (count - 1) / 2 for place in range(count)]
    spread = sum(place**2 for place in places)
    mean = sum(values) / count
    slope = sum(place * value for place, value in zip(places, values, strict=True)) / spread
    if count == 2:
        return slope, None
    rest = sum((value - mean - slope * place) ** 2 for place, value in zip(places, values, strict=True))
    return slope, math.sqrt(rest / (count - 2) / spread)


def _updates(
    subject: Subject, gradients: Mapping[str, Tensor | None], optimizer: torch.optim.Optimizer | None
) -> tuple[dict[str, Tensor] | None, str]:
    """How the optimizer would move each of its parameters, by a step on copies; or why that is not known."""
    if optimizer is None:
        return None, ""
    names = {id(parameter): name for name, parameter in subject.parameters.items()}
    copies: dict[int, Tensor] = {}
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        twin = parameter.detach().clone().requires_grad_(parameter.requires_grad)
        gradient = gradients.get(names.get(id(parameter), ""))
        twin.grad = None if gradient is None else gradient.clone()
        copies[id(parameter)] = twin
    try:
        stepping = _twin(optimizer, copies)
        type(optimizer).step(stepping)
    except (
        Exception
    ) as error:  # any kind of optimizer: one that needs a closure, or holds what cannot be copied
        what = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return None, f"the next step of {type(optimizer).__name__} could not be made on copies ({what})"
    found = {}
    for key, twin in copies.items():
        if key in names:
            name = names[key]
            found[name] = twin.detach() - subject.parameters[name].detach()
    return found, ""


def _twin(optimizer: torch.optim.Optimizer, copies: dict[int, Tensor]) -> torch.optim.Optimizer:
    """An optimizer with the same settings and state, on copies of the parameters.

    The original's `step` may have been replaced (schedulers do so) by one bound to the original. The copy
    leaves that out, and hooks, which may have effects outside.
    """
    kept = {
        name: value
        for name, value in optimizer.__dict__.items()
        if name not in ("step", "zero_grad") and "hooks" not in name
    }
    twin = type(optimizer).__new__(type(optimizer))
    twin.__dict__.update(copy.deepcopy(kept, dict(copies)))
    for name, value in optimizer.__dict__.items():
        if "hooks" in name:
            twin.__dict__[name] = type(value)()
    return twin
