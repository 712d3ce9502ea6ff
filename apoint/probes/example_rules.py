"""Per-example gradients of known layers, from the inputs and output gradients of one batch.

A `Recorder` watches the PyTorch functions that take parameters (`F.linear`, `F.conv2d`, `F.layer_norm`, …) in
any module and keeps their inputs. The inputs and the gradient δ of the output are enough to compute, without
building the gradient of each example: its squared norm, its product with a direction, and the sum of squares
over the examples. For a linear layer with one position, for instance, the gradient of an example is δxᵀ, and
its squared norm |δ|²|x|².

Shapes: B examples, P positions, I inputs and O outputs of a linear map, G groups, E entries of a parameter.

Reference: Goodfellow (2015), Efficient per-example gradient computations, arXiv 1510.01799; for sequences the
products of positions, Li et al. (2022), Large language models can be strong differentially private learners,
section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from apoint.theory.calls import CONVOLUTION, LINEAR, Arguments, CallRecorder, Function, padding_amounts

_CHUNK_BYTES = 4 * 2**20
"""How many bytes of temporaries, such as unfolded inputs, are built at once: what a cache holds."""


class Gradients(Protocol):
    """The per-example gradients of one parameter, in a form that is cheap to hold."""

    def squares(self) -> Tensor:
        """The squared norm of each, [B], in double precision."""

    def dots(self, direction: Tensor) -> Tensor:
        """The product of each with a direction of the parameter's shape, [B], in double precision."""

    def sum_of_squares(self) -> Tensor:
        """The sum of their squares over the examples, entry by entry, of the parameter's shape."""


@dataclass(frozen=True)
class Explicit:
    """Gradients in full, [B, *shape of the parameter]: for small parameters."""

    gradients: Tensor

    def squares(self) -> Tensor:
        return _norms(self.gradients)

    def dots(self, direction: Tensor) -> Tensor:
        return (self.gradients * direction).flatten(1).sum(1, dtype=torch.float64)

    def sum_of_squares(self) -> Tensor:
        return self.gradients.square().sum(0)


@dataclass(frozen=True)
class Outer:
    """Sums over positions of outer products, Σ_p δ_p x_pᵀ, in G independent groups: linear maps.

    `parts` yields inputs [b, G, I, P] and output gradients [b, G, O, P] of some examples at a time.
    """

    parts: Callable[[], Iterable[tuple[Tensor, Tensor]]]
    shape: torch.Size

    def squares(self) -> Tensor:
        return torch.cat([_outer_squares(x, d) for x, d in self.parts()])

    def dots(self, direction: Tensor) -> Tensor:
        found = []
        for x_BGIP, d_BGOP in self.parts():
            matrix_GOI = direction.reshape(x_BGIP.shape[1], d_BGOP.shape[2], x_BGIP.shape[2])
            reached_BGOP = matrix_GOI @ x_BGIP
            found.append((reached_BGOP * d_BGOP).flatten(1).sum(1, dtype=torch.float64))
        return torch.cat(found)

    def sum_of_squares(self) -> Tensor:
        total: Tensor | None = None
        for x_BGIP, d_BGOP in self.parts():
            if x_BGIP.shape[-1] == 1:
                part = torch.einsum("bgo,bgi->goi", d_BGOP[..., 0].square(), x_BGIP[..., 0].square())
            else:
                part = (d_BGOP @ x_BGIP.mT).square().sum(0)
            total = part if total is None else total + part
        assert total is not None, "a batch has examples"
        return total.reshape(self.shape)


def _outer_squares(x_BGIP: Tensor, d_BGOP: Tensor) -> Tensor:
    """|Σ_p δ_p x_pᵀ|² of each example, in the cheapest of three ways."""
    inputs, outputs, positions = x_BGIP.shape[2], d_BGOP.shape[2], x_BGIP.shape[3]
    if positions == 1:
        x_BG, d_BG = _norms(x_BGIP, 2), _norms(d_BGOP, 2)
        return (x_BG * d_BG).sum(1)
    if positions * (inputs + outputs) < inputs * outputs:
        likeness_BGPP = (x_BGIP.mT @ x_BGIP) * (d_BGOP.mT @ d_BGOP)
        return likeness_BGPP.flatten(1).sum(1, dtype=torch.float64)
    return _norms(d_BGOP @ x_BGIP.mT)


@dataclass(frozen=True)
class Rows:
    """Gradients that touch few rows of a table: embeddings."""

    tokens_BP: Tensor
    gradients_BPE: Tensor
    shape: torch.Size

    def _summed(self) -> tuple[Tensor, Tensor, Tensor]:
        """For every pair of example and row that occurs: the example, the row, and the summed gradient."""
        size = len(self.tokens_BP)
        example = torch.arange(size, device=self.tokens_BP.device)[:, None].expand_as(self.tokens_BP)
        keys, place = torch.unique(example * self.shape[0] + self.tokens_BP, return_inverse=True)
        flat = self.gradients_BPE.flatten(0, 1)
        total = flat.new_zeros(len(keys), flat.shape[1]).index_add_(0, place.flatten(), flat)
        return keys // self.shape[0], keys % self.shape[0], total

    def _by_example(self, example: Tensor, values: Tensor) -> Tensor:
        return values.new_zeros(len(self.tokens_BP)).index_add_(0, example, values)

    def squares(self) -> Tensor:
        example, _, total = self._summed()
        return self._by_example(example, _norms(total))

    def dots(self, direction: Tensor) -> Tensor:
        example, row, total = self._summed()
        return self._by_example(example, (total * direction[row]).sum(1, dtype=torch.float64))

    def sum_of_squares(self) -> Tensor:
        _, row, total = self._summed()
        return total.new_zeros(self.shape).index_add_(0, row, total.square())


def _norms(values: Tensor, axes_left: int = 1) -> Tensor:
    """Squared norms over all axes but the first ones, in double precision."""
    norms: Tensor = torch.linalg.vector_norm(values.flatten(axes_left), dim=axes_left)
    return norms.double().square()


# -- rules: from a call's arguments and the gradient of its result to the gradients of its parameters --------

Rule = Callable[["Use", str, Tensor], Gradients | None]


def _linear(use: Use, role: str, d: Tensor) -> Gradients | None:
    x = use.arguments["input"]
    if x.dim() < 2 or d.dim() < 2 or use.arguments["weight"].dim() != 2:
        return None
    d_BPO = d.reshape(len(d), -1, d.shape[-1])
    if role == "bias":
        return Explicit(d_BPO.sum(1))
    x_BPI = x.reshape(len(x), -1, x.shape[-1])
    positions, weight = x_BPI.shape[1], use.arguments["weight"]
    made = 0 if positions == 1 else min(positions**2, weight.numel()) * x.element_size()

    def parts() -> Iterable[tuple[Tensor, Tensor]]:
        for some in _chunks(len(x), made):
            yield x_BPI[some].mT[:, None], d_BPO[some].mT[:, None]

    return Outer(parts, weight.shape)


def _convolution(use: Use, role: str, d: Tensor) -> Gradients | None:
    weight, x = use.arguments["weight"], use.arguments["input"]
    if x.dim() != weight.dim():  # a single image without a batch axis
        return None
    if role == "bias":
        return Explicit(d.flatten(2).sum(2))
    if weight.dim() == 3:
        x, d, weight = x[:, :, None], d[:, :, None], weight[:, :, None]
    options = {name: _pair(use.arguments[name]) for name in ("stride", "dilation")}
    amounts = padding_amounts(use.arguments["padding"], weight.shape[2:], options["dilation"], _pair)
    padded = F.pad(x, amounts)
    groups, kernel = use.arguments["groups"], (weight.shape[2], weight.shape[3])
    made = (padded[0].numel() * kernel[0] * kernel[1] + weight.numel()) * padded.element_size()

    def parts() -> Iterable[tuple[Tensor, Tensor]]:
        for some in _chunks(len(padded), made):
            patches = _unfolded(padded[some], kernel, options["stride"], options["dilation"])
            yield _grouped(patches, groups), _grouped(d[some].flatten(2), groups)

    return Outer(parts, use.arguments["weight"].shape)


def _unfolded(
    x_BCHW: Tensor, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> Tensor:
    """The patches that a kernel sees, [B, C·kernel, P]: `F.unfold`, but several times faster on CPU."""
    reach = [step * (size - 1) + 1 for step, size in zip(dilation, kernel, strict=True)]
    windows = x_BCHW.unfold(2, reach[0], stride[0]).unfold(3, reach[1], stride[1])
    windows = windows[..., :: dilation[0], :: dilation[1]]
    return windows.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)


def _grouped(x_BCP: Tensor, groups: int) -> Tensor:
    return x_BCP.reshape(len(x_BCP), groups, -1, x_BCP.shape[-1])


def _chunks(size: int, bytes_each: int) -> Iterable[slice]:
    """Slices of the examples, sized so that the temporaries for each slice stay small."""
    step = max(1, _CHUNK_BYTES // max(1, bytes_each))
    return (slice(begin, begin + step) for begin in range(0, size, step))


def _pair(value: Any) -> tuple[int, int]:
    """A stride or dilation of one or two numbers as a pair; a single axis is the second of the pair."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return (values[0], values[-1])


def _convolution_line(use: Use, role: str, d: Tensor) -> Gradients | None:
    """Convolution along one axis: an image of height 1, with no padding above and below it."""
    changed = {"stride": (1, _pair(use.arguments["stride"])[1])}
    changed["dilation"] = (1, _pair(use.arguments["dilation"])[1])
    padding = use.arguments["padding"]
    more = {"padding": padding if isinstance(padding, str) else (0, _pair(padding)[1])}
    return _convolution(use.having(**changed, **more), role, d)


def _embedding(use: Use, role: str, d: Tensor) -> Gradients | None:
    tokens, options = use.arguments["input"], use.arguments
    if options["max_norm"] is not None or options["scale_grad_by_freq"] or options["sparse"]:
        return None
    weight, hole = options["weight"], options["padding_idx"]
    d_BPE, tokens_BP = d.reshape(len(d), -1, d.shape[-1]), tokens.reshape(len(tokens), -1)
    if hole is not None:
        d_BPE = d_BPE * (tokens_BP != hole % len(weight))[..., None]
    return Rows(tokens_BP, d_BPE, weight.shape)


def _trailing_scale(use: Use, role: str, d: Tensor) -> Gradients | None:
    """Layer norm and RMS norm: one factor for each entry of the last axes."""
    shape = list(use.arguments["normalized_shape"])
    if d.dim() <= len(shape):
        return None
    if role == "weight":
        d = d * use.again(weight=None, **({"bias": None} if "bias" in use.arguments else {}))
    return Explicit(d.reshape(len(d), -1, *shape).sum(1))


def _channel_scale(use: Use, role: str, d: Tensor) -> Gradients | None:
    """Group norm, and batch norm with fixed statistics: one factor for each channel."""
    if role == "weight":
        d = d * use.again(weight=None, bias=None)
    return Explicit(d.reshape(*d.shape[:2], -1).sum(2))


def _fixed_scale(use: Use, role: str, d: Tensor) -> Gradients | None:
    return None if use.arguments["training"] else _channel_scale(use, role, d)


# The arguments of each function in order, with defaults; and its rule.
_KNOWN: dict[Callable[..., Any], tuple[dict[str, Any], Rule]] = {
    F.linear: (LINEAR, _linear),
    F.conv1d: (CONVOLUTION, _convolution_line),
    F.conv2d: (CONVOLUTION, _convolution),
    F.embedding: (
        {
            "input": None, "weight": None, "padding_idx": None, "max_norm": None, "norm_type": 2.0,
            "scale_grad_by_freq": False, "sparse": False,
        },
        _embedding,
    ),
    F.layer_norm: (
        {"input": None, "normalized_shape": (), "weight": None, "bias": None, "eps": 1e-5},
        _trailing_scale,
    ),
    F.rms_norm: ({"input": None, "normalized_shape": (), "weight": None, "eps": None}, _trailing_scale),
    F.group_norm: (
        {"input": None, "num_groups": 1, "weight": None, "bias": None, "eps": 1e-5},
        _channel_scale,
    ),
    F.batch_norm: (
        {
            "input": None, "running_mean": None, "running_var": None, "weight": None, "bias": None,
            "training": False, "momentum": 0.1, "eps": 1e-5,
        },
        _fixed_scale,
    ),
}  # fmt: skip


# -- watching ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Use:
    """A call of a known function with parameters.

    Attributes:
        function: The function.
        arguments: Its arguments by name.
        names: The name of the parameter in the model for each role, `weight` and `bias`.
        edge: Where the gradient of the result arrives. Unlike the result itself, it does not change when an
            activation is applied in place.
        version: How often the input had been written to; a later write would change the input.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    names: Mapping[str, str]
    edge: GradientEdge
    version: int

    @property
    def input(self) -> Tensor:
        found: Tensor = self.arguments["input"]
        return found

    @property
    def is_intact(self) -> bool:
        """Whether the input is still what the function saw."""
        return self.input._version == self.version

    def gradients(self, role: str, output_gradient: Tensor) -> Gradients | None:
        """The per-example gradients of one parameter; None where the rule does not hold."""
        dtype, use = self.arguments[role].dtype, self
        if self.input.is_floating_point() and self.input.dtype != dtype:  # as under autocast
            use = self.having(input=self.input.to(dtype))
        return _KNOWN[self.function][1](use, role, output_gradient.to(dtype))

    def again(self, **changed: Any) -> Tensor:
        """The result of the same call with some arguments changed, such as without its factor."""
        with torch.no_grad():
            result: Tensor = self.function(**{**self.arguments, **changed})
        return result

    def having(self, **changed: Any) -> Use:
        """The same call, as if with some arguments changed."""
        return Use(self.function, {**self.arguments, **changed}, self.names, self.edge, self.version)


class Recorder(CallRecorder):
    """Context that keeps the calls of known functions with the given parameters.

    Args:
        parameters: The parameters by name.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__(parameters, {function: arguments for function, (arguments, _) in _KNOWN.items()})
        self.uses: list[Use] = []

    def keep(
        self, function: Function, arguments: Arguments, names: dict[str, str], version: int, result: Tensor
    ) -> None:
        """See `CallRecorder`."""
        detached = {
            name: value.detach() if isinstance(value, Tensor) and value.is_floating_point() else value
            for name, value in arguments.items()
        }
        self.uses.append(Use(function, detached, names, get_gradient_edge(result), version))
