"""The catalogue: the same as the folders, whatever happens to it."""

import json
import logging
import math
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.store import Catalogue, Run, RunWriter, reader
from apoint.store import catalogue as catalogue_module
from apoint.store import database as database_module
from apoint.store import status as status_module
from apoint.store.blocks import POINTS, from_blocks, to_blocks
from apoint.store.database import is_local_disk, wal_is_safe
from apoint.store.lock import FileLock
from apoint.store.sealed import write_sealed

MakeRun = Callable[..., Run]


@settings(deadline=None, max_examples=30)
@given(values=st.lists(st.floats(), max_size=3 * POINTS // 2), extra=st.integers(0, 2 * POINTS))
def test_blocks_hold_a_curve_exactly(values: list[float], extra: int) -> None:
    heights = values + [0.5] * extra
    steps = [3 * place - 7 for place in range(len(heights))]
    blocks = list(to_blocks(steps, heights))
    assert [block.num_points for block in blocks[:-1]] == [POINTS] * (len(blocks) - 1)
    assert [block.number for block in blocks] == list(range(len(blocks)))
    curve = from_blocks((block.steps, block.values) for block in blocks)
    assert list(curve.steps) == steps
    assert list(map(repr, curve.values)) == list(map(repr, heights))
    for block in blocks:
        part = heights[block.number * POINTS : (block.number + 1) * POINTS]
        finite = [value for value in part if math.isfinite(value)]
        assert (block.low, block.high) == ((min(finite), max(finite)) if finite else (None, None))
        assert block.first_step == steps[block.number * POINTS]


def test_the_catalogue_says_what_the_folders_say(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run("digits", "3f2a1b", seed, steps=300 + seed) for seed in range(3)]
    catalogue = Catalogue(tmp_path / "runs")
    assert catalogue.refresh() == 3
    summaries = catalogue.summaries()
    assert [summary.folder for summary in summaries] == [run.folder for run in reversed(runs)]  # newest first
    for summary in summaries:
        run = Run(summary.folder)
        assert (summary.name, summary.fingerprint, summary.seed) == (run.name, run.fingerprint, run.seed)
        assert (summary.state, summary.started) == ("finished", run.status["started"])
        assert summary.step == summary.total_steps == 300 + summary.seed
        assert summary.last == run.metrics.final()
        assert summary.problem is None
    curves = catalogue.series("accuracy", "test")
    assert {name: (list(curve.steps), list(curve.values)) for name, curve in curves.items()} == {
        run.folder.name: run.metrics.series("accuracy") for run in runs
    }
    assert list(catalogue.series("loss", folders=[runs[1].folder.name])) == [runs[1].folder.name]
    assert catalogue.series("loss", folders=[]) == catalogue.series("loss", "train") == {}


def test_only_what_changed_is_read_again(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_run(seed=seed, ended=seed != 1) for seed in range(3)]
    read: list[str] = []
    real = catalogue_module._read_entry
    monkeypatch.setattr(
        catalogue_module, "_read_entry", lambda folder: read.append(folder.name) or real(folder)
    )
    catalogue = Catalogue(tmp_path / "runs")
    assert (catalogue.refresh(), Catalogue(tmp_path / "runs").refresh()) == (3, 0)
    read.clear()
    with RunWriter.open(runs[1].folder) as writer:
        writer.metric(step=77, epoch=9, split="test", loss=math.nan)
        writer.status("running", step=77)
        assert catalogue.refresh() == 1
        assert {each.seed: each.state for each in catalogue.summaries()} == {
            0: "finished",
            1: "running",
            2: "finished",
        }
    assert catalogue.refresh() == 1
    assert set(read) == {runs[1].folder.name}
    changed = next(each for each in catalogue.summaries() if each.seed == 1)
    assert changed.step == 77
    assert math.isnan(changed.last["test_loss"])
    assert catalogue.series("loss")[runs[1].folder.name].steps[-1] == 77
    for path in runs[0].folder.iterdir():
        path.unlink()
    runs[0].folder.rmdir()
    assert catalogue.refresh() == 0
    assert {each.seed for each in catalogue.summaries()} == {1, 2}
    assert set(catalogue.series("loss")) == {runs[1].folder.name, runs[2].folder.name}


def test_a_state_is_that_of_now_not_of_the_last_refresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a-0000-s0"
    RunWriter.create(folder, "", "", {}).close()
    now = time.time()
    monkeypatch.setattr(status_module.time, "time", lambda: now)
    status = {"state": "running", "pid": 2**22 + 7, "host": "elsewhere", "heartbeat": now - 299.5}
    (folder / "status.json").write_text(json.dumps(status))
    catalogue = Catalogue(tmp_path)
    catalogue.refresh()
    assert catalogue.summaries()[0].state == "running"
    now += 0.6
    assert catalogue.summaries()[0].state == "stalled"


DAMAGE = {
    "garbage": lambda path: path.write_bytes(b"this is no database" * 500),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "zeroed": lambda path: path.write_bytes(path.read_bytes()[:4096] + bytes(path.stat().st_size - 4096)),
    "byte of a name": lambda path: path.write_bytes(path.read_bytes().replace(b"TABLE", b"TABL\xd5", 1)),
    "byte of a word": lambda path: path.write_bytes(path.read_bytes().replace(b" UNIQUE", b" \xd5NIQUE", 1)),
    "without a table": lambda path: execute(path, "DROP TABLE blocks"),
    "with a foreign table": lambda path: execute(path, "DROP TABLE blocks", "CREATE TABLE blocks(a)"),
}


def execute(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_catalogue_is_built_anew_aloud(
    make_run: MakeRun, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    run = make_run(steps=600)
    catalogue = Catalogue(tmp_path / "runs")
    catalogue.refresh()
    DAMAGE[how](catalogue.path)
    (tmp_path / "runs" / "catalogue.sqlite-journal").write_bytes(b"left behind")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            catalogue.refresh()
            assert [each.folder for each in catalogue.summaries()] == [run.folder]
            assert list(catalogue.series("loss")[run.folder.name].values) == run.metrics.series("loss")[1]
    assert "catalogue.sqlite is damaged" in caplog.text
    assert "is rebuilt" in caplog.text
    assert caplog.text.count("is rebuilt") == 1
    assert not (tmp_path / "runs" / "catalogue.sqlite-journal").exists()


def test_a_catalogue_of_another_version_or_none_is_made_without_a_word(
    make_run: MakeRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_run()
    catalogue = Catalogue(tmp_path / "runs")
    catalogue.refresh()
    execute(catalogue.path, "PRAGMA user_version=99")
    assert catalogue.refresh() == 1
    catalogue.path.unlink()
    assert len(catalogue.summaries()) == 1  # also without a refresh
    assert catalogue.rebuild() == 1
    assert caplog.text == ""


def test_where_it_cannot_be_written_the_runs_are_listed_all_the_same(
    make_run: MakeRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run()
    (tmp_path / "runs" / "catalogue.sqlite").mkdir()
    with caplog.at_level(logging.WARNING), Catalogue(tmp_path / "runs") as catalogue:
        assert catalogue.refresh() == 0  # the first reading happened when it was built
        assert [each.folder for each in catalogue.summaries()] == [run.folder]
        make_run(seed=1)
        assert catalogue.refresh() == 1
        assert len(catalogue.series("loss")) == 2
    assert caplog.text.count("cannot be used") == 1


def test_building_anew_removes_the_journals_of_the_old_file(make_run: MakeRun, tmp_path: Path) -> None:
    make_run()
    catalogue = Catalogue(tmp_path / "runs")
    catalogue.refresh()
    for ending in ("-journal", "-wal", "-shm"):
        (tmp_path / "runs" / f"catalogue.sqlite{ending}").write_bytes(b"of the old file")
    assert catalogue.rebuild() == 1
    found = {path.name for path in (tmp_path / "runs").iterdir() if path.is_file()}
    assert found == {"catalogue.sqlite", "catalogue.lock"}


def test_whoever_writes_it_holds_its_lock_and_others_do_without(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run()
    monkeypatch.setattr(catalogue_module, "BUSY_SECONDS", 0.05)
    with FileLock(tmp_path / "runs" / "catalogue.lock"), Catalogue(tmp_path / "runs") as catalogue:
        catalogue.refresh()
        assert [each.folder for each in catalogue.summaries()] == [run.folder]
    assert "cannot be used" in caplog.text
    assert not catalogue.path.exists()


def test_an_empty_or_missing_folder_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for root in (tmp_path, tmp_path / "none"):
        with Catalogue(root) as catalogue:
            assert catalogue.refresh() == 0
            assert catalogue.summaries() == []
            assert catalogue.series("loss") == {}
    assert list(tmp_path.iterdir()) == []
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"step": 1, "split": "test", "lo\\ud800ss": 1}', None),
        ("x" * 2**21, None),
        (None, "newer apoint"),
    ],
)
def test_a_run_that_cannot_be_indexed_harms_no_other(
    make_run: MakeRun, tmp_path: Path, line: str | None, problem: str | None
) -> None:
    good, bad = make_run(seed=0), make_run(seed=1, ended=False)
    if line is None:
        write_sealed(bad.folder / "seal.json", {"schema_version": 9})
    else:
        (bad.folder / "metrics.jsonl").write_text(line + "\n")
    catalogue = Catalogue(tmp_path / "runs")
    assert catalogue.refresh() == 2
    summaries = {each.folder: each for each in catalogue.summaries()}
    assert summaries[good.folder].problem is None
    assert (problem or "None") in str(summaries[bad.folder].problem)
    assert list(catalogue.series("loss")) == [good.folder.name]


REFRESH = """
import sys
from apoint.store import Catalogue
catalogue = Catalogue(sys.argv[1])
for _ in range(3):
    catalogue.refresh()
    assert len(catalogue.summaries()) == 12
    assert len(catalogue.series("loss")) == 12
"""


@pytest.mark.parametrize("wal", [False, True])
def test_eight_processes_at_once(make_run: MakeRun, tmp_path: Path, wal: bool) -> None:
    for seed in range(12):
        make_run(seed=seed, steps=300, ended=seed != 3)
    script = REFRESH
    if wal:
        script = "from apoint.store import database; database.wal_is_safe = lambda: True\n" + script
    command = [sys.executable, "-c", script, str(tmp_path / "runs")]
    children = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    with RunWriter.open(tmp_path / "runs" / "digits-3f2a1b-s3") as writer:
        for step in range(301, 401):
            writer.metric(step=step, epoch=0, split="test", loss=0.5, accuracy=0.5)
            time.sleep(0.005)
    complaints = [child.communicate(timeout=60)[1] for child in children]
    assert [child.returncode for child in children] == [0] * 8, complaints
    assert complaints == [""] * 8  # nothing was damaged, nobody had to do without
    catalogue = Catalogue(tmp_path / "runs")
    catalogue.refresh()
    connection = sqlite3.connect(catalogue.path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (12,)
    connection.close()
    assert len(catalogue.series("loss")["digits-3f2a1b-s3"].steps) == 400


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 0), False),
        ((3, 49, 9), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 52, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_a_write_ahead_log_needs_a_repaired_sqlite(version: tuple[int, ...], safe: bool) -> None:
    assert wal_is_safe(version) is safe


def test_a_write_ahead_log_needs_a_local_disk(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/vda / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\n/dev/vdb /home/fast xfs rw 0 0\n"
        "sshfs /my\\040disk fuse.sshfs rw 0 0\n"
    )
    places = {"/var/runs": True, "/home/me": False, "/home/fast/runs": True, "/my disk/runs": False}
    assert {place: is_local_disk(Path(place), mounts) for place in places} == places
    assert is_local_disk(Path("/var"), tmp_path / "none") is False


def test_the_journal_follows(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run()
    catalogue = Catalogue(tmp_path / "runs")
    for safe, local, expected in ((True, True, "wal"), (True, False, "delete"), (False, True, "delete")):
        monkeypatch.setattr(database_module, "wal_is_safe", lambda safe=safe: safe)
        monkeypatch.setattr(database_module, "is_local_disk", lambda path, local=local: local)
        catalogue.refresh()
        connection = sqlite3.connect(catalogue.path)
        assert connection.execute("PRAGMA journal_mode").fetchone() == (expected,)
        connection.close()


def test_a_busy_database_is_tried_again_a_few_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(database_module, "BUSY_SECONDS", 0.01)
    first = database_module.connect(tmp_path / "a.sqlite")
    first.execute("BEGIN IMMEDIATE")
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        if len(tries) == 3:
            first.execute("ROLLBACK")
        second = database_module.connect(tmp_path / "a.sqlite")
        try:
            with database_module.writing(second):
                second.execute("CREATE TABLE a(b)")
        finally:
            second.close()

    database_module.with_patience(work)
    assert len(tries) == 3
    first.execute("BEGIN IMMEDIATE")
    tries[:] = [1, 1, 1]
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        database_module.with_patience(work)
    first.close()


def test_one_metric_of_many_runs_is_read_from_the_catalogue_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(20):
        folder = tmp_path / f"a-0000-s{seed}"
        RunWriter.create(folder, "", "", {}).close()
        lines = (f'{{"step":{step},"split":"test","loss":{1 / (step + 1)!r}}}\n' for step in range(2000))
        (folder / "metrics.jsonl").write_text("".join(lines))
    catalogue = Catalogue(tmp_path)
    catalogue.refresh()
    curves = catalogue.series("loss")
    assert sum(len(curve.values) for curve in curves.values()) == 40_000
    monkeypatch.setattr(reader, "open_regular", lambda *_, **__: pytest.fail("a run folder was read"))
    assert catalogue.series("loss") == curves
    assert Catalogue(tmp_path).series("loss") == curves
