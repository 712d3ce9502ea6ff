"""Work over many patients in processes: one line of JSON each, resumable, nothing lost if a process dies."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

Record = dict[str, Any]
Work = Callable[[str], Record]
LONGEST = 900.0
"""After so many seconds a patient is given up, and recorded as such."""


def read(path: Path) -> list[Record]:
    """The records of a file; a last line that was cut off in the middle is left out."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def work_through(
    names: Iterable[str], work: Work, out: Path, workers: int = 2, about: Work | None = None
) -> list[Record]:
    """Do `work` for each name that has no record in `out` yet; returns all records of these names.

    Args:
        names: What to work through.
        work: Done in another process; what it returns is recorded, and what it raises as `crash`.
        out: The file of records, which is added to.
        workers: How many processes.
        about: Done here; what it returns is recorded for crashes too.
    """
    wanted = list(names)
    done = {record["name"] for record in read(out)}
    waiting = [name for name in wanted if name not in done][::-1]
    out.parent.mkdir(parents=True, exist_ok=True)
    _end_cut_line(out)
    progress = _Progress(len(waiting))
    hands = [_Hand(work) for _ in range(min(workers, len(waiting)))]
    try:
        with out.open("a") as file:
            while waiting or any(hand.name for hand in hands):
                for hand in hands:
                    if hand.name is None and waiting:
                        hand.start(waiting.pop())
                for record in _finished(hands):
                    record |= about(record["name"]) if about else {}
                    file.write(json.dumps(record) + "\n")
                    file.flush()
                    progress.count(record)
    finally:
        for hand in hands:
            hand.stop()
    kept = {record["name"]: record for record in read(out)}
    return [kept[name] for name in wanted if name in kept]


def _end_cut_line(out: Path) -> None:
    """Close a line that an interruption left open, so that the next record begins on its own."""
    if out.exists() and out.read_bytes()[-1:] not in (b"", b"\n"):
        with out.open("a") as file:
            file.write("\n")


def _finished(hands: list[_Hand]) -> list[Record]:
    busy = [hand for hand in hands if hand.name is not None]
    wait([hand.pipe for hand in busy], timeout=1.0)
    return [record for hand in busy if (record := hand.result()) is not None]


@dataclass
class _Hand:
    """One process that does one patient after the other, and is replaced when it dies."""

    work: Work
    name: str | None = None
    began: float = 0.0
    process: BaseProcess | None = None
    pipe: Connection = field(init=False)

    def start(self, name: str) -> None:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=_serve, args=(self.work, theirs), daemon=True)
            self.process.start()
            theirs.close()
        self.name, self.began = name, time.monotonic()
        self.pipe.send(name)

    def result(self) -> Record | None:
        assert self.name is not None
        assert self.process is not None
        seconds = time.monotonic() - self.began
        record: Record | None = None
        if self.pipe.poll():
            try:
                record = self.pipe.recv()
            except EOFError:
                self.process.join()
                record = {"crash": f"the process died with exit code {self.process.exitcode}"}
                self.process = None
        elif seconds > LONGEST:
            record = {"crash": f"given up after {LONGEST:.0f} s"}
            self.stop()
        if record is None:
            return None
        record = {"name": self.name, **record, "seconds": round(seconds, 3)}
        self.name = None
        return record

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.join()
            self.process = None


def _serve(work: Work, pipe: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        try:
            record = work(name)
        except Exception as error:
            trace = traceback.format_exc().splitlines()[-12:]
            record = {"crash": f"{type(error).__name__}: {error}", "trace": trace}
        pipe.send(record)


class _Progress:
    """A line on the terminal: how many are done, and how long the rest will take."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.began = total, 0, time.monotonic()

    def count(self, record: Record) -> None:
        self.done += 1
        seconds = (time.monotonic() - self.began) / self.done * (self.total - self.done)
        rest = f"{seconds / 60:.1f} min left" if seconds >= 90 else f"{seconds:.0f} s left"
        crash = f"  CRASH {record['crash']}" if "crash" in record else ""
        print(f"{self.done}/{self.total}  {rest}  {record['name']}{crash}", file=sys.stderr, flush=True)
