"""What a closed terminal and the warnings of a batch queue do to commands: checkpoints, and an exit code."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apoint.engine import checkpoint
from apoint.store import Run

RECIPE = """
name: tiny
data: {name: digits, limit: 160}
model: {name: mlp, width: 16, depth: 1}
optimizer: {name: adamw, lr: 5e-3}
batch_size: 16
epochs: 100000
"""
TRAIN = ("train", "tiny.yaml", "--log-every", "1 step")
COMPARE = ("compare", "tiny.yaml", "--change", "model.width=32", "--looks", "4", "--margin", "0.02")
IMPROVE = ("improve", "tiny.yaml", "--candidate", "model.width=32", "--only-mine", "--budget", "9000h")
TERMINAL = """
import os, pty, select, sys
from pathlib import Path

def training():
    return any(path.stat().st_size for path in Path("runs").glob("*/metrics.jsonl"))

pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
while not training():
    if select.select([terminal], [], [], 0.05)[0]:
        os.read(terminal, 4096)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("APOINT_RUNS", raising=False)
    Path("tiny.yaml").write_text(RECIPE)
    return tmp_path


def begin(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "apoint", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def runs() -> list[Run]:
    return [Run(path.parent) for path in Path("runs").glob("*/env.json")]


def is_training(process: subprocess.Popen[str]) -> bool:
    """Whether some replica has a row in its record."""
    assert process.poll() is None, process.communicate()
    return any(path.stat().st_size for path in Path("runs").glob("*/metrics.jsonl"))


def check_interrupted() -> None:
    assert runs()
    assert {run.state for run in runs()} == {"interrupted"}
    for run in runs():
        saved = checkpoint.newest(run.folder, lambda sentence: None)
        stacked = list(Path("runs", ".stacks").rglob("step-*"))
        assert stacked or (saved is not None and saved.step > 0)


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ((*COMPARE, "--engine", "loop"), signal.SIGUSR1),
        ((*COMPARE, "--engine", "stacked"), signal.SIGUSR2),
        ((*IMPROVE, "--engine", "loop"), signal.SIGXCPU),
    ],
    ids=["compare in a loop", "compare in a stack", "improve"],
)
def test_a_warning_leaves_checkpoints(command: tuple[str, ...], number: int) -> None:
    process = begin(*command)
    wait_for(lambda: is_training(process))
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert "the same command resumes from there" in errors
    check_interrupted()


def test_a_warning_to_all_processes_of_a_job_leaves_checkpoints() -> None:
    """As SLURM does with --signal=USR1@60."""
    process = begin(*COMPARE, "--engine", "pool", "--workers", "2")
    wait_for(lambda: is_training(process))
    for pid in [*children(process.pid), process.pid]:
        os.kill(pid, signal.SIGUSR1)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGUSR1, errors
    check_interrupted()


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    "command",
    [TRAIN, (*COMPARE, "--engine", "pool", "--workers", "2")],
    ids=["train", "compare in processes"],
)
def test_a_closed_terminal_leaves_checkpoints(command: tuple[str, ...]) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", TERMINAL, "-m", "apoint", *command],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    assert answer.stdout.split() == ["129"]
    check_interrupted()


def test_a_closed_terminal_does_not_matter_where_its_signal_is_ignored() -> None:
    """A program that was started with `trap "" HUP`, and shows its progress where nobody reads it."""
    arguments = ["-m", "apoint", "train", "tiny.yaml", "epochs=400", "--log-every", "1 step"]
    code = f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{TERMINAL}"
    subprocess.run([sys.executable, "-c", code, *arguments], timeout=180, check=True)
    assert [run.state for run in runs()] == ["finished"]


def test_a_worker_at_the_limit_of_its_processor_time_stops_the_command() -> None:
    """Each process has the same limit: what one meets is no fault of its replica."""
    process = begin(*COMPARE, "--engine", "pool", "--workers", "1")
    wait_for(lambda: is_training(process))
    for pid in children(process.pid):
        if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGXCPU)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGXCPU, errors
    check_interrupted()
