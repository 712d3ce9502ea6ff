"""Trials are made on copies and see what a training step does."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from torch import nn

from apoint.doctor.copies import CannotCopyError, copied
from apoint.doctor.patient import patient, schedule_factors
from apoint.doctor.specimens import step
from apoint.doctor.trial import trial
from apoint.errors import UsageError
from tests.doctor.cases import convolutional, digits, perceptron
from tests.probes.state import same_state, state_of


def sick(model: nn.Module, **settings: Any) -> Any:
    optimizer = settings.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return patient(model, digits(), nn.CrossEntropyLoss(), optimizer, **settings)


def test_a_trial_is_plain_training_on_a_copy() -> None:
    """The same as a loop written out, and nothing of the patient changes."""
    model = convolutional()
    who = sick(model)
    before, memory = state_of(model), str(who.optimizer.state_dict())
    history = trial(who, 5)
    assert same_state(before, state_of(model))
    assert str(who.optimizer.state_dict()) == memory
    optimizer, batches = who.optimizer, who.train.batches(0)
    model.train()
    for seen, norm in zip(history.losses, history.applied, strict=True):
        batch = next(batches)
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(batch.args[0]), batch.targets)
        loss.backward()
        assert float(loss.detach()) == pytest.approx(seen, rel=1e-6)
        gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        assert float(gradients.norm()) == pytest.approx(norm, rel=1e-5)
        optimizer.step()
    for mine, its in zip(model.parameters(), history.model.parameters(), strict=True):
        torch.testing.assert_close(mine, its)


def test_what_a_step_does_is_seen() -> None:
    healthy = trial(sick(convolutional(), step=step), 6)
    assert (healthy.stale, healthy.evaluating) == (0, 0)
    assert healthy.applied == pytest.approx(healthy.arising, rel=1e-5)
    assert trial(sick(convolutional(), step=functools.partial(step, zero_grad=False)), 6).stale == 5
    assert trial(sick(convolutional(), step=functools.partial(step, training=False)), 6).evaluating == 6
    clipped = trial(sick(perceptron(), step=functools.partial(step, clip=0.01)), 6)
    assert clipped.applied == pytest.approx([0.01] * 6, rel=1e-3)
    assert min(clipped.arising) > 0.02


def test_gradients_in_parts_are_not_stale() -> None:
    def accumulating(model: nn.Module, batch: Any, loss: Any, optimizer: Any) -> Any:
        x, y = batch
        optimizer.zero_grad()
        for part in range(2):
            value = loss(model(x[part::2]), y[part::2]) / 2
            value.backward()
        optimizer.step()
        return value

    assert trial(sick(perceptron(), step=accumulating), 4).stale == 0


def test_rates_updates_and_ends() -> None:
    model = perceptron()
    who = sick(
        model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), scheduler=lambda p: 0.5, total_steps=10
    )
    history = trial(who, 10, rate=0.1, warmup=2)
    assert history.rates == pytest.approx([0.0025, *([0.005] * 9)])
    weight = model[0].weight.detach()
    assert len(history.updates["0"]) == 2
    assert 0 < history.updates["0"][0] < 1
    assert weight.norm() > 0
    burst = trial(sick(perceptron(), optimizer=None), 40, rate=1e6)
    assert burst.ended
    assert math.isinf(burst.last)


def test_a_step_that_fails_ends_the_trial() -> None:
    def broken(*_: Any) -> None:
        raise ValueError("no such thing")

    history = trial(sick(perceptron(), step=broken), 3)
    assert "no such thing" in history.ended
    assert history.steps == 0


def test_a_copy_of_an_optimizer_with_a_scheduler_moves_the_copy() -> None:
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    twin, moved = copied(model, optimizer)
    assert moved is not None
    start = [p.detach().clone() for p in model.parameters()]
    twin(torch.ones(2, 64)).sum().backward()
    moved.step()
    assert all(torch.equal(a, b) for a, b in zip(start, model.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(start, twin.parameters(), strict=True))


def test_what_cannot_be_copied_is_said() -> None:
    class Stubborn(nn.Linear):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("not me")

    with pytest.raises(CannotCopyError, match="not me"):
        copied(Stubborn(2, 2), None)


def test_schedules() -> None:
    assert schedule_factors(None, 5) == []
    assert schedule_factors(lambda p: 1 - p, 4) == [1.0, 0.75, 0.5, 0.25]
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
    assert schedule_factors(scheduler, 5) == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    assert optimizer.param_groups[0]["lr"] == 0.2
    assert scheduler.last_epoch == 0
    with pytest.raises(UsageError, match="scheduler must be"):
        schedule_factors("cosine", 5)
