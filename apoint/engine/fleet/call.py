"""One call of `train`: what is reported to the caller, and the result of each task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from apoint.engine.fleet.dispatch import Listener
from apoint.engine.fleet.recall import ended_by_record
from apoint.engine.fleet.tally import Tally
from apoint.engine.fleet.task import Ended, FleetMoment, Task, silent
from apoint.store import Run
from apoint.store.layout import STATUS
from apoint.store.status import read_status, whole

WATCH_SECONDS = 0.25


class Call(Listener):
    """Keeps the results of a call, in any order.

    Args:
        root: Where run folders are.
        say: Called with messages for the user, each once.
        watch: Called with the state of the fleet, at most a few times a second.
        on_end: Called with how a task ended, as soon as it ends.
    """

    def __init__(
        self,
        root: Path,
        say: Callable[[str], None],
        watch: Callable[[FleetMoment], None],
        on_end: Callable[[Ended], None] | None,
    ) -> None:
        self.root, self._say, self._watch, self._on_end = root, say, watch, on_end or silent
        self.results: dict[Path, Ended] = {}
        self.tally = Tally((), 0)
        self._watched_at = 0.0

    def take(self, ended: Ended) -> None:
        """Keep the result of a task that has ended."""
        self.results[ended.folder] = ended
        self._on_end(ended)

    def begin(self, tasks: Sequence[Task]) -> None:
        """Begin with the tasks to train; all others have been taken."""
        self.tally = Tally(tasks, len(self.results))
        for task in tasks:
            self.tally.inherit(task, share_done(task.folder(self.root)))
        self.tick(force=True)

    def weigh(self, seconds: Callable[[Task], float | None]) -> None:
        """Weight replicas by their training time, where known, when estimating the remaining time."""
        self.tally.weigh(seconds)

    def found(self, tasks: Iterable[Task]) -> None:
        """Mark tasks that other processes were training as ended."""
        for task in tasks:
            self.tally.end(task)

    # -- what a dispatch reports ---------------------------------------------------------------------------

    def begun(self, tasks: Iterable[Task]) -> None:
        """See `Listener`."""
        self.tally.begin(tasks)

    def stepped(self, task: Task, step: int, total_steps: int) -> None:
        """See `Listener`."""
        self.tally.step(task, step / total_steps)

    def paused(self, tasks: Iterable[Task]) -> None:
        """See `Listener`."""
        self.tally.pause(tasks)

    def ended(self, task: Task) -> None:
        """See `Listener`."""
        ended = ended_by_record(task, Run(task.folder(self.root)), cached=False)
        self.take(ended)
        self.tally.end(task, failed=ended.state != "finished")
        self.tick()

    def say(self, sentence: str) -> None:
        """See `Listener`."""
        self._say(sentence)

    def tick(self, force: bool = False) -> None:
        """Pass the state of the fleet to `watch`, if it is time."""
        now = time.monotonic()
        if force or now - self._watched_at >= WATCH_SECONDS:
            self._watched_at = now
            self._watch(self.tally.moment())


def share_done(folder: Path) -> float:
    """How far a run has come, from 0 to 1, according to its status."""
    status = read_status(folder / STATUS)
    step, total = whole(status.get("step")), whole(status.get("total_steps"))
    return max(0.0, min(1.0, step / total)) if step is not None and total else 0.0
