"""The distribution of labels that a model's outputs define, p(y|x): draws from it, and the slope of log p.

Shapes: B examples, P positions, C classes, K = P·C outputs of an example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apoint.probes.batch import Batch
from apoint.probes.batch_dependence import Look
from apoint.probes.subject import Likelihood, Subject, predictions_of


@dataclass(frozen=True)
class Law:
    """The distribution of the label that the outputs define.

    The objectives `sampled`, `observed` and `part` are [B]: numbers whose gradients are those of log p. They
    take what they need from the targets of the batch.

    Attributes:
        kind: The kind of p: categorical, bernoulli, or gaussian with variance 1.
        axis: The axis of the classes, counted from the end.
        num_outputs: The number K of outputs of an example.
    """

    kind: Likelihood
    axis: int
    num_outputs: int

    def sampled(self, raw: Any, batch: Batch) -> Tensor:
        """log p of a label drawn from p; the targets are the noise that draws it."""
        return self._objective(raw, batch, self.drawn_slope)

    def observed(self, raw: Any, batch: Batch) -> Tensor:
        """log p of the label in the targets."""
        return self._objective(raw, batch, self._slope)

    def part(self, raw: Any, batch: Batch) -> Tensor:
        """One of K parts whose squared gradients sum to E_y |∇ log p(y|x)|²; the targets say which."""
        return self._objective(raw, batch, self._part_slope)

    def _objective(self, raw: Any, batch: Batch, slope: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        f_BPC = self.arranged(raw, batch.size)
        return (f_BPC * slope(f_BPC.detach(), batch.targets)).flatten(1).sum(1)

    def arranged(self, raw: Any, size: int) -> Tensor:
        """The outputs as [B, P, C], or [B, K, 1] where there are no classes.

        For a single example every entry is its own, in any order of the axes.
        """
        outputs = predictions_of(raw)
        assert outputs is not None, "there are predictions, or there is no law"
        assert size == 1 or len(outputs) == size, "the first axis of the outputs runs over the examples"
        if self.kind != "categorical":
            return outputs.reshape(size, -1, 1)
        moved = outputs.movedim(self.axis, -1)
        return moved.reshape(size, -1, moved.shape[-1])

    def drawn_slope(self, f_BPC: Tensor, noise_BK: Tensor) -> Tensor:
        """∂ log p(y) / ∂f for the label y that this noise draws."""
        noise_BPC = noise_BK.reshape(f_BPC.shape)
        if self.kind == "gaussian":
            return noise_BPC
        if self.kind == "bernoulli":
            p = f_BPC.sigmoid()
            return (noise_BPC < p).to(p.dtype) - p
        return self._slope(f_BPC, (f_BPC + noise_BPC).argmax(-1))

    def _slope(self, f_BPC: Tensor, label: Tensor) -> Tensor:
        """∂ log p(y) / ∂f for a label; classes below 0 are ignored."""
        if self.kind == "gaussian":
            return label.reshape(f_BPC.shape) - f_BPC
        if self.kind == "bernoulli":
            return label.reshape(f_BPC.shape) - f_BPC.sigmoid()
        label_BP1 = label.reshape(*f_BPC.shape[:2], 1)
        is_label_BPC = torch.arange(f_BPC.shape[-1], device=f_BPC.device) == label_BP1
        return (is_label_BPC.to(f_BPC.dtype) - f_BPC.softmax(-1)) * (label_BP1 >= 0)

    def _part_slope(self, f_BPC: Tensor, number_B: Tensor) -> Tensor:
        """√p_c·(1_c − p) at the position and class of that number; √(p(1−p)) for a bit, 1 for a mean."""
        numbers_PC = torch.arange(self.num_outputs, device=f_BPC.device).reshape(f_BPC.shape[1:])
        chosen_BPC = (numbers_PC == number_B.reshape(-1, 1, 1)).to(f_BPC.dtype)
        if self.kind == "gaussian":
            return chosen_BPC
        if self.kind == "bernoulli":
            p = f_BPC.sigmoid()
            return chosen_BPC * (p * (1 - p)).sqrt()
        p_BPC = f_BPC.softmax(-1)
        root_BP1 = (chosen_BPC * p_BPC.sqrt()).sum(-1, keepdim=True)  # 0 at all other positions
        return root_BP1 * (chosen_BPC - p_BPC)

    def noise(self, like: Tensor, size: int, draws: int, seed: int) -> list[Tensor]:
        """The noise that draws labels, [B, K] for each draw; the same on every device.

        Args:
            like: A tensor with the dtype and device of the outputs.
            size: The number B of examples.
            draws: The number of draws.
            seed: Seed of the draws.
        """
        generator = torch.Generator().manual_seed(seed)
        dtype = like.dtype if like.dtype == torch.float64 else torch.float32
        return [self._one_noise(size, generator, dtype).to(like.device) for _ in range(draws)]

    def _one_noise(self, size: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        noise = torch.empty(size, self.num_outputs, dtype=dtype)
        if self.kind == "gaussian":
            return noise.normal_(generator=generator)
        if self.kind == "bernoulli":
            return noise.uniform_(generator=generator)
        # the class with the largest logit + Gumbel noise is a draw from the softmax
        return noise.exponential_(generator=generator).log_().neg_()

    def all_parts(self, like: Tensor, size: int) -> list[Tensor]:
        """The numbers of the K parts, each as targets of a batch."""
        return [torch.full((size,), number, device=like.device) for number in range(self.num_outputs)]


def law_of(subject: Subject, look: Look) -> Law | str:
    """The distribution of the labels, or why there is none.

    Args:
        subject: The model and its loss, which determines the kind of the outputs.
        look: What the outputs for a few examples look like.
    """
    if look.few is None:
        return "the model gives out its loss alone, and no predictions"
    few, size = look.few, subject.batch.size
    num_outputs = few.numel() // look.size
    whole = few[:1].expand(size, *few.shape[1:]) if len(few) == look.size else few
    kind, axis = subject.likelihood(whole), subject.class_axis(whole)
    if kind == "categorical" and (axis == 0 or whole.shape[axis] == 1):
        return (
            "there is one output for each example, and without a loss that says so it stands neither for a "
            "probability nor for a mean"
        )
    return Law(kind, axis - whole.dim(), num_outputs)


def are_labels(subject: Subject, law: Law, look: Look) -> bool:
    """Whether the targets are labels of this distribution, one for each position or output."""
    targets, few = subject.batch.targets, look.few
    if not isinstance(targets, Tensor) or few is None or len(few) != look.size:
        return False
    shape = [subject.batch.size, *few.shape[1:]]
    if law.kind == "categorical":
        del shape[law.axis]
        return not targets.is_floating_point() and list(targets.shape) == shape
    is_column = shape[-1] == 1 and list(targets.shape) == shape[:-1]
    return list(targets.shape) == shape or is_column
