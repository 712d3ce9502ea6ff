"""The cluster's side: where a group is trained, and what it sends."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import torch

from apoint.data.loading import DatasetCache
from apoint.engine import custom, environment
from apoint.engine.api import set_aside
from apoint.engine.fleet.backend import Event, GroupLeft, GroupRefused, MemberEnded, Said, Stepped
from apoint.engine.fleet.ray.folders import is_inside, pack, present, settle, unpack
from apoint.engine.fleet.ray.job import Job, own_programs
from apoint.engine.fleet.task import Group, silent
from apoint.engine.fleet.work import train_group
from apoint.errors import ApointError, UsageError, first_line
from apoint.store import Run
from apoint.store.layout import is_run_folder
from apoint.store.status import is_alive

_KEPT = DatasetCache()  # the data that a worker process of the cluster holds
_THREAD = ThreadPoolExecutor(1)


def work(mailbox: Any, ticket: int, programs: Mapping[str, str], contents: Sequence[Any]) -> str | None:
    """Train a group in a worker process of the cluster; return why it is refused, if it is."""
    where = f"{socket.gethostname()}, a machine of the Ray cluster"
    differing = environment.differences(programs, own_programs())
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
            with custom.allowing_code(job.allow_code):
                train_group(group, post, _KEPT)
    except (ApointError, ImportError, OSError) as error:
        return f"{first_line(error)} (on {where})"
    return None


def _aside(call: Callable[..., Any], *values: Any) -> Any:
    """Wait for Ray in a separate thread: a task whose main thread waits lends its CPU to others."""
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
        return {name: pack(path) for name, path in present(self._group, sorted(self._open)).items()}

    def _saved(self) -> set[Path]:
        """The checkpoints that exist."""
        found = present(self._group, sorted(self._open)) if self._is_private else {}
        return {manifest for path in found.values() for manifest in path.rglob("manifest.json")}


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Ignore the signal that requests a checkpoint while no loop listens to it."""
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
            settle(home / name, "it continues elsewhere")
        place = home / group.place.relative_to(group.options.root) if group.place is not None else None
        yield replace(group, options=replace(group.options, runs_root=home), place=place), True
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _prepare(job: Job) -> None:
    """Change to the folder where the fleet was started, if it exists; run the user's files."""
    if os.path.isdir(job.folder):
        os.chdir(job.folder)
    if os.path.isdir(job.data):
        os.environ["APOINT_DATA"] = job.data
    for name, content in job.files:
        custom.run_file(_write_files({name: content}) / name)
    for module in job.modules:
        importlib.import_module(module)


def _with_own_files(job: Job) -> tuple[Any, ...]:
    """The tasks, with a recipe folder that holds the files it names: the existing one, or one with copies."""
    tasks = job.group.tasks
    folder = tasks[0].document.folder
    if all(_holds(folder / name, content) for name, content in job.named.items()):
        return tasks
    for name in job.named:
        if not is_inside(name):
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
    """A folder with these files, which exists as long as this process: imports look it up again."""
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
    """The prefix of a process's temporary folders; those of processes that were killed are removed first."""
    ours = f"apoint-ray-{socket.gethostname()}-"
    for path in Path(tempfile.gettempdir()).glob(f"{ours}*"):
        owner = path.name.removeprefix(ours).partition("-")[0]
        if owner.isdigit() and is_alive(int(owner), None) is False:
            shutil.rmtree(path, ignore_errors=True)
    return f"{ours}{pid}-"


def _tell_of_processor(job: Job, group: Group, where: str, post: Callable[[Event], None]) -> None:
    """Report a different processor; what was begun on another kind of machine starts from scratch."""
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
