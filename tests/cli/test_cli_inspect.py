"""`apoint inspect` on a recipe, a run and a class; what it prints and how it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apoint.cli import main
from apoint.doctor import diagnosis
from apoint.doctor.examination import Examination
from apoint.engine import train

RECIPE = {
    "name": "small",
    "data": {"name": "digits", "limit": 600},
    "model": {"name": "mlp", "width": 32},
    "batch_size": 32,
    "epochs": 2,
}
NET = """
from torch import nn
class Net(nn.Sequential):
    def __init__(self, in_features, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(in_features, 32), nn.ReLU(), nn.Linear(32, num_classes))
"""


@pytest.fixture(autouse=True)
def steps_do_not_depend_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Examination, "_step_seconds", 0.01)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        main(["inspect", *arguments])
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(RECIPE))
    return str(path)


def test_a_healthy_recipe(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, recipe, "--quick", "--expect-healthy")
    assert code == 0
    assert "Nothing wrong was found" in out
    assert "Layers, at the start" in out
    assert "looking at: a short training" in err


def foreign(tmp_path: Path, **changes: object) -> Path:
    """A run folder whose recipe was replaced by another after training."""
    folder = train(RECIPE, runs_root=tmp_path / "runs", changes={"epochs": 1}).folder
    (folder / "resolved.yaml").unlink()
    (folder / "resolved.yaml").write_text(json.dumps({**RECIPE, **changes}))
    return folder


@pytest.mark.parametrize(
    "changes",
    [{"model": {"name": "mlp", "width": 16}}, {"model": "cnn"}, {"data": "moons"}, {"data": "circles"}],
    ids=str,
)
def test_weights_of_another_model_are_refused_in_a_sentence(
    changes: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, str(foreign(tmp_path, **changes)), "--quick", "--quiet")
    assert code in (1, 2)
    assert err.startswith("apoint: ")
    assert len(err.strip().splitlines()) == 1
    assert "unexpected" not in err


def test_a_sick_recipe(recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    code, out, _ = run(
        capsys, recipe, "optimizer.lr=5", "--quick", "--expect-healthy", "--html", str(page), "--quiet"
    )
    assert code == 4
    assert "Most probable cause: lr-too-high" in out
    assert f"apoint compare {recipe} --change optimizer.lr=" in out
    assert "lr-too-high" in page.read_text()


def test_json(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, recipe, "--quick", "--json")
    report = json.loads(out)
    assert (code, err) == (0, "")
    assert report["schema_version"] == 1
    assert report["findings"] == []
    assert report["signs"]["loss-drop"] > 0


def test_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = train(RECIPE, runs_root=tmp_path).folder
    code, out, _ = run(capsys, str(folder), "--quick", "--quiet", "--json")
    report = json.loads(out)
    assert code == 0
    assert "newest checkpoint" in report["name"]
    assert report["signs"]["initial-loss-ratio"] < 0.8, "it has learnt already"


def test_a_class(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    code, out, _ = run(capsys, "net.py:Net", "--data", "digits", "--quick", "--quiet")
    assert code == 0
    assert "Nothing wrong was found" in out


TUPLE = """
from torch import nn
class Net(nn.Module):
    def __init__(self, in_features, num_classes):
        super().__init__()
        self.first, self.head = nn.Linear(in_features, 32), nn.Linear(32, num_classes)
    def forward(self, x):
        hidden = self.first(x.flatten(1)).relu()
        return self.head(hidden), hidden
"""
FAILING = {
    "wrong width": (
        NET.replace("nn.Linear(in_features", "nn.Linear(60"), "forward-fails", "module 1 (Linear)",
        "in_features=64",
    ),
    "wrong width in a forward": (
        TUPLE.replace("nn.Linear(in_features", "nn.Linear(60"), "forward-fails", "net.py:8 in forward",
        "in_features=64",
    ),
    "a tuple": (TUPLE, "loss-fails", "the loss", "entry 0"),
    "too few outputs": (
        NET.replace("(32, num_classes", "(32, num_classes - 1"), "loss-fails", "the loss", "out_features=10"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("clip", ["none", "norm"])
def test_a_recipe_whose_model_raises(
    name: str, clip: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, finding, place, advice = FAILING[name]
    (tmp_path / "net.py").write_text(source)
    recipe = {**RECIPE, "model": {"file": "net.py", "class": "Net"}, "clip": {"name": clip}}
    (tmp_path / "own.yaml").write_text(json.dumps(recipe))
    code, out, err = run(
        capsys, str(tmp_path / "own.yaml"), "--quick", "--quiet", "--expect-healthy", "--json"
    )
    report = json.loads(out)
    first = report["findings"][0]
    assert (code, first["code"], first["level"]) == (4, finding, "severe")
    assert place in first["place"]
    assert advice in f"{first['cause']} {first['treatment']}"
    assert "Nothing wrong" not in report["sentence"]
    assert report["stages"]["run"]["state"] == "failed"
    assert report["stages"]["signal"]["state"] == "skipped"
    assert err.startswith("the stage run did not run: ")


def test_a_stage_that_fails_is_not_healthy(
    recipe: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("our own mistake")

    monkeypatch.setitem(diagnosis.EXAMINATIONS, "signal", broken)
    code, out, err = run(capsys, recipe, "--quick", "--quiet", "--expect-healthy")
    assert code == 4
    assert err == "the stage signal did not run: RuntimeError: our own mistake\n"
    assert "Nothing wrong was found" not in out
    assert "Not everything could be checked" in out
    assert run(capsys, recipe, "--quick", "--quiet")[0] == 0


def test_stages_without_time_in_a_quick_inspection_are_no_failure(
    recipe: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apoint.doctor.examination.QUICK_SECONDS", 1e-9)
    code, out, _ = run(capsys, recipe, "--quick", "--quiet", "--expect-healthy", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["stages"]["optimisation"]["state"] == "skipped"
    assert "Not checked: optimisation, generalisation" in report["sentence"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.yaml"], "nowhere.yaml"),
        (["net.py"], "say which class"),
        (["net.py:Net"], "needs data"),
    ],
)
def test_bad_input(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
