"""Remove the operations of a recording that need not be repeated in every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from apoint.engine.stacked.recording import Instruction, Operand, Recorder, Slot


class Simplified:
    """A recording without the operations that need not be repeated in every run.

    Views of constants, such as a transposed weight, are taken once. A detached tensor is the tensor itself
    where no gradients are recorded, and transposing twice is a no-op. Results that depend on nothing that
    changes, such as the tensor of ones that a backward pass begins with, are computed already.

    Args:
        recorder: The recording.
        wanted: The slots of the results.

    Attributes:
        instructions: The remaining instructions.
        constants: The values of slots that no instruction writes.
        wanted: The slots that now hold the results.
    """

    def __init__(self, recorder: Recorder, wanted: Sequence[Slot]) -> None:
        self.constants = dict(recorder.constants)
        self._recorder = recorder
        self._fixed = {slot for slot, value in self.constants.items() if not isinstance(value, Tensor)}
        self._fixed |= recorder.fixed
        self._changed = {recorder.piece(slot) for one in recorder.instructions for slot in changed(one)}
        self._same: dict[Slot, Slot] = {}
        self._transposed: dict[Slot, tuple[Slot, Any]] = {}
        kept: list[Instruction] = []
        for one in recorder.instructions:
            operands = [
                tuple(map(self.origin, operand)) if isinstance(operand, tuple) else self.origin(operand)
                for operand in one.operands
            ]
            shorter = Instruction(one.function, operands, one.named, one.results)
            if not self._is_done_with(shorter):
                kept.append(shorter)
        self.wanted = {self.origin(slot) for slot in wanted}
        self.instructions = _without_unused(kept, self.wanted)

    def origin(self, slot: Slot) -> Slot:
        """The slot that holds the same value and is written by an instruction that was kept."""
        return self._same.get(slot, slot)

    def _is_done_with(self, one: Instruction) -> bool:
        """Whether an instruction can be dropped because its result is already known."""
        if isinstance(one.results, tuple):
            return False
        if one.is_view:
            return self._is_known_view(one, one.results)
        depends_on_nothing = one.is_constant_factory or (one.is_pure and self._fixed.issuperset(one.read))
        if depends_on_nothing and self._recorder.piece(one.results) not in self._changed:
            self.constants[one.results] = self._recorder.met[one.results].detach()
            self._fixed.add(one.results)
            return True
        return False

    def _is_known_view(self, one: Instruction, result: Slot) -> bool:
        if one.name == "detach":
            self._same[result] = one.read[0]
            return True
        if self.constants.keys() >= set(one.read):
            self.constants[result] = seen(one, self.constants)
            if self._fixed.issuperset(one.read):
                self._fixed.add(result)
            return True
        if one.name == "transpose" and self._undoes(one):
            self._same[result] = self._transposed[one.read[0]][0]
            return True
        return False

    def _undoes(self, one: Instruction) -> bool:
        """Whether a transposition undoes the one that made its argument; if not, note it."""
        source, *axes = one.read
        wanted = [self.constants[axis] for axis in axes]
        if source in self._transposed and self._transposed[source][1] == wanted:
            return True
        assert isinstance(one.results, int)
        self._transposed[one.results] = source, wanted
        return False


def changed(one: Instruction) -> list[Slot]:
    """The slots of arguments that an instruction changes in place."""
    schema = getattr(one.function, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    return [
        slot
        for operand, argument in zip(one.operands, schema.arguments, strict=False)
        if argument.is_write
        for slot in (operand if isinstance(operand, tuple) else (operand,))
    ]


def seen(one: Instruction, values: Mapping[Slot, Any]) -> Tensor:
    """The result of a view of known values."""
    result: Tensor = one.function(*(value_of(values, operand) for operand in one.operands), **one.named)
    return result.detach()


def value_of(values: Mapping[Slot, Any] | list[Any], operand: Operand) -> Any:
    """The value of an argument, or the list of values."""
    return [values[slot] for slot in operand] if isinstance(operand, tuple) else values[operand]


def _without_unused(instructions: Sequence[Instruction], wanted: set[Slot]) -> list[Instruction]:
    """The instructions without those whose only effect is an unused result."""
    used, kept = set(wanted), list[Instruction]()
    for one in reversed(instructions):
        if (one.is_view or one.is_pure or one.is_constant_factory) and used.isdisjoint(one.written):
            continue
        used.update(one.read)
        kept.append(one)
    return kept[::-1]
