"""Results of single examples in a run folder: kept, sealed, and taken back with a checkpoint."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from apoint.errors import DamagedError
from apoint.store import Run, RunWriter
from apoint.store.examples import pack, unpack
from apoint.store.layout import EXAMPLES

MakeRun = Callable[..., Run]
RIGHT = np.array([True, False, True, True, False, True, True, True, False])
LOSS = np.linspace(0, 1, 9, dtype=np.float32)
VALUES = {"test_accuracy": RIGHT, "test_loss": LOSS}
ROWS = {"test": np.array([3, 4, 8, 9, 12, 15, 16, 17, 30], dtype=np.int32)}


def kept(make_run: MakeRun) -> Run:
    run = make_run(ended=False)
    with RunWriter.open(run.folder) as writer:
        writer.examples(VALUES, ROWS)
        writer.status("finished", step=5, total_steps=5)
    return Run(run.folder)


@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_what_is_packed_is_unpacked(right: list[bool]) -> None:
    values = {"test_accuracy": np.array(right), "test_loss": np.arange(len(right), dtype=np.float32)}
    content = pack(values, {})
    assert pack(values, {}) == content, "the same values are the same bytes"
    for metric, expected in values.items():
        found = unpack(content, metric)
        assert found is not None
        assert found.rows is None
        np.testing.assert_array_equal(found.values, expected)


def test_a_sealed_run_gives_them_back(make_run: MakeRun) -> None:
    run = kept(make_run)
    assert run.seal is not None
    assert run.seal.files[EXAMPLES].size == (run.folder / EXAMPLES).stat().st_size
    assert run.problems() == []
    found = run.examples("test_accuracy")
    assert found is not None
    np.testing.assert_array_equal(found.values, RIGHT)
    np.testing.assert_array_equal(found.rows, ROWS["test"])
    assert run.examples("test_rmse") is None
    assert make_run(seed=1).examples("test_accuracy") is None


def test_bits_are_packed(make_run: MakeRun) -> None:
    many = {"test_accuracy": np.ones(80_000, bool), "test_loss": np.zeros(80_000, np.float32)}
    assert len(pack(many, {})) < 80_000 * 4 + 80_000 / 8 + 300


def test_a_change_is_noticed(make_run: MakeRun) -> None:
    run = kept(make_run)
    content = bytearray((run.folder / EXAMPLES).read_bytes())
    content[-1] ^= 1
    (run.folder / EXAMPLES).write_bytes(content)
    assert Run(run.folder).problems() == [f"{EXAMPLES} has changed since it was written"]
    with pytest.raises(DamagedError, match="has changed since the run was sealed"):
        Run(run.folder).examples("test_accuracy")
    (run.folder / EXAMPLES).unlink()
    assert Run(run.folder).problems() == [f"{EXAMPLES} is missing"]
    with pytest.raises(DamagedError, match="is missing, and was there"):
        Run(run.folder).examples("test_accuracy")


def test_a_file_added_later_is_noticed(make_run: MakeRun) -> None:
    run = make_run()
    (run.folder / EXAMPLES).write_bytes(pack(VALUES, ROWS))
    assert Run(run.folder).problems() == [f"{EXAMPLES} was added after the run was sealed"]
    with pytest.raises(DamagedError):
        Run(run.folder).examples("test_accuracy")


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\x08" + bytes(7) + b"[[[[[[[["])
def test_nonsense_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedError, match="not as apoint writes them"):
        unpack(content, "test_accuracy")


def test_bits_without_a_length_are_refused() -> None:
    with pytest.raises(DamagedError, match="not as apoint writes them"):
        unpack(pack({"test_accuracy": RIGHT}, {}), "test_accuracy")


ODD = {
    "a length that would take a terabyte": {
        "test_accuracy": b"1",
        "test_loss": np.zeros((10**12, 0), np.float32),
    },
    "a length of no axis": {"test_accuracy": b"1", "test_loss": np.float32(1)},
    "too few bits": {"test_accuracy": b"", "test_loss": LOSS},
    "too many bits": {"test_accuracy": b"123", "test_loss": LOSS},
    "two axes": {"test_accuracy": np.zeros((3, 3), np.float32)},
    "no axis": {"test_accuracy": np.float32(1)},
    "no values": {"test_accuracy": np.zeros(0, np.float32)},
    "whole numbers": {"test_accuracy": np.zeros(9, np.int64)},
    "rows of another length": {"test_accuracy": LOSS, "test_rows": np.arange(3, dtype=np.int32)},
    "rows twice": {"test_accuracy": LOSS, "test_rows": np.zeros(9, np.int32)},
    "rows that are no whole numbers": {"test_accuracy": LOSS, "test_rows": LOSS},
    "rows below 0": {"test_accuracy": LOSS, "test_rows": np.arange(-3, 6, dtype=np.int32)},
}


@pytest.mark.parametrize("what", ODD)
def test_odd_tensors_are_refused(what: str) -> None:
    """A stranger may have sealed the folder, so that the hashes hold and the content does not."""
    values = {
        name: np.frombuffer(each, np.uint8) if isinstance(each, bytes) else np.asarray(each)
        for name, each in ODD[what].items()
    }
    with pytest.raises(DamagedError, match="not as apoint writes them"):
        unpack(save(values), "test_accuracy")


def test_a_type_that_numpy_has_not_is_refused() -> None:
    header = b'{"test_accuracy": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}'
    with pytest.raises(DamagedError, match="not as apoint writes them"):
        unpack(len(header).to_bytes(8, "little") + header + bytes(4), "test_accuracy")


def test_a_checkpoint_knows_them(make_run: MakeRun) -> None:
    folder = make_run(ended=False).folder
    with RunWriter.open(folder) as writer:
        before = writer.mark()
        writer.examples(VALUES, ROWS)
        after = writer.mark()
    with RunWriter.open(folder) as writer:  # killed after the checkpoint, before the seal
        writer.rewind(after)
        writer.status("finished", step=5, total_steps=5)
    assert Run(folder).problems() == []
    assert Run(folder).examples("test_loss") is not None
    assert EXAMPLES in after
    assert EXAMPLES not in before


def test_going_back_before_them_removes_them(make_run: MakeRun) -> None:
    folder = make_run(ended=False).folder
    with RunWriter.open(folder) as writer:
        before = writer.mark()
        writer.examples(VALUES, ROWS)
    with RunWriter.open(folder) as writer:
        writer.rewind(before)
        assert not (folder / EXAMPLES).exists()
        writer.status("finished", step=5, total_steps=5)
    assert Run(folder).problems() == []
    assert Run(folder).examples("test_loss") is None


def test_damage_since_the_checkpoint_is_noticed(make_run: MakeRun) -> None:
    folder = make_run(ended=False).folder
    with RunWriter.open(folder) as writer:
        writer.examples(VALUES, ROWS)
        mark = writer.mark()
    (folder / "seal.json").unlink()
    (folder / EXAMPLES).write_bytes(b"other")
    with RunWriter.open(folder) as writer, pytest.raises(DamagedError, match="since the last checkpoint"):
        writer.rewind(mark)


def test_a_link_is_not_followed(make_run: MakeRun, tmp_path: Path) -> None:
    run = kept(make_run)
    (run.folder / EXAMPLES).rename(tmp_path / "elsewhere")
    (run.folder / EXAMPLES).symlink_to(tmp_path / "elsewhere")
    assert Run(run.folder).problems()
