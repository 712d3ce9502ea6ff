"""Predict how much memory a stack takes, before it is built."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from apoint.engine.replica import Replica, borrowed_randomness


def predicted_memory(replica: Replica, num_replicas: int) -> int:
    """The bytes that a stack of `num_replicas` replicas like this one takes besides the data, roughly.

    Each replica and its row in the stack both hold weights, gradients, the optimizer's state and, if there
    is one, the moving average; up to three further gradients exist at the same time. Added to these are
    buffers, and what autograd saves in a forward pass, which is measured on one part of a batch of this
    replica. It counts three times: gradients of activations exist alongside it, and the first steps are
    trials. For perceptrons, convolutional networks and transformers, the measured memory was 0.6 to 1.3
    times this prediction.

    Args:
        replica: A replica as returned by `assemble`; it is left unchanged.
        num_replicas: The number of replicas in the stack.
    """
    weights_P = replica.parameters.weights_P
    copies = 2 + len(replica.optimizer.rule.slots) + (replica.average_P is not None)
    parameters = weights_P.numel() * weights_P.element_size() * (2 * copies + 3)
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in replica.model.buffers())
    return num_replicas * (parameters + 3 * buffers + 3 * _activations(replica))


def _activations(replica: Replica) -> int:
    """The bytes that autograd saves in one forward pass, each piece of memory counted once."""
    index_b = replica.stream.indices(0).tensor_split(replica.recipe.accumulate)[0]
    x, y = replica.stream.batch(index_b, 0, 0.0)
    model = copy.deepcopy(replica.model).train()
    known = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    sizes = {x.untyped_storage().data_ptr(): x.numel() * x.element_size()}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with borrowed_randomness(0), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = replica.loss(model(x), y).sum()  # held, so that no two tensors get the same memory in turn
    del loss
    return sum(sizes.values())
