"""Record the operations of one pass, below Python modules, `vmap` and autograd."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Slot = int
"""An index into the list of all values that a tape works with."""
Operand = Slot | tuple[Slot, ...]
MOST_BYTES = 1 << 28
"""The most memory that a recording may hold; a larger pass spends its time in kernels anyway."""
_MADE_OF_NOTHING = {
    "ones_like",
    "zeros_like",
    "full_like",
    "new_full",
    "new_ones",
    "new_zeros",
    "full",
    "zeros",
}
# Operations that PyTorch does not mark as pointwise. Some that are marked as free of side effects are not:
# batch norm, for example, changes its running statistics. So the list has only operations known to be safe.
_PURE = {"bmm", "clone", "dot", "mm", "mv", "sum"}


@dataclass
class Instruction:
    """One operation: the function to call, the slots of its arguments, and the slots of its results.

    Attributes:
        function: An operation of PyTorch.
        operands: The slots of its arguments; some arguments are lists.
        named: Keyword arguments, none of them tensors.
        results: The slot of its result, or the slots if it has several.
    """

    function: Any
    operands: list[Operand]
    named: dict[str, Any]
    results: Slot | tuple[Slot, ...]

    @property
    def read(self) -> list[Slot]:
        """The slots of all arguments."""
        return _flattened(self.operands)

    @property
    def written(self) -> list[Slot]:
        """The slots of all results."""
        return _flattened([self.results])

    @property
    def name(self) -> str:
        """The name of the operation, without its overload."""
        return str(getattr(self.function, "__name__", "")).partition(".")[0]

    @property
    def overload(self) -> str:
        """The overload of the operation."""
        return str(getattr(self.function, "__name__", "")).partition(".")[2]

    @property
    def is_view(self) -> bool:
        """Whether its result is another view of its argument's memory."""
        return bool(getattr(self.function, "is_view", False)) or self.name == "_unsafe_view"

    @property
    def is_pure(self) -> bool:
        """Whether it does nothing but compute its results from its arguments."""
        if self.name in _PURE:
            return True
        tags, schema = getattr(self.function, "tags", ()), getattr(self.function, "_schema", None)
        return torch.Tag.pointwise in tags and schema is not None and not schema.is_mutable

    @property
    def is_constant_factory(self) -> bool:
        """Whether its result depends on no values, only on shapes."""
        return self.name in _MADE_OF_NOTHING


def _flattened(operands: Iterable[Operand]) -> list[Slot]:
    return [slot for operand in operands for slot in (operand if isinstance(operand, tuple) else (operand,))]


class Recorder(TorchDispatchMode):
    """A mode that records every operation while it is active.

    Args:
        inputs: The tensors that differ in the next run; all others are held by reference.
        fixed: Those of the other tensors whose values never change.

    Attributes:
        inputs: The slots of the inputs.
        instructions: The recorded operations, in order.
        constants: The values of slots that no recorded operation writes.
        fixed: The slots of tensors whose values never change.
        met: Every tensor seen during recording, by slot.
        size: The number of slots.
        refused: Whether an operation was called that a tape cannot hold.
    """

    def __init__(self, inputs: Sequence[Tensor], fixed: Sequence[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.instructions: list[Instruction] = []
        self.constants: dict[Slot, Any] = {}
        self.size, self.refused = 0, False
        self.met: dict[Slot, Tensor] = {}  # also keeps tensors alive, so that their ids stay unique
        self._slots: dict[int, Slot] = {}
        self._pieces: set[int] = set()
        self._bytes = 0
        for tensor in inputs:
            self._enter(tensor)
        self.inputs = range(self.size)
        self.fixed = {self._source(tensor) for tensor in fixed}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether to skip Dynamo: PyTorch would import its compiler, which takes a second, to turn it off."""
        return False

    def slot_of(self, tensor: Tensor) -> Slot | None:
        """The slot of a tensor, or None if it was not recorded."""
        return self._slots.get(id(tensor))

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = dict(kwargs or {})
        if self.refused:
            return func(*args, **named)
        operands = [self._operand(value) for value in args]
        out = func(*args, **named)
        several = isinstance(out, tuple | list)
        results = tuple(map(self._enter, out)) if several else self._enter(out)
        self.refused |= any(isinstance(value, Tensor) for value in named.values())
        self.instructions.append(Instruction(func, operands, named, results))
        self.refused |= self._bytes > MOST_BYTES
        if self.refused:
            self.met.clear()
            self.instructions.clear()
        return out

    def _operand(self, value: Any) -> Operand:
        if isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in value):
            return tuple(self._source(item) for item in value)
        return self._source(value)

    def _source(self, value: Any) -> Slot:
        """The slot of an argument; an argument not seen before is a constant."""
        if isinstance(value, Tensor) and id(value) in self._slots:
            return self._slots[id(value)]
        slot = self._enter(value) if isinstance(value, Tensor) else self._next()
        self.constants[slot] = value
        return slot

    def _enter(self, value: Any) -> Slot:
        """The slot of a result; in-place operations return one of their arguments."""
        if not isinstance(value, Tensor):
            self.refused |= value is not None  # a number that was read, and may differ next time
            return self._next()
        if id(value) not in self._slots:
            slot = self._slots[id(value)] = self._next()
            self.met[slot] = value
            if (piece := value.untyped_storage()).data_ptr() not in self._pieces:
                self._pieces.add(piece.data_ptr())
                self._bytes += piece.nbytes()
        return self._slots[id(value)]

    def piece(self, slot: Slot) -> int:
        """The address of the memory that holds the tensor of a slot; 0 for none."""
        return self.met[slot].untyped_storage().data_ptr() if slot in self.met else 0

    def _next(self) -> Slot:
        self.size += 1
        return self.size - 1
