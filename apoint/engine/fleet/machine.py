"""The machine's resources for a fleet: the cores and memory that this process may use."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


def cores() -> int:
    """The number of cores that this process may use, from its affinity and its container's share, if any."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = (_GROUP / "cpu.max").read_text().split()[:2]
        allowed = min(allowed, max(1, math.ceil(int(quota) / int(period))))
    return allowed


def available_memory() -> int | None:
    """The bytes of memory that are still available; None if unknown."""
    known = [amount for amount in (_system_memory(), _group_memory()) if amount is not None]
    return min(known) if known else None


def _system_memory() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return None


def _group_memory() -> int | None:
    """The bytes of memory that the container has left; None if unknown."""
    with contextlib.suppress(OSError, ValueError):
        limit = int((_GROUP / "memory.max").read_text())
        return max(0, limit - int((_GROUP / "memory.current").read_text()))
    return None


def resident_memory() -> tuple[int, int]:
    """Resident bytes of this process, now and at the peak since `forget_peak`; zeros if unknown."""
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        found = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith("Vm")}
        return found["VmRSS"], found["VmHWM"]
    return 0, 0


def forget_peak() -> None:
    """Reset the peak that `resident_memory` returns, where the kernel supports it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
