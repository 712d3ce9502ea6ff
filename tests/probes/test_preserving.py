"""What happens aside leaves no trace."""

from __future__ import annotations

import random

import numpy
import pytest
import torch
from torch import Tensor, nn

from apoint.probes import preserve_state
from tests.probes.state import same_state, state_of
from tests.probes.zoo import MAKERS, case


class Forgetful(nn.Module):
    """Keeps things as it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls = nn.Linear(3, 2), 0
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.linear(x)
        self.last = out
        self.extra = out
        return out


@pytest.mark.parametrize("name", MAKERS)
def test_a_model_is_left_as_it_was(name: str) -> None:
    made = case(name)
    before = state_of(made.model)
    with preserve_state(made.model, 7, mode=False, weights=True):
        assert not made.model.training
        for parameter in made.model.parameters():
            assert parameter.grad is None
            parameter.requires_grad_(False)
            parameter.data.add_(1.0)
            parameter.add_(1.0)
        for buffer in made.model.buffers():
            buffer.add_(1)
        made.model.register_forward_hook(lambda *_: None)
        made.model.append_me = 1  # type: ignore[assignment]
        torch.rand(3), random.random(), numpy.random.rand()
    assert same_state(before, state_of(made.model))


def test_the_test_would_see_a_trace() -> None:
    for disturb in (
        lambda m: m.eval(),
        lambda m: m[0].weight.data.add_(1),
        lambda m: m[1].running_mean.add_(1),
        lambda m: setattr(m[0].weight, "grad", torch.ones_like(m[0].weight)),
        lambda m: m.register_forward_hook(lambda *_: None),
        lambda m: torch.rand(1),
        lambda m: numpy.random.rand(),
        lambda m: random.random(),
        lambda m: m[0].requires_grad_(False),
    ):
        model = case("cnn-batch-norm").model
        before = state_of(model)
        with torch.no_grad():
            disturb(model)
        assert not same_state(before, state_of(model))


def test_running_statistics_come_back() -> None:
    for gradients in (True, False):
        model = nn.BatchNorm1d(3).train()
        with preserve_state(model), torch.set_grad_enabled(gradients):
            model(torch.randn(8, 3) + 5)
        assert torch.equal(model.running_mean, torch.zeros(3))  # type: ignore[arg-type]


def test_attributes_come_back() -> None:
    model = Forgetful()
    with preserve_state(model):
        model(torch.ones(1, 3))
    assert (model.calls, model.last) == (0, None)
    assert not hasattr(model, "extra")


def test_gradients_come_back_even_after_an_error() -> None:
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    gradient = model.weight.grad

    def spoil() -> None:
        with preserve_state(model):
            model.weight.grad = torch.ones(1, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        spoil()
    assert model.weight.grad is gradient


def test_draws_inside_begin_at_the_seed() -> None:
    model = nn.Dropout(0.5)
    drawn = []
    for seed in (3, 3, 4):
        torch.rand(5)
        with preserve_state(model, seed):
            drawn.append(model(torch.ones(50)))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_a_graph_that_is_still_needed_survives() -> None:
    """Running statistics in eval mode are part of the graph; writing to them would break going back."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    loss = model(torch.ones(2, 3)).sum()
    with preserve_state(model):
        model(torch.ones(5, 3)).sum().backward()
    loss.backward()


def test_attention_has_second_derivatives() -> None:
    made = case("encoder-layer", double=True)
    x, y = made.batch
    assert made.loss is not None
    with preserve_state(made.model):
        parameters = list(made.model.parameters())
        first = torch.autograd.grad(made.loss(made.model(x), y), parameters, create_graph=True)
        total = torch.stack([gradient.square().sum() for gradient in first]).sum()
        second = torch.autograd.grad(total, parameters)
    assert all(gradient.isfinite().all() for gradient in second)


def test_gradients_can_be_taken_where_they_were_off() -> None:
    model = nn.Linear(2, 1)
    with torch.no_grad(), preserve_state(model):
        assert model(torch.ones(1, 2)).requires_grad
    with torch.inference_mode(), preserve_state(model):
        assert model(torch.ones(1, 2)).requires_grad
