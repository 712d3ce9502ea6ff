"""Whatever goes wrong is one sentence with an exit code, and never a traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from apoint.cli import main
from apoint.cli.runs import listing

RECIPE = {
    "data": {"name": "digits", "limit": 200},
    "model": {"name": "mlp", "width": 8, "depth": 1},
    "batch_size": 20,
    "steps": 4,
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("APOINT_DEBUG", raising=False)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "r.yaml").write_text(json.dumps(RECIPE))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        main(list(arguments))
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `apoint runs list` raise an error."""

    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(listing, "print_list", fail)


# -- what nobody foresaw --------------------------------------------------------------------------------


def test_an_unforeseen_error_is_a_sentence_and_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, KeyError("x\x1b[2J"))
    code, _, err = run(capsys, "runs", "list")
    assert code == 70
    sentence = r"apoint: unexpected KeyError: 'x\\x1b\[2J' \(apoint/cli/runs/__init__\.py:\d+\); "
    match = re.fullmatch(sentence + r"the traceback is in (\S+); please report it\n", err)
    assert match, err
    saved = Path(match[1])
    assert saved.parent == tmp_path / "temporary"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    text = saved.read_text()
    assert "apoint runs list" in text
    assert "Traceback (most recent call last)" in text
    assert "KeyError" in text
    assert "\x1b" not in text


def test_a_traceback_that_cannot_be_saved_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, KeyError("x"))
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    code, _, err = run(capsys, "runs", "list")
    assert code == 70
    assert "raise error" in err
    assert err.splitlines()[-1].startswith("apoint: unexpected KeyError: 'x' (")


def test_debug_shows_the_traceback_and_keeps_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("APOINT_DEBUG", "")  # so that what --debug sets is taken back
    failing(monkeypatch, KeyError("x"))
    code, _, err = run(capsys, "--debug", "runs", "list")
    assert code == 70
    assert "Traceback (most recent call last)" in err
    code, _, err = run(capsys, "--debug", "runs", "show", "gone")
    assert code == 2
    assert "Traceback (most recent call last)" in err


def test_an_unforeseen_error_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, KeyError("x\x9b"))
    monkeypatch.setattr(listing, "as_dictionary", listing.print_list)
    (Path("runs") / "a").mkdir(parents=True)
    for name in ("env.json", "recipe.yaml"):
        (Path("runs") / "a" / name).write_text("{}")
    code, out, _ = run(capsys, "runs", "list", "--json")
    assert code == 70
    assert json.loads(out)["exit_code"] == 70
    assert "\x9b" not in out


def test_an_error_in_code_of_ones_own_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text("def fail(*arguments):\n    raise ValueError('too wide')\n")
    from apoint.engine.custom import _module

    monkeypatch.setattr(listing, "print_list", _module(Path("own.py").resolve()).fail)
    code, _, err = run(capsys, "runs", "list")
    assert code == 1
    assert err.startswith(
        "apoint: your own code raised ValueError: too wide (own.py:2); the traceback is in "
    )
    assert "report it" not in err


# -- the machine ----------------------------------------------------------------------------------------

MACHINE = {
    "memory": (MemoryError(), "the machine ran out of memory"),
    "torch": (RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes"), "ran out of memory"),
    "depth": (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
    "disk": (OSError(errno.ENOSPC, "No space left on device", "runs/x"), "no space left on device: runs/x"),
    "files": (OSError(errno.EMFILE, "Too many open files"), "too many open files"),
    "pipe": (BrokenPipeError(errno.EPIPE, "Broken pipe"), "a pipe was closed at its other end"),
    "long": (OSError(errno.ENAMETOOLONG, "File name too long", "a" * 9000), "file name too long: aaa"),
    "lines": (OSError("a\nb\x1b"), "a\\nb\\x1b"),
}


@pytest.mark.parametrize("kind", MACHINE)
def test_faults_of_the_machine_are_failures(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error, words = MACHINE[kind]
    failing(monkeypatch, error)
    code, _, err = run(capsys, "runs", "list")
    assert code == 1
    assert words in err
    assert len(err.splitlines()) == 1
    assert len(err) < 600


def test_a_nul_in_a_name_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ("runs", "list", "--runs-root", "a\0b"),
        ("runs", "show", "x\0"),
        ("train", "r.yaml", "--runs-root", "a\0b"),
        ("train", "r\0.yaml"),
        ("verdict", "a\0.csv"),
    ):
        code, _, err = run(capsys, *arguments)
        assert code in (1, 2), arguments
        assert len(err.splitlines()) == 1
        assert "\0" not in err


def test_a_name_that_is_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ("runs", "list", "--runs-root", "a" * 5000),
        ("runs", "show", "a" * 5000),
        ("train", "r.yaml", "--quiet", "--runs-root", "a" * 5000),
        ("train", "a" * 5000),
        ("compare", "r.yaml", "--change", "steps=5", "--quiet", "--runs-root", "a" * 5000),
    ):
        code, _, err = run(capsys, *arguments)
        assert code in (1, 2), arguments
        assert "unexpected" not in err
        assert "Traceback" not in err


# -- the process ----------------------------------------------------------------------------------------


def process(command: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """A shell command in which `apoint` is this program."""
    shell = f'apoint() {{ "{sys.executable}" -m apoint "$@"; }}; {command}'
    words = ["bash", "-c", shell]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, **settings)  # type: ignore[call-overload,no-any-return]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
@pytest.mark.parametrize(
    "command",
    ["apoint runs list", "apoint list --json", "apoint --help", "apoint schema", "apoint book list"],
)
def test_output_that_cannot_be_written_is_a_failure(command: str) -> None:
    answer = process(f"{command} > /dev/full")
    assert answer.returncode == 1
    assert answer.stderr.startswith("apoint: ")
    assert "o space left on device" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
def test_an_error_keeps_its_code_where_nothing_can_be_written() -> None:
    assert process("apoint nonsense --json > /dev/full 2> /dev/full").returncode == 2


@pytest.mark.parametrize("command", ["apoint list", "apoint schema", "apoint --help", "apoint book list"])
def test_a_reader_that_leaves_is_no_failure(command: str) -> None:
    answer = process(f"{command} | true; exit ${{PIPESTATUS[0]}}")
    assert (answer.returncode, answer.stderr) == (0, "")


def test_log_records_go_the_same_way_out(tmp_path: Path) -> None:
    root = tmp_path / "runs\x1b]0;owned"
    (root / "catalogue.sqlite").mkdir(parents=True)
    answer = process('apoint runs list --runs-root "$ROOT"', env={**os.environ, "ROOT": str(root)})
    assert answer.returncode == 0
    assert answer.stderr.startswith("apoint: the catalogue ")
    assert "\x1b" not in answer.stderr + answer.stdout


def test_streams_that_are_closed() -> None:
    assert process("apoint runs list >&- 2>&-").returncode == 0


def test_a_current_folder_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    for command in ("apoint runs list", "apoint train r.yaml"):
        (tmp_path / "gone").mkdir(exist_ok=True)
        answer = process(f"rmdir ../gone; {command}", cwd=tmp_path / "gone")
        assert answer.returncode == 2
        assert answer.stderr == "apoint: the current folder no longer exists; change to one that does\n"


def test_the_exit_codes_are_told() -> None:
    assert "70 unexpected error" in process("apoint --help").stdout
