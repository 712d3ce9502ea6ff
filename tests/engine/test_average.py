"""The moving average of the weights: against PyTorch's, and its warm-up against the published formula."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from apoint.engine import Replica, training_step
from apoint.engine.replica import real_buffers
from apoint.engine.stacked import Stack, stacked_step
from apoint.engine.step import weight_in_average
from apoint.recipe import Average, load_recipe
from apoint.units import Horizon
from tests.engine.stacked.cases import RECIPES, build, one

RESNET = {**RECIPES["resnet20"], "average": {"decay": 0.9}}


def averaged(replica: Replica) -> dict[str, torch.Tensor]:
    assert replica.average_P is not None
    return {**replica.parameters.named(replica.average_P), **replica.average_buffers}


def check_same(mine: dict[str, torch.Tensor], theirs: torch.nn.Module) -> None:
    known = dict(theirs.named_parameters()) | real_buffers(theirs)
    assert mine.keys() == known.keys()
    for name, value in known.items():
        torch.testing.assert_close(mine[name], value.detach(), rtol=1e-12, atol=1e-14, msg=name)


def test_weights_and_running_statistics_are_averaged_as_by_pytorch() -> None:
    """PyTorch's first update copies; after that one, made before training, both follow one recursion."""
    replica = one(RESNET, double=True)
    peer = AveragedModel(replica.model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    peer.update_parameters(replica.model)
    for step in range(8):
        training_step(replica, step)
        peer.update_parameters(replica.model)
    check_same(averaged(replica), peer.module)
    assert any("running_mean" in name for name in replica.average_buffers)


def test_counters_are_not_averaged() -> None:
    replica = one(RESNET)
    for step in range(3):
        training_step(replica, step)
    assert not any("num_batches_tracked" in name for name in replica.average_buffers)
    assert all(value.is_floating_point() for value in replica.average_buffers.values())


@pytest.mark.parametrize("begin", ["0%", "3 steps", "30%"])
def test_a_warm_up_keeps_less_at_first(begin: str) -> None:
    changes: dict[str, Any] = {"average": {"decay": 0.4, "begin": begin, "warmup": True}, "steps": 10}
    replica = one(RESNET, changes=changes, double=True)
    first = {"0%": 0, "3 steps": 3, "30%": 3}[begin]
    expected = copy.deepcopy(averaged(replica))
    for step in range(10):
        training_step(replica, step)
        t = step - first
        kept = 0.0 if t < 0 else min(0.4, (1 + t) / (10 + t))
        now = dict(replica.model.named_parameters()) | real_buffers(replica.model)
        expected = {name: kept * expected[name] + (1 - kept) * now[name].detach() for name in expected}
    for name, value in averaged(replica).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-11, atol=1e-13, msg=name)
    assert (1 + 9) / (10 + 9) > 0.4 > 1 / 10, "both sides of the minimum were seen"


def test_the_warm_up_in_a_stack_is_that_of_its_replicas() -> None:
    recipe = {**RESNET, "average": {"decay": 0.8, "begin": "2 steps", "warmup": True}}
    alone, stack = build(recipe, range(2), double=True), Stack(build(recipe, range(2), double=True))
    for step in range(6):
        stacked_step(stack, step)
        for replica in alone:
            training_step(replica, step)
    for row, replica in enumerate(alone):
        mine = averaged(stack.give_back(row))
        for name, value in averaged(replica).items():
            torch.testing.assert_close(mine[name], value, rtol=1e-9, atol=1e-12)


def test_the_weight_is_a_function_of_the_step_alone_in_long_runs() -> None:
    """t must be the number of updates to the last one, whatever rounding does to progress."""
    total, begin = 1_251_117, 37
    average = Average.model_validate({"decay": 0.9999, "begin": f"{begin} steps", "warmup": True})
    for t in (0, 1, 2, 7, 1000, 89_989, 89_990, 1_000_003):
        weight = weight_in_average(average, Horizon(total, 1251), (begin + t) / total)
        assert weight == pytest.approx(1 - min(0.9999, (1 + t) / (10 + t)), rel=1e-12)
    assert weight_in_average(average, Horizon(total, 1251), (begin - 1) / total) == 1.0


def test_a_short_run_does_not_lag_with_a_warm_up() -> None:
    """With a decay of 0.999 and 20 updates, the average is the first weights, unless it warms up."""
    distances = {}
    for warmup in (False, True):
        replica = one(RESNET, changes={"average": {"decay": 0.999, "warmup": warmup}})
        start = replica.parameters.weights_P.clone()
        for step in range(20):
            training_step(replica, step)
        assert replica.average_P is not None
        moved = (replica.parameters.weights_P - start).norm()
        distances[warmup] = float((replica.average_P - replica.parameters.weights_P).norm() / moved)
    assert distances[False] > 0.9
    assert distances[True] < 0.4


def test_fingerprints_of_recipes_that_do_not_use_the_new_settings_stay() -> None:
    """Computed before there were `average.warmup` and `layer_decay`."""
    base = {"data": "digits", "model": "mlp"}
    assert load_recipe(base)[0].fingerprint == "c3765fe63aff"
    assert load_recipe({**base, "average": {"decay": 0.9}})[0].fingerprint == "514165781164"
    for change in ({"layer_decay": 0.75}, {"layer_decay": 1.0}):
        assert load_recipe({**base, **change})[0].fingerprint != "c3765fe63aff"
    warm = load_recipe({**base, "average": {"decay": 0.9, "warmup": True}})[0]
    assert warm.fingerprint != "514165781164"
    assert warm.canonical()["average"]["warmup"] is True
