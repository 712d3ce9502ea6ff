"""The model of a stack: one template, whose tensors are replaced by those of all replicas during a call.

Axis letters: R replicas.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from apoint.engine.replica import Replica
from apoint.engine.stacked.draws import Draws
from apoint.engine.stacked.errors import CannotStackError
from apoint.engine.stacked.functions import Interception, Scene
from apoint.engine.stacked.lifting import Lifted, axis_of, lifted


@dataclass(frozen=True)
class Place:
    """Where a module holds a tensor: in one of its dictionaries, under a key; `name` identifies the tensor.

    Tied tensors have several places and one name.
    """

    holder: dict[str, Any]
    key: str
    name: str
    original: Tensor
    is_buffer: bool


class StackedModel:
    """The models of all replicas, called as one.

    Attributes:
        template: A copy of the first replica's model. Its own weights are never used.
        tensors: The buffers and frozen parameters of all replicas by name, [R, *shape].
        faithful: Whether results have the memory layout of a replica alone; see `Scene`.
    """

    def __init__(self, models: Sequence[nn.Module], draws: Draws, faithful: bool = False) -> None:
        self.draws, self.faithful = draws, faithful
        self.template = _copy(models[0])
        self.places = list(_places(self.template))
        self.tensors = _stacked(models, {place.name for place in self.places})
        self.num_replicas = len(models)

    def __call__(self, x: Tensor, leaves: Mapping[str, Tensor], shared: bool = False) -> Tensor:
        """The outputs [R, B, …] of all replicas.

        Args:
            x: The inputs [R, B, …], or [B, …] if `shared`.
            leaves: The trainable parameters by name, [R, *shape].
            shared: Whether all replicas see the same inputs.
        """
        with lifted(self.num_replicas) as under_way:
            placed = self._place(under_way, leaves)
            try:
                with Interception(Scene(under_way, self.draws, self.faithful)):
                    out = self.template(x if shared else under_way.wrap(x))
                if not isinstance(out, Tensor):
                    raise CannotStackError(f"its model returns a {type(out).__name__} and not a tensor")
                self._collect(under_way, placed)
                return under_way.unwrap(out)
            finally:
                for place in self.places:
                    place.holder[place.key] = place.original

    def _place(self, under_way: Lifted, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Replace the template's tensors with wrapped ones; return these by name."""
        wrap = under_way.wrap
        placed = {name: wrap(tensor) for name, tensor in leaves.items()}
        placed |= {name: wrap(tensor) for name, tensor in self.tensors.items()}
        for place in self.places:
            place.holder[place.key] = placed[place.name]
        return placed

    @torch.no_grad()
    def _collect(self, under_way: Lifted, placed: Mapping[str, Tensor]) -> None:
        """Copy back buffers that the model replaced; those changed in place are already up to date."""
        for place in self.places:
            now = place.holder[place.key]
            if place.is_buffer and now is not placed[place.name]:
                self.tensors[place.name].copy_(under_way.unwrap(now.detach()))

    def buffers(self, real: bool = False) -> dict[str, Tensor]:
        """The buffers by name, [R, *shape]; only floating-point ones if `real`, as averages need them."""
        names = {place.name for place in self.places if place.is_buffer}
        return {
            name: tensor
            for name, tensor in self.tensors.items()
            if name in names and (tensor.is_floating_point() or not real)
        }

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only some of the replicas."""
        index = list(rows)
        self.tensors = {name: tensor[index] for name, tensor in self.tensors.items()}
        self.num_replicas = len(index)

    def keeps_wrapped(self) -> str | None:
        """The first attribute in which the template has kept a tensor from a call, if any."""
        for path, module in self.template.named_modules():
            for name, value in vars(module).items():
                if axis_of(value) is not None:
                    return f"{path}.{name}".lstrip(".")
        return None


def knobs_of(replica: Replica, twin: nn.Module) -> list[tuple[Any, Callable[[float], float]]]:
    """The modules of a copy of the replica's model whose rate is on a schedule, each with that schedule."""
    places = {id(module): place for place, module in enumerate(replica.model.modules())}
    twins = list(twin.modules())
    return [(twins[places[id(module)]], rate) for module, rate in replica.timeline.knobs]


def _copy(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise CannotStackError(f"its model cannot be copied ({type(error).__name__}: {error})") from error


def _places(model: nn.Module) -> Iterator[Place]:
    """Every place in the model that holds a tensor; tied tensors have the name that comes first."""
    first_names: dict[int, str] = {}
    for path, module in model.named_modules():
        for holder, is_buffer in ((module._parameters, False), (module._buffers, True)):
            for key, tensor in holder.items():
                if tensor is None:
                    continue
                name = first_names.setdefault(id(tensor), f"{path}.{key}".lstrip("."))
                yield Place(holder, key, name, tensor, is_buffer)


def _stacked(models: Sequence[nn.Module], names: set[str]) -> dict[str, Tensor]:
    """Buffers and frozen parameters of all models; trainable parameters are kept elsewhere."""
    by_model = [
        {
            **{name: p.detach() for name, p in model.named_parameters() if not p.requires_grad},
            **dict(model.named_buffers()),
        }
        for model in models
    ]
    return {name: torch.stack([one[name] for one in by_model]) for name in by_model[0] if name in names}
