"""Shallow networks against numpy's own interpolation, brute force and known best polynomials."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.errors import UsageError
from apoint.theory import approximation as ap

GRID = np.linspace(-1.0, 2.0, 3001)


def wave(x):
    return np.sin(3 * x) + 0.5 * x


@pytest.mark.parametrize("pieces", [1, 2, 7, 40])
def test_relu_interpolant_is_numpys_interpolation(pieces):
    network = ap.relu_interpolant(wave, -1.0, 2.0, pieces)
    knots = np.linspace(-1.0, 2.0, pieces + 1)
    assert network.width == pieces
    np.testing.assert_allclose(network(GRID), np.interp(GRID, knots, wave(knots)), atol=1e-12)


def test_interpolation_bound_holds_and_is_attained_by_a_parabola():
    for pieces in (3, 10, 50):
        error = np.abs(ap.relu_interpolant(wave, -1.0, 2.0, pieces)(GRID) - wave(GRID)).max()
        assert error <= ap.interpolation_bound(3 / pieces, 9.0)
    parabola = ap.relu_interpolant(np.square, 0.0, 1.0, 5)
    middle = np.array([0.1])  # of the first piece, where a parabola is off most
    assert float(parabola(middle)[0] - 0.01) == pytest.approx(ap.interpolation_bound(0.2, 2.0))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 60), st.floats(1.0, 60.0), st.floats(-3, 3), st.floats(0.1, 4))
def test_step_bound_holds(steps, sharpness, low, length):
    grid = np.linspace(low, low + length, 1001)
    network = ap.sigmoid_steps(wave, low, low + length, steps, sharpness)
    assert network.width == steps - 1
    bound = ap.step_bound(length / steps, 3.5, sharpness)
    assert np.abs(network(grid) - wave(grid)).max() <= bound * (1 + 1e-12)


def test_sharp_steps_are_the_staircase_and_blunt_ones_are_not():
    grid = np.array([0.03, 0.12, 0.5, 0.77])
    middles = (np.floor(grid * 10) + 0.5) / 10
    sharp = ap.sigmoid_steps(wave, 0.0, 1.0, 10, sharpness=4000.0)(grid[[0, 1, 3]])
    np.testing.assert_allclose(sharp, wave(middles[[0, 1, 3]]), atol=1e-12)
    assert np.abs(ap.sigmoid_steps(wave, 0.0, 1.0, 10, 2.0)(grid) - wave(middles)).max() > 0.01


def test_a_shallow_network_is_the_torch_module():
    random = np.random.default_rng(0)
    points, values = random.uniform(-1, 1, (50, 3)), random.standard_normal(50)
    network = ap.fit_random_features(torch.tanh, points, values, 8, random)
    layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
    with torch.no_grad():
        layers[0].weight.copy_(torch.from_numpy(network.weights))
        layers[0].bias.copy_(torch.from_numpy(network.biases))
        layers[2].weight.copy_(torch.from_numpy(network.outer)[None])
        layers[2].bias.fill_(network.offset)
        expected = layers(torch.from_numpy(points))[:, 0].numpy()
    np.testing.assert_allclose(network(points), expected, atol=1e-12)


def test_fit_interpolates_with_as_many_neurons_as_points():
    random = np.random.default_rng(1)
    points = np.linspace(-1, 1, 12)
    values = random.standard_normal(12)
    network = ap.fit_random_features(torch.relu, points, values, 200, random)
    np.testing.assert_allclose(network(points), values, atol=1e-8)


def test_fit_depends_on_the_scale_of_its_weights():
    points = np.linspace(-1, 1, 200)
    values = np.sin(25 * points)
    errors = [
        np.abs(
            ap.fit_random_features(torch.tanh, points, values, 60, np.random.default_rng(2), s)(points)
            - values
        )
        for s in (0.1, 20.0)
    ]
    assert errors[1].max() < 0.01 < 0.5 < errors[0].max()


def test_a_polynomial_activation_gives_the_best_polynomial_of_least_squares():
    points = np.random.default_rng(3).uniform(-1, 1, (300, 2))
    values = np.sin(3 * points[:, 0]) * np.cos(2 * points[:, 1])
    best = ap.best_polynomial_error(points, values, 3, "root mean square")
    for width in (10, 40):
        fit = ap.fit_random_features(lambda z: z**3 - z, points, values, width, np.random.default_rng(width))
        assert np.sqrt(np.mean((fit(points) - values) ** 2)) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_best_uniform_error_of_a_power_is_chebyshevs(degree):
    points = np.cos(np.linspace(0, np.pi, 601))  # holds the extrema of Chebyshev's polynomials nearly
    found = ap.best_polynomial_error(points, points ** (degree + 1), degree)
    assert found == pytest.approx(2.0**-degree, rel=1e-4)


def test_best_errors_fall_with_the_degree_and_vanish_for_polynomials():
    points = np.random.default_rng(4).uniform(-1, 1, (80, 2))
    values = points[:, 0] ** 2 * points[:, 1] - points[:, 1]
    assert ap.best_polynomial_error(points, values, 3) < 1e-9
    assert ap.best_polynomial_error(points, values, 2) > 0.05
    assert len(ap.polynomial_powers(3, 4)) == 35


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ap.relu_interpolant(wave, 1.0, 0.0, 3), "the left one first; got 1 to 0"),
        (lambda: ap.relu_interpolant(wave, 0.0, 1.0, 0), "pieces must be a whole number from 1 on, got 0"),
        (lambda: ap.sigmoid_steps(wave, 0.0, 1.0, 2, 0.0), "sharpness must be positive and finite, got 0"),
        (lambda: ap.interpolation_bound(-1.0, 1.0), "spacing must be positive and finite, got -1"),
        (lambda: ap.step_bound(1.0, np.inf), "lipschitz must be positive and finite, got inf"),
        (lambda: ap.polynomial_powers(2, -1), "degree must be a whole number from 0 on, got -1"),
        (lambda: ap.best_polynomial_error(GRID, GRID, 1, "l1"), "got 'l1'"),
        (
            lambda: ap.fit_random_features(torch.tanh, GRID, GRID, 0, np.random.default_rng(0)),
            "width must be a whole number from 1 on, got 0",
        ),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence):
    with pytest.raises(UsageError) as caught:
        call()
    assert sentence in str(caught.value)
