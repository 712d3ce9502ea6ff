"""The arithmetic of a run: fixed threads, deterministic algorithms, no subnormal numbers.

All of it is process-wide state of PyTorch; it is set for the duration of a run and then restored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def exact_arithmetic(threads: int, device: torch.device) -> Iterator[None]:
    """Set the arithmetic of a run, and restore the previous settings afterwards.

    With one thread, numbers below 1e-38 are flushed to zero: the running averages of units that get no
    gradient decay towards zero through the subnormal range, where a processor is many times slower.
    The setting is per thread and cannot reach threads that PyTorch has started already, so with several
    threads it would make the result depend on what the process did before.
    """
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    flushing = flushes_subnormals()
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    # `torch.use_deterministic_algorithms` does the same, but takes a second to import the compiler.
    torch.set_deterministic_debug_mode("error" if device.type == "cpu" else "warn")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if threads == 1:
        torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_deterministic_debug_mode(before[1])
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
        torch.set_flush_denormal(flushing)


def flushes_subnormals() -> bool:
    """Whether this thread flushes subnormal numbers to zero; PyTorch can set this but not report it."""
    return float(torch.tensor(1e-38) * torch.tensor(0.01)) == 0.0
