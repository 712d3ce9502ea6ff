"""Lines of strict JSON: exact numbers, torn lines, disks that refuse."""

import errno
import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.errors import StorageError, UsageError
from apoint.store import Metrics, Run, RunWriter, reader, strict_json
from apoint.store import lines as lines_module
from apoint.store.lines import LineWriter
from apoint.store.metrics import FRAME

numbers = st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.sampled_from([-0.0, 2**53 + 1, 5e-324]))
names = st.text(min_size=1).filter(lambda name: name not in FRAME)


def bits(value: float) -> tuple[type, Any]:
    if isinstance(value, float):
        return float, "nan" if math.isnan(value) else struct.pack("<d", value)
    return int, value


def no_constant(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


@settings(deadline=None, max_examples=50)
@given(rows=st.lists(st.dictionaries(names, numbers, max_size=4), max_size=6))
def test_metrics_come_back_bit_for_bit(
    rows: list[dict[str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("runs") / "any-0000-s0"
    with RunWriter.create(folder, "", "", {}) as writer:
        for step, row in enumerate(rows):
            writer.metric(step=step, epoch=math.nan, split="test", **row)
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=no_constant)
    read = Run(folder).metrics
    assert read.torn == 0
    assert [math.isnan(row["epoch"]) for row in read] == [True] * len(rows)
    got = [{name: bits(value) for name, value in row.items() if name not in FRAME} for row in read]
    assert got == [{name: bits(value) for name, value in row.items()} for row in rows]


def test_numbers_of_other_libraries_become_plain(writer: RunWriter) -> None:
    numpy = pytest.importorskip("numpy")
    writer.metric(
        step=1, epoch=1, split="test", a=numpy.float32(0.1), b=numpy.int64(7), c=True, d=numpy.array(2.5)
    )
    row = Run(writer.folder).metrics[0]
    assert (row["a"], row["b"], row["c"], row["d"]) == (float(numpy.float32(0.1)), 7, 1, 2.5)
    assert type(row["b"]) is int


@pytest.mark.parametrize("value", ["0.5", b"1", None, [1.0], {"a": 1}])
def test_a_metric_must_be_a_number(writer: RunWriter, value: Any) -> None:
    with pytest.raises(UsageError, match=r"metric: loss must be one number, got"):
        writer.metric(step=1, epoch=1, split="test", loss=value)


def test_fields_of_the_row_cannot_be_metrics(writer: RunWriter) -> None:
    with pytest.raises(UsageError, match="'time' is a field of every row"):
        writer.metric(step=1, epoch=1, split="test", time=1.0)
    with pytest.raises(UsageError, match=r"split must be one of train, validation, test, got 'dev'"):
        writer.metric(step=1, epoch=1, split="dev", loss=1.0)
    with pytest.raises(UsageError, match="'time' and 'kind' are fields"):
        writer.event("start", kind="other")
    assert len(Run(writer.folder).metrics) == 0


def test_events_keep_their_order_and_spell_out_what_is_not_finite(writer: RunWriter, tmp_path: Path) -> None:
    writer.event("start", path=tmp_path)
    writer.event("diverged", loss=math.inf, parts=[1.5, -math.inf, {"deep": math.nan}], word="é \ud800")
    first, second = Run(writer.folder).events
    assert (first["kind"], first["path"]) == ("start", str(tmp_path))
    assert second["parts"] == [1.5, "-Infinity", {"deep": "NaN"}]
    assert (second["loss"], second["word"]) == ("Infinity", "é \ud800")
    assert second["time"] >= first["time"] > 1.6e9


def test_strict_json_refuses_nothing_a_reading_may_hold() -> None:
    numpy = pytest.importorskip("numpy")
    text = strict_json({"a": numpy.array([1.0, math.nan]), "b": (math.inf, -0.0), "c": None})
    assert json.loads(text, parse_constant=no_constant) == {
        "a": [1.0, "NaN"],
        "b": ["Infinity", -0.0],
        "c": None,
    }


# -- torn lines -----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_a_file_cut_anywhere_loses_only_the_cut_line(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "metrics.jsonl"
    writer = LineWriter(path)
    for step in range(4):
        writer.write({"step": step, "split": "test", "loss": step / 3})
    writer.close()
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    lines = whole[:cut].split(b"\n")
    complete = len(lines) - 1 + lines[-1].endswith(b"}")  # only the newline may be missing
    before = Metrics.read(path)
    assert [row["step"] for row in before] == list(range(complete))
    assert before.torn == (0 if not lines[-1] or lines[-1].endswith(b"}") else 1)

    again = LineWriter(path)
    again.write({"step": 9, "split": "test", "loss": 9.0})
    again.close()
    after = Metrics.read(path)
    assert [row["step"] for row in after] == [*range(complete), 9]
    assert after.torn == before.torn


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"[1, 2]",
        b"3",
        b'{"step": true',
        b"[" * 100_000,
        b'{"loss": 1}',
        b'{"step": "1", "split": "a"}',
    ],
)
def test_lines_that_are_no_rows_are_counted(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'{"step":1,"split":"test","loss":0.5}\n' + line + b'\n\n{"step":2,"split":"test","loss":0.25}\n'
    )
    metrics = Metrics.read(path)
    assert metrics.series("loss") == ([1, 2], [0.5, 0.25])
    assert metrics.torn == 1


# -- a disk that refuses ----------------------------------------------------------------------------------


class FullDisk:
    """Takes the next `room` bytes and then nothing, until it is given more."""

    def __init__(self, room: int) -> None:
        self.room, self.write = room, os.write

    def __call__(self, handle: int, data: bytes) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self.write(handle, data[: self.room])
        self.room -= taken
        return taken


@settings(deadline=None, max_examples=50)
@given(rooms=st.lists(st.integers(0, 120), min_size=1, max_size=12))
def test_whatever_fits_when_nothing_is_lost_or_doubled(
    rooms: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "events.jsonl"
    disk = FullDisk(0)
    with pytest.MonkeyPatch.context() as patch:
        writer = LineWriter(path)
        patch.setattr(lines_module.os, "write", disk)
        for number, room in enumerate(rooms):
            disk.room = room
            writer.write({"number": number, "text": "x" * 20})
        disk.room = 10**9
        writer.sync()
        writer.close()
    assert list(reader.rows(path)) == [{"number": each, "text": "x" * 20} for each in range(len(rooms))]
    assert writer.trouble is None


def test_a_full_disk_is_named_and_rows_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = LineWriter(tmp_path / "metrics.jsonl")
    disk = FullDisk(5)
    monkeypatch.setattr(lines_module.os, "write", disk)
    writer.write({"step": 1})
    writer.write({"step": 2})
    assert writer.num_waiting == 2
    assert "metrics.jsonl: the disk is full; free some space" in str(writer.trouble)
    with pytest.raises(StorageError, match=r"disk is full.*2 lines wait in memory and are tried again"):
        writer.sync()
    with pytest.raises(StorageError, match="the last 2 lines are lost"):
        writer.close()
    writer.close()


def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = LineWriter(tmp_path / "metrics.jsonl")
    monkeypatch.setattr(lines_module.os, "write", FullDisk(0))
    monkeypatch.setattr(lines_module, "KEPT_BYTES", 100)
    for step in range(9):
        writer.write({"step": step})  # 11 bytes each
    with pytest.raises(StorageError, match="9 lines wait in memory, which is all it may hold"):
        writer.write({"step": 9})
    assert writer.num_waiting == 9


def test_an_incomplete_write_without_an_error_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = LineWriter(tmp_path / "metrics.jsonl")
    real = os.write
    monkeypatch.setattr(lines_module.os, "write", lambda handle, data: real(handle, data[:3]))
    writer.write({"step": 1})
    assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"step":1}\n'
