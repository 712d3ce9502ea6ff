from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apoint.data.loading import DatasetCache
from apoint.engine import Options
from apoint.engine.fleet import Ended, Fleet, Task
from apoint.engine.fleet.pool import Pool
from tests.engine.fleet.common import TINY, tasks_of
from tests.engine.harness import RECIPES


class Crew:
    """One pool of two processes for many tests: starting them costs more than what they train here."""

    def __init__(self) -> None:
        self.kept = DatasetCache()
        self.pool = Pool(2, self.kept)

    def at(
        self, root: Path, backend: str = "pool", options: dict[str, Any] | None = None, **rest: Any
    ) -> Fleet:
        """A fleet that trains into `root` with the processes of the crew."""
        fleet = Fleet(Options(runs_root=root, **options or {}), backend, workers=2, **rest)
        fleet._pool, fleet._kept = self.pool, self.kept
        return fleet


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    crew = Crew()
    yield crew
    crew.pool.stop()


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    """Two replicas of each of the harness's recipes and eight tiny ones, trained by the loop."""
    root = tmp_path_factory.mktemp("oracle")
    with Fleet(Options(runs_root=root), "loop") as fleet:
        return fleet.train(everything())


def everything() -> list[Task]:
    named = [task for name in RECIPES for task in tasks_of(name, (3, 4), {"epochs": 2})]
    return [*named, *tasks_of(TINY, range(8))]
