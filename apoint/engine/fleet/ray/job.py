"""What a task on the cluster receives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import torch

from apoint.engine import environment
from apoint.engine.fleet.task import Group


@dataclass(frozen=True)
class Job:
    """A group to train, and what it needs.

    Attributes:
        group: What to train, with the paths of the machine it comes from.
        shared: Whether the folder of runs is the same on every machine, regardless of the marker.
        marker: A file that identifies the folder of runs; empty if no other machine has the same folder.
        folder: Where the fleet was started.
        data: The value of `$APOINT_DATA` there.
        named: The files that the recipe names.
        files: Names and contents of files that register ingredients.
        modules: Modules that register ingredients.
        processor: The processor of the fleet's machine.
        allow_code: Whether a recipe in a record may run the files that it names.
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
    allow_code: bool = False

    @property
    def sees_runs(self) -> bool:
        """Whether this machine sees the folder of runs."""
        if self.shared or not self.marker:
            return self.shared
        try:
            return (self.group.options.root / self.marker).read_text() == self.marker
        except OSError:
            return False


def own_programs() -> dict[str, str]:
    """What must be the same on every machine, so that replicas can be compared."""
    return {"code": environment.package_hash(), "torch": torch.__version__, "numpy": numpy.__version__}
