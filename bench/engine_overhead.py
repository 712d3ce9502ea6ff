"""The engine's step against a hand-written loop of the same model on the same tensors in memory.

The hand-written loop is what a careful user writes: data as float tensors in memory, already
normalised, one permutation an epoch, `torch.optim.AdamW` with its fastest implementation for the CPU
as a second column. It has no guard against non-finite values, no schedule, no record.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from apoint.engine import Replica, assemble, training_step
from apoint.engine.arithmetic import exact_arithmetic
from apoint.recipe import load_recipe
from bench.timing import interleaved, table

STEPS = 60
COMMON = {
    "optimizer": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01},
    "exempt_from_decay": [],
    "epochs": 50,
}
CASES = {
    "MLP 64-64-64-10, digits, batch 32": {
        "data": "digits",
        "model": {"name": "mlp", "width": 64, "depth": 2},
        "batch_size": 32,
    },
    "MLP 256-512-512-10, procedural, batch 128": {
        "data": {"name": "procedural"},
        "model": {"name": "mlp", "width": 512, "depth": 2},
        "batch_size": 128,
    },
    "CNN, procedural 16x16, batch 64": {
        "data": {"name": "procedural"},
        "model": {"name": "cnn"},
        "batch_size": 64,
    },
    "ResNet-20, procedural 16x16, batch 32": {
        "data": {"name": "procedural"},
        "model": {"name": "resnet20"},
        "batch_size": 32,
    },
}


def engine_arm(replica: Replica) -> Callable[[], None]:
    """Steps of the engine."""
    position = 0

    def run() -> None:
        nonlocal position
        with exact_arithmetic(1, replica.device):
            for _ in range(STEPS):
                training_step(replica, position)
                position += 1

    return run


def by_hand_arm(replica: Replica, fused: bool) -> Callable[[], None]:
    """Steps of a hand-written loop; `replica` gives the model and the data."""
    model, data, batch_size = replica.model, replica.data, replica.recipe.batch_size
    parameters = [nn.Parameter(p.detach().clone()) for p in model.parameters()]
    for (name, _), fresh in zip(list(model.named_parameters()), parameters, strict=True):
        owner = model.get_submodule(name.rpartition(".")[0])
        setattr(owner, name.rpartition(".")[2], fresh)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01, fused=fused)
    inputs = replica.stream.prepare(data.train.inputs)
    if any(isinstance(module, nn.Conv2d) for module in model.modules()):
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    targets = data.train.targets
    order = torch.randperm(len(inputs))
    position = 0

    def run() -> None:
        nonlocal position, order
        for _ in range(STEPS):
            if position + batch_size > len(inputs):
                position, order = 0, torch.randperm(len(inputs))
            index = order[position : position + batch_size]
            position += batch_size
            loss = F.cross_entropy(model(inputs[index]), targets[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return run


def main() -> None:
    """Print milliseconds a step and the engine's overhead."""
    torch.set_num_threads(1)
    rows = []
    for title, case in CASES.items():
        recipe, _ = load_recipe({**COMMON, **case})
        arms = {
            "engine": engine_arm(assemble(recipe)),
            "loop": by_hand_arm(assemble(recipe), fused=False),
            "loop, fused": by_hand_arm(assemble(recipe), fused=True),
        }
        best = interleaved(arms, rounds=15)
        shown = "  ".join(f"{name} {seconds / STEPS * 1e3:.3f} ms" for name, seconds in best.items())
        over, over_fused = (best["engine"] / best[name] - 1 for name in ("loop", "loop, fused"))
        rows.append((title, f"{shown}  engine against loop {over:+.1%}, against fused {over_fused:+.1%}"))
    table("Engine against a hand-written loop (best of 15 interleaved rounds, one thread)", rows)
