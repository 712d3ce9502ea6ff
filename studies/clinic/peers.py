"""The clinic's patients before other checkers: torchmortem, torch-audit and neural-observatory.

    python -m studies.clinic.peers --split publication --out peers.jsonl [--results results.jsonl]

Each checker watches the first 120 steps of each patient's own training, with its default settings but for
one: torch-audit looks at every tenth step instead of every thousandth. An alarm is any finding at warning
level or above, whatever it says; torch-audit's remarks on speed and on redundant biases are left out, since
they concern no fault. So a checker is called right on a sick patient if it says anything at all. Beside them
stands the doctor, from the file that `studies.clinic.run` wrote: once by the same rule, and once by the
stricter one, that the cause be named.

The checkers live in an environment of their own (`make bench` sets it up), which is added to the path here.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from studies.clinic.datasets import Pair
from studies.clinic.patients import Patient, plain_step
from studies.clinic.pool import Record, read, work_through
from studies.clinic.rates import Share, alarms, by_kind, detected, healthy_of
from studies.clinic.run import SPLITS, everybody, identity, patients
from studies.clinic.training import batches

NUM_STEPS = 120
REMARKS = {"TA200", "TA201", "TA202", "TA203", "TA400"}
Watch = Callable[[Patient], list[str]]


def add_environment() -> None:
    """Make the checkers importable, after everything that is importable already."""
    root = Path(__file__).resolve().parents[2]
    for place in sorted(root.glob(".venv-bench/lib/python*/site-packages")):
        if str(place) not in sys.path:
            sys.path.append(str(place))


class Watched:
    """A patient's training, step by step."""

    def __init__(self, patient: Patient) -> None:
        arguments = patient.arguments()
        self.model: nn.Module = arguments["model"]
        self.optimizer: torch.optim.Optimizer = arguments["optimizer"]
        self.total_steps: int = arguments["total_steps"]
        self._arguments = arguments
        self._rates = [group["lr"] for group in self.optimizer.param_groups]

    def batches(self) -> Iterator[Pair]:
        """The batches of the first steps."""
        return batches(self._arguments["data"], self._arguments["batch_size"], NUM_STEPS, seed=0)

    def step(self, number: int, batch: Pair) -> float:
        """One update, with the schedule's rate."""
        scheduler, step = self._arguments["scheduler"], self._arguments["step"] or plain_step
        by_torch = hasattr(scheduler, "step")
        if scheduler is not None and not by_torch:
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * scheduler(number / self.total_steps)
        value: float = step(self.model, batch, self._arguments["loss"], self.optimizer)
        if by_torch:
            scheduler.step()
        return value


def torchmortem(patient: Patient) -> list[str]:
    """Categories of torchmortem's findings."""
    from torchmortem import Autopsy, Severity  # type: ignore[import-not-found]

    watched = Watched(patient)
    with Autopsy(watched.model, optimizer=watched.optimizer) as autopsy:
        for number, batch in enumerate(watched.batches()):
            autopsy.step(loss=watched.step(number, batch))
    report = autopsy.get_report()
    return [finding.category for finding in report.findings if finding.severity >= Severity.WARNING]


def torch_audit(patient: Patient) -> list[str]:
    """Rules that torch-audit finds broken."""
    from torch_audit import Severity, autopatch  # type: ignore[import-not-found]

    watched = Watched(patient)
    auditor = autopatch(watched.model, optimizer=watched.optimizer, every_n_steps=10, reporters=[])
    for number, batch in enumerate(watched.batches()):
        watched.step(number, batch)
    result = auditor.finish()
    loud = [finding.rule_id for finding in result.findings if finding.severity >= Severity.WARN]
    return [rule for rule in loud if rule not in REMARKS]


def observatory(patient: Patient) -> list[str]:
    """Analyses that neural-observatory calls warning or critical."""
    from neural_observatory import Observatory  # type: ignore[import-not-found]

    watched = Watched(patient)
    watcher = Observatory(watched.model)
    watcher.watch()
    for number, batch in enumerate(watched.batches()):
        watcher.step(step=number)
        watched.step(number, batch)
    watcher.stop()
    results = watcher.report().results
    return [result.analyzer_name for result in results if result.status.value in ("warning", "critical")]


CHECKERS: dict[str, Watch] = {
    "torchmortem": torchmortem,
    "torch-audit": torch_audit,
    "neural-observatory": observatory,
}


def examine(name: str) -> Record:
    """Show one patient to each checker; for a process of the pool."""
    add_environment()
    logging.disable(logging.CRITICAL)
    patient = everybody()[name]
    record: Record = {}
    for checker, watch in CHECKERS.items():
        torch.manual_seed(0)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            record[checker] = _said(watch, patient)
    return record


def _said(watch: Watch, patient: Patient) -> Any:
    """The distinct alarms, or how the checker failed."""
    try:
        return sorted(set(watch(patient)))
    except Exception as error:
        return {"crash": f"{type(error).__name__}: {error}"}


def spoke(record: Record, checker: str) -> bool:
    """Whether a checker raised an alarm; one that failed has said nothing."""
    return isinstance(record.get(checker), list) and bool(record[checker])


def comparison(peers: list[Record], ours: list[Record]) -> list[str]:
    """A table of false alarms and detections, over the patients that all have seen."""
    known = {record["name"]: record for record in ours}
    common = [record for record in peers if not known or record["name"] in known]
    lines = ["| checker | healthy with an alarm | sick with any alarm | sick with the cause named |"]
    lines.append("|---|---|---|---|")
    healthy, sick = healthy_of(common), [record for record in common if record["fault"] is not None]
    for checker in CHECKERS:
        false = Share(sum(spoke(record, checker) for record in healthy), len(healthy))
        found = Share(sum(spoke(record, checker) for record in sick), len(sick))
        lines.append(f"| {checker} | {false} | {found} | not judged |")
    if known:
        well, ill = ([known[record["name"]] for record in part] for part in (healthy, sick))
        false = Share(sum(bool(alarms(record)) for record in well), len(well))
        found = Share(sum(bool(alarms(record)) for record in ill), len(ill))
        lines.append(f"| apoint | {false} | {found} | {Share(sum(map(detected, ill)), len(ill))} |")
    return lines


def kinds(peers: list[Record], ours: list[Record]) -> list[str]:
    """For each kind of fault, of how many each checker said anything, and of how many we named the cause."""
    known = {record["name"]: record for record in ours}
    lines = [f"| fault | patients | {' | '.join(CHECKERS)} | apoint, cause named |"]
    lines.append("|---|" + "---|" * (len(CHECKERS) + 2))
    for kind, group in sorted(by_kind(peers).items()):
        spoken = [str(sum(spoke(record, checker) for record in group)) for checker in CHECKERS]
        seen = [known[record["name"]] for record in group if record["name"] in known]
        named = f"{sum(map(detected, seen))} of {len(seen)}" if seen else "–"
        lines.append(f"| {kind} | {len(group)} | {' | '.join(spoken)} | {named} |")
    return lines


def main() -> None:
    """Show the patients to the checkers, and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", choices=SPLITS, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results", type=Path, help="what `studies.clinic.run` wrote, to stand beside")
    parser.add_argument("--kind", nargs="*", help="kinds of fault, and `healthy`; all if not given")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th patient")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    names = [patient.name for patient in patients(options.split, options.kind)[:: options.every]]
    peers = work_through(names, examine, options.out, options.workers, identity)
    ours = read(options.results) if options.results else []
    print("\n".join([*comparison(peers, ours), "", *kinds(peers, ours)]))


if __name__ == "__main__":
    main()
