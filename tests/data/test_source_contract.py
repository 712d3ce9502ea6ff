"""Laws for every registered dataset: one that is not in `CASES` fails."""

from __future__ import annotations

import inspect
import io
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import apoint.data
from apoint.checking import checked_settings
from apoint.data import cifar, idx
from apoint.data.core import Source
from apoint.errors import UsageError
from apoint.registry import registry

DATASETS = sorted(registry("dataset"))
ELSEWHERE = {"procedural"}  # its settings are tested beside it


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def write_mnist(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 40), ("t10k", 20)):
        write_idx(folder / f"{part}-images-idx3-ubyte", rng.integers(0, 256, (count, 28, 28)))
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(count) % 10)


def write_cifar(folder: Path, files: dict[str, int], labels: list[int]) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in files.items():
        marks = np.stack([np.arange(count) % size for size in labels], axis=1)
        pixels = rng.integers(0, 256, (count, 3072))
        (folder / name).write_bytes(np.concatenate([marks, pixels], axis=1).astype(np.uint8).tobytes())


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small specimen of everything that is read from files."""
    monkeypatch.setattr(cifar, "TEN_TRAIN", {f"data_batch_{n}.bin": 20 for n in range(1, 6)})
    monkeypatch.setattr(cifar, "TEN_TEST", {"test_batch.bin": 20})
    monkeypatch.setattr(cifar, "HUNDRED_TRAIN", {"train.bin": 200})
    monkeypatch.setattr(cifar, "HUNDRED_TEST", {"test.bin": 100})
    write_mnist(tmp_path / "mnist")
    write_mnist(tmp_path / "FashionMNIST" / "raw")
    write_cifar(tmp_path / "cifar-10-batches-bin", cifar.TEN_TRAIN | cifar.TEN_TEST, [10])
    write_cifar(tmp_path / "cifar-100-binary", cifar.HUNDRED_TRAIN | cifar.HUNDRED_TEST, [20, 100])
    for row in range(20):
        folder = tmp_path / "photos" / ("cat", "dog")[row % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (row * 10, 0, 200)).save(folder / f"{row}.png")
    rows = [f"{row},{row * row % 7},{row % 3 / 2},{row % 2}" for row in range(40)]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,c,y", *rows]))
    (tmp_path / "half.csv").write_text("\n".join(["a;b;c;y", *(row.replace(",", ";") for row in rows[:20])]))
    (tmp_path / "bare.csv").write_text("\n".join([*rows, "1,2,3,1"]))
    (tmp_path / "holes.csv").write_text("\n".join(["a,b,c,y", *rows, ",1,1,0"]))
    _write_parquet(tmp_path, rows)
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(40, 3)), "y": np.arange(40) % 2}
    more = {"u": rng.integers(0, 256, (40, 6, 5, 3), dtype=np.uint8), "v": np.arange(40) % 4}
    test = {"s": rng.normal(size=(7, 3)), "t": np.arange(7) % 2, "w": np.zeros(7, dtype=int)}
    np.savez(tmp_path / "arrays.npz", **arrays, **more, **test)
    (tmp_path / "prose.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    (tmp_path / "latin.txt").write_bytes("à bientôt, déjà vu. ".encode("latin-1") * 40)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _write_shards(tmp_path)
    return tmp_path


def _write_shards(folder: Path) -> None:
    for name, rows in (("a.tar", range(20)), ("b.tar", range(20, 30))):
        with tarfile.open(folder / name, "w") as tar:
            for row in rows:
                image = (folder / "photos" / ("cat", "dog")[row % 2] / f"{row % 20}.png").read_bytes()
                for extension, content in (("png", image), ("cls", str(row % 2).encode())):
                    member = tarfile.TarInfo(f"{row}.{extension}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


def _write_parquet(folder: Path, rows: list[str]) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = list(zip(*(map(float, row.split(",")) for row in rows), strict=True))
    table = pyarrow.table({name: list(values) for name, values in zip("abcy", columns, strict=True)})
    pyarrow.parquet.write_table(table, folder / "table.parquet")
    pyarrow.parquet.write_table(table.slice(0, 20), folder / "half.parquet")
    hole = pyarrow.table({"a": [None], "b": [1.0], "c": [1.0], "y": [0.0]}, schema=table.schema)
    holes = pyarrow.concat_tables([table, hole])
    pyarrow.parquet.write_table(holes, folder / "holes.parquet")


# For each dataset: the settings it needs, and for each setting a change that must change the data (or be
# what makes them readable: then the pair says which settings fail without it).
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "digits": ({}, {}),
    "moons": ({}, {"num_samples": 50, "noise": 0.3, "seed": 1}),
    "circles": ({}, {"num_samples": 50, "noise": 0.3, "factor": 0.8, "seed": 1}),
    "spirals": ({}, {"num_samples": 50, "num_classes": 3, "turns": 2.0, "noise": 0.3, "seed": 1}),
    "xor": ({}, {"num_samples": 50, "noise": 0.3, "seed": 1}),
    "teacher": (
        {"width": 5},
        {
            "num_samples": 50,
            "num_features": 3,
            "num_targets": 2,
            "width": 0,
            "activation": "tanh",
            "noise": 0.5,
            "seed": 1,
        },
    ),
    "mnist-1d": (
        {"num_samples": 100},
        {
            "num_samples": 200,
            "train_share": 0.5,
            "length": 30,
            "scale": 0.1,
            "max_translation": 10,
            "correlated_noise": 0.1,
            "independent_noise": 0.1,
            "shear": 0.1,
            "shuffle_points": True,
            "seed": 43,
        },
    ),
    "python-docs": ({}, {"context": 32, "stride": 16}),
    "procedural": ({}, {}),
    "mnist": ({}, {}),
    "fashion-mnist": ({}, {}),
    "cifar-10": ({}, {}),
    "cifar-100": ({}, {"labels": "coarse"}),
    "image-folder": (
        {"path": "photos"},
        {"path": "photos/.", "size": 4, "colour": "gray", "memory": "lazy"},
    ),
    "tar-shards": (
        {"path": "a.tar"},
        {"path": "{a,b}.tar", "test_path": "b.tar", "size": 4, "colour": "gray", "memory": "lazy"},
    ),
    "csv": (
        {"path": "table.csv"},
        {
            "path": "holes.csv",
            "test_path": "table.csv",
            "target": "b",
            "task": "regression",
            "ignore": ["a"],
            "categorical": ["b"],
            "delimiter": ";",
            "header": False,
            "allow_missing": True,
        },
    ),
    "parquet": (
        {"path": "table.parquet"},
        {
            "path": "half.parquet",
            "test_path": "half.parquet",
            "target": "b",
            "task": "regression",
            "ignore": ["a"],
            "categorical": ["b"],
            "allow_missing": True,
        },
    ),
    "npz": (
        {"path": "arrays.npz"},
        {
            "path": "arrays.npz",
            "inputs": "u",
            "targets": "v",
            "test_inputs": "s",
            "test_targets": "t",
            "channels": "first",
        },
    ),
    "text": (
        {"path": "prose.txt", "context": 8},
        {"path": "latin.txt", "context": 16, "stride": 4, "encoding": "utf-16"},
    ),
}
# Settings whose effect needs another setting beside it, or shows only as a refusal without it.
PARTNERS: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]] = {
    ("csv", "path"): ({}, {"path": "holes.csv", "allow_missing": True}),
    ("csv", "delimiter"): ({}, {"path": "half.csv", "delimiter": ";"}),
    ("csv", "header"): ({}, {"path": "bare.csv", "header": False}),
    ("csv", "allow_missing"): ({}, {"path": "holes.csv", "allow_missing": True}),
    ("parquet", "allow_missing"): ({}, {"path": "holes.parquet", "allow_missing": True}),
    ("npz", "path"): ({}, {"inputs": "u"}),  # the missing file below shows that the path is read
    ("npz", "test_inputs"): ({}, {"test_inputs": "s", "test_targets": "t"}),
    ("npz", "test_targets"): (
        {"test_inputs": "s", "test_targets": "t"},
        {"test_inputs": "s", "test_targets": "w"},
    ),
    ("npz", "channels"): ({"inputs": "u"}, {"inputs": "u", "channels": "first"}),
    ("text", "path"): ({}, {"path": "latin.txt", "encoding": "latin-1"}),
    ("text", "encoding"): (
        {"path": "latin.txt", "encoding": "latin-1"},
        {"path": "latin.txt", "encoding": "cp437"},
    ),
    ("image-folder", "path"): ({}, {"size": 4}),
}
FOLDER_DATASETS = [name for name in DATASETS if "path" in registry("dataset")[name].setting_parameters]


def build(name: str, folder: Path, settings: dict[str, Any]) -> Source:
    entry = registry("dataset")[name]
    supplied = {"root": folder} if "root" in entry.supplied else {}
    source: Source = entry.build(**supplied, **checked_settings(entry, settings))
    return source


def print_of(source: Source) -> str:
    parts = {"train": source.train, "test": source.test, "validation": source.validation}
    return apoint.data.core.fingerprint({name: part for name, part in parts.items() if part is not None})


def test_every_dataset_has_a_case() -> None:
    assert set(CASES) == set(DATASETS)


@pytest.mark.parametrize("name", DATASETS)
def test_the_docstring_says_everything(name: str) -> None:
    entry = registry("dataset")[name]
    text = inspect.getdoc(entry.build) or ""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert entry.summary.endswith(".")
    assert "Reference:" in text
    assert "\n\n" in text, "what it is for"
    for setting, (_, _, note) in entry.setting_parameters.items():
        assert note.endswith("."), f"{setting} is not described"


@pytest.mark.parametrize("name", DATASETS)
def test_built_twice_it_is_the_same_and_global_randomness_is_untouched(name: str, files: Path) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    first, second = build(name, files, CASES[name][0]), build(name, files, CASES[name][0])
    assert print_of(first) == print_of(second)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()  # type: ignore[index]


@pytest.mark.parametrize("name", DATASETS)
def test_loaded_it_keeps_what_its_facts_promise(name: str, files: Path) -> None:
    data = apoint.data.load({"name": name, **CASES[name][0]}, root=files, validation=0.2)
    facts = data.facts
    assert set(data.splits) == {"train", "validation", "test"}
    for split in data.splits.values():
        assert len(split) > 0
        assert tuple(split.inputs.shape[1:]) == facts.input_shape
        wanted = {"image": torch.uint8, "tokens": torch.int64}.get(facts.kind, torch.float32)
        assert split.inputs.dtype == wanted
        if facts.task == "regression":
            assert split.targets.dtype == torch.float32
            assert split.targets.shape == (len(split), facts.num_outputs)
        else:
            assert split.targets.dtype == torch.int64
            assert 0 <= int(split.targets.min()) <= int(split.targets.max()) < facts.num_outputs
            assert len(facts.class_names) in (0, facts.num_outputs)
    batch = data.normalise(data.to_unit(data.train.inputs[:4]))
    assert batch.shape == (4, *facts.input_shape)
    assert data.mean.dtype == data.std.dtype == torch.float32
    assert (data.std > 0).all()
    assert re.fullmatch(r"[0-9a-f]{16}", data.fingerprint)


SETTINGS = [
    (name, setting)
    for name in DATASETS
    if name not in ELSEWHERE
    for setting in registry("dataset")[name].setting_parameters
]


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_every_setting_changes_the_data(name: str, setting: str, files: Path) -> None:
    needed, changes = CASES[name]
    assert setting in changes, "say in CASES how this setting changes the data"
    before, after = PARTNERS.get((name, setting), ({}, {setting: changes[setting]}))
    assert print_of(build(name, files, needed | before)) != print_of(build(name, files, needed | after))


@pytest.mark.parametrize("name", FOLDER_DATASETS)
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.dat: there is no such file or folder"):
        apoint.data.load({"name": name, "path": "absent.dat"}, root=tmp_path)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar-10", "cifar-100"])
def test_absent_public_data_say_how_to_get_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apoint.data.loading, "resolve", None)
    for module in (idx, cifar):
        monkeypatch.setattr(module, "find_folder", lambda *_: None)
    with pytest.raises(UsageError) as caught:
        apoint.data.load(name, root=tmp_path)
    assert str(caught.value).startswith(f"dataset {name!r}: its files are in none of {tmp_path}, ")
    assert f"apoint data fetch {name}" in str(caught.value)


def test_heavy_libraries_are_not_imported_with_the_package() -> None:
    import subprocess
    import sys

    heavy = ("sklearn", "scipy", "PIL", "pyarrow")
    code = f"import sys, apoint.data; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
