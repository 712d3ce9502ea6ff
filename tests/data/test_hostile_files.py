"""Files that are no files, and headers that lie: one sentence, and no memory for what is not there."""

from __future__ import annotations

import gzip
import io
import os
import resource
import socket
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from apoint.data import check, from_tensors, load, memory
from apoint.data.cifar import cifar_10, read_records
from apoint.data.core import Facts
from apoint.data.idx import FILES, read_idx
from apoint.data.locate import resolve, resolve_all, spell_out
from apoint.data.streams import Draw, key
from apoint.errors import ApointError, UsageError
from apoint.registry import registry
from tests.data.images import samples, write_folder, write_tar


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket may have 107 bytes only
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def make_link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS = [make_pipe, make_socket, make_link_to_zero, Path.mkdir]
READERS: dict[str, dict[str, Any]] = {
    "csv": {"name": "csv", "path": "x.csv"},
    "tsv": {"name": "csv", "path": "x.tsv"},
    "parquet": {"name": "parquet", "path": "x.parquet"},
    "npz": {"name": "npz", "path": "x.npz"},
    "text": {"name": "text", "path": "x.txt"},
    "tar": {"name": "tar-shards", "path": "x.tar"},
    "image": {"name": "image-folder", "path": "photos", "size": 4},
}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("APOINT_DATA", raising=False)


def sentence_or_data(read: Callable[[], object]) -> str:
    """The sentence with which something is refused, or nothing if it is read; no other error."""
    try:
        read()
    except ApointError as error:
        return str(error)
    return ""


def refused(read: Callable[[], object]) -> str:
    """The one clean sentence with which something is refused."""
    with pytest.raises(ApointError) as caught:
        read()
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert len(sentence) < 1000
    return sentence


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_only_regular_files_are_read(reader: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    spec = dict(READERS[reader])
    place = tmp_path / spec["path"]
    if reader == "image":
        write_folder(place, 6)
        place = place / "cat" / "x.png"
        if make is Path.mkdir:
            pytest.skip("a folder in a class folder is searched for images")
    make(place)
    assert any(word in refused(lambda: load(spec)) for word in ("a regular file is needed", "no .tar file"))


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("reader", ["csv", "parquet", "tar"])
def test_only_regular_files_are_tested_on(reader: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("a,b\n" + "1,2\n2,1\n" * 20)
    write_tar(tmp_path / "train.tar", samples(range(12)))
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1.0] * 40, "b": [0, 1] * 20}), tmp_path / "train.parquet")
    name = READERS[reader]["name"]
    make(tmp_path / f"test.{reader}")
    refused(lambda: load({"name": name, "path": f"train.{reader}", "test_path": f"test.{reader}"}))


@pytest.mark.parametrize("make", KINDS)
def test_files_of_public_sets_must_be_regular(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "x.gz")
    refused(lambda: read_idx(tmp_path / "x.gz", 1))
    refused(lambda: read_records(tmp_path / "x.gz", 10, 1))
    for name in FILES:
        (tmp_path / "mnist").mkdir(exist_ok=True)
        make(tmp_path / "mnist" / name)
    refused(lambda: load("mnist", root=tmp_path))


@pytest.mark.parametrize(
    "name",
    ["a\0b", "a" * 5000, "a/" * 5000, "\ud800", "~nobody-here/x", "{a}" * 5000, "a\0*", "{1..9999999999999}"],
    ids=lambda name: ascii(name[:9]),
)
@pytest.mark.parametrize("reader", [*READERS, "by extension"])
def test_names_that_no_file_can_have(reader: str, name: str) -> None:
    if reader == "by extension":
        refused(lambda: load(f"{name}.csv"))
        return
    refused(lambda: load({**READERS[reader], "path": name}))
    refused(lambda: resolve(name))
    refused(lambda: resolve_all(name))


def test_many_braces_are_spelled_out() -> None:
    assert spell_out("{a}" * 3000) == ["a" * 3000]
    assert spell_out("{a,b}{1..2}") == ["a1", "a2", "b1", "b2"]


@pytest.mark.parametrize("reader", ["csv", "text", "npz", "parquet", "tar"])
def test_a_sparse_file_beyond_the_memory_is_refused(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "total_memory", lambda: 1 << 24)
    with (tmp_path / READERS[reader]["path"]).open("wb") as stream:
        stream.truncate(1 << 33)
    refused(lambda: load(READERS[reader]))


# -- headers that lie ---------------------------------------------------------------------------------------


def npy_header(shape: tuple[int, ...], kind: str = "<f8", version: int = 1) -> bytes:
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text


def write_npz(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((500_000_000_000,), "<f8"),
        ((2**62,), "<f8"),
        ((2**40, 2**40), "u1"),
        ((10**30,), "u1"),
        ((-5,), "u1"),
        ((3, 3), "V1000000000"),
        ((10,), "U1000000000"),
        ((1,) * 40, "u1"),
    ],
)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_npz_header_that_lies(shape: tuple[int, ...], kind: str, compression: int, tmp_path: Path) -> None:
    content = {"x.npy": npy_header(shape, kind) + bytes(100), "y.npy": npy(np.arange(3))}
    write_npz(tmp_path / "x.npz", content, compression)
    assert refused(lambda: load("x.npz")).startswith("x.npz: ")


def test_an_npz_whose_directory_lies_too(tmp_path: Path) -> None:
    """The size in the zip's directory agrees with the header, and the bytes are not there."""
    shape, total = (500_000_000,), 4_000_000_000
    header = npy_header(shape)
    path = write_npz(tmp_path / "x.npz", {"x.npy": header + bytes(100), "y.npy": npy(np.arange(3))})
    honest = struct.pack("<I", len(header) + 100)
    path.write_bytes(path.read_bytes().replace(honest, struct.pack("<I", total + len(header))))
    assert refused(lambda: load("x.npz")).startswith("x.npz: ")


def test_an_npz_that_unpacks_beyond_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((4_000_000, 2)), y=np.zeros(4_000_000, np.int64))
    monkeypatch.setattr(memory, "total_memory", lambda: 1 << 24)
    assert "of memory" in refused(lambda: load("x.npz"))


@pytest.mark.parametrize("name", ["x\x1b[2J.npy", "a\u202eb.npy", "x.txt", "../x.npy", "a\nb.npy"])
def test_names_in_an_npz_are_only_names(name: str, tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz", {name: npy(np.arange(3))})
    refused(lambda: load("x.npz"))


def test_random_damage_of_an_npz_gives_a_sentence_or_data(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(40.0).reshape(20, 2), y=np.arange(20) % 2)
    _damage(tmp_path / "a.npz", tmp_path / "x.npz", lambda: load("x.npz"))


def _damage(whole: Path, place: Path, read: Callable[[], object], count: int = 400) -> None:
    """Change bytes and cut ends at random: each reading gives data or one sentence."""
    content, rng = whole.read_bytes(), np.random.default_rng(0)
    for turn in range(count):
        changed = bytearray(content)
        for place_of in rng.integers(0, len(changed), 1 + turn % 3):
            changed[place_of] = rng.integers(0, 256)
        place.write_bytes(changed[: rng.integers(len(changed)) if turn % 4 == 0 else len(changed)])
        assert sentence_or_data(read).isprintable()


@pytest.mark.parametrize("label", [10**9, 2**31, 2**62, 10**6])
def test_a_label_that_would_make_a_billion_classes(label: int, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((20, 2)), y=np.array([0, 1, label, 2] * 5))
    sentence = refused(lambda: load("x.npz"))
    assert str(label) in sentence
    assert "classes" in sentence
    refused(lambda: check("x.npz"))
    refused(lambda: from_tensors(torch.zeros(20, 2), torch.tensor([0, 1, label, 2] * 5)))
    refused(lambda: from_tensors(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0]), num_classes=label + 1))
    with pytest.raises(UsageError, match="classes"):
        Facts("vector", "classification", (2,), label + 1)


def test_a_word_that_would_make_a_billion_words() -> None:
    tokens = torch.tensor([[0, 1, 10**9]] * 20)
    assert "10" in refused(lambda: from_tensors(tokens, tokens))


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    "shape", [(2**32 - 1, 2**32 - 1, 2**32 - 1), (2**31, 28, 28), (4, 2**16, 2**16), (0, 0, 0)]
)
def test_an_idx_header_that_lies(shape: tuple[int, int, int], ending: str, tmp_path: Path) -> None:
    content = bytes([0, 0, 8, 3]) + struct.pack(">3I", *shape) + bytes(100)
    path = tmp_path / f"x{ending}"
    path.write_bytes(gzip.compress(content) if ending else content)
    assert "the header promises" in refused(lambda: read_idx(path, 3))


def test_an_idx_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """A few kilobytes that unpack to much more than the header says."""
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", 10) + bytes(50_000_000)))
    assert "the header promises" in _within(300 << 20, lambda: refused(lambda: read_idx(path, 1)))


def _within(more_bytes: int, act: Callable[[], str]) -> str:
    """Act with at most so much more memory than this process has now."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + more_bytes, before[1]))
    try:
        return act()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_cifar_file_of_another_size_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x.bin").open("wb") as stream:
        stream.truncate(1 << 40)
    sentence = _within(300 << 20, lambda: refused(lambda: read_records(tmp_path / "x.bin", 10000, 1)))
    assert f"the file has {1 << 40}" in sentence


def test_random_damage_of_a_parquet_file_gives_a_sentence_or_data(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"a": [float(row) for row in range(40)], "b": ["x", "y"] * 20})
    pq.write_table(table, tmp_path / "a.parquet")
    _damage(tmp_path / "a.parquet", tmp_path / "x.parquet", lambda: load("x.parquet"))


def test_a_parquet_file_that_stands_for_more_than_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = 2_000_000
    pq.write_table(pa.table({"a": pa.array(np.zeros(rows)), "b": pa.array(np.zeros(rows))}), "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 1 << 20
    monkeypatch.setattr(memory, "total_memory", lambda: 1 << 24)
    assert "of memory" in refused(lambda: load("x.parquet"))


def test_parquet_columns_of_any_type_give_a_sentence_or_data(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "list": [[1], [2]], "struct": [{"a": 1}, {"a": 2}], "bytes": [b"\xff", b"\x00"], "none": [None, None],
        "time": pa.array([2**61, 1], pa.timestamp("ms")), "date": pa.array([2**30, 1], pa.date32()),
        "duration": pa.array([2**62, 1], pa.duration("s")), "text": ["a\x1b[2J", "b"],
        "whole": pa.array([2**64 - 1, 0], pa.uint64()),
    }  # fmt: skip
    for name, values in columns.items():
        pq.write_table(pa.table({name: values, "y": [0, 1]}), tmp_path / "x.parquet")
        assert sentence_or_data(lambda: load("x.parquet", test_share=0.5)).isprintable(), name


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n" + b"9" * 5000 + b",1\n2,0\n", b"a,b\n1e999,1\n2,0\n", b"a,b\n\0,1\n2,0\n", b"\xff\xfe",
        b"\0" * 5000, b"a,b\n" + b"x" * 200_000 + b",1\n", b'a,b\n"' + b"x" * 200_000, b"a" * 200_000,
        b"," * 50_000, b"\n" * 9999, b"a,b\n1,\x1b[2J\n2,3\n", b"a\x1b[2J,b\n1,q\n", b"a,a\n1,2\n",
        b"\xef\xbb\xbf", b"a,b\n1,2,3\n", b"a,b\r1,2\r", b"a,b\n1,nan\n1,2\n", b"a,b\n1,inf\n2,3\n",
        b"a,b\n1,1e400\n2,3\n", b"a,b\n1,-0\n1,0\n",
    ],
    ids=range(20),
)  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"header": False}, {"task": "classification"}, {"target": 10**5}])
def test_any_csv_gives_a_sentence_or_data(content: bytes, options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    spec = {"name": "csv", "path": "x.csv", **options}
    sentence = sentence_or_data(lambda: load(spec, test_share=0.5))
    assert sentence.isprintable()
    assert len(sentence) < 2000


def test_damaged_names_of_classes_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from apoint.data.cifar import _names

    for content in (b"\xff" * 50, b"a " * 1_000_000, b"a\x1b b"):
        (tmp_path / "names.txt").write_bytes(content)
        assert _names(tmp_path / "names.txt", 2) == ("0", "1")
    (tmp_path / "names.txt").write_bytes(b"cat\ndog\n")
    assert _names(tmp_path / "names.txt", 2) == ("cat", "dog")
    assert cifar_10.__name__ == "cifar_10"


# -- folders that are no folders of images ------------------------------------------------------------------

_LOAD = """
import sys
from apoint.data import load
from apoint.errors import ApointError
try:
    load({"name": "image-folder", "path": sys.argv[1], "size": 8})
except ApointError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("folder", ["/proc", "/proc/self", "/sys/class", "/dev", "/proc/self/fd"])
def test_a_system_folder_is_refused(folder: str) -> None:
    if not Path(folder).is_dir():
        pytest.skip("not on this system")
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, folder], capture_output=True, text=True, timeout=120, check=True
    )
    assert "Error" in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_a_folder_that_links_to_itself_ends(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "photos", 12)
    (folder / "cat" / "loop").symlink_to(folder / "cat")
    assert len(load("photos").train) + len(load("photos").test) == 12


def test_a_link_to_an_image_is_an_image_and_one_to_nothing_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "photos", 12)
    (folder / "cat" / "link.jpg").symlink_to(folder / "dog" / "001.jpg")
    assert len(load("photos").train) + len(load("photos").test) == 13
    (folder / "cat" / "gone.jpg").symlink_to(folder / "nothing.jpg")
    assert "gone.jpg cannot be opened: No such file" in refused(lambda: load("photos"))


def test_an_unreadable_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "photos", 12)

    def forbid(place: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(place))

    monkeypatch.setattr(os, "scandir", forbid)
    assert "Permission denied" in refused(lambda: load(str(folder)))


def test_names_of_folders_reach_no_terminal_with_control_characters(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a\x1b[2Jb", 12)
    (folder / "cat" / "other.doc").touch()
    notes = load({"name": "image-folder", "path": str(folder)}).notes
    assert any("files without an image's extension were left out" in note for note in notes)
    assert all(note.isprintable() for note in notes)


@pytest.mark.parametrize("size", [10**8, 2**62])
@pytest.mark.parametrize("reader", ["image", "tar"])
def test_a_size_beyond_memory_is_refused(reader: str, size: int, tmp_path: Path) -> None:
    write_folder(tmp_path / "photos", 6)
    write_tar(tmp_path / "x.tar", samples(range(12)))
    assert "size must be at most" in refused(lambda: load({**READERS[reader], "size": size}))


# -- settings beyond memory ---------------------------------------------------------------------------------

COUNTS = [
    (kind, name, setting)
    for kind in ("dataset", "augmentation", "deficit")
    for name, entry in registry(kind).items()
    for setting, (annotation, _, _) in entry.setting_parameters.items()
    if "int" in str(annotation) or "float" in str(annotation)
]
IMAGES, LABELS = torch.rand(4, 3, 12, 12), torch.arange(4)


@pytest.mark.parametrize("value", [2**62, 1e300, 10**8])
@pytest.mark.parametrize(("kind", "name", "setting"), COUNTS)
def test_any_setting_gives_a_sentence_or_fits(
    kind: str, name: str, setting: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with a gigabyte, and in a process that may take a few more."""
    monkeypatch.setattr(memory, "total_memory", lambda: 1 << 30)
    draw = Draw(key(0, "augmentation", 0), torch.arange(4))

    def use() -> None:
        if kind == "dataset":
            load({"name": name, setting: value})
            return
        made = registry(kind).build({"name": name, setting: value})
        made(IMAGES, LABELS, draw, *((10,) if kind == "augmentation" else (1.0, 10)))

    assert _within(3 << 30, lambda: sentence_or_data(use)).isprintable()
