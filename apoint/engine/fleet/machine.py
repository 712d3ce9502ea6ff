"""What this machine has for a fleet: cores and memory, as far as this process may use them."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


def cores() -> int:
    """The cores that this process may run on: its affinity, and its container's share where there is one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = (_GROUP / "cpu.max").read_text().split()[:2]
        allowed = min(allowed, max(1, math.ceil(int(quota) / int(period))))
    return allowed


def available_memory() -> int | None:
    """The bytes of memory that could still be used; None where nobody can tell."""
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
    """What the container has left."""
    with contextlib.suppress(OSError, ValueError):
        limit = int((_GROUP / "memory.max").read_text())
        return max(0, limit - int((_GROUP / "memory.current").read_text()))
    return None


def resident_memory() -> tuple[int, int]:
    """The bytes that this process holds now, and the most since `forget_peak`; zeros where unknown."""
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        found = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith("Vm")}
        return found["VmRSS"], found["VmHWM"]
    return 0, 0


def forget_peak() -> None:
    """Let `resident_memory` count its peak from here on, where the kernel can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
