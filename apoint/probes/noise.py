"""The noise of mini-batch gradients: the variance of a single example's gradient, relative to the signal.

Computed from gradients g_1 … g_n of n parts of a batch, of b examples each, or of single examples (b = 1).
Only the squares |g_k|² and the products g_k·ḡ with their mean ḡ are needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from apoint.probes.batch_dependence import Look, is_mean_of_examples, look
from apoint.probes.examples import Question, example_gradients, loss_objective, shares
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

_COUPLED = "noise of parts of this size; where examples depend on each other it need not fall as 1/size"


@register("probe", "noise", course="F4 C4", passes=6)
def gradient_noise(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    *,
    num_batches: WholeNumber = 0,
    seed: WholeNumber = 0,
) -> Reading:
    """Noise scale of the gradient, σ²/|G|²: the batch size at which noise and signal are equally large.

    σ² = tr Cov(∇ℓ_i) is the variance of the gradient of one example around the mean G: the σ² of the bound
    E|ĝ|² ≤ σ²/b + |G|² for mini-batches of b examples. From n gradients of b examples each,

        σ² = b/(n-1) Σ_k |g_k - ḡ|²,     |G|² = |ḡ|² - σ²/(n·b)

    without bias; the noise scale is their quotient, for the whole model and each layer. With much smaller
    batches, training is mostly a random walk; larger ones gain little more: it is also called the critical
    batch size. It is small early in training, and grows as the loss falls. If |G|² is estimated as 0 or less,
    G cannot be distinguished from 0 with this many examples, and the quotient is infinite; `scale_at_least`
    in the details takes the |G|² that is 1.64 standard errors larger.

    The details hold σ², |G|² and the signal-to-noise ratio |G|²/(σ²/(n·b)) of the given batch. Modes stay
    unchanged; what random layers draw is part of the noise. Standard errors are from the jackknife over the n
    gradients.

    Args:
        num_batches: The number of parts of at least two examples to split the batch into; 0 uses single
            examples, or 8 parts where examples depend on each other (batch norm in train mode) or the loss is
            not the mean of theirs.
        seed: Seed of the random layers and the split.

    Reference: McCandlish, Kaplan, Amodei et al. (2018), An empirical model of large-batch training, arXiv
    1812.06162, section 2.2 and appendix A.1; B_simple there.
    """
    subject = Subject(model, batch, loss)
    if why := obstacle(subject):
        return undefined("noise", why)
    with preserve_state(model, seed):
        seen = look(subject, seed)
        if why := obstacle_to_parts(subject, seen):
            return undefined("noise", why)
        reason = _reason_for_parts(subject, seen, seed)
        if not num_batches and not reason:
            moments, ways = _of_examples(subject, seen, seed)
            how = f"gradients of {subject.batch.size} single examples"
            return _reading(subject, moments, how, {"ways": ways}, ())
        parts = parts_of(subject.batch, num_batches or DEFAULT_PARTS, seed)
        moments = Moments.from_products(products_of(subject, parts), parts[0].size)
    how = f"gradients of {len(parts)} parts of {parts[0].size} examples"
    notes = left_out_note(len(parts) * parts[0].size, subject)
    if reason:
        how, notes = f"{how}, since {reason}", (*notes, _COUPLED)
    return _reading(subject, moments, how, {}, notes)


def _reason_for_parts(subject: Subject, seen: Look, seed: int) -> str:
    """Why single examples cannot be used; empty if they can."""
    if seen.depends:
        return seen.reason
    return (
        "" if is_mean_of_examples(subject, seed) else "the loss is not the mean of those of single examples"
    )


# -- moments -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moments:
    """What the noise of n gradients is computed from, by layer.

    Attributes:
        squares: |g_k|², [n].
        dots: g_k·ḡ, [n]; their mean is |ḡ|².
        size: The number b of examples behind each gradient.
    """

    squares: Mapping[str, Tensor]
    dots: Mapping[str, Tensor]
    size: int

    @staticmethod
    def from_products(products: Mapping[str, Tensor], size: int) -> Moments:
        """From all products g_i·g_j, [n, n]."""
        squares = {layer: p.diagonal() for layer, p in products.items()}
        return Moments(squares, {layer: p.mean(1) for layer, p in products.items()}, size)

    def of_layer(self, layer: str) -> Noise:
        """The noise of one layer."""
        return Noise.estimated(self.squares[layer], self.dots[layer], self.size)

    def whole(self) -> Noise:
        """The noise of all layers together."""
        squares, dots = (torch.stack([*values.values()]).sum(0) for values in (self.squares, self.dots))
        return Noise.estimated(squares, dots, self.size)


def _of_examples(subject: Subject, seen: Look, seed: int) -> tuple[Moments, dict[str, float]]:
    objective = loss_objective(subject)
    answer = example_gradients(Question(subject, objective, [subject.batch], seen, seed=seed, dots=True))

    def gathered(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            layer: torch.stack([values[name][0].cpu() for name in names]).sum(0)
            for layer, names in subject.layers.items()
        }

    return Moments(gathered(answer.squares), gathered(answer.dots), 1), shares(answer.ways, subject)


@dataclass(frozen=True)
class Noise:
    """σ², |G|² and their quotient, with standard errors unless there are only two gradients."""

    variance: float
    signal: float
    scale: float
    variance_error: float | None = None
    signal_error: float | None = None
    scale_error: float | None = None

    @staticmethod
    def estimated(squares: Tensor, dots: Tensor, size: int) -> Noise:
        """From |g_k|² and g_k·ḡ of n gradients of `size` examples each."""
        variance, signal = variance_and_signal(squares.sum(), dots.mean(), len(squares), size)
        found = Noise(float(variance), float(signal), float(_quotient(variance, signal)))
        if len(squares) == 2:
            return found
        variances, signals = without_each(squares, dots, size)
        errors = (jackknife(variances), jackknife(signals), jackknife(_quotient(variances, signals)))
        return Noise(found.variance, found.signal, found.scale, *errors)

    @property
    def at_least(self) -> float:
        """A noise scale that the true one exceeds with a probability of about 95 %."""
        most = self.signal + 1.645 * (self.signal_error or 0.0)
        return float(_quotient(torch.tensor(self.variance), torch.tensor(most)))


def variance_and_signal(
    sum_of_squares: Tensor, square_of_mean: Tensor, count: int, size: int
) -> tuple[Tensor, Tensor]:
    """σ² of one example and |G|², both unbiased.

    Args:
        sum_of_squares: Σ_k |g_k|².
        square_of_mean: |ḡ|².
        count: The number n of gradients.
        size: The number b of examples behind each.
    """
    variance = size * (sum_of_squares - count * square_of_mean) / (count - 1)
    return variance, square_of_mean - variance / (count * size)


def without_each(squares: Tensor, dots: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The same with each of the gradients left out in turn, [n]; from |mean of the others|²."""
    count = len(squares)
    others = (count**2 * dots.mean() - 2 * count * dots + squares) / (count - 1) ** 2
    return variance_and_signal(squares.sum() - squares, others, count - 1, size)


def _quotient(variance: Tensor, signal: Tensor) -> Tensor:
    """σ²/|G|², infinite where no signal is left; 0/0 if there is neither."""
    quotient = variance / signal
    return torch.where((signal <= 0) & (variance > 0), torch.full_like(quotient, math.inf), quotient)


def jackknife(without: Tensor) -> float:
    """The standard error of a statistic from its n leave-one-out values."""
    if bool(without.isinf().any()):
        return math.inf
    count = len(without)
    return float(((count - 1) / count * (without - without.mean()).square().sum()).sqrt())


# -- the reading ---------------------------------------------------------------------------------------------


def _reading(
    subject: Subject, moments: Moments, how: str, details: Mapping[str, Any], notes: tuple[str, ...]
) -> Reading:
    whole = moments.whole()
    layers = {layer: moments.of_layer(layer) for layer in moments.squares}
    used = moments.size * len(next(iter(moments.squares.values())))
    if whole.signal <= 0:
        notes += ("the mean gradient cannot be distinguished from 0 with so few examples",)
    if whole.scale_error is None:
        notes += ("two gradients: there is no spread to see",)
    if math.isnan(whole.scale):
        notes += ("the gradients are 0 or not finite",)
    return Reading(
        "noise",
        whole.scale,
        how,
        "estimated",
        unit="examples",
        uncertainty=whole.scale_error,
        per_layer={layer: noise.scale for layer, noise in layers.items()},
        per_layer_uncertainty={layer: e for layer, n in layers.items() if (e := n.scale_error) is not None},
        coverage=subject.coverage(list(subject.parameters)),
        details={
            "sigma_squared": whole.variance,
            "sigma_squared_uncertainty": whole.variance_error,
            "gradient_norm_squared": whole.signal,
            "gradient_norm_squared_uncertainty": whole.signal_error,
            "scale_at_least": whole.at_least,
            "signal_to_noise": max(0.0, whole.signal) * used / whole.variance if whole.variance else math.inf,
            "sigma_squared_per_layer": {layer: noise.variance for layer, noise in layers.items()},
            "gradient_norm_squared_per_layer": {layer: noise.signal for layer, noise in layers.items()},
            **details,
        },
        notes=notes,
    )
