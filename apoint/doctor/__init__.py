"""Findings from probe readings and short trials, with ranges calibrated on healthy trainings.

patient.py      what is examined: model, data, loss, optimizer, training step
examples.py     data of any form; copies.py: what trials are made on
trial.py        a short training, watched closely
examination.py  evidence, gathered when asked for
data.py start.py code.py flow.py learning.py outcome.py     the stages, in this order
diagnosis.py    all stages, and what explains what
finding.py      what is said; ranges.py, healthy.json: what is healthy
"""

from apoint.doctor.diagnosis import Diagnosis, diagnose, explained
from apoint.doctor.finding import Finding, Treatment
from apoint.doctor.patient import Patient, patient

__all__ = ["Diagnosis", "Finding", "Patient", "Treatment", "diagnose", "explained", "patient"]
