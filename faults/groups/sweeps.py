"""W: a comparison or a search whose workers, or which itself, is killed ends as if nothing had happened."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apoint.engine import Options, loop
from apoint.engine.fleet import Fleet, Task
from apoint.engine.step import training_step
from apoint.recipe import load_recipe
from apoint.store import find_runs
from faults.breaking import Child, Left, in_child, wait_until
from faults.group import Place, check, draws, group
from faults.groups.status import deadly
from faults.laboratory import TINY, cli, start_cli, training, write_recipe
from tests.engine.fleet.common import disagreement, ends

REPLICAS = 6
LONGER = {**TINY, "epochs": 30}


def tasks_of(recipe: dict[str, Any], count: int) -> list[Task]:
    """Replicas of a recipe."""
    loaded, document = load_recipe(recipe)
    return [Task(loaded, document, seed) for seed in range(count)]


def train_fleet(root: Path, recipe: dict[str, Any], backend: str, count: int = REPLICAS, **rest: Any) -> None:
    """Train replicas; says how each ended."""
    with Fleet(Options(runs_root=root, checkpoint_every="20 steps"), backend, say=print, **rest) as fleet:
        for ended in fleet.train(tasks_of(recipe, count)):
            print(f"{ended.folder.name} {ended.state} {ended.reason}")


def undisturbed_fleet(folder: Path) -> None:
    """Prepare: the replicas of W1 and W2, trained by the loop."""
    in_child(lambda: train_fleet(folder / "runs", LONGER, "loop"), folder).expect(0)


def check_fleet(place: Place, root: Path) -> None:
    """Fail unless every replica is finished once, with the bits of the undisturbed one."""
    for twin in find_runs(place.shared / "runs"):
        folder = root / twin.folder.name
        check(ends(folder).count("finished") == 1, f"{folder.name} ended {ends(folder)}")
        found = disagreement(folder, twin.folder, events=False)
        check(not found, f"{folder.name} differs from the undisturbed one in {found}")


@group(
    "W1",
    f"a pool of two trains {REPLICAS} replicas, and one of its workers is killed at a random moment",
    "every replica ends exactly once, with the bits of the undisturbed one",
    [(seed,) for seed in draws("W1", 50)],
    prepare=undisturbed_fleet,
    seconds=300,
)
def killed_worker(place: Place, seed: int) -> None:
    root, struck = place.folder / "runs", place.folder / "struck"

    def work() -> None:
        draw = random.Random(seed)
        options = Options(runs_root=root, checkpoint_every="20 steps")
        with Fleet(options, "pool", workers=2, say=print) as fleet:
            threading.Thread(target=_kill_one, args=(fleet, draw, struck), daemon=True).start()
            for ended in fleet.train(tasks_of(LONGER, REPLICAS)):
                print(f"{ended.folder.name} {ended.state} {ended.reason}")

    in_child(work, place.folder, 240).expect(0)
    check(struck.exists(), "no worker was killed")
    check_fleet(place, root)


def _kill_one(fleet: Fleet, draw: random.Random, struck: Path) -> None:
    busy: list[int] = []
    while not busy:
        time.sleep(0.01)
        busy = [m.process.pid for m in list(fleet._pool._members) if m.group] if fleet._pool else []
    time.sleep(draw.uniform(0, 0.3))
    os.kill(draw.choice(fleet.processes), signal.SIGKILL)
    struck.touch()


@group(
    "W2",
    "one replica needs more memory than there is: an error of Python, of PyTorch, or of the kernel",
    "memory is named, no other replica is harmed, and once there is room the same call finishes all",
    itertools.product(("MemoryError", "memory", "address space", "SIGKILL"), range(5)),
    seconds=300,
)
def out_of_memory(place: Place, way: str, number: int) -> None:
    root, recipe = place.folder / "runs", deadly(place.folder, way)
    backend = "pool" if way == "SIGKILL" else "loop"
    rest = {"workers": 2} if backend == "pool" else {}
    left = in_child(lambda: train_fleet(root, recipe, backend, 3, **rest), place.folder, 200)
    check(not (place.folder / "sign").exists(), "the model did not get to its eighth step")
    check("Traceback" not in left.text, f"a traceback: {left.text[-500:]}")
    states = [run.state for run in find_runs(root)]
    check(states.count("failed") <= 1, f"others failed too: {states}")
    if way != "SIGKILL":
        check("emory" in left.text, f"memory is not named: {left.text}")
    in_child(lambda: train_fleet(root, recipe, backend, 3, **rest), place.folder, 200).expect(0)
    states = [run.state for run in find_runs(root)]
    check(states == ["finished"] * 3, f"in the end they are {states}")


# -- the controller is killed --------------------------------------------------------------------------------

COMPARE = ("--change", "optimizer.lr=1e-4", "--looks", "6", "--margin", "0.05")
IMPROVE = ("--candidate", "optimizer.lr=1e-2", "--candidate", "optimizer.lr=1e-4", "--only-mine",
           "--budget", "1h")  # fmt: skip


def command(kind: str, folder: Path) -> list[str]:
    """A comparison or a search of tiny replicas."""
    path = write_recipe(folder, TINY)
    settings = COMPARE if kind == "compare" else IMPROVE
    rest = ["--engine", "loop", "--runs-root", str(folder / "runs"), "--quiet"]
    return [kind, str(path), *settings, *rest]


def numbers(kind: str, folder: Path) -> Any:
    """What was found, without times and costs."""
    place = folder / "runs" / ("comparisons" if kind == "compare" else "improvements")
    found = [json.loads((each / "result.json").read_text()) for each in sorted(place.iterdir())]
    if kind == "compare":
        (result,) = found
        return {"verdict": result["verdict"], "runs": [arm["runs"] for arm in result["arms"]]}
    runs = sorted(run.folder.name for run in find_runs(folder / "runs"))
    return {"sentences": [each["sentence"] for each in found], "runs": runs}


def whole_studies(folder: Path) -> None:
    """Prepare: a comparison and a search that nobody disturbs."""
    for kind in ("compare", "improve"):
        (folder / kind).mkdir()
        cli(folder, *command(kind, folder / kind), seconds=300).expect(0)


@group(
    "W3",
    "SIGKILL of a comparison (30) or a search (20) at a random moment, then the same command again",
    "the same proposals, replicas and verdicts as undisturbed; no replica is trained to its end twice",
    [("compare", seed) for seed in draws("W3 compare", 30)]
    + [("improve", seed) for seed in draws("W3 improve", 20)],
    prepare=whole_studies,
    seconds=300,
)
def killed_study(place: Place, kind: str, seed: int) -> None:
    child = start_cli(place.folder, *command(kind, place.folder))
    time.sleep(random.Random(seed).uniform(0.05, 1.0 if kind == "compare" else 3.0))
    child.kill()
    child.wait()
    cli(place.folder, *command(kind, place.folder), seconds=200).expect(0)
    check(numbers(kind, place.folder) == numbers(kind, place.shared / kind), "other results than undisturbed")
    for run in find_runs(place.folder / "runs"):
        check(ends(run.folder) == ["finished"], f"{run.folder.name} ended {ends(run.folder)}")


# -- what always fails ---------------------------------------------------------------------------------------

FAILING = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, in_features, num_classes, how: str = "", width: int = 8):
        super().__init__()
        self.layer, self.how = nn.Linear(in_features, num_classes), how

    def forward(self, x):
        if self.training and self.how == "error":
            raise ValueError("made to fail")
        if self.training and self.how == "memory":
            torch.empty(2**48)
        factor = float("nan") if self.training and self.how == "nan" else 1.0
        return self.layer(x.flatten(1)) * factor
"""


@group(
    "W4",
    "a candidate that fails in every replica: an error, no memory, NaN; in a comparison and in a search",
    "it ends, the reason is named, the failing arm gets no more replicas than were planned, the baseline's "
    "replicas are sound",
    itertools.product(("error", "memory", "nan"), ("compare", "improve"), (0, 1)),
    seconds=300,
)
def always_failing(place: Place, how: str, kind: str, number: int) -> None:
    (place.folder / "net.py").write_text(FAILING)
    recipe = {**TINY, "model": {"file": str(place.folder / "net.py"), "class": "Net", "width": 8 + number}}
    path = write_recipe(place.folder, recipe)
    settings = ["--change", f"model.how={how}", "--looks", "6"] if kind == "compare" else [
        "--candidate", f"model.how={how}", "--only-mine", "--budget", "1h"]  # fmt: skip
    rest = ["--margin", "0.05", "--engine", "loop", "--runs-root", str(place.folder / "runs"), "--quiet"]
    left = cli(place.folder, kind, str(path), *settings, *rest, seconds=200)
    check("Traceback" not in left.text, f"a traceback: {left.text[-500:]}")
    runs = find_runs(place.folder / "runs")
    failing = [run for run in runs if f"how: {how}" in (run.folder / "resolved.yaml").read_text()]
    check(len(failing) <= 32, f"{len(failing)} replicas of what always fails")
    words = {"error": "made to fail", "memory": "memory", "nan": "not finite"}
    told = left.text + json.dumps([run.status.get("reason") for run in failing])
    check(words[how] in told, f"the reason is not named: {told[-400:]}")
    bad = [run.state for run in runs if run not in failing and run.state not in ("finished", "interrupted")]
    check(not bad, f"replicas of the baseline are {bad}")


# -- two at once ---------------------------------------------------------------------------------------------


@group(
    "W5",
    "a second process trains a replica that is in training (90), two begin at once (90), or make the same "
    "comparison (20)",
    "exactly one trains, the other is told or takes the result; same bits and verdict as one alone",
    [("held" if number % 2 else "train", seed) for number, seed in enumerate(draws("W5", 180))]
    + [("compare", seed) for seed in draws("W5 c", 20)],
    prepare=whole_studies,
    seconds=200,
)
def two_at_once(place: Place, kind: str, seed: int) -> None:
    delay = random.Random(seed).uniform(0, 0.3)
    if kind == "compare":
        children = [start_cli(place.folder, *command("compare", place.folder)) for _ in range(2)]
        for child in children:
            child.wait(150).expect(0)
        check(numbers(kind, place.folder) == numbers(kind, place.shared / kind), "another verdict")
        for run in find_runs(place.folder / "runs"):
            check(ends(run.folder) == ["finished"], f"{run.folder.name} ended {ends(run.folder)}")
        return
    root = place.folder / "runs"
    work: Callable[[], None] = training({**TINY, "name": "t"}, root)
    if kind == "held":
        left = _while_it_trains(place, work, 1 + seed % 18)
    else:
        children = [Child(work, place.folder)]
        time.sleep(delay)
        children.append(Child(work, place.folder))
        left = [child.wait() for child in children]
    for each in left:
        each.expect(0, 2)
        told = any(words in each.text for words in ("another process", "is being", "holds a run"))
        check(each.code == 0 or told, f"the second is told: {each.text}")
    check(any(each.code == 0 for each in left), f"nobody trained: {left}")
    (run,) = find_runs(root)
    check(ends(run.folder) == ["finished"], f"it ended {ends(run.folder)}")


def _while_it_trains(place: Place, work: Callable[[], None], step: int) -> list[Left]:
    """A second process comes while the first waits amid its steps, and ends before it goes on."""
    reached, over = place.folder / "reached", place.folder / "over"

    def waiting(replica: Any, number: int) -> float:
        if number == step:
            reached.touch()
            wait_until(over.exists, "the second process")
        return training_step(replica, number)

    def first() -> None:
        loop.training_step = waiting
        work()

    child = Child(first, place.folder)
    wait_until(lambda: reached.exists() or child.ended, "the first process")
    second = in_child(work, place.folder)
    over.touch()
    check(second.code != 0, "the second process trained too")
    return [child.wait(), second]
