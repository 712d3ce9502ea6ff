"""Only regular files are opened, nothing waits, and what is refused is refused in one clean sentence."""

import os
import socket
from pathlib import Path

import pytest

from apoint.errors import StorageError, one_line, printable
from apoint.opening import open_regular, shown


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(b"abc")
    with open_regular(file) as stream:
        assert stream.read() == b"abc"
        assert not os.get_inheritable(stream.fileno())


def test_links_are_followed_unless_they_may_not_be(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"abc")
    link.symlink_to(file)
    with open_regular(link) as stream:
        assert stream.read() == b"abc"
    with pytest.raises(StorageError, match="is a symbolic link; a regular file is needed"):
        open_regular(link, follow_links=False)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (Path.mkdir, "a folder"),
        (make_pipe, "a named pipe"),
        (make_socket, "a socket"),
        (make_link_to_zero, "a device"),
    ],
)
def test_what_is_no_regular_file_is_refused_without_waiting(make, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    make(path)
    with pytest.raises(StorageError, match=f"x is {kind}; a regular file is needed"):
        open_regular(path)


def test_a_file_exchanged_after_the_first_look_is_refused(tmp_path: Path, monkeypatch) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_bytes(b"")
    regular = os.stat(file)
    monkeypatch.setattr(os, "stat", lambda *_, **__: regular)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StorageError, match="is a named pipe"):
        open_regular(pipe)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_link_put_in_place_after_the_first_look_is_refused(tmp_path: Path, monkeypatch) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    file.write_bytes(b"")
    link.symlink_to(file)
    regular = os.stat(file)
    monkeypatch.setattr(os, "stat", lambda *_, **__: regular)
    with pytest.raises(StorageError, match="cannot be opened"):
        open_regular(link, follow_links=False)


def test_a_missing_file_is_told_from_others_by_its_cause(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be opened: No such file") as caught:
        open_regular(tmp_path / "missing")
    assert isinstance(caught.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize(
    "name", ["a\0b", "a" * 5000, "/".join(["a"] * 5000), "\ud800"], ids=lambda name: ascii(name[:9])
)
def test_a_name_that_no_file_can_have_is_refused_in_a_short_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be opened") as caught:
        open_regular(tmp_path / name)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


def test_a_shown_path_is_clean() -> None:
    assert shown("data/\x1b[2J\n.csv") == "data/\\x1b[2J\\n.csv"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Grüße, 你好, 👩‍🔬 a\u200cb", "Grüße, 你好, 👩‍🔬 a\u200cb"),
        ("a\r\nb\tc\u2028d", "a\\r\nb\tc\\u2028d"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x00\x7f\x9b1m", "\\x00\\x7f\\x9b1m"),
        ("abc\u202egnp.exe\u2066", "abc\\u202egnp.exe\\u2066"),
        ("\ud800\ufeff", "\\ud800\\ufeff"),
        (ValueError("x\x1by"), "x\\x1by"),
    ],
)
def test_foreign_text_cannot_steer_a_terminal(text: object, clean: str) -> None:
    assert printable(text) == clean


def test_no_steering_character_is_left_out() -> None:
    every = "".join(
        map(chr, [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
    )
    assert one_line(every).isprintable()
    assert printable(printable(every)) == printable(every)
