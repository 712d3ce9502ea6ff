"""E1: one byte of one file of a comparison changes: no verdict, export or listing differs in silence."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apoint.engine import loop
from apoint.store import find_runs
from faults.breaking import Left
from faults.group import Failure, Place, check, draws, group
from faults.laboratory import TINY, cli, write_recipe

CASES = 2000
COMPARED = {**TINY, "optimizer": {"name": "adamw", "lr": 1e-4}}  # the candidate is clearly better
CHANGE = ("--change", "optimizer.lr=1e-2", "--looks", "6", "--engine", "loop")
MARGIN = ("--margin", "0.05")  # without it, the baseline's spread gives the margin
STUDIES = ("given", "pilot", "given interrupted", "pilot interrupted")
KINDS = (
    "metrics.jsonl", "events.jsonl", "status.json", "env.json", "resolved.yaml", "recipe.yaml", "lock",
    "manifest.json", "state.json", "model.safetensors", "optimizer.safetensors", "declaration.json",
    "result.json", "seal.json", "baseline.yaml", "candidate.yaml", "catalogue.sqlite",
    "examples.safetensors", "other",
)  # fmt: skip


def compare(folder: Path, *rest: str, margin: bool = True, **options: Any) -> Left:
    """The comparison, into `folder/runs`; the recipe lies beside it."""
    path = write_recipe(folder, COMPARED)
    command = [
        "compare",
        str(path),
        *CHANGE,
        *(MARGIN if margin else ()),
        "--runs-root",
        str(folder / "runs"),
    ]
    return cli(folder, *command, "--quiet", "--json", *rest, **options)


def stop_after(steps: int) -> Callable[[], None]:
    """Ends a process politely after so many steps of whatever it trains."""

    def install() -> None:
        original, made = loop.training_step, [0]

        def stepping(*rest: Any) -> float:
            made[0] += 1
            if made[0] == steps:
                os.kill(os.getpid(), signal.SIGTERM)
            return original(*rest)

        loop.training_step = stepping

    return install


def listing(folder: Path) -> tuple[dict[str, Any], str]:
    """What `runs list` says of each run, without times; and all that it printed."""
    left = cli(folder, "runs", "list", "--json", "--runs-root", str(folder / "runs"))
    if left.code:
        return {}, left.text
    try:
        runs = json.loads(left.text[left.text.index("{") :].splitlines()[0])["runs"]
    except ValueError:
        return {}, left.text
    kept = ("name", "changes", "seed", "state", "step", "total_steps", "metrics", "problem")
    return {Path(run["folder"]).name: {key: run.get(key) for key in kept} for run in runs}, left.text


def exported(folder: Path, names: list[str]) -> tuple[list[list[str]], Left]:
    """The rows of the CSV file of some runs, and how the command ended."""
    path = folder / "out.csv"
    left = cli(
        folder, "export", "csv", *names, "--to", str(path), "--force", "--runs-root", str(folder / "runs")
    )
    with path.open(newline="") if left.code == 0 else open(os.devnull) as stream:
        return list(csv.reader(stream)), left


def verdict_of(left: Left) -> Any:
    """What a comparison found, without times, costs and places."""
    result = json.loads(left.text[left.text.index('{"') :].splitlines()[0])
    return {"verdict": result["verdict"], "runs": [arm["runs"] for arm in result["arms"]]}


def comparisons(folder: Path) -> None:
    """Prepare: comparisons with a given or a pilot margin, finished or interrupted, and what they say."""
    for kind in ("given", "pilot"):
        (folder / kind).mkdir()
        truth = verdict_of(compare(folder / kind, margin=kind == "given").expect(0))
        check(truth["verdict"]["outcome"] == "better", f"the verdict is {truth['verdict']['outcome']}")
        shutil.copytree(folder / kind, folder / f"{kind} interrupted", ignore=lambda *_: ["runs"])
        compare(folder / f"{kind} interrupted", margin=kind == "given", before=stop_after(130)).expect(143)
        for state in ("", " interrupted"):
            place = folder / f"{kind}{state}"
            names = sorted(run.folder.name for run in find_runs(place / "runs"))
            listed, rows = listing(place)[0], exported(place, names)[0]
            known = {"verdict": truth, "names": names, "listing": listed, "rows": rows}
            (place / "known.json").write_text(json.dumps(known))


def copy_of(source: Path, target: Path) -> None:
    """A copy whose files are links until `own` makes one its own; catalogues and locks are real copies."""

    def link(one: str, other: str) -> None:
        (shutil.copy2 if "catalogue" in one or one.endswith("jsonl") else os.link)(one, other)

    shutil.copytree(source, target, copy_function=link)


def change_byte(root: Path, kind: str, draw: random.Random) -> tuple[Path, str]:
    """Change one byte of a file of a kind; returns the file and what was done."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    chosen = [path for path in files if path.name == kind] or [
        path for path in files if path.name not in KINDS
    ]
    path = draw.choice(chosen or files)
    content = bytearray(path.read_bytes())
    place, before = draw.randrange(len(content)), content[0]
    before = content[place]
    options = [before ^ (1 << draw.randrange(8)), draw.choice(b"0123456789"), draw.randrange(256)]
    content[place] = next(byte for byte in (*draw.sample(options, 3), before ^ 1) if byte != before)
    stat = path.stat()
    path.unlink()
    path.write_bytes(content)
    os.chmod(path, stat.st_mode)
    return (
        path,
        f"{path.relative_to(root)} byte {place}: {bytes([before])!r} became {bytes([content[place]])!r}",
    )


def check_said(text: str, path: Path, root: Path, what: str) -> None:
    """Fail unless a text names the run folder or file that was damaged, and shows no traceback."""
    check("Traceback" not in text, f"{what}: a traceback: {text[-300:]}")
    names = {path.name, *path.relative_to(root).parts}
    check(
        any(name in text for name in names), f"{what} and it is not said: {text[-300:].strip() or 'nothing'}"
    )


@group(
    "E1",
    "one byte of one file changes: all kinds of files, of comparisons that are finished or interrupted",
    "list, CSV file and verdict are as before; or it is said which folder or file is damaged, and the "
    "verdict is refused or made again from the same values",
    [(KINDS[number % len(KINDS)], STUDIES[number // len(KINDS) % len(STUDIES)], seed)
     for number, seed in enumerate(draws("E1", CASES))],
    prepare=comparisons,
    seconds=200,
)  # fmt: skip
def changed_byte(place: Place, kind: str, which: str, seed: int) -> None:
    folder = place.folder / "study"
    copy_of(place.shared / which, folder)
    known = json.loads((folder / "known.json").read_text())
    path, what = change_byte(folder / "runs", kind, random.Random(seed))
    root = folder / "runs"
    _check_listing(folder, known, path, what)
    rows, left = exported(folder, known["names"])
    if rows != known["rows"]:
        check_said(left.text, path, root, f"{what}: the export differs (exit code {left.code})")
    left = compare(folder, margin=which.startswith("given"))
    if left.code:
        check_said(left.text, path, root, f"{what}: exit code {left.code}")
        return
    found = verdict_of(left)
    if found != known["verdict"]:
        raise Failure(f"{what}: the verdict differs: {_told(found)} instead of {_told(known['verdict'])}")


def _check_listing(folder: Path, known: dict[str, Any], path: Path, what: str) -> None:
    listed, text = listing(folder)
    for name in {*listed, *known["listing"]}:
        now, before = listed.get(name), known["listing"].get(name)
        if now and before and now["state"] == "unknown":  # that is said; what was measured must not differ
            kept = ("name", "changes", "seed", "metrics")
            now, before = ({key: each[key] for key in kept} | {"problem": ""} for each in (now, before))
        if now != before and not (now and now["problem"]):
            check_said(
                text.replace(name, "") if now else text, path, folder / "runs", f"{what}: the list differs"
            )


def _told(found: dict[str, Any]) -> str:
    verdict = found["verdict"]
    return f"{verdict['outcome']} {verdict['effect']:+.6g}"
