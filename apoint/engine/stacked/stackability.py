"""Whether replicas can share a stack: the same structure, with differences only where rows may differ."""

from __future__ import annotations

import functools
import math
import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from apoint.data.stored import as_stored
from apoint.engine.replica import Replica
from apoint.engine.stacked.errors import CannotStackError
from apoint.engine.stream import extremes
from apoint.nn.dropout import StochasticDepth

_DEPTH = 6
_TENSORS = ("_parameters", "_buffers", "_modules")


def check_alike(replicas: Sequence[Replica]) -> None:
    """Raise if replicas cannot share a stack.

    Their recipes may differ in the hyper-parameters that a rule takes row by row, in the schedule, and in
    the clipping limit. Everything else must be the same.
    """
    if not replicas:
        raise CannotStackError("there are none")
    first = replicas[0]
    if any(name != "budget" for replica in replicas for name in replica.recipe.probes):
        raise CannotStackError("probes look at one model at a time")
    if any(as_stored(split.inputs) is not None for split in first.data.splits.values()):
        raise CannotStackError(
            "their images are decoded as they are needed, each replica in its own order; with memory: all "
            "they can be stacked"
        )
    _check_drops(first)
    for other in replicas[1:]:
        _check_recipes(first, other)
        _check_models(first.model, other.model)
        for what, one, two in _facts(first, other):
            if one != two:
                raise CannotStackError(f"they differ in {what}: {_shown(one)} and {_shown(two)}")


def _facts(first: Replica, other: Replica) -> Iterator[tuple[str, Any, Any]]:
    """What must be the same: a description, with both values."""
    yield "the device", first.device, other.device
    yield "the number of steps", first.horizon.total_steps, other.horizon.total_steps
    yield "the steps of an epoch", first.horizon.steps_per_epoch, other.horizon.steps_per_epoch
    yield "the facts of the data", first.data.facts, other.data.facts
    yield "the splits of the data", _shapes(first), _shapes(other)
    yield "the rule of the optimizer", first.optimizer.rule.name, other.optimizer.rule.name
    yield "the parameters", first.parameters.slots, other.parameters.slots
    yield "the parameters exempt from decay", first.parameters.boundary, other.parameters.boundary


def _shapes(replica: Replica) -> dict[str, Any]:
    return {
        name: [(tuple(tensor.shape), tensor.dtype) for tensor in (split.inputs, split.targets)]
        for name, split in replica.data.splits.items()
    }


def _check_recipes(first: Replica, other: Replica) -> None:
    if first.optimizer.rule is not other.optimizer.rule:
        raise CannotStackError("they differ in the rule of the optimizer")
    for path, one, two in differences(_common(first), _common(other)):
        raise CannotStackError(f"they differ in {path}: {one!r} and {two!r}")


def _common(replica: Replica) -> dict[str, Any]:
    """What the recipes of a stack have in common: everything except the values that may differ by row."""
    values = replica.recipe.canonical()
    values.pop("schedule")
    clip = values["clip"]
    values["clip"] = {name: value for name, value in clip.items() if name != "limit"}
    free, timeline = replica.optimizer.rule.per_replica, replica.timeline
    values["optimizer"] = {name: value for name, value in timeline.fixed.items() if name not in free}
    return values


def differences(one: Any, two: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places in which two nested values differ, each with both values."""
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        for name in sorted({*one, *two}):
            yield from differences(one.get(name), two.get(name), f"{path}.{name}".lstrip("."))
    elif one != two:
        yield path, one, two


def _check_drops(replica: Replica) -> None:
    """Raise for what the replicas of a stack cannot do together: skip a branch in only some of them."""
    schedules = {id(module): schedule for module, schedule in replica.timeline.knobs}
    for path, module in replica.model.named_modules():
        if not isinstance(module, StochasticDepth) or module.mode != "batch" or module.depth_share == 0:
            continue
        schedule = schedules.get(id(module))
        rate = module.rate if schedule is None else extremes(schedule, replica.horizon)[1][1]
        if rate > 0:
            raise CannotStackError(
                f"{path} skips its branch for a whole batch, in some replicas and not in others; "
                "stochastic_depth_mode: sample can be stacked"
            )
    for name, parameter in replica.model.named_parameters():
        if parameter._backward_hooks:
            raise CannotStackError(f"the parameter {name} has a hook on its gradient")


def _check_models(first: nn.Module, other: nn.Module) -> None:
    """Raise if models differ in more than the values of their tensors."""
    pairs, twins = dict(first.named_modules()), dict(other.named_modules())
    if list(pairs) != list(twins):
        odd = sorted(set(pairs) ^ set(twins))
        raise CannotStackError(f"their models have different modules{f' ({odd[0]})' if odd else ''}")
    for path, module in pairs.items():
        where = path or "the model"
        if _kind(module) != _kind(twins[path]):
            raise CannotStackError(
                f"{where} is a {_kind(module)} in one and a {_kind(twins[path])} in another"
            )
        _check_tensors(where, module, twins[path])
        _check_attributes(where, module, twins[path])
    if _ties(first) != _ties(other):
        raise CannotStackError("their models tie different tensors to each other")


def _kind(value: Any) -> str:
    """The name of a class; a user's file and PyTorch's parametrisations make a new class for each replica."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _check_tensors(where: str, module: nn.Module, twin: nn.Module) -> None:
    for holder in ("_parameters", "_buffers"):
        mine, its = getattr(module, holder), getattr(twin, holder)
        described = [
            {
                name: None if t is None else (t.shape, t.stride(), t.dtype, t.requires_grad)
                for name, t in h.items()
            }
            for h in (mine, its)
        ]
        if described[0] != described[1]:
            raise CannotStackError(f"the tensors of {where} have different shapes or types")


def _ties(model: nn.Module) -> list[list[str]]:
    """The names of each tensor, in order of its first one."""
    names: dict[int, list[str]] = {}
    parameters = model.named_parameters(remove_duplicate=False)
    for name, tensor in (*parameters, *model.named_buffers(remove_duplicate=False)):
        names.setdefault(id(tensor), []).append(name)
    return list(names.values())


def _check_attributes(where: str, module: nn.Module, twin: nn.Module) -> None:
    mine, its = _attributes(module), _attributes(twin)
    for name in sorted({*mine, *its}):
        if name not in mine or name not in its or not alike(mine[name], its[name]):
            raise CannotStackError(
                f"{name} of {where} differs between replicas: {_shown(mine.get(name))} and "
                f"{_shown(its.get(name))}"
            )


def _attributes(module: nn.Module) -> dict[str, Any]:
    """The attributes that a computation may depend on; hooks without their ids, which are unique."""
    own = {name: value for name, value in vars(module).items() if name not in _TENSORS}
    return {
        name: list(value.values()) if "_hooks" in name and isinstance(value, dict) else value
        for name, value in own.items()
        if "state_dict" not in name
    }


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def alike(one: Any, two: Any, depth: int = _DEPTH) -> bool:
    """Whether two attributes are the same as far as a computation can tell; in doubt, they are not."""
    if one is two:
        return True
    if _kind(one) != _kind(two) or depth == 0:
        return False
    inner = functools.partial(alike, depth=depth - 1)
    match one:
        case nn.Parameter() | nn.Module() | weakref.ref():
            return True  # compared where it is held
        case torch.Generator():
            return False
        case Tensor():
            return one.shape == two.shape and one.dtype == two.dtype and torch.equal(one, two)
        case numpy.ndarray():
            return numpy.array_equal(one, two)
        case float() if math.isnan(one):
            return math.isnan(two)
        case list() | tuple():
            return len(one) == len(two) and all(map(inner, one, two))
        case Mapping():
            return list(one) == list(two) and all(inner(one[key], two[key]) for key in one)
        case functools.partial():
            return inner((one.func, one.args, one.keywords), (two.func, two.args, two.keywords))
        case types.MethodType():
            return inner(one.__func__, two.__func__)
        case types.FunctionType():
            return one.__code__ == two.__code__ and inner(_closure(one), _closure(two))
    if "__eq__" not in {name for kind in type(one).__mro__[:-1] for name in vars(kind)}:
        return hasattr(one, "__dict__") and inner(vars(one), vars(two))
    return bool(one == two)


def _closure(function: types.FunctionType) -> list[Any]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [*cells, function.__defaults__, function.__kwdefaults__]
