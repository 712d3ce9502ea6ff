"""The teacher's and student's loss against drawn patches, autograd and descents with all parameters."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from apoint.errors import UsageError
from apoint.theory import teacher_student as ts


def problem(seed=0, p=4, k=5, size=1.3):
    random = np.random.default_rng(seed)
    w_star = random.standard_normal(p)
    return (
        random.standard_normal(p),
        random.standard_normal(k),
        size * w_star / np.linalg.norm(w_star),
        random.standard_normal(k),
    )


@pytest.mark.parametrize("angle", [0.0, 0.3, 1.5, 2.9, np.pi])
def test_overlap_is_the_expectation(angle):
    def integrand(turn):  # polar coordinates: the radius integrates to 2, over 2π
        return max(np.cos(turn), 0) * max(np.cos(turn - angle), 0) * 2 / (2 * np.pi)

    found = integrate.quad(integrand, -np.pi, np.pi, points=[-np.pi / 2, np.pi / 2, angle - np.pi / 2])[0]
    assert float(ts.overlap(angle)) / (2 * np.pi) == pytest.approx(found, abs=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_loss_is_that_of_drawn_patches(seed):
    v, a, w_star, a_star = problem(seed)
    patches = np.random.default_rng(100 + seed).standard_normal((200_000, 5, 4))
    student = np.maximum(patches @ (v / np.linalg.norm(v)), 0) @ a
    losses = 0.5 * (student - np.maximum(patches @ w_star, 0) @ a_star) ** 2
    error = losses.std() / len(losses) ** 0.5
    assert float(ts.population_loss(v, a, w_star, a_star)) == pytest.approx(losses.mean(), abs=4 * error)


def torch_loss(v, a, w_star, a_star):
    """The closed form once more, for autograd, from the angle by its cosine."""
    cosine = v @ w_star / (v.norm() * w_star.norm())
    angle = torch.arccos(cosine)
    kernel = (torch.pi - angle) * cosine + torch.sin(angle)
    ones = torch.ones(len(a), len(a), dtype=torch.float64)
    eye = torch.eye(len(a), dtype=torch.float64)
    own = ones + (torch.pi - 1) * eye
    both = ones + (kernel - 1) * eye
    size = w_star.norm()
    return (a @ own @ a + size**2 * a_star @ own @ a_star - 2 * size * a @ both @ a_star) / (4 * torch.pi)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 6), st.floats(0.2, 5))
def test_gradients_are_those_of_autograd(seed, p, k, size):
    arrays = problem(seed, p, k, size)
    v, a, w_star, a_star = (torch.from_numpy(one) for one in arrays)
    v.requires_grad_()
    a.requires_grad_()
    loss = torch_loss(v, a, w_star, a_star)
    by_v, by_a = torch.autograd.grad(loss, (v, a))
    found_v, found_a = ts.population_gradient(*arrays)
    np.testing.assert_allclose(found_v, by_v.numpy(), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found_a, by_a.numpy(), rtol=1e-9, atol=1e-10)
    assert float(ts.population_loss(*arrays)) == pytest.approx(float(loss.detach()), abs=1e-9)


def test_many_students_at_once_are_each_of_them():
    _, _, w_star, a_star = problem()
    random = np.random.default_rng(5)
    v, a = random.standard_normal((3, 2, 4)), random.standard_normal((3, 2, 5))
    losses = ts.population_loss(v, a, w_star, a_star)
    by_v, by_a = ts.population_gradient(v, a, w_star, a_star)
    assert losses.shape == (3, 2)
    one = ts.population_gradient(v[2, 1], a[2, 1], w_star, a_star)
    np.testing.assert_allclose(by_v[2, 1], one[0])
    np.testing.assert_allclose(by_a[2, 1], one[1])
    assert float(ts.population_loss(w_star * 3, 1.3 * a_star, w_star, a_star)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("ratio", "is_minimum"), [(0.0, True), (3.0, True), (3.7, True), (4.3, False), (8.0, False)]
)
def test_the_false_minimum_is_one_below_the_threshold_alone(ratio, is_minimum):
    k = 10
    assert ts.spurious_threshold(k) == pytest.approx((10 + np.pi - 1) / np.pi)  # 3.866
    a_star, w_star = ts.teacher_weights(k, ratio), np.array([0.0, 2.0, 0.0])
    v, a = ts.spurious_minimum(w_star, a_star)
    by_v, by_a = ts.population_gradient(v, a, w_star, a_star)
    assert max(np.abs(by_v).max(), np.abs(by_a).max()) < 1e-12
    here = float(ts.population_loss(v, a, w_star, a_star))
    assert here > 0.01
    random = np.random.default_rng(0)
    moves_v, moves_a = random.standard_normal((4000, 3)), random.standard_normal((4000, k))
    moves_a *= 1e-3 / np.linalg.norm(moves_a, axis=1, keepdims=True) * random.uniform(0, 1, (4000, 1)) ** 8
    around = ts.population_loss(v + 0.05 * moves_v, a + moves_a, w_star, a_star)
    assert bool((around > here).all()) is is_minimum


@pytest.mark.parametrize("ratio", [0.0, 1.0, 4.0])
def test_the_four_numbers_descend_as_all_parameters_do(ratio):
    k, p, rate, trials = 6, 5, 0.1, 20
    random = np.random.default_rng(1)
    a_star, w_star = ts.teacher_weights(k, ratio), np.eye(p)[0]
    v = random.standard_normal((trials, p))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    a = 0.5 * random.standard_normal((trials, k))
    short = ts.descend(v[:, 0], a.sum(1), a @ a_star, k, ratio, rate, 99)
    for _ in range(99):
        by_v, by_a = ts.population_gradient(v, a, w_star, a_star)
        v, a = v - rate * by_v, a - rate * by_a
    np.testing.assert_allclose(short.angle, ts.angle_between(v, w_star), atol=1e-10)
    np.testing.assert_allclose(short.product, a @ a_star, atol=1e-10)
    np.testing.assert_allclose(short.total, a.sum(1), atol=1e-10)


def test_unrest_is_the_distance_from_where_the_output_weights_come_to_rest():
    k, ratio = 6, 2.0
    a_star, w_star, v = ts.teacher_weights(k, ratio), np.eye(2)[0], np.array([np.cos(2.0), np.sin(2.0)])
    a = np.zeros(k)
    for _ in range(2000):
        a = a - 0.5 * ts.population_gradient(v, a, w_star, a_star)[1]
    still = ts.descend(v[:1], a.sum(), a @ a_star, k, ratio, 1e-9, 1)
    assert float(still.unrest[0]) < 1e-7
    moved = ts.descend(v[:1], a.sum() + 0.1, a @ a_star - 0.3, k, ratio, 1e-9, 1)
    assert float(moved.unrest[0]) == pytest.approx(0.1 * 2**0.5 + 0.3, abs=1e-6)
    assert bool(still.settled[0])
    assert not bool(moved.settled[0])


def test_descents_are_decided_and_stop():
    cosines = np.array([0.9, -0.9])
    end = ts.descend(cosines, 0.0, 0.0, 10, 0.0, 0.2)
    assert end.recovered.tolist() == [True, False]
    assert end.trapped.tolist() == [False, True]
    assert end.decided.all()
    assert end.steps < 20_000
    assert not ts.descend(cosines, 0.0, 0.0, 10, 0.0, 0.2, steps=3).decided.any()
    assert ts.descend(cosines, 0.0, 0.0, 10, 0.0, 0.02).steps > 2 * end.steps


def test_teacher_weights_have_their_ratio():
    for k, ratio in ((2, 0.0), (5, 2.5), (7, 7.0)):
        a = ts.teacher_weights(k, ratio)
        assert np.linalg.norm(a) == pytest.approx(1)
        assert a.sum() ** 2 == pytest.approx(ratio, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ts.spurious_threshold(0), "patches must be a whole number from 1 on, got 0"),
        (lambda: ts.teacher_weights(5, 6.0), "between 0 and k ≥ 2, got 6 for k = 5"),
        (lambda: ts.population_loss(np.zeros(2), np.ones(3), np.ones(2), np.ones(3)), "must not be zero"),
        (lambda: ts.population_loss(np.ones(2), np.ones(3), np.ones(4), np.ones(3)), "got (2,) and (4,)"),
        (lambda: ts.descend(np.zeros(1), 0.0, 0.0, 50, 1.0, 0.5), "got 0.5 for k = 50"),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence):
    with pytest.raises(UsageError) as caught:
        call()
    assert sentence in str(caught.value)
