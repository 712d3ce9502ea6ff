"""Image files: IDX, CIFAR's binary version, folders; and a sentence for each kind of damage."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import apoint.data
from apoint.data import cifar, idx, locate, sums
from apoint.errors import UsageError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes() + array.tobytes()


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """A small set in MNIST's format, half of its files compressed."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part, count in (("train", 30), ("t10k", 20)):
        images = rng.integers(0, 256, (count, 6, 5), dtype=np.uint8)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
        labels = (np.arange(count) % 10).astype(np.uint8)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
        np.save(tmp_path / f"{part}.npy", images)
    return folder


def load_mnist(folder: Path) -> apoint.data.Data:
    return apoint.data.load("mnist", root=folder.parent)


def test_idx_plain_and_compressed_are_read(mnist: Path) -> None:
    data = load_mnist(mnist)
    assert data.facts.input_shape == (1, 6, 5)
    for name, split in (("train", data.train), ("t10k", data.test)):
        np.testing.assert_array_equal(split.inputs[:, 0].numpy(), np.load(mnist.parent / f"{name}.npy"))
        assert split.targets.tolist() == [row % 10 for row in range(len(split))]
    data.train.inputs.add_(1)  # the memory is ours to write to


@pytest.mark.parametrize("layout", ["mnist", "MNIST/raw", "MNIST", "."])
def test_the_usual_folders_are_found(layout: str, mnist: Path, tmp_path: Path) -> None:
    root = tmp_path / "elsewhere"
    (root / layout).parent.mkdir(parents=True, exist_ok=True)
    mnist.rename(root / layout) if layout != "." else mnist.rename(root)
    assert len(apoint.data.load("mnist", root=root).train) == 30


def test_the_other_spelling_of_the_names_is_found(mnist: Path) -> None:
    for path in list(mnist.iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert len(load_mnist(mnist).train) == 30


def test_places_are_searched_in_the_stated_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APOINT_DATA", str(tmp_path / "chosen"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    home = tmp_path / "home"
    assert locate.places(tmp_path / "given") == [
        tmp_path / "given",
        tmp_path / "chosen",
        home / ".cache" / "apoint",
        Path("data"),
        home / "data",
        home / ".cache" / "torchvision",
        Path("/usr/share/datasets"),
    ]
    assert locate.store(None) == tmp_path / "chosen"
    assert locate.store(tmp_path) == tmp_path
    monkeypatch.delenv("APOINT_DATA")
    assert locate.store(None) == home / ".cache" / "apoint"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert locate.store(None) == tmp_path / "xdg" / "apoint"


def test_paths_are_resolved_from_here_then_root_then_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, root, chosen = (tmp_path / name for name in ("here", "root", "chosen"))
    for folder in (here, root, chosen):
        folder.mkdir()
        (folder / "a.txt").touch()
    monkeypatch.chdir(here)
    monkeypatch.setenv("APOINT_DATA", str(chosen))
    assert locate.resolve("a.txt", root) == Path("a.txt")
    (here / "a.txt").unlink()
    assert locate.resolve("a.txt", root) == root / "a.txt"
    (root / "a.txt").unlink()
    assert locate.resolve("a.txt", root) == chosen / "a.txt"
    (chosen / "a.txt").unlink()
    with pytest.raises(UsageError) as caught:
        locate.resolve("a.txt", root)
    assert str(caught.value) == (
        f"a.txt: there is no such file or folder; looked in {here} and {root} and {chosen}; correct the path "
        "or set --data-root"
    )


def damage(path: Path, change: str) -> None:
    content = path.read_bytes()
    if change == "truncated":
        content = content[:-3]
    elif change == "magic":
        content = b"\x00\x00\x09" + content[3:]
    elif change == "empty":
        content = b""
    elif change == "header":
        content = content[:6]
    elif change == "longer":
        content += b"x"
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "change", "sentence"),
    [
        (
            "train-labels-idx1-ubyte",
            "truncated",
            "the header promises 30 = 30 bytes, the file has 27; it is truncated",
        ),
        ("train-labels-idx1-ubyte", "longer", "the header promises 30 = 30 bytes, the file has 31"),
        (
            "train-labels-idx1-ubyte",
            "magic",
            "begins with 00 00 08 01, this one with 00 00 09 01; it is another kind",
        ),
        ("train-labels-idx1-ubyte", "empty", "the file is empty; fetch it again"),
        (
            "t10k-labels-idx1-ubyte",
            "header",
            "the file ends within its header, after 6 bytes; fetch it again",
        ),
        ("train-images-idx3-ubyte.gz", "truncated", "cannot be decompressed ("),
        ("train-images-idx3-ubyte.gz", "magic", "cannot be decompressed (Not a gzipped file"),
    ],
)
def test_damaged_idx_files_are_named(file: str, change: str, sentence: str, mnist: Path) -> None:
    damage(mnist / file, change)
    with pytest.raises(UsageError) as caught:
        load_mnist(mnist)
    assert str(caught.value).startswith(str(mnist / file))
    assert sentence in str(caught.value)


def test_images_and_labels_that_do_not_match_are_named(mnist: Path) -> None:
    (mnist / "train-labels-idx1-ubyte").write_bytes((mnist / "t10k-labels-idx1-ubyte").read_bytes())
    with pytest.raises(
        UsageError, match="has 30 images but train-labels-idx1-ubyte has 20 labels; they do not belong"
    ):
        load_mnist(mnist)


def test_one_set_is_not_taken_for_the_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 60000), ("t10k", 10)):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(
            idx_bytes(np.zeros((count, 1, 1), dtype=np.uint8))
        )
        even = (np.arange(count) % 10).astype(np.uint8)
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(even))
    with pytest.raises(
        UsageError, match=r"dataset 'mnist': the files in .* are those of 'fashion-mnist', which have"
    ):
        apoint.data.load("mnist", root=tmp_path)
    assert not idx.belongs("mnist", tmp_path)
    assert idx.belongs("fashion-mnist", tmp_path)
    uneven = rng.integers(0, 10, 60000).astype(np.uint8)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(uneven))
    assert idx.belongs("mnist", tmp_path)
    assert not idx.belongs("fashion-mnist", tmp_path)


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_fashion_mnist_from_debian_is_the_published_one() -> None:
    data = apoint.data.load("fashion-mnist", root=DEBIAN.parent)
    assert (len(data.train), len(data.test)) == (60000, 10000)
    assert torch.bincount(data.train.targets).tolist() == [6000] * 10
    # The mean and deviation that everybody's transforms use.
    assert data.mean.item() == pytest.approx(0.2860, abs=5e-5)
    assert data.std.item() == pytest.approx(0.3530, abs=5e-5)
    assert data.facts.class_names[data.train.targets[0]] == "Ankle boot"
    assert data.notes == []


# ------------------------------------------------------------------------------------------------- CIFAR


@pytest.fixture
def cifar_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cifar, "TEN_TRAIN", {f"data_batch_{n}.bin": 10 for n in range(1, 6)})
    monkeypatch.setattr(cifar, "TEN_TEST", {"test_batch.bin": 10})
    monkeypatch.setattr(cifar, "HUNDRED_TRAIN", {"train.bin": 100})
    monkeypatch.setattr(cifar, "HUNDRED_TEST", {"test.bin": 100})
    ten, hundred = tmp_path / "cifar-10-batches-bin", tmp_path / "cifar-100-binary"
    for folder, files, sizes in (
        (ten, cifar.TEN_TRAIN | cifar.TEN_TEST, (10,)),
        (hundred, cifar.HUNDRED_TRAIN | cifar.HUNDRED_TEST, (20, 100)),
    ):
        folder.mkdir()
        for number, (name, count) in enumerate(files.items()):
            records = b""
            for row in range(count):
                marks = bytes(row % size for size in sizes)
                red, green, blue = bytes([row]) * 1024, bytes([number]) * 1024, bytes(range(256)) * 4
                records += marks + red + green + blue
            (folder / name).write_bytes(records)
    return tmp_path


def test_cifar_10_is_read_batch_by_batch_and_channel_by_channel(cifar_files: Path) -> None:
    data = apoint.data.load("cifar-10", root=cifar_files)
    assert data.train.inputs.shape == (50, 3, 32, 32)
    assert data.train.inputs[23, 0].unique().tolist() == [3]
    assert data.train.inputs[23, 1].unique().tolist() == [2]
    assert data.train.inputs[23, 2].flatten()[:300].tolist() == [place % 256 for place in range(300)]
    assert data.train.targets[23] == 3
    assert data.test.inputs[0, 1, 0, 0] == 5
    assert data.facts.class_names[3] == "cat"


def test_cifar_100_has_two_kinds_of_labels_and_names_from_its_files(cifar_files: Path) -> None:
    fine = apoint.data.load("cifar-100", root=cifar_files)
    assert (fine.facts.num_outputs, fine.train.targets[45].item()) == (100, 45)
    assert fine.facts.class_names[45] == "45"
    names = [f"group{number}" for number in range(20)]
    (cifar_files / "cifar-100-binary" / "coarse_label_names.txt").write_text("\n".join(names) + "\n\n")
    coarse = apoint.data.load("cifar-100", root=cifar_files, labels="coarse")
    assert (coarse.facts.num_outputs, coarse.train.targets[45].item()) == (20, 5)
    assert coarse.facts.class_names[5] == "group5"


def test_damaged_cifar_files_are_named(cifar_files: Path) -> None:
    path = cifar_files / "cifar-10-batches-bin" / "data_batch_4.bin"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(UsageError) as caught:
        apoint.data.load("cifar-10", root=cifar_files)
    assert str(caught.value) == (
        f"{path}: expected 10 records of 3073 bytes, which are 30730, the file has 30729; it is truncated or "
        "another file, so fetch it again"
    )
    path.write_bytes(b"\x0b" + content[1:])
    with pytest.raises(
        UsageError, match=r"data_batch_4\.bin: labels must be below 10, found 11; the file is damaged"
    ):
        apoint.data.load("cifar-10", root=cifar_files)


def test_a_changed_label_in_a_fetched_file_is_refused(cifar_files: Path) -> None:
    """Files that came out of a fetched archive have their hashes beside them."""
    folder = cifar_files / "cifar-10-batches-bin"
    right = apoint.data.load("cifar-10", root=cifar_files).fingerprint
    sums.write_sums(folder, {path.name: sums.digest_of_file(path) for path in folder.iterdir()})
    assert apoint.data.load("cifar-10", root=cifar_files).fingerprint == right
    path, noted = folder / "data_batch_4.bin", folder / "SHA256SUMS"
    content, text = path.read_bytes(), noted.read_text()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(UsageError, match=r"data_batch_4\.bin: the file is not the one that was fetched"):
        apoint.data.load("cifar-10", root=cifar_files)
    path.write_bytes(content)
    for changed in (text.replace("data_batch_4", "data_batch_x"), text.replace("a", "b", 1), ""):
        noted.write_text(changed)
        with pytest.raises(UsageError, match="the file is not the one that was fetched"):
            apoint.data.load("cifar-10", root=cifar_files)


def test_published_record_counts_are_the_real_ones() -> None:
    assert {f"data_batch_{n}.bin": 10000 for n in range(1, 6)} == cifar.TEN_TRAIN
    assert (cifar.TEN_TEST, cifar.HUNDRED_TRAIN) == ({"test_batch.bin": 10000}, {"train.bin": 50000})
    assert cifar.HUNDRED_TEST == {"test.bin": 10000}


# ----------------------------------------------------------------------------------------------- folders


def put(path: Path, image: Image.Image) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for row in range(10):
        put(folder / "cat" / f"{row}.png", Image.new("RGB", (6, 4), (row, 100, 200)))
        put(folder / "dog" / "deep" / f"{row}.bmp", Image.new("RGB", (6, 4), (200, row, 7)))
    return folder


def test_a_folder_of_classes_is_read(photos: Path) -> None:
    source = apoint.data.folders.image_folder(path=str(photos))
    assert source.facts.class_names == ("cat", "dog")
    assert source.train.inputs.shape == (20, 3, 4, 6)
    assert source.train.targets.tolist() == [0] * 10 + [1] * 10
    assert source.train.inputs[3, :, 0, 0].tolist() == [3, 100, 200]
    assert source.train.inputs[13, :, 3, 5].tolist() == [200, 3, 7]
    assert source.notes == []


def test_gray_is_pillows_gray(photos: Path) -> None:
    source = apoint.data.folders.image_folder(path=str(photos), colour="gray")
    expected = Image.new("RGB", (1, 1), (3, 100, 200)).convert("L").getpixel((0, 0))
    assert source.train.inputs.shape == (20, 1, 4, 6)
    assert source.train.inputs[3, 0, 0, 0] == expected


def test_size_fits_the_shorter_side_and_crops_the_centre(tmp_path: Path) -> None:
    stripes = Image.new("RGB", (16, 8))
    for column in range(16):
        for row in range(8):
            stripes.putpixel((column, row), (255 if 4 <= column < 12 else 0, 0, 0))
    put(tmp_path / "a" / "1.png", stripes)
    put(tmp_path / "b" / "1.png", Image.new("RGB", (5, 9)))
    inputs = apoint.data.folders.image_folder(path=str(tmp_path), size=4).train.inputs
    assert inputs.shape == (2, 3, 4, 4)
    assert (inputs[0, 0] > 200).all(), "the middle 8 × 8 pixels are what is left of 16 × 8"


def test_parts_in_folders_are_kept(photos: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    for part in ("train", "val"):
        for source in photos.rglob("*.*"):
            put(whole / part / source.relative_to(photos), Image.open(source))
    data = apoint.data.load(str(whole), normalise=False)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 20, "test": 20}
    put(whole / "test" / "cat" / "1.png", Image.new("RGB", (6, 4)))
    data = apoint.data.load(str(whole))
    assert {name: len(split) for name, split in data.splits.items()} == {
        "train": 20,
        "validation": 20,
        "test": 1,
    }


def test_images_are_turned_upright(tmp_path: Path) -> None:
    picture = Image.new("L", (6, 4))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    for name in "ab":
        (tmp_path / name).mkdir()
        picture.save(tmp_path / name / "1.jpg", exif=exif)
    assert apoint.data.folders.image_folder(path=str(tmp_path)).train.inputs.shape == (2, 3, 6, 4)


def test_palettes_with_transparency_are_read_without_a_warning(tmp_path: Path) -> None:
    for name in "ab":
        picture = Image.new("RGB", (4, 4), (10, 20, 30)).quantize()
        (tmp_path / name).mkdir()
        picture.save(tmp_path / name / "1.png", transparency=bytes([128]))
    source = apoint.data.folders.image_folder(path=str(tmp_path))
    assert source.train.inputs[0, :, 0, 0].tolist() == [10, 20, 30]


def test_other_files_are_left_out_and_told(photos: Path) -> None:
    (photos / "cat" / "notes.txt").write_text("not an image")
    (photos / "cat" / ".hidden").write_text("nor this")
    (photos / ".cache").mkdir()
    assert apoint.data.load(str(photos)).notes[0] == (
        f"{photos}: 1 files without an image's extension were left out"
    )


def test_a_damaged_image_is_named(photos: Path) -> None:
    broken = photos / "dog" / "deep" / "4.bmp"
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(UsageError) as caught:
        apoint.data.load(str(photos))
    assert str(caught.value).startswith(f"{broken}: the image cannot be read (")
    assert str(caught.value).endswith("); replace or remove the file")
    broken.write_text("not an image at all")
    with pytest.raises(UsageError, match=r"4\.bmp: the image cannot be read \(cannot identify image file"):
        apoint.data.load(str(photos))
    broken.write_bytes(b"")
    with pytest.raises(UsageError, match=r"4\.bmp: the image cannot be read"):
        apoint.data.load(str(photos))


def test_an_image_too_large_to_be_true_is_named(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)  # Pillow only warns of 24 pixels then
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.raises(
            UsageError, match=r"0\.png: the image cannot be read \(Image size \(24 pixels\) exceeds"
        ):
            apoint.data.load(str(photos))


def test_uneven_sizes_and_deep_images_are_named(photos: Path) -> None:
    odd = photos / "dog" / "odd.png"
    put(odd, Image.new("RGB", (7, 4)))
    with pytest.raises(UsageError) as caught:
        apoint.data.load(str(photos))
    assert str(caught.value) == (
        f"{odd}: the image is 7 × 4 pixels, 0.png is 6 × 4; set size to bring all to one size"
    )
    assert len(apoint.data.load(str(photos), size=4).train) == 17
    put(odd, Image.new("I;16", (6, 4)))
    with pytest.raises(UsageError, match=r"odd\.png: the image has more than 8 bits a channel \(mode I;16\)"):
        apoint.data.load(str(photos))


def test_uneven_parts_are_named(tmp_path: Path) -> None:
    for part, side in (("train", 4), ("test", 5)):
        for name in "ab":
            put(tmp_path / part / name / "1.png", Image.new("RGB", (side, side)))
    with pytest.raises(
        UsageError, match=r"test: images are of shape \(3, 5, 5\), those for training of \(3, 4, 4\)"
    ):
        apoint.data.load(str(tmp_path))


def test_folders_without_what_is_needed_are_named(photos: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(
        UsageError, match="empty: there is no class folder in it; put the images of each class"
    ):
        apoint.data.load(str(empty))
    (photos / "zebra").mkdir()
    with pytest.raises(UsageError, match=r"zebra: the class folder holds no image \(\.png, "):
        apoint.data.load(str(photos))
    (photos / "zebra").rmdir()
    with pytest.raises(UsageError, match="expected a folder with a folder for each class, this is a file"):
        apoint.data.load({"name": "image-folder", "path": str(photos / "cat" / "1.png")})
    with pytest.raises(
        UsageError, match="all 10 training samples are of one class, 'deep'; there is nothing to tell"
    ):
        apoint.data.load(str(photos / "dog"))


def test_a_class_only_in_the_test_folder_is_named(tmp_path: Path) -> None:
    for place in ("train/a", "train/b", "test/a", "test/c"):
        put(tmp_path / place / "1.png", Image.new("RGB", (4, 4)))
    with pytest.raises(UsageError, match="the class 'c' has no folder among the training images"):
        apoint.data.load(str(tmp_path))
