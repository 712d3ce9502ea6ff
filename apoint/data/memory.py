"""What fits into this machine's memory, checked before a size from a header or a setting is trusted."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import Field

from apoint.data.stored import in_gigabytes
from apoint.errors import UsageError
from apoint.settings import NotTruth

Amount = Annotated[int, NotTruth, Field(ge=1, le=10_000_000)]
"""A number of items that a dataset makes."""
_UNKNOWN = 1 << 40


def total_memory() -> int:
    """The machine's memory in bytes."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # a system that does not report it
        return _UNKNOWN


def refuse_too_large(needed: int, where: str) -> None:
    """Raise a `UsageError` that begins with `where` if `needed` bytes do not fit into memory."""
    if needed > total_memory():
        raise UsageError(
            f"{where}: it would take {in_gigabytes(needed)} of memory, and this machine has "
            f"{in_gigabytes(total_memory())}; use less of it"
        )
