"""Servers that mean harm: too slow, endless, or with control characters; on 127.0.0.1, with small limits."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from apoint.data import connection, fetching
from apoint.data.fetching import FetchError, download

CONTENT = bytes(range(256)) * 8
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
Talk = Callable[[socket.socket, threading.Event], None]


class RawServer:
    """Answers each connection with whatever `talk` sends."""

    def __init__(self, talk: Talk) -> None:
        self.talk, self.stopped = talk, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.threads = [threading.Thread(target=self.serve)]
        self.connections = 0
        self.threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/file"

    def serve(self) -> None:
        while not self.stopped.is_set():
            with suppress(OSError):
                client, _ = self.listener.accept()
                self.connections += 1
                self.threads.append(threading.Thread(target=self.answer, args=(client,)))
                self.threads[-1].start()

    def answer(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(1 << 16)
            self.talk(client, self.stopped)

    def close(self) -> None:
        self.stopped.set()
        with suppress(OSError):
            socket.create_connection(self.listener.getsockname()).close()
        self.threads[0].join()
        self.listener.close()
        for thread in self.threads[1:]:
            thread.join()


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Talk], RawServer]]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fetching, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(fetching, "TIMEOUT_SECONDS", 20.0)
    servers: list[RawServer] = []

    def serve(talk: Talk) -> RawServer:
        servers.append(RawServer(talk))
        return servers[-1]

    yield serve
    for server in servers:
        server.close()


def head(*lines: str, length: int | None = len(CONTENT)) -> bytes:
    stated = [] if length is None else [f"Content-Length: {length}"]
    return "\r\n".join(["HTTP/1.1 200 OK", *stated, *lines, "", ""]).encode("latin-1")


def dripping(before: bytes, drop: bytes) -> Talk:
    """Sends `before` at once and then `drop` again and again, a hundred times a second."""

    def talk(client: socket.socket, stopped: threading.Event) -> None:
        client.sendall(before)
        while not stopped.wait(0.01):
            client.sendall(drop)

    return talk


def refusal(url: str, folder: Path, size: int = len(CONTENT)) -> str:
    with pytest.raises(FetchError) as caught:
        download((url,), folder / "file", size=size, digest=DIGEST)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    return str(caught.value)


DRIPS = {
    "body": (head(length=10**9), b"x", 10**9),
    "body, after a good beginning": (head() + CONTENT[:1000], b"x", len(CONTENT)),
    "body without a length": (head(length=None), b"x", 10**9),
    "chunks": (head("Transfer-Encoding: chunked", length=None), b"1\r\nx\r\n", 10**9),
    "a chunk's size": (head("Transfer-Encoding: chunked", length=None), b"0", 10**9),
    "header": (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x", 10**9),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: 1\r\n", 10**9),
    "status line": (b"HTTP/1.1 200 O", b"K", 10**9),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 10**9),
    "redirection": (b"HTTP/1.1 302 Found\r\nLocation: /", b"x", 10**9),
}


@pytest.mark.parametrize("what", DRIPS)
def test_a_server_that_drips_is_given_up(
    what: str,
    serving: Callable[[Talk], RawServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "WINDOW_SECONDS", 0.3)
    monkeypatch.setattr(connection, "SLOWEST_BYTES_PER_SECOND", 100_000)
    before, drop, size = DRIPS[what]
    if what == "body, after a good beginning":
        monkeypatch.setattr(connection, "WINDOW_SECONDS", 0.1)
    server = serving(dripping(before, drop))
    sentence = refusal(server.url, tmp_path, size)
    assert "bytes a second, fewer than 100000" in sentence
    assert server.connections == 1, "the same server is not asked again"


def test_what_came_before_it_was_given_up_is_kept(
    serving: Callable[[Talk], RawServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WINDOW_SECONDS", 0.3)
    monkeypatch.setattr(connection, "SLOWEST_BYTES_PER_SECOND", 1_000_000)
    server = serving(dripping(head() + CONTENT[:1000], b"x"))
    sentence = refusal(server.url, tmp_path)
    part = (tmp_path / "file.part").read_bytes()
    assert part[:1000] == CONTENT[:1000]
    assert f"{len(part)} of {len(CONTENT)} bytes are here and will be kept" in sentence


def test_all_attempts_together_have_a_limit(
    serving: Callable[[Talk], RawServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 3600.0  # each look at the clock is an hour later
        return now[0]

    monkeypatch.setattr(connection, "_clock", clock)
    monkeypatch.setattr(connection, "SLOWEST_BYTES_PER_SECOND", 0)
    server = serving(lambda client, _: client.sendall(head() + CONTENT[:10]))
    monkeypatch.setattr(fetching, "ATTEMPTS", 1000)
    assert "it took longer than 12 hours" in refusal(server.url, tmp_path)
    assert server.connections < 20


@pytest.mark.parametrize(
    ("before", "more"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000),
        (head(length=None), CONTENT * 100),
        (head("Transfer-Encoding: chunked", length=None), b"1;" + b"x" * 60_000 + b"\r\nx\r\n"),
    ],
    ids=["continue", "body", "chunks"],
)
def test_a_server_that_never_ends_is_given_up(
    before: bytes, more: bytes, serving: Callable[[Talk], RawServer], tmp_path: Path
) -> None:
    def talk(client: socket.socket, stopped: threading.Event) -> None:
        client.sendall(before)
        while not stopped.is_set():
            client.sendall(more)

    sentence = refusal(serving(talk).url, tmp_path)
    assert "and not the file" in sentence or "so it is another file" in sentence


def test_a_slow_server_makes_room_for_the_next(
    serving: Callable[[Talk], RawServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WINDOW_SECONDS", 0.3)
    slow = serving(dripping(head(), b"\0"))
    good = serving(lambda client, _: client.sendall(head() + CONTENT))
    download((slow.url, good.url), tmp_path / "file", size=len(CONTENT), digest=DIGEST)
    assert (tmp_path / "file").read_bytes() == CONTENT


def saying(answer: bytes) -> Talk:
    return lambda client, _: client.sendall(answer)


HOSTILE = {
    "reason": b"HTTP/1.1 404 \x1b]0;owned\x07\x1b[2J\x9b31mGone\r\n\r\n",
    "long reason": b"HTTP/1.1 404 " + b"x" * 60_000 + b"\r\n\r\n",
    "redirection to a file": b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n",
    "redirection to ftp": b"HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/x\r\n\r\n",
    "redirection with escapes": b"HTTP/1.1 302 Found\r\nLocation: gopher://\x1b[2J\r\n\r\n",
    "redirection to no address": b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n",
    "redirection to a long host": b"HTTP/1.1 302 Found\r\nLocation: http://" + b"a" * 300 + b".x/\r\n\r\n",
    "redirection to a wrong port": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:99999/\r\n\r\n",
    "redirection to no port": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:x/\r\n\r\n",
    "redirection to itself": b"HTTP/1.1 302 Found\r\nLocation: /file\r\n\r\n",
    "no HTTP": b"SSH-2.0-OpenSSH\x1b[2J\r\n",
    "long status": b"HTTP/1.1 " + b"9" * 5000 + b" OK\r\n\r\n",
    "long length": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "huge length": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999\r\n\r\n",
    "negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n" + CONTENT[:-1] + b"!",
    "long header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 200 + b"\r\n",
    "wrong chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "huge chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\nx",
    "nothing": b"",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_answer_is_one_clean_sentence(
    what: str, serving: Callable[[Talk], RawServer], tmp_path: Path
) -> None:
    sentence = refusal(serving(saying(HOSTILE[what])).url, tmp_path)
    assert "\x1b" not in sentence
    if what == "reason":
        assert r"the server answered 404 \x1b]0;owned\x07\x1b[2J\x9b31mGone" in sentence


@pytest.mark.parametrize("stated", [b"bytes " + b"9" * 5000 + b"-", b"bytes \xb2-", b"x", b"bytes -1-"])
def test_a_hostile_range_is_one_clean_sentence(
    stated: bytes, serving: Callable[[Talk], RawServer], tmp_path: Path
) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:100])
    answer = (
        b"HTTP/1.1 206 OK\r\nContent-Range: " + stated + b"\r\nContent-Length: 1948\r\n\r\n" + CONTENT[100:]
    )
    assert "the server sent others" in refusal(serving(saying(answer)).url, tmp_path)
