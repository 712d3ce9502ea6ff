"""E2: faults of the machine during a comparison are never evidence."""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults.breaking import Breaker, Child, Left, limit, memory_in_use, wait_until
from faults.group import Failure, Place, check, draws, group
from faults.groups.byte_changes import CHANGE, COMPARED, MARGIN, compare, verdict_of
from faults.laboratory import start_cli, write_recipe
from faults.running import descendants

CAUSES = {
    "ENOSPC": "full", "EIO": "input/output", "EROFS": "read-only", "EDQUOT": "quota",
    "EMFILE": "too many files", "MemoryError": "emory", "SIGKILL": "", "SIGTERM": "",
}  # fmt: skip
PHASES: dict[str, tuple[str, str]] = {  # operation, and what the path holds
    "create folder": ("open", "resolved.yaml"),
    "metrics append": ("write", "metrics.jsonl"),
    "events append": ("write", "events.jsonl"),
    "checkpoint save": ("write", "/checkpoints/"),
    "status write": ("write", "status.json"),
    "seal": ("write", "seal"),
    "result write": ("write", "result.json"),
}
ARMS = ("baseline", "candidate")


def whole_comparison(folder: Path) -> None:
    """Prepare: the comparison without a fault, and how the replicas of each arm are called."""

    left = compare(folder).expect(0)
    truth = verdict_of(left)
    arms = {arm: truth["runs"][number][0].rsplit("-", 1)[0] for number, arm in enumerate(ARMS)}
    (folder / "known.json").write_text(json.dumps({"verdict": truth, "arms": arms}))


def known(place: Place) -> dict[str, Any]:

    values: dict[str, Any] = json.loads((place.shared / "known.json").read_text())
    return values


def check_stop(left: Left, truth: Any, cause: str) -> None:
    """Fail unless a disturbed comparison gave the true verdict, or none, with its cause."""
    check("Traceback" not in left.text, f"a traceback: {left.text[-300:].strip()}")
    if left.code == 0:
        found = verdict_of(left)
        if found["verdict"] != truth["verdict"]:
            told = " instead of ".join(_told(each["verdict"]) for each in (found, truth))
            parts = [key for key, value in truth["verdict"].items() if found["verdict"].get(key) != value]
            raise Failure(f"the verdict is {told} (other {', '.join(parts)}), with exit code 0")
        return
    check(
        left.code < 0 or cause in left.text, f"the cause ({cause}) is not named: {left.text[-300:].strip()}"
    )


def _told(verdict: dict[str, Any]) -> str:
    return f"{verdict['outcome']} {verdict['effect']:+.6g}"


def check_again(place: Place, truth: Any) -> None:
    """Fail unless the same command now finishes with the true verdict."""
    found = verdict_of(compare(place.folder).expect(0))
    check(
        found == truth,
        f"afterwards the verdict is {found['verdict']['outcome']} {found['verdict']['effect']}",
    )


@group(
    "E2",
    "each fault (full, broken, read-only, quota, files, memory, signals) in each phase of a replica, "
    "for both arms, once or lasting; limits of file size and memory; killed workers",
    "no verdict other than the undisturbed one; a stop names its cause; afterwards the same command "
    "finishes with that verdict",
    [("call", *case) for case in itertools.product(CAUSES, PHASES, ARMS, ("once", "lasting"))]
    + [("file size", 200 * 2 ** (number // 2), number, "", "") for number in range(20)]
    + [("memory", 2**20 * number, number, "", "") for number in range(0, 40, 2)]
    + [("worker", seed, "", "", "") for seed in draws("E2", 36)],
    prepare=whole_comparison,
    seconds=300,
)
def disturbed(place: Place, what: str, first: Any, second: Any, arm: str, lasts: str) -> None:
    facts = known(place)
    truth = facts["verdict"]
    if what == "worker":
        _kill_workers(place, truth, random.Random(first))
        return
    if what == "call":
        before, struck = _broken_call(place, first, second, facts["arms"][arm], lasts == "lasting")
        cause = CAUSES[first]
    elif what == "file size":
        before, struck, cause = (lambda: limit(resource.RLIMIT_FSIZE, first)), None, "file size"
    else:
        before, struck, cause = (lambda: limit(resource.RLIMIT_AS, memory_in_use() + first)), None, "emory"
    left = compare(place.folder, before=before)
    if struck:
        check(struck.exists(), f"nothing was written in the phase {second!r}; is there no such file yet?")
    check_stop(left, truth, cause)
    check_again(place, truth)


def _broken_call(
    place: Place, fault: str, phase: str, prefix: str, lasting: bool
) -> tuple[Callable[[], None], Path]:
    """Breaks the third call of a phase in the replicas of one arm, and leaves a sign that it did."""
    operation, part = PHASES[phase]
    struck = place.folder / "struck"
    folder = place.folder / "runs" / ("comparisons" if phase == "result write" else prefix)
    at = 1 if phase in ("result write", "create folder", "seal") else 3

    class Signing(Breaker):
        def _strike(self, path: str) -> None:
            if not self.struck:
                Path(struck).touch()
            super()._strike(path)

    return lambda: Signing(folder, fault, at, operation, part, lasting).install() and None, struck


def _kill_workers(place: Place, truth: Any, draw: random.Random) -> None:
    """Kill a worker of the pool one to three times."""
    path = write_recipe(place.folder, {**COMPARED})
    command = ["compare", str(path), *CHANGE[:-1], "pool", *MARGIN, "--workers", "2", "--quiet", "--json",
               "--runs-root", str(place.folder / "runs")]  # fmt: skip
    child = start_cli(place.folder, *command)
    for _ in range(draw.randrange(1, 4)):
        wait_until(lambda: child.ended or _busy(child), "a worker in training", 100)
        busy = _busy(child)
        if child.ended or not busy:
            break
        try:
            os.kill(draw.choice(busy), signal.SIGKILL)
        except ProcessLookupError:
            break
    check_stop(child.wait(150), truth, "SIGKILL")
    check_again(place, truth)


def _busy(child: Child) -> list[int]:
    """The workers that have been at work for a while."""
    found = []
    for pid in descendants(child.pid):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            lines = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue
        if "spawn_main" in lines and int(fields[11]) > 250:  # 2.5 s of computing: it has imported PyTorch
            found.append(pid)
    return found
