"""Deficits of the targets: labels permuted among the classes, labels drawn at random.

The label of a sample depends on the deficit's own seed and the sample's index, not on the epoch: a wrong
label stays wrong in the same way, so that it can be learned (and, for random labels, memorised).

Legend: B batch, K classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from apoint.data.augmentation_common import described, whole_numbers
from apoint.data.deficits_common import Deficit, check_strength
from apoint.data.streams import Draw, generator, key
from apoint.errors import UsageError
from apoint.registry import register
from apoint.settings import WholeNumber


def cyclic_permutation(num_classes: int, seed: int) -> Tensor:
    """The class whose label each class gets, [K]: a random single cycle, so that no class keeps its own."""
    order = torch.randperm(num_classes, generator=generator(seed, "permuted-labels"))
    successor = torch.empty_like(order)
    successor[order] = order.roll(-1)
    return successor


def _require_classes(y: Tensor, who: str) -> None:
    if y.dim() != (2 if y.is_floating_point() else 1):
        raise UsageError(
            f"{who} needs class indices [batch] or soft targets [batch, classes], got "
            f"{described(y)}; choose a classification dataset or another deficit"
        )


def _suffering(draw: Draw, seed: int, purpose: str, strength: float) -> Tensor:
    """Which samples are affected, [B]; the same ones in every epoch, and more with growing strength."""
    return Draw(key(seed, purpose), draw.index_B).uniform() < strength


@register("deficit", "permuted-labels", course="B1", strength="share", labels=True)
def permuted_labels(*, seed: WholeNumber = 0) -> Deficit:
    """Give each class the label of another, always the same one.

    A deficit of high-level knowledge that loses no information: the task is as easy as before, only the names
    are wrong, and the paper finds that a network recovers from it. The label c becomes π(c), with π a fixed
    random permutation. The paper uses any permutation; here π is a single cycle through all classes, so
    that no class keeps its label. Strength is the share of samples relabelled, the same ones in every epoch.

    Args:
        seed: Selects the permutation π, and which samples are relabelled at a strength below 1.

    Reference:
        Achille, Rovere, Soatto (2019), Critical learning periods in deep networks.
    """
    who = "deficit 'permuted-labels'"

    def apply(x: Tensor, y: Tensor, draw: Draw, strength: float, num_classes: int) -> tuple[Tensor, Tensor]:
        check_strength(strength, who)
        if strength == 0:
            return x, y
        _require_classes(y, who)
        successor_K = cyclic_permutation(num_classes, seed).to(y.device)
        suffering_B = _suffering(draw, seed, "permuted-share", strength)
        if y.is_floating_point():
            return x, torch.where(suffering_B[:, None], y[:, successor_K.argsort()], y)
        return x, torch.where(suffering_B, successor_K.to(y.dtype)[y.long()], y)

    return apply


@register("deficit", "random-labels", course="B1", strength="share", labels=True)
def random_labels(*, seed: WholeNumber = 0) -> Deficit:
    """Give each sample a label drawn at random, always the same one.

    Only memorisation is possible. Often confused with permuted labels, which the paper on critical
    periods uses; replications that drew random labels instead found lasting damage. Each label is uniform
    over all classes, including the correct one, and is fixed for the sample. Strength is the share of
    samples relabelled, the same ones in every epoch.

    Args:
        seed: Selects the labels, and which samples are relabelled at a strength below 1.

    Reference:
        Zhang et al. (2017), Understanding deep learning requires rethinking generalization, section 2.
    """
    who = "deficit 'random-labels'"

    def apply(x: Tensor, y: Tensor, draw: Draw, strength: float, num_classes: int) -> tuple[Tensor, Tensor]:
        check_strength(strength, who)
        if strength == 0:
            return x, y
        _require_classes(y, who)
        label_B = whole_numbers(Draw(key(seed, "random-labels"), draw.index_B).uniform(), num_classes)
        suffering_B = _suffering(draw, seed, "random-share", strength)
        if y.is_floating_point():
            return x, torch.where(suffering_B[:, None], F.one_hot(label_B, num_classes).to(y.dtype), y)
        return x, torch.where(suffering_B, label_B.to(y.dtype), y)

    return apply
