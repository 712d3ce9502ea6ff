"""How far training has moved from its start: distance, path length, and change of the tangent kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.probes.hessian import Flat
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Subject, predictions_of
from apoint.registry import register
from apoint.settings import Count, WholeNumber

Weights = Mapping[str, Tensor]
_NOTHING = "the model has no trainable parameters"
_NO_START = "the start holds none of the trainable parameters"


# -- distance --------------------------------------------------------------------------------------------


@register("probe", "distance", course="C4 K8", passes=0.2)
def distance(model: nn.Module, start: Weights) -> Reading:
    """How far the weights are from where training began, in total and by layer.

    In lazy training the weights hardly move relative to their norm; with dropout they move further.

        ‖w − w₀‖,  relative ‖w − w₀‖/‖w₀‖

    with w the trainable weights and w₀ those of `start`. `details` holds the relative movement in total and
    by layer; for a layer that began at 0 it is infinite as soon as the layer moves. A relative movement of a
    percent or less is lazy; above 1 little is left of the start.

    Reference:
        Liu et al., 2023, Dropout reduces underfitting; Chizat, Oyallon and Bach, 2019, On lazy training in
        differentiable programming.
    """
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        return undefined("distance", _NOTHING)
    shared, notes = _shared(parameters, start)
    if not shared:
        return undefined("distance", _NO_START)
    moved = {name: _square(parameters[name] - begun) for name, begun in shared.items()}
    length = {name: _square(begun) for name, begun in shared.items()}
    by_layer = {layer: math.sqrt(value) for layer, value in _by_layer(moved).items()}
    whole, before = math.sqrt(sum(moved.values())), math.sqrt(sum(length.values()))
    relative = {
        layer: _ratio(by_layer[layer], math.sqrt(value)) for layer, value in _by_layer(length).items()
    }
    total = sum(p.numel() for p in parameters.values())
    return Reading(
        "distance",
        whole,
        "exact",
        "computed",
        per_layer=by_layer,
        coverage=sum(p.numel() for p in shared.values()) / total,
        details={"relative": _ratio(whole, before), "relative_by_layer": relative, "start_norm": before},
        notes=notes if math.isfinite(whole) else (*notes, "weights are not finite"),
    )


def _shared(parameters: Weights, start: Weights) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The starting values of the parameters that have them, on their device, and a note about the others."""
    shared = {}
    for name, parameter in parameters.items():
        if name not in start:
            continue
        begun = start[name].detach()
        if begun.shape != parameter.shape:
            raise UsageError(
                f"start: {name} has shape {tuple(begun.shape)} and in the model {tuple(parameter.shape)}; "
                "give the weights of this model"
            )
        shared[name] = begun.to(parameter.device, parameter.dtype)
    missing = [name for name in parameters if name not in shared]
    return shared, (f"not in the start: {', '.join(missing)}",) if missing else ()


def _square(tensor: Tensor) -> float:
    return (
        float(torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))) ** 2
    )


def _by_layer(values: Mapping[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in values.items():
        layer = name.rpartition(".")[0] or "(model)"
        found[layer] = found.get(layer, 0.0) + value
    return found


def _ratio(part: float, whole: float) -> float:
    """part/whole, 0 for 0/0 and infinite for a whole of 0."""
    if whole == 0:
        return part if math.isnan(part) else math.inf if part else 0.0
    return part / whole


# -- path ------------------------------------------------------------------------------------------------


@register("track", "path", course="C4 K8")
class Path:
    """The length of the path of the weights, the distance it covered, and how straight it was.

        length = Σ_t ‖w_t − w_{t−1}‖,  distance = ‖w_T − w_0‖,  straightness = distance/length

    over the steps t that were observed. Straightness is 1 on a line, about 1/√T for a random walk of T steps.
    The value is the length. Steps that were not observed are bridged by a straight line, so the length is
    then a lower bound, which a note reports.
    """

    def __init__(self) -> None:
        self._start: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}
        self._lengths: dict[str, float] = {}
        self._whole, self._num_observed, self._step = 0.0, 0, 0

    def begin(self, model: nn.Module) -> None:
        """Remember the weights that training starts from."""
        self._start, self._last = _weights(model), _weights(model)
        self._lengths = {}
        self._whole, self._num_observed, self._step = 0.0, 0, 0

    def observe(self, model: nn.Module, step: int) -> None:
        """Add the step from the weights of the last observation."""
        now = {name: p.detach() for name, p in model.named_parameters() if name in self._last}
        if not now:
            return
        last = [self._last[name] for name in now]
        norms = torch._foreach_norm(torch._foreach_sub(list(now.values()), last))
        squares = dict(zip(now, torch.stack(norms).double().square().tolist(), strict=True))
        for layer, square in _by_layer(squares).items():
            self._lengths[layer] = self._lengths.get(layer, 0.0) + math.sqrt(square)
        self._whole += math.sqrt(sum(squares.values()))
        torch._foreach_copy_(last, list(now.values()))
        self._num_observed, self._step = self._num_observed + 1, step

    def read(self, model: nn.Module, batch: Any = None, loss: Any = None) -> Reading:
        """Length, distance and straightness up to the last observed step."""
        if not self._start:
            return undefined("path", "no weights are known from before; begin comes first")
        gone = {name: _square(self._last[name] - begun) for name, begun in self._start.items()}
        away = math.sqrt(sum(gone.values()))
        notes = []
        if self._num_observed < self._step:
            seen = f"{self._num_observed} of {self._step} steps were observed"
            notes.append(f"{seen}, so the length is a lower bound")
        if not math.isfinite(self._whole):
            notes.append("weights were not finite on the way")
        return Reading(
            "path",
            self._whole,
            "exact over the observed steps",
            "computed",
            per_layer=dict(self._lengths),
            details={
                "distance": away,
                "straightness": away / self._whole if self._whole else 1.0,
                "relative": _ratio(away, math.sqrt(sum(map(_square, self._start.values())))),
                "num_observed": self._num_observed,
                "step": self._step,
            },
            notes=tuple(notes),
        )

    def state(self) -> dict[str, Tensor]:
        """Weights at the start and at the last observation, lengths and counts."""
        start = {f"start.{name}": value.clone() for name, value in self._start.items()}
        last = {f"last.{name}": value.clone() for name, value in self._last.items()}
        lengths = {
            f"length.{layer}": torch.tensor(length, dtype=torch.float64)
            for layer, length in self._lengths.items()
        }
        whole = torch.tensor(self._whole, dtype=torch.float64)
        counts = torch.tensor([self._num_observed, self._step])
        return {**start, **last, **lengths, "whole": whole, "counts": counts}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self._start, self._last = _under("start.", state), _under("last.", state)
        self._lengths = {layer: float(length) for layer, length in _under("length.", state).items()}
        self._whole = float(state["whole"])
        self._num_observed, self._step = (int(count) for count in state["counts"])


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """All parameters, frozen ones too, since they may be unfrozen later."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def _under(prefix: str, state: Weights) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): v.clone() for name, v in state.items() if name.startswith(prefix)}


# -- kernel ----------------------------------------------------------------------------------------------


@register("probe", "kernel-change", course="K8 K6", passes=45)
def kernel_change(
    model: nn.Module,
    batch: Any,
    start: Weights,
    *,
    num_examples: Count = 8,
    num_outputs: Count = 16,
    seed: WholeNumber = 0,
) -> Reading:
    """How much the tangent kernel has changed since training began: 0 in lazy training.

    A network whose kernel stays the same learns like a linear model on fixed features.

        K_ij = 1/C·Σ_c ⟨∂f_c(x_i)/∂w, ∂f_c(x_j)/∂w⟩,  value = ‖K − K₀‖/‖K₀‖

    with f_c the C outputs of the model, x_i the first `num_examples` of the `batch`, w the trainable weights,
    K₀ the kernel at those of `start`, and Frobenius norms. With more than `num_outputs` outputs the sum over
    c is estimated from that many vectors of random signs over the outputs, the same for both kernels; the
    standard error is a jackknife over them. `details` holds the cosine of the two kernels, which ignores a
    common factor, the same after centring (CKA), and the ratio of their sizes. Below 0.1 is nearly lazy; at
    about 1 the features are new.

    The model stays in its current mode: with batch norm in train mode f is the joint map of these examples.
    Buffers, such as running statistics, have their current values for both kernels.

    Args:
        num_examples: The number of examples for the kernel.
        num_outputs: The number of outputs to use one by one, or of random combinations if there are more
            outputs.
        seed: Seed of the random draws.

    Reference:
        Jacot, Gabriel and Hongler, 2018, Neural tangent kernel; Fort et al., 2020, Deep learning versus
        kernel learning; Kornblith et al., 2019, Similarity of neural network representations revisited.
    """
    name = "kernel-change"
    with preserve_state(model, seed):
        subject = Subject(model, batch)
        if not subject.parameters:
            return undefined(name, _NOTHING)
        shared, notes = _shared(subject.parameters, start)
        if not shared:
            return undefined(name, _NO_START)
        few = subject.batch.select(slice(0, num_examples))
        with torch.no_grad():
            outputs = predictions_of(subject.raw_outputs(few))
        if outputs is None or outputs.shape[0] != few.size:
            return undefined(name, "the model gives no predictions with one row for each example")
        width = outputs.flatten(1).shape[1] if outputs.dim() > 1 else 1
        mixes_MC = _mixes(width, num_outputs, seed)
        now = {key: p.detach() for key, p in subject.parameters.items()}
        kernels = [tangent_kernels(subject, few, point, mixes_MC, seed) for point in ({**now, **shared}, now)]
    return _change(name, kernels, width > num_outputs, subject.coverage(shared), notes)


def _mixes(width: int, num_outputs: int, seed: int) -> Tensor:
    """Each output by itself, or random signs over all of them."""
    if width <= num_outputs:
        return torch.eye(width)
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (num_outputs, width), generator=generator) * 2 - 1
    return signs.float() * math.sqrt(1 / num_outputs)


def tangent_kernels(subject: Subject, batch: Any, point: Weights, mixes_MC: Tensor, seed: int) -> Tensor:
    """The Gram matrix of the gradients of each mix of the outputs, [M, B, B], divided by their number C.

    Args:
        subject: The model.
        batch: The examples.
        point: The weights.
        mixes_MC: Combinations of the C outputs; the rows of the identity matrix for each by itself.
        seed: Seed of the random draws.
    """
    flat = Flat(dict(point))
    with preserve_state(subject.model, seed):
        leaves = {name: value.clone().requires_grad_() for name, value in point.items()}
        outputs_BC = subject.outputs(batch, leaves).reshape(batch.size, -1)
        found = []
        for mix_C in mixes_MC.to(outputs_BC):
            mixed_B = outputs_BC @ mix_C
            if not mixed_B.requires_grad:
                return torch.zeros(len(mixes_MC), batch.size, batch.size, dtype=torch.float64)
            rows = [
                torch.autograd.grad(one, list(leaves.values()), retain_graph=True, allow_unused=True)
                for one in mixed_B
            ]
            gradients_BN = torch.stack([flat.join(row) for row in rows])
            found.append((gradients_BN @ gradients_BN.T).double().cpu())
    return torch.stack(found) / outputs_BC.shape[1]


def _change(
    name: str, kernels: list[Tensor], estimated: bool, coverage: float, notes: tuple[str, ...]
) -> Reading:
    """The reading of two kernels, each a sum over mixes."""
    before, now = (kernel.sum(0) for kernel in kernels)
    if not float(before.norm()):
        return undefined(name, "the outputs did not depend on the weights at the start")
    value = _relative_change(before, now)
    error = None
    if estimated:
        without = [_relative_change(before - one, now - other) for one, other in zip(*kernels, strict=True)]
        left_out = torch.tensor(without, dtype=torch.float64)
        error = float(((left_out - left_out.mean()).square().sum() * (1 - 1 / len(left_out))).sqrt())
    details = {
        "cosine": _cosine(before, now),
        "centred_cosine": _cosine(_centred(before), _centred(now)),
        "size_ratio": float(now.norm() / before.norm()),
        "num_examples": len(now),
    }
    many = len(kernels[0])
    return Reading(
        name,
        value,
        f"estimated from {many} random combinations of the outputs" if estimated else "exact",
        "estimated" if estimated else "computed",
        uncertainty=error,
        coverage=coverage,
        details=details,
        notes=notes if math.isfinite(value) else (*notes, "the kernel is not finite"),
    )


def _relative_change(before: Tensor, now: Tensor) -> float:
    return float((now - before).norm() / before.norm())


def _cosine(one: Tensor, two: Tensor) -> float:
    return float((one * two).sum() / (one.norm() * two.norm()))


def _centred(kernel: Tensor) -> Tensor:
    rows = kernel - kernel.mean(0, keepdim=True)
    return rows - rows.mean(1, keepdim=True)
