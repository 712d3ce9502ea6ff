"""A tape: the recorded operations of one pass, run again without the Python code that produced them.

A pass through a small model is mostly Python: modules that call modules, `vmap`, autograd's bookkeeping. The
resulting operations are the same at every step. So they are recorded once, below all of that
(`recording.py`), operations that need not be repeated are left out (`simplification.py`), results get fixed
places (`placing.py`), and the rest is run one after the other. The kernels and their order are the same, so
the results are the same bit for bit.

A tape is valid only for a model that always computes the same way; `Passes` takes care of that.
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
        recorder: The recording; its first slots are the inputs.
        results: The tensors that the pass returned, or None for one that it did not.
        targets: Where to write each result when the pass is run again, or None if it may be anywhere. This is
            done only if an operation can write there directly, and only then is the target the result.
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
        """Run the pass on other inputs of the same shapes; call it with gradients disabled.

        The next run overwrites the results.
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
    """The targets by slot, of results that occur once and have the shape and dtype of their target."""
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
    """An instruction as the loop of a tape needs it; with its arguments, if they and its result are known."""
    several = isinstance(one.results, tuple)
    known = None
    if not several and constants.keys() >= {*one.read, *one.written}:
        known = tuple(value_of(constants, operand) for operand in one.operands)
    return _short_way(one), known, one.operands, one.named, one.results, several, freed


def _short_way(one: Instruction) -> Callable[..., Any]:
    """The same operation, called in the fastest way from Python.

    PyTorch's public bindings take half a microsecond to one microsecond less than the general call of an
    overload. With a different set of arguments they would raise, or the check of the tape would fail.
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
    """For each instruction, the slots not needed after it, so that their memory can be reused."""
    last: dict[Slot, int] = {}
    for place, one in enumerate(instructions):
        last |= dict.fromkeys([*one.read, *one.written], place)
    freed: list[list[Slot]] = [[] for _ in instructions]
    for slot, place in last.items():
        if slot not in wanted and slot not in constants:
            freed[place].append(slot)
    return [tuple(slots) for slots in freed]
