"""States: what a run says of itself, and what is true."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from apoint.errors import DivergedError, StorageError, UsageError
from apoint.store import Run, RunWriter
from apoint.store import status as status_module
from apoint.store import writer as writer_module
from apoint.store.status import is_alive, lease, process_start, resolve

linux = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="asks /proc")


def running(**changes: Any) -> dict[str, Any]:
    return {"state": "running", **lease(), "heartbeat": time.time(), **changes}


def test_a_living_process_with_a_heartbeat_is_running() -> None:
    assert resolve(running()) == "running"
    assert resolve(running(heartbeat=time.time() - 299)) == "running"


def test_without_a_heartbeat_for_five_minutes_it_is_stalled() -> None:
    assert resolve(running(heartbeat=time.time() - 301)) == "stalled"
    assert resolve(running(heartbeat=time.time() + 86400)) == "running"  # a clock that was put back


@linux
def test_a_reused_pid_is_not_the_run() -> None:
    assert resolve(running(pid_start=process_start(os.getpid()))) == "running"
    assert resolve(running(pid_start=1)) == "dead"
    assert resolve(running(pid_start=None)) == "running"  # where it was not known, the pid must do


def test_after_a_restart_of_the_machine_it_is_dead() -> None:
    assert resolve(running(boot_id="another")) == "dead"


def test_another_machine_is_judged_by_its_heartbeat_alone() -> None:
    elsewhere = {"host": "elsewhere", "boot_id": "another", "pid": 2**22 + 1}
    assert resolve(running(**elsewhere)) == "running"
    assert resolve(running(**elsewhere, heartbeat=time.time() - 301)) == "stalled"


@pytest.mark.parametrize("state", ["finished", "interrupted", "failed", "diverged"])
def test_an_ending_is_believed(state: str) -> None:
    assert resolve(running(state=state, pid=2**22 + 1, heartbeat=0)) == state


@pytest.mark.parametrize("odd", [{}, {"state": 3}, {"state": None}])
def test_a_status_without_a_state_is_unknown(odd: dict[str, Any]) -> None:
    assert resolve(odd) == "unknown"


@pytest.mark.parametrize("pid", [-1, 0, "12", None, 10**30])
def test_an_odd_pid_harms_nothing(pid: Any) -> None:
    assert resolve(running(pid=pid)) == ("dead" if pid == 10**30 else "running")


CHILD = """
import sys, time
from apoint.store import RunWriter
writer = RunWriter.create(sys.argv[1], "name: child", "name: child", {})
print("ready", flush=True)
time.sleep(60)
"""


@linux
def test_a_killed_process_is_seen_as_dead(tmp_path: Path) -> None:
    folder = tmp_path / "child-0000-s0"
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        run = Run(folder)
        assert run.state == "running"
        assert run.status["pid"] == child.pid
        child.send_signal(signal.SIGSTOP)
        assert run.state == "running"
        child.kill()
        deadline = time.monotonic() + 5
        while is_alive(child.pid, None) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert run.state == "dead"  # a zombie now, since nobody has waited for it
    assert run.state == "dead"
    with RunWriter.open(folder):
        assert run.state == "running"


def test_without_proc_signal_zero_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module.os.path, "isdir", lambda path: False)
    assert is_alive(os.getpid(), None) is True
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert is_alive(child.pid, None) is False
    monkeypatch.setattr(status_module.sys, "platform", "win32")
    assert is_alive(os.getpid(), None) is None


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt"),
        (SystemExit(143), "interrupted", "143"),
        (DivergedError("loss became NaN\nat step 3"), "diverged", "loss became NaN"),
        (ZeroDivisionError("division by zero"), "failed", "ZeroDivisionError: division by zero"),
    ],
)
def test_leaving_with_an_error_records_how_it_ended(
    tmp_path: Path, error: BaseException, state: str, reason: str
) -> None:
    folder = tmp_path / "a-0000-s0"
    with pytest.raises(type(error)), RunWriter.create(folder, "", "", {}):
        raise error
    assert (Run(folder).state, Run(folder).status["reason"]) == (state, reason)


def test_only_the_word_finished_means_finished(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "a", "", "", {}):
        pass
    assert Run(tmp_path / "a").state == "interrupted"
    with RunWriter.open(tmp_path / "a") as writer:
        writer.status("finished", step=5, total_steps=5)
    assert Run(tmp_path / "a").state == "finished"
    with (
        RunWriter.create(tmp_path / "b", "", "", {}) as writer,
        pytest.raises(UsageError, match="state must"),
    ):
        writer.status("done")


def test_a_resumed_run_keeps_when_it_began_and_takes_over_the_lease(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "a", "", "", {}) as writer:
        writer.status("running", step=3, total_steps=9)
    began = Run(tmp_path / "a").status["started"]
    with RunWriter.open(tmp_path / "a"):
        status = Run(tmp_path / "a").status
    assert status["started"] == began
    assert (status["step"], status["total_steps"], status["pid"]) == (3, 9, os.getpid())
    assert status["resumed"] >= began


def test_an_ending_that_could_not_be_written_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [OSError(errno.EIO, "broken")]
    real = os.replace

    def replace(*names: str) -> None:
        if refusals and "status" in str(names[0]):
            raise refusals.pop()
        real(*names)

    folder = tmp_path / "a"
    writer = RunWriter.create(folder, "", "", {})
    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(StorageError, match="input/output error"), writer:
        writer.status("running", step=7)
    assert Run(folder).state == "failed"
    assert "input/output error" in Run(folder).status["reason"]


def test_a_seal_says_how_a_run_ended_though_its_status_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.replace

    def replace(*names: str) -> None:
        if "status" in str(names[0]):
            raise OSError(errno.EIO, "broken")
        real(*names)

    writer = RunWriter.create(tmp_path / "a", "", "", {})
    monkeypatch.setattr(os, "replace", replace)
    with writer:
        writer.status("finished", step=3)
    assert Run(tmp_path / "a").status["state"] == "running"
    assert Run(tmp_path / "a").state == "finished"


def test_a_result_that_cannot_be_sealed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def replace(*names: str) -> None:
        if "seal" in str(names[0]):
            raise OSError(errno.ENOSPC, "full")
        real(*names)

    writer = RunWriter.create(tmp_path / "a", "", "", {})
    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(StorageError, match="the disk is full"), writer:
        writer.status("finished", step=3)
    assert Run(tmp_path / "a").state == "failed"


def test_a_heartbeat_that_fails_is_noted_and_forgotten_when_one_succeeds(
    writer: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.monotonic()
    monkeypatch.setattr(writer_module.time, "monotonic", lambda: clock)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *names: (_ for _ in ()).throw(OSError(errno.EROFS, "")))
        clock += 10
        writer.heartbeat(1)
    assert "read-only" in str(writer.trouble)
    clock += 10
    writer.heartbeat(2)
    assert writer.trouble is None
    assert Run(writer.folder).status["step"] == 2


def test_heartbeats_are_written_every_few_seconds_only(
    writer: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.monotonic()
    monkeypatch.setattr(writer_module.time, "monotonic", lambda: clock)
    writer.status("running")
    first = Run(writer.folder).status["heartbeat"]
    clock += 4.9
    writer.heartbeat(step=4)
    assert Run(writer.folder).status["heartbeat"] == first
    clock += 0.2
    writer.heartbeat(step=5, total_steps=10)
    status = Run(writer.folder).status
    assert status["heartbeat"] > first
    assert (status["step"], status["total_steps"], status["state"]) == (5, 10, "running")
    clock += 60
    writer.heartbeat()
    assert Run(writer.folder).status["step"] == 5
