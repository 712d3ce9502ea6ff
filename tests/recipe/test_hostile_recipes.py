"""Recipes that mean harm are refused in one short sentence with a line, at once, and run nothing."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from apoint.errors import ApointError, UsageError
from apoint.recipe import load_recipe
from apoint.recipe.document import (
    MAX_BYTES,
    document_from_text,
    parse_overrides,
    parse_yaml,
    read_document,
)
from tests.recipe.hostile import ALL, GOOD

_RUN_ALL = """
import contextlib, io, json, sys, traceback
from pathlib import Path
from apoint.cli import main

answers = {}
for file in sorted(Path("recipes").iterdir()):
    out, err = io.StringIO(), io.StringIO()
    code = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(["train", str(file), "--dry-run"])
        except SystemExit as leaving:
            code = leaving.code
        except BaseException:
            err.write(traceback.format_exc())
    answers[file.stem] = [code, out.getvalue(), err.getvalue()]
print(json.dumps(answers))
"""


def test_there_are_many() -> None:
    assert len(ALL) >= 60
    load_recipe(document_from_text(GOOD))


@pytest.mark.parametrize("name", ALL)
def test_a_hostile_recipe_is_refused_with_its_line(name: str) -> None:
    text, line = ALL[name]
    with pytest.raises(UsageError, match=r"^x\.yaml:\d+: ") as caught:
        load_recipe(document_from_text(text, "x.yaml"))
    sentence = str(caught.value)
    assert line is None or sentence.startswith(f"x.yaml:{line}: ")
    assert len(sentence) < 1000
    assert sentence.isprintable()


def test_the_command_line_refuses_them_all_without_a_traceback(tmp_path: Path) -> None:
    """One process with a generous deadline: none may hang, print a traceback or run anything."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    names = {f"{number:03}": name for number, name in enumerate(ALL)}
    for stem, name in names.items():
        (folder / f"{stem}.yaml").write_bytes(ALL[name][0].encode("utf-8", "surrogatepass"))
    done = subprocess.run(
        [sys.executable, "-c", _RUN_ALL], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert len(answers) == len(ALL)
    for stem, (code, out, err) in answers.items():
        assert code == 2, (names[stem], out, err)
        assert "Traceback" not in err, names[stem]
        assert err.rstrip("\n").isprintable(), names[stem]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["recipes"]


def test_a_long_recipe_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    with file.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(UsageError, match=f"has {MAX_BYTES + 1} bytes; a recipe has at most {MAX_BYTES}"):
        read_document(file)


@pytest.mark.parametrize("filling", ["#", "# a\n", "\n", "a ", " "])
def test_a_recipe_of_the_greatest_length_is_read(filling: str) -> None:
    text = GOOD + "description: |\n  " + filling * ((MAX_BYTES - 100) // len(filling)) + "\n"
    assert load_recipe(document_from_text(text, "x.yaml"))[0].epochs == 1


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, make_socket, lambda path: path.symlink_to("/dev/zero")]
)
def test_only_a_regular_file_is_a_recipe(make, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    make(path)
    with pytest.raises(ApointError, match="a regular file is needed"):
        read_document(path)


@pytest.mark.parametrize(
    "name",
    ["a\0b.yaml", "a" * 5000, "a/" * 5000, "\ud800", "~nobody-here/x"],
    ids=lambda name: ascii(name[:9]),
)
def test_a_name_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(ApointError) as caught:
        read_document(tmp_path / name)
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "pair",
    [
        "batch_size=" + "9" * 5000,
        "augment." + "9" * 5000 + ".p=1",
        "augment.²=1",
        "augment.٣=1",
        "name=!!python/name:os.system ''",
        "name=&a [*a]",
        'name="a\\0b"',
        "name=" + "[" * 100_000,
    ],
    ids=lambda pair: pair[:20],
)
def test_a_hostile_override_is_refused(pair: str) -> None:
    document = document_from_text(GOOD + "augment: [flip]\n")
    with pytest.raises(UsageError) as caught:
        load_recipe(document, parse_overrides([pair]))
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


def _nested(depth: int) -> dict[str, object]:
    inner: dict[str, object] = {}
    for _ in range(depth):
        inner = {"a": inner}
    return inner


@pytest.mark.parametrize(
    "value",
    [10**5000, object(), _nested(100_000), {1, 2}, b"x", "\ud800", {(1, 2): 3}],
    ids=["digits", "object", "nested", "set", "bytes", "surrogate", "key"],
)
def test_a_mapping_that_is_no_plain_data_is_refused(value: object) -> None:
    with pytest.raises(UsageError):
        load_recipe({"data": "digits", "model": "mlp", "probes": value})


def test_quoted_signs_are_ordinary_words() -> None:
    text = "a: '*x'\nb: \"&y\"\nc: '!z'\n'<<': 1\nd: \"tab\\t and \\x01\"\n"
    assert parse_yaml(text, "x").content == {"a": "*x", "b": "&y", "c": "!z", "<<": 1, "d": "tab\t and \x01"}


def test_large_but_honest_numbers_are_read() -> None:
    assert parse_yaml("[1" + "0" * 25 + ", -9223372036854775808]", "x").content == [10**25, -(2**63)]
