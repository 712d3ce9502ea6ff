"""Tar shards: read without unpacking, in any order, the same as a folder; and a sentence for each damage."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import apoint.data
from apoint.data import locate, shard_index, shards, tars
from apoint.data.loading import DatasetCache, use_dataset_cache
from apoint.data.shard_index import read_shard
from apoint.data.stored import StoredImages
from apoint.data.tars import TarReader
from apoint.engine import checkpoint, train
from apoint.errors import UsageError
from tests.data.images import encoded, picture, recipe, samples, write_folder, write_tar


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "apoint" / "shards"


@pytest.fixture
def shard_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    for number in range(3):
        write_tar(folder / f"set-train-{number:06}.tar", samples(range(16 * number, 16 * number + 16)))
    write_tar(folder / "set-val-000000.tar", samples(range(48, 60)))
    return folder


def load(path: Path | str, memory: str = "lazy", **options: Any) -> apoint.data.Data:
    return apoint.data.load({"name": "tar-shards", "path": str(path), "memory": memory, "size": 8, **options})


def refusal(path: Path | str, **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        load(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def members_of(path: Path) -> list[tars.Member]:
    with TarReader(path) as tar:
        return list(tar.members())


# ------------------------------------------------------------------------------------------- what is read


def test_shards_give_the_images_of_a_folder(shard_folder: Path, tmp_path: Path) -> None:
    photos = write_folder(tmp_path / "photos")
    data, whole = load(shard_folder), load(shard_folder, "all")
    folder = apoint.data.folders.image_folder(path=str(photos), size=8)
    in_order = sorted(range(48), key=lambda row: (row % 3, row))  # a folder is read class by class
    assert data.facts.input_shape == (3, 8, 8)
    assert (data.facts.num_outputs, data.facts.class_names) == (3, ())
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 48, "test": 12}
    assert isinstance(data.train.inputs, StoredImages)
    assert isinstance(whole.train.inputs, torch.Tensor)
    for one in (data, whole):
        assert torch.equal(one.train.inputs[in_order], folder.train.inputs)
        assert torch.equal(one.train.targets[in_order], folder.train.targets)
        assert torch.equal(one.mean, whole.mean)
    assert torch.equal(data.test.inputs, whole.test.inputs)


def test_training_from_shards_is_training_from_memory(shard_folder: Path, tmp_path: Path) -> None:
    found = []
    for memory in ("all", "lazy"):
        spec = {"name": "tar-shards", "path": str(shard_folder), "size": 8, "memory": memory}
        run = train(recipe(spec), seed=2, runs_root=tmp_path / memory)
        saved = checkpoint.newest(run.folder, lambda sentence: None)
        assert saved is not None
        found.append(saved.tensors)
    for part, values in found[0].items():
        assert values.keys() == found[1][part].keys()
        assert all(torch.equal(value, found[1][part][name]) for name, value in values.items())


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_tar_is_read_as_tarfile_reads_it(form: int, tmp_path: Path) -> None:
    names = ["a.jpg", "deep/" * 30 + "b.jpg", "d" * 90 + "/" + "n" * 90 + ".jpg"]
    if form != tarfile.USTAR_FORMAT:
        names += ["long-" * 60 + ".jpg", "größe/日本.jpg"]
    generator = random.Random(form)
    content = [(name, generator.randbytes(generator.choice((0, 1, 511, 512, 513, 9000)))) for name in names]
    path = write_tar(tmp_path / "a.tar", content, format=form)
    with TarReader(path) as ours, tarfile.open(path) as theirs:
        found = [(member.name, member.offset, member.size, member.is_plain) for member in ours.members()]
        assert found == [(one.name, one.offset_data, one.size, True) for one in theirs]
        for name, offset, size, _ in found:
            assert (name, ours.read(offset, size)) in content


def test_large_sizes_and_pax_sizes_are_understood() -> None:
    assert tars._number(b"00000001750\0") == 1000
    assert tars._number(b" 1750 \0\0\0\0\0\0") == 1000
    assert tars._number(b"\x80" + (2**33 + 5).to_bytes(11, "big")) == 2**33 + 5
    assert tars._number(b"00000001x50\0") is None
    assert tars._pax(b"20 size=12345678901\n12 path=a/b\n") == {"size": "12345678901", "path": "a/b"}
    assert tars._pax(b"99 path=a\n") == {}
    assert tars._pax(b"22 GNU.sparse.major=1\n") == {"GNU.sparse": "yes"}


@pytest.mark.parametrize(
    ("label", "content"),
    [
        ("cls", [b"0", b" 2\n"]),
        ("txt", [b"0", b"2"]),
        ("json", [b'{"label": 0, "cls": 1}', b'{"size": [1], "class": "2"}']),
        ("JSON", [b"0", b'{"target": 2}']),
    ],
)
def test_classes_come_from_each_kind_of_label(label: str, content: list[bytes], tmp_path: Path) -> None:
    image = encoded(picture(0))
    members = [
        (f"{row}.{end}", body) for row in (0, 1) for end, body in (("jpg", image), (label, content[row]))
    ]
    assert read_shard(write_tar(tmp_path / "a.tar", members)).labels == [0, 2]


def test_the_first_kind_of_label_counts_and_other_members_are_told(tmp_path: Path) -> None:
    members = [
        ("README.md", b"of no sample"),
        ("notes.txt", b"nor this"),
        ("x/.hidden", b"nor this"),
        ("x/1.cls", b"cat"),
        ("x/1.jpg", encoded(picture(0))),
        ("x/1.txt", b"a caption"),
        ("x/1.json", b'{"label": "dog"}'),
        ("x/1.seg.png", b"a mask, whose extension is seg.png"),
        ("y/1.PNG", encoded(picture(1), "PNG")),
        ("y/1.cls", b"dog"),
    ]
    path = write_tar(tmp_path / "a.tar", members)
    shard = read_shard(path)
    assert (shard.names, shard.labels, shard.others) == (["x/1.jpg", "y/1.PNG"], ["cat", "dog"], 4)
    source = shards.tar_shards(path=str(path), size=4)
    assert source.facts.class_names == ("cat", "dog")
    assert source.notes == [f"{tmp_path}: train: 4 members that belong to no image were left out"]


def test_parts_by_folder_by_pattern_and_by_setting(shard_folder: Path, tmp_path: Path) -> None:
    for number in range(3):
        target = tmp_path / "parts" / "train" / f"{number}.tar"
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(shard_folder / f"set-train-{number:06}.tar", target)
    (tmp_path / "parts" / "val").mkdir()
    os.link(shard_folder / "set-val-000000.tar", tmp_path / "parts" / "val" / "0.tar")
    by_name = load(shard_folder)
    brace, star = f"{shard_folder}/set-train-{{000000..000002}}.tar", f"{shard_folder}/*train*.tar"
    for data in (
        load(tmp_path / "parts"),
        load(brace, test_path=f"{shard_folder}/set-val-*.tar"),
        load(star, test_path=str(shard_folder / "set-val-000000.tar")),
    ):
        assert {name: len(split) for name, split in data.splits.items()} == {"train": 48, "test": 12}
        assert torch.equal(data.train.targets, by_name.train.targets)
        assert torch.equal(data.train.inputs, by_name.train.inputs)
    assert len(apoint.data.load(brace, size=8).train) == 38, "the extension alone says what it is"
    write_tar(shard_folder / "set-test-000000.tar", samples(range(60, 66)))
    assert {name: len(split) for name, split in load(shard_folder).splits.items()} == {
        "train": 48,
        "validation": 12,
        "test": 6,
    }


def test_paths_are_looked_for_under_the_root(shard_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = "set/set-train-{000000..000001}.tar"
    assert len(locate.resolve_all(pattern, shard_folder.parent)) == 2
    monkeypatch.setenv("APOINT_DATA", str(shard_folder.parent))
    assert len(locate.resolve_all(pattern)) == 2
    monkeypatch.chdir(shard_folder)
    assert locate.resolve_all("set-train-*.tar") == [Path(f"set-train-00000{n}.tar") for n in range(3)]
    Path("odd[1].tar").touch()
    assert locate.resolve_all("odd[1].tar") == [Path("odd[1].tar")]


def test_braces_are_spelled_out() -> None:
    assert locate.spell_out("a-{08..11}.tar") == ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]
    assert locate.spell_out("{a,b}{1..2}") == ["a1", "a2", "b1", "b2"]
    assert locate.spell_out("plain") == ["plain"]
    for wrong in ("{5..3}", "{0..9999999}", "{0..999}{0..999}{0..9}"):
        with pytest.raises(UsageError, match="correct the path"):
            locate.spell_out(wrong)


# ------------------------------------------------------------------------------------------------ the index


def test_headers_are_read_once(shard_folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    monkeypatch.setattr(shard_index, "read_shard", lambda path: read.append(path) or read_shard(path))
    first = load(shard_folder)
    assert (len(read), len(list(cache.iterdir()))) == (4, 4)
    second = load(shard_folder)
    assert len(read) == 4
    assert torch.equal(first.train.inputs, second.train.inputs)
    assert first.fingerprint == second.fingerprint
    path = shard_folder / "set-train-000001.tar"
    write_tar(path, samples(range(16, 31)))
    assert len(load(shard_folder).train) == 47
    assert read[4:] == [path], "only the shard that has changed is read again"
    os.utime(path, (1, 1))
    load(shard_folder)
    assert read[5:] == [path]
    for file in list(cache.iterdir()):
        file.write_text(file.read_text()[:-20])
    assert len(load(shard_folder).train) == 47, "a cut-off cache is not believed"
    assert len(read) == 10


def test_a_cache_that_cannot_be_written_only_costs_time(
    shard_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(load(shard_folder).train) == 48


def test_nothing_is_written_beside_the_shards(shard_folder: Path) -> None:
    before = sorted(shard_folder.parent.rglob("set/*"))
    load(shard_folder, "all")
    assert sorted(shard_folder.parent.rglob("set/*")) == before


def test_the_fingerprint_follows_the_index_and_not_the_time(shard_folder: Path) -> None:
    first = load(shard_folder).fingerprint
    for path in shard_folder.iterdir():
        os.utime(path, (1, 1))
    assert load(shard_folder).fingerprint == first
    shard_folder.rename(shard_folder.with_name("elsewhere"))
    assert load(shard_folder.with_name("elsewhere")).fingerprint == first
    write_tar(shard_folder.with_name("elsewhere") / "set-train-000002.tar", samples(range(33, 49)))
    assert load(shard_folder.with_name("elsewhere")).fingerprint != first


def test_kept_data_is_read_again_when_a_shard_changes(shard_folder: Path) -> None:
    pattern = f"{shard_folder}/set-train-*.tar"
    with use_dataset_cache(DatasetCache()):
        first = load(pattern)
        assert load(pattern).train.inputs is first.train.inputs
        write_tar(shard_folder / "set-train-000003.tar", samples(range(60, 70)))
        assert len(load(pattern).train) + len(load(pattern).test) == 58


# ------------------------------------------------------------------------------------------------ bad shards


def test_a_truncated_shard_is_named_wherever_it_ends(shard_folder: Path) -> None:
    path = shard_folder / "set-train-000001.tar"
    content = path.read_bytes()
    members = members_of(path)
    for end in range(0, members[-1].offset + members[-1].size, 500):
        path.write_bytes(content[:end])
        sentence = refusal(shard_folder)
        assert sentence.startswith(f"{path}: ")
        assert sentence.endswith("the shard is truncated, so fetch it again")
    path.write_bytes(content[: members[1].offset - 512])  # tarfile takes this for a whole archive
    assert refusal(shard_folder) == (
        f"{path}: the file ends at byte {members[1].offset - 512} without a tar's end mark; the shard is "
        "truncated, so fetch it again"
    )
    path.write_bytes(content[: members[2].offset + 100])
    assert refusal(shard_folder) == (
        f"{path}: member 017.jpg ends at byte {members[2].offset + members[2].size}, the file at "
        f"{members[2].offset + 100}; the shard is truncated, so fetch it again"
    )


def test_damaged_headers_joined_and_compressed_shards_are_named(shard_folder: Path) -> None:
    path = shard_folder / "set-train-000001.tar"
    content = path.read_bytes()
    members = members_of(path)
    place = members[4].offset - 512
    path.write_bytes(content[: place + 3] + b"x" + content[place + 4 :])
    assert refusal(shard_folder) == f"{path}: the header at byte {place} is damaged; fetch the shard again"
    path.write_bytes(content + content)
    assert "there is more after the tar's end mark, from byte" in refusal(shard_folder)
    path.write_bytes(content)
    os.truncate(path, 8 << 30)  # a hole, which takes no room on the disk and minutes to read
    assert "the tar's end mark stands at byte" in refusal(shard_folder)
    path.unlink()
    path.write_bytes(gzip.compress(content))
    assert refusal(shard_folder) == (
        f"{path}: the shard is compressed with gzip, and its members cannot be read in any order; decompress "
        "it to a plain tar"
    )
    path.write_bytes(b"<html>not found</html>" * 100)
    assert refusal(shard_folder) == f"{path}: this is not a tar file; fetch the shard again"


def test_random_damage_gives_a_sentence_or_the_same_index(shard_folder: Path) -> None:
    """Whatever a flipped byte does to a header, nothing but a `UsageError` comes of it."""
    path = shard_folder / "set-train-000001.tar"
    content = bytearray(path.read_bytes())
    headers = [member.offset - 512 for member in members_of(path)]
    draw = random.Random(0)
    told = 0
    for _ in range(300):
        place = draw.choice(headers) + draw.randrange(512)
        damaged = bytearray(content)
        damaged[place] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            read_shard(path)
        except UsageError as error:
            told += str(error).startswith(f"{path}: ")
    assert told == 300, "a header's checksum finds every flipped bit"


@pytest.mark.parametrize(
    ("member", "content", "sentence"),
    [
        ("0.cls", None, "member 0.jpg has no class beside it; add 0.cls with the number or the name of its"),
        ("0.jpg", None, "member 0.cls has no image beside it (.png, .jpg, "),
        ("0.cls", b"", "member 0.cls does not tell a class: it says ''; write a name, or a number from 0 to"),
        ("0.cls", b"-3", "member 0.cls does not tell a class: it says -3; write"),
        ("0.cls", b"1000000", "member 0.cls does not tell a class: it says 1000000; write"),
        ("0.cls", b"9" * 400, "member 0.cls does not tell a class: it says '999"),
        ("0.cls", b"\xff\xfe", "member 0.cls does not tell a class: it is no text; write"),
        ("0.cls", b"1" * 5000, "member 0.cls does not tell a class: it has 5000 bytes; write"),
        ("0.cls", b"a\x1b[2Jb", "member 0.cls does not tell a class: it says 'a\\x1b[2Jb'; write"),
        ("0.json", b"{", None),
        ("0.png", b"", "members 0.jpg and 0.png are both the image of one sample; a sample's name ends at"),
    ],
)
def test_what_is_wrong_with_a_sample_is_named(
    member: str, content: bytes | None, sentence: str | None, tmp_path: Path
) -> None:
    members = {"0.jpg": encoded(picture(0)), "0.cls": b"0", "1.jpg": encoded(picture(1)), "1.cls": b"1"}
    if content is None:
        del members[member]
    else:
        members[member] = content
    path = write_tar(tmp_path / "train.tar", members.items())
    if sentence is None:  # it is not asked, since there is a .cls
        assert read_shard(path).labels == [0, 1]
    else:
        assert refusal(path).startswith(f"{path}: {sentence}")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"{", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b'{"width": 3}', "it says None"),
        (b'{"label": true}', "it says True"),
        (b'{"label": 1.0}', "it says 1.0"),
        (b'{"label": [1]}', "it says [1]"),
    ],
)
def test_json_without_a_class_is_named(content: bytes, what: str, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.jpg", encoded(picture(0))), ("0.json", content)])
    assert refusal(path).startswith(f"{path}: member 0.json does not tell a class: {what}; write a name")


def test_a_member_that_is_no_image_is_named(shard_folder: Path, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "odd.tar", [("x.jpg", b"not an image"), ("x.cls", b"2")])
    for memory in ("all", "lazy"):
        assert refusal(f"{{{shard_folder}/set-train-000000.tar,{path}}}", memory=memory) == (
            f"{path}: member x.jpg: the image cannot be read (cannot identify image file); replace or remove "
            "the member"
        )


def test_a_bomb_is_named(shard_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 150)
    assert (
        "member 000.jpg: the image cannot be read (Image size (154 pixels) exceeds limit of 150"
        in refusal(shard_folder)
    )


def test_classes_that_disagree_between_parts_are_named(shard_folder: Path, tmp_path: Path) -> None:
    path = shard_folder / "set-val-000000.tar"
    write_tar(path, [*samples(range(48, 60)), ("z.jpg", encoded(picture(0))), ("z.cls", b"3")])
    assert refusal(shard_folder) == (
        f"{path}: member z.jpg: the class 3 never occurs in the training shards, which have 3 classes from 0 "
        "to 2; number all parts alike"
    )
    write_tar(path, [("z.jpg", encoded(picture(0))), ("z.cls", b"cat")])
    assert refusal(shard_folder) == (
        f"{path}: member z.jpg: its class is written as 'cat', that of "
        f"{shard_folder}/set-train-000000.tar: member 000.jpg as 0; write all as numbers or all as names"
    )


def test_hostile_names_are_only_names(shard_folder: Path, tmp_path: Path) -> None:
    names = ["../../escape", "/etc/passwd", "a/../../b", "x\x1b[31m", "nul", "c:\\windows"]
    members = [
        (f"{name}.{end}", body)
        for row, name in enumerate(names)
        for end, body in (("jpg", encoded(picture(row))), ("cls", str(row % 2).encode()))
    ]
    before = sorted(tmp_path.rglob("*"))
    path = write_tar(tmp_path / "hostile.tar", members)
    assert len(shards.tar_shards(path=str(path), size=4).train) == len(names)
    after = {place for place in tmp_path.rglob("*") if "cache" not in place.relative_to(tmp_path).parts}
    assert after == {*before, path}
    path = write_tar(tmp_path / "hostile.tar", [("x\x1b[31m.jpg", b"no image"), ("x\x1b[31m.cls", b"0")])
    assert "\x1b" not in refusal(path)
    assert r"member x\x1b[31m.jpg: the image cannot be read" in refusal(path)
    assert tars.shown("a\udcffb") == r"a\udcffb"
    assert len(tars.shown("x" * 10_000)) == 201


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_are_refused(kind: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("0.jpg")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    assert refusal(path) == (
        f"{path}: member 0.jpg is a link, a device or has holes, not a plain file; write the shard with "
        "plain files"
    )


def test_a_size_beyond_the_file_does_not_fill_the_memory(tmp_path: Path) -> None:
    for name, size in (("0.jpg", 2**60), ("0.cls", 2**40)):
        member = tarfile.TarInfo(name)
        member.size = size
        path = tmp_path / "a.tar"
        path.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
        assert "the shard is truncated" in refusal(path)
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 2**21
    path.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(2**21 + 1024))
    assert "has 2097152 bytes, which no name needs; fetch the shard again" in refusal(path)


def test_a_shard_that_changes_while_it_is_used_is_named(shard_folder: Path) -> None:
    data = load(shard_folder)
    path = shard_folder / "set-train-000000.tar"
    write_tar(path, samples(range(100, 116)))
    with pytest.raises(
        UsageError, match=r"000\.jpg: the shard has changed since its headers were read; start"
    ):
        data.train.inputs[:4].to("cpu")
    path.unlink()
    with pytest.raises(UsageError, match=r"\.tar cannot be opened: No such file"):
        data.train.inputs[:4].to("cpu")


def test_images_of_several_sizes_are_named(tmp_path: Path) -> None:
    members = [("0.jpg", encoded(picture(0))), ("0.cls", b"0"), ("1.cls", b"1")]
    path = write_tar(tmp_path / "a.tar", [*members, ("1.jpg", encoded(picture(1, 9, 9)))])
    with pytest.raises(UsageError) as caught:
        shards.tar_shards(path=str(path))
    assert str(caught.value) == (
        f"{path}: member 1.jpg: the image is 9 × 9 pixels, the first is 14 × 11; set size to bring all to "
        "one size"
    )


def test_shards_that_are_not_there_or_tell_no_part_are_named(shard_folder: Path, tmp_path: Path) -> None:
    (shard_folder / "set-train-000001.tar").unlink()
    pattern = f"{shard_folder}/set-train-{{000000..000002}}.tar"
    assert refusal(pattern) == (
        f"{shard_folder}/set-train-000001.tar: there is no such file, and {pattern!r} asks for it (1 of 3 "
        "are missing); fetch it or correct the path"
    )
    assert "none-*.tar: there is no such file or folder" in refusal(f"{shard_folder}/none-*.tar")
    (shard_folder / "other.tar").touch()
    assert refusal(shard_folder).startswith(f"{shard_folder}/other.tar: the name tells no part, and others")
    for path in shard_folder.glob("*-train-*"):
        path.unlink()
    (shard_folder / "other.tar").unlink()
    assert refusal(shard_folder) == (
        f"{shard_folder}: no shard is for training; name the shards to learn from train-….tar"
    )
    (tmp_path / "none").mkdir()
    assert refusal(tmp_path / "none").startswith(f"{tmp_path}/none: there is no .tar file in it; name the")
    empty = write_tar(tmp_path / "empty.tar", [])
    assert refusal(empty).startswith(f"{empty}: there is no sample in 1 shards; they need image and class")
    for part in ("train", "val"):
        (tmp_path / "odd" / part).mkdir(parents=True)
    assert refusal(f"{tmp_path}/odd/*") == (
        f"{tmp_path}/odd/train: expected a tar file, this is a folder; name its shards: "
        f"{tmp_path}/odd/train/*.tar"
    )


def test_many_shards_need_few_open_files(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    for number in range(60):
        write_tar(tmp_path / f"t-{number:02}.tar", samples([number]))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 30, limits[1]))
    try:
        data = load(f"{tmp_path}/t-{{00..59}}.tar")
        assert len(data.train.inputs.to("cpu")) == 48
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_images_in_a_member_may_be_of_any_format(tmp_path: Path) -> None:
    members = []
    for row, (kind, end) in enumerate((("PNG", "png"), ("BMP", "bmp"), ("WEBP", "webp"), ("TIFF", "tif"))):
        buffer = io.BytesIO()
        picture(row).save(buffer, kind, **({"lossless": True} if kind == "WEBP" else {}))
        members += [(f"{row}.{end}", buffer.getvalue()), (f"{row}.cls", str(row % 2).encode())]
    found = shards.tar_shards(path=str(write_tar(tmp_path / "a.tar", members))).train.inputs
    for row in range(4):
        expected = torch.frombuffer(bytearray(picture(row).tobytes()), dtype=torch.uint8)
        assert torch.equal(found[row], expected.view(11, 14, 3).permute(2, 0, 1))
