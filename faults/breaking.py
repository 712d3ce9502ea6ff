"""Faults to inject into a process that was forked for it: file operations that fail, limits, and kills.

File operations are counted and broken where Python makes them (`os.write`, `os.replace`, `open`, …), so no
tracer is needed. What libraries write by themselves (SQLite) is broken by limits of the process instead.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.group import Failure, check

_BY_PATH = ("replace", "rename", "unlink", "remove", "mkdir", "rmdir")
_BY_HANDLE = ("write", "fsync", "ftruncate")
_SAME = {"remove": "unlink", "rename": "replace", "rmdir": "unlink"}  # one kind of fault for what is alike


@dataclass
class Breaker:
    """Counts the file operations under a folder, and breaks one.

    Args:
        folder: Only what lies here is counted and broken.
        fault: The name of an errno, `MemoryError`, `SIGKILL`, or another signal that the process gets.
        at: Which operation of those that match is broken, from 1; 0 breaks none.
        operation: `open`, `write`, `fsync`, `replace`, `unlink`, `mkdir` or `ftruncate`; any if empty.
        part: A text that the path must hold.
        lasting: Whether all that follow fail too, as on a disk that is full.
        bytes_free: Writing fails when so many bytes have been written; as a disk of this size.
    """

    folder: Path
    fault: str = "EIO"
    at: int = 0
    operation: str = ""
    part: str = ""
    lasting: bool = False
    bytes_free: int | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)
    struck: bool = False

    def install(self) -> Breaker:
        """Break the operations of this process from now on."""
        for name in _BY_PATH:
            setattr(os, name, self._by_path(name, getattr(os, name)))
        for name in _BY_HANDLE:
            setattr(os, name, self._by_handle(name, getattr(os, name)))
        os.open = self._by_path("open", os.open)
        builtins.open = io.open = self._opening(builtins.open)  # type: ignore[assignment]
        return self

    def meet(self, operation: str, path: str, size: int = 0) -> None:
        """An operation is about to happen; it fails here if it is its turn."""
        operation = _SAME.get(operation, operation)
        if not path.startswith(str(self.folder)) or self.part not in path:
            return
        if self.operation in ("", operation):
            self.calls.append((operation, path))
            if self.at and (len(self.calls) == self.at or (self.lasting and len(self.calls) > self.at)):
                self._strike(path)
        if self.bytes_free is not None and operation == "write":
            if size > self.bytes_free:
                self._strike(path)
            self.bytes_free -= size

    def _strike(self, path: str) -> None:
        self.struck = True
        if self.fault == "MemoryError":
            raise MemoryError
        if self.fault.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, self.fault))
            return
        code = getattr(errno, self.fault)
        raise OSError(code, os.strerror(code), path)

    def _by_path(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def broken(path: Any, *rest: Any, **more: Any) -> Any:
            reads = name == "open" and not (rest and rest[0] & (os.O_WRONLY | os.O_RDWR))
            if not reads:
                self.meet(name, _absolute(path, more.get("dir_fd")))
            return original(path, *rest, **more)

        return broken

    def _by_handle(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def broken(handle: int, *rest: Any) -> Any:
            self.meet(name, path_of(handle), len(rest[0]) if name == "write" else 0)
            return original(handle, *rest)

        return broken

    def _opening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        breaker = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                breaker.meet("write", _absolute(self.name), len(memoryview(data).cast("B")))
                return super().write(data)

        def broken(
            file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None,
            newline: Any = None, closefd: bool = True, opener: Any = None,
        ) -> Any:  # fmt: skip
            if isinstance(file, int) or opener or not set(mode) & set("wax+"):
                return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
            breaker.meet("open", _absolute(file))
            raw = Raw(file, mode.replace("b", "").replace("t", ""))
            if buffering == 0:
                return raw
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

        return broken


def _absolute(path: Any, dir_fd: int | None = None) -> str:
    text = os.fsdecode(path) if not isinstance(path, int) else path_of(path)
    return os.path.abspath(os.path.join(path_of(dir_fd) if dir_fd is not None else "", text))


def path_of(handle: int) -> str:
    """The path behind a handle; empty if it has none."""
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return ""


def limit(kind: int, value: int) -> None:
    """Limit this process: `resource.RLIMIT_FSIZE`, `RLIMIT_AS`, `RLIMIT_NOFILE`, `RLIMIT_CPU`."""
    resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))


def memory_in_use() -> int:
    """How much address space this process has, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


# -- processes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Left:
    """What a process left: its exit code (minus the signal that ended it), what it printed and returned."""

    code: int
    text: str
    value: Any = None

    def expect(self, *codes: int) -> Left:
        """Fail the case unless the process left with one of these codes."""
        check(self.code in codes, f"exit code {self.code} instead of {codes}: {self.text[-400:].strip()}")
        return self


class Child:
    """A function in a forked process; what it prints and returns comes through pipes.

    Args:
        work: What to do. An error with an `exit_code` ends the process with it, any other with 70.
        folder: Where it stands.
        terminal: Whether it prints to a terminal, where escape sequences are not left out.
    """

    def __init__(self, work: Callable[[], Any], folder: Path, terminal: bool = False) -> None:
        text, value = os.openpty() if terminal else os.pipe(), os.pipe()
        self._code: int | None = None
        self._heard = {text[0]: b"", value[0]: b""}
        self._text_pipe, self._value_pipe = text[0], value[0]
        self.pid = os.fork()
        if self.pid == 0:
            os.chdir(folder)
            _live(work, text[1], value[1])
        for ours, theirs in (text, value):
            os.close(theirs)
            os.set_blocking(ours, False)

    def _listen(self) -> None:
        for pipe in self._heard:
            with contextlib.suppress(OSError):  # nothing there yet, or a terminal that nobody holds
                while chunk := os.read(pipe, 65536):
                    self._heard[pipe] += chunk

    @property
    def text(self) -> str:
        """What it has printed so far."""
        self._listen()
        return self._heard[self._text_pipe].decode(errors="replace")

    @property
    def ended(self) -> bool:
        """Whether it has ended; does not wait."""
        if self._code is None:
            self._listen()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code is not None

    def kill(self, number: int = signal.SIGKILL) -> bool:
        """Send a signal; returns whether the process was still there."""
        if self.ended:
            return False
        os.kill(self.pid, number)
        return True

    def wait(self, seconds: float = 90) -> Left:
        """Wait for its end; a hang is a failure. Waiting for a processor, on a busy machine, is none."""
        begun = time.monotonic()
        while not self.ended:
            if time.monotonic() - begun > seconds + _queued_seconds(self.pid):
                self.kill()
                raise Failure(f"a process hangs: no end after {seconds:g} s; it had printed {self.text!r}")
            time.sleep(0.002)
        assert self._code is not None
        text, value = self.text, self._heard[self._value_pipe]
        return Left(self._code, text, json.loads(value) if value else None)


def _live(work: Callable[[], Any], text: int, pipe: int) -> None:
    """The life of a child: it never returns."""
    code = 70
    try:
        os.dup2(text, 1)
        os.dup2(text, 2)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w") for number in (1, 2))
        value = work()
        code = 0
        if value is not None:
            os.write(pipe, json.dumps(value).encode())
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException as error:
        code = getattr(error, "exit_code", 70)
        if code == 70:
            traceback.print_exc()
        else:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _queued_seconds(pid: int) -> float:
    """How long a process has waited for a processor; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def in_child(work: Callable[[], Any], folder: Path, seconds: float = 90) -> Left:
    """Do something in a process of its own and wait for it."""
    return Child(work, folder).wait(seconds)


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Wait for something; that it never comes is a failure."""
    deadline = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.005)
