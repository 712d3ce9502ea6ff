"""The backend `ray`: groups of replicas as tasks on a Ray cluster that is there already.

Every group is one Ray task with one CPU, and `work` is what it does. What it reports goes to a mailbox, a
small actor beside whoever started the fleet; the answer to each report says whether to save and leave. Ray
tries nothing again by itself: a task whose process or machine is gone is reported as lost, and the fleet
submits its group once more.

How run folders come back is found out by each task:

- It sees the folder of runs: there is a marker in it with a random name and content. Then it writes there.
- It does not. Then it trains in a temporary folder and sends the run folder as it is after each checkpoint
  and at the end, as a tar of plain files, which is unpacked beside its place and renamed. While a run folder
  comes in, the process that receives it holds its lock and its status names that process. A group that is
  submitted again takes the folders along as they were last sent, and so goes on from the last checkpoint.

What the machines of the cluster need: the same apoint, torch and numpy (checked), and the data, at the same
`data_root` or wherever datasets are looked for there. Files of the user's, those that the recipe names and
those that register ingredients, are sent along by content; modules that were imported by name must be
installed there.

Whether the cluster asks for authentication is tried, not asked: a process without a token makes a harmless
request at the address given. If it is answered, the cluster is open to anyone who reaches it. Only this
address is tried; that every machine of the cluster is as careful, and that nobody listens on the way, is not
known here. Beyond Ray's documented interface this uses its client for the cluster's head, its switch for
messages and its functions that find a local cluster and read the authentication mode anew.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import io
import logging
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
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import numpy
import torch

from apoint.data.loading import Kept
from apoint.engine import custom, environment
from apoint.engine.api import set_aside
from apoint.engine.fleet.backend import (
    Event,
    GroupBegun,
    GroupBusy,
    GroupEnded,
    GroupLeft,
    GroupLost,
    GroupRefused,
    MemberEnded,
    Report,
    Said,
    Stepped,
)
from apoint.engine.fleet.pool import registered_by
from apoint.engine.fleet.task import Group, silent
from apoint.engine.fleet.work import train_group
from apoint.errors import ApointError, StorageError, UsageError
from apoint.store import Run, RunWriter, storage_errors, strict_json, sync_folder, write_atomically
from apoint.store.layout import LOCK, STATUS, is_run_folder
from apoint.store.lock import FileLock
from apoint.store.status import is_alive, lease, read_status

REACH_SECONDS = 5.0
KNOCK_SECONDS = 20.0
COUNT_SECONDS = 5.0
STOP_SECONDS = 10.0
Letter = tuple[int, str, tuple[Any, ...], dict[str, bytes]]  # ticket, event, its fields, run folders
_EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}
_ENDINGS = (GroupEnded, GroupBusy, GroupRefused, GroupLeft, GroupLost)
_LET_IN, _REFUSED = 10, 11
_KNOCK = f"""
import sys
from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
from ray.exceptions import AuthenticationError
try:
    ensure_token_if_auth_enabled(None, create_token_if_missing=False)
    if sys.argv[2] == "ray":
        import grpc
        from ray._private.grpc_utils import init_grpc_channel
        from ray.core.generated import ray_client_pb2, ray_client_pb2_grpc
        stub = ray_client_pb2_grpc.RayletDriverStub(init_grpc_channel(sys.argv[1]))
        kind = ray_client_pb2.ClusterInfoType.PING
        try:
            stub.ClusterInfo(ray_client_pb2.ClusterInfoRequest(type=kind), timeout=10)
        except grpc.RpcError as error:
            sys.exit({_REFUSED} if error.code() is grpc.StatusCode.UNAUTHENTICATED else 1)
    else:
        from ray._raylet import GcsClient
        GcsClient(address=sys.argv[1]).internal_kv_keys(b"", b"session", timeout=10)
except AuthenticationError:
    sys.exit({_REFUSED})
sys.exit({_LET_IN})
"""


# -- the fleet's side --------------------------------------------------------------------------------------


class RayBackend:
    """Trains groups on a Ray cluster.

    Args:
        address: Of the cluster: `10.0.0.5:6379` on one of its machines, `ray://10.0.0.5:10001` from
            elsewhere, `auto` for one that runs on this machine.
        files: Python files of the user's that register ingredients.
        workers: At most so many groups at a time; by default as many as the cluster has CPUs.
        shared: Whether the cluster's machines see the folder of runs under the same path; by default each
            task finds out.
        allow_open_cluster: Use a cluster without authentication too.
    """

    catches_signals = False

    def __init__(
        self,
        address: str | None = None,
        files: Sequence[str] = (),
        workers: int | None = None,
        *,
        shared: bool | None = None,
        allow_open_cluster: bool = False,
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UsageError("the backend ray needs Ray; install it with pip install 'apoint[ray]'")
        if not address:
            raise UsageError(
                "the backend ray needs the address of a cluster that runs: --address auto for one on this "
                "machine, 10.0.0.5:6379 on one of its machines, ray://10.0.0.5:10001 from elsewhere"
            )
        self.capacity = workers or 1
        self._files, self._workers, self._shared = tuple(files), workers, shared
        self._connection = Connection(address, allow_open_cluster)
        self._report: Report = silent
        self._running: dict[int, _Running] = {}  # by ticket: a group's number may come again
        self._ticket = 0
        self._markers: dict[Path, str] = {}
        self._ray: Any = None
        self._mailbox: Any = None
        self._train: Any = None
        self._leaving = False
        self._counted_at = 0.0

    def start(self, report: Report) -> None:
        """See `Backend`; connects when it is called first, or first after `stop`."""
        self._report, self._leaving = report, False
        if self._ray is not None:
            self._mailbox.leave.remote(False)
            return
        self._ray = ray = self._connection.open()
        try:
            self._count(at_first=True)
        except BaseException:
            self.stop()
            raise
        here = ray.get_runtime_context().get_node_id()
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        mailbox = ray.remote(num_cpus=0, max_concurrency=1000, scheduling_strategy=affinity)(_mailbox())
        self._mailbox = mailbox.remote()
        self._train = ray.remote(num_cpus=1, max_retries=0)(_train())

    def submit(self, group: Group) -> None:
        """See `Backend`."""
        group = _absolute(group)
        job, parcels = self._job(group), {}
        if self._shared is not True:
            parcels = {name: pack(path) for name, path in _present(group).items()}
        self._ticket += 1
        self._running[self._ticket] = self._ask(lambda: self._send(job, parcels))

    def _send(self, job: Job, parcels: dict[str, bytes]) -> _Running:
        contents = [
            self._ray.put(job),
            self._ray.put(parcels),
        ]  # what is in a list is fetched when it is used
        train = self._train.options(name=f"apoint group {job.group.number}")
        return _Running(job.group, train.remote(self._mailbox, self._ticket, _programs(), contents), contents)

    def _job(self, group: Group) -> Job:
        root = group.options.root
        if root not in self._markers:
            self._markers[root] = _leave_marker(root)
        marker = "" if self._shared is False else self._markers[root]
        files, modules = registered_by(group)
        paths = dict.fromkeys((*self._files, *files))
        data = os.environ.get("APOINT_DATA", "")
        return Job(
            group=group,
            shared=self._shared is True,
            marker=marker,
            folder=os.getcwd(),
            data=str(Path(data).expanduser().absolute()) if data else "",
            named=_named_files(group),
            files=tuple((Path(path).name, Path(path).read_bytes()) for path in paths),
            modules=modules,
            processor=environment.processor(),
        )

    def wait(self, seconds: float) -> None:
        """Read the mailbox, and see which tasks are gone."""
        self._read(seconds)
        self._count()
        refs = {running.ref: ticket for ticket, running in self._running.items()}
        if not refs:
            return
        gone, _ = self._ask(lambda: self._ray.wait(list(refs), num_returns=len(refs), timeout=0))
        if gone:
            self._read(0.0)  # what they reported comes first
        for ref in gone:
            if refs[ref] in self._running:
                self._close(refs[ref], self._last_word(self._running[refs[ref]]))

    def _read(self, seconds: float) -> None:
        letters = self._ask(lambda: self._ray.get(self._mailbox.take.remote(seconds)))
        for letter in letters:
            self._hear(letter)

    def _ask(self, call: Callable[[], Any]) -> Any:
        """What Ray answers; where the cluster is gone, Ray would start one here."""
        try:
            if not self._ray.is_initialized():
                raise ConnectionError
            return call()
        except Exception as error:  # Ray has many for this, plain ones among them
            raise ApointError(
                f"the Ray cluster at {self._connection.address} does not answer any more; what was trained "
                "is kept, and the same command goes on from there"
            ) from error

    def _hear(self, letter: Letter) -> None:
        ticket, kind, fields, parcels = letter
        running = self._running.get(ticket)
        if running is None:  # it was given up, and is still at it
            return
        event = _EVENTS[kind](*fields)
        try:
            for name, content in parcels.items():
                running.receive(name, content, durable=not isinstance(event, Stepped))
        except _TakenError:
            self._close(ticket, GroupBusy(running.group.number))
            return
        match event:
            case GroupBegun():
                running.begun = True
            case MemberEnded(_, member):
                running.end(member)
            case GroupLeft() if self._leaving:
                event = GroupLeft(event.group)
        if isinstance(event, _ENDINGS):
            self._close(ticket, event)
        else:
            self._report(event)

    def _last_word(self, running: _Running) -> Event:
        """What to report of a task that is gone and has not said how its group ended."""
        number, exceptions = running.group.number, self._ray.exceptions
        try:
            refusal = self._ray.get(running.ref)
        except exceptions.RayError as error:
            if self._leaving and isinstance(error, exceptions.TaskCancelledError):
                return GroupLeft(number)
            return GroupLost(number, _manner_of_loss(error, exceptions))
        if refusal:
            return GroupRefused(number, refusal)
        return GroupLost(number, "left without a word")

    def _close(self, ticket: int, event: Event) -> None:
        """A group is not in training any more; if it is after all, out of reach, it shall leave."""
        running = self._running.pop(ticket)
        if isinstance(event, GroupLost | GroupBusy):
            self._mailbox.dismiss.remote(ticket)
        if isinstance(event, GroupEnded) and running.group.place is not None:
            shutil.rmtree(running.group.place, ignore_errors=True)
        running.let_go(getattr(event, "reason", "its group was stopped"), isinstance(event, GroupLost))
        self._report(event)

    def _count(self, at_first: bool = False) -> None:
        """Take the capacity from the cluster, now and then: machines come and go."""
        if not at_first and time.monotonic() - self._counted_at < COUNT_SECONDS:
            return
        self._counted_at = time.monotonic()
        number = int(self._ask(self._ray.cluster_resources).get("CPU", 0))
        if at_first:
            if number == 0:
                raise UsageError(f"the Ray cluster at {self._connection.address} has no CPU to train on")
            cpus = f"{number} CPU{'s' * (number > 1)}"
            self._report(Said(f"fleet: the Ray cluster at {self._connection.address} has {cpus}"))
        self.capacity = max(1, min(number, self._workers or number))

    def interrupt(self) -> None:
        """See `Backend`; a group that has not begun is called off."""
        self._leaving = True
        if self._ray is None or not self._ray.is_initialized():
            return
        self._mailbox.leave.remote(True)
        for running in self._running.values():
            if not running.begun:
                self._ray.cancel(running.ref, force=False, recursive=False)

    def stop(self) -> None:
        """See `Backend`; with the connection ends whatever Ray still has of it."""
        if self._ray is None:
            return
        refs = [running.ref for running in self._running.values()]
        if refs and self._ray.is_initialized():
            with contextlib.suppress(Exception):  # the cluster may be gone
                for ref in refs:
                    self._ray.cancel(ref, force=True, recursive=False)
                self._ray.wait(refs, num_returns=len(refs), timeout=STOP_SECONDS)
        self._ray = self._mailbox = self._train = None
        self._connection.close()
        for running in self._running.values():
            running.let_go("the fleet was stopped", True)
        self._running.clear()
        for root, marker in self._markers.items():
            (root / marker).unlink(missing_ok=True)
        self._markers.clear()


class _TakenError(Exception):
    """A run folder that comes in is being written by another process here."""


@dataclass
class _Running:
    """A group that was submitted, and its run folders here, as far as they were sent."""

    group: Group
    ref: Any
    contents: list[Any]  # Ray keeps what was sent only as long as somebody here refers to it
    begun: bool = False
    ended: set[int] = field(default_factory=set)
    locks: dict[str, FileLock] = field(default_factory=dict)

    def receive(self, name: str, content: bytes, durable: bool = True) -> None:
        """Put a folder that was sent in its place, under our lock, in place of what was sent before."""
        assert name in _folders(self.group), f"{name} is not a folder of the group"
        place = self.group.options.root / name
        arriving, leaving = (place.with_name(f".{place.name}.{way}") for way in ("arriving", "leaving"))
        for leftover in (arriving, leaving):
            shutil.rmtree(leftover, ignore_errors=True)
        unpack(content, arriving, durable)
        lock = _adopt(arriving) if is_run_folder(arriving) else None
        with storage_errors(place):
            if place.exists():
                self._claim(name, place)
                place.rename(leaving)
            arriving.rename(place)
            sync_folder(place.parent)
            shutil.rmtree(leaving, ignore_errors=True)
        self._release(name)
        if lock is not None:
            self.locks[name] = lock

    def _claim(self, name: str, place: Path) -> None:
        """Make sure that nobody else writes into a folder that is to be replaced."""
        if name in self.locks or not is_run_folder(place):
            return
        try:
            self.locks[name] = FileLock(place / LOCK)
        except UsageError:
            raise _TakenError from None

    def _release(self, name: str) -> None:
        if name in self.locks:
            self.locks.pop(name).release()

    def end(self, member: int) -> None:
        """A member has ended: its record is complete."""
        self.ended.add(member)
        self._release(self.group.tasks[member].folder(self.group.options.root).name)

    def let_go(self, reason: str, was_trained: bool) -> None:
        """Nobody trains the members any more: let the records of those that have not ended say so.

        Args:
            reason: Why.
            was_trained: Whether they were in training until now; if not, only what was sent here is ours.
        """
        sent = list(self.locks)
        for name in sent:
            self._release(name)
        for member, task in enumerate(self.group.tasks):
            folder = task.folder(self.group.options.root)
            ours = folder.name in sent or (was_trained and self.begun)
            if ours and member not in self.ended and is_run_folder(folder) and Run(folder).state == "running":
                with contextlib.suppress(ApointError):  # somebody trains it after all
                    settle(folder, reason)


def _adopt(folder: Path) -> FileLock:
    """Lock a run folder that came from elsewhere, and let its status name this process as its writer."""
    status = read_status(folder / STATUS)
    if status.get("state") == "running":
        write_atomically(folder / STATUS, strict_json({**status, **lease()}, indented=True) + "\n")
    return FileLock(folder / LOCK)


def settle(folder: Path, reason: str) -> None:
    """Let the record of a run that nobody trains any more say so."""
    if is_run_folder(folder) and read_status(folder / STATUS).get("state") == "running":
        with RunWriter.open(folder) as writer:
            writer.status("interrupted", reason=reason)


def _absolute(group: Group) -> Group:
    """The group with paths that mean the same everywhere."""
    options = group.options
    data = Path(options.data_root).expanduser().absolute() if options.data_root is not None else None
    place = group.place.absolute() if group.place is not None else None
    return replace(
        group, options=replace(options, runs_root=options.root.absolute(), data_root=data), place=place
    )


def _folders(group: Group, members: Iterable[int] | None = None) -> dict[str, Path]:
    """The folders that training a group makes, by their names below the folder of runs."""
    root = group.options.root
    chosen = range(len(group.tasks)) if members is None else members
    paths = [group.tasks[member].folder(root) for member in chosen]
    paths += [group.place] if group.place is not None else []
    return {path.relative_to(root).as_posix(): path for path in paths}


def _present(group: Group, members: Iterable[int] | None = None) -> dict[str, Path]:
    return {name: path for name, path in _folders(group, members).items() if path.is_dir()}


def _leave_marker(root: Path) -> str:
    """Write a file that nobody could know of who does not see this very folder; its name is its content."""
    name = f".ray-{secrets.token_hex(16)}"
    with storage_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return name


def _named_files(group: Group) -> dict[str, bytes]:
    """The user's files that the recipe names, as it names them, with their content."""
    task = group.tasks[0]
    names = custom.named_files(task.recipe.canonical())
    return {name: custom.find(name, task.document.folder).read_bytes() for name in names}


def _manner_of_loss(error: Exception, exceptions: Any) -> str:
    """How a task was lost, as the end of a sentence."""
    ways = {"WorkerCrashedError": "was killed", "NodeDiedError": "was lost with its machine"}
    ways["OutOfMemoryError"] = "was killed because its machine ran out of memory"
    for name, words in ways.items():
        if isinstance(error, getattr(exceptions, name, ())):
            return words
    cause = getattr(error, "cause", None) or error
    return f"ended with {type(cause).__name__}: {_first_line(cause)}"


def _first_line(error: BaseException) -> str:
    """What an error says in one line; if that announces a traceback, its last line too."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]


def _mailbox() -> type:
    """The class of the mailbox; made in a function, so that Ray sends it whole: it needs no apoint there."""

    class Mailbox:
        def __init__(self) -> None:
            self._letters: list[Letter] = []
            self._arrived = asyncio.Event()
            self._leaving = False
            self._dismissed: set[int] = set()

        async def put(self, letter: Letter) -> bool:
            """Take a letter in, with folders in place of older ones; whether its sender is to leave."""
            for older in self._letters:
                if older[0] == letter[0]:
                    for name in letter[3]:
                        older[3].pop(name, None)
            self._letters.append(letter)
            self._arrived.set()
            return self._leaving or letter[0] in self._dismissed

        async def take(self, seconds: float) -> list[Letter]:
            """All letters that are there, or those that come first within so many seconds."""
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), seconds)
            self._arrived.clear()
            letters, self._letters = self._letters, []
            return letters

        async def leave(self, leaving: bool) -> None:
            self._leaving = leaving

        async def dismiss(self, ticket: int) -> None:
            self._dismissed.add(ticket)

    return Mailbox


def _train() -> Callable[..., str | None]:
    """What a task runs, made in a function like the mailbox, so that a missing apoint can be told."""

    def train(mailbox: Any, ticket: int, programs: dict[str, str], contents: list[Any]) -> str | None:
        try:
            from apoint.engine.fleet.ray import work
        except ImportError as error:
            return (
                f"{socket.gethostname()}, a machine of the Ray cluster, cannot import apoint as it is here "
                f"({error}); install the same version there"
            )
        return work(mailbox, ticket, programs, contents)

    return train


# -- the way there -----------------------------------------------------------------------------------------


class Connection:
    """The way to a cluster; what Ray changes in this process is put back when it is closed.

    Args:
        address: See `RayBackend`.
        allow_open: Whether the cluster may be one without authentication.
    """

    def __init__(self, address: str, allow_open: bool = False) -> None:
        self.address, self._allow_open = address, allow_open
        self._undo = contextlib.ExitStack()

    def open(self) -> Any:
        """Connect; returns Ray's module.

        Raises:
            UsageError: There is no cluster, or it lets nobody in, or everybody.
        """
        for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_UV_RUN_RUNTIME_ENV"):
            os.environ.setdefault(name, "0")  # no calls home, no copies of folders to the cluster
        ray = importlib.import_module("ray")
        if ray.is_initialized():
            raise UsageError(
                "this process is connected to a Ray cluster already; call ray.shutdown() before training"
            )
        with contextlib.ExitStack() as undo:
            self.address = _find(self.address)
            mode = self._knock()
            undo.callback(_set_authentication, os.environ.get("RAY_AUTH_MODE"))
            _set_authentication(mode)
            undo.enter_context(_without_messages())
            undo.callback(ray.shutdown)
            self._connect(ray)
            self._undo = undo.pop_all()
        importlib.import_module("ray.util.scheduling_strategies")
        return ray

    def close(self) -> None:
        """Leave the cluster; a second time does nothing."""
        self._undo.close()

    def _knock(self) -> str | None:
        """Find out whether the cluster asks for a token, and whether ours is right; gives the mode to use."""
        _reach(self.address)
        stranger = _knock(self.address, {"RAY_AUTH_MODE": "disabled"})
        if stranger == _REFUSED:
            if _knock(self.address, {**_credentials(), "RAY_AUTH_MODE": "token"}) == _LET_IN:
                return "token"
            raise UsageError(
                f"the Ray cluster at {self.address} asks for a token, and there is none here or a wrong one; "
                "set RAY_AUTH_TOKEN to it, or RAY_AUTH_TOKEN_PATH to a file that holds it"
            )
        if self._allow_open:
            return os.environ.get("RAY_AUTH_MODE")
        if stranger == _LET_IN:
            raise UsageError(
                f"the Ray cluster at {self.address} asks for no authentication, so that anyone who reaches "
                "its port can run code on it and change results; start it with RAY_AUTH_MODE=token, or use "
                "it all the same with --allow-open-cluster"
            )
        raise UsageError(
            f"it cannot be told whether the Ray cluster at {self.address} asks for authentication, since it "
            "does not answer as Ray does; correct the address, or, if the cluster is protected in another "
            "way, use --allow-open-cluster"
        )

    def _connect(self, ray: Any) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGTERM) if is_main else None
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:
            elsewhere = "" if "://" in self.address else "; from a machine outside it, use ray://host:10001"
            raise UsageError(
                f"cannot connect to the Ray cluster at {self.address}: {_first_line(error)}{elsewhere}"
            ) from None
        finally:
            if handler is not None:  # Ray puts its own in its place
                signal.signal(signal.SIGTERM, handler)


def _find(address: str) -> str:
    """The address of the cluster on this machine for `auto`; any other as it is."""
    if address == "auto":
        services = importlib.import_module("ray._private.services")
        try:
            address = os.environ.get("RAY_ADDRESS") or services.canonicalize_bootstrap_address("auto") or ""
        except ConnectionError:
            address = ""
        if not address:
            raise UsageError(
                "no Ray cluster runs on this machine; start one with ray start --head, or name the address "
                "of another"
            )
    return address


def _reach(address: str) -> None:
    """Refuse an address that is none, or where nobody answers."""
    parts = urllib.parse.urlsplit(address if "://" in address else f"//{address}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("", "ray") or not parts.hostname or not port:
        raise UsageError(
            f"{address!r} is not the address of a Ray cluster; it is auto, or host:port as in 10.0.0.5:6379, "
            "or ray://host:port"
        )
    try:
        socket.create_connection((parts.hostname, port), REACH_SECONDS).close()
    except OSError as error:
        raise UsageError(
            f"no Ray cluster answers at {address} ({error.strerror or error}); see whether it runs, and "
            "whether this machine may reach it"
        ) from None


def _credentials() -> dict[str, str]:
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    return {name: os.environ[name] for name in names if name in os.environ}


def _knock(address: str, credentials: Mapping[str, str]) -> int | None:
    """Make a harmless request with these credentials only; None if it is neither granted nor refused.

    In a process of its own, because Ray reads credentials once, tries long, and ends a process that it does
    not like; twice, because a busy cluster may be too slow for it.
    """
    names = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
    setting = {name: value for name, value in os.environ.items() if name not in names}
    scheme, _, place = address.rpartition("://")
    command, nothing = [sys.executable, "-c", _KNOCK, place, scheme], subprocess.DEVNULL
    with contextlib.suppress(subprocess.TimeoutExpired):
        for _ in range(2):
            process = subprocess.run(
                command,
                env={**setting, **credentials},
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                timeout=KNOCK_SECONDS,
                check=False,
            )
            if process.returncode in (_LET_IN, _REFUSED):
                return process.returncode
    return None


def _set_authentication(mode: str | None) -> None:
    """Set the mode, and let Ray, which has read the environment when it was imported, read it again."""
    if mode is None:
        os.environ.pop("RAY_AUTH_MODE", None)
    else:
        os.environ["RAY_AUTH_MODE"] = mode
    raylet = importlib.import_module("ray._raylet")
    with contextlib.suppress(AttributeError):
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _without_messages() -> Iterator[None]:
    """Keep Ray from printing what happens on the cluster; the fleet says what matters."""
    worker: Any = importlib.import_module("ray._private.worker")
    before = getattr(worker, "_worker_logs_enabled", True)
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = before


# -- the cluster's side ------------------------------------------------------------------------------------

_KEPT = Kept()  # the data that a worker process of the cluster holds
_THREAD = ThreadPoolExecutor(1)


@dataclass(frozen=True)
class Job:
    """A group to train, and what it needs.

    Attributes:
        group: What to train, with the paths of the machine it comes from.
        shared: Whether the folder of runs is the same on every machine, whatever the marker says.
        marker: A file in the folder of runs by which to know it; empty if it is not the same anywhere.
        folder: Where the fleet was started.
        data: What `$APOINT_DATA` is there.
        named: The files that the recipe names.
        files: Names and contents of files that register ingredients.
        modules: Modules that register ingredients.
        processor: What the fleet's machine computes with.
    """

    group: Group
    shared: bool
    marker: str
    folder: str
    data: str
    named: dict[str, bytes]
    files: tuple[tuple[str, bytes], ...]
    modules: tuple[str, ...]
    processor: str

    @property
    def sees_runs(self) -> bool:
        """Whether this machine sees the folder of runs."""
        if self.shared or not self.marker:
            return self.shared
        try:
            return (self.group.options.root / self.marker).read_text() == self.marker
        except OSError:
            return False


def _programs() -> dict[str, str]:
    """What must be the same on every machine, so that replicas can be compared."""
    return {"code": environment.code_hash(), "torch": torch.__version__, "numpy": numpy.__version__}


def work(mailbox: Any, ticket: int, programs: Mapping[str, str], contents: Sequence[Any]) -> str | None:
    """Train a group in a worker process of the cluster; returns why it is refused, if it is."""
    where = f"{socket.gethostname()}, a machine of the Ray cluster"
    differing = environment.differences(programs, _programs())
    if differing:
        return f"{where}, has other programs: {'; '.join(differing)}; install the same versions there"
    ray = importlib.import_module("ray")
    torch.set_num_threads(1)
    try:
        job: Job = _aside(ray.get, contents[0])
        _prepare(job)
        with _site(job, lambda: _aside(ray.get, contents[1])) as (group, is_private), _deaf():
            post = _Post(ray, mailbox, ticket, group, is_private)
            _tell_of_processor(job, group, where, post)
            train_group(group, post, _KEPT)
    except (ApointError, ImportError, OSError) as error:
        return f"{_first_line(error)} (on {where})"
    return None


def _aside(call: Callable[..., Any], *values: Any) -> Any:
    """Wait for Ray in a thread of its own: a task whose main thread waits lends its CPU to others."""
    return _THREAD.submit(call, *values).result()


class _Post:
    """Sends what a group reports to the mailbox, with the run folders if only this machine sees them."""

    def __init__(self, ray: Any, mailbox: Any, ticket: int, group: Group, is_private: bool) -> None:
        self._ray, self._mailbox, self._ticket = ray, mailbox, ticket
        self._group, self._is_private = group, is_private
        self._open = set(range(len(group.tasks)))
        self._sent = self._saved()

    def __call__(self, event: Event) -> None:
        if isinstance(event, GroupRefused):
            host = socket.gethostname()
            event = replace(event, sentence=f"{event.sentence} (on {host}, a machine of the Ray cluster)")
        letter = (self._ticket, type(event).__name__, astuple(event), self._parcels(event))
        leaving = _aside(lambda: self._ray.get(self._mailbox.put.remote(letter)))
        if leaving and isinstance(event, Stepped):
            signal.raise_signal(signal.SIGTERM)  # the loop listens while it reports steps

    def _parcels(self, event: Event) -> dict[str, bytes]:
        if not self._is_private:
            return {}
        match event:
            case MemberEnded(_, member):
                self._open.discard(member)
                folder = self._group.tasks[member].folder(self._group.options.root)
                return {folder.name: pack(folder)} if folder.is_dir() else {}
            case Stepped() if (saved := self._saved()) != self._sent:
                self._sent = saved
                return self._everything()
            case GroupLeft():
                return self._everything()
        return {}

    def _everything(self) -> dict[str, bytes]:
        return {name: pack(path) for name, path in _present(self._group, sorted(self._open)).items()}

    def _saved(self) -> set[Path]:
        """The checkpoints that there are."""
        found = _present(self._group, sorted(self._open)) if self._is_private else {}
        return {manifest for path in found.values() for manifest in path.rglob("manifest.json")}


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Let the signal that asks for a checkpoint end nothing while no loop listens to it."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _site(job: Job, parcels: Callable[[], Mapping[str, bytes]]) -> Iterator[tuple[Group, bool]]:
    """Where to train: the group with the paths of this machine, and whether only this machine sees them."""
    group = replace(job.group, tasks=_with_own_files(job))
    data = group.options.data_root
    if data is not None and not Path(data).is_dir():
        raise UsageError(f"there is no data folder {data}; every machine of the cluster needs it")
    if job.sees_runs:
        yield group, False
        return
    home = Path(tempfile.mkdtemp(prefix=_prefix(os.getpid())))
    try:
        for name, content in parcels().items():
            unpack(content, home / name)
            settle(home / name, "it goes on elsewhere")
        place = home / group.place.relative_to(group.options.root) if group.place is not None else None
        yield replace(group, options=replace(group.options, runs_root=home), place=place), True
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _prepare(job: Job) -> None:
    """Stand where the fleet was started, if there is such a place; run the user's files."""
    if os.path.isdir(job.folder):
        os.chdir(job.folder)
    if os.path.isdir(job.data):
        os.environ["APOINT_DATA"] = job.data
    for name, content in job.files:
        custom.run_file(_write_files({name: content}) / name)
    for module in job.modules:
        importlib.import_module(module)


def _with_own_files(job: Job) -> tuple[Any, ...]:
    """The tasks, with a recipe's folder that has the files it names: the one there, or one with copies."""
    tasks = job.group.tasks
    folder = tasks[0].document.folder
    if all(_holds(folder / name, content) for name, content in job.named.items()):
        return tasks
    for name in job.named:
        if not _is_inside(name):
            raise UsageError(
                f"the recipe names {name!r}, which is not there with the same content; put the file into the "
                "recipe's folder, from where it is sent along"
            )
    copies = _write_files(job.named)
    return tuple(replace(task, document=replace(task.document, folder=copies)) for task in tasks)


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _write_files(files: Mapping[str, bytes]) -> Path:
    """A folder with these files, which lives as long as this process: imports look it up again."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    folder = _process_folder() / digest.hexdigest()[:16]
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@functools.cache
def _process_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix=_prefix(os.getpid())))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _prefix(pid: int) -> str:
    """How the temporary folders of a process begin; those of processes that were killed are removed first."""
    ours = f"apoint-ray-{socket.gethostname()}-"
    for path in Path(tempfile.gettempdir()).glob(f"{ours}*"):
        owner = path.name.removeprefix(ours).partition("-")[0]
        if owner.isdigit() and is_alive(int(owner), None) is False:
            shutil.rmtree(path, ignore_errors=True)
    return f"{ours}{pid}-"


def _tell_of_processor(job: Job, group: Group, where: str, post: Callable[[Event], None]) -> None:
    """Say that this machine computes otherwise; what was begun on another kind of machine begins anew."""
    here = environment.processor()
    if here != job.processor:
        post(
            Said(
                f"{where}, has another processor ({here}) than this one; replicas trained there have another "
                "key, and are not the same to the bit"
            )
        )
    folders = [task.folder(group.options.root) for task in group.tasks]
    for folder in folders:
        if is_run_folder(folder) and Run(folder).state != "running" and _processor_of(folder) != here:
            set_aside(folder, silent)
            if group.place is not None:
                shutil.rmtree(group.place, ignore_errors=True)


def _processor_of(folder: Path) -> Any:
    key = Run(folder).env.get("key")
    return key.get("processor") if isinstance(key, dict) else None


# -- folders on their way ----------------------------------------------------------------------------------


def pack(folder: Path) -> bytes:
    """The plain files of a folder as a tar; its lock stays."""
    content = io.BytesIO()
    with storage_errors(folder, "read"), tarfile.open(fileobj=content, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if name != LOCK and path.is_file() and not path.is_symlink():
                entry = tarfile.TarInfo(name)
                entry.size = path.stat().st_size
                with path.open("rb") as stream:
                    archive.addfile(entry, stream)
    return content.getvalue()


def unpack(content: bytes, folder: Path, durable: bool = True) -> None:
    """Write the files of a tar into a new folder.

    Args:
        content: The tar.
        folder: Where to write them; must not exist.
        durable: Whether to wait until the disk has them; a checkpoint that is torn is noticed anyway.

    Raises:
        StorageError: There is something in it that is not a plain file inside the folder.
    """
    with storage_errors(folder):
        folder.mkdir(parents=True)
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
                for entry in archive:
                    path = _write_entry(archive, entry, folder)
                    if durable:
                        _sync(path)
        except tarfile.TarError as error:
            raise StorageError(f"what the Ray cluster sent for {folder.name} is damaged: {error}") from None
        sync_folder(folder)


def _write_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> Path:
    stream = archive.extractfile(entry) if entry.isreg() else None
    if stream is None or not _is_inside(entry.name):
        raise StorageError(
            f"what the Ray cluster sent for {folder.name} holds {entry.name!r}, which is no plain file in it"
        )
    path = folder / entry.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with stream, path.open("xb") as target:
        shutil.copyfileobj(stream, target)
    return path


def _sync(path: Path) -> None:
    """Wait until the disk has a file."""
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())


def _is_inside(name: str) -> bool:
    """Whether a file name leads to a place below the folder that it is relative to."""
    path = PurePosixPath(name)
    is_plain = not path.is_absolute() and bool(path.parts) and ".." not in path.parts
    return is_plain and not any(sign in name for sign in "\\:\0")
