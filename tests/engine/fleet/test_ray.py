"""The backend ray on a real cluster of two CPUs on this machine: same bits, lost workers, closed doors."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import io
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.data.loading import DatasetCache
from apoint.engine import Options, environment
from apoint.engine.fleet import Fleet, Group, Task
from apoint.engine.fleet.backend import Backend, Event, GroupLost, Stepped
from apoint.engine.fleet.dispatch import Dispatch, Listener
from apoint.engine.fleet.in_process import InProcessBackend
from apoint.engine.fleet.ray import RayBackend, connection, site
from apoint.engine.fleet.ray import backend as backend_module
from apoint.engine.fleet.ray.arriving import Running, TakenError
from apoint.engine.fleet.ray.folders import pack, unpack
from apoint.engine.fleet.ray.job import Job
from apoint.engine.signals import StopRequest
from apoint.errors import StorageError, UsageError
from apoint.recipe import load_recipe
from apoint.store import Run, RunWriter, checkpoint_folders
from apoint.store.layout import LOCK, is_run_folder
from apoint.store.lock import FileLock
from tests.engine.fleet.common import DIVERGING, TINY, disagreement, ends, tasks_of

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
NAMES = ("mlp-dropout", "cnn-batch-norm-augmentation")
SLOW = """
import os, pathlib, time, torch
from torch import nn
MEETING = pathlib.Path(__file__).with_name("meeting")
def meet():
    # while there is a folder for it, nobody goes on before two have come, however slowly processes start
    deadline = time.monotonic() + 60
    if MEETING.is_dir():
        (MEETING / str(os.getpid())).touch()
        while len(list(MEETING.glob("*"))) == 1 and time.monotonic() < deadline:
            time.sleep(0.01)
class Slow(nn.Sequential):
    def __init__(self, in_features, num_classes):
        layers = nn.Linear(in_features, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, num_classes)
        super().__init__(nn.Flatten(), *layers)
    def forward(self, x):
        if self.training:
            meet()
            time.sleep(0.004)  # long enough to be killed in, however fast the machine
        return super().forward(x)
"""
OFTEN = {"checkpoint_every": "20 steps"}
RAY = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # no cluster outlives the tests, however these end
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit("too late")
from ray.scripts.scripts import main
main()
"""


# -- clusters ----------------------------------------------------------------------------------------------


class Node:
    """A machine of a Ray cluster: `ray start` with all its processes in a session of their own."""

    def __init__(self, *arguments: str, token: str = "", cpus: int = 2, loopback: bool = False) -> None:
        self.temporary = Path(tempfile.mkdtemp(prefix="apoint-"))  # short: sockets are in it
        ports = [f"--{name}-port={free_port()}" for name in ("dashboard-agent-listen", "metrics-export")]
        sizes = [f"--num-cpus={cpus}", "--object-store-memory=80000000"]
        with (self.temporary / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RAY, str(os.getpid()), "start", "--block", *arguments, *ports, *sizes],
                env={
                    **os.environ,
                    **authentication(token),
                    "RAY_USAGE_STATS_ENABLED": "0",
                    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": str(int(not loopback)),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @classmethod
    def head(cls, token: str = "", cpus: int = 2, loopback: bool = False, port: int = 0) -> Node:
        folder = tempfile.mkdtemp(prefix="apoint-")
        client = f"--ray-client-server-port={free_port()}"
        node = cls(
            "--head",
            f"--port={port}",
            client,
            "--include-dashboard=false",
            f"--temp-dir={folder}",
            token=token,
            cpus=cpus,
            loopback=loopback,
        )
        node.client = f"ray://{{}}:{client.partition('=')[2]}"
        node.folder = folder
        return node

    client, folder = "", ""

    @property
    def address(self) -> str:
        """Where the head is, once it is there."""
        log = self.temporary / "log"
        wait_for(lambda: "--address='" in log.read_text() or self.process.poll() is not None, 90)
        text = log.read_text()
        assert "--address='" in text, text
        return text.split("--address='")[1].split("'")[0]

    def pids(self) -> list[int]:
        """All processes of the node that live: those of its session."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
                if int(session) == self.process.pid and state != "Z":
                    found.append(int(path.parent.name))
        return found

    def kill(self) -> None:
        """As when a machine loses its power."""
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.process.poll() is None:
                self.process.wait(10)
            time.sleep(0.05)
        self.process.wait(10)

    def remove(self) -> None:
        self.kill()
        for folder in filter(None, (self.temporary, self.folder)):
            shutil.rmtree(folder, ignore_errors=True)


def authentication(token: str) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token" if token else "disabled", "RAY_AUTH_TOKEN": token}


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("", 0))
        return int(place.getsockname()[1])


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def token() -> Iterator[str]:
    """The cluster's token, which this process has in its environment."""
    before = dict(os.environ)
    token = secrets.token_hex(32)
    os.environ["RAY_AUTH_TOKEN"] = token
    os.environ.pop("RAY_AUTH_MODE", None)
    yield token
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def heads(token: str) -> Iterator[tuple[Node, Node]]:
    """A cluster that asks for a token, and one that asks for nothing."""
    both = Node.head(token), Node.head(cpus=0)
    yield both
    for node in both:
        node.remove()
        assert not node.pids()


@pytest.fixture(scope="module")
def backend(heads: tuple[Node, Node]) -> Iterator[RayBackend]:
    """One connection for many tests: each has worker processes of its own, which have to import torch."""
    backend = RayBackend(heads[0].address)
    yield backend
    backend.stop()


# -- training ----------------------------------------------------------------------------------------------


class Heard(Listener):
    """What was told, and how often."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.endings: Counter[int] = Counter()
        self.states: list[tuple[str, str]] = []
        self.sentences: list[str] = []

    def ended(self, task: Task) -> None:
        self.endings[task.seed] += 1
        seal = Run(task.folder(self.root)).seal
        assert seal is not None
        self.states.append((seal.state, seal.reason))

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


def train(
    backend: Backend,
    tasks: list[Task],
    root: Path,
    watch: Callable[[Event], None] = lambda event: None,
    stop: StopRequest | None = None,
    **options: Any,
) -> Heard:
    """Train tasks, one to a group, as a fleet does."""
    heard = Heard(root)
    settings = Options(runs_root=root, threads=1, **options)
    groups = [Group(number, (task,), settings) for number, task in enumerate(tasks, 1)]
    dispatch = Dispatch(backend, groups, [], heard, lambda tasks: tasks)
    hear = dispatch._hear

    def overhear(event: Event) -> None:
        watch(event)
        hear(event)

    dispatch._hear = overhear  # type: ignore[method-assign]
    dispatch.run(StopRequest() if stop is None else stop)
    return heard


def named(epochs: int = 2) -> list[Task]:
    return [task for name in NAMES for task in tasks_of(name, (3, 4), {"epochs": epochs})]


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the loop makes of the same replicas."""
    root = tmp_path_factory.mktemp("loop")
    train(InProcessBackend(DatasetCache()), [*named(), *long_ones()], root)
    return root


def long_ones() -> list[Task]:
    return slow_ones(range(2), 30)


def slow_ones(seeds: Iterable[int], epochs: int) -> list[Task]:
    """Replicas of a model that takes its time: ten steps an epoch, four milliseconds a step and more."""
    recipe, document = load_recipe({**TINY, "model": {"file": "slow.py", "class": "Slow"}, "epochs": epochs})
    return [Task(recipe, replace(document, folder=slow_folder()), seed) for seed in seeds]


@functools.cache
def slow_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="apoint-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "slow.py").write_text(SLOW)
    return folder


def worker_pids(head: Node, group: int | str = "") -> list[int]:
    """The processes that train groups, or the one that trains a group."""
    found = []
    for pid in head.pids():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(f"ray::apoint group {group}".encode()):
                found.append(pid)
    return found


SHARED = pytest.mark.parametrize("shared", [None, False], ids=["shared", "not shared"])


def leftovers(root: Path) -> list[str]:
    """What lies beside the run folders, the marker of the backend apart."""
    return [path.name for path in root.iterdir() if path.name.startswith(".") and path.is_dir()]


@SHARED
def test_the_same_bits_as_the_loop(
    backend: RayBackend, loop: Path, tmp_path: Path, shared: bool | None
) -> None:
    backend._shared = shared
    heard = train(backend, named(), tmp_path)
    assert heard.states == [("finished", "")] * 4
    assert backend.capacity == 2
    for task in named():
        here, there = task.folder(tmp_path), task.folder(loop)
        assert ends(here) == ["finished"]
        assert disagreement(here, there) == ""
        files = {path.relative_to(here) for path in here.rglob("*")}
        assert files == {path.relative_to(there) for path in there.rglob("*")}
    assert leftovers(tmp_path) == []


def look_at_record(folder: Path, is_ours: bool) -> None:
    """While a replica trains elsewhere, its record is that of a run, and whoever writes it here holds it."""
    if is_run_folder(folder) and Run(folder).state == "running":
        assert (Run(folder).status["pid"] == os.getpid()) == is_ours
        if is_ours:
            with pytest.raises(UsageError, match="is being written by process"):
                FileLock(folder / LOCK)


@SHARED
def test_a_killed_worker_goes_on_from_its_last_checkpoint(
    backend: RayBackend, heads: tuple[Node, Node], loop: Path, tmp_path: Path, shared: bool | None, capfd: Any
) -> None:
    backend._shared = shared
    first, tasks = long_ones()[0], [long_ones()[0], *tasks_of(TINY, range(1, 4))]
    killed: list[int] = []
    seen: list[Event] = []

    def kill(event: Event) -> None:
        seen.append(event)
        look_at_record(first.folder(tmp_path), is_ours=shared is False)
        if checkpoint_folders(first.folder(tmp_path)) and not killed:
            killed.extend(worker_pids(heads[0], 1))
            os.kill(killed[0], signal.SIGKILL)

    heard = train(backend, tasks, tmp_path, kill, **OFTEN)
    assert len(killed) == 1
    assert heard.endings == dict.fromkeys(range(4), 1)
    lost = [event for event in seen if isinstance(event, GroupLost)]
    assert lost == [GroupLost(1, "was killed")]
    (said,) = [sentence for sentence in heard.sentences if "worker of" in sentence]
    assert said.startswith(f"fleet: the worker of {first.folder(tmp_path).name} was killed (Ray task ")
    (resumed,) = [event for event in Run(first.folder(tmp_path)).events if event["kind"] == "resume"]
    assert resumed["step"] > 0
    for task in tasks:
        FileLock(task.folder(tmp_path) / LOCK).release()
        assert ends(task.folder(tmp_path)) == ["finished"]
    assert disagreement(first.folder(tmp_path), first.folder(loop), events=False) == ""
    assert leftovers(tmp_path) == []
    assert capfd.readouterr() == ("", "")


@SHARED
def test_an_interrupted_fleet_leaves_checkpoints_and_goes_on(
    backend: RayBackend, loop: Path, tmp_path: Path, shared: bool | None, monkeypatch: Any
) -> None:
    backend._shared = shared
    monkeypatch.setattr(backend_module, "COUNT_SECONDS", 1e9)
    backend.capacity = 3  # so that one group waits for a processor
    waiting = tasks_of(TINY, [7])
    stop, begun = StopRequest(), set()

    def interrupt(event: Event) -> None:
        if isinstance(event, Stepped):
            begun.add(event.group)
        if len(begun) == 2:
            stop.signal_number = signal.SIGINT

    meeting = slow_folder() / "meeting"
    meeting.mkdir()
    heard = train(backend, [*long_ones(), *waiting], tmp_path, interrupt, stop)
    shutil.rmtree(meeting)
    assert heard.states == []
    assert not waiting[0].folder(tmp_path).exists()
    runs = [Run(task.folder(tmp_path)) for task in long_ones()]
    assert [run.state for run in runs] == ["interrupted"] * 2
    backend.capacity = 2
    train(backend, long_ones(), tmp_path)
    for task, run in zip(long_ones(), runs, strict=True):
        assert [event["kind"] for event in run.events if event["kind"] in ("start", "resume")] == [
            "start",
            "resume",
        ]
        assert disagreement(run.folder, task.folder(loop), events=False) == ""


def test_a_stack_goes_on_from_its_last_checkpoint(
    backend: RayBackend, heads: tuple[Node, Node], tmp_path: Path
) -> None:
    backend._shared = False
    tasks = tuple(tasks_of(TINY, range(3), {"epochs": 200}))
    killed: list[int] = []

    def train_stack(backend: Backend, root: Path) -> Heard:
        options = Options(runs_root=root, threads=1, **OFTEN)
        heard = Heard(root)
        group = Group(1, tasks, options, root / ".stacks" / "a")
        Dispatch(backend, [group], [], heard, lambda tasks: tasks).run(StopRequest())
        return heard

    def kill() -> None:
        wait_for(lambda: checkpoint_folders(tmp_path / "ray" / ".stacks" / "a"))
        killed.extend(worker_pids(heads[0]))
        os.kill(killed[0], signal.SIGKILL)

    train_stack(InProcessBackend(DatasetCache()), tmp_path / "loop")
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    heard = train_stack(backend, tmp_path / "ray")
    killer.join()
    assert len(killed) == 1
    assert heard.endings == {0: 1, 1: 1, 2: 1}
    assert any(sentence.startswith("going on from step") for sentence in heard.sentences)
    assert not list(tmp_path.glob("ray/.stacks/*"))
    for task in tasks:
        here, there = task.folder(tmp_path / "ray"), task.folder(tmp_path / "loop")
        assert disagreement(here, there, events=False) == ""


def test_a_fleet_trains_on_ray(backend: RayBackend, tmp_path: Path) -> None:
    said: list[str] = []
    fleet = Fleet(Options(runs_root=tmp_path), "ray", say=said.append, address="elsewhere:1")
    fleet._cluster = backend
    backend._shared = None
    assert [ended.cached for ended in fleet.train(tasks_of(TINY, range(2)))] == [False, False]
    assert [ended.cached for ended in fleet.train(tasks_of(TINY, range(3)))] == [True, True, False]
    assert said[0].startswith("fleet: ray")


def test_another_kind_of_machine_begins_anew(tmp_path: Path, monkeypatch: Any) -> None:
    group = replace(finished(tmp_path), place=tmp_path / "stack")
    (tmp_path / "stack").mkdir()
    folder = group.tasks[0].folder(tmp_path)
    told: list[Any] = []
    site._tell_of_processor(job_of(group, processor=environment.processor()), group, "there", told.append)
    assert folder.exists()
    assert told == []
    monkeypatch.setattr(environment, "processor", lambda: "abacus")
    site._tell_of_processor(job_of(group, processor="slide rule"), group, "there", told.append)
    assert not folder.exists()
    assert folder.with_name(f"{folder.name}.old-1").exists()
    assert not (tmp_path / "stack").exists()
    assert "another processor (abacus)" in told[0].sentence


def test_a_divergence_comes_back(backend: RayBackend, tmp_path: Path) -> None:
    backend._shared = False
    tasks = tasks_of(TINY, [0], DIVERGING)
    ((state, reason),) = train(backend, tasks, tmp_path).states
    assert state == "diverged"
    assert Run(tasks[0].folder(tmp_path)).status["reason"] == reason != ""


def test_what_is_wrong_there_is_said_here(backend: RayBackend, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"no data folder .*nowhere.* \(on .*, a machine of the Ray cluster\)"
    ):
        train(backend, tasks_of(TINY, [0]), tmp_path, data_root=tmp_path / "nowhere")


def test_other_programs_are_refused(backend: RayBackend, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(backend_module, "own_programs", lambda: {"torch": "1.0"})
    with pytest.raises(
        UsageError, match=r"has other programs: .*torch was '1\.0' and is .*; install the same"
    ):
        train(backend, tasks_of(TINY, [0]), tmp_path)


def test_a_model_of_the_users_is_sent_along(backend: RayBackend, tmp_path: Path) -> None:
    backend._shared = False
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Sequential):\n"
        "    def __init__(self, in_features, num_classes):\n"
        "        super().__init__(torch.nn.Flatten(), torch.nn.Linear(in_features, num_classes))\n"
    )
    values = {**TINY, "model": {"file": "net.py", "class": "Net"}}
    recipe, document = load_recipe(values)
    tasks = [Task(recipe, replace(document, folder=tmp_path), 0)]
    train(InProcessBackend(DatasetCache()), tasks, tmp_path / "loop")
    train(backend, tasks, tmp_path / "ray")
    assert disagreement(tasks[0].folder(tmp_path / "loop"), tasks[0].folder(tmp_path / "ray")) == ""


def test_a_second_connection_is_refused(backend: RayBackend, heads: tuple[Node, Node]) -> None:
    backend.start(lambda event: None)
    with pytest.raises(UsageError, match="connected to a Ray cluster already"):
        RayBackend(heads[0].address).start(lambda event: None)


def test_ray_leaves_the_signals_alone(backend: RayBackend) -> None:
    backend.start(lambda event: None)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


# -- doors -------------------------------------------------------------------------------------------------


def sentence_of(address: str, **settings: Any) -> str:
    """Why a cluster is refused."""
    connection = RayBackend(address, **settings)._connection
    with pytest.raises(UsageError) as caught:
        connection._knock()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_an_open_cluster_is_refused_unless_it_is_allowed(heads: tuple[Node, Node]) -> None:
    address = heads[1].address
    text = sentence_of(address)
    assert "anyone who reaches its port can run code" in text
    assert "RAY_AUTH_MODE=token" in text
    assert "--allow-open-cluster" in text
    assert connection.Connection(address, allow_open=True)._knock() == os.environ.get("RAY_AUTH_MODE")


def test_a_closed_cluster_asks_for_its_token(
    heads: tuple[Node, Node], tmp_path: Path, monkeypatch: Any
) -> None:
    address = heads[0].address
    monkeypatch.setenv("RAY_AUTH_TOKEN", "f" * 64)
    assert "asks for a token" in sentence_of(address)
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray looks for a token there
    assert "set RAY_AUTH_TOKEN" in sentence_of(address)


def test_the_door_for_clients_is_tried_too(heads: tuple[Node, Node], monkeypatch: Any) -> None:
    closed, opened = (node.client.format(node.address.split(":")[0]) for node in heads)
    assert connection.Connection(closed)._knock() == "token"
    assert "asks for no authentication" in sentence_of(opened)


@pytest.mark.parametrize("address", [None, ""])
def test_a_missing_address(address: str | None) -> None:
    with pytest.raises(UsageError, match="needs the address of a cluster that runs: --address auto"):
        RayBackend(address)


@pytest.mark.parametrize(
    "address", ["local", "host", "host:", "host:port", "http://host:80", ":6379", "a:99999"]
)
def test_what_is_not_an_address(address: str) -> None:
    assert "is not the address of a Ray cluster" in sentence_of(address)


def test_an_address_where_nobody_answers() -> None:
    assert "no Ray cluster answers at" in sentence_of(f"127.0.0.1:{free_port()}")
    assert "no Ray cluster answers at" in sentence_of("no-such-host.invalid:6379")


def test_an_address_where_something_else_answers(monkeypatch: Any) -> None:
    monkeypatch.setattr(connection, "KNOCK_SECONDS", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = sentence_of(f"127.0.0.1:{server.getsockname()[1]}")
    assert "cannot be told whether" in text


def test_a_request_that_takes_too_long_is_made_once_more(monkeypatch: Any) -> None:
    """A single time-out used to end the attempts."""
    answers = [subprocess.TimeoutExpired("knock", 1), subprocess.CompletedProcess([], connection._LET_IN)]

    def run(*_: Any, **__: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(connection.subprocess, "run", run)
    assert connection._knock("127.0.0.1:6379", {}) == connection._LET_IN


def test_no_cluster_on_this_machine(monkeypatch: Any) -> None:
    def nothing(address: str, folder: None) -> str:
        raise ConnectionError("nothing")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray._private.services.get_ray_address_from_environment", nothing)
    with pytest.raises(UsageError, match="no Ray cluster runs on this machine"):
        connection._find("auto")


def test_auto_is_the_cluster_that_ray_finds(monkeypatch: Any) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    assert connection._find("auto") == "127.0.0.1:6379"
    assert connection._find("10.0.0.5:6379") == "10.0.0.5:6379"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_cluster_at_loopback_alone_is_told_from_others(host: str, monkeypatch: Any) -> None:
    def is_only_at_loopback(own: str, address: str) -> bool:
        monkeypatch.setattr("ray._private.services.get_node_ip_address", lambda: own)
        return connection._is_only_at_loopback(address)

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_only_at_loopback("127.0.0.2", f"{host}:{port}"), "nobody listens at 127.0.0.2"
        assert not is_only_at_loopback("127.0.0.1", f"{host}:{port}")
        assert not is_only_at_loopback("127.0.0.2", f"127.0.0.3:{port}"), "Ray leaves this address alone"
        assert not is_only_at_loopback("127.0.0.2", f"ray://{host}:{port}")


def test_ray_is_missing(monkeypatch: Any) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'apoint\[ray\]'"):
        RayBackend("auto")


# -- folders on their way ----------------------------------------------------------------------------------

PARTS = st.text("abcxyz-_.0", min_size=1, max_size=6).filter(lambda part: part.strip("."))


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(st.lists(PARTS, min_size=1, max_size=3).map(tuple), st.binary(max_size=2000), max_size=6)
)
def test_a_folder_comes_out_as_it_went_in(files: dict[tuple[str, ...], bytes]) -> None:
    names = {"/".join(parts) for parts in files}
    if any(other.startswith(f"{name}/") for name in names for other in names) or "lock" in names:
        return  # a file cannot be a folder too; the lock stays
    with tempfile.TemporaryDirectory() as place:
        for parts, content in files.items():
            path = Path(place, "one", *parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        unpack(pack(Path(place, "one")), Path(place, "two"))
        found = {path for path in Path(place, "two").rglob("*") if path.is_file()}
        assert {path.relative_to(Path(place, "two")).parts: path.read_bytes() for path in found} == files


def test_locks_and_links_stay(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "lock").write_text("1")
    (folder / "plain").write_text("2")
    (folder / "link").symlink_to("/etc/hostname")
    unpack(pack(folder), tmp_path / "two")
    assert [path.name for path in (tmp_path / "two").iterdir()] == ["plain"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("/absolute", tarfile.REGTYPE),
        ("../outside", tarfile.REGTYPE),
        ("a/../../outside", tarfile.REGTYPE),
        ("a\\b", tarfile.REGTYPE),
        ("link", tarfile.SYMTYPE),
        ("link", tarfile.LNKTYPE),
        ("pipe", tarfile.FIFOTYPE),
        ("device", tarfile.CHRTYPE),
        ("folder", tarfile.DIRTYPE),
    ],
)
def test_nothing_but_plain_files_is_unpacked(tmp_path: Path, name: str, kind: bytes) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, "/etc/hostname"
        archive.addfile(entry)
    with pytest.raises(StorageError, match="which is no plain file in it"):
        unpack(content.getvalue(), tmp_path / "in" / "here")
    assert not [path for path in tmp_path.rglob("*") if not path.is_dir()]


def test_damage_on_the_way_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is damaged"):
        unpack(b"no tar" * 1000, tmp_path / "here")


def finished(root: Path) -> Group:
    """A group of one whose run folder is there."""
    tasks = tasks_of(TINY, [0], {"epochs": 1})
    train(InProcessBackend(DatasetCache()), tasks, root)
    return Group(1, tuple(tasks), Options(runs_root=root, threads=1))


def test_a_folder_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    group = finished(tmp_path)
    folder = group.tasks[0].folder(tmp_path)
    content = pack(folder)
    (folder / "mine").write_text("here before")
    running = Running(group, None, [])
    with FileLock(folder / LOCK), pytest.raises(TakenError):
        running.receive(folder.name, content)
    assert (folder / "mine").exists()
    running.receive(folder.name, content)
    assert not (folder / "mine").exists()
    assert Run(folder).state == "finished"
    with pytest.raises(AssertionError):
        running.receive("elsewhere", content)


def job_of(group: Group, **changes: Any) -> Job:
    return replace(Job(group, False, "", "", "", {}, (), (), ""), **changes)


def test_the_record_of_what_was_sent_says_that_it_is_not_in_training_any_more(tmp_path: Path) -> None:
    group = finished(tmp_path)
    folder = group.tasks[0].folder(tmp_path)
    (folder / "seal.json").unlink()
    with RunWriter.open(folder):
        content = pack(folder)
    running = Running(group, None, [])
    running.let_go("nothing of ours", was_trained=False)
    assert Run(folder).status["reason"] != "nothing of ours"
    running.receive(folder.name, content)
    assert Run(folder).state == "running"
    running.let_go("it was refused", was_trained=False)
    assert (Run(folder).state, Run(folder).status["reason"]) == ("interrupted", "it was refused")


def test_a_task_knows_the_folder_of_runs_by_its_marker(tmp_path: Path) -> None:
    group = Group(1, (), Options(runs_root=tmp_path))
    marker = backend_module._leave_marker(tmp_path)
    assert job_of(group, marker=marker).sees_runs
    assert not job_of(group, marker="").sees_runs
    assert job_of(group, shared=True).sees_runs
    (tmp_path / marker).write_text("something else")
    assert not job_of(group, marker=marker).sees_runs
    (tmp_path / marker).unlink()
    assert not job_of(group, marker=marker).sees_runs


def test_files_that_a_recipe_names_are_written_where_they_are_missing(tmp_path: Path) -> None:
    group = finished(tmp_path)
    there = tmp_path / "there"
    away = replace(
        group, tasks=tuple(replace(t, document=replace(t.document, folder=there)) for t in group.tasks)
    )
    job = job_of(away, named={"parts/net.py": b"x = 1"})
    (task,) = site._with_own_files(job)
    assert (task.document.folder / "parts/net.py").read_bytes() == b"x = 1"
    assert task.document.folder != there
    (there / "parts").mkdir(parents=True)
    (there / "parts/net.py").write_bytes(b"x = 1")
    assert site._with_own_files(job) == away.tasks
    with pytest.raises(UsageError, match="put the file into the recipe's folder"):
        site._with_own_files(job_of(away, named={"../net.py": b"x = 1"}))


def test_files_that_register_ingredients_are_run_there(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    text, before = f"value = {secrets.token_hex(8)!r}", set(sys.modules)
    site._prepare(job_of(finished(tmp_path), files=(("own.py", text.encode()),), folder="/no/such/place"))
    (name,) = [name for name in set(sys.modules) - before if name.startswith("apoint_user_own_")]
    assert sys.modules.pop(name).value == text.split("'")[1]


def test_folders_of_processes_that_were_killed_are_removed() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    prefix = f"apoint-ray-{socket.gethostname()}"
    stale = Path(tempfile.mkdtemp(prefix=f"{prefix}-{process.pid}-"))
    ours = Path(tempfile.mkdtemp(prefix=f"{prefix}-{os.getpid()}-"))
    assert site._prefix(3) == f"{prefix}-3-"
    assert not stale.exists()
    assert ours.exists()
    ours.rmdir()


# -- longer ones -------------------------------------------------------------------------------------------


@pytest.mark.slow
@SHARED
def test_a_lost_node(
    backend: RayBackend, heads: tuple[Node, Node], token: str, tmp_path: Path, shared: bool | None, capfd: Any
) -> None:
    """A machine with two of four groups loses its power; its replicas go on elsewhere."""
    backend._shared = shared
    second = Node(f"--address={heads[0].address}", token=token)
    tasks = slow_ones(range(4), 150)
    seen: list[Event] = []
    gone: list[float] = []

    def lose(event: Event) -> None:
        seen.append(event)
        saved = [task for task in tasks if checkpoint_folders(task.folder(tmp_path))]
        if len(saved) == 4 and not gone and worker_pids(second):
            gone.append(time.monotonic())
            second.kill()

    try:
        backend.start(lambda event: None)
        wait_for(lambda: backend._ray.cluster_resources()["CPU"] == 4)
        backend._counted_at = 0.0
        heard = train(backend, tasks, tmp_path, lose, **OFTEN)
    finally:
        second.remove()
    assert gone
    assert heard.endings == dict.fromkeys(range(4), 1)
    assert {event.reason for event in seen if isinstance(event, GroupLost)} == {"was lost with its machine"}
    resumed = [task for task in tasks if "resume" in {e["kind"] for e in Run(task.folder(tmp_path)).events}]
    assert len(resumed) == sum(isinstance(event, GroupLost) for event in seen) > 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:{}", "localhost:{}", "auto"])
def test_a_cluster_for_this_machine_alone(loopback: int, token: str, tmp_path: Path, address: str) -> None:
    """Its machine has another address for others, where nobody answers."""
    code = (
        "from tests.engine.fleet.test_ray import *\n"
        f"backend = RayBackend({address.format(loopback)!r})\n"
        f"train(backend, tasks_of(TINY, [0]), Path({str(tmp_path)!r}))\n"
        "backend.stop()\n"
    )
    setting = {"RAY_AUTH_TOKEN": token, "RAY_ADDRESS": f"127.0.0.1:{loopback}" if address == "auto" else ""}
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **setting},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    (task,) = tasks_of(TINY, [0])
    assert Run(task.folder(tmp_path)).state == "finished"


@pytest.fixture(scope="module")
def loopback(token: str) -> Iterator[int]:
    """The port of a cluster that only this machine can reach."""
    port = free_port()
    node = Node.head(token, cpus=1, loopback=True, port=port)
    wait_for(lambda: "Ray runtime started" in (node.temporary / "log").read_text(), 90)
    yield port
    node.remove()


@pytest.mark.slow
def test_nothing_outlives_a_driver_that_is_killed(
    heads: tuple[Node, Node], token: str, tmp_path: Path
) -> None:
    code = (
        "from tests.engine.fleet.test_ray import *\n"
        "tasks = slow_ones(range(2), 10**5)\n"
        f"train(RayBackend({heads[0].address!r}), tasks, Path({str(tmp_path)!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "RAY_AUTH_TOKEN": token})
    wait_for(lambda: len(worker_pids(heads[0])) >= 2 and len(list(tmp_path.glob("tiny*"))) == 2)
    process.kill()
    process.wait()
    wait_for(lambda: not worker_pids(heads[0]), 30)


@pytest.mark.slow
def test_through_the_door_for_clients(heads: tuple[Node, Node], loop: Path, tmp_path: Path) -> None:
    """Another process, since this one has a connection of the other kind."""
    address = heads[0].client.format(heads[0].address.split(":")[0])
    code = (
        "from tests.engine.fleet.test_ray import *\n"
        f"backend = RayBackend({address!r}, shared=False)\n"
        f"train(backend, named(), Path({str(tmp_path)!r}))\n"
        "backend.stop()\n"
    )
    for _ in range(2):  # Ray gives the other side of a client half a minute to start, which may be too little
        answer = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
        )
        if "Starting Ray client server failed" not in answer.stderr:
            break
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout + answer.stderr == ""
    for task in named():
        assert disagreement(task.folder(tmp_path), task.folder(loop)) == ""
