"""Shattered gradients: how similar the input gradients are at neighbouring inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.probes.batch import Batch
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import ModelFailedError, Subject
from apoint.registry import register
from apoint.settings import Count, WholeNumber

Curve = np.ndarray[Any, np.dtype[np.float64]]


@register("probe", "shattering", course="B11", passes=12)
def shattering(
    model: nn.Module,
    batch: Any,
    *,
    num_points: Count = 64,
    num_paths: Count = 8,
    num_lags: Count = 15,
    seed: WholeNumber = 0,
) -> Reading:
    """How similar the input gradients are at neighbouring points: 1 is smooth, 0 is white noise.

    Shows whether the gradient of a deep network can still be followed: with depth it may come to resemble
    white noise, from which a gradient step learns nothing about the next point.

    Along the straight line x(t) between two examples, at `num_points` equally spaced points, g_t is the
    gradient in x of a random combination of the outputs, and ḡ its mean over the line. The autocorrelation
    at lag k is r(k) = Σ_t ⟨g_t − ḡ, g_(t+k) − ḡ⟩ / Σ_t ‖g_t − ḡ‖²; for scalar inputs this is the paper's
    definition. The value is r(1), averaged over `num_paths` pairs of examples, its uncertainty the standard
    error of that mean. A gradient that does not change along the line has r(k) = 1.

    The details hold the curve `autocorrelation` against `lag`, with errors; `half_length`, the lag at which
    it falls to a half, as a share of the line; and the same curve for white noise, −(n−k)/(n(n−1)) for n
    points, and for brown noise, which the gradient of a network with one hidden layer resembles.

    Examples are evaluated independently of each other, in eval mode. Batch norm that is in train mode
    normalises with the statistics of the batch.

    Args:
        num_points: Points on a line. The smallest lag is 1/(num_points − 1) of it.
        num_paths: Pairs of examples.
        num_lags: Lags of the curve in the details.
        seed: Seed of the draws of pairs and outputs.

    Reference: Balduzzi et al. (2017), The shattered gradients problem: if resnets are the answer, then what
    is the question?, section 2.
    """
    subject = Subject(model, batch)
    why = _unfit(subject.batch, num_points)
    if why:
        return undefined("shattering", why)
    with preserve_state(model, seed):
        settled = _settle_statistics(subject)
        model.requires_grad_(False)  # only input gradients are needed
        generator = torch.Generator().manual_seed(seed)
        try:
            found = [_path(subject, generator, num_points) for _ in range(num_paths)]
        except ModelFailedError:
            raise
        except UsageError as error:
            return undefined("shattering", str(error))
    curves = np.stack([path.curve for path in found])
    return _reading(curves, [path.is_flat for path in found], num_points, num_lags, settled)


def _unfit(batch: Batch, num_points: int) -> str:
    if not _real(batch):
        return "inputs are not real numbers, so that there is no line between two of them"
    if batch.size < 2:
        return "a line needs two examples, and the batch has one"
    return "a correlation needs three points on a line" if num_points < 3 else ""


def _real(batch: Batch) -> list[Tensor]:
    size = batch.size
    return [t for t in batch.tensors if t.is_floating_point() and len(t) == size]


@dataclass(frozen=True)
class _Path:
    curve: Curve
    is_flat: bool


def _path(subject: Subject, generator: torch.Generator, num_points: int) -> _Path:
    first, second = torch.randperm(subject.batch.size, generator=generator)[:2].tolist()
    gradients = _gradients(subject, line(subject.batch, first, second, num_points), generator)
    return _Path(autocorrelation(gradients), _is_flat(gradients))


def line(batch: Batch, first: int, second: int, num_points: int) -> Batch:
    """Points on the line between two examples; tensors that are not floating-point are those of the first.

    Args:
        batch: The batch.
        first: The example at the start.
        second: The example at the end.
        num_points: The number of points, including both ends.
    """
    size = batch.size

    def along(tensor: Tensor) -> Tensor:
        if tensor.dim() == 0 or len(tensor) != size:
            return tensor
        if not tensor.is_floating_point():
            return tensor[first].expand(num_points, *tensor.shape[1:]).contiguous()
        share = torch.linspace(0, 1, num_points, dtype=tensor.dtype, device=tensor.device)
        share = share.reshape(-1, *(1,) * (tensor.dim() - 1))
        return (1 - share) * tensor[first] + share * tensor[second]

    return batch.with_targets(None).map(along)


def _gradients(subject: Subject, points: Batch, generator: torch.Generator) -> Tensor:
    """The input gradient of a random combination of the outputs, one row per point."""
    inputs: list[Tensor] = []

    def lifted(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point() or tensor.dim() == 0 or len(tensor) != points.size:
            return tensor
        inputs.append(tensor.detach().requires_grad_())
        return inputs[-1].clone()  # which the model may overwrite

    outputs = subject.outputs(points.map(lifted))
    if len(outputs) != points.size:
        raise UsageError(
            f"outputs of shape {tuple(outputs.shape)} have no row for each of {points.size} examples"
        )
    flat = outputs.reshape(len(outputs), -1)
    direction = torch.randn(flat.shape[1], generator=generator, dtype=torch.float64).to(flat)
    if not flat.requires_grad:
        return torch.zeros(len(flat), 1, dtype=torch.float64)
    (flat @ direction).sum().backward()  # type: ignore[no-untyped-call]
    rows = [x.grad.reshape(len(flat), -1).double().cpu() for x in inputs if x.grad is not None]
    return torch.cat(rows, 1) if rows else torch.zeros(len(flat), 1, dtype=torch.float64)


def autocorrelation(gradients: Tensor) -> Curve:
    """r(k) for every lag k from 0, for vectors g_t as rows; 1 throughout if they do not change."""
    if _is_flat(gradients):
        return np.ones(len(gradients))
    centred = gradients - gradients.mean(0)
    products = (centred @ centred.T).numpy()
    sums = np.array([np.trace(products, offset=lag) for lag in range(len(products))])
    curve: Curve = sums / sums[0]
    return curve


def _is_flat(gradients: Tensor) -> bool:
    """Whether the change along the line is no more than rounding."""
    change = float((gradients - gradients.mean(0)).square().sum())
    return change <= (100 * torch.finfo(torch.float32).eps) ** 2 * float(gradients.square().sum())


def _settle_statistics(subject: Subject) -> bool:
    """Switch to eval mode, with running statistics of this batch where batch norm was in train mode."""
    used = [m for m in subject.model.modules() if m.training and getattr(m, "running_mean", None) is not None]
    if used and subject.batch.size > 1:
        for module in used:
            module.momentum = 1.0  # type: ignore[assignment]
        with torch.no_grad():
            subject.raw_outputs()
    subject.model.eval()
    return bool(used)


def white_noise(num_points: int) -> Curve:
    """E[r(k)] of n i.i.d. numbers, exact: two of them, centred, have correlation −1/(n−1)."""
    lags = np.arange(num_points)
    curve: Curve = -(num_points - lags) / (num_points * (num_points - 1))
    curve[0] = 1.0
    return curve


def brown_noise(num_points: int) -> Curve:
    """The same for a random walk, as a ratio of expectations, which many coordinates average to."""
    times = np.arange(1, num_points + 1, dtype=float)
    covariance = np.minimum.outer(times, times)
    centring = np.eye(num_points) - 1 / num_points
    centred = centring @ covariance @ centring
    sums = np.array([np.trace(centred, offset=lag) for lag in range(num_points)])
    curve: Curve = sums / sums[0]
    return curve


def half_length(curve: Curve) -> float:
    """The lag at which the curve first falls to a half, by linear interpolation; as a share."""
    below = np.flatnonzero(curve <= 0.5)
    if not len(below):
        return 1.0 if np.isfinite(curve).all() else math.nan
    lag = int(below[0])
    part = (curve[lag - 1] - 0.5) / (curve[lag - 1] - curve[lag])
    return float((lag - 1 + part) / (len(curve) - 1))


def _reading(curves: Curve, flat: list[bool], num_points: int, num_lags: int, settled: bool) -> Reading:
    num_paths, lags = len(curves), min(num_lags, num_points - 2) + 1
    mean = curves.mean(0)
    errors = curves.std(0, ddof=1) / math.sqrt(num_paths) if num_paths > 1 else np.full(num_points, np.nan)
    notes = [f"the gradient does not change along {sum(flat)} of {num_paths} lines"] if any(flat) else []
    if num_paths == 1:
        notes.append("one line gives no standard error")
    if not np.isfinite(curves).all():
        notes.append("gradients are not finite")
    statistics = ", batch norm with the statistics of the batch" if settled else ""
    return Reading(
        "shattering",
        float(mean[1]),
        f"estimated from {num_paths} lines of {num_points} points{statistics}",
        "estimated",
        uncertainty=float(errors[1]) if num_paths > 1 else None,
        details={
            "lag": list(range(lags)),
            "autocorrelation": mean[:lags].tolist(),
            "autocorrelation_error": errors[:lags].tolist(),
            "white_noise": white_noise(num_points)[:lags].tolist(),
            "brown_noise": brown_noise(num_points)[:lags].tolist(),
            "half_length": half_length(mean),
            "num_points": num_points,
            "num_paths": num_paths,
        },
        notes=tuple(notes),
    )
