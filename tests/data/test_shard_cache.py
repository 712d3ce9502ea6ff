"""The cache of shard indexes is used only if it is whole and of this shard; else it is made anew."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import apoint.data
from apoint.data import shard_index
from apoint.data.shard_index import Shard, index_shard, read_shard
from tests.data.images import samples, write_tar


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "apoint" / "shards"


@pytest.fixture
def shard(tmp_path: Path, cache: Path) -> Path:
    return write_tar(tmp_path / "a.tar", samples(range(24)))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The shards whose headers were read, in order."""
    read: list[Path] = []

    def reading(path: Path) -> Shard:
        read.append(path)
        return read_shard(path)

    monkeypatch.setattr(shard_index, "read_shard", reading)
    return read


def only(folder: Path) -> Path:
    (place,) = folder.iterdir()
    return place


def test_a_flipped_label_is_said_and_not_trained_on(
    shard: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = {"name": "tar-shards", "path": str(shard), "memory": "lazy"}
    right = apoint.data.load(spec)
    place = only(cache)
    text = place.read_text()
    start = text.index('"labels": [') + len('"labels": [')
    place.write_text(f"{text[:start]}{(int(text[start]) + 1) % 3}{text[start + 1 :]}")
    again = apoint.data.load(spec)
    assert again.fingerprint == right.fingerprint
    assert torch.equal(again.train.targets, right.train.targets)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"the index of {shard} kept in {place} is damaged" in caplog.text
    assert place.read_text() == text, "and it was made anew"


def test_any_changed_byte_is_noticed(shard: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    right, rng = index_shard(shard), np.random.default_rng(0)
    place = only(cache)
    whole = place.read_bytes()
    for turn, position in enumerate([0, 63, 64, 65, len(whole) - 1, *rng.integers(0, len(whole), 200)]):
        changed = bytearray(whole)
        changed[position] ^= 1 << (turn % 8)
        place.write_bytes(changed)
        caplog.clear()
        assert index_shard(shard) == right
        assert len(caplog.records) == 1, f"byte {position}"
        assert place.read_bytes() == whole


@pytest.mark.parametrize("end", [0, 1, 64, 65, 200, -1])
def test_a_cut_cache_is_noticed(end: int, shard: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    right = index_shard(shard)
    place = only(cache)
    place.write_bytes(place.read_bytes()[:end])
    assert index_shard(shard) == right
    assert len(caplog.records) == 1


def test_a_cache_without_its_hash_is_not_believed(shard: Path, cache: Path) -> None:
    right = index_shard(shard)
    place = only(cache)
    content = json.loads(place.read_bytes().partition(b"\n")[2])
    content["shard"]["labels"][0] = 2
    for text in (json.dumps(content), "\n" + json.dumps(content), json.dumps({**content, "version": 1})):
        place.write_text(text)
        assert index_shard(shard) == right


def test_the_cache_of_another_shard_is_not_believed(
    tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two shards of one size and time, and their caches exchanged."""
    contents = [[("0.jpg", b"x"), ("0.cls", label)] for label in (b"0", b"1")]
    paths = [write_tar(tmp_path / f"{number}.tar", content) for number, content in enumerate(contents)]
    for path in paths:
        os.utime(path, ns=(10**18, 10**18))
    first = index_shard(paths[0])
    place = only(cache)
    content = place.read_bytes()
    second = index_shard(paths[1])
    (other,) = set(cache.iterdir()) - {place}
    other.write_bytes(content)
    assert index_shard(paths[1]) == second != first
    assert "is damaged" in caplog.text


def test_a_shard_replaced_by_one_of_the_same_size_and_time_is_read_again(
    tmp_path: Path, cache: Path, reads: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.jpg", b"x"), ("0.cls", b"0")])
    os.utime(path, ns=(10**18, 10**18))
    assert index_shard(path).labels == [0]
    other = write_tar(tmp_path / "b.tar", [("0.jpg", b"x"), ("0.cls", b"1")])
    os.utime(other, ns=(10**18, 10**18))
    shutil.move(other, path)
    assert index_shard(path).labels == [1]
    assert reads == [path, path]
    assert not caplog.records, "a shard that has changed is nothing to warn of"
    index_shard(path)
    assert reads == [path, path]


def test_a_cache_that_is_no_file_is_said_and_made_anew(
    shard: Path, cache: Path, reads: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    right = index_shard(shard)
    place = only(cache)
    place.unlink()
    os.mkfifo(place)
    assert index_shard(shard) == right
    assert "is damaged" in caplog.text
    assert place.is_file()
    assert index_shard(shard) == right
    assert len(reads) == 2


def test_an_older_cache_is_replaced_without_a_word(
    shard: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    right = index_shard(shard)
    place = only(cache)
    place.write_text('{"version": 1, "shard": {}}')
    assert index_shard(shard) == right
    assert not caplog.records
    assert not place.read_text().startswith("{")


@pytest.mark.parametrize(
    "change",
    [
        {"offsets": [10**12] * 24},
        {"offsets": ["0"] * 24},
        {"names": ["x"]},
        {"labels": None},
        {"labels": [None] * 24},
        {"more": 1},
    ],
)
def test_a_cache_that_makes_no_sense_is_not_used_even_with_a_right_hash(
    change: dict[str, Any], shard: Path, cache: Path
) -> None:
    right = index_shard(shard)
    place = only(cache)
    content = json.loads(place.read_bytes().partition(b"\n")[2])
    body = json.dumps({**content, "shard": {**content["shard"], **change}}).encode()
    place.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    assert index_shard(shard) == right
