"""Operating-system errors as sentences, and whole files that appear at once or not at all."""

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from apoint.errors import StorageError, UsageError
from apoint.store import Run, RunWriter, storage_errors, write_atomically
from apoint.store import files as files_module
from apoint.store.files import new_file, replace_or_overwrite


@pytest.mark.parametrize(
    ("code", "reason", "remedy"),
    [
        (errno.ENOSPC, "disk is full", "free some space"),
        (errno.EDQUOT, "quota is used up", "delete something"),
        (errno.EACCES, "permission is denied", "chmod"),
        (errno.EROFS, "read-only", "remount"),
        (errno.EIO, "input/output error", "dmesg"),
        (errno.ENOENT, "does not exist", "check the path"),
        (errno.EMFILE, "too many files", "ulimit -n"),
        (errno.ELOOP, os.strerror(errno.ELOOP), "check the disk and the path"),
    ],
)
def test_each_fault_names_path_reason_and_remedy(code: int, reason: str, remedy: str) -> None:
    with pytest.raises(StorageError) as caught, storage_errors("runs/a/env.json", "read"):
        raise OSError(code, os.strerror(code))
    sentence = str(caught.value)
    assert sentence.startswith("cannot read runs/a/env.json: ")
    assert reason in sentence
    assert remedy in sentence
    assert "\n" not in sentence
    assert isinstance(caught.value.__cause__, OSError)


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), storage_errors("x"):
        raise KeyError


def test_a_failed_replacement_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "old")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(files_module.os, name, refuse)
            with pytest.raises(StorageError, match=r"a\.txt: the disk is full"):
                write_atomically(path, "new")
        assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]
        assert path.read_text() == "old"
    write_atomically(path, b"new\r\n")
    assert path.read_bytes() == b"new\r\n"


def test_new_file_refuses_to_overwrite_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.bin"
    with new_file(path) as stream:
        stream.write(b"1")
    with (
        pytest.raises(UsageError, match="exists; name another file, or allow overwriting with --force"),
        new_file(path),
    ):
        pass
    with pytest.raises(UsageError, match="is a folder"), new_file(tmp_path, force=True):
        pass
    with pytest.raises(ZeroDivisionError), new_file(path, force=True) as stream:
        stream.write(b"half" * (1 // 0))
    assert path.read_bytes() == b"1"
    with new_file(path, force=True) as stream:
        stream.write(b"2")
    assert path.read_bytes() == b"2"
    assert os.listdir(path.parent) == ["a.bin"]


def test_a_status_is_overwritten_in_place_only_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "status.json"
    replace_or_overwrite(path, '{"state": "running", "more": 1}')
    for code, expected in ((errno.EROFS, "running"), (errno.ENOSPC, "failed")):
        with monkeypatch.context() as patch:
            patch.setattr(
                files_module.os, "replace", lambda *_, code=code: (_ for _ in ()).throw(OSError(code, ""))
            )
            if code == errno.EROFS:
                with pytest.raises(StorageError, match="read-only"):
                    replace_or_overwrite(path, '{"state": "failed"}')
            else:
                replace_or_overwrite(path, '{"state": "failed"}')
        assert json.loads(path.read_text())["state"] == expected


# -- a real small disk ------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "apoint-test", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small disk is not permitted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    ballast = place / "ballast"
    with open(ballast, "wb", buffering=0) as stream:
        for size in (4096, 1):
            try:
                while True:
                    stream.write(b"x" * size)
            except OSError:
                pass
    return ballast


def test_a_run_lives_through_a_full_disk(small_disk: Path) -> None:
    folder = small_disk / "full-0000-s0"
    with RunWriter.create(folder, "name: full\n", "name: full\n", {}) as writer:
        writer.metric(step=0, epoch=0, split="train", loss=0.0)
        ballast = fill(small_disk)
        for step in range(1, 200):
            writer.metric(step=step, epoch=0, split="train", loss=1 / step)
        assert "the disk is full" in str(writer.trouble)
        with pytest.raises(StorageError, match=r"metrics\.jsonl: the disk is full"):
            writer.sync()
        writer.heartbeat(7)
        writer.status("interrupted", reason="no space")  # into the block that the old status has
        assert Run(folder).state == "interrupted"
        ballast.unlink()
        writer.sync()
        assert writer.trouble is None
    metrics = Run(folder).metrics
    assert metrics.series("loss", "train")[0] == list(range(200))
    assert metrics.torn == 0


def test_a_full_or_read_only_disk_refuses_a_new_run_in_one_sentence(small_disk: Path) -> None:
    fill(small_disk)
    with pytest.raises(StorageError, match=r"cannot .*the disk is full"):
        RunWriter.create(small_disk / "new-0000-s0", "name: new\n", "", {})
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StorageError, match=r"cannot make .*the file system is read-only"):
        RunWriter.create(small_disk / "other-0000-s0", "name: new\n", "", {})
