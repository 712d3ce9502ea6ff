"""Shows that the healthy are healthy and that planted faults do harm, by plain trainings without the doctor.

python -m studies.clinic.health --split calibration --out health.jsonl
python -m studies.clinic.health --split publication --faults --out harm.jsonl
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from functools import cache
from pathlib import Path

from studies.clinic.faults import faults, faulty
from studies.clinic.patients import Split, healthy, of_family
from studies.clinic.pool import Record, work_through
from studies.clinic.roster import BY_NAME
from studies.clinic.training import Outcome, train

LEAST_SKILL = {"language": 0.15}
USUAL_SKILL = 0.45
LARGEST_LOSS = 0.7
WORSE_AT_THE_END = 1.25
FLUCTUATION = 0.1
LEAST_HARM = 0.05
SLOWER = 1.3
MORE_LOSS = 1.5
OTHER_LOSS = ("wrong-reduction", "target-shape")


def ailments(outcome: Outcome, task: str) -> list[str]:
    """Why a training would not be called healthy; nothing for a healthy one.

    It must have gone a good part of the way from chance to perfection on held-out data, have brought its loss
    well below the start, and not have a held-out loss far above its best on the way.
    """
    found = []
    least = LEAST_SKILL.get(task, USUAL_SKILL if task != "diabetes" else 0.3)
    if not outcome.skill >= least:
        found.append(f"skill {outcome.skill:.2f} < {least}")
    if not outcome.last_loss <= LARGEST_LOSS * outcome.first_loss:
        found.append(f"loss {outcome.first_loss:.2f} → {outcome.last_loss:.2f}")
    if not outcome.test_losses[-1] <= WORSE_AT_THE_END * min(outcome.test_losses) + FLUCTUATION:
        found.append(f"held-out loss {min(outcome.test_losses):.2f} → {outcome.test_losses[-1]:.2f}")
    return found


def examine_healthy(name: str) -> Record:
    """Train one healthy patient; for a process of the pool."""
    patient = next(p for split in ("calibration", "publication") for p in healthy(split) if p.name == name)
    outcome = train(patient)
    draft = patient.draft()
    task = patient.dataset if patient.dataset == "diabetes" else draft.task
    plan = f"{draft.plan.name} {draft.plan.lr:.1e} b{draft.batch_size} {draft.schedule} {draft.size}"
    return {**asdict(outcome), "skill": outcome.skill, "ailments": ailments(outcome, task), "plan": plan}


def harm(sick: Outcome, twin: Outcome, same_loss: bool = True) -> str | None:
    """How a fault hurts, against the same training without it; None where it does not.

    Losses are compared only where both are the same function.
    """
    if not math.isfinite(sick.last_loss):
        return "the loss is not finite"
    if sick.skill < twin.skill - LEAST_HARM:
        return f"skill {twin.skill:.2f} → {sick.skill:.2f}"
    if not same_loss:
        return None
    means = [sum(outcome.test_losses) / len(outcome.test_losses) for outcome in (twin, sick)]
    if means[1] > SLOWER * means[0] + FLUCTUATION:
        return f"mean held-out loss {means[0]:.2f} → {means[1]:.2f}"
    if sick.last_loss > MORE_LOSS * twin.last_loss + FLUCTUATION:
        return f"last loss {twin.last_loss:.2f} → {sick.last_loss:.2f}"
    return None


def examine_faulty(name: str) -> Record:
    """Train one sick patient and its twin; for a process of the pool."""
    kind, architecture, data, seed = name.split("/")
    family = f"{architecture}/{data}"
    fault = faults()[kind]
    sick = train(fault.patient(BY_NAME[family], int(seed)))
    well, task = _twin(kind if fault.prepare else None, family, int(seed))
    return {
        "sick": asdict(sick),
        "twin": asdict(well),
        "harm": harm(sick, well, kind not in OTHER_LOSS),
        "defect": fault.defect,
        "ailments": ailments(well, task),
    }


@cache
def _twin(kind: str | None, family: str, seed: int) -> tuple[Outcome, str]:
    """What comes of a twin, and its task; one twin stands for all faults that prepare nothing."""
    base = BY_NAME[family]
    twin = faults()[kind].twin(base, seed) if kind else of_family(base, seed)
    return train(twin), twin.dataset if twin.dataset == "diabetes" else twin.draft().task


def main() -> None:
    """Train a split's patients and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", choices=("calibration", "publication"), required=True)
    parser.add_argument("--faults", action="store_true", help="the sick and their twins, not the healthy")
    parser.add_argument("--kind", nargs="*", help="only these kinds of fault")
    parser.add_argument("--measured", action="store_true", help="without those that are faults by definition")
    parser.add_argument("--limit", type=int, help="only so many patients")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    split: Split = options.split
    chosen = faulty(split) if options.faults else healthy(split)
    chosen = [patient for patient in chosen if not options.kind or patient.fault in options.kind]
    if options.measured:
        chosen = [patient for patient in chosen if patient.fault and not faults()[patient.fault].defect]
    names = [patient.name for patient in chosen[: options.limit]]
    work, show = (examine_faulty, print_faulty) if options.faults else (examine_healthy, print_healthy)
    for record in work_through(names, work, options.out, options.workers):
        show(record)


def print_faulty(record: Record) -> None:
    """One line of the table of harm."""
    if "crash" in record:
        print(f"{record['name']:52} CRASH {record['crash']}")
        return
    verdict = record["harm"] or (f"by definition: {record['defect']}" if record["defect"] else "NO HARM")
    sick_twin = f"  TWIN: {'; '.join(record['ailments'])}" if record["ailments"] else ""
    print(f"{record['name']:52} {verdict}{sick_twin}")


def print_healthy(record: Record) -> None:
    """One line of the table."""
    if "crash" in record:
        print(f"{record['name']:36} CRASH {record['crash']}")
        return
    verdict = "; ".join(record["ailments"]) or "healthy"
    numbers = f"{record['first_loss']:6.2f} → {record['last_loss']:6.3f}  skill {record['skill']:5.2f}"
    print(f"{record['name']:36} {numbers}  {record['seconds']:5.1f} s  {verdict}  ({record['plan']})")


if __name__ == "__main__":
    main()
