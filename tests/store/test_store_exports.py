"""Exports, read back by the tools they are for."""

import csv
import json
import logging
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from apoint.errors import ApointError, StorageError, UsageError
from apoint.store import Run, RunWriter, to_csv, to_parquet, to_state_dict, to_tensorboard, write_manifest

MakeRun = Callable[..., Run]

VALUES = [0.1, -0.0, math.nan, math.inf, -math.inf, 1e-320, 1 / 3]


@pytest.fixture
def odd_run(tmp_path: Path) -> Run:
    folder = tmp_path / "runs" / "=cmd()-00ff-s3"
    with RunWriter.create(folder, "", "", {"seed": 3}) as writer:
        for step, value in enumerate(VALUES):
            writer.metric(
                step=step, epoch=step / 4, split="test", seconds=1.0, **{"loss": value, "@sum, x": -1.5}
            )
        writer.metric(step=9, epoch=2, split="train", loss=2.0)
    return Run(folder)


def test_csv_reads_back_exactly(odd_run: Run, make_run: MakeRun, tmp_path: Path) -> None:
    runs = [odd_run, make_run()]
    count = to_csv(runs, tmp_path / "out" / "a.csv")
    with open(tmp_path / "out" / "a.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["run", "seed", "split", "step", "epoch", "metric", "value"]
    assert len(rows) == count == 2 * len(VALUES) + 1 + 10
    losses = [
        row for row in rows if row["metric"] == "loss" and row["seed"] == "3" and row["split"] == "test"
    ]
    assert [repr(float(row["value"])) for row in losses] == [repr(value) for value in VALUES]
    assert [float(row["epoch"]) for row in losses] == [step / 4 for step in range(len(VALUES))]
    assert [int(row["step"]) for row in losses] == list(range(len(VALUES)))
    assert {row["run"] for row in rows} == {"'=cmd()-00ff-s3", "digits-3f2a1b-s0"}


def test_csv_neutralises_formulas_and_leaves_numbers(odd_run: Run, tmp_path: Path) -> None:
    to_csv([odd_run], tmp_path / "a.csv")
    with open(tmp_path / "a.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))[1:]
    for run, _, split, _, _, metric, _ in rows:
        assert not any(text.startswith(("=", "+", "-", "@", "\t", "\r")) for text in (run, split, metric))
    assert {row[5] for row in rows} == {"loss", "'@sum, x"}
    assert {row[6] for row in rows if row[5] == "'@sum, x"} == {"-1.5"}


@pytest.mark.parametrize("write", [to_csv, to_parquet])
def test_nothing_is_overwritten_unless_told(make_run: MakeRun, tmp_path: Path, write: object) -> None:
    assert callable(write)
    path = tmp_path / "out"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists; name another file"):
        write([make_run()], path)
    assert path.read_text() == "mine"
    assert write([Run(tmp_path / "runs" / "digits-3f2a1b-s0")], path, force=True) == 10
    assert path.read_bytes() != b"mine"


def test_parquet_reads_back_exactly(odd_run: Run, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert to_parquet([odd_run], tmp_path / "a.parquet") == 2 * len(VALUES) + 1
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["run", "seed", "split", "step", "epoch", "metric", "value"]
    rows = [row for row in table.to_pylist() if row["metric"] == "loss" and row["split"] == "test"]
    assert [repr(row["value"]) for row in rows] == [repr(value) for value in VALUES]
    assert {(row["run"], row["seed"]) for row in rows} == {("=cmd()-00ff-s3", 3)}
    assert to_parquet([], tmp_path / "none.parquet") == 0
    assert parquet.read_table(tmp_path / "none.parquet").num_rows == 0


@pytest.mark.parametrize(
    ("write", "module", "extra"),
    [
        (to_parquet, "pyarrow", "parquet"),
        (to_tensorboard, "tensorboard.summary.writer.record_writer", "tensorboard"),
    ],
)
def test_a_missing_library_is_named(
    write: object, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(write)
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ApointError, match=rf"pip install apoint\[{extra}\]"):
        write([], tmp_path / "a")


def test_tensorboard_reads_its_own_format(odd_run: Run, make_run: MakeRun, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = make_run()
    assert to_tensorboard([run, odd_run], tmp_path / "logs") == 10 + 2 * len(VALUES) + 1
    events = accumulator.EventAccumulator(str(tmp_path / "logs" / run.folder.name))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"test_accuracy", "test_loss"}
    steps, values = run.metrics.series("loss")
    points = events.Scalars("test_loss")
    assert [point.step for point in points] == steps
    assert [point.value for point in points] == pytest.approx(values, rel=2**-24)  # single precision
    assert [point.wall_time for point in points] == [row["time"] for row in run.metrics]
    odd = accumulator.EventAccumulator(str(tmp_path / "logs" / odd_run.folder.name))
    odd.Reload()
    values = [point.value for point in odd.Scalars("test_loss")]
    assert math.isnan(values[2])
    assert values[3:5] == [math.inf, -math.inf]


def test_tensorboard_replaces_only_its_own_file(make_run: MakeRun, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run, logs = make_run(), tmp_path / "logs"
    (logs / run.folder.name).mkdir(parents=True)
    (logs / run.folder.name / "mine.txt").touch()
    to_tensorboard([run], logs)
    with pytest.raises(UsageError, match="exists"):
        to_tensorboard([run], logs)
    to_tensorboard([run], logs, force=True)
    assert len(list((logs / run.folder.name).iterdir())) == 2
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file; name a folder"):
        to_tensorboard([run], tmp_path / "file")


# -- weights --------------------------------------------------------------------------------------------


def add_checkpoint(run: Run, step: int) -> Path:
    numpy, safetensors = pytest.importorskip("numpy"), pytest.importorskip("safetensors.numpy")
    folder = run.folder / "checkpoints" / f"step-{step:09d}"
    folder.mkdir(parents=True)
    safetensors.save_file({"weight": numpy.full((3, 2), float(step))}, folder / "model.safetensors")
    (folder / "state.json").write_text(json.dumps({"step": step}))
    write_manifest(folder)
    return folder


def first_weight(path: Path) -> float:
    from safetensors.numpy import load_file

    return float(load_file(path)["weight"][0, 0])


def test_the_newest_sound_weights_are_copied(
    make_run: MakeRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(ended=False)
    folders = [add_checkpoint(run, step) for step in (10, 20, 30)]
    target = tmp_path / "weights.safetensors"
    assert to_state_dict(run, target) == folders[2]
    assert first_weight(target) == 30
    assert target.read_bytes() == (folders[2] / "model.safetensors").read_bytes()
    with pytest.raises(UsageError, match="exists"):
        to_state_dict(run, target)
    (folders[2] / "model.safetensors").write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING):
        assert to_state_dict(run, target, force=True) == folders[1]
    assert "step-000000030 is damaged" in caplog.text
    assert first_weight(target) == 20


def test_without_sound_weights_nothing_is_written(make_run: MakeRun, tmp_path: Path) -> None:
    run, target = make_run(ended=False), tmp_path / "weights.safetensors"
    with pytest.raises(StorageError, match="it has no checkpoints"):
        to_state_dict(run, target)
    folder = add_checkpoint(run, 10)
    (folder / "manifest.json").unlink()
    with pytest.raises(StorageError, match="none of its 1 checkpoints is sound"):
        to_state_dict(run, target)
    assert not target.exists()


@pytest.mark.parametrize("name", ["weights.pt", "weights.PTH", "pytorch_model.bin"])
def test_a_name_of_torch_gives_a_file_of_torch(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    import torch
    from safetensors.torch import load_file

    run = make_run(ended=False)
    folder = add_checkpoint(run, 10)
    assert to_state_dict(run, tmp_path / name) == folder
    loaded, expected = (
        torch.load(tmp_path / name, weights_only=True),
        load_file(folder / "model.safetensors"),
    )
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[key], expected[key]) for key in expected)


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pt"])
def test_weights_that_change_while_they_are_copied_are_refused(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from apoint.store.exports import weights

    run = make_run()
    folder = add_checkpoint(run, 10)
    monkeypatch.setattr(weights, "sound_checkpoints", lambda *_: iter([folder]))
    (folder / "model.safetensors").write_bytes(b"changed after it was verified")
    with pytest.raises(StorageError, match="changed while it was"):
        to_state_dict(run, tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {"mean": [0.5]},
        {"mean": [0.5], "std": [0.1, 0.2], "had_bytes": True},
        {"mean": [], "std": [], "had_bytes": True},
        {"mean": ["0.5"], "std": [0.1], "had_bytes": True},
        {"mean": [[0.5]], "std": [0.1], "had_bytes": True},
        {"mean": [0.5], "std": [True], "had_bytes": True},
        {"mean": [0.5], "std": [0.1], "had_bytes": 1},
    ],
)
def test_odd_preprocessing_of_a_stranger_is_none(found: object) -> None:
    from apoint.store.exports.weights import Preprocessing, preprocessing_of

    assert preprocessing_of({"preprocessing": found}) is None
    sound = {"mean": [0.5], "std": [0.1], "had_bytes": True}
    assert preprocessing_of({"preprocessing": sound}) == Preprocessing((0.5,), (0.1,), True)
