"""A fixed place in memory for each result of a tape, so that views of it are taken only once.

Half of the operations in a small model's pass are views, and each costs as much Python as a product does. A
view of a fixed place in memory never changes. So results are written into buffers that are allocated in
advance. A buffer is reused for the next result of its size once its contents are no longer needed, and an
elementwise operation overwrites its argument if that is the argument's last use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from apoint.engine.stacked.recording import Instruction, Recorder, Slot
from apoint.engine.stacked.simplification import Simplified, seen

_aten = torch.ops.aten
# Operations that can write their result directly into a given buffer, and how they are called to do so. Many
# others seem to offer this, but make the result elsewhere first. All allocate their own memory, without gaps.
_WRITING: dict[tuple[str, str], tuple[Callable[..., Any], str]] = {
    ("add", "Tensor"): (torch.add, "out"),
    ("baddbmm", "default"): (torch.baddbmm, "out"),
    ("bmm", "default"): (torch.bmm, "out"),
    ("div", "Tensor"): (torch.div, "out"),
    ("exp", "default"): (torch.exp, "out"),
    ("gather", "default"): (torch.gather, "out"),
    ("mm", "default"): (torch.mm, "out"),
    ("mul", "Tensor"): (torch.mul, "out"),
    ("neg", "default"): (torch.neg, "out"),
    ("sigmoid", "default"): (torch.sigmoid, "out"),
    ("sub", "Tensor"): (torch.sub, "out"),
    ("sum", "dim_IntList"): (torch.sum, "out"),
    ("tanh", "default"): (torch.tanh, "out"),
    ("_log_softmax", "default"): (torch._log_softmax, "out"),
    ("_softmax", "default"): (torch._softmax, "out"),
    ("threshold_backward", "default"): (_aten.threshold_backward.grad_input._op, "grad_input"),
    ("sigmoid_backward", "default"): (_aten.sigmoid_backward.grad_input._op, "grad_input"),
    ("tanh_backward", "default"): (_aten.tanh_backward.grad_input._op, "grad_input"),
}
_OVER_ITS_ARGUMENT: dict[tuple[str, str], Callable[..., Any]] = {("relu", "default"): torch.relu_}
_NEVER = math.inf


class Placed:
    """A simplified recording whose results have fixed places, as far as the operations allow it.

    Args:
        recorder: The recording.
        shortened: The simplified recording.
        targets: Where the values of some slots belong.

    Attributes:
        instructions: The remaining instructions.
        constants: The values of slots that always have the same memory, including all that have a place.
    """

    def __init__(self, recorder: Recorder, shortened: Simplified, targets: Mapping[Slot, Tensor]) -> None:
        self.constants = dict(shortened.constants)
        self.instructions: list[Instruction] = []
        self._recorder = recorder
        self._last = _last_places(recorder, shortened)
        self._owned: dict[int, Tensor] = {}  # the buffers in use, by the pieces of memory they replace
        self._free: dict[tuple[torch.dtype, int], list[Tensor]] = {}
        self._targets = _at_their_origin(recorder, shortened.instructions, targets)
        for place, one in enumerate(shortened.instructions):
            self._add(place, one)
            self._release(place)
        for slot, target in targets.items():
            if slot in self.constants and _same_place(self.constants[slot], target):
                self.constants[slot] = target  # the same object, since it is recognised by identity

    def _add(self, place: int, one: Instruction) -> None:
        if one.is_view and isinstance(one.results, int) and self.constants.keys() >= set(one.read):
            self.constants[one.results] = seen(one, self.constants)
            return
        self.instructions.append(self._written(place, one) or one)

    def _written(self, place: int, one: Instruction) -> Instruction | None:
        """The instruction with a fixed place for its result, or None if it cannot have one."""
        result, kind = one.results, (one.name, one.overload)
        if not isinstance(result, int) or not self._recorder.piece(result):
            return None
        if kind in _OVER_ITS_ARGUMENT:
            argument = self._argument_to_replace(place, one, result)
            if argument is None:
                return None
            self._take_over(argument, result)
            return Instruction(_OVER_ITS_ARGUMENT[kind], one.operands, one.named, result)
        if kind not in _WRITING and one.name != "clone":
            return None
        self._find_place(place, one, result)
        if one.name == "clone":
            return Instruction(torch.Tensor.copy_, [result, *one.operands], {}, result)
        function, keyword = _WRITING[kind]
        return Instruction(function, one.operands, {**one.named, keyword: self.constants[result]}, result)

    def _find_place(self, place: int, one: Instruction, result: Slot) -> None:
        if result in self._targets:
            self.constants[result] = self._targets[result]
            return
        argument = self._argument_to_replace(place, one, result)
        if argument is not None:
            self._take_over(argument, result)
            return
        like = self._recorder.met[result]
        waiting = self._free.setdefault((like.dtype, like.numel()), [])
        buffer = waiting.pop() if waiting else torch.empty(like.numel(), dtype=like.dtype, device=like.device)
        self._owned[self._recorder.piece(result)] = buffer
        self.constants[result] = buffer.as_strided(like.shape, like.stride())

    def _argument_to_replace(self, place: int, one: Instruction, result: Slot) -> Slot | None:
        """An argument whose memory the result may reuse, since this is its last use."""
        tags = getattr(one.function, "tags", ())
        if torch.Tag.pointwise not in tags or result in self._targets:
            return None
        like = self._recorder.met[result]
        for slot in one.read:
            piece, value = self._recorder.piece(slot), self.constants.get(slot)
            others = [other for other in one.read if other != slot and self._recorder.piece(other) == piece]
            if piece not in self._owned or self._last[piece] != place or others or value is None:
                continue
            if (value.shape, value.stride(), value.dtype) == (like.shape, like.stride(), like.dtype):
                return slot
        return None

    def _take_over(self, argument: Slot, result: Slot) -> None:
        self.constants[result] = self.constants[argument]
        self._owned[self._recorder.piece(result)] = self._owned.pop(self._recorder.piece(argument))

    def _release(self, place: int) -> None:
        """Make the buffers that are no longer needed available for reuse."""
        for piece in [piece for piece in self._owned if self._last[piece] <= place]:
            buffer = self._owned.pop(piece)
            self._free.setdefault((buffer.dtype, buffer.numel()), []).append(buffer)


def _last_places(recorder: Recorder, shortened: Simplified) -> dict[int, float]:
    """The last instruction that uses each piece of memory; `_NEVER` for one that holds a result."""
    last: dict[int, float] = {}
    for place, one in enumerate(shortened.instructions):
        last |= dict.fromkeys((recorder.piece(slot) for slot in (*one.read, *one.written)), place)
    return last | {recorder.piece(slot): _NEVER for slot in shortened.wanted}


def _at_their_origin(
    recorder: Recorder, instructions: Sequence[Instruction], targets: Mapping[Slot, Tensor]
) -> dict[Slot, Tensor]:
    """Turn the targets of results that are views into targets of the tensors they are views of.

    Only if the same views of the new target give the original target: then it is enough to write there.
    """
    makers = {one.results: one for one in instructions if isinstance(one.results, int)}
    found = {}
    for slot, target in targets.items():
        views: list[Instruction] = []
        origin = slot
        while origin in makers and makers[origin].is_view:
            views.append(makers[origin])
            origin = makers[origin].read[0]
        try:
            candidate = target.view(recorder.met[origin].shape)
        except RuntimeError:
            continue
        value = candidate
        for view in reversed(views):
            arguments = [recorder.constants[other] for other in view.read[1:]]
            value = view.function(value, *arguments, **view.named)
        if _same_place(value, target):
            found[origin] = candidate if views else target
    return found


def _same_place(one: Tensor, two: Tensor) -> bool:
    return (one.data_ptr(), one.shape, one.stride()) == (two.data_ptr(), two.shape, two.stride())
