"""See every operation of a forward and backward pass of any module, functional calls included.

A function mode sees each function that the model's Python code calls: `F.relu(x)`, `x.clamp(min=0)` and
`x + y` as well as the calls of `nn` modules. Hooks keep the stack of modules, for names. Each tensor carries
a trace (whether it depends on the inputs, how many layers precede it, which axis holds its units), so that
operations on weights alone, such as weight normalisation, are not mistaken for signal. Everything inside one
function (`lstm`, `multi_head_attention_forward`) is one operation. Views and index shuffles are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from apoint.probes.batch import Batch
from apoint.probes.operations import (
    CASTS,
    COMPARISONS,
    CONVOLUTIONS,
    CURVED,
    MANY_IN_ONE,
    MULTIPLICATIONS,
    VIEWS,
    Call,
    Kind,
    Operation,
    acts_elementwise,
    kind_of,
    name_operations,
    plain_name,
)
from apoint.probes.subject import Subject


class Watcher:
    """Callbacks for what is seen; gradients are off inside, and values must not be changed."""

    def before(self, operation: Operation, call: Call) -> None:
        """Called before an operation runs; its input is still intact, even if it is overwritten later."""

    def after(self, operation: Operation, output: Tensor) -> None:
        """Called after an operation has run."""

    def gradient(self, operation: Operation, gradient: Tensor) -> None:
        """Called when the gradient of the loss with respect to an operation's output arrives."""


def watch(
    subject: Subject, watcher: Watcher, *, backward: bool = False, batch: Batch | None = None
) -> tuple[list[Operation], Tensor | None]:
    """Run a pass of a model, show its operations to a watcher, and return them in order, with the loss.

    Call it inside `preserve_state`: it runs the model forward once, and backward if asked. The loss is None
    without a backward pass.

    Args:
        subject: The model, the batch and the loss.
        watcher: The callbacks.
        backward: Whether to run the backward pass of the loss too.
        batch: Examples to use instead of the subject's own.
    """
    batch = (batch or subject.batch).map(torch.clone)  # a model may write to its inputs in place
    handles: list[Any] = []
    try:
        with watching(subject.model, batch.tensors, watcher, handles if backward else None) as operations:
            raw = subject.raw_outputs(batch)
        if not backward:
            return operations, None
        loss = subject.loss_of(raw, batch)
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        return operations, loss.detach()
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def watching(
    model: nn.Module, inputs: Iterable[Tensor], watcher: Watcher, gradient_handles: list[Any] | None = None
) -> Iterator[list[Operation]]:
    """See every operation of the model inside the context; the operations in the list get names on exit.

    Args:
        model: The model; it must be called directly, not through `functional_call`.
        inputs: The tensors that the signal comes from.
        watcher: The callbacks.
        gradient_handles: List that receives the handles of the gradient hooks; None for no such hooks.
    """
    mode = _Watching(model, inputs, watcher, gradient_handles)
    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(mode.enter_module, with_kwargs=True))
        handles.append(module.register_forward_hook(mode.leave_module, always_call=True))
    try:
        with mode:
            yield mode.operations
        name_operations(mode.operations, mode.leaves)
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class _Trace:
    """What is known about a tensor."""

    live: bool = True  # depends on the inputs
    depth: int = 0
    layer: str = ""
    unit_axis: int | None = None
    switch: bool = False  # a mask, such as `x > 0`
    sources: tuple[Operation, ...] = ()  # the activations it equals, up to constants


_CONSTANT = _Trace(live=False)


class _Watching(TorchFunctionMode):
    """The mode itself."""

    def __init__(
        self, model: nn.Module, inputs: Iterable[Tensor], watcher: Watcher, handles: list[Any] | None
    ) -> None:
        super().__init__()
        self.watcher, self.handles = watcher, handles
        self.operations: list[Operation] = []
        self.modules = {id(module): name or "(model)" for name, module in model.named_modules()}
        self.leaves = {self.modules[id(m)] for m in model.modules() if not any(True for _ in m.children())}
        self._stack: list[str] = []
        self._whole: list[Operation | None] = []  # for each running module: the operation it is as a whole
        self._num_pauses = 0
        self._elementwise: dict[str, bool] = {}
        self._traces: Any = WeakTensorKeyDictionary()
        for tensor in (*model.parameters(), *model.buffers()):
            self._traces[tensor] = _CONSTANT
        for tensor in inputs:
            self._traces[tensor] = _Trace()

    # -- functions -----------------------------------------------------------------------------------------

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._num_pauses:
            return function(*args, **kwargs)
        name = plain_name(function)
        tensors = list(_tensors((args, tuple(kwargs.values()))))
        traces = [self._trace(tensor) for tensor in tensors]
        live = [trace for trace in traces if trace.live]
        if not live or name.endswith("_like") or name.startswith("new_"):
            return self._mark(function(*args, **kwargs), _CONSTANT)
        if name in VIEWS or name in COMPARISONS:
            return self._mark(function(*args, **kwargs), _carried(name, traces))
        if name == "setitem":
            function(*args, **kwargs)
            self._mark(args[0], _carried(name, traces))
            return None
        call = self._call(function, args, kwargs, name)
        operation = self._operation(name, self._kind(name, call, tensors, traces), live, call)
        if call is not None:
            with torch.no_grad():
                self.watcher.before(operation, call)
        output = function(*args, **kwargs)
        self._see(operation, output, live)
        return output

    def _trace(self, tensor: Tensor) -> _Trace:
        found: _Trace | None = self._traces.get(tensor)
        if found is not None:
            return found
        if isinstance(tensor, nn.Parameter):
            return _CONSTANT
        # From something unseen, such as a user's function with its own backward pass.
        last = self.operations[-1] if self.operations else None
        return _Trace(depth=last.depth, layer=last.layer) if last else _Trace()

    def _is_carrier(self, tensor: Tensor) -> bool:
        """Whether a tensor is floating-point, depends on the inputs and is not a mask."""
        trace = self._trace(tensor)
        return trace.live and not trace.switch and tensor.is_floating_point()

    def _mark(self, output: Any, trace: _Trace) -> Any:
        for tensor in _tensors(output):
            if trace.live or tensor not in self._traces:  # what is returned unchanged keeps its trace
                self._traces[tensor] = trace
            base = tensor._base  # written to through a view
            if trace.live and base is not None and not self._trace(base).live:
                self._traces[base] = trace
        return output

    def _call(
        self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
    ) -> Call | None:
        """The call with its first argument that carries signal; None if that is inside a list."""
        named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
        for key, value in named:
            if isinstance(value, Tensor) and self._is_carrier(value):
                return Call(function, args, kwargs, key, name)
        return None

    def _kind(self, name: str, call: Call | None, tensors: list[Tensor], traces: list[_Trace]) -> Kind:
        num_signals = sum(self._is_carrier(tensor) for tensor in tensors)
        switched = any(trace.live and trace.switch for trace in traces)
        if known := kind_of(name, call, num_signals, len(tensors), switched):
            return known
        assert call is not None
        return "activation" if self._is_elementwise(name, call) else "other"

    def _is_elementwise(self, key: str, call: Call) -> bool:
        if key not in self._elementwise:
            self._elementwise[key] = acts_elementwise(call)
        return self._elementwise[key]

    def _operation(self, name: str, kind: Kind, live: list[_Trace], call: Call | None) -> Operation:
        module = self._stack[-1] if self._stack else "(model)"
        is_layer = kind == "linear" or name in MANY_IN_ONE
        deepest = max(live, key=lambda trace: trace.depth)
        return Operation(
            place=len(self.operations),
            module=module,
            function=name,
            kind=kind,
            depth=deepest.depth + is_layer,
            layer=module if is_layer else deepest.layer,
            unit_axis=_unit_axis(name, is_layer, live, call),
            is_layer=is_layer,
            elementwise=kind == "activation" or name in CURVED,
        )

    def _see(self, operation: Operation, output: Any, live: list[_Trace]) -> None:
        sources = _sources(operation, live)
        trace = _Trace(True, operation.depth, operation.layer, operation.unit_axis, sources=sources)
        self._mark(output, trace)
        seen = next((tensor for tensor in _tensors(output) if _is_signal(tensor)), None)
        if seen is None:  # a loss, or integers
            return
        if not -seen.dim() <= operation.unit_axis < seen.dim():
            operation.unit_axis = -1
        self.operations.append(operation)
        with torch.no_grad():
            self.watcher.after(operation, seen.detach())
        if self.handles is not None and seen.requires_grad:
            hook = seen.register_hook(lambda gradient: self._gradient(operation, gradient))  # type: ignore[no-untyped-call]
            self.handles.append(hook)

    def _gradient(self, operation: Operation, gradient: Tensor) -> None:
        with torch.no_grad():
            self.watcher.gradient(operation, gradient.detach())

    # -- modules -------------------------------------------------------------------------------------------

    def enter_module(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Treat a user's own module that acts elementwise as one activation."""
        self._stack.append(self.modules[id(module)])
        self._whole.append(None)
        if self._num_pauses:
            return
        with self._paused():
            if not _may_be_elementwise(module, args, kwargs) or not self._is_carrier(args[0]):
                return
            name = type(module).__name__.lower()
            call = Call(module.forward, args, {}, 0, name)
            if not self._is_elementwise(f"module {self._stack[-1]}", call):
                return
            operation = self._operation(name, "activation", [self._trace(args[0])], call)
            with torch.no_grad():
                self.watcher.before(operation, call)
        self._whole[-1] = operation
        self._num_pauses += 1  # until the module is left

    def leave_module(self, module: nn.Module, args: Any, output: Any) -> None:
        """See the output of a module without submodules in any case, however it was computed."""
        whole = self._whole.pop()
        self._num_pauses -= whole is not None
        if not self._num_pauses and self._stack[-1] in self.leaves:
            with self._paused():
                live = [trace for tensor in _tensors(args) if (trace := self._trace(tensor)).live]
                unseen = any(tensor not in self._traces for tensor in _tensors(output))
                if whole is None and live and unseen:
                    whole = self._operation(type(module).__name__.lower(), "other", live, None)
                if whole is not None:
                    self._see(whole, output, live)
        self._stack.pop()

    @contextmanager
    def _paused(self) -> Iterator[None]:
        self._num_pauses += 1
        try:
            yield
        finally:
            self._num_pauses -= 1


def _carried(name: str, traces: list[_Trace]) -> _Trace:
    """The trace of a view, a cast or a comparison."""
    deepest = max((trace for trace in traces if trace.live), key=lambda trace: trace.depth)
    if name in COMPARISONS:
        return replace(deepest, switch=True, sources=())
    axis = traces[0].unit_axis if name in CASTS or name in ("contiguous", "clone", "detach", "pad") else None
    sources = deepest.sources if len(traces) == 1 else ()
    return replace(deepest, unit_axis=axis, switch=deepest.switch and name in CASTS, sources=sources)


def _sources(operation: Operation, live: list[_Trace]) -> tuple[Operation, ...]:
    """The activations that the output equals, up to constants; mark those that a product reveals as gates."""
    if operation.kind == "activation":
        return (operation,)
    if operation.function in MULTIPLICATIONS and len(live) > 1:
        for source in (source for trace in live for source in trace.sources):
            source.gate = True
    return live[0].sources if operation.kind == "arithmetic" and len(live) == 1 else ()


def _unit_axis(name: str, is_layer: bool, live: list[_Trace], call: Call | None) -> int:
    if name in CONVOLUTIONS or name in ("batch_norm", "group_norm", "instance_norm"):
        return 1
    if is_layer or name in ("layer_norm", "rms_norm"):
        return -1
    known = next((trace.unit_axis for trace in live if trace.unit_axis is not None), None)
    if known is not None or call is None:
        return -1 if known is None else known
    return 1 if call.input.dim() >= 4 else -1  # channels first for images, features last for the rest


def _may_be_elementwise(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """One floating-point input, no submodules or buffers, not PyTorch's own, whose functions are known."""
    if len(args) != 1 or kwargs or not isinstance(args[0], Tensor) or not _is_signal(args[0]):
        return False
    simple = not any(True for _ in module.children()) and not any(True for _ in module.buffers())
    return simple and not type(module).__module__.startswith("torch.nn.")


def _is_signal(tensor: Tensor) -> bool:
    return tensor.dim() > 0 and tensor.is_floating_point() and tensor.numel() > 0


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(value.values()))
