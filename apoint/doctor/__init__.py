"""Findings from probe readings and short trials, with ranges calibrated on healthy trainings.

patient.py      what is examined: model, data, loss, optimizer, training step
examples.py     data of any form; copies.py: what trials are made on
trial.py        a short training, watched closely; failure.py: what fails in a step, and where
examination.py  evidence, gathered when asked for
running.py data.py start.py code.py flow.py learning.py outcome.py     the stages, in this order
fitting.py      what would fit a model, loss or batch that fails; fit_model.py, fit_loss.py: the rules
diagnosis.py    all stages, and what explains what
finding.py      what is said; ranges.py, healthy.json: what is healthy
"""

from apoint.doctor.diagnosis import Diagnosis, diagnose, explained, undiagnosed
from apoint.doctor.failure import StepFailedError
from apoint.doctor.finding import Finding, StageState, Treatment
from apoint.doctor.patient import Patient, patient

__all__ = [
    "Diagnosis",
    "Finding",
    "Patient",
    "StageState",
    "StepFailedError",
    "Treatment",
    "diagnose",
    "explained",
    "patient",
    "undiagnosed",
]
