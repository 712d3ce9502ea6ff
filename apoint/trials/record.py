"""The comparison folder: what a comparison leaves behind, so that it can be read, redrawn and resumed.

declaration.json   the rules, written before the first candidate is trained
baseline.yaml, candidate.yaml
fleet.json         how the replicas are trained; a comparison that goes on does it in the same way
result.json        the verdict so far with every look, replaced whole after each look
report.html        drawn from the above and from the run folders

The JSON files carry a hash of themselves and are rejected if they have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from apoint.engine.fleet import ExecutionPlan
from apoint.errors import DamagedError
from apoint.recipe import to_yaml
from apoint.store import write_atomically
from apoint.store.reader import exists
from apoint.store.sealed import read_sealed, write_sealed
from apoint.trials.arms import Arm, differences
from apoint.trials.declaration import Declaration
from apoint.verdict import Verdict

SCHEMA_VERSION = 1
RESULT, FLEET = "result.json", "fleet.json"
UNTUNED = "at the settings as written, neither arm tuned"


@dataclass
class ArmRecord:
    """The results of an arm's replicas, in seed order."""

    arm: Arm
    runs: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    core_seconds: float = 0.0
    from_cache: int = 0

    def failure_reasons(self, seeds: Sequence[int]) -> list[str]:
        """Why replicas did not finish, one phrase for each."""
        return [
            f"{self.arm.name}, seed {seed}: {reason or state}"
            for seed, state, reason in zip(seeds, self.states, self.reasons, strict=False)
            if state != "finished"
        ]

    def to_dict(self) -> dict[str, Any]:
        recipe = self.arm.recipe
        return {
            "name": self.arm.name,
            "recipe": recipe.name,
            "fingerprint": recipe.fingerprint,
            "runs": self.runs,
            "states": self.states,
            "reasons": self.reasons,
            "core_seconds": self.core_seconds,
        }


def write_recipes(folder: Path, arms: Sequence[Arm]) -> None:
    """Save the complete recipes next to the declaration."""
    for arm in arms:
        write_atomically(folder / f"{arm.name}.yaml", to_yaml(arm.recipe))


def result(
    *,
    name: str,
    state: str,
    verdict: Verdict,
    declaration: Declaration,
    arms: Sequence[ArmRecord],
    wall_seconds: float,
    fleet: str,
    reproduce: str,
) -> dict[str, Any]:
    """The contents of `result.json`."""
    baseline, candidate = (record.arm.recipe.canonical() for record in arms)
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "comparison",
        "name": name,
        "state": state,
        "label": UNTUNED,
        "sentence": verdict.sentence,
        "verdict": verdict.to_dict(),
        "declaration": declaration.to_dict(),
        "arms": [record.to_dict() for record in arms],
        "difference": differences(baseline, candidate),
        "cost": {
            "core_seconds": sum(record.core_seconds for record in arms),
            "wall_seconds": wall_seconds,
            "replicas": sum(len(record.runs) for record in arms),
            "from_cache": sum(record.from_cache for record in arms),
        },
        "fleet": fleet,
        "reproduce": reproduce,
    }


def write_result(folder: Path, values: dict[str, Any]) -> None:
    """Replace the result."""
    write_sealed(folder / RESULT, values)


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result saved in a folder, or None."""
    path = folder / RESULT
    return read_sealed(path) if exists(path) else None


def write_fleet(folder: Path, way: ExecutionPlan, sentence: str) -> None:
    """Save how the replicas are trained."""
    write_sealed(folder / FLEET, {"schema_version": SCHEMA_VERSION, **asdict(way), "sentence": sentence})


def read_fleet(folder: Path) -> tuple[ExecutionPlan, str] | None:
    """How the replicas were trained so far; None if none were."""
    path = folder / FLEET
    if not exists(path):
        return None
    values = read_sealed(path)
    try:
        return ExecutionPlan(values["backend"], values["workers"], values["stack"]), values["sentence"]
    except KeyError:
        raise DamagedError(f"{path} was written by another apoint; move the folder away") from None
