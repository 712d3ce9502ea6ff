"""How individual PyTorch functions are computed for all replicas at once.

    table.py           which functions are taken over, and the mode that finds their calls
    linear.py          linear maps: one batched product
    convolution.py     convolutions: one grouped convolution; pooling
    normalisation.py   batch and group norm: the channels of all replicas side by side
    reduction.py       means
    lookup.py          embeddings, attention
    randomness.py      everything random: each replica draws from its own generator

All others use the rules of `vmap`.
"""

from apoint.engine.stacked.functions.convolution import beside
from apoint.engine.stacked.functions.linear import linear
from apoint.engine.stacked.functions.lookup import attention, embedding
from apoint.engine.stacked.functions.normalisation import batch_norm, group_norm
from apoint.engine.stacked.functions.randomness import dropout
from apoint.engine.stacked.functions.reduction import mean
from apoint.engine.stacked.functions.table import TABLE, Interception, Scene

__all__ = [
    "TABLE",
    "Interception",
    "Scene",
    "attention",
    "batch_norm",
    "beside",
    "dropout",
    "embedding",
    "group_norm",
    "linear",
    "mean",
]
