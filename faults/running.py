"""Every case in a process of its own, forked from one that has PyTorch imported, with a deadline.

A fork takes a hundredth of a second where a new interpreter takes four. This process must therefore never
call `backward`: PyTorch's engine does not survive a fork after that. Whatever a case starts is below its
process, which collects orphans, so that nothing outlives the case.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from faults.group import Case, Failure, Group, Place, name_of
from faults.ledger import Ledger, Result, code_of

_PR_SET_CHILD_SUBREAPER = 36
PREPARE_SECONDS = 600.0
_KILL_SECONDS = 60.0
_ROOM_BYTES = 4 * 2**30


@dataclass
class Running:
    """A process that runs something."""

    pid: int
    pipe: int
    begun: float
    seconds: float
    end: Callable[[str, float], None]
    heard: bytes = b""


class Crew:
    """Runs functions in processes, some at a time; each ends with a reason, empty if all went well."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._waiting: deque[tuple[Callable[[], None], float, Callable[[str, float], None]]] = deque()
        self._running: dict[int, Running] = {}

    def add(self, work: Callable[[], None], seconds: float, end: Callable[[str, float], None]) -> None:
        """Run `work` when there is room; `end` is called with the reason and the seconds it took."""
        self._waiting.append((work, seconds, end))

    def finish(self) -> None:
        """Run all that waits. However this is left, no process is."""
        with selectors.DefaultSelector() as selector:
            try:
                while self._waiting or self._running:
                    while self._waiting and len(self._running) < self.workers:
                        self._start(selector, *self._waiting.popleft())
                    for key, _ in selector.select(0.5):
                        self._hear(selector, self._running[key.fd])
                    for running in list(self._running.values()):
                        self._end_if_late(selector, running)
            finally:
                for running in self._running.values():
                    _kill_tree(running.pid)
                    os.waitpid(running.pid, 0)

    def _start(
        self,
        selector: selectors.BaseSelector,
        work: Callable[[], None],
        seconds: float,
        end: Callable[[str, float], None],
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            _child(work, theirs)
        os.close(theirs)
        self._running[ours] = Running(pid, ours, time.monotonic(), seconds, end)
        selector.register(ours, selectors.EVENT_READ)

    def _hear(self, selector: selectors.BaseSelector, running: Running) -> None:
        chunk = os.read(running.pipe, 65536)
        running.heard += chunk
        if not chunk:
            self._close(selector, running, "")

    def _end_if_late(self, selector: selectors.BaseSelector, running: Running) -> None:
        if running.pipe in self._running and time.monotonic() - running.begun > running.seconds:
            _kill_tree(running.pid)
            self._close(selector, running, f"it hangs: no end after {running.seconds:g} s")

    def _close(self, selector: selectors.BaseSelector, running: Running, reason: str) -> None:
        selector.unregister(running.pipe)
        os.close(running.pipe)
        del self._running[running.pipe]
        _, status = os.waitpid(running.pid, 0)
        if not reason:
            reason = _reason(running.heard, status)
        running.end(reason, time.monotonic() - running.begun)


def _reason(heard: bytes, status: int) -> str:
    if heard:
        return str(json.loads(heard))
    return f"the case's own process ended without a result (status {os.waitstatus_to_exitcode(status)})"


def _child(work: Callable[[], None], pipe: int) -> None:
    """The life of a case's process: it never returns."""
    reason = "the case did not end"
    try:
        os.setsid()
        os.set_inheritable(pipe, False)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        reason = ""
        work()
    except Failure as failure:
        reason = str(failure)
    except BaseException as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
    finally:
        with contextlib.suppress(BaseException):
            _kill(descendants(os.getpid()))
        os.write(pipe, json.dumps(reason).encode())
        os._exit(0)


def descendants(pid: int) -> list[int]:
    """The processes below one, where there is a /proc."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
            below.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, left = [], [pid]
    while left:
        children = below.get(left.pop(), [])
        found += children
        left += children
    return found


def _kill_tree(pid: int) -> None:
    _kill([*descendants(pid), pid])


def _kill(pids: Sequence[int]) -> None:
    """Kill processes and wait until they run no more: on a busy machine that takes a moment."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_SECONDS
    while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """Whether a process is there and has not ended; what has ended waits as a zombie for its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


# -- cases ---------------------------------------------------------------------------------------------------


def in_turn(cases: Iterable[tuple[Group, Case]]) -> list[tuple[Group, Case]]:
    """Cases of several groups mixed evenly, so that at any time the part that is done stands for the rest."""
    by_group: dict[str, list[tuple[Group, Case]]] = {}
    for group, case in cases:
        by_group.setdefault(group.id, []).append((group, case))
    placed = [
        ((number + 0.5) / len(mine), pair) for mine in by_group.values() for number, pair in enumerate(mine)
    ]
    return [pair for _, pair in sorted(placed, key=lambda each: (each[0], each[1][0].id))]


def run_cases(
    cases: Iterable[tuple[Group, Case]], ledger: Ledger, workers: int, tell: Callable[[Result], None]
) -> None:
    """Run cases and keep how each ended; what is kept stays if this is interrupted."""
    wanted = in_turn(cases)
    with tempfile.TemporaryDirectory(prefix="apoint-faults-", dir=scratch()) as folder:
        shared, broken = _prepared(Path(folder), [group for group, _ in wanted], workers)
        crew = Crew(workers)
        for number, (group, case) in enumerate(wanted):
            keep = _keeper(group, case, ledger, tell)
            if reason := broken.get(group.prepare):
                keep(f"its preparation failed: {reason}", 0.0)
            else:
                place = Place(Path(folder) / f"case-{number}", shared[group.prepare])
                crew.add(_work(group, case, place), group.seconds, keep)
        crew.finish()


def scratch() -> str | None:
    """Where cases work: in memory if there is room, as a killed process loses the same there as on a disk."""
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK):
        return None
    return str(memory) if shutil.disk_usage(memory).free > _ROOM_BYTES else None


def _prepared(
    folder: Path, groups: list[Group], workers: int
) -> tuple[dict[object, Path], dict[object, str]]:
    """What groups share, made once for each way to make it; and why that did not work, where it did not."""
    shared, broken, crew = {}, {}, Crew(workers)
    for number, prepare in enumerate({group.prepare: None for group in groups}):
        place = shared[prepare] = folder / f"shared-{number}"
        place.mkdir()
        if prepare:

            def end(reason: str, seconds: float, prepare: object = prepare) -> None:
                if reason:
                    broken[prepare] = reason

            crew.add(lambda prepare=prepare, place=place: prepare(place), PREPARE_SECONDS, end)  # type: ignore[misc]
    crew.finish()
    return shared, broken


def _keeper(
    group: Group, case: Case, ledger: Ledger, tell: Callable[[Result], None]
) -> Callable[[str, float], None]:
    def keep(reason: str, seconds: float) -> None:
        result = Result(group.id, name_of(case), code_of(group), _without_paths(reason), round(seconds, 3))
        ledger.keep(result)
        tell(result)

    return keep


def _without_paths(text: str) -> str:
    """A reason without the places of this machine: only what lies in the case's folder, or a file's name."""
    text = re.sub(r"\S*apoint-faults-[^/\s]+/(case|shared)-\d+/?", "", text)
    text = re.sub(r"/[^\s'\"]*/(?=[^/\s'\"]+\.py\b)", "", text)
    return re.sub(r"/\S*/(?=apoint-\w+\.txt)", "", text)  # where a traceback was saved


def _work(group: Group, case: Case, place: Place) -> Callable[[], None]:
    def work() -> None:
        with _own_folder(place.folder):
            group.run(place, *case)

    return work


@contextlib.contextmanager
def _own_folder(folder: Path) -> Iterator[None]:
    """A folder to work in that is gone afterwards, whatever its modes have become."""
    folder.mkdir()
    os.chdir(folder)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
