"""The seal of a run: whatever is changed, cut short, swapped or removed afterwards is noticed."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apoint.errors import DamagedError, StorageError, UsageError
from apoint.store import Catalogue, Run, RunWriter, to_csv
from apoint.store.seal import read_seal
from apoint.store.sealed import read_sealed, sealed_json, write_sealed

MakeRun = Callable[..., Run]
COVERED = ("metrics.jsonl", "events.jsonl", "resolved.yaml", "recipe.yaml", "env.json")


def change(path: Path, place: int, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= bit
    path.write_bytes(content)


def evented(make_run: MakeRun, **settings: int) -> Run:
    run = make_run(ended=False, **settings)
    with RunWriter.open(run.folder) as writer:
        writer.event("note", text="something happened")
        writer.reading("sharpness", step=5, epoch=1.0, value=2.0)
        writer.status("finished", step=5, total_steps=5)
    return Run(run.folder)


# -- what it says --------------------------------------------------------------------------------------------


def test_a_seal_says_who_the_run_is_how_it_ended_and_what_it_measured_last(make_run: MakeRun) -> None:
    seal = evented(make_run).seal
    assert seal is not None
    assert (seal.state, seal.name, seal.fingerprint, seal.seed) == ("finished", "digits", "3f2a1b", 0)
    assert (seal.step, seal.total_steps) == (5, 5)
    assert seal.metrics == {"test_loss": 1 / 5, "test_accuracy": 1 - 1 / 6}
    assert set(seal.files) == {*COVERED, "probes/sharpness.jsonl"}


def test_the_hashes_are_those_that_anybody_can_compute(make_run: MakeRun) -> None:
    run = evented(make_run)
    assert run.seal is not None
    for name, (size, digest) in run.seal.files.items():
        content = (run.folder / name).read_bytes()
        assert (size, digest) == (len(content), hashlib.sha256(content).hexdigest())
    values = json.loads((run.folder / "seal.json").read_text())
    own = values.pop("sha256")
    text = json.dumps(values, separators=(",", ":"))
    assert own == hashlib.sha256(text.encode()).hexdigest()


def test_a_result_comes_from_the_last_step_alone(make_run: MakeRun) -> None:
    run = make_run(ended=False)
    with RunWriter.open(run.folder) as writer:
        writer.metric(step=6, epoch=3.0, split="train", loss=0.5)
        writer.status("finished", step=6, total_steps=6)
    assert Run(run.folder).metrics.last("accuracy") == 1 - 1 / 6
    with pytest.raises(StorageError, match="test_accuracy was not measured at the last step, 6"):
        Run(run.folder).result("test_accuracy")
    assert Run(run.folder).result("train_loss") == 0.5


@pytest.mark.parametrize("state", ["interrupted", "failed", "diverged"])
def test_only_a_finished_run_has_a_result(make_run: MakeRun, state: str) -> None:
    run = make_run(ended=False)
    with RunWriter.open(run.folder) as writer:
        writer.status(state, step=5, reason="because")
    assert (Run(run.folder).state, Run(run.folder).sealed) == (state, True)
    with pytest.raises(StorageError, match=f"is {state}; only a finished, sealed run has a result"):
        Run(run.folder).result("test_accuracy")


ODD = [True, [1, [2]], {"a": {"b": 1}}, -(10**30), 10**500, "text", "nan", None]
RIGHT = {  # what a field may hold of these
    "state": [], "reason": ["text", "nan"], "name": ["text", "nan"], "fingerprint": ["text", "nan"],
    "changes": ["text", "nan"],
    "seed": [None], "started": [None, -(10**30)], "step": [None], "total_steps": [None],
    "seconds": [None, -(10**30)], "metrics": [], "files": [], "checkpoints": [],
}  # fmt: skip


@pytest.mark.parametrize("field", RIGHT)
def test_a_seal_that_a_stranger_made_holds_what_a_seal_holds(make_run: MakeRun, field: str) -> None:
    run = evented(make_run)
    path = run.folder / "seal.json"
    values = read_sealed(path)
    for odd in ODD:
        if odd in RIGHT[field]:
            continue
        write_sealed(path, {**values, field: odd})
        with pytest.raises(StorageError):
            read_seal(run.folder)
        assert Run(run.folder).problems()
    for pair in ([True, "0" * 64], ["1", "0" * 64], [1, 2], [1], "ab"):
        write_sealed(path, {**values, "files": {**values["files"], "metrics.jsonl": pair}})
        with pytest.raises(DamagedError):
            read_seal(run.folder)


# -- what it notices -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*COVERED, "seal.json", "probes/sharpness.jsonl"])
def test_one_changed_bit_anywhere_is_noticed(make_run: MakeRun, name: str) -> None:
    run = evented(make_run)
    sound = (run.folder / name).read_bytes()
    chance = random.Random(7)
    for _ in range(60):
        change(run.folder / name, chance.randrange(len(sound)), 1 << chance.randrange(8))
        with pytest.raises(DamagedError):
            Run(run.folder).result("test_accuracy")
        assert Run(run.folder).problems()
        (run.folder / name).write_bytes(sound)
    assert Run(run.folder).result("test_accuracy") == 1 - 1 / 6


def test_a_changed_digit_reaches_nobody(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    path = run.folder / "metrics.jsonl"
    path.write_text(path.read_text().replace("0.83333", "0.93333"))
    for use in (
        lambda: Run(run.folder).metrics,
        lambda: Run(run.folder).result("test_accuracy"),
        lambda: to_csv([Run(run.folder)], tmp_path / "a.csv"),
    ):
        with pytest.raises(DamagedError, match=r"metrics\.jsonl has changed since"):
            use()
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize("name", [*COVERED, "probes/sharpness.jsonl"])
def test_a_missing_row_file_or_tail_is_noticed(make_run: MakeRun, name: str) -> None:
    run = evented(make_run)
    path = run.folder / name
    sound = path.read_bytes()
    for content in (b"", sound[:-1], sound[: len(sound) // 2], sound + b"\n", None):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        assert Run(run.folder).problems(), content


@pytest.mark.parametrize("name", [*COVERED[:1], "env.json", "seal.json", "probes/sharpness.jsonl"])
def test_files_of_another_seed_are_noticed(make_run: MakeRun, name: str) -> None:
    run, other = evented(make_run, seed=0), evented(make_run, seed=1)
    shutil.copy(other.folder / name, run.folder / name)
    assert Run(run.folder).problems()


def test_what_was_added_is_noticed(make_run: MakeRun) -> None:
    run = make_run()
    (run.folder / "probes").mkdir()
    (run.folder / "probes" / "invented.jsonl").write_text('{"step": 1, "value": 2}\n')
    assert Run(run.folder).problems() == ["probes/invented.jsonl was added after the run was sealed"]


def test_a_run_whose_seal_was_removed_is_no_evidence(make_run: MakeRun) -> None:
    run = make_run()
    (run.folder / "seal.json").unlink()
    assert (Run(run.folder).state, Run(run.folder).sealed) == ("unsealed", False)
    with pytest.raises(StorageError, match="is unsealed; only a finished, sealed run has a result"):
        Run(run.folder).result("test_accuracy")


def test_a_status_can_say_what_it_likes(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    before = Catalogue(tmp_path / "runs").summaries()
    lie = {"state": "running", "pid": os.getpid(), "step": 3, "total_steps": 4, "started": 5.0}
    (run.folder / "status.json").write_text(json.dumps(lie))
    assert Run(run.folder).state == "finished"
    with Catalogue(tmp_path / "runs") as catalogue:
        catalogue.rebuild()
        assert catalogue.summaries() == before


def test_a_list_is_the_same_whatever_happens_to_the_metrics(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    before = Catalogue(tmp_path / "runs").summaries()
    (run.folder / "metrics.jsonl").write_text('{"step": 5, "split": "test", "accuracy": 0.1}\n')
    with Catalogue(tmp_path / "runs") as catalogue:
        catalogue.rebuild()
        assert catalogue.summaries() == before
        assert catalogue.series("accuracy") == {}  # its metrics are damaged


def test_a_damaged_seal_is_listed_as_damaged(make_run: MakeRun, tmp_path: Path) -> None:
    run, other = make_run(seed=0), make_run(seed=1)
    change(run.folder / "seal.json", 200)
    assert Run(run.folder).state == "damaged"
    with Catalogue(tmp_path / "runs") as catalogue:
        catalogue.refresh()
        found = {each.folder: each for each in catalogue.summaries()}
    assert (found[run.folder].state, found[other.folder].state) == ("damaged", "finished")
    assert "seal.json" in str(found[run.folder].problem)


def test_a_changed_row_of_the_catalogue_is_noticed(
    make_run: MakeRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import sqlite3

    make_run()
    catalogue = Catalogue(tmp_path / "runs")
    catalogue.refresh()
    before, curves = catalogue.summaries(), catalogue.series("accuracy")
    for statement in (
        "UPDATE runs SET last = replace(last, '0.83', '0.93')",
        "UPDATE runs SET state = 'diverged'",
        "UPDATE runs SET step = 4",
        "UPDATE blocks SET \"values\" = zeroblob(40) WHERE metric = 'accuracy'",
    ):
        connection = sqlite3.connect(catalogue.path)
        connection.execute(statement)
        connection.commit()
        connection.close()
        caplog.clear()
        assert catalogue.summaries() == before
        assert catalogue.series("accuracy") == curves
        assert "is damaged" in caplog.text


# -- while it is written and resumed -------------------------------------------------------------------------


def test_a_sealed_run_takes_no_more(make_run: MakeRun) -> None:
    run = make_run()
    with pytest.raises(UsageError, match="is finished and sealed; nothing can be added to it"):
        RunWriter.open(run.folder)
    assert Run(run.folder).problems() == []


@pytest.mark.parametrize("name", COVERED)
def test_an_interrupted_run_that_was_changed_cannot_be_resumed(make_run: MakeRun, name: str) -> None:
    run = make_run(ended=False)
    with RunWriter.open(run.folder) as writer:
        writer.event("note", text="half-way")
        writer.status("interrupted", step=5)
    change(run.folder / name, 11)
    with pytest.raises(DamagedError):
        RunWriter.open(run.folder)


@pytest.mark.parametrize("how", ["deleted", "replaced", "cut", "appended"])
def test_rows_that_vanish_while_a_run_is_written_end_it(writer: RunWriter, how: str) -> None:
    writer.metric(step=1, epoch=0.1, split="test", accuracy=0.5)
    path = writer.folder / "metrics.jsonl"
    content = path.read_bytes()
    if how in ("deleted", "replaced"):
        path.unlink()
    if how == "replaced":
        path.write_bytes(content)
    if how == "cut":
        os.truncate(path, 10)
    if how == "appended":
        with path.open("ab") as stream:
            stream.write(b'{"step": 9, "split": "test", "accuracy": 1.0}\n')
    with pytest.raises(DamagedError, match=r"metrics\.jsonl was (removed|changed)"):
        writer.status("finished", step=1)
    assert not (writer.folder / "seal.json").exists()


def test_a_byte_that_changes_while_a_run_is_written_is_noticed_when_it_is_sealed(writer: RunWriter) -> None:
    writer.metric(step=1, epoch=0.1, split="test", accuracy=0.5)
    path = writer.folder / "metrics.jsonl"
    with path.open("r+b") as stream:  # the same file, the same size
        stream.seek(5)
        stream.write(b"X")
    with pytest.raises(DamagedError, match=r"cannot be sealed: metrics\.jsonl has changed"):
        writer.status("finished", step=1)


def test_what_was_logged_after_a_checkpoint_is_void_after_resuming_from_it(tmp_path: Path) -> None:
    folder = tmp_path / "a-0000-s0"
    with RunWriter.create(folder, "", "", {}) as writer:
        writer.metric(step=1, epoch=1, split="test", accuracy=0.1)
        mark = writer.mark()
        writer.metric(step=2, epoch=2, split="test", accuracy=0.2)
        writer.metric(step=77, epoch=3, split="test", accuracy=0.9)  # as if its step had been changed
        writer.event("note", text="stays")
    with RunWriter.open(folder) as writer:
        writer.rewind(mark)
        writer.metric(step=2, epoch=2, split="test", accuracy=0.3)
        writer.status("finished", step=2)
    run = Run(folder)
    assert run.metrics.series("accuracy") == ([1, 2], [0.1, 0.3])
    assert (run.metrics.torn, run.result("test_accuracy")) == (0, 0.3)
    assert [event["kind"] for event in run.events] == ["note"]
    assert (folder / "metrics.jsonl").read_text().count("\n") == 5  # nothing was removed


def test_rows_before_a_checkpoint_that_changed_are_noticed_when_it_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "a-0000-s0"
    with RunWriter.create(folder, "", "", {}) as writer:
        for step in range(5):
            writer.metric(step=step, epoch=step, split="test", accuracy=step / 10)
        mark = json.loads(json.dumps(writer.mark()))
        writer.metric(step=9, epoch=9, split="test", accuracy=0.9)
    (folder / "seal.json").unlink()  # as after a kill
    sound = (folder / "metrics.jsonl").read_bytes()
    for place in range(0, mark["metrics.jsonl"][0], 7):
        change(folder / "metrics.jsonl", place)
        with (
            pytest.raises(DamagedError, match="has changed since the last checkpoint"),
            RunWriter.open(folder) as one,
        ):
            one.rewind(mark)
        (folder / "seal.json").unlink(missing_ok=True)
        (folder / "metrics.jsonl").write_bytes(sound)


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_however_often_a_run_is_resumed_its_rows_are_those_of_an_unbroken_one(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("run") / "a-0000-s0"
    total, step = 12, 0
    writer, marks = RunWriter.create(folder, "", "", {}), [({}, 0)]
    while step < total:
        step += 1
        writer.metric(step=step, epoch=step, split="test", accuracy=step / total)
        if data.draw(st.booleans(), "checkpoint"):
            marks.append((writer.mark(), step))
        if data.draw(st.integers(0, 3), "crash") == 0:
            writer.close()
            marks = marks[: data.draw(st.integers(1, len(marks)), "older checkpoint")]
            (mark, step), writer = marks[-1], RunWriter.open(folder)
            writer.rewind(mark)
    writer.status("finished", step=total)
    writer.close()
    steps = list(range(1, total + 1))
    assert Run(folder).metrics.series("accuracy") == (steps, [step / total for step in steps])


def test_a_lock_that_vanishes_ends_the_writer_and_lets_nobody_in(writer: RunWriter) -> None:
    (writer.folder / "lock").unlink()
    script = "import sys; from apoint.store import RunWriter; RunWriter.open(sys.argv[1])"
    command = [sys.executable, "-c", script, str(writer.folder)]
    second = subprocess.run(command, capture_output=True, text=True)
    assert f"is being trained by process {os.getpid()}; wait until it ends" in second.stderr
    with pytest.raises(DamagedError, match=r"lock was (removed|replaced) while it was held"):
        writer.sync()


def test_making_a_run_that_another_process_is_making_names_it(writer: RunWriter) -> None:
    script = "import sys; from apoint.store import RunWriter; RunWriter.create(sys.argv[1], '', '', {})"
    command = [sys.executable, "-c", script, str(writer.folder)]
    second = subprocess.run(command, capture_output=True, text=True)
    assert f"is being trained by process {os.getpid()}" in second.stderr
    assert "remove" not in second.stderr


# -- JSON that carries its hash ------------------------------------------------------------------------------


@given(
    st.dictionaries(
        st.text(),
        st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.floats(), st.lists),
        max_size=5,
    )
)
def test_what_is_sealed_comes_back(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, object]
) -> None:
    values.pop("sha256", None)
    path = tmp_path_factory.getbasetemp() / "sealed.json"
    path.write_text(sealed_json(values))
    assert sealed_json(read_sealed(path)) == path.read_text()


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"a": NaN, "sha256": ""}', '{"a": 1, "a": 2}', '{"a": 1e999}']
)
def test_what_is_not_sealed_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DamagedError):
        read_sealed(tmp_path / "a.json")


def test_even_white_space_counts(tmp_path: Path) -> None:
    write_sealed(tmp_path / "a.json", {"margin": 0.1})
    assert read_sealed(tmp_path / "a.json") == {"margin": 0.1}
    text = (tmp_path / "a.json").read_text()
    for other in (
        text.replace("0.1", "0.10"),
        text.replace("\n", "\r\n"),
        text + " ",
        text.replace("  ", "\t"),
    ):
        (tmp_path / "a.json").write_bytes(other.encode())
        with pytest.raises(DamagedError, match="has changed since apoint wrote it"):
            read_sealed(tmp_path / "a.json")


# -- kills -------------------------------------------------------------------------------------------------


KILLED = """
import os, signal, sys
from apoint.store import RunWriter
from apoint.store import files
real = os.replace
def replace(source, target):
    if target.name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
    real(source, target)
os.replace = replace
with RunWriter.create(sys.argv[1], "", "", {}) as writer:
    writer.metric(step=1, epoch=1, split="test", accuracy=0.5)
    writer.status("finished", step=1)
"""


@pytest.mark.parametrize("name", ["seal.json", "status.json"])
def test_a_kill_while_sealing_or_beginning_leaves_an_open_run(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a-0000-s0"
    child = subprocess.run([sys.executable, "-c", KILLED, str(folder), name])
    assert child.returncode == -signal.SIGKILL
    assert Run(folder).state == "dead"
    with RunWriter.open(folder) as writer:
        writer.rewind({})
        writer.metric(step=1, epoch=1, split="test", accuracy=0.5)
        writer.status("finished", step=1)
    assert Run(folder).result("test_accuracy") == 0.5
    assert not list(folder.glob(".*.tmp-*"))


def test_a_run_that_measured_something_and_lost_its_status_is_not_dead(tmp_path: Path) -> None:
    folder = tmp_path / "a-0000-s0"
    with RunWriter.create(folder, "", "", {}) as writer:
        writer.metric(step=1, epoch=1, split="test", accuracy=0.5)
        writer.status("finished", step=1)
    for name in ("status.json", "seal.json"):
        (folder / name).unlink()
    assert Run(folder).state == "unknown"
