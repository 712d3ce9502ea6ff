"""An evaluation of a stack gives for each replica what its own evaluation gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from apoint.engine import Replica
from apoint.engine.measure import evaluate
from apoint.engine.replica import real_buffers
from apoint.engine.stacked import Stack, stacked_evaluate, stacked_step
from tests.engine.stacked.cases import DIGITS, RECIPES, build, same_bits, snapshot, state

CASES: dict[str, dict[str, Any]] = {
    **RECIPES,
    "regression": {
        "data": {"name": "teacher", "num_samples": 200},
        "model": {"name": "mlp", "width": 8},
        "loss": "huber",
        "batch_size": 16,
        "steps": 20,
    },
    "one output": {
        "data": {"name": "moons", "num_samples": 200},
        "model": {"name": "mlp", "width": 8, "dropout": 0.2},
        "loss": "binary-cross-entropy",
        "batch_size": 16,
        "steps": 20,
    },
    "own splits": {
        **RECIPES["mlp"],
        "data": {**DIGITS, "validation": 0.2},
        "vary": ["init", "split"],
    },
    "average": {**RECIPES["resnet20"], "vary": ["init", "split"], "average": {"decay": 0.5}},
}


def by_itself(replica: Replica, split: str) -> dict[str, float]:
    task, prepare = replica.data.facts.task, replica.stream.prepare
    return evaluate(replica.model, replica.data.splits[split], task, replica.loss, prepare, replica.device)


@pytest.mark.parametrize("name", CASES)
def test_it_equals_the_evaluation_of_each(name: str) -> None:
    stack = Stack(build(CASES[name], double=True))
    for step in range(3):
        stacked_step(stack, step)
    for split in stack.replicas[0].data.splits:
        mine = stacked_evaluate(stack, split)  # type: ignore[arg-type]
        for row, values in enumerate(mine):
            its = by_itself(stack.give_back(row), split)
            assert list(values) == list(its)
            assert values == pytest.approx(its, rel=1e-9)
    assert mine[0] != mine[1]


def test_moving_averages_have_their_own_buffers() -> None:
    stack = Stack(build(CASES["average"], double=True))
    for step in range(3):
        stacked_step(stack, step)
    mine = stacked_evaluate(stack, "test", average=True)
    assert mine != stacked_evaluate(stack, "test")
    for row, values in enumerate(mine):
        replica = stack.give_back(row)
        assert replica.average_P is not None
        replica.parameters.weights_P.copy_(replica.average_P)
        for name, buffer in real_buffers(replica.model).items():
            buffer.copy_(replica.average_buffers[name])
        assert values == pytest.approx(by_itself(replica, "test"), rel=1e-9)


@pytest.mark.parametrize("name", ["cnn", "char-transformer"])
def test_it_changes_nothing(name: str) -> None:
    stack = Stack(build(RECIPES[name]))
    stacked_step(stack, 0)
    before = [snapshot(stack.give_back(row)) for row in range(3)]
    modes = [module.training for module in stack.model.template.modules()]
    generator = torch.get_rng_state()
    stacked_evaluate(stack, "test")
    assert all(same_bits(state(stack.give_back(row)), before[row]) for row in range(3))
    assert modes == [module.training for module in stack.model.template.modules()]
    assert torch.equal(torch.get_rng_state(), generator)


def test_inputs_that_all_share_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack(build(RECIPES["mlp"]))
    seen: list[tuple[int, ...]] = []
    own = stack.model.__class__.__call__

    def look(model: Any, x: torch.Tensor, leaves: Any, shared: bool = False) -> torch.Tensor:
        seen.append(tuple(x.shape))
        return own(model, x, leaves, shared)

    monkeypatch.setattr(stack.model.__class__, "__call__", look)
    stacked_evaluate(stack, "test")
    assert seen[0][0] == min(512, len(stack.replicas[0].data.test))
