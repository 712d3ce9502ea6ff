"""Real images of claims: a part of what the user has, made smaller; a clear sentence if there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apoint.book.images import VARIABLE
from apoint.book.running import Running
from apoint.data import load
from apoint.errors import ApointError


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An NPZ of 60 and 40 images of 8×8 pixels in two classes, named as the book's images."""
    random = np.random.default_rng(0)
    path = tmp_path / "own.npz"
    parts = {
        f"x_{part}": random.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
        for part, count in (("train", 60), ("test", 40))
    }
    labels = {f"y_{part}": np.arange(count) % 2 for part, count in (("train", 60), ("test", 40))}
    np.savez(path, **parts, **labels)
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def test_a_part_is_taken_and_blocks_are_averaged(stored: Path, tmp_path: Path) -> None:
    run = Running("B2", "standard", tmp_path / "book" / "runs")
    found = load(run.images(size=4, train=60, test=10), normalise=False)
    whole = np.load(stored)["x_train"].astype(float).transpose(0, 3, 1, 2)
    means = whole.reshape(60, 3, 4, 2, 4, 2).mean(axis=(3, 5))
    assert np.abs(found.train.inputs.numpy() - means).max() <= 0.5
    assert np.bincount(found.test.targets.numpy()).tolist() == [5, 5]


def test_the_file_is_made_once(stored: Path, tmp_path: Path) -> None:
    run = Running("B2", "standard", tmp_path / "book" / "runs")
    first = run.images(size=4, train=20, test=10)
    made = Path(first["path"]).stat().st_mtime_ns
    assert run.images(size=4, train=20, test=10) == first
    assert Path(first["path"]).stat().st_mtime_ns == made


@pytest.mark.parametrize(
    ("size", "train", "words"), [(3, 20, "cannot be averaged to 3×3"), (4, 100, "60 train images, and 100")]
)
def test_what_does_not_fit_is_said(stored: Path, tmp_path: Path, size: int, train: int, words: str) -> None:
    with pytest.raises(ApointError, match=words):
        Running("B2", "standard", tmp_path / "book" / "runs").images(size=size, train=train, test=10)


def test_images_that_are_not_there_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("APOINT_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run = Running("B2", "standard", tmp_path / "book" / "runs")
    with pytest.raises(ApointError, match=r"apoint data fetch cifar-10.*APOINT_BOOK_IMAGES.*quick needs no"):
        run.images(size=4, train=10, test=10)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere.npz"))
    with pytest.raises(ApointError, match=r"nowhere\.npz, which cannot be read"):
        run.images(size=4, train=10, test=10)
