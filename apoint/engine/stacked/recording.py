"""Recording: the operations of one pass written down, below Python's modules, `vmap` and autograd."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Slot = int
"""A place in the list of all values that a tape works with."""
Operand = Slot | tuple[Slot, ...]
MOST_BYTES = 1 << 28
"""What a recording may hold in memory; a pass that makes more spends its time in kernels anyway."""
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
# Operations that PyTorch does not mark as pointwise. Some that are marked as free of effects are not: batch
# norm, for one, changes its running statistics. So only what is known to be harmless is on the list.
_PURE = {"bmm", "clone", "dot", "mm", "mv", "sum"}


@dataclass
class Instruction:
    """One operation: what is called with the values of which slots, and where its results go.

    Attributes:
        function: An operation of PyTorch.
        operands: The slots of its arguments; some arguments are lists.
        named: Further arguments by name, no tensors among them.
        results: The slot of its result; or of each, where it has several.
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
        """What the operation is called, without its overload."""
        return str(getattr(self.function, "__name__", "")).partition(".")[0]

    @property
    def overload(self) -> str:
        """Which of the operations of this name it is."""
        return str(getattr(self.function, "__name__", "")).partition(".")[2]

    @property
    def is_view(self) -> bool:
        """Whether it only looks at the memory of its argument in another way."""
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
    """While it is entered, every operation is written down.

    Args:
        inputs: The tensors that will be others the next time; all others are taken as they are, by reference.
        fixed: Those among the others whose values will never change.

    Attributes:
        inputs: The slots of the inputs.
        instructions: What was called, in order.
        constants: The values of slots that nothing was recorded to write.
        fixed: The slots of those whose values will never change.
        met: Every tensor that was met, by slot, as it was then.
        size: The number of slots.
        refused: Whether something was called that a tape cannot hold.
    """

    def __init__(self, inputs: Sequence[Tensor], fixed: Sequence[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.instructions: list[Instruction] = []
        self.constants: dict[Slot, Any] = {}
        self.size, self.refused = 0, False
        self.met: dict[Slot, Tensor] = {}  # and as long as a tensor lives, nobody else has its id
        self._slots: dict[int, Slot] = {}
        self._pieces: set[int] = set()
        self._bytes = 0
        for tensor in inputs:
            self._enter(tensor)
        self.inputs = range(self.size)
        self.fixed = {self._source(tensor) for tensor in fixed}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch would import its compiler, which takes a second, only to turn it off."""
        return False

    def slot_of(self, tensor: Tensor) -> Slot | None:
        """The slot of a tensor that was met."""
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
        """The slot of an argument; one that was not met before is a constant."""
        if isinstance(value, Tensor) and id(value) in self._slots:
            return self._slots[id(value)]
        slot = self._enter(value) if isinstance(value, Tensor) else self._next()
        self.constants[slot] = value
        return slot

    def _enter(self, value: Any) -> Slot:
        """The slot of a result; in-place operations give back one of their arguments."""
        if not isinstance(value, Tensor):
            self.refused |= value is not None  # a number that was looked at, and may be another next time
            return self._next()
        if id(value) not in self._slots:
            slot = self._slots[id(value)] = self._next()
            self.met[slot] = value
            if (piece := value.untyped_storage()).data_ptr() not in self._pieces:
                self._pieces.add(piece.data_ptr())
                self._bytes += piece.nbytes()
        return self._slots[id(value)]

    def piece(self, slot: Slot) -> int:
        """Which piece of memory the tensor of a slot was in; 0 for none."""
        return self.met[slot].untyped_storage().data_ptr() if slot in self.met else 0

    def _next(self) -> Slot:
        self.size += 1
        return self.size - 1
