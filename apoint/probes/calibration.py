"""Calibration: whether a classifier that says 80 % is right 80 times in a hundred."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.probes.hull import binomial_interval
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Loss, ModelFailedError, Subject
from apoint.registry import register
from apoint.settings import Count, WholeNumber

Vector = np.ndarray[Any, np.dtype[np.float64]]
Bins = np.ndarray[Any, np.dtype[np.intp]]
Error = Callable[[Vector], float]
_ROUGH = 512  # grid points, enough for simulations


@register("probe", "calibration", course="D7", passes=10)
def calibration(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    *,
    num_bins: Count = 15,
    num_simulations: Count = 100,
    seed: WholeNumber = 0,
) -> Reading:
    """How far a classifier's confidence is from how often it is right: the smooth calibration error.

    With f_i the confidence in the predicted class and y_i = 1 if that is correct (for outputs that are logits
    of single bits, f_i the probability of a 1 and y_i the bit), the smooth error at width σ is
    ∫₀¹ |Σ_i (y_i − f_i)·K_σ(f_i, t)|/n dt, K_σ the Gaussian kernel reflected at 0 and 1; the value is the one
    whose width equals the error itself. 0 is calibrated. Its uncertainty is from a bootstrap over examples.

    In the details, each error comes with `expected`, the error that a perfectly calibrated model with the
    same confidences would show on this many examples (by simulation), since none of the errors is unbiased:

    - `smooth`; `equal_width` and `equal_mass`, the usual binned errors Σ_b (n_b/n)·|mean y − mean f|;
    - `reliability`: for each bin of equal mass the mean confidence, the accuracy and its exact 95 % interval;
    - `temperature`: the T that minimises the log loss of logits/T, with log loss and smooth error before and
      after; above 1 the model is overconfident;
    - `brier`, Σ_c (p_c − 1[y = c])² and `log_loss`, the mean of −ln p_y, both proper scores.

    The model is in eval mode. Measure it on held-out data.

    Args:
        num_bins: The number of bins of the binned errors and the reliability curve.
        num_simulations: The number of simulations of a calibrated model, and of bootstrap resamples for the
            uncertainty.
        seed: Seed of their draws.

    Reference: Błasiok and Nakkiran (2023), Smooth ECE: principled reliability diagrams via kernel smoothing;
    Guo et al. (2017), On calibration of modern neural networks; Naeini, Cooper and Hauskrecht (2015).
    """
    subject = Subject(model, batch, loss)
    try:
        found = _predictions(subject, seed)
    except ModelFailedError:
        raise
    except UsageError as error:
        return undefined("calibration", str(error))
    if not np.isfinite(found.confidence).all():
        return undefined("calibration", "the model's probabilities are not finite")
    rng = np.random.default_rng(seed)
    f, y = found.confidence, found.outcome
    by_width, by_mass = width_bins(f, num_bins), mass_bins(f, num_bins)
    errors: dict[str, Error] = {
        "smooth": lambda outcome: smooth_error(f, outcome, grid=_ROUGH),
        "equal_width": lambda outcome: binned_error(f, outcome, by_width),
        "equal_mass": lambda outcome: binned_error(f, outcome, by_mass),
    }
    table = {
        name: {"error": error(y), **_under_calibration(f, error, num_simulations, rng)}
        for name, error in errors.items()
    }
    table["smooth"]["error"] = smooth_error(f, y)
    return Reading(
        "calibration",
        table["smooth"]["error"],
        f"estimated from {len(f)} predictions",
        "estimated",
        uncertainty=_bootstrap(found, num_simulations, rng),
        details={
            **table,
            "reliability": reliability(f, y, num_bins),
            "temperature": _temperature(found),
            "brier": found.brier,
            "log_loss": found.log_loss(1.0),
            "accuracy": found.accuracy,
            "mean_confidence": float(f.mean()),
            "num_predictions": len(f),
        },
        notes=_notes(found),
    )


# -- predictions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predictions:
    """Logits with their labels: one row per prediction.

    Attributes:
        logits: In float64, a column for each class; for single bits two columns, of which the first is 0.
        labels: The correct class.
        example: Which example of the batch the prediction belongs to.
        single_bits: Whether the outputs are logits of single bits.
    """

    logits: Tensor
    labels: Tensor
    example: Bins
    single_bits: bool

    @property
    def accuracy(self) -> float:
        """The share of predictions that are correct."""
        return float((self.logits.argmax(1) == self.labels).double().mean())

    @property
    def confidence(self) -> Vector:
        """The probability of the predicted class; for single bits that of a 1."""
        return self._at(1.0)

    def _at(self, temperature: float) -> Vector:
        probabilities = (self.logits / temperature).softmax(1)
        chosen = probabilities[:, 1] if self.single_bits else probabilities.max(1).values
        found: Vector = chosen.numpy()
        return found

    @property
    def outcome(self) -> Vector:
        """1 where the predicted class is correct; for single bits the bit."""
        right = self.labels if self.single_bits else self.logits.argmax(1) == self.labels
        found: Vector = right.double().numpy()
        return found

    @property
    def brier(self) -> float:
        """The mean squared distance of the probabilities from the truth."""
        truth = F.one_hot(self.labels, self.logits.shape[1])
        return float((self.logits.softmax(1) - truth).square().sum(1).mean())

    def log_loss(self, temperature: float) -> float:
        """The mean of −ln p of the correct class, with logits divided by a temperature."""
        return float(F.cross_entropy(self.logits / temperature, self.labels))

    def smooth_error(self, temperature: float) -> float:
        """The smooth calibration error with logits divided by a temperature."""
        return smooth_error(self._at(temperature), self.outcome)


def _predictions(subject: Subject, seed: int) -> Predictions:
    with preserve_state(subject.model, seed, mode=False), torch.no_grad():
        outputs = subject.outputs(subject.batch.map(torch.clone)).detach().double().cpu()
    labels = labels_of(subject)
    kind = subject.likelihood(outputs)
    if labels is None:
        raise UsageError("there are no labels to compare with")
    if kind == "gaussian":
        raise UsageError("the outputs are numbers, not probabilities of classes")
    labels = labels.cpu()
    if kind == "bernoulli":
        return _from_bits(outputs, labels)
    axis = subject.class_axis(outputs)
    rows = outputs.movedim(axis, -1)
    if labels.is_floating_point() or labels.shape != rows.shape[:-1]:
        raise UsageError(
            f"labels of shape {tuple(labels.shape)} do not name a class for outputs of shape "
            f"{tuple(outputs.shape)}"
        )
    example = torch.arange(len(labels)).reshape(-1, *(1,) * (labels.dim() - 1)).expand(labels.shape)
    logits, flat = rows.reshape(-1, rows.shape[-1]), labels.reshape(-1).long()
    kept = (flat >= 0) & (flat < logits.shape[1])  # other labels mark what to ignore
    if not kept.any():
        raise UsageError("no label names one of the classes")
    return Predictions(logits[kept], flat[kept], example.reshape(-1)[kept].numpy(), single_bits=False)


def _from_bits(outputs: Tensor, labels: Tensor) -> Predictions:
    if outputs.numel() != labels.numel() or not ((labels == 0) | (labels == 1)).all():
        raise UsageError("the labels are not a 0 or a 1 for each output")
    flat = outputs.reshape(-1)
    example = np.repeat(np.arange(len(outputs)), outputs[0].numel())
    logits = torch.stack([torch.zeros_like(flat), flat], 1)
    return Predictions(logits, labels.reshape(-1).long(), example, single_bits=True)


def labels_of(subject: Subject) -> Tensor | None:
    """The labels of the batch: its targets, or what the model takes as `labels`."""
    if isinstance(subject.batch.targets, Tensor):
        return subject.batch.targets
    for name in ("labels", "label", "targets", "target"):
        found = subject.batch.kwargs.get(name)
        if isinstance(found, Tensor):
            return found
    return None


# -- errors --------------------------------------------------------------------------------------------------


def width_bins(confidence: Vector, num_bins: int) -> Bins:
    """The bin of each confidence, of bins of equal width on [0, 1]."""
    found: Bins = np.minimum((confidence * num_bins).astype(np.intp), num_bins - 1)
    return found


def mass_bins(confidence: Vector, num_bins: int) -> Bins:
    """The bin of each confidence, of bins of equal size up to one confidence; in order of confidence."""
    ranks = np.empty(len(confidence), dtype=np.intp)
    ranks[np.argsort(confidence, kind="stable")] = np.arange(len(confidence))
    found: Bins = ranks * min(num_bins, len(confidence)) // len(confidence)
    return found


def binned_error(confidence: Vector, outcome: Vector, bins: Bins) -> float:
    """Σ_b (n_b/n)·|mean y − mean f| over bins b."""
    return float(np.abs(np.bincount(bins, outcome - confidence)).sum() / len(bins))


def smooth_error(
    confidence: Vector, outcome: Vector, weights: Vector | None = None, grid: int = 4096
) -> float:
    """The smooth calibration error: the width σ at which the error smoothed by σ is σ.

    Residuals are split between the nearest two points of a grid on [0, 1]; the reflected Gaussian kernel is
    diagonal in cosines, with eigenvalues exp(−π²k²σ²/2). The error falls with σ, so there is one such width.

    Args:
        confidence: The f_i in [0, 1].
        outcome: The y_i.
        weights: How often each counts; once by default.
        grid: The number of grid points; widths below 2/grid are not searched.
    """
    from scipy import fft, optimize

    counts = np.ones_like(confidence) if weights is None else weights
    residuals = (outcome - confidence) * counts / counts.sum()
    spectrum = fft.dct(_on_grid(confidence, residuals, grid), norm="ortho")
    rates = (math.pi * np.arange(grid)) ** 2 / 2

    def excess(width: float) -> float:
        smoothed = fft.idct(spectrum * np.exp(-rates * width**2), norm="ortho")
        return float(np.abs(smoothed).sum()) - width

    low = 2 / grid
    at_low = excess(low)
    return (
        at_low + low if at_low <= 0 else float(optimize.brentq(excess, low, 1.0 + low, xtol=1e-9, rtol=1e-6))
    )


def _on_grid(places: Vector, masses: Vector, grid: int) -> Vector:
    """Masses at positions in [0, 1], each split between the two nearest midpoints of the grid."""
    position = np.clip(places * grid - 0.5, 0, grid - 1)
    left = np.minimum(position.astype(np.intp), grid - 2)
    share = position - left
    right = np.bincount(left + 1, masses * share, grid)
    found: Vector = np.asarray(np.bincount(left, masses * (1 - share), grid) + right, dtype=np.float64)
    return found


def _under_calibration(
    confidence: Vector, error: Error, num_draws: int, rng: np.random.Generator
) -> dict[str, float]:
    """The error of a perfectly calibrated model, by simulation: mean and standard deviation."""
    draws = [error((rng.random(len(confidence)) < confidence).astype(float)) for _ in range(num_draws)]
    return {"expected": float(np.mean(draws)), "expected_deviation": float(np.std(draws))}


def _bootstrap(found: Predictions, num_draws: int, rng: np.random.Generator) -> float:
    """The standard deviation of the smooth error over resampled examples, with all predictions of each."""
    names, example = np.unique(found.example, return_inverse=True)
    chances = np.full(len(names), 1 / len(names))
    f, y = found.confidence, found.outcome
    draws = [
        smooth_error(f, y, rng.multinomial(len(names), chances).astype(float)[example], _ROUGH)
        for _ in range(num_draws)
    ]
    return float(np.std(draws))


def reliability(confidence: Vector, outcome: Vector, num_bins: int) -> dict[str, list[Any]]:
    """Mean confidence, accuracy and its exact interval in bins of equal mass.

    Args:
        confidence: The f_i.
        outcome: The y_i.
        num_bins: The number of bins.
    """
    bins = mass_bins(confidence, num_bins)
    totals = np.bincount(bins)
    right = np.bincount(bins, outcome)
    intervals = [binomial_interval(round(k), int(n)) for k, n in zip(right, totals, strict=True)]
    return {
        "confidence": (np.bincount(bins, confidence) / totals).tolist(),
        "accuracy": (right / totals).tolist(),
        "low": [low for low, _ in intervals],
        "high": [high for _, high in intervals],
        "num_predictions": totals.tolist(),
    }


# -- temperature ---------------------------------------------------------------------------------------------


def best_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T in [0.001, 1000] that minimises the log loss of logits/T, which is convex in 1/T.

    Args:
        logits: A row of class scores for each prediction.
        labels: The correct classes.
    """
    right = logits.gather(1, labels[:, None]).mean()

    def rises(log_inverse: float) -> bool:
        weights = (logits * math.exp(log_inverse)).softmax(1)
        return bool((weights * logits).sum(1).mean() > right)

    low, high = -math.log(1000), math.log(1000)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) else (middle, high)
    return math.exp(-(low + high) / 2)


def _temperature(found: Predictions) -> dict[str, float]:
    best = best_temperature(found.logits, found.labels)
    return {
        "temperature": best,
        "log_loss_before": found.log_loss(1.0),
        "log_loss_after": found.log_loss(best),
        "smooth_error_before": found.smooth_error(1.0),
        "smooth_error_after": found.smooth_error(best),
    }


def _notes(found: Predictions) -> tuple[str, ...]:
    notes = []
    if found.accuracy == 1:
        notes.append("every prediction is right, so that the best temperature is 0 and says nothing")
    if len(found.labels) < 200:
        notes.append(f"{len(found.labels)} predictions are few: the errors are mostly chance")
    return tuple(notes)
