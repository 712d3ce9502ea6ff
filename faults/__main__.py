"""`python -m faults`: run the fault suite, go on with it, or show what there is."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from faults import table
from faults.group import GROUPS, Case, Group, every_group, name_of, slice_of
from faults.laboratory import preload
from faults.ledger import RESULTS, ROOT, Ledger, Result
from faults.running import run_cases

DOCUMENT = ROOT / "docs" / "faults.md"


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; returns 1 if a case failed."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    importlib.import_module("faults.groups")
    groups = _chosen(options.only)
    if options.list:
        for group in groups:
            print(f"{group.id:<4} {len(group.cases):>5}  {group.fault}")
        print(f"     {sum(len(group.cases) for group in groups):>5}  cases")
        return 0
    preload()
    ledger = Ledger(options.results, options.fresh)
    wanted = [(group, case) for group in groups for case in slice_of(group.cases, options.share)]
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _run(wanted, ledger, options.workers)
    except KeyboardInterrupt:
        print("\nstopped; what is done is kept, and the same command resumes from there", file=sys.stderr)
        return 130
    finally:
        ledger.end_session(time.monotonic() - begun)
    return _report(wanted, ledger, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m faults", description="The fault suite.")
    parser.add_argument("--list", action="store_true", help="Show the groups and run nothing.")
    parser.add_argument("--only", default="", help="Groups such as R1,C4, or letters such as R,C.")
    parser.add_argument("--share", type=float, default=1.0, help="A fixed part of each group, such as 0.1.")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="Cases at a time.")
    parser.add_argument("--fresh", action="store_true", help="Forget all results and start over.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="Where results are kept.")
    parser.add_argument("--table", type=Path, help="Write the table there, also if it is incomplete.")
    return parser


def _chosen(only: str) -> list[Group]:
    names = [each.strip() for each in only.split(",") if each.strip()]
    for name in names:
        if not any(name in (id, id[0]) for id in GROUPS):
            raise SystemExit(f"there is no group {name!r}; known: {', '.join(GROUPS)}")
    return [group for group in every_group() if not names or {group.id, group.id[0]} & set(names)]


def _run(wanted: list[tuple[Group, Case]], ledger: Ledger, workers: int) -> None:
    missing = [(group, case) for group, case in wanted if not ledger.find(group, name_of(case))]
    if len(missing) < len(wanted):
        print(f"{len(wanted) - len(missing)} of {len(wanted)} cases are done already", file=sys.stderr)
    if missing:
        run_cases(missing, ledger, workers, Progress(len(missing)))
        print(file=sys.stderr)


class Progress:
    """Says how far it is, and each failure; cases come evenly mixed, so the rate holds for the rest."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.failed = total, 0, 0
        self.begun = self.told = time.monotonic()
        self.pause, self.lead = (1.0, "\r") if sys.stderr.isatty() else (30.0, "")

    def __call__(self, result: Result) -> None:
        if not self.done:  # what was prepared before the first case says nothing about the rest
            self.begun = time.monotonic() - result.seconds
        self.done += 1
        if result.reason:
            self.failed += 1
            print(f"{self.lead}{result.group} {result.case}: {result.reason[:300]}", file=sys.stderr)
        now = time.monotonic()
        if now - self.told >= self.pause or self.done == self.total:
            self.told = now
            remaining = (now - self.begun) / self.done * (self.total - self.done) / 60
            line = f"{self.lead}{self.done} of {self.total}, {self.failed} failed, {remaining:.1f} min left "
            print(line, end="" if self.lead else "\n", file=sys.stderr, flush=True)


def _report(wanted: list[tuple[Group, Case]], ledger: Ledger, options: argparse.Namespace) -> int:
    found = [result for group, case in wanted if (result := ledger.find(group, name_of(case)))]
    failed = [result for result in found if result.reason]
    print(f"{len(found)} cases, {len(failed)} failures")
    open_cases = sum(len(group.cases) - len(ledger.of(group)) for group in every_group())
    place = options.table or (DOCUMENT if not open_cases else None)
    if place:
        table.write(place, table.render(every_group(), ledger, options.workers))
        print(f"table: {place}")
    else:
        print(f"{DOCUMENT.relative_to(ROOT)} is left as it is: {open_cases} cases have not been run")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
