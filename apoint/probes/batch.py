"""A batch as a model takes it: positional and keyword inputs, and targets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from apoint.errors import UsageError


@dataclass(frozen=True)
class Batch:
    """Examples, along the first axis of every tensor that is as long as the first one.

    Attributes:
        args: The positional arguments of the model.
        kwargs: Its keyword arguments.
        targets: What the loss compares outputs with; None if the model has its own loss, or there are none.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    targets: Any = None

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(self.tensors[0])

    @property
    def tensors(self) -> list[Tensor]:
        """The input tensors, in order; there is at least one."""
        return [tensor for tensor in _found((self.args, dict(self.kwargs))) if tensor.dim() > 0]

    def select(self, index: slice | Tensor | Sequence[int]) -> Batch:
        """Select some of the examples; tensors without an example axis stay whole."""
        size = self.size
        chosen = index if isinstance(index, slice) else torch.as_tensor(index)

        def pick(tensor: Tensor) -> Tensor:
            return tensor[chosen] if tensor.dim() > 0 and len(tensor) == size else tensor

        return self.map(pick)

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with a function applied to every tensor, targets included."""
        args, kwargs, targets = _mapped((self.args, dict(self.kwargs), self.targets), function)
        return Batch(args, kwargs, targets)

    def with_targets(self, targets: Any) -> Batch:
        """The same inputs with other targets."""
        return replace(self, targets=targets)

    def with_first(self, tensor: Tensor) -> Batch:
        """The batch with its first floating-point input replaced by a tensor, for probes that move it."""
        state = {"done": False}

        def swap(value: Tensor) -> Tensor:
            if state["done"] or not value.is_floating_point():
                return value
            state["done"] = True
            return tensor

        args, kwargs = _mapped((self.args, dict(self.kwargs)), swap)
        return Batch(args, kwargs, self.targets)


def as_batch(model: nn.Module, data: Any, device: torch.device | None = None) -> Batch:
    """Build a batch from inputs alone, `(inputs, targets)`, or a dictionary.

    Inputs are a tensor, a tuple that is passed as several arguments, or a dictionary. The entries of a
    dictionary are passed as arguments if the model's `forward` has parameters of these names; otherwise the
    dictionary is passed as one argument. In a dictionary that is the whole batch, an entry `labels` or
    `targets` that `forward` does not take is the targets.

    Args:
        model: The model; its `forward` is inspected, not called.
        data: The batch.
        device: The device to move tensors to; by default that of the model's parameters.
    """
    if isinstance(data, Batch):
        batch = data
    elif isinstance(data, Mapping):
        batch = _from_dictionary(model, data)
    elif isinstance(data, tuple | list) and len(data) == 2:
        batch = replace(_inputs(model, data[0]), targets=data[1])
    elif isinstance(data, Tensor):
        batch = _inputs(model, data)
    else:
        raise UsageError(
            "a batch is a tensor, a pair (inputs, targets) or a dictionary of tensors, not "
            f"{_described(data)}"
        )
    if not batch.tensors or batch.size == 0:
        raise UsageError(
            f"a batch needs at least one example in a tensor, and there is none in {_described(data)}"
        )
    place = device or next((p.device for p in model.parameters()), torch.device("cpu"))
    return batch.map(lambda tensor: tensor.to(place))


def _inputs(model: nn.Module, inputs: Any) -> Batch:
    if isinstance(inputs, Mapping):
        return Batch((), dict(inputs)) if _takes(model, inputs) else Batch((inputs,))
    if isinstance(inputs, tuple | list) and _num_positional(model) >= len(inputs):
        return Batch(tuple(inputs))
    return Batch((inputs,))


def _from_dictionary(model: nn.Module, data: Mapping[str, Any]) -> Batch:
    if _takes(model, data):
        return Batch((), dict(data))
    for name in ("targets", "target", "labels", "label"):
        if name in data:
            rest = {key: value for key, value in data.items() if key != name}
            return replace(_inputs(model, rest), targets=data[name])
    return Batch((dict(data),))


def _takes(model: nn.Module, names: Mapping[str, Any]) -> bool:
    """Whether `forward` has a parameter for each of the names."""
    parameters = inspect.signature(model.forward).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return True
    return set(names) <= {p.name for p in parameters if p.kind is not p.VAR_POSITIONAL}


def _num_positional(model: nn.Module) -> float:
    parameters = inspect.signature(model.forward).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return float("inf")
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _mapped(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """Apply a function to the tensors in nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: _mapped(item, function) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [_mapped(item, function) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value


def _found(value: Any) -> list[Tensor]:
    """The tensors in nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    return [tensor for item in items for tensor in _found(item)]


def _described(data: Any) -> str:
    if isinstance(data, tuple | list):
        return f"a {type(data).__name__} of {len(data)}"
    return f"a {type(data).__name__}"
