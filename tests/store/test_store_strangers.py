"""Folders from strangers: only regular files are read, strictly and within limits; leftovers are swept."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from apoint.errors import DamagedError, StorageError, UsageError
from apoint.store import Catalogue, Metrics, Run, RunWriter, reader, to_csv
from apoint.store.files import sweep
from apoint.store.sealed import sealed_json

MakeRun = Callable[..., Run]


# -- folders from strangers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "status.json", "events.jsonl", "resolved.yaml", "seal.json", "env.json"]
)
@pytest.mark.parametrize("what", ["pipe", "zero", "link", "folder", "socket"])
def test_only_regular_files_are_read(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    good, bad = make_run(seed=0), make_run(seed=1, ended=False)
    path, secret = bad.folder / name, tmp_path / "secret"
    secret.write_text("secret: do not print")
    path.unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "socket":
        monkeypatch.chdir(bad.folder)  # the name of a socket must be short
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(name)
    else:
        path.symlink_to("/dev/zero" if what == "zero" else secret)
    with Catalogue(tmp_path / "runs") as catalogue:
        catalogue.refresh()
        assert {each.folder for each in catalogue.summaries()} >= {good.folder}
        catalogue.series("loss")
    said = []
    for read in (
        lambda run: run.metrics,
        lambda run: run.resolved,
        lambda run: run.events,
        lambda run: run.problems(),
    ):
        try:
            said.append(str(read(Run(bad.folder))))
        except (StorageError, UsageError) as error:
            said.append(str(error))
    assert "do not print" not in "".join(said)


def test_a_folder_of_probes_that_is_a_link_is_not_followed(make_run: MakeRun, tmp_path: Path) -> None:
    run, elsewhere = make_run(ended=False), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.jsonl").write_text('{"step": 1, "value": 3}\n')
    (run.folder / "probes").symlink_to(elsewhere)
    assert run.probes == []
    with pytest.raises(StorageError, match="is a symbolic link"):
        run.readings("a")


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGE = "a: &a {x: 1}\nb: {<<: *a}\n"


@pytest.mark.parametrize(
    "text", [BOMB, MERGE, "a: " + "[" * 5000, "a: !!python/name:os.system", "a: 1\na: 2\n"]
)
def test_recipes_in_a_folder_are_read_strictly(make_run: MakeRun, text: str) -> None:
    run = make_run(ended=False)
    (run.folder / "resolved.yaml").write_text(text)
    with pytest.raises(DamagedError, match=r"cannot read .*resolved\.yaml"):
        _ = run.resolved


def test_a_huge_sparse_file_is_refused_at_once(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(ended=False)
    for name in ("metrics.jsonl", "env.json", "status.json", "resolved.yaml"):
        with (run.folder / name).open("r+b") as stream:
            stream.truncate(8 * 2**30)
        for read in (lambda run: run.metrics, lambda run: run.env, lambda run: run.resolved):
            with contextlib.suppress(StorageError):
                read(Run(run.folder))
        with Catalogue(tmp_path / "runs") as catalogue:
            assert len(catalogue.summaries()) == 1


@pytest.mark.parametrize(
    "row",
    [
        {"step": 10**30, "split": "test", "loss": 1.0},
        {"step": True, "split": "test", "loss": 1.0},
        {"step": -1, "split": "test", "loss": 1.0},
        {"step": "1", "split": "test", "loss": 1.0},
        {"step": 1, "split": 3, "loss": 1.0},
    ],
)
def test_a_row_without_a_sensible_step_is_no_row(row: dict[str, object]) -> None:
    metrics = Metrics([row, {"step": 2, "split": "test", "loss": 2.0, "odd": True, "huge": 10**500}])
    assert (len(metrics), metrics.torn, metrics.final()) == (1, 1, {"test_loss": 2.0})


def test_odd_numbers_in_a_folder_end_nothing(make_run: MakeRun, tmp_path: Path) -> None:
    odd = [10**500, -(10**30), True, "text", None, 1e300, [], {}]
    for number, value in enumerate(odd):
        run = make_run(seed=number, ended=False)
        env = {"schema_version": 1, "key": {"seed": value, "recipe": value}, "seed": value, "files": {}}
        (run.folder / "env.json").write_text(sealed_json(env))
        status = {"state": "running", "started": value, "step": value, "total_steps": value, "pid": value}
        (run.folder / "status.json").write_text(json.dumps({**status, "heartbeat": value, "host": value}))
        assert Run(run.folder).state
        assert Run(run.folder).seed is None or isinstance(Run(run.folder).seed, int)
    with Catalogue(tmp_path / "runs") as catalogue:
        catalogue.refresh()
        assert len(catalogue.summaries()) == len(odd)


def test_too_many_curves_are_refused() -> None:
    rows = ({"step": step, "split": "test", f"metric{step}": 1.0} for step in range(20_000))
    with pytest.raises(StorageError, match="more than 10,000 curves"):
        Metrics(rows)


MEMORY = """
import resource, sys
from pathlib import Path
from apoint.store.metrics import Metrics
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
metrics = Metrics.read(Path(sys.argv[1]))
assert len(metrics) == 200_000 and metrics.last("accuracy") == 0.9, len(metrics)
assert sum(1 for row in metrics if row["split"] == "test") == 100_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_small_document_takes_little_memory(tmp_path: Path) -> None:
    """Runs are sealed also when memory is short, so no buffer is made for the largest document."""
    (tmp_path / "seal.json").write_bytes(b"x" * 700_000)
    tracemalloc.start()
    assert len(reader.read_bytes(tmp_path / "seal.json")) == 700_000
    assert tracemalloc.get_traced_memory()[1] < 3_000_000
    tracemalloc.stop()
    with pytest.raises(StorageError, match="more than 699,999 bytes"):
        reader.read_bytes(tmp_path / "seal.json", 699_999)
    assert len(reader.read_bytes(tmp_path / "seal.json", 700_000)) == 700_000


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory in Linux's units")
def test_long_metrics_take_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with path.open("w") as stream:
        for step in range(1, 100_001):
            frame = f'{{"step":{step},"epoch":{step / 100},"split":'
            rest = f'"time":{1.7e9 + step},"seconds":{step / 10},"loss":{1 / step}'
            stream.write(
                f'{frame}"train",{rest},"learning_rate":0.001}}\n{frame}"test",{rest},"accuracy":0.9}}\n'
            )
    found = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True
    )
    assert int(found.stdout) * 1024 < 200 * 2**20 / 5  # a fifth of a million lines


# -- litter --------------------------------------------------------------------------------------------------


def gone() -> int:
    """The number of a process that is no more."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    return child.pid


def test_what_killed_processes_left_is_swept(make_run: MakeRun, tmp_path: Path) -> None:
    run, dead = make_run(ended=False), gone()
    root = run.folder.parent
    (run.folder / f".env.json.tmp-{dead}").write_text("half")
    (run.folder / f".other.json.tmp-{os.getpid()}").write_text("mine")
    (root / f".removed-old-{dead}").mkdir()
    (root / f".removed-old-{dead}" / "metrics.jsonl").write_text("")
    (root / ".hidden").mkdir()
    RunWriter.open(run.folder).close()
    make_run(seed=5)
    assert not (run.folder / f".env.json.tmp-{dead}").exists()
    assert (run.folder / f".other.json.tmp-{os.getpid()}").exists()
    assert not (root / f".removed-old-{dead}").exists()
    assert (root / ".hidden").exists()


def test_what_a_killed_export_left_is_swept(make_run: MakeRun, tmp_path: Path) -> None:
    dead = gone()
    (tmp_path / f".a.csv.tmp-{dead}").write_text("half")
    (tmp_path / f".b.csv.tmp-{dead}").write_text("not ours to judge")
    to_csv([make_run()], tmp_path / "a.csv")
    assert not (tmp_path / f".a.csv.tmp-{dead}").exists()
    assert (tmp_path / f".b.csv.tmp-{dead}").exists()


def test_a_sweep_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / f".x.tmp-{gone()}").symlink_to(tmp_path / "outside")
    sweep(tmp_path / "a")
    assert os.listdir(tmp_path / "a") == []
    assert (tmp_path / "outside" / "kept").exists()


def test_rows_can_be_read_from_a_file_that_still_grows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n' + reader.mark(0) + b'{"a": 2}\n{"a": 3')
    assert list(reader.rows(path)) == [{"a": 2}, None]
    assert reader.last_rows(path, 12) == [None]
    assert reader.last_rows(path, 1000) == [{"a": 1}, {"a": 2}, None]
