"""Files that the user names are not overwritten, unless --force says so or the same command wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from apoint.cli import main

RECIPE = {
    "name": "small",
    "data": {"name": "digits", "limit": 200},
    "model": {"name": "mlp", "width": 8, "depth": 1},
    "batch_size": 20,
    "steps": 4,
}
QUESTION = ("compare", "r.yaml", "--change", "batch_size=10", "--looks", "4", "--margin", "0.1", "--quiet")
PRECIOUS = "precious: true\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("APOINT_DEBUG", raising=False)
    Path("r.yaml").write_text(json.dumps(RECIPE))
    Path("mine.html").write_text(PRECIOUS)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[object]:
    """Run a command as if it had been typed: its words are what the record keeps."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["apoint", *arguments])
        try:
            main(list(arguments))
            code = 0
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run  # type: ignore[return-value]


def refused(answer: tuple[int, str, str], path: str = "mine.html") -> None:
    code, out, err = answer
    assert code == 2, (out, err)
    assert path in err
    assert "--force" in err
    assert len(err.splitlines()) == 1


# -- compare --------------------------------------------------------------------------------------------


def test_a_report_does_not_overwrite_a_file(typed) -> None:
    refused(typed(*QUESTION, "--report", "mine.html"))
    refused(typed(*QUESTION, "--report", "r.yaml"), "r.yaml")
    assert Path("mine.html").read_text() == PRECIOUS
    assert json.loads(Path("r.yaml").read_text()) == RECIPE
    assert not Path("runs").exists(), "it is said before anything is trained"


def test_a_report_that_is_a_folder_or_has_none_is_refused_at_once(typed) -> None:
    Path("folder").mkdir()
    code, _, err = typed(*QUESTION, "--report", "folder")
    assert (code, "folder is a folder" in err) == (2, True)
    assert not Path("runs").exists()


def test_force_and_the_same_command_replace_a_report(typed) -> None:
    assert typed(*QUESTION, "--report", "mine.html", "--force")[0] == 0
    page = Path("mine.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert typed(*QUESTION, "--report", "new/place.html")[0] == 0
    Path("new/place.html").write_text(Path("new/place.html").read_text() + "<!-- edited -->")
    assert typed(*QUESTION, "--report", "new/place.html")[0] == 0, "the same command goes on"
    assert "edited" not in Path("new/place.html").read_text()
    refused(typed(*QUESTION, "--report", "new/place.html", "--alpha", "0.1"), "new/place.html")
    assert typed(*QUESTION)[0] == typed(*QUESTION)[0] == 0, "the report in the record's folder is replaced"


# -- inspect --------------------------------------------------------------------------------------------


def test_a_page_of_an_inspection_does_not_overwrite_a_file(typed) -> None:
    question = ("inspect", "r.yaml", "--quick", "--quiet", "--html")
    refused(typed(*question, "r.yaml"), "r.yaml")
    refused(typed(*question, "mine.html"))
    assert Path("mine.html").read_text() == PRECIOUS
    assert typed(*question, "mine.html", "--force")[0] == 0
    assert Path("mine.html").read_text().startswith("<!DOCTYPE html>")
    refused(typed(*question, "mine.html"))
    assert typed(*question, "new/page.html")[0] == 0


# -- improve --------------------------------------------------------------------------------------------


def test_an_improved_recipe_does_not_overwrite_a_file(typed) -> None:
    code, _, err = typed("improve", "r.yaml", "--budget", "5s", "--quiet", "--output", "r.yaml")
    assert code == 2
    assert "r.yaml exists" in err
    assert "--force" in err
    assert json.loads(Path("r.yaml").read_text()) == RECIPE


# -- the book -------------------------------------------------------------------------------------------


def test_the_book_is_not_built_into_a_foreign_folder(typed) -> None:
    Path("site").mkdir()
    Path("site/index.html").write_text(PRECIOUS)
    refused(typed("book", "build", "--out", "site"), "site")
    assert Path("site/index.html").read_text() == PRECIOUS
    refused(typed("book", "build", "--out", "."), ".")
    code, _, err = typed("book", "build", "--out", "r.yaml")
    assert (code, "r.yaml is a file" in err) == (2, True)
    assert typed("book", "build", "--out", "site", "--force")[0] == 0
    assert "precious" not in Path("site/index.html").read_text()


def test_the_book_is_built_again_where_it_was_built(typed) -> None:
    Path("empty").mkdir()
    for place in ("new", "empty"):
        assert typed("book", "build", "--out", place)[0] == 0
        Path(place, "notes.txt").write_text(PRECIOUS)
        assert typed("book", "build", "--out", place)[0] == 0
        assert Path(place, "notes.txt").read_text() == PRECIOUS, "what else lies there stays"


def test_a_figure_does_not_overwrite_a_file(typed) -> None:
    Path("figures").mkdir()
    Path("figures/E2.svg").write_text(PRECIOUS)
    code, _, err = typed("book", "figure", "E2", "--out", "figures")
    assert code == 2
    assert err.splitlines()[-1].startswith("apoint: figures/E2.svg exists; ")
    assert Path("figures/E2.svg").read_text() == PRECIOUS
    assert typed("book", "figure", "E2", "--out", "figures", "--force")[0] == 0
    for _ in range(2):
        assert typed("book", "figure", "E2", "--out", "own")[0] == 0, "what it drew itself it draws again"
