"""The engine: a replica, its step, its loop, its checkpoints; `train` is the entry point."""

from apoint.engine.api import Options, load_model, train, train_document
from apoint.engine.cost import estimate
from apoint.engine.loop import Cadence, Moment, Trainer
from apoint.engine.predicting import Predictor
from apoint.engine.replica import Replica, assemble
from apoint.engine.signals import TrainingInterruptedError
from apoint.engine.step import NonFiniteError, training_step

__all__ = [
    "Cadence",
    "Moment",
    "NonFiniteError",
    "Options",
    "Predictor",
    "Replica",
    "Trainer",
    "TrainingInterruptedError",
    "assemble",
    "estimate",
    "load_model",
    "train",
    "train_document",
    "training_step",
]
