"""Replicas stacked in one computation: parameters with a leading replica axis.

    stackability.py whether replicas can share a stack
    rehearsal.py    whether their model's code can be run for all at once, and gives the same
    stack.py        the stack: parameters, buffers, optimizer memory, data and draws of all replicas
    step.py         one training step; passes.py: its forward and backward pass
    tape.py         a pass run again without its Python; made by recording.py, simplification.py, placing.py
    measure.py      one evaluation
    trainer.py      the loop and its checkpoints; seat.py: one replica's record
    session.py      the way in: several sessions, trained as one
    functions/      how single functions of PyTorch are computed for all replicas

The result of a replica does not depend on the other replicas, and equals its result when trained alone up to
rounding: each replica has its own order of examples, augmentations, dropout masks, clipping and
hyper-parameters.
"""

from apoint.engine.stacked.allocation import keep_freed_memory
from apoint.engine.stacked.errors import CannotStackError
from apoint.engine.stacked.measure import stacked_evaluate
from apoint.engine.stacked.memory import predicted_memory
from apoint.engine.stacked.session import Outcome, stack_session
from apoint.engine.stacked.stack import Stack
from apoint.engine.stacked.step import Stepped, stacked_step
from apoint.engine.stacked.trainer import StackMoment, StackTrainer

__all__ = [
    "CannotStackError",
    "Outcome",
    "Stack",
    "StackMoment",
    "StackTrainer",
    "Stepped",
    "keep_freed_memory",
    "predicted_memory",
    "stack_session",
    "stacked_evaluate",
    "stacked_step",
]
