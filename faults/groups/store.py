"""S: what a run records is there, once, whatever happens to writers, readers, disk and catalogue."""

from __future__ import annotations

import functools
import itertools
import json
import math
import random
import resource
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apoint.store import Catalogue, Run, RunWriter, find_runs, to_csv
from apoint.store.database import choose_journal, connect, is_local_disk, wal_is_safe
from apoint.store.sealed import read_sealed, write_sealed
from faults.breaking import Breaker, Child, Left, in_child, limit, wait_until
from faults.group import Place, check, draws, group
from faults.laboratory import cli


def make_run(root: Path, name: str, seed: int, steps: int = 3) -> Path:
    """A finished run with a few rows."""
    folder = root / f"{name}-3f2a1b4c-s{seed}"
    with RunWriter.create(
        folder, f"name: {name}\n", f"name: {name}\n", {"name": name, "seed": seed}
    ) as writer:
        for step in range(1, steps + 1):
            writer.metric(step=step, epoch=step / 2, split="test", loss=1 / (step + seed + 1))
        writer.status("finished", step=steps, total_steps=steps)
    return folder


def listed(root: Path) -> list[tuple[str, str, int | None, float]]:
    """The runs as the catalogue tells them, in the order of names."""
    with Catalogue(root) as catalogue:
        catalogue.refresh()
        found = catalogue.summaries()
    return sorted(
        (each.folder.name, each.state, each.step, each.last.get("test_loss", 0.0)) for each in found
    )


def truth(root: Path) -> list[tuple[str, str, int | None, float]]:
    """The same from the run folders alone."""
    return sorted(
        (run.folder.name, run.state, run.status.get("step"), run.metrics.final().get("test_loss", 0.0))
        for run in find_runs(root)
    )


def check_catalogue(root: Path) -> None:
    """Fail unless the catalogue is sound and says what the folders say."""
    check(listed(root) == truth(root), "the catalogue says other things than the folders")
    with connect(root / "catalogue.sqlite") as connection:
        state = connection.execute("PRAGMA quick_check").fetchone()[0]
    check(state == "ok", f"quick_check: {state}")


WRITERS, RUNS_EACH = 8, 4


@group(
    "S1",
    f"{WRITERS} processes write {RUNS_EACH} runs each and list them all, while another one lists on and on",
    "no error, every run listed once, the catalogue is sound",
    [(round,) for round in range(20)],
    seconds=180,
)
def many_writers(place: Place, number: int) -> None:
    root, over = place.folder / "runs", place.folder / "over"

    def write(worker: int) -> None:
        for seed in range(RUNS_EACH):
            make_run(root, f"w{worker}", seed)
            listed(root)

    def poll() -> None:
        while not over.exists():
            listed(root)

    reader = Child(poll, place.folder)
    writers = [Child(functools.partial(write, worker), place.folder) for worker in range(WRITERS)]
    for writer in writers:
        left = writer.wait(150).expect(0)
        check(not left.text, f"a writer complained: {left.text}")
    over.touch()
    left = reader.wait().expect(0)
    check(not left.text, f"the reader complained: {left.text}")
    check(len(listed(root)) == WRITERS * RUNS_EACH, "runs are missing from the list")
    check_catalogue(root)


@group(
    "S2",
    "SIGKILL of a process that writes a run, or of one that builds the catalogue, at a random moment",
    "every acknowledged row is there; the catalogue is sound and agrees with the folders",
    [("rows" if number % 2 else "catalogue", seed) for number, seed in enumerate(draws("S2", 500))],
)
def killed_writer(place: Place, what: str, seed: int) -> None:
    draw = random.Random(seed)
    (_kill_rows if what == "rows" else _kill_catalogue)(place, draw)


def _kill_rows(place: Place, draw: random.Random) -> None:
    folder, done = place.folder / "runs" / "a-3f2a1b4c-s0", place.folder / "done"

    def write() -> None:
        with RunWriter.create(folder, "name: a\n", "name: a\n", {}) as writer, done.open("w", 1) as said:
            for step in range(10**6):
                writer.metric(step=step, epoch=0, split="train", loss=1 / (step + 1))
                said.write(f"{step}\n")

    child = Child(write, place.folder)
    wait_until(lambda: done.exists() and done.stat().st_size, "the first row")
    time.sleep(draw.uniform(0, 0.03))
    child.kill()
    child.wait().expect(-signal.SIGKILL)
    last = int(done.read_text().rpartition("\n")[0].split("\n")[-1])
    run = Run(folder)
    check(run.state == "dead", f"the state is {run.state}, not dead")
    steps, losses = run.metrics.series("loss", "train")
    check(steps[: last + 1] == list(range(last + 1)), f"rows are missing: {len(steps)} of {last + 1}")
    check(losses == [1 / (step + 1) for step in steps], "values have changed")
    check_goes_on(folder, len(steps))


def check_goes_on(folder: Path, rows: int) -> None:
    """Fail unless the run can be opened and ended."""
    with RunWriter.open(folder) as writer:
        writer.metric(step=rows, epoch=0, split="train", loss=1 / (rows + 1))
        writer.status("finished")
    run = Run(folder)
    check(run.state == "finished" and len(run.metrics) == rows + 1, "the run does not go on")


def _kill_catalogue(place: Place, draw: random.Random) -> None:
    root = place.folder / "runs"
    for seed in range(12):
        make_run(root, "a", seed)

    def build() -> None:
        for _ in range(10**6):
            with Catalogue(root) as catalogue:
                catalogue.rebuild()
            (place.folder / "built").touch()

    child = Child(build, place.folder)
    wait_until((place.folder / "built").exists, "the first catalogue")
    time.sleep(draw.uniform(0, 0.02))
    child.kill()
    child.wait().expect(-signal.SIGKILL)
    check_catalogue(root)


@group(
    "S3",
    "eight processes open a catalogue at once: a new one, one of another version, a damaged one",
    "one schema, no error, all see every run",
    itertools.product(("new", "other version", "damaged", "empty", "old tables"), range(10)),
)
def opened_at_once(place: Place, kind: str, number: int) -> None:
    root = place.folder / "runs"
    for seed in range(4):
        make_run(root, "a", seed)
    path = root / "catalogue.sqlite"
    if kind == "damaged":
        path.write_bytes(random.Random(number).randbytes(5000))
    elif kind == "empty":
        path.touch()
    elif kind != "new":
        listed(root)
        with connect(path) as connection:
            if kind == "old tables":
                connection.execute("DROP TABLE blocks")
            connection.execute(f"PRAGMA user_version={number + 2}")
    children = [Child(lambda: [list(each) for each in listed(root)], place.folder) for _ in range(8)]
    for child in children:
        left = child.wait().expect(0)
        check(left.value == [list(each) for each in truth(root)], f"a wrong list: {left.value}")
    check_catalogue(root)


# -- a disk that refuses -------------------------------------------------------------------------------------

ROWS = 30


def _write_rows(folder: Path, breaker: Breaker | None, recovers: bool) -> None:
    """A run that keeps writing while its disk refuses; the disk may come back before it ends."""
    with RunWriter.create(folder, "name: a\n", "name: a\n", {}) as writer:
        if breaker:
            breaker.install()
        for step in range(ROWS):
            writer.metric(step=step, epoch=0, split="train", loss=float(step))
            if step % 7 == 0:
                writer.event("checkpoint", step=step)
            if breaker and breaker.struck and recovers and step > 20:
                breaker.at = 0
        writer.status("finished", step=ROWS)


@group(
    "S4",
    "from the Nth write or fsync on, the disk of a run is full, broken or over quota; it recovers or not",
    "with recovery no row is lost or doubled; without, the run never says finished with rows missing, and "
    "the error names path and cause",
    itertools.product(
        ("write", "fsync"), ("ENOSPC", "EIO", "EDQUOT", "EFBIG"), (1, 2, 8, 17, 29), (True, False)
    ),
)
def refusing_disk(place: Place, operation: str, fault: str, at: int, recovers: bool) -> None:
    folder = place.folder / "runs" / "a-3f2a1b4c-s0"
    at = at if operation == "write" else min(at, 2)
    breaker = Breaker(folder, fault, at, operation, part=".jsonl", lasting=True)
    left = in_child(lambda: _write_rows(folder, breaker, recovers and operation == "write"), place.folder)
    steps = Run(folder).metrics.series("loss", "train")[0] if len(Run(folder).metrics) else []
    check(len(steps) == len(set(steps)), "a row is there twice")
    if left.code == 0:
        check(steps == list(range(ROWS)), f"it says finished with {len(steps)} of {ROWS} rows")
        return
    check(not (recovers and operation == "write"), f"it did not recover: {left.text}")
    left.expect(1)
    cause = {"ENOSPC": "full", "EIO": "input/output", "EDQUOT": "quota", "EFBIG": "file size"}[fault]
    check(cause in left.text and str(folder) in left.text, f"path or cause is missing: {left.text}")
    check(Run(folder).state != "finished", "it says finished although rows are missing")


VERSIONS = {
    (3, 40, 1): False, (3, 44, 5): False, (3, 44, 6): True, (3, 45, 0): False, (3, 50, 6): False,
    (3, 50, 7): True, (3, 51, 2): False, (3, 51, 3): True,
}  # fmt: skip
DISKS = {"ext4": True, "nfs4": False, "fuse.sshfs": False, "cifs": False}


@group(
    "S5",
    "SQLite versions with and without the fault of the write-ahead log; local and network file systems",
    "a write-ahead log only where it is safe",
    [("version", *version) for version in VERSIONS] + [("disk", kind) for kind in DISKS],
)
def journal(place: Place, what: str, *value: Any) -> None:
    if what == "version":
        check(wal_is_safe(value) is VERSIONS[value], f"wrong for SQLite {value}")
        return
    (kind,) = value
    mounts = place.folder / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {place.folder} {kind} rw 0 0\n")
    check(is_local_disk(place.folder / "c.sqlite", mounts) is DISKS[kind], f"wrong for {kind}")
    connection = connect(place.folder / "c.sqlite")
    choose_journal(connection, place.folder / "c.sqlite")
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    check(mode == ("wal" if wal_is_safe() else "delete"), f"the journal is {mode}")


# -- values --------------------------------------------------------------------------------------------------

NUMBERS = {
    "NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "-0.0": -0.0, "subnormal": 5e-324,
    "largest": 1.7976931348623157e308, "2^53+1": 2**53 + 1, "-(2^63)": -(2**63), "tenth": 0.1,
    "third": 1 / 3,
}  # fmt: skip
TEXTS = {
    "NUL": "a\0b", "emoji": "🧪", "newline": "a\nb", "quote": "a\"b'c", "comma": "a,b;c",
    "surrogate": "a\ud800b", "right-to-left": "a\u202eb", "long": "x" * 10**6, "empty": "",
    "escape": "a\x1b[2J",
}  # fmt: skip
OUTPUTS = ("folder", "catalogue", "csv", "json")


@group(
    "S7",
    "odd numbers and texts, written and read back through folder, catalogue, CSV and JSON",
    "equal to the bit, or for texts in a table: the command succeeds and the table stays whole",
    [*itertools.product(("number",), NUMBERS, OUTPUTS), *itertools.product(("text",), TEXTS, OUTPUTS)],
)
def odd_values(place: Place, kind: str, name: str, output: str) -> None:
    root = place.folder / "runs"
    folder = root / "a-3f2a1b4c-s0"
    value = NUMBERS[name] if kind == "number" else 0.5
    note = TEXTS[name] if kind == "text" else "note"
    env = {"name": note.encode(errors="replace").decode(), "seed": 0}  # a recipe is UTF-8
    with RunWriter.create(folder, "name: a\n", "name: a\n", env) as writer:
        writer.metric(step=1, epoch=0.5, split="test", loss=value)
        writer.event("note", text=note)
        writer.status("finished", reason=note, step=1)
    found = READERS[output](place, root)
    check(type(found) in (int, float), f"{output} gives {found!r}")
    same = math.isnan(found) if value != value else repr(float(found)) == repr(float(value))
    check(same or found == value, f"{output} gives {found!r} instead of {value!r}")
    event = next(event for event in Run(folder).events if event["kind"] == "note")
    check(event["text"] == note, "the text has changed")


def _number(text: Any) -> Any:
    return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(text, text)


def _from_csv(place: Place, root: Path) -> float:
    import csv

    to_csv(find_runs(root), place.folder / "a.csv")
    with (place.folder / "a.csv").open(newline="") as stream:
        header, row = list(csv.reader(stream))
    text = dict(zip(header, row, strict=True))["value"]
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _from_json(place: Place, root: Path) -> Any:
    left: Left = cli(place.folder, "runs", "list", "--json", "--runs-root", str(root)).expect(0)
    return _number(json.loads(left.text)["runs"][0]["metrics"]["test_loss"])


def _from_catalogue(place: Place, root: Path) -> float:
    with Catalogue(root) as catalogue:
        catalogue.refresh()
        (curve,) = catalogue.series("loss").values()
    return curve.values[0]


READERS: dict[str, Callable[[Place, Path], Any]] = {
    "folder": lambda place, root: find_runs(root)[0].metrics.last("loss"),
    "catalogue": _from_catalogue,
    "csv": _from_csv,
    "json": _from_json,
}


# -- versions ------------------------------------------------------------------------------------------------


@group(
    "S8",
    "catalogues of other versions, run folders of a newer version, catalogues that cannot be written",
    "built anew from the folders or read in memory; a newer run is refused in a sentence that says upgrade",
    [("catalogue", version) for version in (0, 2, 99)]
    + [("run", version) for version in (2, 99, 10**30)]
    + [("size", 0), ("size", 100), ("size", 5000), ("folder", 0)],
)  # fmt: skip
def versions(place: Place, what: str, version: int) -> None:
    root = place.folder / "runs"
    folder = make_run(root, "a", 0)
    make_run(root, "b", 1)
    path = root / "catalogue.sqlite"
    if what == "run":
        for name in ("env.json", "seal.json"):
            values = read_sealed(folder / name)
            write_sealed(folder / name, {**values, "schema_version": version})
        left = cli(place.folder, "runs", "show", folder.name, "--runs-root", str(root)).expect(1)
        check("upgrade" in left.text, f"it does not say to upgrade: {left.text}")
        left = cli(place.folder, "runs", "list", "--json", "--runs-root", str(root)).expect(0)
        problems = [run["problem"] for run in json.loads(left.text)["runs"]]
        check(sum(problem is None for problem in problems) == 1, f"the other run is not listed: {problems}")
        return
    if what == "catalogue":
        sqlite3.connect(path).executescript(f"CREATE TABLE runs(x); PRAGMA user_version={version};")
        check_catalogue(root)
        return
    if what == "folder":
        path.mkdir()
    breaking: dict[str, Callable[[], None]] = {
        "size": lambda: limit(resource.RLIMIT_FSIZE, version),
        "folder": lambda: None,
    }
    left = in_child(
        lambda: (breaking[what](), [list(each) for each in listed(root)])[1], place.folder
    ).expect(0)
    check(left.value == [list(each) for each in truth(root)], f"a wrong list: {left.value}")
