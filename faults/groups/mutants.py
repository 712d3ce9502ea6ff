"""M: the suite itself. The product is broken on purpose, and the group that should notice has to fail.

The patches are made in the case's own process, from which all that it trains is forked.
"""

from __future__ import annotations

import contextlib
import html
from pathlib import Path
from typing import Any

from apoint import errors, plain_yaml
from apoint.engine import checkpoint, environment, loop, step
from apoint.store import lines, lock, status, write_manifest, writer
from faults.group import GROUPS, Case, Failure, Place, group, name_of


def _saved_in_place(run: Path, saved: checkpoint.Checkpoint) -> Path:
    """A save that writes where readers look."""
    folder = run / "checkpoints" / f"step-{saved.step:09d}"
    with checkpoint.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for kind, tensors in saved.tensors.items():
            content = checkpoint.safetensors.torch.save(checkpoint._detached(tensors))
            checkpoint._write(folder / f"{kind}.safetensors", content)
        state = {"step": saved.step, **saved.state}
        checkpoint._write(folder / "state.json", checkpoint.json.dumps(state).encode())
        write_manifest(folder)
    return folder


def _write_later(self: lines.LineWriter, row: dict[str, Any]) -> None:
    """A row that reaches the file only with forty others."""
    self._wait(lines.strict_json(row).encode() + b"\n")
    if self.num_waiting > 40:
        self._retry()


def _write_somehow(self: lines.LineWriter, data: bytes) -> int:
    """A refused row that is forgotten."""
    with contextlib.suppress(OSError):
        lines.os.write(self._handle, data)
    return len(data)


def _let_everybody_in(handle: int) -> bool:
    """A lock that holds nobody off; and the process that a status names is not looked at either."""
    writer.layout.check_free = lambda folder: None  # type: ignore[assignment]
    return True


def _retire_newest(run: Path, newest: Path) -> None:
    checkpoint.shutil.rmtree(newest)


def _reseed_by_clock(replica: Any, number: int, part: int) -> None:
    step.torch.default_generator.seed()


MUTANTS: dict[str, tuple[object, str, Any, str, list[Case]]] = {
    "checkpoints are not verified": (checkpoint, "verify", lambda *rest: [], "C4", []),
    "checkpoints are written in place": (
        checkpoint, "save", _saved_in_place, "C2", [("write", "SIGKILL", 3)]),
    "the newest checkpoint is retired": (checkpoint, "_retire", _retire_newest, "C6", []),
    "rows wait in memory": (lines.LineWriter, "write", _write_later, "S2", [("rows", 1), ("rows", 2)]),
    "refused rows are forgotten": (
        lines.LineWriter, "_try", _write_somehow, "S4", [("write", "ENOSPC", 8, False)]),
    "a dead process is not noticed": (
        status, "_is_dead_here", lambda values: False, "T3", [("process gone",)]),
    "every end is a failure": (
        writer, "_ending", lambda error: ("failed", ""), "T1", [("exit 0", "train")]),
    "neither lock nor lease holds": (
        lock, "_try_lock", _let_everybody_in, "W5", [("held", 7)]),
    "not finite is not guarded": (step, "guard", lambda *rest: None, "N1", [("loss", 4)]),
    "dropout follows the clock": (step, "reseed", _reseed_by_clock, "N2", [("mlp-dropout", 0)]),
    "keys are not compared": (environment, "differences", lambda *rest: [], "R5", [("code", "refuse")]),
    "training resumes from nothing": (
        checkpoint, "newest", lambda *rest: None, "R4", [("one after an epoch's end",)]),
    "tags are let through": (plain_yaml._Loader, "_refuse", lambda *rest: None, "X2", [("own tag",)]),
    "pages are not escaped": (
        html, "escape", lambda each, quote=True: each, "X5", [("inspection", "cause", 0)]),
    "terminals are not protected": (
        errors, "_STEERING", frozenset(), "X8", [("title", "name"), ("title", "reason")]),
    "a request to stop is not heard": (
        loop.Trainer, "_leave", lambda self, stop: None, "R1", [("mlp-dropout", 9, "SIGTERM")]),
}  # fmt: skip


def prepared(folder: Path) -> None:
    """Prepare: what the groups share that have to notice."""
    for name in {mutant[3] for mutant in MUTANTS.values()}:
        (folder / name).mkdir()
        if prepare := GROUPS[name].prepare:
            prepare(folder / name)


@group(
    "M1",
    "the product is broken in one place",
    "the group that watches this place fails",
    [(name,) for name in MUTANTS],
    prepare=prepared,
    seconds=300,
)
def mutant(place: Place, name: str) -> None:
    owner, attribute, broken, id, cases = MUTANTS[name]
    setattr(owner, attribute, broken)
    for number, case in enumerate(cases or GROUPS[id].cases[:3]):
        own = place.folder / str(number)
        own.mkdir()
        try:
            GROUPS[id].run(Place(own, place.shared / id), *case)
        except Exception:
            return
    raise Failure(f"nobody noticed: {id} passes {', '.join(map(name_of, cases))}")
