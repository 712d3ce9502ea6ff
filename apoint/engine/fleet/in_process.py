"""The backends `loop` and `stacked`: one group after another, in this process.

The loop is the reference for all other backends: it does what `apoint.train` does, repeatedly.
"""

from __future__ import annotations

import time
from collections import deque

from apoint.data.loading import DatasetCache
from apoint.engine.fleet.backend import GroupLeft, Report
from apoint.engine.fleet.task import Group, silent
from apoint.engine.fleet.work import Stacker, train_group


class InProcessBackend:
    """Trains groups in this process.

    Args:
        kept: The cache of the data that this process holds.
        stacker: Trains several sessions in one computation; by default `apoint.engine.stacked`'s.
    """

    capacity = 1
    catches_signals = True

    def __init__(self, kept: DatasetCache, stacker: Stacker | None = None) -> None:
        self._kept, self._stacker = kept, stacker
        self._report: Report = silent
        self._groups: deque[Group] = deque()

    def start(self, report: Report) -> None:
        """See `Backend`."""
        self._report = report

    def submit(self, group: Group) -> None:
        """See `Backend`."""
        self._groups.append(group)

    def wait(self, seconds: float) -> None:
        """Train a group to its end, if there is one; else wait."""
        if self._groups:
            train_group(self._groups.popleft(), self._report, self._kept, self._stacker)
        else:
            time.sleep(seconds)

    def interrupt(self) -> None:
        """See `Backend`; the group in training receives the signal itself."""
        while self._groups:
            self._report(GroupLeft(self._groups.popleft().number))

    def stop(self) -> None:
        """See `Backend`."""
        self._groups.clear()
