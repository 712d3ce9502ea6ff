"""Reading runs: identity, metrics, tolerance for what is missing or damaged; finding and removing them."""

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import apoint
from apoint.errors import DamagedError, StorageError, UnknownNameError, UsageError
from apoint.store import Metrics, Point, Run, RunWriter, find_run, find_runs, newest_run, remove_run
from apoint.store import lines as lines_module
from apoint.store import writer as writer_module
from apoint.store.sealed import write_sealed

MakeRun = Callable[..., Run]


def test_the_public_name_is_this_one(make_run: MakeRun) -> None:
    assert apoint.Run is Run
    run = make_run()
    assert repr(run) == f"Run({str(run.folder)!r}, finished)"
    assert run == Run(str(run.folder)) != make_run(seed=1)
    assert len({run, Run(run.folder)}) == 1


def test_a_run_folder_is_as_designed(make_run: MakeRun) -> None:
    run = make_run()
    found = {path.name for path in run.folder.iterdir()}
    assert found == {
        "recipe.yaml",
        "resolved.yaml",
        "env.json",
        "metrics.jsonl",
        "events.jsonl",
        "status.json",
        "seal.json",
        "lock",
    }
    assert run.recipe_text == "name: digits\n"
    assert run.resolved == {"name": "digits"}
    assert set(run.env) == {"schema_version", "key", "files"}
    assert run.env["key"] == {"recipe": "3f2a1b", "seed": 0}
    assert run.status["schema_version"] == 1


@pytest.mark.parametrize("env", [{}, {"key": {"recipe": "3f2a1b", "seed": 7}}])
def test_identity_comes_from_the_folder_or_the_environment(tmp_path: Path, env: dict[str, Any]) -> None:
    folder = tmp_path / "my-net-3f2a1b-s7"
    RunWriter.create(folder, "", "name: my-net", env).close()
    run = Run(folder)
    assert (run.name, run.fingerprint, run.seed) == ("my-net", "3f2a1b", 7)
    renamed = Run(folder.rename(tmp_path / "renamed"))
    assert renamed.name == "my-net"
    assert (renamed.fingerprint, renamed.seed) == (("3f2a1b", 7) if env else ("", None))


def test_an_environment_that_names_the_run_is_believed(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "a-0000-s1", "", "", {"name": "b", "fingerprint": "ffff", "seed": 2}).close()
    run = Run(tmp_path / "a-0000-s1")
    assert (run.name, run.fingerprint, run.seed) == ("b", "ffff", 2)


# -- metrics --------------------------------------------------------------------------------------------


def rows() -> list[dict[str, Any]]:
    return [
        {"step": 1, "epoch": 0.5, "split": "train", "time": 1.0, "loss": 3.0},
        {"step": 1, "epoch": 0.5, "split": "test", "time": 1.0, "loss": 2.0, "accuracy": 0.5},
        {"step": 2, "epoch": 1.0, "split": "test", "time": 2.0, "loss": "NaN", "accuracy": 0.9},
        {"step": 3, "epoch": 1.5, "split": "test", "time": 3.0, "loss": 1.0, "accuracy": 0.9},
    ]


def test_series_last_best_and_names() -> None:
    metrics = Metrics(rows())
    assert metrics.names == ["test_accuracy", "test_loss", "train_loss"]
    assert metrics.series("accuracy") == ([1, 2, 3], [0.5, 0.9, 0.9])
    assert metrics.series("loss", split="train") == metrics.series("train_loss") == ([1], [3.0])
    assert math.isnan(metrics.series("loss")[1][1])
    assert metrics.last("loss") == metrics.last("test_loss") == 1.0
    assert metrics.best("accuracy") == Point(2, 0.9)  # the earliest of equals
    assert metrics.best("loss") == (3, 1.0)
    assert metrics.best("loss", higher_is_better=True) == (1, 2.0)
    assert metrics.final() == {"test_accuracy": 0.9, "test_loss": 1.0, "train_loss": 3.0}
    assert len(metrics) == 4
    assert [row["step"] for row in metrics] == [1, 1, 2, 3]
    assert metrics[0]["loss"] == 3.0
    assert repr(metrics[-2:]) == repr(list(metrics)[2:])


def test_unknown_metrics_and_directions_are_refused() -> None:
    metrics = Metrics([*rows(), {"step": 4, "split": "test", "sharpness": 2.0}])
    with pytest.raises(UnknownNameError, match="unknown metric 'acuracy'; did you mean 'accuracy'"):
        metrics.last("acuracy")
    with pytest.raises(UnknownNameError, match="unknown metric 'accuracy'; did you mean 'test_accuracy'"):
        metrics.series("accuracy", split="train")
    with pytest.raises(UsageError, match="is a higher sharpness better"):
        metrics.best("sharpness")
    assert metrics.best("sharpness", higher_is_better=False) == (4, 2.0)
    with pytest.raises(UnknownNameError, match="there are none"):
        Metrics([]).series("loss")


def test_a_curve_of_nothing_but_nan_has_its_last_point_as_best() -> None:
    metrics = Metrics([{"step": step, "split": "test", "loss": "NaN"} for step in (1, 2)])
    assert metrics.best("loss").step == 2


def test_of_rows_written_twice_the_last_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "a-0000-s0"
    with RunWriter.create(folder, "", "", {}) as writer:
        for step in range(6):
            writer.metric(step=step, epoch=0, split="train", seconds=1.0, loss=float(step))
            writer.metric(step=step, epoch=0, split="test", seconds=1.0, loss=10.0 + step)
    with RunWriter.open(folder) as writer:  # from the checkpoint at step 3
        for step in range(3, 8):
            writer.metric(step=step, epoch=0, split="train", seconds=2.0, loss=float(step))
    metrics = Run(folder).metrics
    assert metrics.series("loss", "train") == (list(range(8)), [float(step) for step in range(8)])
    assert [row["seconds"] for row in metrics if row["split"] == "train"] == [1.0] * 3 + [2.0] * 5
    assert metrics.series("loss", "test") == (list(range(6)), [10.0 + step for step in range(6)])
    assert [row["step"] for row in metrics] == sorted(row["step"] for row in metrics)


def test_rows_come_in_order_of_steps_whatever_the_order_of_writing() -> None:
    metrics = Metrics([{"step": step, "split": "test", "loss": float(step)} for step in (0, 4, 8, 2, 6)])
    assert metrics.series("loss") == ([0, 2, 4, 6, 8], [0.0, 2.0, 4.0, 6.0, 8.0])
    assert metrics.last("loss") == 8.0


def test_a_run_may_be_watched_and_is_parsed_only_when_it_grew(
    writer: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(writer.folder)
    assert len(run.metrics) == 0
    writer.metric(step=1, epoch=1, split="test", loss=1.0)
    first = run.metrics
    assert first.last("loss") == 1.0
    assert run.metrics is first
    writer.metric(step=2, epoch=1, split="test", loss=0.5)
    assert run.metrics.last("loss") == 0.5


# -- what is missing or damaged -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["metrics.jsonl", "events.jsonl", "status.json", "resolved.yaml"])
def test_a_missing_file_of_an_open_run_is_an_empty_value(make_run: MakeRun, name: str) -> None:
    run = make_run(ended=False)
    (run.folder / name).unlink()
    values = {
        "metrics.jsonl": lambda: list(run.metrics),
        "events.jsonl": lambda: run.events,
        "status.json": lambda: run.status,
        "resolved.yaml": lambda: run.resolved,
    }
    assert not values[name]()
    assert run.state == ("unknown" if name == "status.json" else "running")


@pytest.mark.parametrize("content", [b"", b'{"state": "fin', b"[]", b"\xff\xff"])
def test_a_torn_status_is_unknown_unless_there_is_a_seal(make_run: MakeRun, content: bytes) -> None:
    for run, state in ((make_run(ended=False), "unknown"), (make_run(seed=1), "finished")):
        (run.folder / "status.json").write_bytes(content)
        assert (run.state, run.status) == (state, {})


@pytest.mark.parametrize("content", [b"", b'{"key": ', b"[1]", b"[" * 100_000])
def test_a_damaged_environment_is_named_and_hides_nothing_else(make_run: MakeRun, content: bytes) -> None:
    run = make_run()
    (run.folder / "env.json").write_bytes(content)
    with pytest.raises(DamagedError, match=r"cannot read .*env\.json: "):
        _ = run.env
    assert (run.name, run.fingerprint, run.seed) == ("digits", "3f2a1b", 0)
    assert len(run.metrics) == 5


@pytest.mark.parametrize("content", ["a: [", "- 1\n- 2\n", "!!python/object/apply:os.getcwd []"])
def test_a_damaged_recipe_is_named_and_runs_nothing(make_run: MakeRun, content: str) -> None:
    run = make_run(ended=False)
    (run.folder / "resolved.yaml").write_text(content)
    with pytest.raises(StorageError, match=r"cannot read .*resolved\.yaml"):
        _ = run.resolved


def test_a_newer_schema_is_refused(make_run: MakeRun) -> None:
    run = make_run(ended=False)
    write_sealed(run.folder / "env.json", {"schema_version": 2})
    for read in (
        lambda: run.env,
        lambda: run.metrics,
        lambda: run.events,
        lambda: RunWriter.open(run.folder),
    ):
        with pytest.raises(StorageError, match=r"newer apoint \(schema 2, this one knows 1\); upgrade"):
            read()


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no run folder at"):
        Run(tmp_path / "none")
    with pytest.raises(UsageError, match=r"is not a run folder: it has no env\.json"):
        Run(tmp_path)
    with pytest.raises(UsageError, match="there is no run folder at"):
        RunWriter.open(tmp_path / "none")


def test_a_run_is_made_only_where_nothing_is(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    with pytest.raises(UsageError, match="holds a run already; resume that one"):
        RunWriter.create(run.folder, "", "", {})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"is not empty: it holds 'thesis\.tex'"):
        RunWriter.create(tmp_path / "mine", "", "", {})
    assert os.listdir(tmp_path / "mine") == ["thesis.tex"]


def test_finished_is_said_only_after_everything_is_synced(
    writer: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def remember(handle: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name
        synced.append(name if Run(writer.folder).state == "running" else f"{name} too late")

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("asks /proc")
    monkeypatch.setattr(lines_module.os, "fsync", remember)
    writer.sync()
    assert synced == ["metrics.jsonl", "events.jsonl"]
    synced.clear()
    writer.status("finished")
    assert synced[:2] == ["metrics.jsonl", "events.jsonl"]


def test_the_model_is_asked_of_the_engine(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        @staticmethod
        def load_model(run: Run, allow_code: bool) -> str:
            return f"model of {run.name}, {allow_code}"

    monkeypatch.setitem(__import__("sys").modules, "apoint.engine", Engine)
    assert make_run().model() == "model of digits, False"
    assert make_run(seed=1).model(allow_code=True) == "model of digits, True"


# -- finding --------------------------------------------------------------------------------------------


def test_a_run_is_found_by_path_name_and_fingerprint(make_run: MakeRun, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    runs = [
        make_run("digits", "3f2a1b", 0),
        make_run("digits", "3f2a1b", 1),
        make_run("spirals", "99cc00", 0),
    ]
    (root / "not-a-run").mkdir()
    (root / ".hidden").mkdir()
    assert find_runs(root) == runs
    assert find_runs(tmp_path / "nowhere") == []
    for text in (str(runs[2].folder), "spirals-99cc00-s0", "spi", "99cc", "99cc00-s0"):
        assert find_run(text, root) == runs[2]
    assert find_run("3f2a1b-s1", root) == runs[1]
    assert newest_run(root) == runs[2]


def test_a_run_that_is_not_found_or_not_unique_is_explained(make_run: MakeRun, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    make_run("digits", "3f2a1b", 0)
    make_run("digits", "3f2a1b", 1)
    with pytest.raises(
        UsageError, match="'dig' is the beginning of 2 runs: digits-3f2a1b-s0, digits-3f2a1b-s1; write more"
    ):
        find_run("dig", root)
    with pytest.raises(UnknownNameError, match=r"unknown run 'digit5'; did you mean 'digits"):
        find_run("digit5", root)
    with pytest.raises(UnknownNameError):
        find_run("", root)
    with pytest.raises(UsageError, match="there is no run folder at elsewhere/digits"):
        find_run("elsewhere/digits", root)
    with pytest.raises(UsageError, match="there are no runs in"):
        newest_run(tmp_path)


def test_the_exact_name_wins_over_longer_ones(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("a", "0000", 1)
    make_run("a", "0000", 12)
    assert find_run("a-0000-s1", tmp_path / "runs").seed == 1


def test_removing_takes_the_whole_folder_and_nothing_else(make_run: MakeRun, tmp_path: Path) -> None:
    run, other = make_run(seed=0), make_run(seed=1)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.txt").touch()
    (run.folder / "probes").symlink_to(outside)
    remove_run(run)
    assert os.listdir(tmp_path / "runs") == [other.folder.name]
    assert (outside / "kept.txt").exists()


def test_removing_refuses_what_runs_or_is_no_run(
    writer: RunWriter, make_run: MakeRun, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=rf"is running \(process {os.getpid()}\); stop it"):
        remove_run(Run(writer.folder))
    writer.status("finished")
    with pytest.raises(UsageError, match="is being written by process"):
        remove_run(Run(writer.folder))
    assert (writer.folder / "metrics.jsonl").exists()
    run = make_run(seed=3)
    link = tmp_path / "link"
    link.symlink_to(run.folder)
    with pytest.raises(UsageError, match="is a link"):
        remove_run(Run(link))
    shutil.copytree(run.folder, tmp_path / "copy")
    copy = Run(tmp_path / "copy")
    for name in ("env.json", "seal.json"):
        (copy.folder / name).unlink()
    with pytest.raises(UsageError, match="is not a run folder"):
        remove_run(copy)
    assert copy.folder.exists()


def test_a_metric_costs_one_write_and_no_more(writer: RunWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    whole = os.write
    monkeypatch.setattr(
        lines_module.os, "write", lambda handle, data: written.append(1) or whole(handle, data)
    )
    for name in ("fsync", "fstat", "lstat", "stat", "open", "replace"):
        monkeypatch.setattr(os, name, lambda *_, **__: pytest.fail("more than a write"))
    for step in range(100):
        writer.metric(step=step, epoch=0.5, split="train", seconds=1.5, loss=1 / (step + 1), accuracy=0.25)
    monkeypatch.undo()
    assert len(written) == 100
    assert writer_module.HEARTBEAT_SECONDS <= 10
