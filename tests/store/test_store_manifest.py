"""Checkpoints that prove they are whole."""

import json
import logging
import random
from pathlib import Path

import pytest

from apoint.store import checkpoint_folders, verified_checkpoints, verify, write_manifest


def make_checkpoint(run_folder: Path, step: int, size: int = 3000) -> Path:
    folder = run_folder / "checkpoints" / f"step-{step:09d}"
    folder.mkdir(parents=True)
    chance = random.Random(step)
    (folder / "model.safetensors").write_bytes(chance.randbytes(size))
    (folder / "state.json").write_text(json.dumps({"step": step}))
    write_manifest(folder)
    return folder


def test_a_sound_checkpoint_has_no_problems(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, 5)
    assert verify(folder) == []
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["schema_version"] == 1
    assert set(manifest["files"]) == {"model.safetensors", "state.json"}
    import hashlib

    content = (folder / "model.safetensors").read_bytes()
    expected = {"size": 3000, "sha256": hashlib.sha256(content).hexdigest()}
    assert manifest["files"]["model.safetensors"] == expected


def test_every_flipped_bit_and_every_truncation_is_found(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, 5, size=400)
    path = folder / "model.safetensors"
    whole, chance = path.read_bytes(), random.Random(1)
    for _ in range(200):
        place, bit = chance.randrange(len(whole)), 1 << chance.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        assert verify(folder) == ["model.safetensors has changed since it was written"]
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert verify(folder) == [f"model.safetensors has {length} bytes instead of 400"]
    path.write_bytes(whole)
    assert verify(folder) == []


def test_a_flipped_bit_in_the_manifest_never_passes_other_weights(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, 5, size=400)
    manifest, chance = (folder / "manifest.json").read_bytes(), random.Random(2)
    (folder / "model.safetensors").write_bytes(b"other" * 80)
    for _ in range(200):
        place, bit = chance.randrange(len(manifest)), 1 << chance.randrange(8)
        (folder / "manifest.json").write_bytes(
            manifest[:place] + bytes([manifest[place] ^ bit]) + manifest[place + 1 :]
        )
        assert verify(folder)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ('{"files": {}}', "lists no files"),
        ('{"schema_version": 2, "files": {"a": {}}}', "newer apoint"),
        ('{"files": {"state.json": {"size": 1}}}', "no size and hash"),
        ('{"files": {"../state.json": {"size": 1, "sha256": ""}}}', "does not lie in"),
        ('{"files": {"/etc/passwd": {"size": 1, "sha256": ""}}}', "does not lie in"),
        ('{"files": {"gone.json": {"size": 1, "sha256": ""}}}', "gone.json cannot be opened"),
        ('{"files": {"a\\u0000b": {"size": 1, "sha256": ""}}}', "cannot be opened"),
    ],
)
def test_what_is_wrong_with_a_manifest_is_said(tmp_path: Path, content: str | None, problem: str) -> None:
    folder = make_checkpoint(tmp_path, 5)
    (folder / "manifest.json").unlink()
    if content is not None:
        (folder / "manifest.json").write_text(content)
    (found,) = verify(folder)
    assert problem in found


def test_a_link_in_a_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, 5)
    (folder / "state.json").rename(tmp_path / "state.json")
    (folder / "state.json").symlink_to(tmp_path / "state.json")
    (problem,) = verify(folder)
    assert "state.json is a symbolic link" in problem


def test_checkpoints_come_newest_first_and_damaged_ones_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert verified_checkpoints(tmp_path) == []
    folders = [make_checkpoint(tmp_path, step) for step in (9, 100, 1_000_000_000)]
    (tmp_path / "checkpoints" / "step-000000200.tmp-77").mkdir()
    (tmp_path / "checkpoints" / "step-other").mkdir()
    assert checkpoint_folders(tmp_path) == verified_checkpoints(tmp_path) == folders[::-1]
    (folders[1] / "state.json").write_text("{}")
    with caplog.at_level(logging.WARNING):
        assert verified_checkpoints(tmp_path) == [folders[2], folders[0]]
    assert "step-000000100 is damaged and is passed over: state.json has" in caplog.text


def test_nested_files_are_listed_too(tmp_path: Path) -> None:
    folder = tmp_path / "step-000000001"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "a.bin").write_bytes(b"1")
    write_manifest(folder)
    assert verify(folder) == []
    (folder / "parts" / "a.bin").write_bytes(b"2")
    assert verify(folder) == ["parts/a.bin has changed since it was written"]
