"""Checkpoints are whole or are not there."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from apoint.engine import checkpoint
from apoint.engine.checkpoint import Checkpoint
from apoint.errors import StorageError


def sample(step: int) -> Checkpoint:
    torch.manual_seed(step)
    tensors = {
        "model": {"weight": torch.randn(7, 5), "steps": torch.tensor(step)},
        "optimizer": {"m/weight": torch.randn(7, 5)},
    }
    return Checkpoint(step, tensors, {"progress": {"step": step, "best": 0.1 + 0.2}})


def names(run_folder: Path) -> list[str]:
    return sorted(path.name for path in (run_folder / "checkpoints").iterdir())


def assert_same(one: Checkpoint, other: Checkpoint) -> None:
    assert one.step == other.step
    assert one.state == other.state
    assert one.tensors.keys() == other.tensors.keys()
    for group, tensors in one.tensors.items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, other.tensors[group][name])


def test_saved_and_loaded(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, sample(3))
    assert path.name == "step-000000003"
    assert_same(checkpoint.load(path), sample(3))


def test_views_and_strides_survive(tmp_path: Path) -> None:
    buffer = torch.arange(12.0)
    view = buffer.as_strided((2, 3), (1, 2), 4)
    saved = Checkpoint(1, {"model": {"a": view, "b": buffer[:2]}})
    assert torch.equal(checkpoint.load(checkpoint.save(tmp_path, saved)).tensors["model"]["a"], view)


def test_plain_pytorch_can_read_the_weights(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    path = checkpoint.save(tmp_path, sample(1))
    assert torch.equal(load_file(path / "model.safetensors")["weight"], sample(1).tensors["model"]["weight"])


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 30):
        checkpoint.save(tmp_path, sample(step))
    assert names(tmp_path) == ["step-000000002", "step-000000030"]


def test_a_damaged_later_one_does_not_push_out_good_ones(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, sample(1))
    (checkpoint.save(tmp_path, sample(30)) / "state.json").write_text("{}")
    found = checkpoint.newest(tmp_path, lambda sentence: None)
    assert found is not None
    assert found.step == 1
    checkpoint.save(tmp_path, sample(2))
    assert names(tmp_path) == ["step-000000001", "step-000000002"]


def test_what_a_killed_writer_left_is_cleared_and_never_read(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, sample(1))
    half = tmp_path / "checkpoints" / "step-000000002.tmp-99"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    found = checkpoint.newest(tmp_path, pytest.fail)
    assert found is not None
    assert found.step == 1
    checkpoint.save(tmp_path, sample(3))
    assert not half.exists()


def test_none_at_all_is_not_an_error(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "absent", pytest.fail) is None


def damage_cases(folder: Path, flips: int, truncations: int) -> list[tuple[Path, bytes, str]]:
    """Damaged contents of a checkpoint's files: single bits flipped, and ends cut off."""
    draw = random.Random(0)
    files = sorted(path for path in folder.iterdir())
    contents = {path: path.read_bytes() for path in files}
    cases = []
    for _ in range(flips):
        path = draw.choices(files, weights=[len(content) for content in contents.values()])[0]
        damaged = bytearray(contents[path])
        place, bit = draw.randrange(len(damaged)), draw.randrange(8)
        damaged[place] ^= 1 << bit
        cases.append((path, bytes(damaged), f"{path.name} byte {place} bit {bit}"))
    for _ in range(truncations):
        path = draw.choice(files)
        length = draw.randrange(len(contents[path]))
        cases.append((path, contents[path][:length], f"{path.name} cut to {length}"))
    return cases


def test_a_thousand_flipped_bits_and_two_hundred_truncations_are_all_seen(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, sample(1))
    newest = checkpoint.save(tmp_path, sample(2))
    missed = []
    for path, content, what in damage_cases(newest, flips=1000, truncations=200):
        whole = path.read_bytes()
        path.write_bytes(content)
        said: list[str] = []
        found = checkpoint.newest(tmp_path, said.append)
        if found is None or found.step != 1 or len(said) != 1 or "step-000000002 is damaged" not in said[0]:
            missed.append(what)
        path.write_bytes(whole)
    assert missed == []
    found = checkpoint.newest(tmp_path, pytest.fail)
    assert found is not None
    assert found.step == 2, "and the undamaged one is still taken"


@pytest.mark.parametrize("change", ["missing file", "extra file", "swapped", "empty folder", "foreign"])
def test_other_damage_is_seen(tmp_path: Path, change: str) -> None:
    checkpoint.save(tmp_path, sample(1))
    newest = checkpoint.save(tmp_path, sample(2))
    if change == "missing file":
        (newest / "optimizer.safetensors").unlink()
    elif change == "extra file":
        shutil.copy(newest / "model.safetensors", newest / "average.safetensors")
    elif change == "swapped":
        (newest / "model.safetensors").rename(newest / "x")
        (newest / "optimizer.safetensors").rename(newest / "model.safetensors")
        (newest / "x").rename(newest / "optimizer.safetensors")
    elif change == "empty folder":
        shutil.rmtree(newest)
        newest.mkdir()
    else:
        (newest / "manifest.json").write_text(json.dumps({"hello": "world"}))
    said: list[str] = []
    found = checkpoint.newest(tmp_path, said.append)
    assert found is not None
    assert (found.step, len(said)) == (1, 1)


def test_when_none_is_intact_it_says_so_instead_of_beginning_again(tmp_path: Path) -> None:
    for step in (1, 2):
        path = checkpoint.save(tmp_path, sample(step))
        (path / "state.json").write_text("{}")
    with pytest.raises(
        StorageError, match=r"none of the 2 checkpoints .* is intact; train it from scratch with --fresh"
    ):
        checkpoint.newest(tmp_path, lambda sentence: None)


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_keeps_the_old_checkpoint(small_disk: Path) -> None:
    checkpoint.save(small_disk, sample(1))
    large = Checkpoint(2, {"model": {"weight": torch.zeros(100_000)}})
    with pytest.raises(StorageError, match=r"(?i)disk|space"):
        checkpoint.save(small_disk, large)
    found = checkpoint.newest(small_disk, pytest.fail)
    assert found is not None
    assert_same(found, sample(1))
    assert not list(small_disk.rglob("*.tmp-*")), "nothing half-written is left"


@pytest.mark.skipif(os.name == "nt", reason="needs permissions")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("not a folder")
    with pytest.raises(StorageError) as caught:
        checkpoint.save(place, sample(1))
    assert "\n" not in str(caught.value)
    assert "file" in str(caught.value)
