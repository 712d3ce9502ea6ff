"""Findings from probe readings and short trials, with ranges calibrated on healthy training runs.

patient.py      what is examined: model, data, loss, optimizer, training step
examples.py     data in any form; copies.py: copies of the model and optimizer for trials
trial.py        a short training run, recorded in detail; failure.py: which part of a step fails, and where
examination.py  evidence, gathered on demand
running.py data.py start.py code.py flow.py learning.py outcome.py     the stages, in this order
fitting.py      fixes for a model, loss or batch that fails; fit_model.py, fit_loss.py: the rules
diagnosis.py    all stages, and which finding explains which
finding.py      what is reported; ranges.py, healthy.json: the healthy ranges
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
