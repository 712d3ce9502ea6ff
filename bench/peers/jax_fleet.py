"""R small perceptrons trained at once with `jax.jit(jax.vmap(step))`: what a JAX user would write.

Prints the microseconds of one replica's step, the best of several blocks.

    python jax_fleet.py 32
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import json
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp

SIZES, BATCH, STEPS, BLOCKS = (64, 64, 64, 10), 32, 200, 7


def init(key):
    """He initialisation and AdamW's two averages."""
    keys = jax.random.split(key, len(SIZES) - 1)
    weights = [
        (jax.random.normal(k, (a, b)) * jnp.sqrt(2 / a), jnp.zeros(b))
        for k, a, b in zip(keys, SIZES[:-1], SIZES[1:], strict=True)
    ]
    zeros = jax.tree.map(jnp.zeros_like, weights)
    return weights, zeros, zeros


def loss_of(weights, x, y):
    """Mean cross-entropy."""
    for w, b in weights[:-1]:
        x = jax.nn.relu(x @ w + b)
    logits = x @ weights[-1][0] + weights[-1][1]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))


def step(state, number, index, inputs, targets, rate):
    """One AdamW step of one replica on its own batch."""
    weights, first, second = state
    loss, grads = jax.value_and_grad(loss_of)(weights, inputs[index], targets[index])
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
    c1, c2 = 1 - 0.9**number, 1 - 0.999**number
    weights = jax.tree.map(
        lambda w, m, v: w - rate * (m / c1 / (jnp.sqrt(v / c2) + 1e-8) + 0.01 * w), weights, first, second
    )
    return (weights, first, second), loss


@partial(jax.jit, donate_argnums=0)
def stacked_step(state, number, index, inputs, targets, rate):
    """The step of all replicas."""
    return jax.vmap(step, in_axes=(0, None, 0, None, None, 0))(state, number, index, inputs, targets, rate)


def main() -> None:
    """Time it."""
    replicas = int(sys.argv[1])
    key = jax.random.PRNGKey(0)
    inputs = jax.random.normal(key, (1437, 64))
    targets = jax.random.randint(key, (1437,), 0, 10)
    state = jax.vmap(init)(jax.random.split(key, replicas))
    rate = jnp.full((replicas,), 1e-3)
    orders = jax.random.randint(key, (STEPS, replicas, BATCH), 0, 1437)
    best = float("inf")
    for block in range(BLOCKS + 1):
        begin = time.process_time()
        for number in range(STEPS):
            state, loss = stacked_step(state, float(number + 1), orders[number], inputs, targets, rate)
            loss.tolist()  # as the engine does: the loss is looked at before the next step
        if block:
            best = min(best, (time.process_time() - begin) / STEPS / replicas)
    print(json.dumps({"microseconds": best * 1e6}))


if __name__ == "__main__":
    main()
