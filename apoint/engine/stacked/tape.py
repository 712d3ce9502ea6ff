"""A tape: the operations of one pass written down, to be run again without the Python that gave rise to them.

A pass through a small model is mostly Python: modules that call modules, `vmap`, autograd's bookkeeping. The
operations that come of it are the same at every step, so they are recorded once, below all of that, and
then run one after the other. The kernels, their order and so the bits are the same.

A tape is right only for a model that always computes the same way; see `Passes`, which takes care of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Slot = int
"""A place in the list of all values that a tape works with."""
Operand = Slot | tuple[Slot, ...]
_BOUND_TO_TENSORS = {("view", "default"), ("expand", "default")}
_BOUND = {
    *((name, "default") for name in ("bmm", "baddbmm", "unsqueeze", "clone", "gather", "exp", "neg", "relu")),
    *((name, "Tensor") for name in ("mul", "add", "sub", "div")),
    ("_log_softmax", "default"),
    ("bmm", "out"),
    ("squeeze", "dim"),
    ("sum", "dim_IntList"),
    ("transpose", "int"),
}
MOST_BYTES = 1 << 28
"""What a recording may hold in memory; a pass that makes more spends its time in kernels anyway."""


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
    def is_view(self) -> bool:
        """Whether it only looks at the memory of its argument in another way."""
        return bool(getattr(self.function, "is_view", False))


def _flattened(operands: Iterable[Operand]) -> list[Slot]:
    return [slot for operand in operands for slot in (operand if isinstance(operand, tuple) else (operand,))]


class Recorder(TorchDispatchMode):
    """While it is entered, every operation is written down.

    Args:
        inputs: The tensors that will be others the next time; all others are taken as they are, by reference.

    Attributes:
        instructions: What was called, in order.
        constants: The values of slots that nothing was recorded to write.
        size: The number of slots.
        refused: Whether something was called that a tape cannot hold.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.instructions: list[Instruction] = []
        self.constants: dict[Slot, Any] = {}
        self.size, self.refused = 0, False
        self._slots: dict[int, Slot] = {}
        self._alive: list[Tensor] = []  # as long as a tensor lives, nobody else has its id
        self._pieces: set[int] = set()
        self._bytes = 0
        for tensor in inputs:
            self._enter(tensor)

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
            self._alive.clear()
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
            self._slots[id(value)] = self._next()
            self._alive.append(value)
            storage = value.untyped_storage()
            if storage.data_ptr() not in self._pieces:
                self._pieces.add(storage.data_ptr())
                self._bytes += storage.nbytes()
        return self._slots[id(value)]

    def _next(self) -> Slot:
        self.size += 1
        return self.size - 1


class Tape:
    """A recorded pass that can be run again.

    Args:
        recorder: What was recorded; its first slots are the inputs.
        results: The tensors that the pass gave, or None for one that it did not.
        targets: Where each result shall be written when the pass is run again, or None where it may be
            anywhere. It is done where a product can write there itself; only then is the target the result.
    """

    def __init__(
        self,
        recorder: Recorder,
        results: Sequence[Tensor | None],
        targets: Sequence[Tensor | None] | None = None,
    ) -> None:
        slots = [None if result is None else recorder.slot_of(result) for result in results]
        assert all((slot is None) == (result is None) for slot, result in zip(slots, results, strict=True))
        shorter = _Shortened(recorder)
        self.results = [None if slot is None else shorter.origin(slot) for slot in slots]
        wanted = {slot for slot in self.results if slot is not None}
        instructions = _without_unused_views(shorter.instructions, wanted)
        self._values: list[Any] = [shorter.constants.get(slot) for slot in range(recorder.size)]
        freed = _last_uses(instructions, wanted, shorter.constants)
        into = _single_targets(self.results, results, targets or [None] * len(results))
        self._program = [_prepared(one, freed[place], into) for place, one in enumerate(instructions)]

    def __len__(self) -> int:
        return len(self._program)

    def __call__(self, *inputs: Tensor) -> list[Tensor | None]:
        """Run the pass on other inputs of the same shapes; call it where no gradients are recorded."""
        values = self._values.copy()
        values[: len(inputs)] = inputs
        for call, operands, nested, named, results, several, freed in self._program:
            if nested:
                arguments = [_value(values, operand) for operand in operands]
            else:
                arguments = [values[operand] for operand in operands]
            out = call(*arguments, **named)
            if several:
                for slot, value in zip(results, out, strict=True):
                    values[slot] = value
            else:
                values[results] = out
            for slot in freed:
                values[slot] = None
        return [None if slot is None else values[slot] for slot in self.results]


def _value(values: list[Any], operand: Operand) -> Any:
    return [values[slot] for slot in operand] if isinstance(operand, tuple) else values[operand]


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


def _prepared(one: Instruction, freed: tuple[Slot, ...], into: Mapping[Slot, Tensor]) -> tuple[Any, ...]:
    """An instruction as the loop of a tape takes it."""
    function, named = one.function, one.named
    if function is torch.ops.aten.bmm.default and isinstance(one.results, int) and one.results in into:
        function, named = torch.ops.aten.bmm.out, {**named, "out": into[one.results]}
    call = _short_way(function)
    nested = any(isinstance(operand, tuple) for operand in one.operands)
    return call, one.operands, nested, named, one.results, isinstance(one.results, tuple), freed


def _short_way(function: Any) -> Callable[..., Any]:
    """The same operation by the shortest way there is from Python.

    The bindings of PyTorch that people call take half a microsecond to one less than the general way by which
    an overload is called. With another set of arguments they would refuse, or the proof of the tape would.
    """
    name, _, overload = getattr(function, "__name__", "").partition(".")
    if (name, overload) in _BOUND_TO_TENSORS:
        bound: Callable[..., Any] = getattr(torch.Tensor, name)
        return bound
    if (name, overload) in _BOUND:
        return cast(Callable[..., Any], getattr(torch, name))
    return cast(Callable[..., Any], getattr(function, "_op", function))


class _Shortened:
    """A recording without what need not be done each time.

    Views of constants, such as a transposed weight, are taken once. A detached tensor is the tensor itself
    where no gradients are recorded, and transposing twice is doing nothing.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.constants = dict(recorder.constants)
        self.instructions: list[Instruction] = []
        self._same: dict[Slot, Slot] = {}
        self._transposed: dict[Slot, tuple[Slot, Any]] = {}
        for one in recorder.instructions:
            operands = [
                tuple(map(self.origin, operand)) if isinstance(operand, tuple) else self.origin(operand)
                for operand in one.operands
            ]
            self._add(Instruction(one.function, operands, one.named, one.results))

    def origin(self, slot: Slot) -> Slot:
        """The slot that holds the same value and is written by an instruction that was kept."""
        return self._same.get(slot, slot)

    def _add(self, one: Instruction) -> None:
        name = getattr(one.function, "__name__", "").partition(".")[0]
        if isinstance(one.results, tuple) or not one.is_view:
            self.instructions.append(one)
        elif name == "detach":
            self._same[one.results] = one.read[0]
        elif all(slot in self.constants for slot in one.read):
            arguments = [_value_of(self.constants, operand) for operand in one.operands]
            self.constants[one.results] = one.function(*arguments, **one.named).detach()
        elif name == "transpose" and self._undoes(one):
            self._same[one.results] = self._transposed[one.read[0]][0]
        else:
            self.instructions.append(one)

    def _undoes(self, one: Instruction) -> bool:
        """Whether a transposition undoes the one that made its argument; if not, it is noted."""
        source, *axes = one.read
        wanted = [self.constants[axis] for axis in axes]
        if source in self._transposed and self._transposed[source][1] == wanted:
            return True
        assert isinstance(one.results, int)
        self._transposed[one.results] = source, wanted
        return False


def _value_of(constants: dict[Slot, Any], operand: Operand) -> Any:
    return [constants[slot] for slot in operand] if isinstance(operand, tuple) else constants[operand]


def _without_unused_views(instructions: Sequence[Instruction], wanted: set[Slot]) -> list[Instruction]:
    """The instructions without views that nobody looks through."""
    used, kept = set(wanted), list[Instruction]()
    for one in reversed(instructions):
        if one.is_view and used.isdisjoint(one.written):
            continue
        used.update(one.read)
        kept.append(one)
    return kept[::-1]


def _last_uses(
    instructions: Sequence[Instruction], wanted: set[Slot], constants: dict[Slot, Any]
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
