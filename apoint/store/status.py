"""The state of a run as a lease: a run that says "running" is believed only while its process exists.

`status.json` names the process (pid and its start time, so that a reused pid is not mistaken for it), the
machine and its boot, and the time of the last heartbeat. From these, `resolve` derives

    dead      the process is gone, or the machine was restarted since;
    stalled   no heartbeat for five minutes, from a living process or from another machine.
"""

from __future__ import annotations

import functools
import math
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, Literal

from apoint.errors import StorageError, one_line
from apoint.store.reader import read_json

State = Literal["running", "finished", "interrupted", "failed", "diverged"]
STATES: tuple[State, ...] = ("running", "finished", "interrupted", "failed", "diverged")
ENDED = ("finished", "interrupted", "failed", "diverged", "dead")
STALLED_AFTER_SECONDS = 300.0


@functools.cache
def host() -> str:
    """The name of this machine."""
    return socket.gethostname()


@functools.cache
def boot_id() -> str | None:
    """The id of the current boot, where the kernel provides one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def process_start(pid: int) -> int | None:
    """The start of a living process in clock ticks since boot; None if it is gone, a zombie, or unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return int(fields[19])


def is_alive(pid: int, started: int | None) -> bool | None:
    """Whether the process that had `pid` and began at `started` is still alive; None if unknown."""
    if os.path.isdir("/proc/self"):
        now = process_start(pid)
        return now is not None and started in (None, now)
    if sys.platform == "win32":  # there, os.kill would stop the process
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return None
    return True


def lease(pid: int | None = None) -> dict[str, Any]:
    """The part of a status that identifies the process that holds the run."""
    pid = os.getpid() if pid is None else pid
    return {"pid": pid, "pid_start": process_start(pid), "host": host(), "boot_id": boot_id()}


def read_status(path: Path) -> dict[str, Any]:
    """The content of a `status.json`; empty if there is none or it is torn."""
    try:
        return read_json(path)
    except StorageError:
        return {}


def writer_of(status: dict[str, Any]) -> str:
    """The process that a status names, in words."""
    pid, name = whole(status.get("pid")), status.get("host")
    process = f"process {pid}" if pid is not None else "another process"
    return process if name in (None, host()) else f"{process} on {one_line(name)}"


def number(value: Any) -> float | None:
    """A field of a status as a finite number; None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def whole(value: Any) -> int | None:
    """A field of a status as a 64-bit integer; None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) < 2**63 else None


def resolve(status: dict[str, Any], now: float | None = None) -> str:
    """The current state: what the status says, or `dead`, `stalled`, `unknown`."""
    state = status.get("state")
    if state != "running":
        return state if isinstance(state, str) else "unknown"
    if status.get("host") == host() and _is_dead_here(status):
        return "dead"
    heartbeat = number(status.get("heartbeat"))
    if heartbeat is None:
        return "running"
    age = (time.time() if now is None else now) - heartbeat
    return "stalled" if age > STALLED_AFTER_SECONDS else "running"


def _is_dead_here(status: dict[str, Any]) -> bool:
    if status.get("boot_id") != boot_id():
        return True
    pid = status.get("pid")
    if isinstance(pid, bool) or not isinstance(pid, int) or pid <= 0:
        return False  # it names no process
    return is_alive(pid, whole(status.get("pid_start"))) is False
