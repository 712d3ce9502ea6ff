"""What a run depends on: versions, processor, threads, code and data, and the key made from them.

The same key gives the same bits. When two keys differ, `differences` reports which parts.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
import torch

import apoint
from apoint.engine.deciding import decides_bits
from apoint.errors import UsageError
from apoint.registry import HOMES, registry

MOST_THREADS = 4096  # more than any machine has; an untrusted run folder could ask for 10^9


def code_hash(own_files: tuple[Path, ...] = ()) -> str:
    """A hash of the code that determines a run's numbers: apoint's, and the user's files in the recipe."""
    digest = _code(only_deciding=True).copy()
    for path in own_files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def package_hash() -> str:
    """A hash of all of apoint's code, which must be the same in all cooperating processes."""
    return _code(only_deciding=False).hexdigest()[:16]


@functools.cache
def _code(only_deciding: bool) -> hashlib._Hash:
    """The hash of apoint's own code, computed once per process: imported code does not change."""
    root = Path(apoint.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root.parent)
        if not only_deciding or decides_bits(".".join(name.with_suffix("").parts).removesuffix(".__init__")):
            digest.update(name.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest


def foreign_modules(values: Any) -> dict[str, Path]:
    """The modules outside apoint that registered an ingredient named in a recipe's plain values, by name."""
    found = {}
    for name in sorted(set(_names(values))):
        for kind in HOMES:
            build = registry(kind)[name].build if name in registry(kind) else apoint
            module = getattr(build, "__module__", "apoint.")
            if not module.startswith("apoint."):
                found[module] = _source_file(build)
    return found


def _source_file(thing: Any) -> Path:
    """The source file of a function or class; an empty path if there is none."""
    try:
        return Path(inspect.getsourcefile(thing) or "")
    except (TypeError, OSError):
        return Path()


def _names(values: Any) -> Iterator[str]:
    """Every `name` in nested plain values: those of ingredients, and possibly others."""
    if isinstance(values, Mapping):
        if isinstance(values.get("name"), str):
            yield values["name"]
        values = list(values.values())
    if isinstance(values, list):
        for value in values:
            yield from _names(value)


@functools.cache
def processor() -> str:
    """The processor's name and the vector instructions PyTorch uses on it."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def choose_device(requested: str) -> torch.device:
    """`cpu`, `cuda` or `mps`, optionally with an index, or `auto`: the first available of cuda, mps, cpu."""
    if requested == "auto":
        requested = (
            "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        )
    try:
        device = torch.device(requested)
    except RuntimeError:
        raise UsageError(f"unknown device {requested!r}; use cpu, cuda, cuda:1, mps or auto") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("CUDA is not available: this PyTorch sees no CUDA device; use cpu")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UsageError("MPS is not available: this PyTorch sees no Apple GPU; use cpu")
    if device.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f"device {requested!r} is not supported; use cpu, cuda, mps or auto")
    return device


def choose_threads(requested: int | None, device: torch.device, cores: int | None = None) -> int:
    """How many threads one replica uses.

    One, unless the machine has many cores. On two cores a second thread gains a factor of at most
    1.4 when nothing else runs, and can lose two orders of magnitude when something does, since OpenMP
    threads wait by spinning; two replicas side by side gain a factor of 1.7 to 2 instead. On more than
    four cores, half of them, at most eight: a single replica hardly gains beyond that, and cores remain
    for others.
    """
    cores = cores or os.cpu_count() or 1
    if requested is not None:
        if not 1 <= requested <= 4 * cores:
            raise UsageError(f"threads must be from 1 to {4 * cores} on this machine, got {requested}")
        return requested
    return 1 if cores <= 4 or device.type != "cpu" else min(8, cores // 2)


def threads_of(run_key: Mapping[str, Any]) -> int | None:
    """The number of threads of an earlier run, if its key holds one that a machine can have."""
    threads = run_key.get("threads")
    return threads if type(threads) is int and 1 <= threads <= MOST_THREADS else None


def key(recipe: str, seed: int, data: str, device: torch.device, threads: int, code: str) -> dict[str, Any]:
    """The parts that determine a run's bits."""
    return {
        "recipe": recipe,
        "seed": seed,
        "data": data,
        "code": code,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "processor": processor(),
        "device": device_name(device),
        "threads": threads,
    }


def device_name(device: torch.device) -> str:
    """The device type, with the name of the hardware for CUDA."""
    return f"{device.type} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe the parts in which two keys differ."""
    return [
        f"{part} was {before.get(part)!r} and is {now.get(part)!r}"
        for part in sorted(set(before) | set(now))
        if before.get(part) != now.get(part)
    ]


def describe(name: str, changes: str, run_key: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """The content of `env.json`."""
    device = str(run_key["device"])
    return {
        "name": name,
        "changes": changes,
        "apoint": apoint.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "determinism": determinism(device),
        "notes": notes,
        "key": dict(run_key),
    }


def determinism(device: str) -> str:
    """What to expect from running the same key again."""
    if device.startswith("cpu"):
        return "bitwise for the same key"
    return (
        "deterministic algorithms requested; bitwise for the same key where PyTorch has them for this device"
    )
