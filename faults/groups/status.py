"""T: what a run says of its state is true, however its process ended, and no process outlives its parent."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apoint.store import Run, find_runs
from apoint.store.status import STALLED_AFTER_SECONDS, lease, process_start, resolve
from faults.breaking import Child, in_child, wait_until
from faults.group import Place, check, draws, group
from faults.laboratory import TINY, cli, start_cli, training, write_recipe
from faults.running import descendants

DEADLY = """
import builtins, os, resource, signal, sys, time
from pathlib import Path
import torch
from torch import nn

SIGN = Path(__file__).with_name("sign")

def die(way):
    if way.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, way))
        time.sleep(0.2)
    if way.startswith("exit"):
        sys.exit(int(way.split()[1]))
    if way.startswith("_exit"):
        os._exit(int(way.split()[1]))
    if way == "memory":
        torch.empty(2**48)
    if way == "address space":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**20, resource.RLIM_INFINITY))
        torch.empty(2**28)
    if way == "recursion":
        def again():
            again()
        again()
    if way == "NaN":
        return float("nan")
    if way == "Infinity":
        return float("inf")
    if not way.startswith("SIG"):
        raise getattr(builtins, way)("made to fail")
    return 1.0

class Net(nn.Module):
    def __init__(self, in_features, num_classes, width: int = 8):
        super().__init__()
        self.layer = nn.Linear(in_features, num_classes)
        self.calls = 0

    def forward(self, x):
        factor = 1.0
        self.calls += self.training
        if self.training and self.calls == 8:
            try:
                way = SIGN.read_text()
                SIGN.unlink()
            except OSError:
                way = ""
            factor = die(way) if way else 1.0
        return self.layer(x.flatten(1)) * factor
"""
SIGNALS = (
    "SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP",
    "SIGSYS", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGKILL",
)  # fmt: skip
ERRORS = ("RuntimeError", "ValueError", "MemoryError", "OSError", "AssertionError", "KeyError")
OTHERS = ("exit 0", "exit 3", "_exit 0", "_exit 7", "KeyboardInterrupt", "memory", "address space",
          "recursion", "NaN", "Infinity")  # fmt: skip
WAYS = (*SIGNALS, *ERRORS, *OTHERS)
STATES = {
    **dict.fromkeys(SIGNALS, ("dead", "interrupted")),  # a signal that is caught may leave a checkpoint
    **dict.fromkeys(("SIGINT", "SIGTERM", "exit 0", "exit 3", "KeyboardInterrupt"), ("interrupted",)),
    **dict.fromkeys(("_exit 0", "_exit 7", "SIGKILL"), ("dead",)),
    **dict.fromkeys((*ERRORS, "memory", "address space", "recursion"), ("failed",)),
    **dict.fromkeys(("NaN", "Infinity"), ("diverged",)),
}
WORDS = {"memory": "memory", "address space": "memory", "recursion": "Recursion", "MemoryError": "Memory"}


def deadly(folder: Path, way: str) -> dict[str, Any]:
    """A recipe whose model ends its process at its eighth step, once."""
    (folder / "net.py").write_text(DEADLY)
    (folder / "sign").write_text(way)
    return {**TINY, "model": {"file": str(folder / "net.py"), "class": "Net"}, "epochs": 2}


def alive(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    return process_start(pid) is not None


@group(
    "T1",
    f"{len(WAYS)} ways to die in a step (signals, exits, errors, memory, NaN), in `train` and in a worker",
    "the state says how it ended, with the reason; no process is left; the same command then finishes",
    itertools.product(WAYS, ("train", "pool")),
    seconds=300,
)
def died(place: Place, way: str, launcher: str) -> None:
    recipe = deadly(place.folder, way)
    for name in SIGNALS[1:-1]:  # whoever started the suite may ignore some, as nohup does
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    (_died_alone if launcher == "train" else _died_in_pool)(place, recipe, way)


def _died_alone(place: Place, recipe: dict[str, Any], way: str) -> None:
    root = place.folder / "runs"
    left = in_child(training(recipe, root), place.folder)
    (run,) = find_runs(root)
    check(not (place.folder / "sign").exists(), "the model did not get to its eighth step")
    check(run.state in STATES[way], f"the state is {run.state} (exit code {left.code}): {left.text[-300:]}")
    if run.state == "failed":
        word = WORDS.get(way, way)
        check(word in str(run.status.get("reason")), f"the reason is {run.status.get('reason')!r}")
    if run.state == "diverged":
        return  # nothing to go on with
    in_child(training(recipe, root), place.folder).expect(0)
    check(Run(run.folder).state == "finished", f"after the second call it is {Run(run.folder).state}")


def _died_in_pool(place: Place, recipe: dict[str, Any], way: str) -> None:
    root, path = place.folder / "runs", write_recipe(place.folder, recipe)
    command = ["compare", str(path), "--change", "optimizer.lr=1e-4", "--looks", "6", "--margin", "0.05",
               "--engine", "pool", "--workers", "2", "--quiet", "--runs-root", str(root)]  # fmt: skip
    left = cli(place.folder, *command, seconds=200)
    check(not (place.folder / "sign").exists(), "the model did not get to its eighth step")
    check("Traceback" not in left.text, f"a traceback: {left.text[-500:]}")
    wait_until(lambda: not any(map(alive, descendants(os.getpid()))), "the last process to end", 20)
    states = {run.folder.name: run.state for run in find_runs(root)}
    check("running" not in states.values(), f"a run is still said to be running: {states}")
    if left.code == 0:
        bad = {state for state in states.values() if state not in ("finished", "failed", "diverged")}
        check(not bad, f"done, with replicas that are {bad}")


# -- parents that are killed ---------------------------------------------------------------------------------


@group(
    "T2",
    "SIGKILL of `train` (60) or of the parent of a pool (40) at a random moment",
    "the run is dead or was not begun, listing works, the same command finishes; no worker outlives it",
    [("train", seed) for seed in draws("T2 train", 60)] + [("pool", seed) for seed in draws("T2 pool", 40)],
    seconds=300,
)
def killed_parent(place: Place, what: str, seed: int) -> None:
    draw, root = random.Random(seed), place.folder / "runs"
    if what == "train":
        _kill_train(place, root, draw)
        return
    path = write_recipe(place.folder, {**TINY, "epochs": 400})
    command = ["compare", str(path), "--change", "optimizer.lr=1e-4", "--engine", "pool", "--workers", "2",
               "--looks", "6", "--margin", "0.05", "--quiet", "--runs-root", str(root)]  # fmt: skip
    child = start_cli(place.folder, *command)
    wait_until(lambda: descendants(child.pid) or child.ended, "the first worker")
    time.sleep(draw.uniform(0, 9))
    workers = descendants(child.pid)
    check(child.kill(), f"the comparison ended too early: {child.text}")
    child.wait()
    wait_until(lambda: not any(map(alive, workers)), "the workers to end after their parent was killed", 20)


def _kill_train(place: Place, root: Path, draw: random.Random) -> None:
    recipe = {**TINY, "epochs": 10}
    child = Child(training(recipe, root), place.folder)
    time.sleep(draw.uniform(0, 0.6))
    child.kill()
    child.wait()
    for run in find_runs(root):
        check(run.state in ("dead", "finished"), f"the state is {run.state}")
    left = cli(place.folder, "runs", "list", "--json", "--runs-root", str(root)).expect(0)
    problems = [run["problem"] for run in json.loads(left.text)["runs"]]
    check(not any(problems), f"the list has problems: {problems}")
    in_child(training(recipe, root), place.folder).expect(0)
    check([run.state for run in find_runs(root)] == ["finished"], "it is not finished in the end")


# -- time, and processes that are not what they seem ---------------------------------------------------------

DAY = 86_400.0
NOW = 2_000_000_000.0


def _status(**changes: Any) -> dict[str, Any]:
    return {"state": "running", **lease(), "heartbeat": NOW, **changes}


def _zombie() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    wait_until(lambda: not alive(pid), "a zombie")
    return pid


def _someone_else() -> int:
    time.sleep(0.05)  # starts are told apart by the clock's tick, a hundredth of a second
    return subprocess.Popen(["sleep", "100"]).pid


OLD = STALLED_AFTER_SECONDS + 1
SITUATIONS: dict[str, tuple[Callable[[], dict[str, Any]], float, str]] = {
    "just now": (lambda: _status(), 0, "running"),
    "no heartbeat for long": (lambda: _status(), OLD, "stalled"),
    "clock a day ahead": (lambda: _status(), DAY, "stalled"),
    "clock a day behind": (lambda: _status(), -DAY, "running"),
    "no heartbeat at all": (lambda: _status(heartbeat=None), 0, "running"),
    "heartbeat is text": (lambda: _status(heartbeat="x"), 0, "running"),
    "process gone": (lambda: _status(pid=2**22 - 3), 0, "dead"),
    "pid used by another": (lambda: _status(pid=_someone_else()), 0, "dead"),
    "pid used again, long ago": (lambda: _status(pid_start=1), 0, "dead"),
    "zombie": (lambda: _status(pid=_zombie()), 0, "dead"),
    "machine restarted": (lambda: _status(boot_id="other"), 0, "dead"),
    "machine restarted, pid gone": (lambda: _status(boot_id="other", pid=2**22 - 3), 0, "dead"),
    "other machine": (lambda: _status(host="elsewhere"), 0, "running"),
    "other machine, pid unknown here": (lambda: _status(host="elsewhere", pid=2**22 - 3), 0, "running"),
    "other machine, other boot": (lambda: _status(host="elsewhere", boot_id="x"), 0, "running"),
    "other machine, silent": (lambda: _status(host="elsewhere"), OLD, "stalled"),
    "pid is text": (lambda: _status(pid="x"), 0, "running"),
    "pid is negative": (lambda: _status(pid=-1), 0, "running"),
    "pid is huge": (lambda: _status(pid=10**30), 0, "dead"),
    "finished long ago": (lambda: _status(state="finished"), 10 * DAY, "finished"),
    "failed": (lambda: _status(state="failed", pid=1), 0, "failed"),
    "state is a number": (lambda: _status(state=3), 0, "unknown"),
    "nothing known": (dict, 0, "unknown"),
    "started without a start time": (lambda: _status(pid_start=None), 0, "running"),
}


@group(
    "T3",
    "SIGSTOP, a clock a day off, a pid used again, a restarted or another machine",
    "stalled or dead where that is so; a run that is only slow is never called dead",
    [(name,) for name in SITUATIONS] + [("SIGSTOP", seed) for seed in draws("T3", 6)],
)
def seeming(place: Place, name: str, seed: int = 0) -> None:
    if name != "SIGSTOP":
        make, later, expected = SITUATIONS[name]
        found = resolve(make(), NOW + later)
        check(found == expected, f"it is called {found}, not {expected}")
        return
    root, recipe = place.folder / "runs", {**TINY, "epochs": 20}
    child = Child(training(recipe, root), place.folder)
    wait_until(lambda: find_runs(root), "the run")
    time.sleep(random.Random(seed).uniform(0, 0.2))
    if child.kill(signal.SIGSTOP):
        (run,) = find_runs(root)
        for later, expected in ((0.0, {"running", "finished"}), (OLD, {"stalled", "finished"})):
            found = resolve(run.status, time.time() + later)
            check(found in expected, f"a stopped run is called {found}")
        child.kill(signal.SIGCONT)
    child.wait().expect(0)
