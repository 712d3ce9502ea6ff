"""Dropout of units and of whole residual branches, with rates that may change during training.

Both draw from torch's default generator: the one place in this package where global random state is read,
because that is what `torch.nn.functional.dropout` and autograd's checkpointing use. The engine reseeds it at
each step from (seed, step), so a step's masks depend on these two numbers alone.

Modules that drop have a `knob`, the name under which a recipe can put their rate on a schedule: `dropout`,
`input_dropout` or `stochastic_depth`. `set_rate` sets the rate of all modules in a model with one knob.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.errors import UsageError

Scaling = Literal["train", "test"]
"""When activations are rescaled: in training by 1/p ("inverted" dropout), or at test time by p."""
Mode = Literal["batch", "sample"]
"""Whether all samples of a batch share one draw, or each sample has its own."""


class _Droppable(nn.Module):
    """Base class of the modules here: a checked rate that may be changed at any time, a knob, a scaling."""

    def __init__(self, rate: float, knob: str, scaling: Scaling) -> None:
        super().__init__()
        if scaling not in get_args(Scaling):
            raise UsageError(f"{type(self).__name__}: scaling must be 'train' or 'test', got {scaling!r}")
        self.rate, self.knob, self.scaling = rate, knob, scaling

    @property
    def rate(self) -> float:
        """The probability of being dropped (of the deepest branch, for stochastic depth)."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._rate = _checked_rate(rate, type(self).__name__)


class Dropout(_Droppable):
    """Sets each unit to zero with probability `rate`, independently.

    With the course's keep-probability p = 1 - rate and a mask m of Bernoulli(p) draws, `scaling="train"`
    computes m·x/p in training and x in evaluation, as `torch.nn.Dropout` does; `scaling="test"` computes
    m·x in training and p·x in evaluation, as the original paper and the course do. In both, the expectation
    in training equals the output in evaluation.

    At rate 0 nothing is drawn or computed. With `scaling="test"` evaluation uses the current rate: after
    early dropout has ended, it no longer scales.

    Args:
        rate: The probability 1 - p of dropping a unit, at least 0 and less than 1.
        knob: The name under which `set_rate` finds this module.
        scaling: Rescale in training ("train", today's inverted dropout) or in evaluation ("test").

    Reference: Srivastava et al. (2014), Dropout: a simple way to prevent neural networks from overfitting.
    """

    def __init__(self, rate: float = 0.0, knob: str = "dropout", scaling: Scaling = "train") -> None:
        super().__init__(rate, knob, scaling)

    def forward(self, x: Tensor) -> Tensor:
        """x with units dropped, in training; x, or p·x, in evaluation."""
        if self.rate == 0:
            return x
        if self.training:
            x = F.dropout(x, self.rate, training=True)
        return x * (1 - self.rate) if self.scaling == "test" else x

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return f"rate={self.rate:g}, knob={self.knob!r}, scaling={self.scaling!r}"


class StochasticDepth(_Droppable):
    """Skips a residual branch at random; the deeper the branch, the more often.

    The branch of block l of L survives with probability p_l = 1 - (l/L)·rate, where l/L is `depth_share`
    and rate = 1 - p_L. The module is called with the branch and its input, so that a dropped branch need not
    be computed; a residual block is then `x + drop(branch, x)`.

    With `mode="batch"` one draw decides for the whole batch, and a dropped branch does not run: it costs no
    time, its parameters get no gradient (`None`, not zero), and its batch norms see no data. With
    `mode="sample"` each sample has its own draw and all branches run. Under `torch.func.vmap` only "sample"
    works, with `randomness="different"`.

    The paper leaves surviving branches unscaled and multiplies by p_l in evaluation: that is
    `scaling="test"`. The default multiplies surviving branches by 1/p_l in training, so that evaluation needs
    no change; torchvision and timm do the same.

    Args:
        rate: The probability 1 - p_L of dropping the deepest branch, at least 0 and less than 1.
        depth_share: l/L, from above 0 for the first block to 1 for the last.
        mode: One draw for the batch ("batch"), or one for each sample ("sample").
        scaling: Rescale in training ("train") or, as the paper does, in evaluation ("test").
        knob: The name under which `set_rate` finds this module.

    Reference: Huang et al. (2016), Deep networks with stochastic depth.
    """

    def __init__(
        self,
        rate: float = 0.0,
        depth_share: float = 1.0,
        mode: Mode = "batch",
        scaling: Scaling = "train",
        knob: str = "stochastic_depth",
    ) -> None:
        super().__init__(rate, knob, scaling)
        if not 0 <= depth_share <= 1:
            raise UsageError(f"StochasticDepth: depth_share must be between 0 and 1, got {depth_share!r}")
        if mode not in get_args(Mode):
            raise UsageError(f"StochasticDepth: mode must be 'batch' or 'sample', got {mode!r}")
        self.depth_share, self.mode = depth_share, mode

    @property
    def survival(self) -> float:
        """p_l, the probability that the branch is kept."""
        return 1 - self.depth_share * self.rate

    def forward(self, branch: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The branch's output, rescaled as `scaling` says, or zeros where it is dropped."""
        survival = self.survival
        if survival == 1:
            return branch(x)
        if not self.training:
            return branch(x) * survival if self.scaling == "test" else branch(x)
        if self.mode == "batch":
            if torch.rand(()).item() >= survival:
                return x.new_zeros(())  # a scalar: it broadcasts to any shape the branch would have had
            return branch(x) if self.scaling == "test" else branch(x) / survival
        out = branch(x)
        mask = torch.bernoulli(out.new_full((len(out), *[1] * (out.dim() - 1)), survival))
        return out * mask if self.scaling == "test" else out * (mask / survival)

    def add(self, straight: Tensor, branch: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """`straight` plus the result of `forward`, in fewer operations: a dropped branch adds nothing."""
        if self.mode == "sample" or self.survival == 1 or not self.training:
            kept: Tensor = self(branch, x)
            return straight + kept
        if torch.rand(()).item() >= self.survival:
            return straight
        return torch.add(straight, branch(x), alpha=1.0 if self.scaling == "test" else 1 / self.survival)

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return f"rate={self.rate:g}, depth_share={self.depth_share:g}, mode={self.mode!r}"


def set_rate(model: nn.Module, knob: str, rate: float) -> int:
    """Set the rate of all modules of a model whose `knob` has this name, and return their number.

    Stochastic depth keeps each block's own share of the rate.
    """
    rate = _checked_rate(rate, f"knob {knob!r}")
    turned = [module for module in model.modules() if getattr(module, "knob", None) == knob]
    for module in turned:
        module.rate = rate  # type: ignore[assignment]
    return len(turned)


def expected_depth(num_blocks: int, rate: float) -> float:
    """The average number of L residual blocks that run: Σ p_l = L - rate·(L + 1)/2.

    With the paper's rate of 1/2 this is (3L - 1)/4, about three quarters of the blocks.
    """
    if num_blocks < 1:
        raise UsageError(f"expected_depth: num_blocks must be at least 1, got {num_blocks!r}")
    return num_blocks - _checked_rate(rate, "expected_depth") * (num_blocks + 1) / 2


def _checked_rate(rate: float, who: str) -> float:
    if not 0 <= rate < 1:
        raise UsageError(f"{who}: rate must be at least 0 and less than 1, got {rate!r}")
    return float(rate)
