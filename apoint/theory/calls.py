"""Watch the PyTorch functions that take parameters, no matter which module calls them.

Probes and tangent kernels share this: which calls were made, with what arguments, and where the gradient of
each result will arrive.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

Function = Callable[..., Any]
Arguments = dict[str, Any]

LINEAR: Arguments = {"input": None, "weight": None, "bias": None}
"""The arguments of `F.linear` in order, with defaults."""
CONVOLUTION: Arguments = {**LINEAR, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
"""Those of `F.conv1d` and `F.conv2d`."""


class CallRecorder(TorchFunctionMode):
    """A context that passes calls of known functions with the given parameters to `keep`.

    Args:
        parameters: Parameters by name.
        known: The functions to watch, each with its arguments in order and their defaults.
    """

    def __init__(self, parameters: Mapping[str, Tensor], known: Mapping[Function, Arguments]) -> None:
        super().__init__()
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._known = known

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in self._known:
            return func(*args, **kwargs)
        arguments = {**self._known[func], **dict(zip(self._known[func], args, strict=False)), **kwargs}
        version = arguments["input"]._version
        result = func(*args, **kwargs)
        names = {
            role: self._names[id(arguments[role])]
            for role in ("weight", "bias")
            if id(arguments.get(role)) in self._names
        }
        if names and result.requires_grad:
            self.keep(func, arguments, names, version, result)
        return result

    @abstractmethod
    def keep(
        self, function: Function, arguments: Arguments, names: dict[str, str], version: int, result: Tensor
    ) -> None:
        """Record a call.

        Args:
            function: What was called.
            arguments: Its arguments by name.
            names: The parameter's name for each role, `weight` and `bias`.
            version: How often the input had been written to before the call.
            result: What the call returned.
        """


def padding_amounts(
    value: Any, kernel: Iterable[int], dilation: tuple[int, int], pair: Callable[[Any], tuple[int, int]]
) -> list[int]:
    """The amounts that `F.pad` adds for a convolution's padding: left, right, top, bottom.

    Args:
        value: The padding: "valid", "same", or numbers.
        kernel: The sizes of the kernel, vertical and horizontal.
        dilation: The dilations, vertical and horizontal.
        pair: Maps the numbers to a vertical and a horizontal one.
    """
    if value == "valid":
        return [0, 0, 0, 0]
    if value == "same":
        total = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
        return [total[1] // 2, total[1] - total[1] // 2, total[0] // 2, total[0] - total[0] // 2]
    vertical, horizontal = pair(value)
    return [horizontal, horizontal, vertical, vertical]
