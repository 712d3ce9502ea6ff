"""Learning rates that fall towards the input: against PyTorch with parameter groups, on every path."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import apoint
from apoint import optim
from apoint.engine import Replica, TrainingInterruptedError, training_step
from apoint.engine.flat import FlatOptimizer, FlatParameters
from apoint.engine.stacked import CannotStackError, Stack, stacked_step
from apoint.inspection.sources import torch_optimizer
from apoint.models.depth import layer_rates
from apoint.optim import exempt_from_decay
from apoint.registry import registry
from tests.engine.harness import difference, outcome
from tests.engine.stacked.cases import CHARS, IMAGES, RECIPES, build, compare, one, state

DECAY = 0.6
BASE: dict[str, Any] = {
    "data": IMAGES,
    "model": {"name": "resnet20", "width": 4, "norm": {"name": "group", "num_groups": 2}},
    "optimizer": {"name": "adamw", "lr": 3e-3, "weight_decay": 0.3},
    "schedule": {"name": "cosine", "warmup": "4 steps", "floor": 0.1},
    "layer_decay": DECAY,
    "batch_size": 10,
    "steps": 12,
}
PEERS = {
    "adamw": (
        {"name": "adamw", "lr": 3e-3, "weight_decay": 0.3},
        lambda groups: torch.optim.AdamW(groups, weight_decay=0.3),
    ),
    "sgd-momentum": (
        {"name": "momentum", "form": "sum", "lr": 0.05, "momentum": 0.9, "l2": 0.02},
        lambda groups: torch.optim.SGD(groups, momentum=0.9, weight_decay=0.02),
    ),
    "rmsprop": ({"name": "rmsprop", "lr": 1e-3, "eps": 1e-3}, lambda g: torch.optim.RMSprop(g, eps=1e-3)),
}


def groups_of(model: nn.Module, lr: float, decay: float) -> list[dict[str, Any]]:
    """A group for each parameter, as a user of PyTorch would write them; exempt ones without decay."""
    rates, exempt = layer_rates(model, decay), exempt_from_decay(model)
    return [
        {"params": [p], "lr": lr * rates[name], **({"weight_decay": 0.0} if name in exempt else {})}
        for name, p in model.named_parameters()
    ]


@pytest.mark.parametrize("name", PEERS)
def test_training_equals_pytorchs_with_groups_cosine_and_warmup(name: str) -> None:
    spec, make = PEERS[name]
    replica, twin = (one({**BASE, "optimizer": spec}, double=True) for _ in range(2))
    peer = make(groups_of(twin.model, 1.0, DECAY))
    for group in peer.param_groups:
        group["scale"] = group["lr"]
    for step in range(12):
        training_step(replica, step)
        progress = step / 12
        factor = (progress * 3) if step < 4 else 0.1 + 0.9 * (1 + _cosine((progress - 1 / 3) * 1.5)) / 2
        for group in peer.param_groups:
            group["lr"] = spec["lr"] * factor * group["scale"]
        _gradients(twin, step)
        peer.step()
    for mine, its in zip(replica.model.parameters(), twin.model.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-9, atol=1e-11)
    plain = one({**BASE, "optimizer": spec, "layer_decay": None}, double=True)
    for step in range(12):
        training_step(plain, step)
    moved = [
        (mine - its).abs().max()
        for mine, its in zip(replica.model.parameters(), plain.model.parameters(), strict=True)
    ]
    assert max(moved) > 1e-3, "the decay makes a difference"


def _cosine(share: float) -> float:
    return float(torch.cos(torch.pi * torch.tensor(share, dtype=torch.float64)))


def _gradients(replica: Replica, step: int) -> None:
    """The gradient of a step in the parameters' `.grad`, without an update."""
    replica.parameters.gradients_P.zero_()
    x, y = replica.stream.batch(replica.stream.indices(step), step, step / 12)
    replica.loss(replica.model(x), y).mean().backward()


# -- every rule, every schedule ----------------------------------------------------------------------


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 2)
    ).double()


CLASSES = {
    kind.rule.name: kind
    for kind in vars(optim).values()
    if isinstance(kind, type) and issubclass(kind, optim.RuleOptimizer) and kind is not optim.RuleOptimizer
}


@pytest.mark.parametrize("use_kernel", [True, False], ids=["native", "rule"])
@pytest.mark.parametrize("name", registry("optimizer"))
def test_every_rule_scales_its_rate_and_its_decoupled_decay(name: str, use_kernel: bool) -> None:
    mine, theirs = small(), small()
    exempt, rates = exempt_from_decay(mine), layer_rates(mine, DECAY)
    configured = registry("optimizer").build({"name": name, "lr": 0.01, "weight_decay": 0.2})
    flat = FlatParameters(mine, exempt, rates)
    optimizer = FlatOptimizer(configured.rule, flat, use_kernel)
    peer = CLASSES[name](groups_of(theirs, 0.01, DECAY), lr=0.01, weight_decay=0.2)
    for step in range(1, 9):
        gradients = [torch.randn_like(p) for p in mine.parameters()]
        for (key, parameter), gradient in zip(theirs.named_parameters(), gradients, strict=True):
            parameter.grad = gradient
            mine.get_parameter(key).grad.copy_(gradient)
        optimizer.update(flat.gradients_P, step, configured.hyper)
        peer.step()
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("schedule", registry("schedule"))
def test_every_schedule_is_multiplied_in(schedule: str) -> None:
    """With plain descent the step is −rate·gradient, so the rate of each layer can be read off."""
    needed = {"step": {"every": "30%"}, "piecewise": {"points": [["0%", 0.5], ["100%", 1.0]]}}
    recipe = {
        **RECIPES["mlp"],
        "optimizer": {"name": "sgd", "lr": 0.01},
        "schedule": {"name": schedule, **needed.get(schedule, {})},
        "clip": "none",
        "layer_decay": 0.5,
    }
    replica = one(recipe, double=True)
    names = [slot.name for slot in replica.parameters.slots]
    for progress in (0.0, 0.3, 0.9):
        before = replica.parameters.weights_P.clone()
        hyper = replica.timeline.hyper(progress)
        replica.optimizer.update(torch.ones_like(before), 1, hyper)
        moved = replica.parameters.named(before - replica.parameters.weights_P)
        for name in names:
            number = {"head": 0, "body.1": 1, "body.0": 2}[name.rpartition(".")[0].removesuffix(".0")]
            expected = torch.full_like(moved[name], hyper["lr"] * 0.5**number)
            torch.testing.assert_close(moved[name], expected, rtol=1e-9, atol=1e-14)


# -- the layout -----------------------------------------------------------------------------------------


def test_pieces_cover_the_buffer_in_order_with_one_kind_each() -> None:
    model = small()
    flat = FlatParameters(model, exempt_from_decay(model), layer_rates(model, 0.5))
    pieces = list(flat.pieces())
    assert pieces[0].start == 0
    assert pieces[-1].stop == len(flat.weights_P)
    assert [piece.stop for piece in pieces[:-1]] == [piece.start for piece in pieces[1:]]
    assert [(piece.exempt, piece.rate) for piece in pieces] == [
        (exempt, rate) for exempt in (False, True) for rate in (0.25, 0.5, 1.0)
    ]
    for slot in flat.slots:
        (own,) = [piece for piece in pieces if piece.start <= slot.start < piece.stop]
        assert own.rate == slot.rate
        assert slot.stop <= own.stop
    plain = FlatParameters(small(), exempt_from_decay(model))
    assert [(piece.exempt, piece.rate) for piece in plain.pieces()] == [(False, 1.0), (True, 1.0)]


def test_a_decay_of_one_changes_no_bit() -> None:
    sides = [one({**BASE, "layer_decay": decay}) for decay in (None, 1.0)]
    for step in range(4):
        for replica in sides:
            training_step(replica, step)
    assert torch.equal(sides[0].parameters.weights_P, sides[1].parameters.weights_P)


def test_the_optimizer_that_inspection_sees_has_the_rates() -> None:
    replica = one(BASE)
    optimizer = torch_optimizer(replica)
    found = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    rates = layer_rates(replica.model, DECAY)
    assert len(found) == len(rates)
    for name, parameter in replica.model.named_parameters():
        assert found[id(parameter)] == pytest.approx(3e-3 * rates[name])


# -- stacks and resuming ----------------------------------------------------------------------------------

STACKED = {
    "adamw": {**RECIPES["mlp"], "layer_decay": DECAY},
    "lion": {**RECIPES["mlp"], "optimizer": {"name": "lion", "lr": 1e-3}, "layer_decay": DECAY},
    "transformer-average-warmup": {
        **RECIPES["char-transformer"],
        "average": {"decay": 0.9, "begin": "10%", "warmup": True},
        "layer_decay": 0.75,
    },
    "resnet20": {**RECIPES["resnet20"], "layer_decay": 0.9, "average": {"decay": 0.95, "warmup": True}},
}


@pytest.mark.parametrize("name", STACKED)
def test_a_stack_makes_the_steps_of_its_replicas(name: str) -> None:
    recipe = STACKED[name]
    compare(build(recipe, double=True), build(recipe, double=True), lambda kind: 1e-10, steps=5)


@pytest.mark.parametrize("rule", ["adamw", "momentum"])
def test_rows_may_still_differ_in_their_rates(rule: str) -> None:
    base = {**RECIPES["mlp"], "optimizer": {"name": rule, "lr": 0.01}, "layer_decay": DECAY}

    def replicas() -> list[Replica]:
        return [one(base, seed, {"optimizer.lr": 0.01 * (seed + 1)}, double=True) for seed in range(3)]

    compare(replicas(), replicas(), lambda kind: 1e-10, steps=5)


def test_a_row_that_leaves_takes_its_memory_along() -> None:
    recipe = STACKED["adamw"]
    stack, alone = Stack(build(recipe, double=True)), build(recipe, double=True)
    for step in range(5):
        if step == 2:
            stack.keep([0, 2])
        stacked_step(stack, step)
        for replica in alone:
            training_step(replica, step)
    for row, seed in enumerate((0, 2)):
        mine, its = state(stack.give_back(row)), state(alone[seed])
        for name, tensor in its.items():
            torch.testing.assert_close(mine[name], tensor, rtol=1e-9, atol=1e-12)


def test_replicas_with_different_decays_cannot_share_a_stack() -> None:
    replicas = [one(RECIPES["mlp"], 0, {"layer_decay": decay}) for decay in (0.5, None)]
    with pytest.raises(CannotStackError, match=r"they differ in layer_decay: 0\.5 and None"):
        Stack(replicas)


def test_a_run_that_goes_on_ends_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = {
        "data": CHARS,
        "model": {"name": "char-transformer", "depth": 2, "width": 16, "num_heads": 2, "dropout": 0.1},
        "optimizer": {"name": "adamw", "lr": 3e-3},
        "schedule": {"name": "cosine", "warmup": "10 steps"},
        "average": {"decay": 0.99, "begin": "7 steps", "warmup": True},
        "layer_decay": 0.75,
        "batch_size": 16,
        "steps": 30,
    }

    def interrupted(replica: Replica, step: int) -> float:
        if step == 17:
            signal.raise_signal(signal.SIGTERM)
        return training_step(replica, step)

    apoint.train(recipe, runs_root=tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("apoint.engine.loop.training_step", interrupted)
        with pytest.raises(TrainingInterruptedError):
            apoint.train(recipe, runs_root=tmp_path / "stopped")
    assert apoint.train(recipe, runs_root=tmp_path / "stopped").state == "finished"
    assert difference(outcome(tmp_path / "whole"), outcome(tmp_path / "stopped")) == ""
