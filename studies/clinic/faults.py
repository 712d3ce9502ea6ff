"""Planted faults: a fault turns a healthy training into a sick one, and names the codes of its root cause.

    for patient in faulty("publication"):
        report = apoint.inspect(**patient.arguments())      # patient.fault, patient.accepted

Each fault lists the families that it is planted in, and says where it cannot be. What a fault does is in
`faults_data`, `faults_loss`, `faults_signal`, `faults_loop`, `faults_optimisation` and
`faults_generalisation`, in the order of an examination.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from studies.clinic.families import Family
from studies.clinic.patients import FIRST_SEED, Draft, Patient, Split, drawn
from studies.clinic.roster import BY_NAME

STAGES = ("data", "loss", "signal", "loop", "optimisation", "generalisation")
NUM_SEEDS: dict[Split, int] = {"calibration": 2, "publication": 3}
Planting = Callable[[Draft], None]


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        kind: Its name.
        stage: When in an examination it shows.
        accepted: The codes that name its root cause; the first is the exact one.
        families: Where it is planted, by name.
        plant: Writes it into a training.
        prepare: Done to the sick and to its healthy twin alike, such as choosing an optimizer that it hurts.
        defect: Why it is a fault even where training goes well; None where harm must be measured.
        elsewhere: What it does not apply to, and why.
    """

    kind: str
    stage: str
    accepted: tuple[str, ...]
    families: tuple[str, ...]
    plant: Planting
    prepare: Planting | None
    defect: str | None
    elsewhere: str

    def patient(self, family: Family, seed: int) -> Patient:
        """A family's training with the fault in it."""
        name = f"{self.kind}/{family.name}/{seed}"
        return Patient(
            name,
            family.architecture,
            family.dataset,
            seed,
            fault=self.kind,
            accepted=self.accepted,
            make=lambda: self._made(family, seed, planted=True),
        )

    def twin(self, family: Family, seed: int) -> Patient:
        """The same training without the fault."""
        name = f"twin of {self.kind}/{family.name}/{seed}"
        return Patient(
            name,
            family.architecture,
            family.dataset,
            seed,
            make=lambda: self._made(family, seed, planted=False),
        )

    def _made(self, family: Family, seed: int, planted: bool) -> Draft:
        draft = drawn(family, seed)
        if self.prepare is not None:
            self.prepare(draft)
        if planted:
            self.plant(draft)
        return draft


_FAULTS: dict[str, Fault] = {}


def fault(
    kind: str,
    *,
    on: str,
    accepted: tuple[str, ...] = (),
    prepare: Planting | None = None,
    defect: str | None = None,
    elsewhere: str = "",
) -> Callable[[Planting], Planting]:
    """Register a fault; `on` names families with spaces between; its code is the kind if none is given."""

    def registered(plant: Planting) -> Planting:
        stage = plant.__module__.rpartition("_")[2]
        families = tuple(on.split())
        assert kind not in _FAULTS
        assert stage in STAGES
        assert set(families) <= BY_NAME.keys(), f"{kind}: unknown {set(families) - BY_NAME.keys()}"
        _FAULTS[kind] = Fault(kind, stage, accepted or (kind,), families, plant, prepare, defect, elsewhere)
        return plant

    return registered


@cache
def faults() -> dict[str, Fault]:
    """All kinds of fault, in the order of an examination."""
    for stage in STAGES:
        import_module(f"studies.clinic.faults_{stage}")
    return dict(_FAULTS)


def faulty(split: Split) -> list[Patient]:
    """The sick patients of a split; no fault, family and seed is in both."""
    first, count = FIRST_SEED[split], NUM_SEEDS[split]
    return [
        kind.patient(BY_NAME[name], first + number)
        for number in range(count)
        for kind in faults().values()
        for name in kind.families
        if split in BY_NAME[name].splits
    ]
