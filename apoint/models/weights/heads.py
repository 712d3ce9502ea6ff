"""Which weights belong to the head: the one part that may be for another number of classes."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEAD = re.compile(r"(.*\.)?head\.(weight|bias)")


def is_head(name: str) -> bool:
    """Whether a weight belongs to a head, the model's or an auxiliary one."""
    return _HEAD.fullmatch(name) is not None


def is_other_head(name: str, shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a weight in a file differs from the model's only in the number of classes."""
    return is_head(name) and len(shape) == len(wanted) and tuple(shape[1:]) == tuple(wanted[1:])
