"""`apoint export` as a user meets it."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from apoint.cli.export import command
from apoint.errors import StorageError, UsageError
from apoint.store import RunWriter, write_manifest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed in range(2):
        with RunWriter.create(tmp_path / "runs" / f"digits-3f2a1b-s{seed}", "", "", {}) as writer:
            for step in range(3):
                writer.metric(step=step, epoch=step, split="test", loss=step + seed / 10)
            writer.status("finished", step=2)
    return tmp_path / "runs"


def invoke(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--runs-root", str(root)])


def printed_json(root: Path, *arguments: str) -> dict[str, Any]:
    result = invoke(root, *arguments, "--json")
    assert result.exit_code == 0, result.exception
    content = json.loads(result.stdout)
    assert content.pop("schema_version") == 1
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize("names", [["--all"], ["digits-3f2a1b-s0", "3f2a1b-s1"]])
def test_csv(root: Path, tmp_path: Path, names: list[str]) -> None:
    target = str(tmp_path / "a.csv")
    result = invoke(root, "csv", *names, "--to", target)
    assert result.stdout == f"wrote {target}: 6 rows of 2 runs\n"
    with open(target, newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["run"], float(row["value"])) for row in rows] == [
        (f"digits-3f2a1b-s{seed}", step + seed / 10) for seed in range(2) for step in range(3)
    ]


def test_parquet(root: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    target = str(tmp_path / "a.parquet")
    facts = printed_json(root, "parquet", "digits-3f2a1b-s1", "--to", target)
    assert facts == {"path": target, "runs": [str(root / "digits-3f2a1b-s1")], "rows": 3}
    assert parquet.read_table(target).column("value").to_pylist() == [0.1, 1.1, 2.1]


def test_tensorboard(root: Path, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    facts = printed_json(root, "tensorboard", "--all", "--to", str(tmp_path / "logs"))
    assert facts["points"] == 6
    events = accumulator.EventAccumulator(str(tmp_path / "logs" / "digits-3f2a1b-s0"))
    events.Reload()
    assert [(point.step, point.value) for point in events.Scalars("test_loss")] == [
        (0, 0.0),
        (1, 1.0),
        (2, 2.0),
    ]


def test_state_dict(root: Path, tmp_path: Path) -> None:
    result = invoke(root, "state-dict", "digits-3f2a1b-s0", "--to", str(tmp_path / "w.safetensors"))
    assert isinstance(result.exception, StorageError)
    for step in (1, 2):
        folder = root / "digits-3f2a1b-s0" / "checkpoints" / f"step-{step:09d}"
        folder.mkdir(parents=True)
        (root / "digits-3f2a1b-s0" / "seal.json").unlink(missing_ok=True)
        (folder / "model.safetensors").write_bytes(b"weights %d" % step)
        write_manifest(folder)
    facts = printed_json(root, "state-dict", "digits-3f2a1b-s0", "--to", str(tmp_path / "w.safetensors"))
    assert facts["checkpoint"] == "step-000000002"
    assert (tmp_path / "w.safetensors").read_bytes() == b"weights 2"
    (root / "digits-3f2a1b-s0" / "checkpoints" / "step-000000002" / "model.safetensors").write_bytes(
        b"weights 3"
    )
    result = invoke(
        root, "state-dict", "digits-3f2a1b-s0", "--to", str(tmp_path / "w.safetensors"), "--force"
    )
    assert "at step-000000001" in result.stdout
    assert (tmp_path / "w.safetensors").read_bytes() == b"weights 1"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["csv"], "name the runs to export, or say --all, but not both"),
        (["csv", "digits", "--all"], "name the runs to export, or say --all, but not both"),
        (["csv", "digit5"], "did you mean 'digits"),
        (["csv", "digits"], "is the beginning of 2 runs"),
        (["state-dict", "digits"], "is the beginning of 2 runs"),
    ],
)
def test_wrong_names_are_explained_and_write_nothing(
    root: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    result = invoke(root, *arguments, "--to", str(tmp_path / "out"))
    assert isinstance(result.exception, UsageError)
    assert sentence in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_existing_files_need_force(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.csv"
    target.write_text("mine")
    result = invoke(root, "csv", "--all", "--to", str(target))
    assert "exists; name another file, or allow overwriting with --force" in str(result.exception)
    assert target.read_text() == "mine"
    assert invoke(root, "csv", "--all", "--to", str(target), "--force").exit_code == 0
    assert target.read_text().startswith("run,seed")
    assert "there are no runs" in str(invoke(tmp_path / "none", "csv", "--all", "--to", "x").exception)


def test_where_to_write_must_be_said(root: Path) -> None:
    assert invoke(root, "csv", "--all").exit_code == 2
