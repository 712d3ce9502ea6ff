"""Look up what exists already: a replica that has ended under the same key is reused.

The key is the one that training would write: code, data, recipe, seed, versions, threads, device. To
compute it, the data must be read and split, but no model is built; so hundreds of replicas are looked up in
a second or two. Whether a replica was trained alone or in a stack makes no difference for reuse: both agree
to the tolerance of `apoint.engine.stacked`.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apoint.engine import environment
from apoint.engine.api import Options, code_of, set_aside
from apoint.engine.fleet.task import Ended, Outcome, Task, silent
from apoint.engine.replica import load_data, stream_seed
from apoint.errors import StorageError, UsageError
from apoint.store import Run
from apoint.store.layout import LOCK, is_run_folder
from apoint.store.lock import FileLock
from apoint.store.seal import EVIDENCE
from apoint.store.status import lease

STACKED = "arithmetic"  # the part of a key that only runs trained in a stack have


@dataclass(frozen=True)
class RunState:
    """The state of a task's run.

    Attributes:
        state: `new`, `begun`, `busy`, `ended`, `foreign` if its folder has another key, or `damaged` if its
            record is not as it was written, or has no seal although it ended.
        ended: How it ended, if it has.
        differences: How its key differs, if it does; what is wrong with it, if it is damaged.
        stacked: Whether it was trained in a stack; it then cannot resume alone, nor vice versa.
    """

    state: str
    ended: Ended | None = None
    differences: tuple[str, ...] = ()
    stacked: bool = False


def is_begun_alone(standing: RunState) -> bool:
    """Whether a task has a run that can only resume alone."""
    return standing.state == "begun" and not standing.stacked


class Recall:
    """Looks tasks up in the run folders.

    What it finds about data and code is cached for its lifetime: create one per call.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.device = environment.choose_device(options.device)
        self._recipes: dict[int, tuple[str, str]] = {}
        self._data: dict[tuple[str, Path, int], str] = {}

    def key(self, task: Task) -> dict[str, Any]:
        """The key that training the task would write."""
        fingerprint, code = self._recipe(task)
        assert self.options.threads is not None
        threads = self.options.threads
        return environment.key(fingerprint, task.seed, self._fingerprint(task), self.device, threads, code)

    def _recipe(self, task: Task) -> tuple[str, str]:
        place = id(task.recipe)  # the task keeps it alive
        if place not in self._recipes:
            self._recipes[place] = (task.recipe.fingerprint, code_of(task.recipe, task.document.folder))
        return self._recipes[place]

    def _fingerprint(self, task: Task) -> str:
        spec, folder = json.dumps(task.recipe.data, sort_keys=True, default=str), task.document.folder
        place = (spec, folder, stream_seed(task.recipe, task.seed, "split"))
        if place not in self._data:
            data = load_data(task.recipe, task.seed, self.options.data_root, folder)
            self._data[place] = data.fingerprint
        return self._data[place]

    def standing(self, task: Task) -> RunState:
        """Return the state of a task's run."""
        folder = task.folder(self.options.root)
        if not is_run_folder(folder):
            return RunState("new")
        run = Run(folder)
        state = run.state
        if state == "running" and not _was_left_by_us(run):
            return RunState("busy")
        problems = run.problems() or (["it has no seal"] if state in ("unsealed", "unknown") else [])
        if problems:
            return RunState("damaged", differences=tuple(problems))
        before = run.env.get("key")
        if not isinstance(before, dict):
            return RunState("foreign", differences=("there is no key in its env.json",))
        stacked = STACKED in before
        before = {part: value for part, value in before.items() if part != STACKED}
        differing = environment.differences(before, self.key(task))
        if differing:
            return RunState("foreign", differences=tuple(differing))
        if state not in EVIDENCE:
            return RunState("begun", stacked=stacked)
        return RunState("ended", ended_by_record(task, run, cached=True), stacked=stacked)

    def set_aside(self, task: Task, before: RunState) -> None:
        """Rename the folder of a task, so that it can be trained again; nothing is lost.

        The folder's lock is held meanwhile, so that no other process can be training in it. If its state is
        not the same as before, because another process has recreated it, it is left alone.
        """
        folder = task.folder(self.options.root)
        with contextlib.suppress(UsageError, StorageError), FileLock(folder / LOCK):
            if self.standing(task) == before:
                set_aside(folder, silent)


def _was_left_by_us(run: Run) -> bool:
    """Whether this process wrote the run but could not record that it ended, because memory was short."""
    if any(run.status.get(name) != value for name, value in lease().items()):
        return False
    try:
        FileLock(run.folder / LOCK).release()
    except (UsageError, StorageError):
        return False
    return True


def ended_by_record(task: Task, run: Run, cached: bool) -> Ended:
    """How a task ended, according to the seal of its run."""
    seal = run.seal
    assert seal is not None, f"{run.folder} has no seal"
    assert seal.is_evidence, f"{run.folder} is {seal.state}"
    state: Outcome = "finished" if seal.state == "finished" else "diverged"
    return Ended(task, run.folder, state, seal.reason, seal.seconds or 0.0, cached)
