"""Measurements of a model or a run, one file per quantity. A probe never changes what it measures.

    reading.py      what a probe gives back
    batch.py        batches of any form; subject.py: a model with its loss and a batch
    aside.py        measuring without leaving a trace
    track.py        quantities along a run

Every probe is a function of (model, batch, loss, …) and registered, so that recipes, `apoint inspect` and the
tests find it by name.
"""

from apoint.probes.aside import aside
from apoint.probes.batch import Batch, as_batch
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import ModelFailedError, Subject
from apoint.probes.track import Track

__all__ = ["Batch", "ModelFailedError", "Reading", "Subject", "Track", "as_batch", "aside", "undefined"]
