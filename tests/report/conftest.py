import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apoint.report import comparison_html
from tests.report.comparisons import CASES, build

Comparison = Callable[[str], Path]


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Syncing matters to a machine that loses power, not to these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """The folder of a comparison by the name of its case; made once, not to be changed."""
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = build(CASES[name], tmp_path_factory.mktemp(name) / "runs")
        return made[name]

    return folder


@pytest.fixture(scope="session")
def page(comparison: Comparison) -> Callable[[str], str]:
    """The report of a case, drawn once."""
    drawn: dict[str, str] = {}

    def html(name: str) -> str:
        if name not in drawn:
            drawn[name] = comparison_html(comparison(name))
        return drawn[name]

    return html
