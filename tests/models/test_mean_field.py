"""The network in mean-field scaling against the theory's particles, and its spread against the law."""

import pytest
import torch

from apoint.models import create
from apoint.theory.mean_field import MeanFieldNetwork


def test_it_is_the_mean_over_particles():
    model = create("mean-field", in_features=3, num_classes=2, width=16).double()
    particles = MeanFieldNetwork(3, 16, 2).double()
    with torch.no_grad():
        model.hidden.weight.copy_(particles.weights)
        model.head.weight.copy_(particles.outer.T)
    x = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(model(x), particles(x))


def test_what_is_left_to_chance_falls_with_the_root_of_the_width():
    torch.manual_seed(0)
    x = torch.ones(1, 4)
    spreads = [
        torch.stack(
            [create("mean-field", in_features=4, num_classes=1, width=width)(x) for _ in range(400)]
        ).std()
        for width in (64, 1024)
    ]
    assert (spreads[0] / spreads[1]).item() == pytest.approx(4, rel=0.15)  # four deviations of the estimate


def test_a_step_in_proportion_to_the_width_moves_a_neuron_as_far_whatever_the_width():
    moved = []
    for width in (10, 1000):
        torch.manual_seed(0)
        model = create("mean-field", in_features=2, num_classes=1, width=width)
        with torch.no_grad():
            model.head.weight.fill_(1.0)
            model.hidden.weight.fill_(0.5)
        (model(torch.ones(3, 2)) - 2.0).square().mean().backward()
        moved.append(width * model.hidden.weight.grad[0])
    torch.testing.assert_close(moved[0], moved[1])
