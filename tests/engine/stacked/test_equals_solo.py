"""A replica in a stack makes the same steps as alone: losses, weights, buffers, memory, averages."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from apoint.engine import training_step
from apoint.engine.stacked import Stack, stacked_step
from tests.engine.stacked.cases import DIGITS, RECIPES, build, compare, distance, one, same_bits, state


@pytest.mark.parametrize("name", RECIPES)
def test_in_float64_to_rounding(name: str) -> None:
    """Rules that divide by the root of a square blow up the rounding of gradients that are truly 0."""
    recipe = RECIPES[name]
    compare(build(recipe, double=True), build(recipe, double=True), lambda kind: 1e-10)


@pytest.mark.parametrize("name", RECIPES)
def test_in_float32_to_a_tolerance(name: str) -> None:
    """Two steps: from then on rounding grows by the dynamics of training, which float64 is free of."""
    tolerances = {"loss": 2e-6, "weights": 1e-3, "average": 1e-3}
    compare(build(RECIPES[name]), build(RECIPES[name]), lambda kind: tolerances.get(kind, 1e-4), steps=2)


@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_replica_does_not_depend_on_how_many_companions_it_has(size: int) -> None:
    """The second replica of the largest stack, in stacks of other sizes."""
    recipe, seed = RECIPES["mlp"], 5
    alone, others = build(recipe, [seed], double=True), range(10, 10 + size - 1)
    stack = Stack(build(recipe, [*others, seed], double=True))
    for step in range(4):
        training_step(alone[0], step)
        stacked_step(stack, step)
    mine = state(stack.give_back(size - 1))
    assert all(distance(mine, state(alone[0]), kind) < 1e-12 for kind in ("weights", "average"))


DIFFERENT: dict[str, list[dict[str, Any]]] = {
    "adamw": [
        {"optimizer.lr": 1e-3},
        {"optimizer.lr": 1e-2, "optimizer.weight_decay": 0.3},
        {"optimizer.lr": 1e-2, "optimizer.weight_decay": 0.3},
        {"optimizer.beta1": 0.5, "clip.limit": 0.01},
        {"schedule": "cosine", "optimizer.weight_decay": 0.0},
        {"optimizer.l2": 0.2, "optimizer.weight_decay": 0.1},
    ],
    "lion": [{"optimizer.lr": 1e-3}, {"optimizer.lr": 1e-4, "optimizer.l2": 0.1}, {"clip.limit": 0.5}],
    "momentum": [{}, {"optimizer.momentum": 0.5}, {"optimizer.weight_decay": 0.2}, {"schedule": "cosine"}],
    "lookahead": [{}, {"optimizer.alpha": 0.9}, {"optimizer.lr": 0.01, "optimizer.weight_decay": 0.3}],
}


@pytest.mark.parametrize("rule", DIFFERENT)
def test_hyper_parameters_may_differ(rule: str) -> None:
    base = {**RECIPES["mlp"], "optimizer": {"name": rule}, "schedule": "constant"}
    replicas = [[one(base, 0, changes, double=True) for changes in DIFFERENT[rule]] for _ in range(2)]
    compare(*replicas, lambda kind: 1e-10)
    ends = [state(replica) for replica in replicas[0]]
    assert not same_bits(ends[0], ends[1]), "the changes must make a difference"


def test_every_replica_may_have_its_own_split_and_normalisation() -> None:
    recipe = {**RECIPES["mlp"], "data": {**DIGITS, "validation": 0.1}, "vary": ["init", "order", "split"]}
    alone, together = build(recipe, double=True), build(recipe, double=True)
    assert not torch.equal(alone[0].data.mean, alone[1].data.mean)
    compare(alone, together, lambda kind: 1e-10)


def test_splits_too_large_to_copy_are_gathered_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apoint.engine.stacked.batches.COPIED_BYTES", 0)
    test_every_replica_may_have_its_own_split_and_normalisation()


def test_replicas_that_share_their_data_gather_at_once() -> None:
    replicas = build(RECIPES["mlp"])
    assert Stack(replicas).stream.source.joined is replicas[0].data.train


def test_layouts_are_faithful_only_where_draws_need_it() -> None:
    faithful = {name: Stack(build(recipe, range(2))).model.faithful for name, recipe in RECIPES.items()}
    assert [name for name in RECIPES if faithful[name]] == ["own-columns"]


def test_streams_that_do_not_vary_are_those_of_seed_0() -> None:
    recipe = {**RECIPES["mlp"], "vary": ["init"]}
    stack = Stack(build(recipe))
    index_RB = stack.stream.indices(0)
    assert torch.equal(index_RB[0], index_RB[1])
    assert stack.draws.seeds == [0, 0, 0]


def test_a_stack_begins_where_its_replicas_are() -> None:
    """Replicas that have been trained already go on together."""
    alone, together = (
        build(RECIPES["char-transformer"], double=True),
        build(RECIPES["char-transformer"], double=True),
    )
    for step in range(3):
        for replica in (*alone, *together):
            training_step(replica, step)
    stack = Stack(together)
    for step in range(3, 6):
        for replica in alone:
            training_step(replica, step)
        stacked_step(stack, step)
    for row, replica in enumerate(alone):
        mine = state(stack.give_back(row))
        assert max(distance(mine, state(replica), kind) for kind in ("weights", "average", "square")) < 1e-10
