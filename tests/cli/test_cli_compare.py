"""`apoint compare` as a user meets it: the card, JSON, exit codes, and a sentence for what is wrong."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from apoint.cli import main
from apoint.engine import TrainingInterruptedError
from apoint.engine.fleet import Fleet

RECIPE = """\
data: {name: digits, limit: 240}
model: {name: mlp, width: 16, depth: 1}
optimizer: {name: adamw, lr: 3e-3}
batch_size: 32
epochs: 2
"""
WORSE = ("--change", "optimizer.lr=1e-5")
QUICK = ("--engine", "loop", "--quiet")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("APOINT_DEBUG", raising=False)
    (tmp_path / "r.yaml").write_text(RECIPE)
    return tmp_path


def run(*arguments: str, capsys: Any) -> tuple[int, str, str]:
    try:
        main(list(arguments))
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_card_report_and_expectation(capsys: Any, elsewhere: Path) -> None:
    code, out, err = run("compare", "r.yaml", *WORSE, *QUICK, capsys=capsys)
    assert code == 0, err
    assert out.startswith("worse: with optimizer.lr 1e-5 instead of 3e-3, test_accuracy is lower by")
    assert "half the standard deviation of the baseline over the seeds of each look" in err
    (folder,) = (elsewhere / "runs" / "comparisons").iterdir()
    assert "<html" in (folder / "report.html").read_text()
    assert {"declaration.json", "result.json", "baseline.yaml", "candidate.yaml"} <= {
        path.name for path in folder.iterdir()
    }
    code, out, err = run("compare", "r.yaml", *WORSE, *QUICK, "--expect", "better", capsys=capsys)
    assert code == 4
    assert "expected better, and the verdict is worse" in err
    assert run("compare", "r.yaml", *WORSE, *QUICK, "--expect", "worse", capsys=capsys)[0] == 0
    code, out, _ = run("compare", "r.yaml", *WORSE, *QUICK, "--json", capsys=capsys)
    result = json.loads(out)
    assert result["schema_version"] == 1
    assert result["verdict"]["outcome"] == "worse"
    assert result["sentence"].startswith(f"worse: with {result['verdict']['change']}, ")
    assert result["cost"]["from_cache"] == 2 * result["verdict"]["pairs"]
    assert [change["path"] for change in result["difference"]] == ["optimizer.lr"]


def test_who_stops_it_is_shown_what_is_known(
    capsys: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look's verdict holds, so it is told and drawn; before the first there is none."""
    train, wanted = Fleet.train, []

    def stopped(fleet: Fleet, tasks: Any) -> Any:
        if len(wanted) == 1:
            raise TrainingInterruptedError(signal.SIGINT, "stopped; the same command goes on")
        wanted.append(tasks)
        return train(fleet, tasks)

    monkeypatch.setattr(Fleet, "train", stopped)
    subtle = ("--change", "optimizer.lr=3.1e-3", "--looks", "6,12", "--margin", "1e-4", *QUICK)
    code, out, err = run("compare", "r.yaml", *subtle, capsys=capsys)
    (folder,) = (elsewhere / "runs" / "comparisons").iterdir()
    assert code == 130
    assert out.startswith("undecided")
    assert f"report  {folder.relative_to(elsewhere) / 'report.html'}" in out
    assert "was interrupted" in (folder / "report.html").read_text()
    assert err.endswith("apoint: stopped; the same command goes on\n")
    code, out, _ = run("compare", "r.yaml", *subtle, "--json", capsys=capsys)
    assert (code, json.loads(out)["exit_code"]) == (130, 130)
    code, out, _ = run("compare", "r.yaml", "--change", "epochs=3", *QUICK, capsys=capsys)
    assert (code, out) == (130, "")
    monkeypatch.undo()
    monkeypatch.chdir(elsewhere)
    code, out, err = run("compare", "r.yaml", *subtle, capsys=capsys)
    assert code == 0, err
    assert "12 pairs" in out


def test_a_dry_run_makes_nothing(capsys: Any, elsewhere: Path) -> None:
    code, out, _ = run("compare", "r.yaml", *WORSE, "--dry-run", "--backend", "loop", capsys=capsys)
    assert code == 0
    assert "looks        6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32; error rate 0.05 over all of them" in out
    assert "MiB of memory" in out
    assert not (elsewhere / "runs").exists()
    code, out, _ = run("compare", "r.yaml", *WORSE, "--dry-run", "--json", "--engine", "loop", capsys=capsys)
    assert json.loads(out)["cost"]["seconds"] > 0


def test_the_mean_of_the_last_evaluations_is_declared(capsys: Any, elsewhere: Path) -> None:
    asked = ("compare", "r.yaml", *WORSE, "--dry-run", "--engine", "loop", "--last", "2")
    code, out, err = run(*asked, capsys=capsys)
    assert code == 0, err
    assert "metric       test_accuracy, mean of the last 2 evaluations, higher is better" in out
    code, out, _ = run(*asked, "--json", capsys=capsys)
    assert json.loads(out)["declaration"]["last"] == 2
    code, _, err = run(*asked[:-1], "9", capsys=capsys)
    assert code == 2
    assert "--last 9 needs 9; set evaluate_every to" in err


def test_an_override_without_change_is_for_both(capsys: Any, elsewhere: Path) -> None:
    code, _, err = run("compare", "r.yaml", "epochs=1", *WORSE, *QUICK, "--margin", "0.2", "--max-pairs", "6",
                       capsys=capsys)  # fmt: skip
    assert code == 0, err
    (folder,) = (elsewhere / "runs" / "comparisons").iterdir()
    declared = json.loads((folder / "declaration.json").read_text())
    assert declared["budget"] == {"epochs": 1.0}
    assert declared["looks"] == [6]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["r.yaml"], "needs a second recipe, or a change"),
        (["r.yaml", "--change", "model.dropout=0"], "these recipes are the same"),
        (
            ["r.yaml", "--change", "optimizer.lr=1", "--change", "optimizer.lr=2"],
            "'optimizer.lr' is changed twice",
        ),
        (["r.yaml", "--change", "data.name=moons"], "measured on different data"),
        (["r.yaml", "other.yaml"], "there is no recipe file 'other.yaml'"),
        (["r.yaml", "a.yaml", "b.yaml"], "a comparison has two arms, and there are 3 recipes"),
        (["r.yaml", *WORSE, "--margin", "0"], "must be above 0"),
        (["r.yaml", *WORSE, "--max-pairs", "1"], "cannot tell an effect from the noise of seeds"),
        (["r.yaml", *WORSE, "--looks", "8;16"], "--looks must be whole numbers with commas"),
        (["r.yaml", *WORSE, "--metric", "test_f1"], "unknown metric 'test_f1'"),
        (["r.yaml", *WORSE, "--vary", "wind"], "vary"),
        (["r.yaml", *WORSE, "--budget", "20"], "write it with its unit, such as 20m"),
        (["r.yaml", *WORSE, "--engine", "warp"], "unknown backend of a fleet 'warp'"),
        (["r.yaml", *WORSE, "--workers", "0"], "at least 1"),
        (["r.yaml", "--change", "optimizer.lr"], "is not an override"),
        (["r.yaml", "--change", "optimizer.momentun=0.9"], "momentun"),
    ],
)
def test_one_sentence_for_what_is_wrong(
    arguments: list[str], sentence: str, capsys: Any, elsewhere: Path
) -> None:
    code, _, err = run("compare", *arguments, capsys=capsys)
    assert code == 2, err
    assert sentence in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
    assert not (elsewhere / "runs").exists()
