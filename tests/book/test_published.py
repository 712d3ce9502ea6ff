"""Outcomes that come with the package: kept as found, shown where nothing was run, replaced by own ones."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from apoint.book import Number, Outcome, Panel, Picture, Series, claims
from apoint.book import published as module
from apoint.book.published import FILE, publish, published
from apoint.book.site.shelf import Shelf, known_outcomes

PICTURE = Picture("Two lines.", [Panel("", "x", "y", [Series("a", [1 / 3, 2], [math.nan, 1e-9 / 3])])])
FOUND = Outcome(
    "E2",
    "Volume in the shell",
    "standard",
    "holds",
    [Number("n", 1 / 3, "at most 1", True, 0.1)],
    [],
    pictures=[PICTURE],
    seconds=61.5,
    versions={"apoint": "0.1.0"},
    date="2026-11-18",
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own file in place of the package's."""
    path = tmp_path / "published.jsonl"
    monkeypatch.setattr(module, "FILE", path)
    return path


def test_what_is_published_is_what_was_found(file: Path) -> None:
    publish([FOUND])
    again = published()["E2"]
    assert replace(again, pictures=()) == replace(FOUND, pictures=())
    series = again.pictures[0].panels[0].series[0]
    assert series.x == [0.33333, 2]
    assert math.isnan(series.y[0])
    assert series.y[1] == 3.3333e-10


def test_publishing_another_claim_keeps_the_first_and_publishing_again_replaces_it(file: Path) -> None:
    publish([FOUND])
    publish([replace(FOUND, id="E3")])
    assert set(published()) == {"E2", "E3"}
    publish([replace(FOUND, verdict="fails")])
    assert {id: one.verdict for id, one in published().items()} == {"E2": "fails", "E3": "holds"}


def test_pages_show_the_published_outcome_until_there_is_an_own_one(file: Path, tmp_path: Path) -> None:
    publish([FOUND])
    folder = tmp_path / "book"
    assert known_outcomes(folder)["E2"].date == "2026-11-18"
    assert known_outcomes(folder, "quick") == {}
    replace(FOUND, scale="quick", verdict="fails").save(folder / "records")
    assert known_outcomes(folder)["E2"].verdict == "holds", "the larger scale counts"
    assert known_outcomes(folder, "quick")["E2"].verdict == "fails"
    replace(FOUND, verdict="not decided at this scale").save(folder / "records")
    assert known_outcomes(folder)["E2"].verdict == "not decided at this scale", "one's own counts"


def test_a_page_says_with_what_and_when(file: Path, tmp_path: Path) -> None:
    from apoint.book.site import chapter

    publish([FOUND])
    shelf = Shelf.load(tmp_path / "book")
    assert "standard scale, 1.0 min · 2026-11-18 with apoint 0.1.0" in chapter.page(shelf, "E")


def test_the_file_of_the_package_is_sound() -> None:
    lines = FILE.read_text("utf-8").splitlines() if FILE.exists() else []
    ids = [json.loads(line)["id"] for line in lines]
    assert ids == sorted(set(ids)), "sorted, each once"
    assert set(ids) <= set(claims())
    assert all(
        one.scale == "standard" and one.date and one.versions["apoint"] for one in published().values()
    )
