"""A tape: the operations of one pass written down, to be run again without the Python that gave rise to them.

A pass through a small model is mostly Python: modules that call modules, `vmap`, autograd's bookkeeping. The
operations that come of it are the same at every step, so they are recorded once, below all of that
(`recording.py`), what need not be done again is left out (`simplification.py`), results get fixed places
(`placing.py`), and the rest is run one after the other. The kernels, their order and so the bits are the
same.

A tape is right only for a model that always computes the same way; see `Passes`, which takes care of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from apoint.engine.stacked.placing import Placed
from apoint.engine.stacked.recording import Instruction, Recorder, Slot
from apoint.engine.stacked.simplification import Simplified, value_of

_BOUND_TO_TENSORS = {("view", "default"), ("expand", "default")}
_BOUND = {
    *((name, "default") for name in ("bmm", "baddbmm", "unsqueeze", "clone", "gather", "exp", "neg", "relu")),
    *((name, "default") for name in ("neg_", "permute")),
    *((name, "Tensor") for name in ("mul", "add", "sub", "div")),
    ("_log_softmax", "default"),
    ("squeeze", "dim"),
    ("sum", "dim_IntList"),
    ("transpose", "int"),
}


class Tape:
    """A recorded pass that can be run again.

    Args:
        recorder: What was recorded; its first slots are the inputs.
        results: The tensors that the pass gave, or None for one that it did not.
        targets: Where each result shall be written when the pass is run again, or None where it may be
            anywhere. It is done where an operation can write there itself, and only then is the target the
            result.
    """

    def __init__(
        self,
        recorder: Recorder,
        results: Sequence[Tensor | None],
        targets: Sequence[Tensor | None] | None = None,
    ) -> None:
        slots = [None if result is None else recorder.slot_of(result) for result in results]
        assert all((slot is None) == (result is None) for slot, result in zip(slots, results, strict=True))
        shortened = Simplified(recorder, [slot for slot in slots if slot is not None])
        self.results = [None if slot is None else shortened.origin(slot) for slot in slots]
        into = _single_targets(self.results, results, targets or [None] * len(results))
        placed = Placed(recorder, shortened, into)
        self._values: list[Any] = [placed.constants.get(slot) for slot in range(recorder.size)]
        freed = _last_uses(placed.instructions, shortened.wanted, placed.constants)
        self._program = [
            _prepared(one, freed[place], placed.constants) for place, one in enumerate(placed.instructions)
        ]

    def __len__(self) -> int:
        return len(self._program)

    def __call__(self, *inputs: Tensor) -> list[Tensor | None]:
        """Run the pass on other inputs of the same shapes; call it where no gradients are recorded.

        What it gives is written over by the next run.
        """
        values = self._values.copy()
        values[: len(inputs)] = inputs
        for call, known, operands, named, results, several, freed in self._program:
            if known is not None:
                call(*known, **named)
                continue
            out = call(*[value_of(values, operand) for operand in operands], **named)
            if several:
                for slot, value in zip(results, out, strict=True):
                    values[slot] = value
            else:
                values[results] = out
            for slot in freed:
                values[slot] = None
        return [None if slot is None else values[slot] for slot in self.results]


def _single_targets(
    slots: Sequence[Slot | None], results: Sequence[Tensor | None], targets: Sequence[Tensor | None]
) -> dict[Slot, Tensor]:
    """The targets by slot, of results that are wanted once and have the shape and type of their target."""
    return {
        slot: target
        for slot, result, target in zip(slots, results, targets, strict=True)
        if slot is not None
        and result is not None
        and target is not None
        and slots.count(slot) == 1
        and (result.shape, result.dtype) == (target.shape, target.dtype)
    }


def _prepared(one: Instruction, freed: tuple[Slot, ...], constants: Mapping[Slot, Any]) -> tuple[Any, ...]:
    """An instruction as the loop of a tape takes it; its arguments too, if they and its result are known."""
    several = isinstance(one.results, tuple)
    known = None
    if not several and constants.keys() >= {*one.read, *one.written}:
        known = tuple(value_of(constants, operand) for operand in one.operands)
    return _short_way(one), known, one.operands, one.named, one.results, several, freed


def _short_way(one: Instruction) -> Callable[..., Any]:
    """The same operation by the shortest way there is from Python.

    The bindings of PyTorch that people call take half a microsecond to one less than the general way by which
    an overload is called. With another set of arguments they would refuse, or the proof of the tape would.
    """
    if (one.name, one.overload) in _BOUND_TO_TENSORS:
        bound: Callable[..., Any] = getattr(torch.Tensor, one.name)
        return bound
    if (one.name, one.overload) in _BOUND:
        return cast(Callable[..., Any], getattr(torch, one.name))
    return cast(Callable[..., Any], getattr(one.function, "_op", one.function))


def _last_uses(
    instructions: Sequence[Instruction], wanted: set[Slot], constants: Mapping[Slot, Any]
) -> list[tuple[Slot, ...]]:
    """For each instruction the slots that nobody needs after it, so that their memory can be used again."""
    last: dict[Slot, int] = {}
    for place, one in enumerate(instructions):
        last |= dict.fromkeys([*one.read, *one.written], place)
    freed: list[list[Slot]] = [[] for _ in instructions]
    for slot, place in last.items():
        if slot not in wanted and slot not in constants:
            freed[place].append(slot)
    return [tuple(slots) for slots in freed]
