"""Text from elsewhere does not steer the terminal, whichever command shows it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import apoint.cli
from apoint.cli import main
from apoint.store import RunWriter
from tests.sealing import edit

HOSTILE = "\x1b]0;owned\x07\x9b31m\x7f\u202egnp\u2066\r\x08"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
RECIPE: dict[str, Any] = {
    "name": "small",
    "data": {"name": "digits", "limit": 200},
    "model": {"name": "mlp", "width": 8, "depth": 1},
    "batch_size": 20,
    "steps": 2,
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("APOINT_DEBUG", raising=False)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        main(list(arguments))
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command writes; the words of the hostile text must be in it, else nothing would be shown."""
    _, out, err = run(capsys, *arguments)
    assert "owned" in out + err, (arguments, out, err)
    found = STEERING.search(out + err)
    assert found is None, (arguments, found, out, err)
    return out


# -- run folders ----------------------------------------------------------------------------------------


def hostile_run(root: Path, name: str = "mild") -> Path:
    folder = root / f"{name}-0000-s0"
    resolved = json.dumps({"name": HOSTILE, "model": {"name": HOSTILE}, HOSTILE: 3})
    with RunWriter.create(folder, HOSTILE, resolved, {"name": HOSTILE}) as writer:
        writer.metric(step=1, epoch=0, split="test", **{f"loss{HOSTILE}": 1.0})
        writer.status("failed", reason=HOSTILE, step=HOSTILE, total_steps=HOSTILE)
    (folder / "seal.json").unlink()  # with it, a changed record would not even be read
    with open(folder / "metrics.jsonl", "a") as stream:
        stream.write(json.dumps({"step": 2, "epoch": 0, "split": HOSTILE, "loss": 1.0}) + "\n")
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "mild"),
        ("show", "mild", "--metric", f"{HOSTILE}_loss"),
        ("curves", "mild", "--metric", f"{HOSTILE}_loss"),
        ("curves", "mild", "--metric", "test_loss"),
        ("curves", "mild", "--metric", HOSTILE),
        ("show", HOSTILE),
        ("list", "--runs-root", f"gone{HOSTILE}"),
        ("show", "--json"),
    ],
    ids=repr,
)
def test_runs(arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile_run(tmp_path / "runs")
    shown(capsys, "runs", *arguments)


def test_a_folder_with_a_hostile_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = hostile_run(tmp_path / "runs", HOSTILE)
    for arguments in (("list",), ("show", str(folder)), ("rm", str(folder)), ("rm", str(folder), "--yes")):
        shown(capsys, "runs", *arguments)


def test_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile_run(tmp_path / "runs")
    shown(capsys, "export", "csv", "mild", "--to", f"{HOSTILE}.csv")
    shown(capsys, "export", "csv", "mild", "--to", f"{HOSTILE}.csv")  # which refuses to overwrite it
    shown(capsys, "export", "csv", "mild", "--to", f"2{HOSTILE}.csv", "--json")


# -- recipes, data, scores ------------------------------------------------------------------------------


def put(file: str, **parts: Any) -> str:
    Path(file).write_text(json.dumps(RECIPE | parts))
    return file


@pytest.mark.parametrize(
    "parts",
    [
        {"model": {"name": HOSTILE}},
        {"model": {"file": f"{HOSTILE}.py", "class": "Net"}},
        {"data": {"name": "csv", "path": HOSTILE}},
        {"weights": {"file": HOSTILE}},
        {HOSTILE: 1},
        {"optimizer": {"name": "adamw", HOSTILE: 1}},
        {"name": HOSTILE},
        {"loss": [HOSTILE]},
    ],
    ids=repr,
)
def test_what_is_wrong_with_a_recipe(parts: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    recipe = put("r.yaml", **parts)
    for command in (
        ("train", recipe, "--dry-run"),
        ("inspect", recipe, "--quick"),
        ("compare", recipe, "--change", "steps=3"),
    ):
        shown(capsys, *command)


def test_a_recipe_with_a_hostile_name_or_description(capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipes").mkdir()
    put(f"recipes/{HOSTILE}.yaml", description=HOSTILE)
    shown(capsys, "list", "recipes", "--folder", "recipes")
    shown(capsys, "list", "recipes", "--folder", "recipes", "--json")
    shown(capsys, "train", f"recipes/{HOSTILE}.yaml", "--print-recipe")
    shown(capsys, "train", f"recipes/{HOSTILE}.yaml", "--print-recipe", "--json")
    shown(capsys, "train", "recipes/none.yaml", HOSTILE)


def test_code_of_ones_own_that_says_hostile_things(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.py").write_text(f"class Net:\n    def __init__(self):\n        raise ValueError({HOSTILE!r})\n")
    shown(capsys, "train", put("r.yaml", model={"file": "net.py", "class": "Net"}))


def test_training_in_a_folder_with_a_hostile_name(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = put("r.yaml")
    for more in ((), (), ("--fresh",), ("--dry-run",), ("--json",)):  # made, found, set aside, planned
        shown(capsys, "train", recipe, "--runs-root", HOSTILE, *more)


def test_scores_and_data(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"seed,baseline,{HOSTILE}", *(f"{i},{i % 3},{i % 3 + 0.5}" for i in range(12))]
    with open("scores.csv", "w", newline="") as stream:
        stream.write("\n".join(line.replace("\r", "") for line in lines))
    name = HOSTILE.replace("\r", "")
    shown(capsys, "verdict", "scores.csv", "--candidate", name, "--metric", HOSTILE)
    shown(capsys, "verdict", "scores.csv", "--candidate", name, "--metric", HOSTILE, "--json")
    shown(capsys, "verdict", "scores.csv", "--candidate", HOSTILE + "gone")
    shown(capsys, "verdict", f"{HOSTILE}.csv")
    with open("data.csv", "w") as stream:
        stream.write("a,b\n" + f"1,{name}\n2,y\n" * 30)
    shown(capsys, "data", "check", "data.csv", "target=b", "--json")
    shown(capsys, "data", "check", HOSTILE)
    shown(capsys, "models", "info", HOSTILE)
    shown(capsys, HOSTILE)
    shown(capsys, "list", HOSTILE)


def test_a_record_of_the_book(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "book", "run", "A1", "--quiet")
    (record,) = list(Path("book").rglob("*.json"))
    edit(record, lambda values: values["numbers"][0].update(name=HOSTILE))
    from apoint.book import select
    from apoint.book.batch import kept
    from apoint.book.card import print_card

    (claim,) = select(["A1"])[:1]
    outcome = kept(claim, "quick", Path("book"))
    assert outcome is not None
    print_card(claim, outcome)
    out = capsys.readouterr().out
    assert "owned" in out
    assert STEERING.search(out) is None


# -- the one way out ------------------------------------------------------------------------------------

BANNED = {"print", "echo", "secho", "confirm", "prompt", "pause", "echo_via_pager", "progressbar"}


def ways_out(source: str) -> Iterator[str]:
    """The calls in a file that write to the terminal past `apoint.cli.terminal`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in ("click", "rich", "rich.console"):
            yield from (f"from {node.module} import {each.name}" for each in node.names)
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            owner, _, last = name.rpartition(".")
            by_click = owner in ("", "click", "builtins") and last in BANNED and name != "confirm"
            by_stream = owner in ("sys.stdout", "sys.stderr", "sys.__stdout__") and last.startswith("write")
            if by_click or by_stream:
                yield name


def test_everything_is_written_in_one_place() -> None:
    root = Path(apoint.cli.__file__).parent
    files = [path for path in root.rglob("*.py") if path.name != "terminal.py"]
    assert len(files) > 15
    found = {str(path): list(ways_out(path.read_text())) for path in files}
    assert not {path: calls for path, calls in found.items() if calls}


@pytest.mark.parametrize(
    "line",
    ["print(1)", "click.echo(1)", "click.secho(1)", "sys.stdout.write('')", "from click import echo",
     "sys.stderr.write('')", "click.confirm('x')"],
)  # fmt: skip
def test_another_way_out_would_be_seen(line: str) -> None:
    assert list(ways_out(f"def f():\n    {line}"))


def test_colours_are_our_own_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from apoint.cli.terminal import paint, say

    say(paint("good", "green") + "\x1b[31mbad\x1b[0m \x00:red\x00", colour=None)
    out = capsys.readouterr().out
    assert "\x1b" not in out  # no terminal
    assert out == "good\\x1b[31mbad\\x1b[0m \\x00:red\\x00\n"


def test_a_moving_line_is_one_line() -> None:
    import io

    from apoint.cli.terminal import rewrite
    from apoint.progress import ProgressLine

    stream = io.StringIO()
    rewrite(f"a\nb{HOSTILE}", stream, 40)
    assert stream.getvalue().count("\r") == 1
    assert STEERING.sub("", stream.getvalue()[1:]) == stream.getvalue()[1:]
    line = ProgressLine(stream=stream)
    line.say(HOSTILE)
    assert STEERING.search(stream.getvalue()[1:]) is None
