"""Adversarial perturbations: how little an input must change for the prediction to change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.probes.batch import Batch
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Loss, ModelFailedError, Subject
from apoint.registry import register
from apoint.settings import Count, WholeNumber

Norm = Literal["l2", "linf"]
_SIZES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@register("probe", "adversarial", course="K10", passes=100)
def adversarial(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    *,
    num_steps: Count = 8,
    num_rounds: Count = 5,
    max_examples: Count = 128,
    seed: WholeNumber = 0,
) -> Reading:
    """The smallest input change that changes the prediction: median L2 norm over the typical input norm.

    For each example, this is the smallest change δ that was found to change the model's own prediction. Two
    attacks increase the loss of that prediction: FGSM takes one step along the gradient g (δ = ε·sign g in
    L∞, δ = ε·g/‖g‖ in L2), PGD `num_steps` steps of 2.5·ε/`num_steps`, each followed by a projection onto the
    ball of size ε. ε is found by bisection for each example; that of PGD starts from that of FGSM. The result
    is an upper bound: there may be smaller changes. It is infinite where none was found up to four times the
    typical size.

    The details hold for `l2` and `linf`, and for `fgsm`, `pgd` and both together, the quantiles of sizes and
    the share of examples fooled at given sizes, all relative to the typical input: the median of ‖x‖₂ for L2,
    the root mean square of its entries for L∞. The value is the median for both attacks in L2.

    The model is in eval mode; the first floating-point input is changed, and is not clipped to any range.

    Args:
        num_steps: The number of PGD steps.
        num_rounds: Rounds of the bisection for PGD, each of which costs `num_steps` + 1 gradients; FGSM, at
            one forward pass each, gets three times as many.
        max_examples: The maximum number of examples to attack, the first ones.
        seed: Seed of the model's random draws.

    Reference: Goodfellow, Shlens and Szegedy (2015), Explaining and harnessing adversarial examples; Madry et
    al. (2018), Towards deep learning models resistant to adversarial attacks.
    """
    whole = Subject(model, batch, loss)
    subject = Subject(model, whole.batch.select(slice(0, max_examples)), loss)
    found: dict[Norm, dict[str, Tensor]]
    with preserve_state(model, seed, mode=False):
        model.requires_grad_(False)  # only input gradients are needed
        try:
            attack = _Attack(subject)
            found = {norm: attack.smallest(norm, num_steps, num_rounds) for norm in ("l2", "linf")}
        except ModelFailedError:
            raise
        except UsageError as error:
            return undefined("adversarial", str(error))
    both = found["l2"]["both"]
    return Reading(
        "adversarial",
        float(both.median()),
        f"the smallest found by FGSM and PGD for {subject.batch.size} examples, an upper bound",
        "estimated",
        uncertainty=_median_error(both),
        details={
            norm: {name: _summary(sizes) for name, sizes in by_attack.items()}
            for norm, by_attack in found.items()
        }
        | {"typical_l2": attack.typical("l2"), "typical_linf": attack.typical("linf"), "sizes": list(_SIZES)},
        notes=_notes(both),
    )


class _Attack:
    """A model, its predictions on clean examples, and changes of its first floating-point input."""

    def __init__(self, subject: Subject) -> None:
        real = [t for t in subject.batch.tensors if t.is_floating_point() and len(t) == subject.batch.size]
        if not real:
            raise UsageError("inputs are not real numbers, so that they cannot be changed a little")
        self.subject, self.clean = subject, real[0].detach().clone()
        with torch.no_grad():
            outputs = self._outputs(self.clean)
        kind = subject.likelihood(outputs)
        if kind == "gaussian":
            raise UsageError("the outputs are numbers, not classes, so that there is no answer to change")
        if len(outputs) != subject.batch.size or (kind == "categorical" and outputs.dim() < 2):
            raise UsageError(f"outputs of shape {tuple(outputs.shape)} have no answer for each example")
        self.single_bits, self.axis = kind == "bernoulli", subject.class_axis(outputs)
        self.answers = self._named(outputs)

    def _named(self, outputs: Tensor) -> Tensor:
        return (outputs > 0).to(outputs.dtype) if self.single_bits else outputs.argmax(self.axis)

    def _outputs(self, x: Tensor) -> Tensor:
        batch: Batch = self.subject.batch.map(torch.clone).with_first(x.clone())  # it may write to them
        return self.subject.outputs(batch)

    def is_fooled(self, outputs: Tensor) -> Tensor:
        """For each example, whether any of its predictions has changed."""
        changed = self._named(outputs) != self.answers
        return changed.reshape(len(changed), -1).any(1)

    def look(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Which examples are fooled at x, and the gradient there of each loss for the clean prediction."""
        x = x.detach().requires_grad_()
        outputs = self._outputs(x)
        if self.single_bits:
            loss = F.binary_cross_entropy_with_logits(outputs, self.answers, reduction="sum")
        else:
            loss = F.cross_entropy(outputs.movedim(self.axis, 1), self.answers, reduction="sum")
        if not loss.requires_grad:
            return self.is_fooled(outputs), torch.zeros_like(x)
        loss.backward()  # type: ignore[no-untyped-call]
        return self.is_fooled(outputs.detach()), torch.zeros_like(x) if x.grad is None else x.grad

    def typical(self, norm: Norm) -> float:
        """The size that changes are compared with."""
        if norm == "linf":
            return float(self.clean.double().square().mean().sqrt())
        return float(size_of(self.clean, "l2").median())

    def smallest(self, norm: Norm, num_steps: int, num_rounds: int) -> dict[str, Tensor]:
        """For each attack and both, the relative size of the smallest change found for each example."""
        scale = self.typical(norm)
        if not 0 < scale < math.inf:
            raise UsageError("the inputs are all 0 or not finite, so that there is no typical size")
        direction = steepest(self.look(self.clean)[1], norm)
        begin = self.clean.new_full((len(self.clean),), scale / 16)
        fgsm = self._search(lambda e: self._once(direction, e, norm), begin, 3 * num_rounds, 4 * scale)
        begin = torch.where(fgsm.isinf(), scale / 4, 0.8 * fgsm)
        pgd = self._search(lambda e: self._climb(e, norm, num_steps), begin, num_rounds, 4 * scale)
        found = {"fgsm": fgsm, "pgd": pgd, "both": torch.minimum(fgsm, pgd)}
        return {name: (sizes / scale).double().cpu() for name, sizes in found.items()}

    def _search(
        self, attack: Callable[[Tensor], Tensor], epsilon: Tensor, num_rounds: int, largest: float
    ) -> Tensor:
        """Bisection on the logarithm of ε; `attack` returns the size that fooled, or infinity."""
        low = torch.zeros_like(epsilon)
        best = torch.full_like(low, math.inf)
        for _ in range(num_rounds):
            size = attack(epsilon)
            best = torch.minimum(best, size)
            low = torch.where(size.isinf() & (epsilon < best), torch.maximum(low, epsilon), low)
            between = (low * best).sqrt()
            epsilon = torch.where(best.isinf(), epsilon * 4, torch.where(low == 0, best / 4, between))
            epsilon = epsilon.clamp(max=largest)
        return best

    def _once(self, direction: Tensor, epsilon: Tensor, norm: Norm) -> Tensor:
        change = direction * _column(epsilon, direction)
        with torch.no_grad():
            fooled = self.is_fooled(self._outputs(self.clean + change))
        return torch.where(fooled, size_of(change, norm), math.inf)

    def _climb(self, epsilon: Tensor, norm: Norm, num_steps: int) -> Tensor:
        change = torch.zeros_like(self.clean)
        best = torch.full_like(epsilon, math.inf)
        step = _column(2.5 * epsilon / num_steps, change)
        for number in range(num_steps + 1):
            fooled, gradient = self.look(self.clean + change)
            best = torch.where(fooled, torch.minimum(best, size_of(change, norm)), best)
            if number < num_steps:
                change = into_ball(change + step * steepest(gradient, norm), epsilon, norm)
        return best


def size_of(change: Tensor, norm: Norm) -> Tensor:
    """The size of each example's change."""
    flat = change.reshape(len(change), -1)
    return flat.norm(dim=1) if norm == "l2" else flat.abs().amax(1)


def steepest(gradient: Tensor, norm: Norm) -> Tensor:
    """The change of size 1 along which the loss rises most, to first order."""
    if norm == "linf":
        return gradient.sign()
    length = _column(size_of(gradient, "l2"), gradient)
    return torch.where(length > 0, gradient / length, 0.0)


def into_ball(change: Tensor, epsilon: Tensor, norm: Norm) -> Tensor:
    """The nearest change of size at most ε."""
    limit = _column(epsilon, change)
    if norm == "linf":
        return torch.minimum(torch.maximum(change, -limit), limit)
    length = _column(size_of(change, "l2"), change)
    return torch.where(length > limit, change * (limit / length), change)


def _column(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(-1, *(1,) * (like.dim() - 1))


def _summary(sizes: Tensor) -> dict[str, Any]:
    ordered = sizes.sort().values
    places = [math.ceil(share * len(ordered)) - 1 for share in _QUANTILES]
    return {
        "quantiles": [float(ordered[place]) for place in places],
        "share_fooled": [float((sizes <= size).double().mean()) for size in _SIZES],
        "never_fooled": float(sizes.isinf().double().mean()),
    }


def _median_error(sizes: Tensor) -> float:
    """Half the distance between the order statistics at ranks n/2 ± √n/2, from their exact interval."""
    ordered = sizes.sort().values
    n = len(ordered)
    low, high = max(0, math.floor((n - math.sqrt(n)) / 2)), min(n - 1, math.ceil((n + math.sqrt(n)) / 2))
    return float((ordered[high] - ordered[low]) / 2) if ordered[low] < math.inf else math.inf


def _notes(sizes: Tensor) -> tuple[str, ...]:
    never = int(sizes.isinf().sum())
    return (f"for {never} of {len(sizes)} examples no change of the answer was found",) if never else ()
