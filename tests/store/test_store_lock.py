"""One writer at a time, and a lock that no dead process holds."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from apoint.errors import UsageError
from apoint.store import RunWriter
from apoint.store.lock import FileLock

fcntl = pytest.importorskip("fcntl")


def test_a_second_writer_is_refused_by_the_pid_of_the_first(writer: RunWriter) -> None:
    with pytest.raises(
        UsageError, match=rf"digits-3f2a1b-s0 is being written by process {os.getpid()}; wait until"
    ):
        RunWriter.open(writer.folder)
    writer.close()
    RunWriter.open(writer.folder).close()


def test_the_lock_is_freed_when_opening_fails(writer: RunWriter) -> None:
    writer.close()
    (writer.folder / "events.jsonl").unlink()
    (writer.folder / "events.jsonl").mkdir()
    with pytest.raises(Exception, match="is a folder"):
        RunWriter.open(writer.folder)
    (writer.folder / "events.jsonl").rmdir()
    RunWriter.open(writer.folder).close()


HOLDER = """
import os, sys, time
from apoint.store.lock import FileLock
from pathlib import Path
lock = FileLock(Path(sys.argv[1]))
if len(sys.argv) > 2 and os.fork() == 0:
    time.sleep(3)  # a worker that outlives its parent
    os._exit(0)
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("worker", [[], ["with a forked worker"]])
def test_a_killed_holder_frees_the_lock(tmp_path: Path, worker: list[str]) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDER, str(path), *worker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=f"process {holder.pid}"):
            FileLock(path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        FileLock(path, wait_seconds=60).release()
        holder.stdout.close()


def test_waiting_for_a_lock_that_is_freed(tmp_path: Path) -> None:
    first = FileLock(tmp_path / "lock")
    threading.Timer(0.1, first.release).start()
    with FileLock(tmp_path / "lock", wait_seconds=5), pytest.raises(UsageError):
        FileLock(tmp_path / "lock", wait_seconds=0.05)
    FileLock(tmp_path / "lock").release()


def test_a_forked_child_does_not_free_its_parents_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(UsageError):
        FileLock(tmp_path / "lock")
    lock.release()
