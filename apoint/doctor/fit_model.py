"""Which inputs would fit a model that fails, or which layer would fit its inputs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from apoint.doctor.failure import Work, type_of
from apoint.doctor.fitting import Case, Fit

_CASTS = {
    torch.float32: "float()",
    torch.float64: "double()",
    torch.float16: "half()",
    torch.bfloat16: "bfloat16()",
    torch.int64: "long()",
}
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)


def cast(dtype: torch.dtype) -> str:
    """The method that casts a tensor to a dtype."""
    return _CASTS.get(dtype, f"to({dtype})")


def _signature(case: Case) -> Fit | None:
    """Inputs that the model's `forward` cannot be called with."""
    signature, batch = inspect.signature(case.model.forward), case.batch
    if not _binds(signature, *batch.args, **batch.kwargs):
        names = ", ".join(signature.parameters)
        if _binds(signature, *batch.args, batch.targets):
            return Fit(
                f"forward takes ({names}), and of a pair only the first goes into the model: the second is "
                "what the loss compares outputs with.",
                "If the model takes the targets itself, give the batch as a dictionary of all that it takes.",
                f"batch = {{{', '.join(f'{name!r}: …' for name in signature.parameters)}}}",
            )
        by_name = f" and {', '.join(batch.kwargs)} by name" if batch.kwargs else ""
        return Fit(
            f"forward takes ({names}), and the batch gives {len(batch.args)} by position{by_name}.",
            "Give the batch as a dictionary with an entry for each input of forward, or several inputs as a "
            "tuple: ((first, second), targets).",
            f"batch = {{{', '.join(f'{name!r}: …' for name in signature.parameters)}}}",
        )
    return None


def _binds(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _embedding(case: Case) -> Fit | None:
    work = case.work
    if work is None or not isinstance(work.module, nn.Embedding | nn.EmbeddingBag) or not work.inputs:
        return None
    index, rows = work.inputs[0], work.module.num_embeddings
    if index.is_floating_point():
        if not case.forward_works(lambda x: x.long() if x.is_floating_point() else x):
            return None
        return Fit(
            f"Layer {work} takes whole numbers and gets {type_of(index)}.",
            "Give it whole numbers.",
            "x = x.long()",
        )
    low, high = _range_of(case, index)
    if low < 0:
        return Fit(
            f"Layer {work} takes indices from 0 to {rows - 1}, and they go from {low} to {high}.",
            "Give what is marked by a negative number, such as padding, an index of its own from 0 on.",
            f"x = x.clamp_min(0)  # or x - ({low}), if {low} is a token",
        )
    if high < rows:
        return None
    return Fit(
        f"Layer {work} has {rows} rows, and indices go up to {high}.",
        f"Build it with num_embeddings={high + 1}, or map indices to 0 to {rows - 1}.",
        f"torch.nn.{type(work.module).__name__}(num_embeddings={high + 1}, "
        f"embedding_dim={work.module.embedding_dim})",
    )


def _range_of(case: Case, index: Tensor) -> tuple[int, int]:
    """The range of indices: over all data if they are a model input, else over those that arrived."""
    known = [index]
    for mine, whole in zip(case.batch.tensors, case.examples.whole.tensors, strict=False):
        if mine.shape == index.shape and torch.equal(mine, index):
            known.append(whole)
    return min(int(each.min()) for each in known), max(int(each.max()) for each in known)


def _type(case: Case) -> Fit | None:
    """Inputs of another dtype than the weights: the floating-point ones, or all of them."""
    weight = next((p for p in case.model.parameters() if p.is_floating_point()), None)
    if weight is None:
        return None
    others = [x for x in case.batch.tensors if x.dtype != weight.dtype]
    for wrong in ([x for x in others if x.is_floating_point()], others):
        types = {x.dtype for x in wrong}
        if wrong and case.forward_works(lambda x, types=types: x.to(weight.dtype) if x.dtype in types else x):  # type: ignore[misc]
            return Fit(
                f"The inputs are {type_of(wrong[0])} and the weights {type_of(weight)}.",
                "Give the inputs the type of the weights.",
                f"x = x.{cast(weight.dtype)}",
            )
    return None


Change = Callable[[Tensor], Tensor]


def _layout(case: Case) -> Fit | None:
    """Inputs whose axes are in the wrong order, too few or too many."""
    first = case.batch.tensors[0]
    for change, code, fact in _other_axes(first, f"Layer {case.work}" if case.work else "The model"):

        def changed(x: Tensor, change: Change = change) -> Tensor:
            return change(x) if x.shape == first.shape else x

        if case.forward_works(changed):
            return Fit(fact, "Bring the inputs into the shape that the model takes.", f"x = {code}")
    return None


def _other_axes(x: Tensor, into: str) -> list[tuple[Change, str, str]]:
    """Possible changes to the axes, the code for each, and the fault that each would fix."""
    what, side = f"inputs of shape {list(x.shape)}", math.isqrt(x.shape[-1])
    plane = (1, side, side)
    flat = f"{into} takes one axis of features, and gets {what}."
    found: list[tuple[Change, str, str]] = []
    if x.dim() > 2:
        found.append((lambda x: x.flatten(1), "x.flatten(1)", flat))
        found.append(
            (lambda x: x.movedim(-1, 1), "x.movedim(-1, 1)", f"The {what} have their channels last.")
        )
    if x.dim() >= 2:
        found.append((lambda x: x.unsqueeze(1), "x.unsqueeze(1)", f"The {what} have no axis of channels."))
    if x.dim() == 2 and side > 1 and side**2 == x.shape[-1]:
        code = f"x.unflatten(1, {plane})"
        found.append(
            (lambda x: x.reshape(-1, *plane), code, f"{into} takes images, and the {what} are flat.")
        )
    return found


def _width(case: Case) -> Fit | None:
    """A layer built for a different number of features than it receives."""
    work = case.work
    if work is None or not work.inputs or not work.inputs[0].dim():
        return None
    module, got = work.module, work.inputs[0].shape[-1]
    setting = (
        "in_features" if isinstance(module, nn.Linear)
        else "input_size" if isinstance(module, nn.RNNBase)
        else "embed_dim" if isinstance(module, nn.MultiheadAttention) else ""
    )  # fmt: skip
    return _resized(work, setting, got, "features") if setting else None


def _resized(work: Work, setting: str, got: int, what: str) -> Fit | None:
    takes = int(getattr(work.module, setting))
    if takes == got:
        return None
    others = {"in_features": "out_features", "input_size": "hidden_size", "embed_dim": "num_heads",
              "in_channels": "out_channels"}  # fmt: skip
    other = others.get(setting)
    rest = f", {other}={getattr(work.module, other)}" if other else ""
    rest += f", kernel_size={work.module.kernel_size}" if setting == "in_channels" else ""
    return Fit(
        f"Layer {work} takes {takes} {what} and gets {got}.",
        f"Build it with {setting}={got}, or give it {takes} {what}.",
        f"torch.nn.{type(work.module).__name__}({setting}={got}{rest})",
    )


def _convolution(case: Case) -> Fit | None:
    work = case.work
    if work is None or not isinstance(work.module, _CONVOLUTIONS + _POOLS) or not work.inputs:
        return None
    module, x = work.module, work.inputs[0]
    axes = int(type(module).__name__[-2])
    if isinstance(module, _CONVOLUTIONS) and x.dim() == axes + 2:
        wrong = _resized(work, "in_channels", x.shape[1], "channels")
        if wrong is not None:
            return wrong
    sizes = list(x.shape[-axes:])
    kernel, padding, dilation = (
        _each(getattr(module, name, 1), axes) for name in ("kernel_size", "padding", "dilation")
    )
    if all(s + 2 * p >= d * (k - 1) + 1 for s, k, p, d in zip(sizes, kernel, padding, dilation, strict=True)):
        return None
    return Fit(
        f"Layer {work} has a kernel of {kernel} and gets maps of {sizes}.",
        "Give it larger inputs, remove strides and poolings before it, or give it a smaller kernel_size.",
        f"torch.nn.{type(module).__name__}(…, kernel_size={min(sizes)})",
    )


def _each(value: int | tuple[int, ...] | str, axes: int) -> list[int]:
    return [value] * axes if isinstance(value, int) else [int(each) for each in value]


def _norm(case: Case) -> Fit | None:
    work = case.work
    if work is None or not work.inputs:
        return None
    module, x = work.module, work.inputs[0]
    if isinstance(module, nn.modules.batchnorm._NormBase) and x.dim() > 1:
        single = x.numel() == x.shape[1] and module.training
        return _single(work) if single else _resized(work, "num_features", x.shape[1], "features")
    if isinstance(module, nn.GroupNorm) and x.dim() > 1:
        return _resized(work, "num_channels", x.shape[1], "channels")
    if isinstance(module, nn.LayerNorm):
        wanted, got = list(module.normalized_shape), list(x.shape[-len(module.normalized_shape) :])
        fits = got[0] if len(got) == 1 else got
        if got != wanted:
            return Fit(
                f"Layer {work} is for {wanted} and gets {got}.",
                f"Build it with normalized_shape={fits}.",
                f"torch.nn.LayerNorm(normalized_shape={fits})",
            )
    return None


def _single(work: Work) -> Fit:
    return Fit(
        f"Layer {work} gets one example, of which it can take no mean and variance.",
        "Leave out a last batch that is smaller than the others.",
        "loader = DataLoader(dataset, batch_size, shuffle=True, drop_last=True)",
    )


RULES = (_signature, _embedding, _type, _layout, _convolution, _norm, _width)
