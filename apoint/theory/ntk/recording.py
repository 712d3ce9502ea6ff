"""Watch a module run: which parameters go through linear maps, with what inputs and output gradients.

If every use of a parameter is a dense layer or a convolution over the same kind of patches, its gradient for
each example and output is a sum over positions of outer products, Σ_p δ_p x_pᵀ. These factors are all that a
tangent kernel needs, and much smaller than the gradient. The autograd graph tells whether each use was seen:
by the number of edges into the parameter.

Shapes: N examples, O outputs, P positions, I inputs and J outputs of a linear map, G groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F

from apoint.theory.calls import CONVOLUTION, LINEAR, Arguments, CallRecorder, Function, padding_amounts

_KNOWN: dict[Function, Arguments] = {F.linear: LINEAR, F.conv1d: CONVOLUTION, F.conv2d: CONVOLUTION}


@dataclass(frozen=True)
class Use:
    """One call of a linear map with parameters.

    Attributes:
        function: `F.linear` or a convolution.
        arguments: Its arguments by name.
        names: The parameter's name for each role, `weight` and `bias`.
        edge: Where the gradient of the result arrives; it stays the same when the result is changed in place.
        version: How often the input had been written to.
        positions: Number of times the weights are applied to an example.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    names: Mapping[str, str]
    edge: GradientEdge
    version: int
    positions: int

    def is_sound(self, examples: int) -> bool:
        """Whether the input is still what the map saw, and its first axis is the examples."""
        x, weight = self.arguments["input"], self.arguments["weight"]
        axes = x.dim() >= 2 and weight.dim() == 2 if self.function is F.linear else x.dim() == weight.dim()
        return bool(axes and len(x) == examples and x._version == self.version)

    @property
    def groups(self) -> int:
        return int(self.arguments.get("groups", 1))

    def inputs(self, some: slice = slice(None)) -> Tensor:
        """What the map multiplies by its weights, [N, G, I, P], for all or some examples."""
        x = self.arguments["input"][some]
        if self.function is F.linear:
            flat: Tensor = x.reshape(len(x), -1, x.shape[-1])
            return flat.mT[:, None]
        patches = _patches(x, self.arguments)
        return patches.reshape(len(x), self.groups, -1, patches.shape[-1])

    def gradients(self, d: Tensor) -> Tensor:
        """The gradients of its results as [N, G, J, P], from those in the shape of the results."""
        if self.function is F.linear:
            return d.reshape(len(d), -1, d.shape[-1]).mT[:, None]
        return d.reshape(len(d), self.groups, d.shape[1] // self.groups, -1)


def _patches(x: Tensor, arguments: Mapping[str, Any]) -> Tensor:
    """What a kernel sees at each place, [N, channels · kernel, P]."""
    weight = arguments["weight"]
    line = weight.dim() == 3  # along one axis: an image of height 1
    kernel = (1, weight.shape[2]) if line else (weight.shape[2], weight.shape[3])
    stride, dilation = (_pair(arguments[name], line, 1) for name in ("stride", "dilation"))
    amounts = padding_amounts(arguments["padding"], kernel, dilation, lambda value: _pair(value, line, 0))
    x = F.pad(x[:, :, None] if line else x, amounts)
    reach = [step * (size - 1) + 1 for step, size in zip(dilation, kernel, strict=True)]
    windows = x.unfold(2, reach[0], stride[0]).unfold(3, reach[1], stride[1])
    windows = windows[..., :: dilation[0], :: dilation[1]]
    return windows.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)


def _pair(value: Any, line: bool, other: int) -> tuple[int, int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return (other, int(values[-1])) if line else (int(values[0]), int(values[-1]))


class Recorder(CallRecorder):
    """A context that keeps calls of linear maps with the given parameters.

    Args:
        parameters: Parameters by name.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__(parameters, _KNOWN)
        self.uses: list[Use] = []

    def keep(
        self, function: Function, arguments: Arguments, names: dict[str, str], version: int, result: Tensor
    ) -> None:
        """See `CallRecorder`."""
        arguments["input"] = arguments["input"].detach()
        positions = result[0].numel() // len(arguments["weight"])
        self.uses.append(Use(function, arguments, names, get_gradient_edge(result), version, positions))


def edges_into(output: Tensor, parameters: Mapping[str, Tensor]) -> Counter[str]:
    """How many edges of the graph behind an output lead to each parameter."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    found: Counter[str] = Counter()
    seen, waiting = set(), [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for after, _ in node.next_functions:
            parameter = getattr(after, "variable", None)
            if parameter is None:
                waiting.append(after)
            elif id(parameter) in names:
                found[names[id(parameter)]] += 1
    return found


@dataclass
class Factors:
    """The gradients of some examples for one weight and the bias beside it; missing parts are None.

    Attributes:
        inputs: [N, G, I, P]; with `gradients`, the weight's gradient as outer products.
        gradients: Gradients of the results, [N, O, G, J, P].
        made: The weight's gradient itself, [N, O, G·J·I], where that is smaller.
        bias: The bias's gradient, [N, O, G·J].
    """

    inputs: Tensor | None
    gradients: Tensor | None
    made: Tensor | None
    bias: Tensor | None

    @property
    def nbytes(self) -> int:
        """The memory of all parts that are present."""
        parts = (self.inputs, self.gradients, self.made, self.bias)
        return sum(part.nbytes for part in parts if part is not None)


@dataclass
class Record:
    """The recorded gradients of some examples.

    Attributes:
        factors: For each linear map, by the name of its weight (or its bias where that is all it trains).
        jacobian: The gradients for all other parameters, [N, O, entries]; None if there are none.
        examples: Number of examples.
        outputs: Number of outputs.
    """

    factors: dict[str, Factors]
    jacobian: Tensor | None
    examples: int
    outputs: int


def keyed(uses: list[Use]) -> dict[str, list[Use]]:
    """Uses by the parameter they share."""
    found: dict[str, list[Use]] = {}
    for use in uses:
        found.setdefault(use.names.get("weight") or use.names["bias"], []).append(use)
    return found


def explained(uses: list[Use], output: Tensor, parameters: Mapping[str, Tensor]) -> set[str]:
    """The keys of the maps that account for every use of their parameters."""
    edges, good = edges_into(output, parameters), set()
    seen = Counter(name for use in uses for name in use.names.values())
    for key, group in keyed(uses).items():
        names = [use.names for use in group]
        together = all(one == names[0] for one in names)  # a bias of one map used by another is not handled
        counted = all(seen[name] == edges[name] == len(group) for name in names[0].values())
        alike = len({(use.function is F.linear, use.groups) for use in group}) == 1
        if together and counted and alike and all(use.is_sound(len(output)) for use in group):
            good.add(key)
    return good
