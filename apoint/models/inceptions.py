"""Code shared by GoogLeNet and Inception v3: heads inside the network, and channels scaled to a width.

Shapes: B batch, C channels or classes, H height, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from apoint.models.alexnet import Plain
from apoint.models.cnn import GlobalAverage
from apoint.nn.dropout import Dropout


class InceptionNet(nn.Module):
    """Stem, three stages, global average pooling, linear layer; optionally with auxiliary heads.

    In training, the papers add to the main loss the losses of n auxiliary heads inside the network, each
    times a weight w. A loss that is a function of one tensor of logits and one of targets cannot be such a
    sum. So with auxiliary heads, *in training* the row of each example is the logits of one head, drawn for
    that example alone: the main one with probability 1/(1 + nw), each of the others with w/(1 + nw). For any
    loss and targets, the expected loss of a batch, and its expected gradient, are then the papers' divided by
    1 + nw. With a plain gradient method, multiply the learning rate by 1 + nw for steps of the papers'
    length. The cost is noise, as if each head saw its own part of the batch. A training loop that can add
    losses needs no sampling: `all_logits` returns the logits of all heads. In eval mode only the main head is
    used, and nothing is drawn.

    Args:
        stem: Maps images to the first feature maps.
        stages: Three sequences of blocks.
        dropout: Applied to the head's input.
        head: The final linear layer.
        auxiliary: The n auxiliary heads.
        auxiliary_after: The parts of the second stage that the auxiliary heads follow.
        auxiliary_weight: The weight w of each of their losses; the main loss has weight 1.
    """

    def __init__(
        self,
        stem: nn.Module,
        stages: nn.Sequential,
        dropout: Dropout,
        head: nn.Linear,
        auxiliary: Sequence[nn.Module] = (),
        auxiliary_after: Sequence[int] = (),
        auxiliary_weight: float = 0.3,
    ) -> None:
        super().__init__()
        self.stem = stem
        self.stages = stages
        self.auxiliary = nn.ModuleList(auxiliary)
        self.auxiliary_after = tuple(auxiliary_after)
        self.auxiliary_weight = auxiliary_weight
        self.readout = GlobalAverage()
        self.dropout = dropout
        self.head = head

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """One logit for each class; in training with auxiliary heads, those of one head for each example."""
        if self.training and len(self.auxiliary) > 0:
            return self._drawn(self.all_logits(x_BCHW))
        return self._main(self.stages(self.stem(x_BCHW)))

    def all_logits(self, x_BCHW: Tensor) -> tuple[Tensor, ...]:
        """The logits of the main head and of each auxiliary one, from the lowest up, in any mode."""
        x_BCHW, others = self.stages[0](self.stem(x_BCHW)), []
        heads = dict(zip(self.auxiliary_after, self.auxiliary, strict=True))
        for number, block in enumerate(self.stages[1].children()):
            x_BCHW = block(x_BCHW)
            if number in heads:
                others.append(heads[number](x_BCHW))
        return self._main(self.stages[2](x_BCHW)), *others

    def _main(self, x_BCHW: Tensor) -> Tensor:
        logits_BC: Tensor = self.head(self.dropout(self.readout(x_BCHW)))
        return logits_BC

    def _drawn(self, logits: tuple[Tensor, ...]) -> Tensor:
        """For each example, the row of one head; a later head replaces those before it."""
        chosen_BC, total = logits[0], 1.0
        for other_BC in logits[1:]:
            total += self.auxiliary_weight
            share = self.auxiliary_weight / total
            takes_over_B1 = torch.bernoulli(other_BC.new_full((len(other_BC), 1), share))
            chosen_BC = torch.where(takes_over_B1 > 0, other_BC, chosen_BC)
        return chosen_BC


@dataclass(frozen=True)
class Scaled(Plain):
    """The settings of a plain network whose channel counts are in proportion to the published ones."""

    share: float
    """The number of channels relative to the published network's."""

    def wide(self, channels: int) -> int:
        """A published number of channels, scaled to this network's width."""
        return max(1, round(channels * self.share))
