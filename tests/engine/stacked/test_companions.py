"""Replicas leave a stack without disturbing those that stay."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from apoint.engine import NonFiniteError, Replica, training_step
from apoint.engine.stacked import Stack, stacked_evaluate, stacked_step
from tests.engine.stacked.cases import RECIPES, build, distance, kinds, same_bits, snapshot, state

BASE: dict[str, Any] = {
    **RECIPES["mlp"],
    "optimizer": {"name": "momentum", "lr": 0.05},
    "average": {"decay": 0.9},
    "schedule": "constant",
}


def poison(replica: Replica, value: float) -> Replica:
    """A replica one of whose weights is not a number a computer can hold on to."""
    with torch.no_grad():
        replica.model.get_parameter("head.weight")[0, :] = value
    return replica


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e38])
def test_an_exploding_replica_leaves_and_the_others_do_not_notice(value: float) -> None:
    replicas = build(BASE)
    poison(replicas[1], value)
    stack, without = Stack(replicas), Stack([build(BASE)[i] for i in (0, 2)])
    before = snapshot(replicas[1])
    made = stacked_step(stack, 0)
    assert list(made.failures) == [1]
    assert list(made.losses) == [0, 2]
    assert stack.members == [0, 2]
    assert same_bits(state(replicas[1]), before), "the update was not made"
    stacked_step(without, 0)
    for step in range(1, 5):
        assert not stacked_step(stack, step).failures
        stacked_step(without, step)
    for row in (0, 1):
        mine, its = state(stack.give_back(row)), state(without.give_back(row))
        assert max(distance(mine, its, kind) for kind in kinds(its)) < 1e-6


@pytest.mark.parametrize("value", [math.inf, 1e38])
def test_it_is_told_as_for_a_replica_alone(value: float) -> None:
    stack = Stack([build(BASE, [3])[0], poison(build(BASE, [4])[0], value)])
    (error,) = stacked_step(stack, 2).failures.values()
    with pytest.raises(NonFiniteError) as alone:
        training_step(poison(build(BASE, [4])[0], value), 2)
    assert str(error) == str(alone.value)
    assert (error.step, error.tensor, error.examples) == (2, alone.value.tensor, alone.value.examples)
    assert error.loss == alone.value.loss or math.isnan(error.loss)


def test_a_gradient_that_is_not_finite_names_its_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finite loss with an infinite slope, in one replica of three."""
    import apoint.engine.stacked.step as module

    stack = Stack(build(BASE))
    receive = stack.parameters.receive

    def spoil(gradients: Any, add: bool) -> None:
        receive(gradients, add)
        stack.parameters.named(stack.parameters.gradients)["head.bias"][2, 3] = math.nan

    monkeypatch.setattr(stack.parameters, "receive", spoil)
    made = module.stacked_step(stack, 0)
    assert list(made.failures) == [2]
    assert made.failures[2].tensor == "the gradient of head.bias"
    assert math.isfinite(made.failures[2].loss)


def test_a_loss_that_is_not_finite_is_seen_though_its_gradient_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack(build(BASE))
    passes = stack.passes.__call__

    def overflowing(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor | None]:
        losses_R, *gradients = passes(x, y)
        assert losses_R is not None
        return [losses_R * torch.tensor([1.0, math.inf, 1.0]), *gradients]

    monkeypatch.setattr(stack, "passes", overflowing)
    made = stacked_step(stack, 0)
    assert list(made.failures) == [1]
    assert made.failures[1].tensor == "the loss"


def test_finite_gradients_whose_sum_overflows_are_no_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack(build({**BASE, "clip": {"name": "value", "limit": 1.0}}))
    receive = stack.parameters.receive

    def enlarge(gradients: Any, add: bool) -> None:
        receive(gradients, add)
        stack.parameters.gradients[0][1] = 3e38

    monkeypatch.setattr(stack.parameters, "receive", enlarge)
    assert not stacked_step(stack, 0).failures


def test_a_parameter_that_takes_no_part_has_gradient_0() -> None:
    parameters = Stack(build(BASE)).parameters
    ones = [torch.ones_like(leaf) for leaf in parameters.leaves.values()]
    parameters.receive(ones, add=False)
    parameters.receive([None, *ones[1:]], add=True)
    values = [view.unique().tolist() for view in parameters.named(parameters.gradients).values()]
    assert values == [[1.0], *[[2.0]] * (len(ones) - 1)]
    parameters.receive([None, *ones[1:]], add=False)
    values = [view.unique().tolist() for view in parameters.named(parameters.gradients).values()]
    assert values == [[0.0], *[[1.0]] * (len(ones) - 1)]


def test_one_norm_is_not_another() -> None:
    """A replica with a gradient a million times as long is clipped alone."""
    recipe = {**BASE, "optimizer": {"name": "sgd", "lr": 1.0}, "clip": {"name": "norm", "limit": 0.1}}
    alone, together = build(recipe), build(recipe)
    for replica in (alone[0], together[0]):
        replica.parameters.weights_P.mul_(100)
    stack = Stack(together)
    for replica in alone:
        training_step(replica, 0)
    before = [snapshot(replica) for replica in together]
    stacked_step(stack, 0)
    for row, replica in enumerate(alone):
        mine = state(stack.give_back(row))
        assert distance(mine, state(replica), "weights") < 1e-6
        moved = torch.stack([(mine[n] - before[row][n]).norm() for n in mine if n.startswith("weights")])
        assert float(moved.norm()) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("name", ["char-transformer", "resnet20", "cnn"])
def test_keep_takes_everything_along(name: str) -> None:
    """Two of four go on as if they had been alone from the start."""
    recipe = RECIPES[name]
    stack, pair = Stack(build(recipe, range(4), double=True)), Stack(build(recipe, [3, 1], double=True))
    for step in range(3):
        stacked_step(stack, step)
        stacked_step(pair, step)
    stack.keep([3, 1])
    assert stack.members == [3, 1]
    for step in range(3, 6):
        made, its = stacked_step(stack, step), stacked_step(pair, step)
        assert list(made.losses.values()) == pytest.approx(list(its.losses.values()), rel=1e-10)
    for row in range(2):
        mine, theirs = state(stack.give_back(row)), state(pair.give_back(row))
        assert max(distance(mine, theirs, kind) for kind in kinds(theirs)) < 1e-10
    assert stacked_evaluate(stack, "test")[0] == pytest.approx(stacked_evaluate(pair, "test")[0], rel=1e-9)


def test_all_may_leave() -> None:
    stack = Stack([poison(replica, math.nan) for replica in build(BASE)])
    made = stacked_step(stack, 0)
    assert list(made.failures) == [0, 1, 2]
    assert not made.losses
    assert stack.members == []
    assert stack.num_replicas == 0
