"""A comparison that is killed goes on to the same verdict and the same numbers, and leaves no process."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from apoint.store import find_runs

RECIPE: dict[str, Any] = {
    "name": "killed",
    "data": {"name": "digits", "limit": 320},
    "model": {"name": "mlp", "depth": 2, "width": 32, "dropout": 0.2},
    "optimizer": {"name": "adamw", "lr": 3e-3},
    "batch_size": 16,
    "epochs": 20,
}


def start(place: Path, engine: str, margin: str = "") -> subprocess.Popen[bytes]:
    """A comparison in a process of its own."""
    recipe = place / "base.yaml"
    recipe.write_text(json.dumps(RECIPE))
    command = [sys.executable, "-m", "apoint", "compare", str(recipe), "--change", "optimizer.lr=1e-4"]
    options = ["--runs-root", str(place / "runs"), "--engine", engine, "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (place / "log").open("ab") as log:
        return subprocess.Popen([*command, *options], stdout=log, stderr=log, env=environment)


def numbers(place: Path) -> dict[str, Any]:
    """What a comparison ended with, without times and costs."""
    (folder,) = (place / "runs" / "comparisons").iterdir()
    result = json.loads((folder / "result.json").read_text())
    assert result["state"] == "decided", (place / "log").read_text()
    return {"verdict": result["verdict"], "runs": [arm["runs"] for arm in result["arms"]]}


def descendants(pid: int) -> list[int]:
    """The processes below one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found += [int(entry.parent.name), *descendants(int(entry.parent.name))]
    return found


def killed_and_resumed(tmp_path: Path, engine: str, kills: int, draw: random.Random) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    begin = time.perf_counter()
    assert start(whole, engine).wait(600) == 0, (whole / "log").read_text()
    length = time.perf_counter() - begin
    struck = attempts = 0
    while struck < kills and attempts < 3 * kills:  # a machine that has become faster ends before the kill
        broken = tmp_path / f"broken-{attempts}"
        broken.mkdir()
        begin, attempts = time.perf_counter(), attempts + 1
        process = start(broken, engine)
        try:
            process.wait(draw.uniform(0.15, 0.95) * length)
            length = min(length, time.perf_counter() - begin)
        except subprocess.TimeoutExpired:
            below = descendants(process.pid)
            process.send_signal(signal.SIGKILL)
            process.wait()
            struck += 1
            deadline = time.monotonic() + 20  # one that is just starting notices when its imports are done
            while any(Path(f"/proc/{pid}").exists() and not zombie(pid) for pid in below):
                assert time.monotonic() < deadline, "a worker has outlived its parent"
                time.sleep(0.05)
        assert start(broken, engine).wait(600) == 0, (broken / "log").read_text()
        assert numbers(broken) == numbers(whole)
        for run in find_runs(broken / "runs"):
            assert (run.state, run.problems()) == ("finished", []), run.folder
    assert struck == kills, "the kills must strike"


def zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc to see processes")
def test_a_killed_comparison_goes_on(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, "pool", 1, random.Random(1))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["auto", "pool"])
def test_twenty_kills(tmp_path: Path, engine: str) -> None:
    killed_and_resumed(tmp_path, engine, 20 if engine == "auto" else 5, random.Random(2))
