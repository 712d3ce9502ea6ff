"""Training with a fixed kernel: gradient flow on the squared loss in closed form, and kernel regression."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from apoint.errors import UsageError

_ROUNDING = 10.0  # how many times n·ε of the largest eigenvalue counts as rounding of the kernel


class KernelFit:
    """A kernel and targets, ready to predict at any time of training.

    Made by `fit`.

    Attributes:
        smallest_eigenvalue: Smallest eigenvalue of the given kernel.
        largest_eigenvalue: Largest eigenvalue of the given kernel.
        jitter: What was added to the diagonal on top of the ridge, so that the kernel can be inverted; 0 if
            nothing was needed.
        ridge: The given ridge.
    """

    def __init__(self, kernel: Tensor, targets: Tensor, ridge: float) -> None:
        _check_kernel(kernel, targets, ridge)
        self._targets = targets.double().reshape(len(targets), -1)
        self._shape, self._dtype = targets.shape[1:], kernel.dtype
        # the average of both halves, so that rounding does not make them differ
        values, self._vectors = torch.linalg.eigh((kernel.double() + kernel.double().mT) / 2)
        self.smallest_eigenvalue, self.largest_eigenvalue = float(values[0]), float(values[-1])
        least = _ROUNDING * len(kernel) * torch.finfo(kernel.dtype).eps * max(self.largest_eigenvalue, 0.0)
        if self.smallest_eigenvalue < -least:
            raise UsageError(
                f"kernel: must be positive, but its smallest eigenvalue is {self.smallest_eigenvalue:.3g} "
                f"with {self.largest_eigenvalue:.3g} the largest; rounding explains {-least:.1g} at most"
            )
        self.ridge = ridge
        self.jitter = (
            max(0.0, least - (self.smallest_eigenvalue + ridge)) if self.largest_eigenvalue > 0 else 1.0
        )
        self._values = values.clamp(min=0.0)

    def at(
        self,
        cross: Tensor | None = None,
        time: float = math.inf,
        start: Tensor | None = None,
        cross_start: Tensor | None = None,
    ) -> Tensor:
        """The prediction after some time of training, [m, …], shaped like the targets.

        Gradient flow on ½·Σ(f(x_i) − y_i)² with kernel K gives, from f₀ on,

            f_t(x) = f₀(x) + K(x, X)·K⁻¹·(1 − exp(−K·t))·(y − f₀(X)),

        and with a ridge λ the same with K + λ in place of K in the inverse and the exponential, which is
        gradient flow on the squared loss plus λ/2·|θ − θ₀|². At infinite time that is kernel regression.

        Args:
            cross: K(x, X), new inputs in rows; by default the kernel itself, for predictions at the inputs X.
            time: t, at least 0; steps times learning rate for plain gradient descent with small steps.
            start: f₀(X), the outputs at time 0; 0 by default.
            cross_start: f₀(x), the same for the new inputs.
        """
        if not time >= 0:
            raise UsageError(f"kernel: a time of training must be at least 0, got {time:g}")
        left = self._targets if start is None else self._targets - start.double().reshape(self._targets.shape)
        rates = self._values + self.ridge + (self.jitter if math.isinf(time) else 0.0)
        weights = self._vectors @ (_response(rates, time)[:, None] * (self._vectors.mT @ left))
        if cross is None:
            moved = self._vectors @ (self._values[:, None] * (self._vectors.mT @ weights))
            first = start
        else:
            _check_cross(cross, len(self._values))
            moved, first = cross.double() @ weights, cross_start
        moved = moved.reshape(len(moved), *self._shape)
        if first is not None:
            moved = moved + first.double().reshape(moved.shape)
        result: Tensor = moved.to(self._dtype)
        return result


def _response(rates: Tensor, time: float) -> Tensor:
    """(1 − exp(−λt))/λ, which is t where λ is 0."""
    if math.isinf(time):
        return 1 / rates
    safe = rates.clamp(min=torch.finfo(rates.dtype).tiny)
    return torch.where(rates * time > 1e-12, -torch.expm1(-safe * time) / safe, torch.full_like(rates, time))


def fit(kernel: Tensor, targets: Tensor, ridge: float = 0.0) -> KernelFit:
    """Prepare a kernel between the training inputs for predictions; see `KernelFit.at`.

    Eigenvalues are computed in float64. An infinite time without ridge would divide by those that rounding
    cannot distinguish from 0, so a jitter is added and reported; a finite time needs none.

    Args:
        kernel: K(X, X), [n, n], symmetric and positive up to rounding.
        targets: y, [n] or [n, …].
        ridge: λ, at least 0.
    """
    return KernelFit(kernel, targets, ridge)


class Classified(NamedTuple):
    """The classification of new inputs by a kernel.

    Attributes:
        classes: The class with the largest score, [m].
        scores: Scores, [m, C].
        fit: The kernel and targets, with eigenvalues and jitter.
    """

    classes: Tensor
    scores: Tensor
    fit: KernelFit


def classify(
    kernel: Tensor,
    labels: Tensor,
    cross: Tensor,
    classes: int | None = None,
    ridge: float = 0.0,
    time: float = math.inf,
) -> Classified:
    """Classify by regression of one-hot targets with mean 0: 1 − 1/C for the class and −1/C for others.

    Args:
        kernel: K(X, X), [n, n].
        labels: The class of each training input, [n].
        cross: K(x, X), [m, n].
        classes: C; one more than the largest label by default.
        ridge: As in `fit`.
        time: As in `KernelFit.at`.

    Reference: Lee, Bahri, Novak, Schoenholz, Pennington and Sohl-Dickstein (2018), Deep neural networks as
    Gaussian processes, section 3.
    """
    if labels.dtype.is_floating_point or labels.dim() != 1 or (labels.numel() and int(labels.min()) < 0):
        raise UsageError(
            f"kernel: labels must be whole numbers from 0 on, [n], got {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    found = int(labels.max()) + 1
    count = found if classes is None else classes
    if count < max(2, found):
        raise UsageError(
            f"kernel: classes must be at least 2 and above every label, got {count} with label {found - 1}"
        )
    targets = torch.nn.functional.one_hot(labels, count).to(kernel.dtype) - 1 / count
    fitted = fit(kernel, targets, ridge)
    scores = fitted.at(cross, time)
    return Classified(scores.argmax(1), scores, fitted)


def _check_kernel(kernel: Tensor, targets: Tensor, ridge: float) -> None:
    if (
        kernel.dim() != 2
        or kernel.shape[0] != kernel.shape[1]
        or len(kernel) != len(targets)
        or not len(kernel)
    ):
        raise UsageError(
            f"kernel: must be square with a row for each target, got {tuple(kernel.shape)} and "
            f"{len(targets)} targets"
        )
    if not bool(kernel.isfinite().all()):
        raise UsageError("kernel: must be finite, got NaN or infinity")
    gap, size = float((kernel - kernel.mT).abs().max()), float(kernel.abs().max())
    if gap > 1e-3 * size:
        raise UsageError(f"kernel: must be symmetric, but entries differ from their mirror by {gap:.3g}")
    if not (ridge >= 0 and math.isfinite(ridge)):
        raise UsageError(f"kernel: ridge must be at least 0 and finite, got {ridge:g}")


def _check_cross(cross: Tensor, count: int) -> None:
    if cross.dim() != 2 or cross.shape[1] != count:
        raise UsageError(
            f"kernel: cross must have {count} columns, one a training input, got {tuple(cross.shape)}"
        )
