"""The fleet's side: submit groups as tasks, and handle what they report."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from apoint.engine import custom, environment
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
from apoint.engine.fleet.ray.arriving import Running, TakenError
from apoint.engine.fleet.ray.connection import Connection
from apoint.engine.fleet.ray.folders import pack, present
from apoint.engine.fleet.ray.job import Job, own_programs
from apoint.engine.fleet.ray.mailbox import Letter, mailbox_class, training_function
from apoint.engine.fleet.task import Group, silent
from apoint.errors import ApointError, UsageError, first_line
from apoint.store import storage_errors

COUNT_SECONDS = 5.0
STOP_SECONDS = 10.0
_EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}
_ENDINGS = (GroupEnded, GroupBusy, GroupRefused, GroupLeft, GroupLost)


class RayBackend:
    """Trains groups on a Ray cluster.

    Args:
        address: The cluster's: `10.0.0.5:6379` on one of its machines, `ray://10.0.0.5:10001` from
            elsewhere, `auto` for one that runs on this machine.
        files: The user's Python files that register ingredients.
        workers: The maximum number of groups at a time; by default the number of CPUs in the cluster.
        shared: Whether the cluster's machines see the folder of runs under the same path; by default each
            task finds out.
        allow_open_cluster: Whether to use a cluster even if it has no authentication.
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
        self._running: dict[int, Running] = {}  # by ticket: a group's number may recur
        self._ticket = 0
        self._markers: dict[Path, str] = {}
        self._ray: Any = None
        self._mailbox: Any = None
        self._train: Any = None
        self._leaving = False
        self._counted_at = 0.0

    def start(self, report: Report) -> None:
        """See `Backend`; connects on the first call, or on the first after `stop`."""
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
        mailbox = ray.remote(num_cpus=0, max_concurrency=1000, scheduling_strategy=affinity)(mailbox_class())
        self._mailbox = mailbox.remote()
        self._train = ray.remote(num_cpus=1, max_retries=0)(training_function())

    def submit(self, group: Group) -> None:
        """See `Backend`."""
        group = _absolute(group)
        job, parcels = self._job(group), {}
        if self._shared is not True:
            parcels = {name: pack(path) for name, path in present(group).items()}
        self._ticket += 1
        self._running[self._ticket] = self._ask(lambda: self._send(job, parcels))

    def _send(self, job: Job, parcels: dict[str, bytes]) -> Running:
        contents = [
            self._ray.put(job),
            self._ray.put(parcels),
        ]  # objects in a list are fetched on use
        train = self._train.options(name=f"apoint group {job.group.number}")
        return Running(
            job.group, train.remote(self._mailbox, self._ticket, own_programs(), contents), contents
        )

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
            allow_code=custom.code_is_allowed(),
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
        """Call Ray and return its answer; raise if the cluster is gone, where Ray would start one here."""
        try:
            if not self._ray.is_initialized():
                raise ConnectionError
            return call()
        except Exception as error:  # Ray has many for this, including plain ones
            raise ApointError(
                f"the Ray cluster at {self._connection.address} does not answer any more; what was trained "
                "is kept, and the same command resumes from there"
            ) from error

    def _hear(self, letter: Letter) -> None:
        ticket, kind, fields, parcels = letter
        running = self._running.get(ticket)
        if running is None:  # it was given up, and is still running
            return
        event = _EVENTS[kind](*fields)
        try:
            for name, content in parcels.items():
                running.receive(name, content, durable=not isinstance(event, Stepped))
        except TakenError:
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

    def _last_word(self, running: Running) -> Event:
        """What to report for a task that is gone and has not reported how its group ended."""
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
        """Handle the end of a group's training; a group that still trains, out of reach, is asked to stop."""
        running = self._running.pop(ticket)
        if isinstance(event, GroupLost):
            self._report(Said(f"fleet: the worker of {running.names} {event.reason} (Ray task {ticket})"))
        if isinstance(event, GroupLost | GroupBusy):
            self._mailbox.dismiss.remote(ticket)
        if isinstance(event, GroupEnded) and running.group.place is not None:
            shutil.rmtree(running.group.place, ignore_errors=True)
        running.let_go(getattr(event, "reason", "its group was stopped"), isinstance(event, GroupLost))
        self._report(event)

    def _count(self, at_first: bool = False) -> None:
        """Update the capacity from the cluster from time to time, since machines come and go."""
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
        """See `Backend`; a group that has not begun is cancelled."""
        self._leaving = True
        if self._ray is None or not self._ray.is_initialized():
            return
        self._mailbox.leave.remote(True)
        for running in self._running.values():
            if not running.begun:
                self._ray.cancel(running.ref, force=False, recursive=False)

    def stop(self) -> None:
        """See `Backend`; closing the connection ends anything that Ray still has of it."""
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


def _absolute(group: Group) -> Group:
    """The group with absolute paths, which mean the same everywhere."""
    options = group.options
    data = Path(options.data_root).expanduser().absolute() if options.data_root is not None else None
    place = group.place.absolute() if group.place is not None else None
    return replace(
        group, options=replace(options, runs_root=options.root.absolute(), data_root=data), place=place
    )


def _leave_marker(root: Path) -> str:
    """Write a file that can only be known by seeing this very folder; its content is its name."""
    name = f".ray-{secrets.token_hex(16)}"
    with storage_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return name


def _named_files(group: Group) -> dict[str, bytes]:
    """The user's files that the recipe names, as it names them, with their content."""
    task = group.tasks[0]
    found = custom.own_files(task.recipe.canonical(), task.document.folder)
    return {name: path.read_bytes() for name, path in found.items()}


def _manner_of_loss(error: Exception, exceptions: Any) -> str:
    """How a task was lost, as the end of a sentence."""
    ways = {"WorkerCrashedError": "was killed", "NodeDiedError": "was lost with its machine"}
    ways["OutOfMemoryError"] = "was killed because its machine ran out of memory"
    for name, words in ways.items():
        if isinstance(error, getattr(exceptions, name, ())):
            return words
    cause = getattr(error, "cause", None) or error
    return f"ended with {type(cause).__name__}: {first_line(cause)}"
