"""Workers die and replicas do not: each is finished exactly once, with the same bits."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from apoint.data.loading import DatasetCache
from apoint.engine import Options
from apoint.engine.fleet import Ended, Fleet, FleetMoment, Task
from apoint.engine.fleet.pool import Member, Pool, describe_exit
from apoint.engine.fleet.worker import Ready
from apoint.engine.signals import TrainingInterruptedError
from apoint.errors import ApointError, FaultError, TrainingError, UsageError
from apoint.store import Run, writer
from tests.engine.fleet.common import TINY, disagreement, ends, tasks_of
from tests.engine.fleet.conftest import Crew

OFTEN = {"checkpoint_every": "5 steps"}


class Killer(threading.Thread):
    """Kills workers of a fleet at random moments, until it has killed so many or is told to end."""

    def __init__(self, fleet: Fleet, kills: int, pause: tuple[float, float], seed: int) -> None:
        super().__init__(daemon=True)
        self.fleet, self.kills, self.pause = fleet, kills, pause
        self.draw, self.killed, self.over = random.Random(seed), 0, threading.Event()

    def run(self) -> None:
        while self.killed < self.kills and not self.over.wait(self.draw.uniform(*self.pause)):
            busy = (
                [m.process.pid for m in list(self.fleet._pool._members) if m.group]
                if self.fleet._pool
                else []
            )
            if busy:
                os.kill(self.draw.choice(busy), signal.SIGKILL)
                self.killed += 1


def killing(
    fleet: Fleet, tasks: list[Task], kills: int, pause: tuple[float, float]
) -> tuple[list[Ended], int]:
    """Train tasks while workers are killed; each must be told to have ended once."""
    counts: dict[Path, int] = {}

    def count(ended: Ended) -> None:
        counts[ended.folder] = counts.get(ended.folder, 0) + 1

    killer = Killer(fleet, kills, pause, seed=7)
    killer.start()
    results = fleet.train(tasks, on_end=count)
    killer.over.set()
    killer.join()
    assert set(counts.values()) == {1}
    assert len(counts) == len(tasks)
    return results, killer.killed


def check(results: list[Ended], undisturbed: list[Ended]) -> None:
    for ended, twin in zip(results, undisturbed, strict=True):
        assert (ended.state, ended.reason) == ("finished", "")
        assert ends(ended.folder).count("finished") == 1
        assert disagreement(ended.folder, twin.folder, events=False) == ""


ONCE = """
import os
from pathlib import Path
from torch import nn

HERE = Path(__file__).parent


class Net(nn.Linear):
    def __init__(self, in_features, num_classes):
        super().__init__(in_features, num_classes)

    def forward(self, x):
        if self.training and (HERE / "sign").exists():
            (HERE / "sign").unlink()
            (HERE / "failed").write_text(str(os.getpid()))
            raise {error}
        with (HERE / "processes").open("a") as stream:
            stream.write(f"{{os.getpid()}} ")
        return super().forward(x.flatten(1))
"""


@pytest.mark.parametrize("error", ["MemoryError", "KeyboardInterrupt"])
def test_a_worker_that_was_short_of_memory_or_left_is_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], error: str
) -> None:
    """What took the memory may be the process itself, so that trying again there would not help."""
    (tmp_path / "net.py").write_text(ONCE.format(error=error))
    tasks = tasks_of({**TINY, "model": {"file": str(tmp_path / "net.py"), "class": "Net"}}, range(3))
    with Fleet(Options(runs_root=tmp_path / "runs"), "pool", workers=1) as fleet:
        (tmp_path / "sign").touch()
        results = fleet.train(tasks)
    assert {ended.state for ended in results} == {"finished"}
    after = (tmp_path / "processes").read_text().split()
    assert (tmp_path / "failed").read_text() not in after
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("wherever", ["write_seal", "replace_or_overwrite"])
def test_memory_that_never_suffices_for_the_seal_stops_the_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wherever: str
) -> None:
    """The run cannot say that it ended, and whoever tries again must not wait for itself."""
    real = getattr(writer, wherever)

    def fail(place: Path, *arguments: Any, **facts: Any) -> Any:
        if facts or "running" not in arguments[0]:
            raise MemoryError
        return real(place, *arguments)

    monkeypatch.setattr(writer, wherever, fail)
    if wherever == "replace_or_overwrite":
        monkeypatch.setattr(writer, "write_seal", fail)
    with Fleet(Options(runs_root=tmp_path), "loop") as fleet, pytest.raises(FaultError, match="MemoryError"):
        fleet.train(tasks_of(TINY, range(2)))


def test_twelve_replicas_survive_five_kills(crew: Crew, tmp_path: Path) -> None:
    tasks = tasks_of(TINY, range(12), {"epochs": 6})
    with Fleet(Options(runs_root=tmp_path / "loop", **OFTEN), "loop") as fleet:
        undisturbed = fleet.train(tasks)
    results, killed = killing(crew.at(tmp_path / "pool", options=OFTEN), tasks, 5, (0.1, 0.5))
    check(results, undisturbed)
    assert killed == 5


@pytest.mark.slow
def test_two_hundred_replicas_survive_fifty_kills(tmp_path: Path) -> None:
    tasks = tasks_of(TINY, range(200), {"epochs": 10})
    with Fleet(Options(runs_root=tmp_path / "loop", **OFTEN), "loop") as fleet:
        undisturbed = fleet.train(tasks)
    with Fleet(Options(runs_root=tmp_path / "pool", **OFTEN), "pool", workers=2) as fleet:
        results, killed = killing(fleet, tasks, 50, (0.05, 1.0))
    print(f"\n{killed} workers killed over {len(results)} replicas")
    check(results, undisturbed)
    assert killed == 50


DEADLY = """
import os, signal
from torch import nn

class Net(nn.Module):
    def __init__(self, in_features, num_classes, how: str, width: int = 8):
        super().__init__()
        self.layer = nn.Linear(in_features, num_classes)
        self.how, self.steps = how, 0

    def forward(self, x):
        self.steps += 1
        if self.training and self.steps == 8:
            if self.how == "memory":
                os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory is short
            raise ValueError("the eighth step is not for me")
        return self.layer(x.flatten(1))
"""


def deadly(folder: Path, how: str, seed: int = 0) -> Task:
    (folder / "net.py").write_text(DEADLY)
    recipe = {**TINY, "name": how, "model": {"file": str(folder / "net.py"), "class": "Net", "how": how}}
    (task,) = tasks_of(recipe, [seed])
    return task


def test_a_replica_that_kills_its_process_is_a_fault_and_no_evidence(crew: Crew, tmp_path: Path) -> None:
    tasks = [deadly(tmp_path, "memory"), *tasks_of(TINY, (0, 1, 2))]
    ended: list[Ended] = []
    sentence = (
        r"^memory-\w+-s0 could not be trained: its process died 3 times; the last one was ended by SIGKILL, "
        r"perhaps because the machine ran out of memory\. This is a fault of the machine, and nothing"
    )
    with pytest.raises(FaultError, match=sentence):
        crew.at(tmp_path / "runs", options=OFTEN).train(tasks, ended.append)
    assert [one.state for one in ended] == ["finished"] * 3, "the others come first"
    folder = tasks[0].folder(tmp_path / "runs")
    assert Run(folder).state == "dead"
    started = [event["kind"] for event in Run(folder).events if event["kind"] in ("start", "resume")]
    assert started == ["start", "resume", "resume"], "it goes on from its checkpoint each time"


def test_an_exception_in_the_users_code_is_an_error_and_no_evidence(crew: Crew, tmp_path: Path) -> None:
    sentence = (
        r"(?s)^error-\w+-s0 raised an exception: ValueError: the eighth step is not for me"
        r'.*net\.py", line \d+, in forward.*raise ValueError'
    )
    with pytest.raises(TrainingError, match=sentence):
        crew.at(tmp_path / "runs", options=OFTEN).train([deadly(tmp_path, "error")])
    run = Run(deadly(tmp_path, "error").folder(tmp_path / "runs"))
    assert (run.state, run.status["reason"]) == ("failed", "ValueError: the eighth step is not for me")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "was ended by SIGKILL, perhaps because the machine ran out of memory"),
        (-11, "was ended by SIGSEGV"),
        (-200, "was ended by signal 200"),
        (7, "left with code 7"),
    ],
)
def test_how_a_process_ended_in_words(code: int, words: str) -> None:
    assert describe_exit(code) == words


class Ghost:
    """A worker that is not there any more, or has something to say."""

    pid, exitcode = 0, -9

    def join(self, seconds: float = 0.0) -> None: ...
    def close(self) -> None: ...


def test_workers_that_never_start_are_no_endless_loop() -> None:
    pool = Pool(2, DatasetCache())
    for attempt in range(5):
        member = Member(Ghost(), Ghost())  # type: ignore[arg-type]
        pool._members.append(member)
        if attempt < 4:
            pool._on_worker_exit(member)
            continue
        with pytest.raises(
            ApointError, match="no worker process could be started: the last one was ended by"
        ):
            pool._on_worker_exit(member)


def test_workers_with_other_code_are_not_used() -> None:
    with pytest.raises(UsageError, match="code has changed since this process began"):
        Pool(2, DatasetCache())._on_worker_ready(Member(Ghost(), Ghost()), Ready("another"))  # type: ignore[arg-type]


PARENT = """
import sys
from apoint.engine import Options
from apoint.engine.fleet import Fleet
from tests.engine.fleet.common import TINY, tasks_of

def on(moment):
    print(moment.running, *fleet.processes, flush=True)

fleet = Fleet(Options(runs_root=sys.argv[1]), "pool", workers=int(sys.argv[2]), watch=on)
with fleet:
    fleet.train(tasks_of(TINY, range(4), {"epochs": 100000}))
"""  # at the top level, with no guard: workers must not run it again


@contextmanager
def parent(root: Path, workers: int) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process with a pool in training, and its workers."""
    command = [sys.executable, "-c", PARENT, str(root), str(workers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids: list[int] = []
        for line in process.stdout:
            running, *pids = map(int, line.split())
            if running == workers:
                break
        try:
            yield process, pids
        finally:
            process.kill()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_no_worker_outlives_a_killed_parent(tmp_path: Path) -> None:
    with parent(tmp_path, 2) as (process, workers):
        assert len(workers) == 2
        assert all(alive(pid) for pid in workers)
        assert len({os.getsid(pid) for pid in [*workers, process.pid]}) == 3, "each has a session of its own"
        process.kill()
        deadline = time.monotonic() + 60
        while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(alive(pid) for pid in workers)


def test_a_pool_that_is_asked_to_stop_saves_and_leaves(tmp_path: Path) -> None:
    with parent(tmp_path, 1) as (process, (worker,)):
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 1
    assert "stopped with 0 of 4 replicas done; checkpoints of the others are saved" in errors
    assert not alive(worker)
    (run,) = (Run(folder) for folder in tmp_path.iterdir())
    assert run.state == "interrupted"
    assert list((run.folder / "checkpoints").glob("step-*"))


def test_a_loop_that_is_asked_to_stop_saves_and_leaves(tmp_path: Path) -> None:
    def ask(moment: FleetMoment) -> None:
        if 0.05 < moment.progress < 0.9:
            os.kill(os.getpid(), signal.SIGTERM)

    tasks = tasks_of(TINY, range(3), {"epochs": 1000})  # long enough that one is seen in training
    with pytest.raises(TrainingInterruptedError, match="of 3 replicas done") as error:
        Fleet(Options(runs_root=tmp_path), "loop", watch=ask).train(tasks)
    assert error.value.exit_code == 143
    states = sorted(Run(folder).state for folder in tmp_path.iterdir())
    assert states.count("interrupted") == 1
    assert len(states) < 3
    results = Fleet(Options(runs_root=tmp_path), "loop").train(tasks)
    assert [ends(ended.folder).count("finished") for ended in results] == [1, 1, 1]
