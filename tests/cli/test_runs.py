"""`apoint runs` as a user meets it."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from apoint.cli import main
from apoint.cli.runs import command, listing, text
from apoint.cli.runs.options import complete_run
from apoint.cli.runs.plot import LETTERS, Frame, plot_many, plot_one, trace
from apoint.errors import UnknownNameError, UsageError, one_line
from apoint.store import Run, RunWriter
from apoint.store.sealed import write_sealed


def make_run(
    root: Path,
    name: str = "digits",
    fingerprint: str = "3f2a1b",
    seed: int = 0,
    ended: bool = True,
    **extra: float,
) -> Run:
    folder = root / f"{name}-{fingerprint}-s{seed}"
    resolved = (
        "name: digits\nmodel:\n  name: mlp\noptimizer:\n  name: adamw\n  lr: 0.1\nepochs: 3\nclip: null\n"
    )
    with RunWriter.create(
        folder, "name: digits\n", resolved, {"key": {"recipe": fingerprint, "seed": seed}}
    ) as writer:
        for step in range(0, 50, 5):
            writer.metric(step=step, epoch=step / 10, split="train", seconds=1.0 * step, loss=2 / (step + 1))
            writer.metric(
                step=step, epoch=step / 10, split="test", seconds=1.0 * step, accuracy=step / 50, **extra
            )
        writer.status("finished" if ended else "running", step=45, total_steps=45)
    return Run(folder)


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed in range(2):
        make_run(tmp_path / "runs", seed=seed)
    make_run(tmp_path / "runs", name="spirals", fingerprint="99cc00")
    return tmp_path / "runs"


def invoke(root: Path, *arguments: str, **settings: Any) -> Result:
    return CliRunner().invoke(command, [*arguments, "--runs-root", str(root)], **settings)


def output(root: Path, *arguments: str, **settings: Any) -> str:
    result = invoke(root, *arguments, catch_exceptions=False, **settings)
    assert result.exit_code == 0, result.output
    return result.stdout


def no_constant(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def printed_json(root: Path, *arguments: str) -> dict[str, Any]:
    content = json.loads(output(root, *arguments, "--json"), parse_constant=no_constant)
    assert content["schema_version"] == 1
    assert isinstance(content, dict)
    return content


# -- list -----------------------------------------------------------------------------------------------


def test_list_shows_every_run_the_newest_first(root: Path) -> None:
    lines = output(root, "list").splitlines()
    assert lines[0].split() == ["run", "state", "step", "test_accuracy", "started"]
    assert [line.split()[0] for line in lines[1:]] == [
        "spirals-99cc00-s0",
        "digits-3f2a1b-s1",
        "digits-3f2a1b-s0",
    ]
    assert lines[1].split()[1:4] == ["finished", "45/45", "0.9"]
    assert all(len(line) <= 120 for line in lines)


def test_list_as_json(root: Path) -> None:
    content = printed_json(root, "list")
    assert content["runs_root"] == str(root)
    first = content["runs"][0]
    assert first.keys() == {
        *(
            "folder",
            "name",
            "fingerprint",
            "changes",
            "seed",
            "state",
            "started",
            "step",
            "total_steps",
            "sealed",
            "metrics",
            "problem",
        )
    }
    assert (first["folder"], first["name"], first["seed"]) == (str(root / "spirals-99cc00-s0"), "spirals", 0)
    assert first["metrics"] == {"test_accuracy": 0.9, "train_loss": 2 / 46}
    assert len(content["runs"]) == 3


def test_list_and_show_say_what_was_changed(root: Path) -> None:
    """A comparison's runs used to be told apart by their fingerprints alone."""
    for ended in (True, False):
        folder = root / f"digits-55aa11-s{int(ended)}"
        env = {"changes": "optimizer.lr=3e-4 init=he"}
        with RunWriter.create(folder, "name: digits\n", "name: digits\n", env) as writer:
            writer.status("finished" if ended else "running", step=1, total_steps=1)
        lines = output(root, "list").splitlines()
        assert lines[0].split()[-1] == "changed"
        (line,) = (line for line in lines if line.startswith(folder.name))
        assert line.endswith("  optimizer.lr=3e-4 init=he")
        assert "changed   optimizer.lr=3e-4 init=he" in output(root, "show", str(folder))
        (row,) = (row for row in printed_json(root, "list")["runs"] if row["folder"] == str(folder))
        assert row["changes"] == "optimizer.lr=3e-4 init=he"
    assert all(
        not row["changes"] for row in printed_json(root, "list")["runs"] if "55aa11" not in row["folder"]
    )


def test_list_filters_and_bounds(root: Path) -> None:
    assert "2 of 3 runs; --limit 0 shows all" in output(root, "list", "--limit", "2")
    assert len(output(root, "list", "--limit", "0").splitlines()) == 4
    assert "no runs in" in output(root, "list", "--state", "dead")
    (root / "digits-3f2a1b-s0" / "seal.json").unlink()
    status = json.loads((root / "digits-3f2a1b-s0" / "status.json").read_text())
    (root / "digits-3f2a1b-s0" / "status.json").write_text(
        json.dumps({**status, "state": "running", "boot_id": "x"})
    )
    assert [run["seed"] for run in printed_json(root, "list", "--state", "dead")["runs"]] == [0]


def test_list_says_when_there_is_nothing_and_leaves_no_trace(tmp_path: Path) -> None:
    assert "no runs in" in output(tmp_path, "list")
    assert printed_json(tmp_path, "list")["runs"] == []
    assert list(tmp_path.iterdir()) == []


def test_list_shows_a_run_that_cannot_be_read_with_the_reason(root: Path) -> None:
    write_sealed(root / "spirals-99cc00-s0" / "seal.json", {"schema_version": 7})
    shown = output(root, "list")
    assert "newer apoint (schema 7, this one knows 1); upgrade" in shown
    assert "digits-3f2a1b-s0" in shown


def test_numbers_that_are_not_finite_are_strict_json(tmp_path: Path) -> None:
    make_run(tmp_path, loss=math.nan, peak=-math.inf)
    assert printed_json(tmp_path, "list")["runs"][0]["metrics"]["test_loss"] == "NaN"
    content = printed_json(tmp_path, "show")
    assert content["metrics"]["test_peak"] == "-Infinity"
    assert content["series"]["test_loss"]["values"][0] == "NaN"
    assert "NaN" in output(tmp_path, "list")


def test_the_variable_names_the_root(root: Path) -> None:
    result = CliRunner().invoke(command, ["list"], env={"APOINT_RUNS": str(root)})
    assert "spirals" in result.stdout


def test_names_are_shortened_on_a_terminal_and_whole_in_a_pipe(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = make_run(root, name="x" * 90, seed=7)
    assert long.folder.name in output(root, "list")
    row = [long.folder.name, "finished", "1/1", "1 s ago"]
    monkeypatch.setattr(listing, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setenv("COLUMNS", "80")
    (fitted,) = listing._fitted([row])
    assert fitted[0].startswith("xxxx")
    assert fitted[0].endswith("-3f2a1b-s7")
    assert len(text.table([fitted])[0]) == 80
    changed = [*row, "optimizer.weight_decay=0.05 schedule.warmup=0.1 model.norm=layer"]
    (fitted,) = listing._fitted([changed])
    assert len(text.table([fitted])[0]) == 80, "what was changed is cut first, then the name"
    assert fitted[-1].startswith("optimizer.")
    assert len(fitted[-1]) == 20


# -- show -----------------------------------------------------------------------------------------------


def test_show_tells_recipe_state_metrics_and_curves(root: Path) -> None:
    shown = output(root, "show", "digits-3f2a1b-s1")
    for expected in (
        "digits-3f2a1b-s1",
        "finished, step 45 of 45, 45 s of training",
        "recipe model=mlp optimizer=adamw epochs=3",
        "test_accuracy   last 0.9",
        "train_loss   last 0.04348",
        "10 points",
    ):
        assert expected in " ".join(shown.split()) or expected in shown
    assert "clip" not in shown
    lines = shown.splitlines()
    top = next(place for place, line in enumerate(lines) if line.startswith("test_accuracy   last"))
    assert lines[top + 1].split("┤")[0].strip() == "0.9"
    assert lines[top + 8].split("┤")[0].strip() == "0"
    assert lines[top + 10].split() == ["step", "0", "45"]
    assert all(len(line) <= 120 for line in lines)


def test_show_takes_the_newest_by_default(root: Path) -> None:
    assert output(root, "show").startswith("spirals-99cc00-s0\n")
    assert printed_json(root, "show")["name"] == "spirals"


def test_show_as_json_has_the_whole_curves(root: Path) -> None:
    content = printed_json(root, "show", "spi")
    assert content["series"]["test_accuracy"] == {
        "steps": list(range(0, 50, 5)),
        "values": [step / 50 for step in range(0, 50, 5)],
    }
    assert content["recipe"]["optimizer"] == {"name": "adamw", "lr": 0.1}
    assert (content["state"], content["fingerprint"], content["seed"]) == ("finished", "99cc00", 0)
    only = printed_json(root, "show", "spi", "--metric", "train_loss")
    assert set(only["series"]) == {"train_loss"}


def test_show_says_why_a_run_ended_and_what_is_torn(root: Path) -> None:
    with RunWriter.create(root / "moons-99cc01-s0", "", "name: moons\n", {}) as writer:
        writer.metric(step=1, epoch=1, split="test", accuracy=0.5)
        with open(root / "moons-99cc01-s0" / "metrics.jsonl", "a") as stream:
            stream.write('{"step": 3')
    (root / "moons-99cc01-s0" / "seal.json").unlink(missing_ok=True)
    with RunWriter.open(root / "moons-99cc01-s0") as writer:
        writer.status("diverged", reason="loss became NaN at step 412")
    shown = output(root, "show")
    assert "diverged" in shown
    assert "loss became NaN at step 412" in shown
    assert "1 torn lines" in shown


def test_show_refuses_unknown_names_before_it_prints(root: Path) -> None:
    for arguments, expected in (
        (["show", "digit5"], r"unknown run 'digit5'; did you mean 'digits"),
        (["show", "digits"], r"is the beginning of 2 runs"),
        (
            ["show", "spi", "--metric", "test_acuracy"],
            r"unknown metric 'test_acuracy'; did you mean 'test_accuracy'",
        ),
    ):
        result = invoke(root, *arguments)
        assert isinstance(result.exception, UsageError | UnknownNameError)
        assert expected in str(result.exception)
        assert result.stdout == ""


def test_show_draws_in_ascii_where_it_must(root: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(Path(__file__).parents[2])}
    code = "from apoint.cli import main; main()"
    arguments = [sys.executable, "-c", code, "runs", "show", "digits-3f2a1b-s0", "--runs-root", str(root)]
    done = subprocess.run(arguments, capture_output=True, env=environment, check=True)
    shown = done.stdout.decode("ascii")
    assert "0.9 +" in shown
    assert "*" in shown
    assert "torch" not in done.stderr.decode()


# -- curves ---------------------------------------------------------------------------------------------


def test_curves_draws_each_run_in_its_letter(root: Path) -> None:
    with RunWriter.create(root / "moons-99cc01-s0", "", "", {}) as writer:
        for step in range(0, 50, 5):
            writer.metric(step=step, epoch=0, split="test", accuracy=1 - step / 50)
    shown = output(root, "curves", "digits-3f2a1b-s0", "moons", "moons", "--metric", "test_accuracy")
    lines = shown.splitlines()
    assert lines[0] == "test_accuracy"
    assert "a  digits-3f2a1b-s0   last 0.9   10 points" in shown
    assert "b  moons-99cc01-s0   last 0.1   10 points" in shown
    assert "c  " not in shown  # the run that was named twice is one
    body = [line.split("│")[-1].split("┤")[-1] for line in lines[1:15]]
    assert {mark for line in body for mark in line} == {"a", "b", "#", " "}
    assert body[0].strip()[0] == "b"  # begins at 1, above the other
    assert body[-1].strip()[0] == "a"


def test_curves_as_json_and_its_errors(root: Path) -> None:
    content = printed_json(root, "curves", "digits-3f2a1b-s0", "spirals", "--metric", "test_accuracy")
    assert content["metric"] == "test_accuracy"
    assert [run["folder"] for run in content["runs"]] == [
        str(root / "digits-3f2a1b-s0"),
        str(root / "spirals-99cc00-s0"),
    ]
    assert content["runs"][0]["values"][:2] == [0.0, 0.1]
    result = invoke(root, "curves", "spirals", "--metric", "tset_accuracy")
    assert "spirals-99cc00-s0: unknown metric 'tset_accuracy'; did you mean 'test_accuracy'" in str(
        result.exception
    )
    assert invoke(root, "curves", "--metric", "x").exit_code == 2
    assert invoke(root, "curves", "spirals").exit_code == 2


def test_more_curves_than_letters_are_counted(root: Path) -> None:
    for seed in range(30):
        make_run(root, name="many", fingerprint="abcd", seed=seed)
    names = [f"many-abcd-s{seed}" for seed in range(30)]
    shown = output(root, "curves", *names, "--metric", "test_accuracy")
    assert "26 of 30 runs are drawn" in shown


# -- plots ----------------------------------------------------------------------------------------------


def test_every_point_has_its_dot() -> None:
    steps = list(range(1000))
    values = [0.0] * 1000
    values[617] = 1.0  # one spike among a thousand points in forty columns
    frame = Frame.around([(steps, values)])
    assert frame is not None
    assert frame.place(617, 1.0, 40, 10) in trace((steps, values), frame, 40, 10)
    lines = plot_one((steps, values), 60, 5, unicode=False)
    assert "*" in lines[0]


def test_points_that_are_not_finite_break_the_line_and_are_counted() -> None:
    curve = ([0, 10, 20, 30], [1.0, math.nan, math.inf, 1.0])
    lines = plot_one(curve, 50, 3, unicode=False)
    assert lines[-1] == "  4 points, 2 not finite, the first at step 10"
    assert "".join(lines[:3]).count("*") == 2
    assert plot_one(([1], [math.nan]), 50, 3, unicode=True) == [
        "  nothing to draw: 1 point, 1 not finite, the first at step 1"
    ]


def test_a_level_line_and_a_single_point_have_one_label() -> None:
    for unicode in (True, False):
        lines = plot_one(([0, 5], [2.5, 2.5]), 50, 8, unicode)
        (labelled,) = [line for line in lines if "2.5" in line]
        mark = "┤" if unicode else "+"
        assert labelled.split(mark)[1].strip()  # the line itself is in the row of its label


def test_extreme_values_are_drawn() -> None:
    lines = plot_one(([0, 1, 2], [-1.7e308, 0.0, 1.7e308]), 60, 5, unicode=True)
    assert "1.7e+308" in lines[0]
    assert plot_one(([0, 1], [0.0, 5e-324]), 60, 5, unicode=True)


def test_a_log_axis_is_a_log_axis_and_counts_what_it_leaves_out() -> None:
    curve = ([0, 1, 2, 3], [1.0, 10.0, 100.0, -1.0])
    frame = Frame.around([curve], log=True)
    assert frame is not None
    assert [frame.place(step, value, 4, 5)[1] for step, value in zip(*curve, strict=True) if value > 0] == [
        4,
        2,
        0,
    ]
    lines = plot_one(curve, 60, 5, unicode=True, log=True)
    assert "log scale" in lines[-2]
    assert "1 not above zero and left out" in lines[-1]


def test_plots_of_many_keep_within_their_width() -> None:
    curves = [([0, 1], [0.0, float(index)]) for index in range(len(LETTERS))]
    lines = plot_many(curves, 70, 6, unicode=True)
    assert all(len(line) <= 70 for line in lines)
    assert plot_many([([0], [math.nan])], 70, 6, unicode=True) == ["  nothing to draw: no finite values"]


# -- reindex and rm -------------------------------------------------------------------------------------


def test_reindex_builds_the_catalogue_anew(root: Path) -> None:
    output(root, "list")
    (root / "catalogue.sqlite").write_bytes(b"damaged")
    assert output(root, "reindex").startswith("3 runs indexed in ")
    assert printed_json(root, "reindex")["runs"] == 3
    assert (root / "catalogue.sqlite").read_bytes()[:6] == b"SQLite"
    result = invoke(root / "none", "reindex")
    assert "there is no folder" in str(result.exception)


def test_rm_needs_yes_where_nobody_can_be_asked(root: Path) -> None:
    result = invoke(root, "rm", "spirals")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == "removing spirals-99cc00-s0 needs --yes where nobody can be asked"
    assert (root / "spirals-99cc00-s0").exists()
    assert (
        output(root, "rm", "spirals", "digits-3f2a1b-s0", "--yes")
        == "removed spirals-99cc00-s0, digits-3f2a1b-s0\n"
    )
    assert [run["seed"] for run in printed_json(root, "list")["runs"]] == [1]
    assert printed_json(root, "rm", "digits", "--yes")["removed"] == [str(root / "digits-3f2a1b-s1")]


@pytest.mark.parametrize(("answer", "left"), [("n\n", True), ("y\n", False)])
def test_rm_asks_on_a_terminal(root: Path, monkeypatch: pytest.MonkeyPatch, answer: str, left: bool) -> None:
    from click import testing

    monkeypatch.setattr(testing._NamedTextIOWrapper, "isatty", lambda self: True, raising=False)
    result = invoke(root, "rm", "spirals", input=answer)
    assert "Remove spirals-99cc00-s0 for good?" in result.output
    assert (root / "spirals-99cc00-s0").exists() is left
    assert result.exit_code == (1 if left else 0)


def test_rm_refuses_what_runs_and_what_is_no_run(root: Path, tmp_path: Path) -> None:
    with RunWriter.create(root / "moons-99cc01-s0", "", "", {}):
        result = invoke(root, "rm", "moons", "--yes")
    assert "is running" in str(result.exception)
    (tmp_path / "precious").mkdir()
    result = invoke(root, "rm", str(tmp_path / "precious"), "--yes")
    assert "there is no run folder at" in str(result.exception)
    assert (tmp_path / "precious").exists()
    assert (root / "spirals-99cc00-s0").exists()


# -- what any command owes ------------------------------------------------------------------------------

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp\u2028\r"


def test_nothing_in_a_run_can_steer_the_terminal(tmp_path: Path) -> None:
    folder = tmp_path / f"a{HOSTILE.replace('/', '')}-0000-s0"
    with RunWriter.create(
        folder,
        HOSTILE,
        json.dumps({"name": HOSTILE, HOSTILE: 3}),
        {"name": HOSTILE, "changes": HOSTILE},
    ) as writer:
        writer.metric(step=0, epoch=0, split="test", **{f"loss{HOSTILE}": 1.0})
        writer.status("failed", reason=HOSTILE, step=HOSTILE, total_steps=HOSTILE)
    (tmp_path / "b-0000-s0").mkdir()
    for name in ("recipe.yaml", "env.json"):
        (tmp_path / "b-0000-s0" / name).write_text(json.dumps({"schema_version": 9, "name": HOSTILE}))
    metric = f"test_loss{HOSTILE}"
    for arguments in (
        ["list"],
        ["show", str(folder)],
        ["curves", str(folder), "--metric", metric],
        ["rm", str(folder), "--yes"],
    ):
        shown = output(tmp_path, *arguments)
        assert not set(shown) & set(HOSTILE) - set("[2J]0;owned31mgnp"), arguments


def test_ordinary_letters_stay() -> None:
    assert one_line("naïve 模型 🙂 a\tb\x00") == "naïve 模型 🙂 a\\tb\\x00"
    assert text.display_width("模型a") == 5
    assert text.display_width(text.shorten("模型模型模型-abc-s1", 10)) <= 10


def test_colour_only_where_it_is_wanted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in output(root, "list")
    coloured = CliRunner().invoke(command, ["list", "--runs-root", str(root)], color=True)
    assert "\x1b[32mfinished" in coloured.stdout
    monkeypatch.setenv("NO_COLOR", "1")
    plain = CliRunner().invoke(command, ["list", "--runs-root", str(root)], color=True)
    assert "\x1b" not in plain.stdout


@pytest.mark.parametrize(
    ("arguments", "code"), [(["list"], 0), (["show", "none"], 2), (["nonsense"], 2), (["show", "spirals"], 1)]
)
def test_exit_codes(root: Path, arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "spirals-99cc00-s0" / "env.json").write_text('{"schema_version": 9}')
    try:
        main(["runs", *arguments, *(["--runs-root", str(root)] if arguments != ["nonsense"] else [])])
        left = 0
    except SystemExit as leaving:
        left = int(leaving.code or 0)
    assert left == code
    assert "Traceback" not in capsys.readouterr().err


def test_run_names_complete(root: Path) -> None:
    context = SimpleNamespace(params={"runs_root": str(root)})
    found = complete_run(context, None, "dig")  # type: ignore[arg-type]
    assert [item.value for item in found] == ["digits-3f2a1b-s0", "digits-3f2a1b-s1"]


def test_the_commands_are_light() -> None:
    code = (
        "import sys; from apoint.cli import runs, export; from apoint.cli.runs import listing, card;"
        "heavy = {'torch', 'numpy', 'pydantic', 'pyarrow', 'tensorboard', 'rich', 'yaml'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
