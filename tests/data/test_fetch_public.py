"""The fetcher against a server of our own on 127.0.0.1 that misbehaves on request."""

from __future__ import annotations

import hashlib
import http.client
import http.server
import io
import struct
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import apoint.data
from apoint.data import fetching, published
from apoint.data.fetching import FetchError, download, extract
from apoint.data.published import PUBLIC, Remote
from apoint.errors import ApointError, StorageError, UsageError

CONTENT = bytes(range(256)) * 20000  # 5 MB: several chunks
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
DEBIAN = Path("/usr/share/datasets/fashion-mnist")


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `CONTENT`, and remembers which ranges it was asked for."""

    server: Server

    def do_GET(self) -> None:
        ours = self.server
        ours.asked.append(self.headers.get("Range"))
        if ours.silences:
            ours.silences -= 1
            self.close_connection = True  # hang up without a word
            return
        content = ours.content.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = self.start_of_range(len(content))
        if start is None:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start + ours.shift}-{len(content) - 1}/{len(content)}")
        if ours.states_length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        if ours.cuts:
            body = body[: ours.cuts.pop(0)]
            self.close_connection = True
        self.wfile.write(body)

    def start_of_range(self, length: int) -> int | None:
        stated = self.headers.get("Range")
        if not stated or not self.server.has_ranges:
            return 0
        start = int(stated.removeprefix("bytes=").removesuffix("-"))
        return start if start < length else None

    def log_message(self, *_: Any) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """A server whose manners can be set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = {"/file": CONTENT}
        self.asked: list[str | None] = []
        self.cuts: list[int] = []
        self.has_ranges = True
        self.states_length = True
        self.shift = 0
        self.silences = 0

    def url(self, path: str = "/file") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def handle_error(self, *_: Any) -> None:
        pass  # the client may hang up


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fetching, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(fetching, "TIMEOUT_SECONDS", 5.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    ours = Server()
    thread = threading.Thread(target=ours.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield ours
    ours.shutdown()
    ours.server_close()
    thread.join()


def get(server: Server, target: Path, *, size: int = len(CONTENT), digest: str = SHA256, **more: Any) -> None:
    download((server.url(),), target, size=size, digest=digest, **more)


def test_a_file_is_fetched_and_progress_is_told(server: Server, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    get(server, tmp_path / "deep" / "file", progress=lambda *news: told.append(news))
    assert (tmp_path / "deep" / "file").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]
    assert told[-1] == ("file", len(CONTENT), len(CONTENT))
    assert [so_far for _, so_far, _ in told] == sorted({so_far for _, so_far, _ in told})
    assert len(told) > 2


def test_a_cut_connection_is_taken_up_where_it_ended(server: Server, tmp_path: Path) -> None:
    server.cuts = [1_500_000, 700_000]
    get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=1500000-", "bytes=2200000-"]


def test_a_server_that_hangs_up_or_breaks_off_is_asked_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.silences = 2
    get(server, tmp_path / "file")
    assert len(server.asked) == 3
    honest = http.client.HTTPResponse.read1
    resets = [ConnectionResetError("reset"), http.client.IncompleteRead(b"")]

    def breaking(answer: http.client.HTTPResponse, amount: int = -1) -> bytes:
        if resets:
            raise resets.pop()
        return honest(answer, amount)

    monkeypatch.setattr(http.client.HTTPResponse, "read1", breaking)
    get(server, tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == CONTENT
    assert len(server.asked) == 6


def test_too_many_cuts_leave_a_part_that_the_next_time_continues(server: Server, tmp_path: Path) -> None:
    server.cuts = [1_000_000] * 4
    with pytest.raises(
        FetchError, match="the connection was cut 4 times, 4000000 of 5120000 bytes are here and will"
    ):
        get(server, tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file.part"]
    get(server, tmp_path / "file")
    assert server.asked[-1] == "bytes=4000000-"
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_server_without_ranges_is_asked_for_the_whole(server: Server, tmp_path: Path) -> None:
    server.has_ranges = False
    server.cuts = [1_500_000]
    get(server, tmp_path / "file")
    assert server.asked == [None, "bytes=1500000-"]
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_without_lengths_works_too(server: Server, tmp_path: Path) -> None:
    server.states_length = False
    server.cuts = [1_500_000]
    get(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_hash_is_refused_and_removed(server: Server, tmp_path: Path) -> None:
    wrong = "sha256:" + "0" * 64
    with pytest.raises(FetchError) as caught:
        get(server, tmp_path / "file", digest=wrong)
    assert f"the SHA-256 is {SHA256.removeprefix('sha256:')}, published is {'0' * 64}" in str(caught.value)
    assert "what came was removed" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_md5_is_checked_where_only_that_is_published(server: Server, tmp_path: Path) -> None:
    get(server, tmp_path / "file", digest="md5:" + hashlib.md5(CONTENT).hexdigest())
    assert (tmp_path / "file").exists()
    with pytest.raises(FetchError, match="the MD5 is "):
        get(server, tmp_path / "other", digest="md5:" + "0" * 32)


def test_a_damaged_part_from_earlier_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"x" * 1000)
    get(server, tmp_path / "file")
    assert server.asked == ["bytes=1000-", None]
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_that_is_too_long_or_whole_is_handled(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT + b"x")
    get(server, tmp_path / "file")
    assert server.asked == [None]
    (tmp_path / "again.part").write_bytes(CONTENT)
    get(server, tmp_path / "again")
    assert server.asked == [None], "nothing was left to ask for"
    assert (tmp_path / "again").read_bytes() == CONTENT


def test_another_file_is_refused_by_its_length(server: Server, tmp_path: Path) -> None:
    with pytest.raises(
        FetchError, match="the server offers 5120000 bytes, published are 1000, so it is another file"
    ):
        get(server, tmp_path / "file", size=1000)
    server.states_length = False
    with pytest.raises(
        FetchError, match="the server sends more than the published 1000 bytes, so it is another file"
    ):
        get(server, tmp_path / "file", size=1000)
    assert list(tmp_path.iterdir()) == []


def test_a_range_beyond_the_servers_file_begins_anew(server: Server, tmp_path: Path) -> None:
    server.content["/file"] = CONTENT[:1000]
    (tmp_path / "file.part").write_bytes(CONTENT[:2000])
    with pytest.raises(FetchError, match="the server offers 1000 bytes"):
        get(server, tmp_path / "file")
    assert server.asked == ["bytes=2000-", None]


def test_a_server_that_sends_another_range_is_refused(server: Server, tmp_path: Path) -> None:
    server.shift = 5
    (tmp_path / "file.part").write_bytes(CONTENT[:2000])
    with pytest.raises(FetchError, match="asked for bytes from 2000, the server sent others"):
        get(server, tmp_path / "file")


def test_the_next_address_is_tried(server: Server, tmp_path: Path) -> None:
    urls = (server.url("/absent"), server.url())
    download(urls, tmp_path / "file", size=len(CONTENT), digest=SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    with pytest.raises(FetchError) as caught:
        download(urls[:1], tmp_path / "other", size=len(CONTENT), digest=SHA256)
    assert str(caught.value) == (
        f"other could not be fetched: {urls[0]}: the server answered 404 Not Found; try again later, or copy "
        f"the file to {tmp_path / 'other'} by hand"
    )


def test_no_network_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PAUSE_SECONDS", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    closed = Server()
    url = closed.url()
    closed.server_close()
    with pytest.raises(FetchError) as caught:
        download((url,), tmp_path / "file", size=10, digest=SHA256)
    assert f"{url}: no connection (Connection refused), is there a network?" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ApointError)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_host_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: Any, **__: Any) -> None:
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(FetchError, match=r"no connection \(Temporary failure in name resolution\)"):
        download(("http://nowhere.invalid/file",), tmp_path / "file", size=10, digest=SHA256)


def test_only_web_addresses_are_fetched(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="file:///etc/hostname: only http and https addresses can be fetched"
    ):
        download(("file:///etc/hostname",), tmp_path / "file", size=10, digest=SHA256)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to write to")
def test_a_full_disk_is_one_sentence(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").symlink_to("/dev/full")  # every write fails as on a full disk
    with pytest.raises(StorageError) as caught:
        get(server, tmp_path / "file")
    assert str(caught.value) == (
        f"{tmp_path / 'file.part'}: the disk is full; make room or choose another --data-root, then fetch "
        "again to continue"
    )
    assert not (tmp_path / "file").exists()


def test_too_small_a_disk_is_told_beforehand(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    usage = type(shutil.disk_usage(tmp_path))(10**9, 10**9, 10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(
        StorageError, match="5 MB are needed for file, 1 MB are free; make room or choose another"
    ):
        get(server, tmp_path / "file")
    assert server.asked == []
    (tmp_path / "file.part").write_bytes(CONTENT[:-1000])
    get(server, tmp_path / "file")  # what is still missing has room


def test_a_folder_that_cannot_be_written_is_one_sentence(server: Server, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StorageError, match="cannot be written"):
        get(server, tmp_path / "taken" / "file")


# --------------------------------------------------------------------------------------------- archives


def tar_with(members: dict[str, bytes | str]) -> bytes:
    """An archive; a text instead of bytes makes a symbolic link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def test_only_the_named_members_come_out(tmp_path: Path) -> None:
    members: dict[str, bytes | str] = {
        "../evil": b"outside",
        str(tmp_path / "evil"): b"absolute",
        "in/other": b"not asked for",
        "in/good": b"good",
    }
    (tmp_path / "a.tgz").write_bytes(tar_with(members))
    base = tmp_path / "base"
    extract(tmp_path / "a.tgz", {"in/good": 4}, base)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == [
        "a.tgz",
        "base/in/SHA256SUMS",
        "base/in/good",
    ]
    assert (base / "in" / "good").read_bytes() == b"good"


def test_links_and_missing_members_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(tar_with({"in/good": "/etc/passwd"}))
    with pytest.raises(FetchError, match="in/good is not in the archive; fetch it again"):
        extract(tmp_path / "a.tgz", {"in/good": 4}, tmp_path / "base")
    (tmp_path / "a.tgz").write_bytes(tar_with({"in/good": b"x" * 10000})[:60])
    with pytest.raises(FetchError, match="the archive cannot be read"):
        extract(tmp_path / "a.tgz", {"in/good": 4}, tmp_path / "base")
    assert not (tmp_path / "base" / "in" / "good").exists()


def test_fetch_brings_an_archive_and_leaves_only_its_members(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tar_with({"set/train.bin": b"train", "set/test.bin": b"test", "set/readme": b"no"})
    server.content["/set.tar.gz"] = archive
    remote = Remote(
        "set.tar.gz",
        (server.url("/set.tar.gz"),),
        len(archive),
        "sha256:" + hashlib.sha256(archive).hexdigest(),
        {"set/train.bin": 5, "set/test.bin": 0},
    )
    monkeypatch.setitem(PUBLIC, "set", (remote,))
    assert apoint.data.fetch("set", tmp_path) == tmp_path / "set"
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "set",
        "set/SHA256SUMS",
        "set/test.bin",
        "set/train.bin",
    ]
    apoint.data.fetch("set", tmp_path)
    assert len(server.asked) == 1, "what is whole is not fetched again"
    (tmp_path / "set" / "train.bin").write_bytes(b"cut")
    apoint.data.fetch("set", tmp_path)
    assert len(server.asked) == 2
    (tmp_path / "set" / "train.bin").write_bytes(b"trbin")
    apoint.data.fetch("set", tmp_path)
    assert len(server.asked) == 3, "a changed byte is noticed, too"
    assert (tmp_path / "set" / "train.bin").read_bytes() == b"train"
    apoint.data.fetch("set", tmp_path, force=True)
    assert len(server.asked) == 4


def test_fetch_replaces_a_damaged_file_and_uses_the_chosen_folder(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Remote("set/file", (server.url(),), len(CONTENT), SHA256)
    monkeypatch.setitem(PUBLIC, "set", (remote,))
    monkeypatch.setenv("APOINT_DATA", str(tmp_path))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file").write_bytes(CONTENT[:-1] + b"!")
    assert apoint.data.fetch("set") == tmp_path / "set"
    assert (tmp_path / "set" / "file").read_bytes() == CONTENT
    apoint.data.fetch("set")
    assert len(server.asked) == 1
    with pytest.raises(UsageError, match="unknown dataset to fetch 'sett'; did you mean 'set'"):
        apoint.data.fetch("sett")


# ---------------------------------------------------------------------------------------------- published


def test_everything_public_can_be_fetched_and_is_found_where_it_is_put(tmp_path: Path) -> None:
    from apoint.data import cifar, idx
    from apoint.data.locate import find_folder
    from apoint.registry import registry

    public = [name for name, entry in registry("dataset").items() if entry.traits.get("origin") == "public"]
    assert sorted(public) == sorted(PUBLIC)
    for name, remotes in PUBLIC.items():
        for remote in remotes:
            assert remote.digest.startswith("sha256:")
            assert len(remote.digest) == 7 + 64
            for file in remote.members or [remote.file]:
                (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / file).touch()
        folders, files = (
            (idx.FOLDERS, {name: idx.FILES}) if name in idx.FOLDERS else (cifar.FOLDERS, cifar.FILES)
        )
        found = find_folder(folders[name], files[name], tmp_path)
        assert found == tmp_path / Path(next(iter(remotes[0].members), remotes[0].file)).parent


def test_archive_members_have_the_lengths_that_the_reader_expects() -> None:
    from apoint.data import cifar

    ten = {Path(name).name: size for name, size in PUBLIC["cifar-10"][0].members.items()}
    assert ten == {name: count * 3073 for name, count in cifar.FILES["cifar-10"].items()}
    hundred = {Path(name).name: size for name, size in PUBLIC["cifar-100"][0].members.items()}
    assert {name: hundred[name] for name in ("train.bin", "test.bin")} == {
        name: count * 3074 for name, count in cifar.FILES["cifar-100"].items()
    }


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_published_hashes_are_those_of_the_files_that_debian_ships() -> None:
    # Debian compressed with `gzip -n`: name and time of the original are missing from the header. With them
    # back, the files must be the published ones, byte for byte.
    for remote in published.PUBLIC["fashion-mnist"]:
        name = Path(remote.file).name
        content = (DEBIAN / name).read_bytes()
        when = 1504176627 if name.startswith("t10k") else 1504176606
        header = (
            b"\x1f\x8b\x08\x08" + struct.pack("<I", when) + b"\x00\x03" + name.removesuffix(".gz").encode()
        )
        original = header + b"\x00" + content[10:]
        assert len(original) == remote.size
        assert "sha256:" + hashlib.sha256(original).hexdigest() == remote.digest
