"""E3: run folders, comparisons and recipes that a stranger made, under every command that reads them."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from apoint.store import layout
from faults.group import Case, Place, check, draws, group
from faults.groups.byte_changes import CHANGE, MARGIN
from faults.laboratory import TINY, cli, write_recipe
from faults.strangers import SECRET, SPECIAL, check_harmless, little_memory, make_special
from tests.sealing import edit, edit_in_run, reseal

SECONDS = 30  # a command that takes longer hangs; on an idle machine each takes less than five
SAVED = "checkpoints/step-000000020"
RUN_FILES = (
    "metrics.jsonl", "events.jsonl", "status.json", "env.json", "resolved.yaml", "recipe.yaml", "lock",
    "probes/gap.jsonl", f"{SAVED}/manifest.json", f"{SAVED}/state.json", f"{SAVED}/model.safetensors",
    layout.SEAL, layout.EXAMPLES,
)  # fmt: skip
STUDY_FILES = ("declaration.json", "result.json", "looks.jsonl", "fleet.json")
VALUES: dict[str, Any] = {
    "huge integer": 10**500, "huge float": 1e300, "true": True, "negative": -(10**30), "null": None,
    "list": [1, [2]], "mapping": {"a": {"b": 1}}, "text": "text", "long text": "x" * 10**6,
    "escape": "\x1b]0;owned\x07\x1b[2J", "NaN": float("nan"),
}  # fmt: skip
FIELDS: dict[str, tuple[str, ...]] = {
    "env.json": ("name", "seed", "key", "schema_version", "key.seed", "key.recipe", "key.threads"),
    "status.json": ("state", "started", "heartbeat", "step", "total_steps", "pid", "reason", "seconds"),
    "metrics.jsonl": ("step", "epoch", "split", "time", "seconds", "accuracy"),
    "events.jsonl": ("time", "kind", "text"),
    f"{SAVED}/state.json": ("step", "facts", "progress"),
}
RESEALED_FIELDS: dict[str, tuple[str, ...]] = {  # of files that the seal covers, and of the seal itself
    layout.ENV: FIELDS[layout.ENV],
    layout.METRICS: FIELDS[layout.METRICS],
    layout.SEAL: (
        "state", "reason", "name", "fingerprint", "changes", "seed", "started", "step", "total_steps",
        "seconds", "metrics", "metrics.test_accuracy", "files", "files.metrics.jsonl", "checkpoints",
        "schema_version",
    ),
}  # fmt: skip
RESEALED_VALUES = ("huge integer", "huge float", "true", "list", "mapping", "text", "escape", "NaN")
RESEALED = "resealed"
YAMLS: dict[str, bytes] = {
    "alias bomb": b"a0: &a0 [x]\n"
    + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)),
    "merge bomb": b"a0: &a0 {x: 1}\n"
    + b"".join(b"a%d: &a%d {<<: [%s]}\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)),
    "deep": b"a: " + b"[" * 20_000, "not UTF-8": b"name: \xff\xfe\n", "NUL": b"name: a\0b\n",
    "python tag": b"name: !!python/object/apply:os.system ['touch ../../outside/canary']\n",
    "huge integer": b"seed: " + b"9" * 5000 + b"\n", "escape": b'name: "\\e]0;owned\\a"\n', "empty": b"",
    "a list": b"[1]", "huge": b"a: " + b"x" * 3_000_000,
}  # fmt: skip
JSONS = {
    "deep": b"[" * 200_000,
    "not UTF-8": b'{"a": "\xff"}',
    "empty": b"",
    "a list": b"[]",
    "a number": b"1e999",
    "huge integer": b'{"schema_version": ' + b"9" * 5000 + b"}",
    "NUL": b"\0" * 100,
    "torn": b'{"a": ',
}


def tensors(header: Any, content: bytes = b"") -> bytes:
    """A safetensors file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def _tensor(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


_LOSS = _tensor("F32", [4], 0, 16)
EXAMPLES: dict[str, bytes] = {  # test_accuracy is what compare reads
    "a header of 4 TB": (4 * 10**12).to_bytes(8, "little") + b"{}",
    "a tensor of 4 TB": tensors({"test_accuracy": _tensor("F32", [10**12], 0, 4 * 10**12)}),
    "deep header": tensors(b"[" * 200_000),
    "a length of 10^12 and no values": tensors(
        {"test_accuracy": _tensor("U8", [1], 0, 1), "test_loss": _tensor("F32", [10**12, 0], 1, 1)}, b"\xff"
    ),
    "a length of no axis": tensors(
        {"test_loss": _tensor("F32", [], 0, 4), "test_accuracy": _tensor("U8", [1], 4, 5)}, bytes(5)
    ),
    "two axes": tensors({"test_accuracy": _tensor("F32", [2, 2], 0, 16)}, bytes(16)),
    "no axis": tensors({"test_accuracy": _tensor("F32", [], 0, 4)}, bytes(4)),
    "no values": tensors({"test_accuracy": _tensor("F32", [0], 0, 0)}),
    "too few bits": tensors({"test_loss": _LOSS, "test_accuracy": _tensor("U8", [0], 16, 16)}, bytes(16)),
    "BF16": tensors({"test_accuracy": _tensor("BF16", [2], 0, 4)}, bytes(4)),
    "NaN": tensors({"test_accuracy": _LOSS}, b"\xff" * 16),
    "huge values": tensors(
        {"test_accuracy": _tensor("F64", [2], 0, 16)}, b"\xff\xff\xff\xff\xff\xff\xef\x7f" * 2
    ),
    "rows of another length": tensors(
        {"test_accuracy": _LOSS, "test_rows": _tensor("I32", [2], 16, 24)}, bytes(24)
    ),
    "rows twice": tensors({"test_accuracy": _LOSS, "test_rows": _tensor("I32", [4], 16, 32)}, bytes(32)),
    "rows of NaN": tensors(
        {"test_accuracy": _LOSS, "test_rows": _tensor("F32", [4], 16, 32)}, bytes(16) + b"\xff" * 16
    ),
    "rows that are negative": tensors(
        {"test_accuracy": _LOSS, "test_rows": _tensor("I64", [4], 16, 48)}, bytes(16) + b"\xff" * 32
    ),
    "escape": tensors({"\x1b]0;owned\x07": _LOSS, "test_accuracy": {"dtype": "\x1b[2J"}}, bytes(16)),
    "overlapping": tensors({"test_accuracy": _LOSS, "test_loss": _LOSS}, bytes(16)),
    "more than 64 MB": tensors({"test_accuracy": _tensor("F32", [2**25], 0, 2**27)}, bytes(2**27)),
}
EVIL = "open('{canary}', 'w').close()\nfrom torch import nn\nclass Net(nn.Linear):\n    pass\n"
NAMES = (
    "\x1b[2J", "\x1b]0;owned\x07", "a\nb", "a\u202eb", "x" * 200, "-rf", "=1+1", "a b", "\x9b2J",
    "$(touch x)",
)  # fmt: skip
DATA = {
    "fifo": {"name": "csv", "path": "fifo"}, "zero": {"name": "csv", "path": "/dev/zero"},
    "proc": {"name": "image-folder", "path": "/proc"}, "text fifo": {"name": "text", "path": "fifo"},
    "text zero": {"name": "text", "path": "/dev/zero"}, "npz fifo": {"name": "npz", "path": "fifo"},
    "shards zero": {"name": "tar-shards", "path": "/dev/zero"},
}  # fmt: skip


def every_case() -> Iterator[Case]:
    """All cases: what is done, and where."""
    yield from (("special", file, what) for file in RUN_FILES for what in SPECIAL)
    yield from (("special", file, what) for file in STUDY_FILES for what in SPECIAL)
    for file, fields in FIELDS.items():
        yield from (("value", f"{file} {field}", value) for field in fields for value in VALUES)
    yield from (("yaml", file, what) for file in ("resolved.yaml", "recipe.yaml") for what in YAMLS)
    yield from (("json", file, what) for file in (*RUN_FILES[:4], *STUDY_FILES) for what in JSONS)
    yield from (("noise", file, str(seed)) for file in (*RUN_FILES, *STUDY_FILES) for seed in draws("E3", 3))
    yield from (("examples", "as it was sealed", what) for what in EXAMPLES)
    # Whoever reseals a folder gets past the hashes, to what reads the files.
    yield from (("examples", RESEALED, what) for what in EXAMPLES)
    for file, fields in RESEALED_FIELDS.items():
        yield from ((RESEALED, f"{file} {field}", value) for field in fields for value in RESEALED_VALUES)
    yield from (("code", file, way) for file in RUN_FILES[4:6] for way in ("relative", "absolute"))
    yield from (("name", repr(name), str(number)) for number, name in enumerate(NAMES))
    yield from (("data", what, "") for what in DATA)


def a_comparison(folder: Path) -> None:
    """Prepare: a comparison whose folders the cases spoil."""
    path = write_recipe(folder, TINY)
    command = ["compare", str(path), *CHANGE, *MARGIN, "--quiet", "--runs-root", str(folder / "runs")]
    cli(folder, *command).expect(0)


@group(
    "E3",
    "pipes, devices, links, sparse files, bombs, escape sequences, odd numbers, noise and code in folders, "
    "comparisons and recipes, some resealed afterwards; read by list, show, curves, export, inspect, "
    "train --dry-run and compare",
    "no hang, no traceback, no code run, no escape sequence printed, nothing outside read or written",
    every_case(),
    prepare=a_comparison,
    seconds=400,
)
def stranger(place: Place, kind: str, where: str, what: str) -> None:
    outside, inside = place.folder / "outside", place.folder / "inside"
    outside.mkdir()
    (outside / "secret").write_text(f"{SECRET},{SECRET}\n" * 40)
    shutil.copytree(place.shared, inside)
    runs = inside / "runs"
    victim = min(path for path in runs.iterdir() if path.name.endswith("-s0"))
    study = next((runs / "comparisons").iterdir())
    victim = SPOIL[kind](victim, study, where, what, outside)
    for command in _commands(kind, inside, victim, outside):
        left = cli(inside, *command, before=little_memory, seconds=SECONDS, terminal=True)
        try:
            check_harmless(left, outside)
            check(sorted(each.name for each in outside.iterdir()) == ["secret"], "a file was written outside")
        except AssertionError as failure:
            raise type(failure)(f"{' '.join(command[:2])}: {failure}") from None
    for path in inside.glob("*.csv"):
        check(SECRET not in path.read_text(errors="replace"), "a file outside was exported")


def _commands(kind: str, inside: Path, victim: Path, outside: Path) -> list[list[str]]:
    """The commands that read what was spoilt."""
    root = ["--runs-root", str(inside / "runs")]
    if kind == "data":
        return [["train", str(inside / "data.yaml"), "--dry-run", *root]]
    run = str(victim)
    spoilt = [
        ["runs", "list", *root],
        ["runs", "list", "--json", *root],
        ["runs", "show", run, *root],
        ["runs", "curves", run, "--metric", "test_accuracy", *root],
        ["export", "csv", "--all", "--to", "out.csv", *root],
        ["export", "csv", run, "--to", "one.csv", *root],
        ["export", "state-dict", run, "--to", "w.safetensors", *root],
    ]
    if kind in ("special", "yaml", "code", "noise", RESEALED):
        spoilt += [["inspect", run, "--quick"], ["train", f"{run}/resolved.yaml", "--dry-run", *root]]
    if kind == "code":
        spoilt.pop()  # a recipe that the user names on the command line may run its own code
    if kind != "name":
        spoilt.append(["compare", str(inside / "tiny.yaml"), *CHANGE, *MARGIN, "--quiet", *root])
    return spoilt


# -- what is spoilt ------------------------------------------------------------------------------------------


def _file(run: Path, study: Path, where: str) -> Path:
    path = study / where if where in STUDY_FILES else run / where
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _special(run: Path, study: Path, where: str, what: str, outside: Path) -> Path:
    make_special(_file(run, study, where), what, outside / "secret")
    return run


def _value(run: Path, study: Path, where: str, what: str, outside: Path) -> Path:
    file, field = where.split(" ")
    path, *keys = _file(run, study, file), *field.split(".")
    lines = path.read_text().splitlines() if file.endswith("jsonl") else [path.read_text()]
    spoilt = json.loads(lines[-1])
    _put(spoilt, keys, VALUES[what])
    path.write_text("\n".join([*lines[:-1], json.dumps(spoilt)]) + "\n")
    return run


def _resealed(run: Path, study: Path, where: str, what: str, outside: Path) -> Path:
    """Change a value, in the seal or in a file that it covers, and make every hash right again."""
    file, field = where.split(" ")
    if file == layout.METRICS:
        _value(run, study, where, what, outside)
        reseal(run, file)
        return run
    keys = field.split(".", 1)  # names of files have dots too
    if file == layout.SEAL:
        edit(run / file, lambda values: _put(values, keys, VALUES[what]))
    else:
        edit_in_run(run, file, lambda values: _put(values, keys, VALUES[what]))
    return run


def _put(values: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        values = values[key]
    values[keys[-1]] = value


def _examples(run: Path, study: Path, where: str, what: str, outside: Path) -> Path:
    (run / layout.EXAMPLES).write_bytes(EXAMPLES[what])
    if where == RESEALED:
        reseal(run, layout.EXAMPLES)
    return run


def _content(contents: dict[str, bytes]) -> Callable[..., Path]:
    def spoil(run: Path, study: Path, where: str, what: str, outside: Path) -> Path:
        _file(run, study, where).write_bytes(contents[what])
        return run

    return spoil


def _noise(run: Path, study: Path, where: str, what: str, outside: Path) -> Path:
    draw = random.Random(int(what))
    _file(run, study, where).write_bytes(draw.randbytes(draw.randrange(1, 5000)))
    return run


def _code(run: Path, study: Path, where: str, what: str, outside: Path) -> Path:
    (run / "evil.py").write_text(EVIL.format(canary=outside / "canary"))
    name = str(run / "evil.py") if what == "absolute" else "evil.py"
    text = json.dumps({**TINY, "model": {"file": name, "class": "Net"}})
    (run / where).write_text(text)
    return run


def _name(run: Path, study: Path, where: str, what: str, outside: Path) -> Path:
    return run.rename(run.with_name(NAMES[int(what)] + "-3f2a1b4c-s0"))


def _data(run: Path, study: Path, where: str, what: str, outside: Path) -> Path:

    inside = outside.with_name("inside")
    os.mkfifo(inside / "fifo")
    write_recipe(inside, {**TINY, "data": DATA[where]}, "data.yaml")
    return run


SPOIL: dict[str, Callable[..., Path]] = {
    "special": _special, "value": _value, "yaml": _content(YAMLS), "json": _content(JSONS), "noise": _noise,
    "code": _code, "name": _name, "data": _data, "examples": _examples, RESEALED: _resealed,
}  # fmt: skip
