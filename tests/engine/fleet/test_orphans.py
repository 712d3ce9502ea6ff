"""No worker process outlives its parent, at whatever moment of the workers' start the parent is killed."""

import contextlib
import json
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from apoint.data.loading import DatasetCache
from apoint.engine.fleet.pool import Pool
from tests.engine.harness import CONTEXT

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
MARK = "APOINT_TEST_MARK"
STUCK = """
import json, os, signal, sys, time
from pathlib import Path

def blocked():
    return sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))

class Stuck:
    at_first = blocked()
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            fatal = [n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_DFL]
            place = Path(os.environ["APOINT_TEST_FOLDER"], str(os.getpid()))
            place.with_suffix(".tmp").write_text(json.dumps([self.at_first, blocked(), fatal]))
            place.with_suffix(".tmp").rename(place.with_suffix(".json"))
            time.sleep(10_000)

if "--multiprocessing-fork" in sys.argv:
    sys.meta_path.insert(0, Stuck())
"""
FOR_THE_PARENT = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}


def marked(mark: str) -> list[int]:
    """The living processes with this mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX" and f"{MARK}={mark}".encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
    return found


def blocked_in(pid: int) -> set[int]:
    """The signals that a process has blocked."""
    (mask,) = re.findall(r"^SigBlk:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return {number for number in signal.valid_signals() if int(mask, 16) >> (number - 1) & 1}


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def end(mark: str) -> None:
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)


def hold_a_pool(mark: str, in_thread: bool = False) -> None:
    """Start two workers, from the main thread or another one, and wait to be killed."""
    os.environ[MARK] = mark
    pool = Pool(2, DatasetCache())
    if in_thread:
        thread = threading.Thread(target=pool.begin)
        thread.start()
        thread.join()
    else:
        pool.begin()
    time.sleep(10_000)


@contextlib.contextmanager
def workers_that_import(
    folder: Path, in_thread: bool = False
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process whose two workers are in an import that never ends, and the mark of all of them."""
    (folder / "sitecustomize.py").write_text(STUCK)
    path, mark = os.pathsep.join([str(folder), *sys.path]), secrets.token_hex(8)
    code = f"from {__name__} import hold_a_pool; hold_a_pool({mark!r}, {in_thread})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, MARK: mark, "PYTHONPATH": path, "APOINT_TEST_FOLDER": str(folder)},
    )
    try:
        wait_for(lambda: len(list(folder.glob("*.json"))) == 2)
        yield process, mark
    finally:
        end(mark)
        process.wait()


@pytest.mark.parametrize("in_thread", [False, True], ids=["kernel", "pipe"])
def test_workers_that_still_import_leave_with_their_parent(tmp_path: Path, in_thread: bool) -> None:
    """The kernel ends only workers that the main thread started; others must watch their pipe."""
    with workers_that_import(tmp_path, in_thread) as (process, mark):
        process.kill()
        wait_for(lambda: not marked(mark))


def test_signals_for_the_parent_end_no_worker_that_starts(tmp_path: Path) -> None:
    """As when a terminal is closed, or a batch queue warns all processes of a job."""
    with workers_that_import(tmp_path) as (process, mark):
        for path in tmp_path.glob("*.json"):
            at_first, later, fatal = json.loads(path.read_text())
            assert set(at_first) >= FOR_THE_PARENT, "blocked from the first instruction"
            assert later == []
            assert not FOR_THE_PARENT & set(fatal)
        workers = {int(path.stem) for path in tmp_path.glob("*.json")}
        (tracker,) = set(marked(mark)) - {process.pid} - workers
        assert {signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2} <= blocked_in(tracker)


@pytest.mark.parametrize("attempt", range(8))
def test_a_parent_that_is_killed_while_workers_start_leaves_nothing_behind(attempt: int) -> None:
    mark = secrets.token_hex(8)
    process = CONTEXT.Process(target=hold_a_pool, args=(mark,))
    process.start()
    try:
        wait_for(lambda: marked(mark))
        time.sleep(random.Random(attempt).uniform(0.0, 0.15 * 2**attempt / 8))
        process.kill()
        process.join()
        wait_for(lambda: not marked(mark))
    finally:
        process.kill()
        end(mark)


def test_a_worker_ties_itself_to_its_parent_before_anything_heavy_is_imported() -> None:
    heavy = ["torch", "numpy", "scipy", "pydantic", "yaml", "apoint.engine", "apoint.data"]
    code = f"import sys, apoint.child; print([name for name in {heavy!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
