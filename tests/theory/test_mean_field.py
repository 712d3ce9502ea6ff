"""Clouds of particles against autograd, plain gradient descent of the module and a limit in closed form."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate

from apoint.errors import UsageError
from apoint.theory import mean_field as mf


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


X = torch.randn(30, 3, generator=generator(1), dtype=torch.float64)
Y = torch.sin(X[:, 0]) + X[:, 1]


@pytest.mark.parametrize("activation", [torch.relu, torch.tanh])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_cloud_moves_as_the_module_trained_by_gradient_descent(activation, frozen):
    cloud = mf.draw(2, 7, 3, generator())
    model = mf.MeanFieldNetwork(3, 7, activation=activation).double()
    with torch.no_grad():
        model.weights.copy_(cloud.weights[1])
        model.outer.copy_(cloud.outer[1][:, None])
    model.weights.requires_grad_(not frozen)
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=model.rate(0.1))
    for _ in range(25):
        optimiser.zero_grad()
        (0.5 * (model(X)[:, 0] - Y).square().mean()).backward()
        optimiser.step()
    moved = mf.evolve(cloud, X, Y, 2.5, 0.1, activation, frozen=frozen)
    torch.testing.assert_close(mf.values(moved, X, activation)[1], model(X)[:, 0].detach())
    torch.testing.assert_close(moved.weights[1], model.weights.detach())
    assert torch.equal(moved.weights, cloud.weights) is frozen


def test_the_power_scales_sum_and_speed():
    cloud = mf.draw(1, 9, 3, generator())
    torch.testing.assert_close(3 * mf.values(cloud, X), mf.values(cloud, X, power=0.5))
    outer, weights = cloud.outer.clone().requires_grad_(), cloud.weights.clone().requires_grad_()
    loss = 0.5 * (mf.values(mf.Cloud(outer, weights), X, power=0.5) - Y).square().mean()
    by_a, by_w = torch.autograd.grad(loss, (outer, weights))  # N^(2·½ − 1) = 1
    moved = mf.evolve(cloud, X, Y, 0.2, 0.2, power=0.5)
    torch.testing.assert_close(moved.outer, cloud.outer - 0.2 * by_a)
    torch.testing.assert_close(moved.weights, cloud.weights - 0.2 * by_w)


def test_steps_add_up_to_the_time():
    cloud = mf.draw(1, 5, 3, generator())
    whole = mf.evolve(cloud, X, Y, 1.05, 0.1)
    parts = mf.evolve(mf.evolve(cloud, X, Y, 1.0, 0.1), X, Y, 0.05, 0.1)
    torch.testing.assert_close(whole.outer, parts.outer)
    fine = [mf.values(mf.evolve(cloud, X, Y, 1.0, step), X) for step in (0.02, 0.01, 0.0025)]
    ratio = (fine[0] - fine[2]).norm() / (fine[1] - fine[2]).norm()
    assert float(ratio) == pytest.approx(0.0175 / 0.0075, rel=0.1)  # of first order in the step


@pytest.mark.parametrize(("target", "time", "size"), [(1.0, 0.7, 1.0), (-0.5, 1.3, 0.6), (2.0, 0.4, 1.4)])
def test_the_linear_limit_is_where_the_moments_go_and_where_many_particles_go(target, time, size):
    found = mf.linear_limit(target, time, size)

    def moments(_, state):
        c, a, w = state
        return [(target - c) * (a + w), 2 * (target - c) * c, 2 * (target - c) * c]

    solved = integrate.solve_ivp(moments, (0, time), [0, size**2, size**2], rtol=1e-10, atol=1e-12)
    assert found == pytest.approx(solved.y[0, -1], abs=1e-7)
    replicas, particles = 8, 5_000
    cloud = mf.draw(replicas, particles, 1, generator(3))
    cloud = mf.Cloud(size * cloud.outer, size * cloud.weights)
    x = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    end = mf.evolve(cloud, x, target * x[:, 0], time, 0.002, lambda z: z)
    slopes = mf.values(end, x[:1], lambda z: z)[:, 0].numpy()
    # Explicit steps of 0.002 are off by about 0.002 times the second derivative, of order 1.
    assert np.mean(slopes) == pytest.approx(found, abs=4 * np.std(slopes) / math.sqrt(replicas) + 0.005)


def test_the_module_measures_its_particles_and_may_have_many_outputs():
    model = mf.MeanFieldNetwork(4, 6, outputs=3, activation=torch.tanh, generator=generator(5))
    again = mf.MeanFieldNetwork(4, 6, outputs=3, activation=torch.tanh, generator=generator(5))
    assert torch.equal(model.weights, again.weights)
    x = torch.randn(2, 5, 4)
    assert model(x).shape == (2, 5, 3)
    one_by_one = sum(model.outer[i] * torch.tanh(x[1, 2] @ model.weights[i]) for i in range(6)) / 6
    torch.testing.assert_close(model(x)[1, 2], one_by_one)
    torch.testing.assert_close(model.measure(lambda a, w: a * torch.tanh(w @ x[1, 2])[:, None]), one_by_one)
    assert model.rate(0.5) == 3.0


def test_drawn_clouds_have_their_size():
    cloud = mf.draw(3, 20_000, 4, generator(2), torch.float32)
    assert cloud.outer.dtype == torch.float32
    assert float(cloud.weights.var()) == pytest.approx(0.25, rel=0.02)
    assert float(cloud.outer.var()) == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mf.MeanFieldNetwork(0, 3), "inputs must be a whole number from 1 on, got 0"),
        (lambda: mf.draw(1, 0, 3, generator()), "particles must be a whole number from 1 on, got 0"),
        (
            lambda: mf.evolve(mf.draw(1, 2, 3, generator()), X, Y, 1.0, 0.0),
            "positive and finite, got 1 and 0",
        ),
        (lambda: mf.linear_limit(1.0, -1.0), "size must be positive and time at least 0, got 1 and -1"),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence):
    with pytest.raises(UsageError) as caught:
        call()
    assert sentence in str(caught.value)
