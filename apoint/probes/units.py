"""Dead units: units whose activation passes no gradient on any example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from apoint.probes.operations import RECURRENT, Call, Operation
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Subject
from apoint.probes.watching import Watcher, watch
from apoint.registry import register
from apoint.settings import NonNegative, Share, WholeNumber


@register("probe", "dead-units", course="A5", passes=3)
def dead_units(
    model: nn.Module,
    batch: Any,
    *,
    flat: NonNegative = 1e-6,
    near: Share = 0.99,
    seed: WholeNumber = 0,
) -> Reading:
    """The share of units whose activation has no slope on any example, so that they cannot learn.

    A unit is a feature or, for images, a channel; it is dead if |f′(x)| ≤ `flat` for its inputs x on every
    example and at every position, and nearly dead if on more than a share `near` of them. f′ is the
    activation's own derivative, so the same definition covers ReLU (x < 0), a saturated tanh and GELU far
    below 0; a leaky ReLU has no dead units. An activation that multiplies another signal (a gate) must be 0
    as well, since an open gate lets gradients pass. The nearly dead units include the dead ones.

    Activations are seen whether or not they are modules. The value is exact for the batch; but a unit that is
    active on a share p of the data looks dead on n independent examples with probability (1 − p)ⁿ, so a unit
    with a share below 1/n cannot be distinguished from a dead one: `smallest_share` in the details is the
    share that n examples miss 5 times in 100. The table `activations` holds for each activation its units,
    the dead, the nearly dead, and the share of values that have a slope. `per_layer` is the share of dead
    units by the layer that feeds them. In a healthy network none is dead in a batch of a few hundred; some in
    very wide layers do no harm.

    The model stays in its current mode. Activations inside an LSTM or GRU are not seen, and a note says so.

    Args:
        flat: The largest slope that counts as zero.
        near: A unit is nearly dead if it has no slope on more than this share of its values.
        seed: Seed of the dropout draws.

    Reference: Glorot, Bordes and Bengio (2011), Deep sparse rectifier neural networks; Maas, Hannun and Ng
    (2013), Rectifier nonlinearities improve neural network acoustic models.
    """
    subject = Subject(model, batch)
    seen = _Slopes(flat)
    with preserve_state(model, seed):
        operations, _ = watch(subject, seen)
    found = {o.place: (o, seen.silent(o)) for o in operations if o.place in seen.flat}
    if not found:
        return undefined("dead-units", _why(operations))
    counts = [_count(operation, silent, near) for operation, silent in found.values()]
    num_units = sum(count.units for count in counts)
    num_examples = subject.batch.size
    smallest = 1 - 0.05 ** (1 / num_examples)
    return Reading(
        "dead-units",
        sum(count.dead for count in counts) / num_units,
        f"exact for {num_examples} examples, {num_units} units of {len(counts)} activations",
        "computed",
        per_layer=_per_layer(counts),
        details={
            "near_dead": sum(count.near_dead for count in counts) / num_units,
            "num_units": num_units,
            "num_examples": num_examples,
            "smallest_share": smallest,
            "activations": _table(counts),
        },
        notes=_notes(num_examples, smallest, operations),
    )


@dataclass(frozen=True)
class _Count:
    operation: Operation
    units: int
    dead: int
    near_dead: int
    active: float


class _Slopes(Watcher):
    """Where each activation is flat: for each unit, the share of its values."""

    def __init__(self, flat: float) -> None:
        self._threshold = flat
        self._masks: dict[int, Tensor] = {}
        self.flat: dict[int, Tensor] = {}
        self.flat_and_zero: dict[int, Tensor] = {}

    def before(self, operation: Operation, call: Call) -> None:
        if operation.kind == "activation":
            self._masks[operation.place] = call.slope().abs() <= self._threshold

    def after(self, operation: Operation, output: Tensor) -> None:
        mask = self._masks.pop(operation.place, None)
        if mask is None or mask.shape != output.shape:
            return
        self.flat[operation.place] = _share(mask, operation.unit_axis)
        self.flat_and_zero[operation.place] = _share(mask & (output == 0), operation.unit_axis)

    def silent(self, operation: Operation) -> Tensor:
        """For each unit, the share of its values through which no gradient passes."""
        return (self.flat_and_zero if operation.gate else self.flat)[operation.place]


def _share(mask: Tensor, unit_axis: int) -> Tensor:
    by_unit = mask.movedim(unit_axis, 0).reshape(mask.shape[unit_axis], -1)
    return by_unit.to(torch.float32).mean(1)


def _count(operation: Operation, silent: Tensor, near: float) -> _Count:
    dead = int((silent >= 1).sum())
    return _Count(operation, len(silent), dead, int((silent > near).sum()), 1 - float(silent.mean()))


def _table(counts: list[_Count]) -> dict[str, list[Any]]:
    return {
        "name": [count.operation.name for count in counts],
        "layer": [count.operation.layer for count in counts],
        "function": [count.operation.function for count in counts],
        "gate": [count.operation.gate for count in counts],
        "num_units": [count.units for count in counts],
        "dead": [count.dead / count.units for count in counts],
        "near_dead": [count.near_dead / count.units for count in counts],
        "active": [count.active for count in counts],
    }


def _per_layer(counts: list[_Count]) -> dict[str, float]:
    units: dict[str, int] = {}
    dead: dict[str, int] = {}
    for count in counts:
        layer = count.operation.layer or "(model)"
        units[layer] = units.get(layer, 0) + count.units
        dead[layer] = dead.get(layer, 0) + count.dead
    return {layer: dead[layer] / units[layer] for layer in units}


def _notes(num_examples: int, smallest: float, operations: list[Operation]) -> tuple[str, ...]:
    resolution = (
        f"with {num_examples} examples, a unit active on less than {smallest:.2g} of all may look dead"
    )
    hidden = _recurrent(operations)
    return (resolution, f"activations inside {hidden} are not seen") if hidden else (resolution,)


def _recurrent(operations: list[Operation]) -> str:
    names = [operation.name for operation in operations if operation.function in RECURRENT]
    return ", ".join(names)


def _why(operations: list[Operation]) -> str:
    hidden = _recurrent(operations)
    if hidden:
        return f"the activations of the model lie inside {hidden}, where they cannot be seen"
    return "the model has no activations"
