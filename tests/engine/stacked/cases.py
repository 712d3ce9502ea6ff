"""Recipes for stacks, replicas in float64, and the comparison of a stack with its replicas trained alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from apoint.data import Data, load
from apoint.engine import Replica, assemble, training_step
from apoint.engine.flat import FlatOptimizer
from apoint.engine.replica import flat_parameters, real_buffers
from apoint.engine.stacked import Stack, stacked_step
from apoint.recipe import load_recipe

STEPS = 8
DIGITS = {"name": "digits", "limit": 160}
IMAGES = {"name": "procedural", "num_train": 40, "num_test": 20, "size": 8, "channels": 3}
CHARS = {"name": "python-docs", "context": 8, "stride": 64, "limit": 80}
OWN = Path(__file__).parent / "own_models.py"

RECIPES: dict[str, dict[str, Any]] = {
    "mlp": {
        "data": DIGITS,
        "model": {
            "name": "mlp",
            "width": 16,
            "dropout": {"name": "linear", "start": 0.0, "end": 0.5},
            "input_dropout": 0.1,
        },
        "optimizer": {"name": "adamw", "lr": 3e-3},
        "schedule": {"name": "cosine", "warmup": "5 steps"},
        "clip": {"name": "norm", "limit": 1.0},
        "batch_size": 16,
        "steps": 20,
    },
    "cnn": {
        "data": {**DIGITS, "validation": 0.2},
        "augment": ["flip", {"name": "crop", "padding": 1}, {"name": "mix-up", "alpha": 0.2}],
        "deficits": [{"name": "blur", "end": "4 steps"}],
        "model": {"name": "cnn", "width": 4, "depth": 2, "norm": "batch", "dropout": 0.1},
        "optimizer": {"name": "momentum", "form": "sum", "lr": 0.05},
        "clip": {"name": "value", "limit": 0.05},
        "batch_size": 16,
        "steps": 20,
    },
    "char-transformer": {
        "data": CHARS,
        "model": {
            "name": "char-transformer",
            "depth": 2,
            "width": 16,
            "num_heads": 2,
            "dropout": 0.1,
            "stochastic_depth": 0.2,
            "stochastic_depth_mode": "sample",
        },
        "optimizer": {"name": "adamw", "lr": 3e-3},
        "clip": {"name": "norm", "limit": 1.0},
        "average": {"decay": 0.9, "begin": "10%"},
        "accumulate": 3,
        "batch_size": 16,
        "steps": 20,
    },
    "vit": {
        "data": IMAGES,
        "model": {"name": "vit", "depth": 1, "width": 16, "num_heads": 2, "patch_size": 4},
        "batch_size": 10,
        "steps": 20,
    },
    "resnet20": {
        "data": IMAGES,
        "model": {"name": "resnet20", "width": 4, "norm": "batch"},
        "optimizer": {"name": "nesterov", "lr": 0.01},
        "average": {"decay": 0.9},
        "batch_size": 10,
        "steps": 20,
    },
    "lstm": {
        "data": CHARS,
        "model": {"name": "lstm-lm", "width": 8, "dropout": 0.2, "tied": True},
        "optimizer": {"name": "lion", "lr": 1e-3},
        "batch_size": 10,
        "steps": 20,
    },
    "signals": {
        "data": {"name": "mnist-1d", "num_samples": 100},
        "model": {"name": "cnn", "width": 4, "depth": 3, "activation": "stochastic-gelu"},
        "batch_size": 10,
        "steps": 20,
    },
    "own": {
        "data": DIGITS,
        "model": {"file": str(OWN), "class": "Functional"},
        "optimizer": {"name": "sgd", "lr": 0.05},
        "batch_size": 16,
        "steps": 20,
    },
    "own-normed": {
        "data": DIGITS,
        "model": {"file": str(OWN), "class": "Normed"},
        "batch_size": 16,
        "steps": 20,
    },
    "own-columns": {
        "data": DIGITS,
        "model": {"file": str(OWN), "class": "Columns"},
        "batch_size": 16,
        "steps": 20,
    },
}


def build(recipe: dict[str, Any], seeds: Sequence[int] = range(3), double: bool = False) -> list[Replica]:
    """Replicas of a recipe, which share their data if it is the same."""
    return [one(recipe, seed, double=double) for seed in seeds]


def one(
    recipe: dict[str, Any], seed: int = 0, changes: dict[str, Any] | None = None, double: bool = False
) -> Replica:
    """One replica of a recipe with some changes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apoint.engine.replica.load", _load_once)
        replica = assemble(load_recipe(recipe, changes)[0], seed)
    return doubled(replica) if double else replica


def _load_once(spec: Any, **settings: Any) -> Data:
    key = json.dumps([spec, settings], sort_keys=True, default=str)
    if key not in _LOADED:
        _LOADED[key] = load(spec, **settings)
    return _LOADED[key]


_LOADED: dict[str, Data] = {}


def doubled(replica: Replica) -> Replica:
    """A replica in float64, where rounding is small enough to see anything else."""
    replica.model.double()
    replica.parameters = flat_parameters(replica.recipe, replica.model)
    replica.optimizer = FlatOptimizer(replica.optimizer.rule, replica.parameters)
    prepare = replica.stream.prepare
    if not prepare.tokens:
        for name in ("mean", "scale", "byte_scale", "byte_shift"):
            setattr(prepare, name, getattr(prepare, name).double())
    if replica.average_P is not None:
        replica.average_P = replica.parameters.weights_P.clone()
        replica.average_buffers = {name: b.clone() for name, b in real_buffers(replica.model).items()}
    return replica


def state(replica: Replica) -> dict[str, Tensor]:
    """Everything that training changes in a replica."""
    tensors = {f"weights {name}": p.detach() for name, p in replica.model.named_parameters()}
    tensors |= {f"buffer {name}": b for name, b in replica.model.named_buffers()}
    for slot, values_P in replica.optimizer.state().items():
        tensors |= {f"{slot} {name}": v for name, v in replica.parameters.named(values_P).items()}
    if replica.average_P is not None:
        tensors |= {f"average {n}": v for n, v in replica.parameters.named(replica.average_P).items()}
        tensors |= {f"average buffer {name}": b for name, b in replica.average_buffers.items()}
    return tensors


def snapshot(replica: Replica) -> dict[str, Tensor]:
    """A copy of `state`."""
    return {name: tensor.clone() for name, tensor in state(replica).items()}


def distance(one: dict[str, Tensor], two: dict[str, Tensor], kind: str) -> float:
    """The length of the difference of all tensors of a kind, relative to their own length."""
    assert one.keys() == two.keys()
    names = [name for name in one if name.startswith(kind)]
    difference = math.sqrt(sum(float((one[n].double() - two[n].double()).square().sum()) for n in names))
    length = math.sqrt(sum(float(two[n].double().square().sum()) for n in names))
    return difference / length if length > 0 else difference


def kinds(tensors: dict[str, Tensor]) -> list[str]:
    """Weights, buffers, each slot of the optimizer's memory, averages."""
    return sorted({name.partition(" ")[0] for name in tensors})


def compare(
    alone: Sequence[Replica],
    together: Sequence[Replica],
    tolerance: Callable[[str], float],
    steps: int = STEPS,
) -> None:
    """Train replicas alone and in a stack, and hold them to each other after each step."""
    stack = Stack(together)
    for step in range(steps):
        losses = [training_step(replica, step) for replica in alone]
        made = stacked_step(stack, step)
        assert not made.failures
        for row, (one, two) in enumerate(zip(losses, made.losses.values(), strict=True)):
            assert abs(one - two) <= tolerance("loss") * abs(one), (step, row)
        for row, replica in enumerate(alone):
            mine, its = state(stack.give_back(row)), state(replica)
            for kind in kinds(its):
                far = distance(mine, its, kind)
                assert far <= tolerance(kind), (step, row, kind, far)


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().numpy().tobytes()


def same_bits(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    """Whether two states are the same to the bit."""
    return one.keys() == two.keys() and all(_bytes(one[name]) == _bytes(two[name]) for name in one)
