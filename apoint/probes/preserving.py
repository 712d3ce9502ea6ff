"""Measure without side effects: the model and the random generators are the same afterwards.

Restored bit for bit: running statistics and other buffers, gradients, plain attributes of modules, hooks,
train and eval modes, which parameters require gradients, the state of every generator and, on request, the
weights. Not restored: the contents of lists and other objects that a module keeps and changes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy
import torch
from torch import nn

from apoint.nn import elementary_attention

_KEPT_BY_NAME = ("_parameters", "_buffers", "_modules")


@contextmanager
def preserve_state(
    model: nn.Module, seed: int = 0, *, mode: bool | None = None, weights: bool = False
) -> Iterator[None]:
    """Work with a model, then restore it and the random generators.

    Inside, gradients are enabled even if the caller disabled them; the `.grad` of every parameter is None;
    random draws are seeded with `seed`, so that the same measurement gives the same number; and attention
    runs through elementary operations, which have second derivatives where the fused kernel on CPU has none.

    Args:
        model: The model.
        seed: Seed of the random draws inside, such as those of dropout.
        mode: True for train mode, False for eval mode; None leaves the mode of every module unchanged.
        weights: Whether the code inside changes the weights, so that they must be restored too.
    """
    restore = [
        _tensors(model, weights), _attributes(model), _gradients(model), _generators(model), _fast_path()
    ]  # fmt: skip
    try:
        if mode is not None:
            model.train(mode)
        _seed(model, seed)
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(elementary_attention())
            yield
    finally:
        for bring_back in reversed(restore):
            bring_back()


def _tensors(model: nn.Module, weights: bool) -> Callable[[], None]:
    """Save buffers, and weights if they may be changed.

    Only what has changed is written back: a write would invalidate a graph that the caller still has to
    backpropagate through. PyTorch's version counter does not help, since batch norm does not count its own
    writes.
    """
    kept = [*model.buffers(), *(model.parameters() if weights else ())]
    before = [(tensor, tensor.detach().clone()) for tensor in kept]
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]

    def bring_back() -> None:
        with torch.no_grad():
            for tensor, values in before:
                if not torch.equal(tensor, values):
                    tensor.data.copy_(values)
        for parameter, wants in flags:
            if parameter.requires_grad != wants:
                parameter.requires_grad_(wants)

    return bring_back


def _attributes(model: nn.Module) -> Callable[[], None]:
    """Save the plain attributes of modules (the mode, counters, a last output), and what their parts are."""
    before = []
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue  # its attributes live in TorchScript, out of reach; buffers and modes are kept above
        parts = {name: dict(module.__dict__[name]) for name in _KEPT_BY_NAME}
        plain = {name: value for name, value in module.__dict__.items() if name not in _KEPT_BY_NAME}
        hooks = {name: dict(value) for name, value in plain.items() if _is_hooks(name, value)}
        before.append((module, parts, plain, hooks))

    def bring_back() -> None:
        for module, parts, plain, hooks in before:
            for name, tensors in parts.items():
                _refill(module.__dict__[name], tensors)
            for name in [name for name in module.__dict__ if name not in plain and name not in parts]:
                del module.__dict__[name]
            module.__dict__.update(plain)
            for name, kept in hooks.items():
                _refill(module.__dict__[name], kept)

    return bring_back


def _is_hooks(name: str, value: Any) -> bool:
    return "hooks" in name and isinstance(value, dict)


def _refill(target: Any, source: dict[Any, Any]) -> None:
    if list(target) != list(source) or any(target[name] is not value for name, value in source.items()):
        target.clear()
        target.update(source)


def _gradients(model: nn.Module) -> Callable[[], None]:
    before = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in before:
        parameter.grad = None

    def bring_back() -> None:
        for parameter, gradient in before:
            parameter.grad = gradient

    return bring_back


def _generators(model: nn.Module) -> Callable[[], None]:
    python, numeric, own = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    devices = _cuda_devices(model)
    others = [torch.cuda.get_rng_state(device) for device in devices]

    def bring_back() -> None:
        random.setstate(python)
        numpy.random.set_state(numeric)
        torch.set_rng_state(own)
        for device, state in zip(devices, others, strict=True):
            torch.cuda.set_rng_state(state, device)

    return bring_back


def _fast_path() -> Callable[[], None]:
    """Turn off the fused path of PyTorch's encoder layers in eval mode, which hides what is inside them."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)

    def bring_back() -> None:
        torch.backends.mha.set_fastpath_enabled(before)

    return bring_back


def _seed(model: nn.Module, seed: int) -> None:
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    for device in _cuda_devices(model):
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _cuda_devices(model: nn.Module) -> list[torch.device]:
    return sorted({p.device for p in model.parameters() if p.device.type == "cuda"}, key=str)
