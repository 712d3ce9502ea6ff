"""Which functions are intercepted, and the mode that finds their calls in a model's code."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from apoint.engine.stacked.draws import Draws
from apoint.engine.stacked.errors import CannotStackError
from apoint.engine.stacked.lifting import Lifted

Function = Callable[..., Any]
TABLE: dict[Function, Callable[..., Any]] = {}
"""From a function of PyTorch to its stacked form, called with the scene and the function's own arguments."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a stacked form needs besides its arguments.

    Attributes:
        lifted: The computation in progress.
        draws: The generators of the replicas.
        faithful: Whether every result has the memory layout of a replica alone. Draws fill memory from start
            to end, so the layout decides which number goes where. Otherwise results have the fastest layout,
            and draws assume the layout that nearly every model has alone: images channels-last, and
            everything else row by row.
    """

    lifted: Lifted
    draws: Draws
    faithful: bool = False


def stacked_form(*functions: Function | None) -> Callable[[Function], Function]:
    """Decorator: register the stacked form of some functions; `None` is one that this PyTorch lacks."""

    def enter(form: Function) -> Function:
        for function in functions:
            if function is not None:
                TABLE[function] = form
        return form

    return enter


class Interception(TorchFunctionMode):
    """A mode in which calls of the functions in the table are computed by their stacked forms."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene

    def __torch_function__(
        self,
        func: Function,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        form = TABLE.get(func)
        if form is not None and self.scene.lifted.is_innermost:
            return form(self.scene, *args, **(kwargs or {}))
        if func in _COMPOSED:
            with self:
                return _unguarded(func)(*args, **(kwargs or {}))
        return func(*args, **kwargs) if kwargs else func(*args)


_COMPOSED = {F.multi_head_attention_forward}
"""Functions written in Python whose inner calls are to be intercepted too."""


@functools.cache
def _unguarded(function: types.FunctionType) -> Function:
    """A copy of a `torch.nn.functional` function that a mode does not intercept, only its inner calls."""
    guards = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    surroundings = {**function.__globals__, **dict.fromkeys(guards, _says_no)}
    made = types.FunctionType(
        function.__code__, surroundings, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _says_no(*_: Any) -> bool:
    return False


def refuse_autocast() -> None:
    """Raise under automatic mixed precision, whose casts `vmap` silently drops."""
    if torch._C._is_any_autocast_enabled():
        raise CannotStackError("its model uses autocast, which vmap does not follow in every operation")
