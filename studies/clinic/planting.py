"""What faults are planted with: modules that spoil what passes through them, and ways to find layers."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from studies.clinic.datasets import dataset
from studies.clinic.families import Size
from studies.clinic.patients import Draft

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


class Spoiled(nn.Module):
    """A module whose output something is done to."""

    def __init__(self, inner: nn.Module, spoil: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.spoil = inner, spoil

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.spoil(self.inner(*inputs))


def detached(x: Tensor) -> Tensor:
    """Cut off from the gradient."""
    return x.detach()


def always_dropped(x: Tensor) -> Tensor:
    """Dropout that nobody told when training ends."""
    return F.dropout(x, 0.5)


def noise_of_python(x: Tensor) -> Tensor:
    """Jitter from Python's own generator, which no seed of torch reaches."""
    return x * (1 + 0.2 * random.gauss(0, 1))


def noise_of_system(x: Tensor) -> Tensor:
    """Jitter from the operating system, which no seed reaches."""
    return x * (0.8 + 0.4 * int.from_bytes(os.urandom(4), "little") / 2**32)


def logarithm(x: Tensor) -> Tensor:
    """A logarithm of what may be negative."""
    return torch.log(x)


def root_of_positive(x: Tensor) -> Tensor:
    """A root of what a mask has set to 0: there the derivative is infinity times 0."""
    return torch.sqrt(x * (x > 0))


def overflowing(x: Tensor) -> Tensor:
    """As half precision does with what lies beyond 65504."""
    return (x * 1e5).half().to(x.dtype) / 1e5


def averaged(x: Tensor) -> Tensor:
    """A mean over the wrong dimension: all examples become the same."""
    return x.mean(0, keepdim=True).expand_as(x)


def bounded(x: Tensor) -> Tensor:
    """Outputs between −½ and ½."""
    return 0.5 * torch.tanh(x)


def softmax_of(x: Tensor) -> Tensor:
    """Probabilities where logits were expected."""
    return F.softmax(x, dim=-1)


def spoil(draft: Draft, how: Callable[[Tensor], Tensor], site: str | None = None) -> None:
    """Put `how` behind the family's site, or another module."""
    name = site or draft.family.site
    parent, _, child = name.rpartition(".")
    owner = draft.model.get_submodule(parent)
    setattr(owner, child, Spoiled(draft.model.get_submodule(name), how))


def layers(model: nn.Module) -> list[nn.Linear | nn.Conv1d | nn.Conv2d]:
    """The linear and convolutional layers, in the order of their making; the last is the head."""
    return [module for module in model.modules() if isinstance(module, WEIGHTED)]


def hidden_layers(model: nn.Module) -> list[nn.Linear | nn.Conv1d | nn.Conv2d]:
    """All layers but the head."""
    return layers(model)[:-1]


def batch_norms(model: nn.Module) -> list[nn.BatchNorm1d | nn.BatchNorm2d]:
    """The batch norms."""
    return [module for module in model.modules() if isinstance(module, BATCH_NORMS)]


@torch.no_grad()
def scale_hidden(model: nn.Module, factor: float) -> None:
    """Multiply the weights of all hidden layers."""
    for layer in hidden_layers(model):
        layer.weight.mul_(factor)


def resize(
    draft: Draft, width: int | None = None, depth: int | None = None, dropout: float | None = None
) -> None:
    """Build the network anew in another size."""
    old = draft.size
    draft.size = Size(
        old.width if width is None else width,
        old.depth if depth is None else depth,
        old.dropout if dropout is None else dropout,
    )
    draft.model = draft.family.build(dataset(draft.family.dataset, draft.seed), draft.size)


def use(name: str, lr: float) -> Callable[[Draft], None]:
    """Prepare with an optimizer; without decay, schedule or clipping, so that it alone decides the step."""

    def prepare(draft: Draft) -> None:
        draft.plan.name, draft.plan.lr = name, lr
        draft.plan.weight_decay = draft.plan.decay_of_rest = 0.0
        draft.schedule, draft.step = "none", None

    return prepare


def map_inputs(draft: Draft, how: Callable[[Tensor], Tensor]) -> None:
    """Do the same to the inputs to learn from and to those held out."""
    draft.train = (how(draft.train[0]), draft.train[1])
    draft.test = (how(draft.test[0]), draft.test[1])
