"""Measurements of a model or a run, one file per quantity. A probe never changes what it measures.

    reading.py      what a probe gives back
    batch.py        batches of any form; subject.py: a model with its loss and a batch
    preserving.py   measuring without leaving a trace
    watching.py     every operation of a pass, functional ones too
    examples.py     gradients of single examples; hessian.py: second derivatives
    track.py        quantities along a run; observer.py, timetable.py: probes during training, within a budget

Every probe is a function of (model, batch, loss, …) and registered, so that recipes, `apoint inspect` and the
tests find it by name.
"""

from apoint.probes.adversarial import adversarial
from apoint.probes.batch import Batch, as_batch
from apoint.probes.calibration import calibration
from apoint.probes.concentration import concentration
from apoint.probes.curvature import hessian_trace, sharpness, spectrum
from apoint.probes.direction import gradient_direction
from apoint.probes.fisher import empirical_fisher_trace, fisher_trace
from apoint.probes.gap import generalisation_gap
from apoint.probes.gradients import gradient_norms
from apoint.probes.hull import convex_hull
from apoint.probes.noise import gradient_noise
from apoint.probes.observer import Observer, watch
from apoint.probes.path import distance, kernel_change
from apoint.probes.preserving import preserve_state
from apoint.probes.range_test import learning_rate_range
from apoint.probes.reading import Reading, undefined
from apoint.probes.shattering import shattering
from apoint.probes.shift import covariate_shift
from apoint.probes.signal import signal
from apoint.probes.slices import loss_slice
from apoint.probes.smoothness import smoothness
from apoint.probes.subject import ModelFailedError, Subject
from apoint.probes.track import Track
from apoint.probes.units import dead_units

__all__ = [
    "Batch",
    "ModelFailedError",
    "Observer",
    "Reading",
    "Subject",
    "Track",
    "adversarial",
    "as_batch",
    "calibration",
    "concentration",
    "convex_hull",
    "covariate_shift",
    "dead_units",
    "distance",
    "empirical_fisher_trace",
    "fisher_trace",
    "generalisation_gap",
    "gradient_direction",
    "gradient_noise",
    "gradient_norms",
    "hessian_trace",
    "kernel_change",
    "learning_rate_range",
    "loss_slice",
    "preserve_state",
    "sharpness",
    "shattering",
    "signal",
    "smoothness",
    "spectrum",
    "undefined",
    "watch",
]
