"""Images decoded as they are needed: the same bits as all at once, ahead of time, in bounded memory."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import apoint.data
from apoint.data import folders, loading, stored
from apoint.data.core import Source, fingerprint
from apoint.data.loading import DatasetCache, use_dataset_cache
from apoint.data.pixels import Decoding
from apoint.data.stored import Decoder, Names, StoredImages
from apoint.engine import Options, assemble, checkpoint, train
from apoint.engine.fleet import Fleet
from apoint.engine.fleet.sharing import wrap
from apoint.engine.stacked import CannotStackError, Stack
from apoint.engine.stream import BATCHES_AHEAD
from apoint.errors import UsageError
from apoint.recipe import load_recipe
from tests.data.images import encoded, picture, recipe, write_folder
from tests.engine.fleet.common import disagreement, tasks_of


class Counting:
    """Image files that are numbers, and count how often each is decoded."""

    def __init__(self, count: int, shape: tuple[int, ...] = (1, 2, 3)) -> None:
        self.count, self.shape = count, shape
        self.reads: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.bad: set[int] = set()

    def __len__(self) -> int:
        return self.count

    def name(self, place: int) -> str:
        return f"image {place}"

    def read(self, place: int) -> np.ndarray:
        self.gate.wait(10)
        self.reads.append(place)
        if place in self.bad:
            raise UsageError(f"image {place}: the image cannot be read")
        return np.full(self.shape, place % 256, dtype=np.uint8)

    def tensors(self) -> list[torch.Tensor]:
        return []

    def digest(self) -> bytes:
        return b"counting"


def wait_until(reached: Any) -> None:
    deadline = time.monotonic() + 20
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert reached()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "photos")


def load(photos: Path, memory: str, **options: Any) -> apoint.data.Data:
    return apoint.data.load(
        {"name": "image-folder", "path": str(photos), "size": 8, "memory": memory}, **options
    )


# ------------------------------------------------------------------------------- in the place of a tensor


def test_it_answers_as_the_tensor_does(photos: Path) -> None:
    lazy, whole = (load(photos, memory).train.inputs for memory in ("lazy", "all"))
    assert isinstance(lazy, StoredImages)
    assert isinstance(whole, torch.Tensor)
    for name in ("shape", "dtype", "ndim", "device"):
        assert getattr(lazy, name) == getattr(whole, name)
    for name in ("numel", "dim", "element_size", "is_floating_point", "__len__"):
        assert getattr(lazy, name)() == getattr(whole, name)()
    index = torch.tensor([5, 0, 5, 17])
    assert torch.equal(lazy.index_select(0, index), whole.index_select(0, index))
    assert torch.equal(lazy.index_select(2, index[1:2]), whole.index_select(2, index[1:2]))
    assert torch.equal(lazy[3], whole[3])
    assert torch.equal(lazy[-1], whole[-1])
    for rows in (slice(2, 9), slice(None, None, 5), index, whole[:, 0, 0, 0] > 100, [1, 2], slice(4, 4)):
        assert isinstance(lazy[rows], StoredImages)
        assert torch.equal(lazy[rows].to("cpu"), whole[rows])
        assert torch.equal(lazy[rows].to(torch.float32), whole[rows].to(torch.float32))
    assert torch.equal(lazy[4:20][torch.tensor([3, 1])].tensor(), whole[[7, 5]])
    assert torch.equal(lazy[:, 1], whole[:, 1])
    assert torch.equal(torch.stack([lazy[:2], lazy[4:6]]), torch.stack([whole[:2], whole[4:6]]))
    assert torch.equal(lazy, whole)
    assert [image.shape for image in lazy[:3]] == [(3, 8, 8)] * 3
    with pytest.raises(IndexError):
        lazy[len(lazy)]


def test_all_of_a_large_set_is_not_decoded_by_mistake(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = load(photos, "lazy").train.inputs
    monkeypatch.setattr(stored, "MOST_BYTES", 10 * 192)
    assert len(torch.stack([inputs[:10]])) == 1
    with pytest.raises(
        UsageError, match=r"^11 stored images would take 0\.0 MB of memory at once, more than"
    ):
        inputs[:11].to("cpu")


def test_names_are_kept_whatever_they_hold() -> None:
    texts = ["a/b.jpg", "", "größe.png", os.fsdecode(b"bad\xff.gif")]
    names = Names(texts)
    assert [names[place] for place in range(len(names))] == texts
    assert len(Names([])) == 0


# ------------------------------------------------------------------------------------ the same as at once


@pytest.mark.parametrize("options", [{}, {"validation": 0.25, "limit": 20, "seed": 3}, {"normalise": False}])
def test_splits_numbers_and_pixels_are_those_of_memory(photos: Path, options: dict[str, Any]) -> None:
    lazy, whole = load(photos, "lazy", **options), load(photos, "all", **options)
    assert lazy.facts == whole.facts
    assert list(lazy.splits) == list(whole.splits)
    for name, split in lazy.splits.items():
        assert torch.equal(split.targets, whole.splits[name].targets)
        assert torch.equal(split.inputs, whole.splits[name].inputs)
    assert torch.equal(lazy.mean, whole.mean)
    assert torch.equal(lazy.std, whole.std)
    batch = lazy.normalise(lazy.to_unit(lazy.test.inputs[:4]))
    assert torch.equal(batch, whole.normalise(whole.to_unit(whole.test.inputs[:4])))


@pytest.mark.parametrize("threads", ["1", "2", "7"])
def test_the_number_of_threads_changes_nothing(
    photos: Path, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = load(photos, "all").train.inputs
    monkeypatch.setenv("APOINT_DECODING_THREADS", threads)
    lazy = load(photos, "lazy").train.inputs
    lazy.decoder.close()  # type: ignore[attr-defined]
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(1))
    assert torch.equal(lazy.index_select(0, order), whole.index_select(0, order))
    assert isinstance(lazy, StoredImages)
    assert 1 <= len(_threads_of(lazy)) <= int(threads)


def test_a_wrong_number_of_threads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APOINT_DECODING_THREADS", "many")
    with pytest.raises(UsageError, match="APOINT_DECODING_THREADS must be a whole number from 1, got 'many'"):
        StoredImages.of(Counting(3)).tensor()


def weights(run: Any) -> dict[str, torch.Tensor]:
    saved = checkpoint.newest(run.folder, lambda sentence: None)
    assert saved is not None
    return {
        f"{part}/{name}": value for part, values in saved.tensors.items() for name, value in values.items()
    }


def assert_same(one: Any, two: Any) -> None:
    ours, theirs = weights(one), weights(two)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    kept = [
        [{k: v for k, v in row.items() if k not in ("seconds", "time")} for row in run.metrics]
        for run in (one, two)
    ]
    assert kept[0] == kept[1]


def test_training_makes_the_very_same_weights(photos: Path, tmp_path: Path) -> None:
    runs = [
        train(
            recipe({"name": "image-folder", "path": str(photos), "size": 8, "memory": memory}),
            seed=1,
            runs_root=tmp_path / memory,
        )
        for memory in ("all", "lazy")
    ]
    assert_same(*runs)


def test_an_interrupted_run_goes_on_to_the_same_bits(photos: Path, tmp_path: Path) -> None:
    lazily = recipe({"name": "image-folder", "path": str(photos), "size": 8, "memory": "lazy"})
    whole = train(lazily, seed=1, runs_root=tmp_path / "whole")

    class LeftError(Exception):
        pass

    def leave(moment: Any) -> None:
        if moment.step >= 5:
            raise LeftError

    options = {"seed": 1, "runs_root": tmp_path / "parts", "checkpoint_every": "2 steps"}
    stop = pytest.MonkeyPatch()
    stop.setattr("apoint.engine.loop.Trainer._tell", lambda self, loss, force=False: leave(self.progress))
    with pytest.raises(LeftError):
        train(lazily, **options)
    stop.undo()
    said: list[str] = []
    assert_same(train(lazily, say=said.append, **options), whole)
    assert any(sentence.startswith("going on from step 4 of") for sentence in said)


# ------------------------------------------------------------------------------------------ ahead of time


def test_what_was_asked_for_ahead_is_decoded_before_it_is_needed() -> None:
    files = Counting(100)
    images = StoredImages.of(files)
    index = torch.arange(40, 60)
    images.prefetch(index)
    wait_until(lambda: len(files.reads) == 20)  # nobody has asked for the images yet
    assert images.index_select(0, index)[:, 0, 0, 0].tolist() == list(range(40, 60))
    assert len(files.reads) == 20
    images.index_select(0, index)
    assert len(files.reads) == 40, "a batch is handed out once"


def test_asking_ahead_does_not_wait() -> None:
    files = Counting(100)
    images = StoredImages.of(files)
    files.gate.clear()
    images.prefetch(slice(0, 64))
    images.prefetch(slice(0, 64))
    assert files.reads == []
    assert images.decoder.live == 64, "the same batch was asked for twice and waits once"
    files.gate.set()
    assert len(images[0:64].to("cpu")) == 64
    assert sorted(files.reads) == list(range(64))


def test_parts_of_a_batch_are_taken_one_after_the_other() -> None:
    files = Counting(100)
    images = StoredImages.of(files)
    index = torch.randperm(100, generator=torch.Generator().manual_seed(0))[:30]
    images.prefetch(index)
    found = [images.index_select(0, part)[:, 0, 0, 0] for part in index.tensor_split(4)]
    assert torch.equal(torch.cat(found).long(), index)
    assert (len(files.reads), images.decoder.live) == (30, 0)


def test_training_decodes_each_image_once_and_ahead(photos: Path) -> None:
    """While a step computes, the next two batches are under way, up to the last step and no further."""
    from apoint.engine import training_step

    built, _ = load_recipe(
        recipe({"name": "image-folder", "path": str(photos), "size": 8, "memory": "lazy"}, epochs=2)
    )
    replica = assemble(built)
    decoder = replica.data.train.inputs.decoder  # type: ignore[attr-defined]
    decoder.decoded = 0
    batch, total = 8, replica.horizon.total_steps
    for step in range(total):
        training_step(replica, step)
        begun = min(step + 1 + BATCHES_AHEAD, total)
        # the two parts of the very first batch are decoded when they are asked for
        assert decoder.decoded == begun * batch
        assert decoder.live == (begun - step - 1) * batch
    assert decoder.live == 0


def test_memory_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is asked for ahead, a few batches are held; those taken or dropped are freed."""
    arrays: list[weakref.ref[np.ndarray]] = []

    class Watched(stored._Batch):
        def __init__(self, *parts: Any) -> None:
            super().__init__(*parts)
            arrays.append(weakref.ref(self.pixels))

    def live_images() -> int:
        return sum(len(array) for reference in arrays if (array := reference()) is not None)

    monkeypatch.setattr(stored, "_Batch", Watched)
    images = StoredImages.of(Counting(1000))
    for start in range(0, 1000, 10):
        images.prefetch(slice(start, start + 10))
        assert images.decoder.live <= stored.MOST_WAITING * 10
    assert images.decoder.live == stored.MOST_WAITING * 10
    wait_until(lambda: live_images() == stored.MOST_WAITING * 10)  # a thread may be at one that was dropped
    images.decoder.close()
    wait_until(lambda: live_images() == 0)
    for piece in images.pieces(10):
        assert len(piece) == 10
        assert live_images() <= 30, "the one that is used, the one before, the one that comes"
    assert len(arrays) == 200, "100 batches that were asked for and left, 100 pieces"


def test_evaluation_asks_for_the_next_batch() -> None:
    from apoint.data import Split
    from apoint.engine.measure import evaluate

    files, seen = Counting(30), []
    images = StoredImages.of(files)

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((x.flatten(1)[:, 0].tolist(), images.decoder.live))
            return torch.zeros(len(x), 2)

    split = Split(images.inputs, torch.zeros(30, dtype=torch.int64))
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    evaluate(Model(), split, "classification", loss, lambda x: x.float(), torch.device("cpu"), batch_size=12)
    assert [values for values, _ in seen] == [list(range(12)), list(range(12, 24)), list(range(24, 30))]
    assert [waiting for _, waiting in seen] == [12, 6, 0]
    assert sorted(files.reads) == list(range(30))


def test_closing_ends_the_threads_and_it_can_begin_again() -> None:
    files = Counting(50)
    images = StoredImages.of(files)
    images.prefetch(slice(0, 50))
    threads = _threads_of(images)
    assert any(thread.is_alive() for thread in threads)
    images.decoder.close()
    assert images.decoder.live == 0
    assert not any(thread.is_alive() for thread in threads)
    assert len(images[:5].to("cpu")) == 5


def _threads_of(images: StoredImages) -> set[threading.Thread]:
    pool = images.decoder._pool
    return set(pool._threads) if pool is not None else set()


def test_threads_end_with_the_images() -> None:
    images = StoredImages.of(Counting(50))
    images[:20].to("cpu")
    threads = _threads_of(images)
    assert threads
    del images
    gc.collect()
    wait_until(lambda: not any(thread.is_alive() for thread in threads))


def test_a_fork_decodes_with_threads_of_its_own() -> None:
    images = StoredImages.of(Counting(20))
    images[:4].to("cpu")
    images.decoder._process = -1  # as a forked child finds it
    images.decoder._lock.acquire()
    assert images[4:8].to("cpu")[:, 0, 0, 0].tolist() == [4, 5, 6, 7]


# ----------------------------------------------------------------------------------------------- bad images


def test_the_first_bad_image_of_a_batch_is_named_and_the_rest_goes_on() -> None:
    files = Counting(100)
    files.bad = {33, 21, 60}
    images = StoredImages.of(files)
    for _ in range(2):
        images.prefetch(slice(10, 50))
        with pytest.raises(UsageError, match=r"^image 21: the image cannot be read"):
            images[10:50].to("cpu")
        assert images.decoder.live == 0
    assert len(images[:20].to("cpu")) == 20


def test_a_damaged_file_stops_training_with_its_name(photos: Path, tmp_path: Path) -> None:
    broken = photos / "dog" / "022.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    lazily = recipe(
        {"name": "image-folder", "path": str(photos), "size": 8, "memory": "lazy", "normalise": False}
    )
    with pytest.raises(UsageError) as caught:
        train(lazily, seed=1, runs_root=tmp_path / "runs")
    assert str(caught.value).startswith(f"{broken}: the image cannot be read (")


def test_a_file_that_is_gone_or_of_another_size_is_named(tmp_path: Path) -> None:
    photos = write_folder(tmp_path / "photos", extension="png")
    data = apoint.data.load({"name": "image-folder", "path": str(photos), "memory": "lazy"})
    inputs = data.train.inputs[:]
    place = photos / "cat" / "003.png"
    picture(1, 9, 9).save(place)
    with pytest.raises(
        UsageError, match=r"003\.png: the image is 9 × 9 pixels, 000\.png is 14 × 11; set size to bring"
    ):
        inputs.to("cpu")
    place.unlink()
    with pytest.raises(UsageError, match=r"003\.png cannot be opened: No such file"):
        inputs.to("cpu")


def test_a_bomb_is_refused_in_a_thread_too(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = load(photos, "lazy").train.inputs
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 150)
    with pytest.raises(
        UsageError, match=r"\.jpg: the image cannot be read \(Image size \(154 pixels\) exceeds limit of 150"
    ):
        inputs.to("cpu")


# ---------------------------------------------------------------------------------- what is known of the data


def test_auto_is_lazy_above_a_stated_size(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(load(photos, "auto").train.inputs, torch.Tensor)
    assert folders.IN_MEMORY_BYTES == 2**31
    monkeypatch.setattr(folders, "IN_MEMORY_BYTES", 48 * 192)
    assert isinstance(load(photos, "auto").train.inputs, torch.Tensor)
    monkeypatch.setattr(folders, "IN_MEMORY_BYTES", 48 * 192 - 1)
    data = load(photos, "auto")
    assert isinstance(data.train.inputs, StoredImages)
    assert data.notes[0] == (
        f"{photos}: 48 images would take 0.0 MB of memory, more than 0.0 MB; they are decoded as they are "
        "needed"
    )


def test_the_fingerprint_is_that_of_the_index(photos: Path, tmp_path: Path) -> None:
    first = load(photos, "lazy").fingerprint
    os.utime(photos / "cat" / "000.jpg", (1, 1))
    assert load(photos, "lazy").fingerprint == first, "when a file was changed does not count"
    photos.rename(tmp_path / "elsewhere")
    assert load(tmp_path / "elsewhere", "lazy").fingerprint == first, "nor where the folder is"
    photos = (tmp_path / "elsewhere").rename(tmp_path / "photos")
    others = [
        load(photos, "lazy", seed=1),
        load(photos, "lazy", limit=20),
        apoint.data.load({"name": "image-folder", "path": str(photos), "size": 9, "memory": "lazy"}),
        apoint.data.load(
            {"name": "image-folder", "path": str(photos), "size": 8, "memory": "lazy", "colour": "gray"}
        ),
    ]
    (photos / "cat" / "000.jpg").rename(photos / "cat" / "00.jpg")
    others.append(load(photos, "lazy"))
    (photos / "cat" / "00.jpg").write_bytes(encoded(picture(99, 20, 20)))
    others.append(load(photos, "lazy"))
    assert len({first, *(data.fingerprint for data in others)}) == 7


def test_mean_and_deviation_of_many_are_those_of_a_fixed_sample(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "MOST_SAMPLED", 10)
    data, again, whole = load(photos, "lazy"), load(photos, "lazy"), load(photos, "all")
    inputs = data.train.inputs
    assert isinstance(inputs, StoredImages)
    sample = loading.sampled(inputs).tensor()
    assert len(sample) == 10
    unit = sample.double() / 255
    assert data.mean.tolist() == pytest.approx(unit.mean((0, 2, 3)).tolist(), abs=1e-6)
    assert data.std.tolist() == pytest.approx(unit.std((0, 2, 3), correction=0).tolist(), abs=1e-6)
    assert torch.equal(data.mean, again.mean)
    assert not torch.equal(data.mean, whole.mean)
    assert data.notes[-2:] == [
        "train: images that also occur in other parts were not looked for, as all would be decoded",
        "train: mean and standard deviation are those of 10 of the 38 images, drawn at random by a fixed "
        "seed",
    ]


def test_large_jpegs_are_decoded_at_a_reduced_size_both_ways(tmp_path: Path) -> None:
    """A photograph sixteen times too large, decoded at an eighth, is close to the one decoded whole."""
    photo = picture(5, 256, 192)
    pixels = Decoding(16)(encoded(photo), "photo")
    whole = Decoding(16)(encoded(photo, "PNG"), "photo")
    jpeg_whole = Decoding(16)(encoded(Image.open(io.BytesIO(encoded(photo))), "PNG"), "photo")
    assert not np.array_equal(pixels, jpeg_whole), "the reduced size was not used"
    assert np.abs(pixels.astype(int) - whole.astype(int)).max() <= 8
    assert np.abs(pixels.astype(int) - whole.astype(int)).mean() <= 2


# ----------------------------------------------------------------------------------------- in other processes


def test_it_travels_and_is_shared_without_its_threads(photos: Path) -> None:
    data = load(photos, "lazy", validation=0.2)
    before = data.train.inputs[:5].to("cpu")
    data.train.inputs.prefetch(slice(0, 5))  # type: ignore[attr-defined]
    for other in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
        assert torch.equal(other.train.inputs[:5].to("cpu"), before)
        assert other.train.inputs.decoder is other.validation.inputs.decoder
        assert fingerprint(other.splits) == data.fingerprint
    kept = DatasetCache()
    with use_dataset_cache(kept):
        assert load(photos, "lazy").train.inputs.decoder is load(photos, "lazy", seed=5).train.inputs.decoder  # type: ignore[attr-defined]
    (source,) = kept.sources.values()
    assert isinstance(source, Source)
    assert not kept.changed
    assert all(tensor.dtype in (torch.int64, torch.uint8) for tensor in loading.tensors_of(source))


def test_a_stack_refuses_in_one_sentence(photos: Path) -> None:
    built, _ = load_recipe(recipe({"name": "image-folder", "path": str(photos), "size": 8, "memory": "lazy"}))
    with pytest.raises(CannotStackError, match="their images are decoded as they are needed, each replica"):
        Stack([assemble(built, seed) for seed in (0, 1)])


def test_decoders_of_one_set_do_not_push_each_other_out() -> None:
    files = Counting(200)
    decoder = Decoder(files)
    train_part = StoredImages(decoder, torch.arange(100))
    test_part = StoredImages(decoder, torch.arange(100, 200))
    for step in range(BATCHES_AHEAD):
        train_part.prefetch(slice(10 * step, 10 * step + 10))
    for start in range(0, 100, 10):
        test_part.prefetch(slice(start + 10, start + 20))
        test_part[start : start + 10].to("cpu")
    for step in range(BATCHES_AHEAD):
        train_part[10 * step : 10 * step + 10].to("cpu")
    assert len(files.reads) == len(set(files.reads)) == 100 + 10 * BATCHES_AHEAD


def test_a_pool_and_a_refused_stack_train_the_same_bits(photos: Path, tmp_path: Path) -> None:
    lazily = {"name": "image-folder", "path": str(photos), "size": 8, "memory": "lazy"}
    tasks = tasks_of(recipe(lazily, name="lazy", epochs=1), (0, 1))
    found, said = {}, []
    for backend in ("loop", "pool", "stacked"):
        options = Options(runs_root=tmp_path / backend)
        with Fleet(options, backend, workers=2, say=said.append) as fleet:
            with use_dataset_cache(fleet._kept):
                assemble(tasks[0].recipe, folder=tasks[0].document.folder)
            (source,) = wrap(fleet._kept, ()).sources.values()
            assert isinstance(source.train.inputs, StoredImages), (
                "the index goes to the workers, not the images"
            )
            assert all(tensor.is_shared() for tensor in loading.tensors_of(source))
            found[backend] = [ended.folder for ended in fleet.train(tasks)]
    for backend in ("pool", "stacked"):
        for one, other in zip(found["loop"], found[backend], strict=True):
            assert disagreement(one, other, events=False) == ""
    assert any("their images are decoded as they are needed, each replica" in sentence for sentence in said)
