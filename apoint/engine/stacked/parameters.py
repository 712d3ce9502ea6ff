"""The trainable parameters of all replicas: one row per replica in two buffers, decayed and exempt.

Like `apoint.engine.flat` for one replica, but with a leading replica axis. The two parts are separate
buffers, so that an update rule with or without decay is one operation on contiguous memory.

Axis letters: R replicas, P parameters of a part.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from apoint.engine.flat import FlatParameters, Slot

Parts = tuple[Tensor, Tensor]
"""Values of all replicas in the layout of the parameters, [R, P] each: those that decay, and the exempt."""


class StackedParameters:
    """The parameters of R models of the same structure, and their gradients.

    Attributes:
        weights: The parameters.
        gradients: Their gradients.
        pieces: The ranges of one replica's flat buffer that are updated in the same way.
        leaves: The parameters by name, [R, *shape], each a view that autograd treats as a leaf.
        gradient_views: The view that holds the gradient of each leaf.
    """

    def __init__(self, replicas: Sequence[FlatParameters]) -> None:
        first = replicas[0]
        self.slots, self.boundary = first.slots, first.boundary
        self.pieces = list(first.pieces())
        self.weights = self.split(torch.stack([one.weights_P for one in replicas]))
        self._prepare()

    def _prepare(self) -> None:
        self.gradients: Parts = (torch.zeros_like(self.weights[0]), torch.zeros_like(self.weights[1]))
        self.leaves = {name: view.requires_grad_() for name, view in self.named(self.weights).items()}
        self.gradient_views = list(self.named(self.gradients).values())

    @property
    def num_replicas(self) -> int:
        return len(self.weights[0])

    def split(self, values_RP: Tensor) -> Parts:
        """Split rows in the layout of one replica's flat buffer into the two parts."""
        return values_RP[:, : self.boundary].contiguous(), values_RP[:, self.boundary :].contiguous()

    def row(self, parts: Parts, row: int) -> Tensor:
        """One replica's values, in the layout of its flat buffer."""
        return torch.cat([part[row] for part in parts])

    def named(self, parts: Parts) -> dict[str, Tensor]:
        """Values in the layout of the parameters, as views [R, *shape] by name."""
        return {slot.name: self._view(parts, slot) for slot in self.slots}

    def _view(self, parts: Parts, slot: Slot) -> Tensor:
        exempt = slot.start >= self.boundary
        part, start = parts[exempt], slot.start - self.boundary * exempt
        size, stride = (len(part), *slot.size), (part.shape[1], *slot.stride)
        return part.as_strided(size, stride, part.storage_offset() + start)

    def receive(self, gradients: Sequence[Tensor | None], add: bool) -> None:
        """Copy in the gradients of the leaves, or add them; an unused leaf has gradient 0.

        A gradient that is the leaf's own view of the buffer is already in place. The gradients must not
        themselves be differentiable.
        """
        pairs = list(zip(self.gradient_views, gradients, strict=True))
        away = [(view, gradient) for view, gradient in pairs if gradient is not None and gradient is not view]
        views, given = [view for view, _ in away], [gradient for _, gradient in away]
        if add:
            assert len(away) == sum(gradient is not None for gradient in gradients)
            torch._foreach_add_(views, given)
            return
        if away:
            torch._foreach_copy_(views, given)
        for view, gradient in pairs:
            if gradient is None:
                view.zero_()

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only some of the replicas."""
        gradients = chosen(self.gradients, rows)
        self.weights = chosen(self.weights, rows)
        self._prepare()
        for mine, kept in zip(self.gradients, gradients, strict=True):
            mine.copy_(kept)

    def first_nonfinite(self, row: int) -> str | None:
        """The first parameter of a replica whose gradient is not finite."""
        for slot, view in zip(self.slots, self.gradient_views, strict=True):
            if not torch.isfinite(view[row]).all():
                return slot.name
        return None


def chosen(parts: Parts, rows: Sequence[int]) -> Parts:
    """Copies of some rows of both parts."""
    index = torch.tensor(rows, dtype=torch.int64, device=parts[0].device)
    return parts[0].index_select(0, index), parts[1].index_select(0, index)
