"""What lies in a run, comparison or improvement folder is executed only with --allow-code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from apoint.cli import main
from apoint.engine import load_model, train
from apoint.engine.custom import allowing_code, record_around
from apoint.errors import UsageError
from apoint.inspection.sources import inspect_run
from apoint.store import Run, reader
from apoint.trials import compare, improve
from tests.sealing import edit_in_run, reseal

RECIPE: dict[str, Any] = {
    "name": "small",
    "data": {"name": "digits", "limit": 200},
    "model": {"name": "mlp", "width": 8, "depth": 1},
    "batch_size": 20,
    "steps": 4,
}
TRACE = "it-ran"
OWN_NET = f"""# {{here}}
import pathlib
from torch import nn

pathlib.Path(__file__).with_name("{TRACE}").touch()


class Net(nn.Sequential):
    def __init__(self, in_features, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(in_features, 8), nn.ReLU(), nn.Linear(8, num_classes))
"""
OWN_DATA = f"""# {{here}}
import pathlib

pathlib.Path(__file__).with_name("{TRACE}").touch()


def make():
    raise ValueError("the data is made")
"""
MODEL = {"file": "net.py", "class": "Net"}
PARTS = {"model": {"model": MODEL}, "data": {"data": {"file": "data.py", "function": "make"}}}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("APOINT_DEBUG", raising=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(RECIPE, runs_root=tmp_path_factory.mktemp("origin") / "runs").folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A run folder with Python files in it, as a stranger could send it."""
    place = tmp_path / "runs" / "sent"
    shutil.copytree(finished, place)
    plant(place / "net.py", OWN_NET)
    plant(place / "data.py", OWN_DATA)
    return place


def plant(path: Path, source: str) -> None:
    """A Python file of its own content: files of the same content are imported once in a process."""
    path.write_text(source.replace("{here}", str(path)))


def put(path: Path, **parts: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(json.dumps(RECIPE | parts))
    return str(path)


def disguise(folder: Path, resolved: str) -> None:
    """Seal a run again whose recipe was changed, as a forger does."""
    digest = list(reader.digest_of(Path(resolved)))
    edit_in_run(folder, "env.json", lambda env: env["files"].update({"resolved.yaml": digest}))
    reseal(folder, "resolved.yaml")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    try:
        main(list(arguments))
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    return code, capsys.readouterr().err


@pytest.mark.parametrize("part", PARTS)
def test_inspecting_a_run_runs_nothing_of_it(
    folder: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    disguise(folder, put(folder / "resolved.yaml", **PARTS[part]))
    code, err = run(capsys, "inspect", str(folder), "--quick")
    assert not (folder / TRACE).exists()
    assert code == 2
    assert "--allow-code" in err
    assert len(err.strip().splitlines()) == 1


COMMANDS = {
    "dry run": ("train", "{}", "--dry-run"),
    "train": ("train", "{}", "--quiet"),
    "inspect": ("inspect", "{}", "--quick", "--quiet"),
    "compare": ("compare", "{}", "--change", "batch_size=10", "--quiet"),
    "candidate": ("compare", "mine.yaml", "{}", "--quiet", "--looks", "4", "--margin", "1"),
    "improve": ("improve", "{}", "--budget", "10s", "--quiet"),
    "tune": ("compare", "{}", "--change", "batch_size=10", "--tune", "lr", "--quiet"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("part", PARTS)
def test_a_recipe_in_a_run_folder_runs_no_code(
    folder: Path, tmp_path: Path, command: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "mine.yaml")
    recipe = put(folder / "mine" / "recipe.yaml", **PARTS[part])
    plant(folder / "mine" / "net.py", OWN_NET)
    plant(folder / "mine" / "data.py", OWN_DATA)
    code, err = run(capsys, *(each.format(recipe) for each in COMMANDS[command]))
    assert not (folder / "mine" / TRACE).exists()
    assert code == 2, err
    assert "--allow-code" in err


def test_a_recipe_in_a_comparison_folder_runs_no_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "runs" / "comparisons" / "sent"
    recipe = put(place / "candidate.yaml", model=MODEL)
    plant(place / "net.py", OWN_NET)
    (place / "declaration.json").write_text("{}")
    code, err = run(capsys, "train", recipe, "--dry-run")
    assert (code, (place / TRACE).exists()) == (2, False)
    assert str(place) in err


def test_allow_code_runs_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = put(folder / "again.yaml", model=MODEL)
    code, err = run(capsys, "train", recipe, "--quiet", "--allow-code")
    assert (code, (folder / TRACE).exists()) == (0, True), err


def test_allow_code_finds_the_files_of_a_run_in_the_current_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path / "net.py", OWN_NET)
    done = train(put(tmp_path / "mine.yaml", model=MODEL), runs_root=tmp_path / "runs").folder
    assert run(capsys, "inspect", str(done), "--quick", "--quiet")[0] == 2
    assert run(capsys, "inspect", str(done), "--quick", "--quiet", "--allow-code")[0] == 0


def test_workers_of_a_fleet_may_run_what_was_allowed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = put(folder / "again.yaml", model=MODEL)
    question = ("compare", recipe, "--change", "batch_size=10", "--looks", "4", "--margin", "1", "--quiet")
    code, err = run(capsys, *question, "--engine", "pool", "--workers", "1", "--allow-code")
    assert code == 0, err


def test_a_recipe_of_ones_own_runs_its_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant(tmp_path / "net.py", OWN_NET)
    code, err = run(capsys, "train", put(tmp_path / "mine.yaml", model=MODEL), "--quiet")
    assert (code, (tmp_path / TRACE).exists()) == (0, True), err


def test_files_named_on_the_command_line_run_wherever_one_stands(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(folder.parent / "part.py", OWN_NET)
    monkeypatch.chdir(folder)
    code, err = run(capsys, "train", put(folder / "x.yaml"), "--dry-run", "--use", "../part.py")
    assert (code, (folder.parent / TRACE).exists()) == (0, True), err


def test_a_link_does_not_lead_out_of_a_run_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = put(tmp_path / "beside" / "evil.yaml", model=MODEL)
    plant(tmp_path / "beside" / "net.py", OWN_NET)
    (folder / "resolved.yaml").unlink()
    (folder / "resolved.yaml").symlink_to(recipe)
    for arguments in (("inspect", str(folder)), ("train", str(folder / "resolved.yaml"), "--dry-run")):
        assert run(capsys, *arguments)[0] in (1, 2)
    (tmp_path / "linked").symlink_to(folder)
    put(folder / "more.yaml", model=MODEL)
    assert run(capsys, "train", str(tmp_path / "linked" / "more.yaml"), "--dry-run")[0] == 2
    assert not list(tmp_path.rglob(TRACE))


@pytest.mark.parametrize("how", ["absolute", "upwards", "link"])
def test_a_recipe_in_a_run_folder_reads_no_weights_from_elsewhere(
    folder: Path, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret.safetensors"
    secret.write_bytes(b"x" * 100)
    (folder / "link.safetensors").symlink_to(secret)
    file = {"absolute": str(secret), "upwards": "../../secret.safetensors", "link": "link.safetensors"}[how]
    code, err = run(capsys, "train", put(folder / "w.yaml", weights={"file": file}), "--dry-run")
    assert code == 2
    assert "--allow-code" in err
    code, err = run(
        capsys, "train", put(folder / "w.yaml", weights={"file": file}), "--dry-run", "--allow-code"
    )
    assert "--allow-code" not in err


def test_a_recipe_in_a_run_folder_reads_weights_that_lie_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "export", "state-dict", str(folder), "--to", str(folder / "w.safetensors"))
    recipe = put(folder / "w.yaml", weights={"file": "w.safetensors"})
    code, err = run(capsys, "train", recipe, "--dry-run")
    assert code == 0, err


@pytest.mark.parametrize("how", ["absolute", "upwards", "home", "link", "test part"])
def test_a_recipe_in_a_run_folder_reads_no_data_from_elsewhere(
    folder: Path,
    tmp_path: Path,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(60)))
    monkeypatch.setenv("HOME", str(tmp_path))
    (folder / "link.csv").symlink_to(secret)
    paths = {
        "absolute": str(secret),
        "upwards": "runs/../secret.csv",
        "home": "~/secret.csv",
        "link": "link.csv",
    }
    data = {"name": "csv", "path": paths.get(how, "secret.csv"), "target": "b"}
    if how == "test part":
        data["test_path"] = str(secret)
    if how == "link":
        monkeypatch.chdir(folder)
    recipe = put(folder / "d.yaml", data=data)
    code, err = run(capsys, "train", recipe, "--dry-run")
    assert code == 2
    assert "--allow-code" in err or "there is no such file" in err
    code, err = run(capsys, "train", recipe, "--dry-run", "--allow-code")
    assert code == 0, err


@pytest.mark.parametrize("path", ["{/secret,x}.tar", "{../secret,x}.tar", "x/{a,..}/../s.tar", "{~,x}/s.tar"])
def test_braces_do_not_hide_where_data_lies(
    folder: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = put(folder / "d.yaml", data={"name": "tar-shards", "path": path})
    code, err = run(capsys, "train", recipe, "--dry-run")
    assert (code, "--allow-code" in err) == (2, True), err


def test_a_run_on_a_file_of_the_current_folder_is_inspected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.csv").write_text("a,b\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(60)))
    recipe = put(tmp_path / "mine.yaml", data={"name": "csv", "path": "mine.csv", "target": "b"})
    done = train(recipe, runs_root=tmp_path / "runs").folder
    code, err = run(capsys, "inspect", str(done), "--quick", "--quiet")
    assert code == 0, err


def test_the_python_interface_obeys_too(folder: Path, tmp_path: Path) -> None:
    recipe = put(folder / "resolved.yaml", model=MODEL)
    disguise(folder, recipe)
    for call in (
        lambda: train(recipe, runs_root=tmp_path / "new"),
        lambda: inspect_run(folder),
        lambda: load_model(Run(folder)),
        lambda: Run(folder).model(),
        lambda: compare(recipe, changes={"batch_size": 10}, runs_root=tmp_path / "new"),
        lambda: improve(recipe, "1s", runs_root=tmp_path / "new"),
    ):
        with pytest.raises(UsageError, match="allow_code=True"):
            call()
    assert not (folder / TRACE).exists()
    with pytest.raises(UsageError, match="allow_code=True"), allowing_code(False):
        train(recipe, runs_root=tmp_path / "new")
    assert train(recipe, runs_root=tmp_path / "new", allow_code=True).state == "finished"
    with pytest.raises(UsageError, match="allow_code=True"):
        train(recipe, seed=1, runs_root=tmp_path / "new")
    settings = {"runs_root": tmp_path / "new", "report": False, "allow_code": True}
    verdict = compare(recipe, changes={"batch_size": 10}, looks=[3], margin=0.5, workers=1, **settings)
    assert verdict.pairs == 3
    with pytest.raises(UsageError, match="there is time for 0 replicas"):  # it was tried out, so it ran
        improve(recipe, "0.00001s", ["batch_size=10"], only_mine=True, workers=1, **settings)


def test_what_is_in_a_record(folder: Path, tmp_path: Path) -> None:
    (folder / "deep" / "down").mkdir(parents=True)
    assert record_around(folder / "deep" / "down") == folder
    assert record_around(folder) == folder
    assert record_around(tmp_path) is None
    assert record_around(tmp_path / "gone") is None
