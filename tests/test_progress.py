"""Progress of calls from Python: in a terminal and in a notebook, and only there unless it is wanted."""

import io
import sys
import types
from pathlib import Path

import pytest

import apoint
from apoint.progress import ProgressLine, in_notebook, is_wanted

SMALL = {
    "data": {"name": "digits", "limit": 100},
    "model": {"name": "mlp", "width": 4, "depth": 1},
    "epochs": 1,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of Jupyter, as far as anybody can tell."""
    shell = types.SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))


def test_it_is_shown_where_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("APOINT_PROGRESS", raising=False)
    assert is_wanted(None, Terminal())
    assert not is_wanted(None, io.StringIO())
    assert is_wanted(True, io.StringIO())
    assert not is_wanted(False, Terminal())
    monkeypatch.setenv("APOINT_PROGRESS", "0")
    assert not is_wanted(None, Terminal())


def test_a_notebook_is_known(notebook: None) -> None:
    assert in_notebook()
    assert is_wanted(None, io.StringIO())
    assert ProgressLine(stream=io.StringIO()).moving


def test_a_console_of_ipython_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(config={"TerminalIPythonApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert not in_notebook()


def test_training_in_a_notebook_shows_one_line_that_moves(
    notebook: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apoint.train(SMALL, runs_root=tmp_path)
    shown = capsys.readouterr().err
    assert "step " in shown
    assert shown.count("\n") == 1
    assert shown.startswith("\r")


def test_it_can_be_silenced_and_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apoint.train(SMALL, runs_root=tmp_path / "a")
    assert capsys.readouterr().err == ""
    apoint.train(SMALL, runs_root=tmp_path / "b", progress=True)
    assert "step" in capsys.readouterr().err
    few = {"max_pairs": 6, "margin": 0.3, "backend": "loop", "report": False}
    apoint.compare(SMALL, changes={"model.width": 5}, runs_root=tmp_path / "c", progress=True, **few)
    assert "apoint: fleet:" in capsys.readouterr().err


def test_a_stream_that_cannot_be_written_to_stops_nothing() -> None:
    stream = Terminal()
    line = ProgressLine(stream=stream)
    stream.close()
    line.say("to nobody")
