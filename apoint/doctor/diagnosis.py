"""The whole examination: all stages, the cheap ones first, and which finding explains which.

A finding that follows from another one is listed separately, with its cause. Once something severe is
found, trials that would only show its consequences are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from apoint.doctor import code, data, flow, learning, outcome, ranges, running, start
from apoint.doctor.card import explains
from apoint.doctor.examination import Examination
from apoint.doctor.failure import StepFailedError, said
from apoint.doctor.finding import STAGES, Finding, StageState
from apoint.doctor.patient import Patient
from apoint.errors import ApointError
from apoint.probes import Reading

Stage = Callable[[Examination], Iterator[Finding]]
EXAMINATIONS: dict[str, Stage] = {
    "run": running.examine,
    "data": data.examine,
    "loss": start.examine,
    "code": code.examine,
    "signal": flow.examine_signal,
    "gradients": flow.examine_gradients,
    "optimisation": learning.examine,
    "generalisation": outcome.examine,
}
assert tuple(EXAMINATIONS) == STAGES


@dataclass
class Diagnosis:
    """What an examination found.

    Attributes:
        findings: What is wrong, the most probable cause first.
        follows: Other findings, which follow from one of these, each with the code that explains it.
        signs: The evidence: every number that was checked, by name.
        places: The layers in which signs were seen.
        readings: What the probes measured.
        unchecked: What was not checked, with the reason.
        curves: Curves of the short training runs, for plotting: losses, and gradients and updates by layer.
        seconds: How long each stage took.
        stages: Which stages ran, which were skipped and which failed, and why.
    """

    findings: list[Finding] = field(default_factory=list)
    follows: list[tuple[Finding, str]] = field(default_factory=list)
    signs: dict[str, float] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)
    unchecked: dict[str, str] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    stages: dict[str, StageState] = field(default_factory=dict)


def diagnose(
    patient: Patient, quick: bool = False, thorough: bool = False, say: Callable[[str], None] | None = None
) -> Diagnosis:
    """Examine a patient.

    Args:
        patient: The patient.
        quick: Skip what takes a long time.
        thorough: Gather all evidence even after a severe finding, as calibration needs it.
        say: Called with what is being checked.
    """
    exam = Examination(patient, quick, thorough, say)
    found: list[Finding] = []
    seconds: dict[str, float] = {}
    for name, examine in EXAMINATIONS.items():
        exam.begin(name)
        cause = "" if thorough else _settles(exam, found, name)
        if cause:
            exam.leave_out(f"the stage {name}", cause)
            exam.skip(cause)
            continue
        begin = time.perf_counter()
        found += _stage(exam, name, examine)
        seconds[name] = time.perf_counter() - begin
    findings, follows = explained(found)
    return Diagnosis(
        [_weighed(finding) for finding in findings],
        follows,
        exam.signs,
        exam.places,
        exam.readings,
        exam.unchecked,
        exam.curves(),
        seconds,
        exam.stages,
    )


def undiagnosed(failure: StepFailedError) -> Diagnosis:
    """The diagnosis if no batch of the training data could be loaded."""
    why = f"there is no batch: {failure}"
    stages = {name: StageState("skipped", why) for name in STAGES} | {
        "run": StageState("failed", str(failure))
    }
    return Diagnosis(
        [running.unloaded(failure)],
        unchecked={f"the stage {name}": why for name in STAGES if name != "run"},
        stages=stages,
    )


def _stage(exam: Examination, name: str, examine: Stage) -> list[Finding]:
    found: list[Finding] = []
    try:
        found.extend(examine(exam))  # findings before an error are kept
    except Exception as error:  # a plain step has run before: this error is the examination's own
        why = str(error) if isinstance(error, ApointError) else said(error)
        exam.could_not(f"the stage {name}" if not found else f"the rest of the stage {name}", why)
    return found


def _settles(exam: Examination, found: list[Finding], stage: str) -> str:
    """Why a stage need not run, given the findings so far; empty if it should run."""
    if exam.broken and stage != "data":
        return f"no training step can be made ({exam.broken}); fix that first"
    severe = next((finding.code for finding in found if finding.level == "severe"), "")
    if severe and stage in ("optimisation", "generalisation"):
        return f"{severe} explains what would be seen there; fix it first"
    return ""


def explained(found: list[Finding]) -> tuple[list[Finding], list[tuple[Finding, str]]]:
    """Split findings into root causes, the most probable first, and those that follow from them."""
    roots: list[Finding] = []
    follows: list[tuple[Finding, str]] = []
    ordered = sorted(found, key=lambda one: (one.level == "note", STAGES.index(one.stage), -one.confidence))
    for place, finding in enumerate(ordered):
        causes = [other for number, other in enumerate(ordered) if number != place and other.level != "note"]
        by = next((other.code for other in causes if _is_cause(other, finding)), None)
        if by is not None:
            follows.append((finding, by))
        elif finding.code not in [root.code for root in roots]:
            roots.append(finding)
    return roots, follows


def _weighed(finding: Finding) -> Finding:
    """The finding with the confidence measured for its code in the clinic, if that is known.

    A rule's own confidence orders the findings; the confidence that a user reads was measured.
    """
    measured = ranges.trust(finding.code)
    return finding if measured is None else replace(finding, confidence=measured)


def _is_cause(cause: Finding, effect: Finding) -> bool:
    """Whether one finding explains another; if each could explain the other, the earlier stage does."""
    if not explains(cause.code, effect.code):
        return False
    mutual = explains(effect.code, cause.code)
    earlier = STAGES.index(cause.stage) < STAGES.index(effect.stage)
    same = STAGES.index(cause.stage) == STAGES.index(effect.stage)
    return not mutual or earlier or (same and cause.confidence > effect.confidence)
