"""Convex hulls against a triangulation, simplices, and the exact binomial interval."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.spatial
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from apoint.errors import UsageError
from apoint.probes.hull import binomial_error, binomial_interval, convex_hull, in_hull
from tests.probes.zoo import case


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_triangulation_agrees(size: int) -> None:
    rng = np.random.default_rng(size)
    known, new = rng.normal(size=(30, size)) * [1, *[100.0] * (size - 1)], rng.normal(size=(200, size))
    new *= [1, *[100.0] * (size - 1)]
    expected = scipy.spatial.Delaunay(known).find_simplex(new) >= 0
    assert 0 < expected.mean() < 1
    found, rank = in_hull(known, new)
    assert (found == expected).all()
    assert rank == size


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 15))
def test_mixtures_are_inside_and_reflections_outside(seed: int, num_points: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    known = rng.normal(size=(num_points, size))
    weights = rng.dirichlet(np.ones(num_points), size=5)
    found, rank = in_hull(known, weights @ known)
    assert found.all()
    assert rank == min(size, num_points - 1)
    assert in_hull(known, known)[0].all(), "the corners themselves"
    far = known[np.argmax(np.linalg.norm(known - known.mean(0), axis=1))]
    assert not in_hull(known, (2 * far - known.mean(0))[None])[0].any()


def test_points_beside_the_plane_are_outside() -> None:
    known = np.random.default_rng(0).normal(size=(4, 10))
    inside = known.mean(0)
    normal = np.linalg.svd(known - inside)[2][-1]
    found, rank = in_hull(known, np.stack([inside, inside + 1e-3 * normal]))
    assert found.tolist() == [True, False]
    assert rank == 3


def test_all_points_the_same() -> None:
    assert in_hull(np.ones((3, 2)), np.array([[1.0, 1.0], [1.0, 2.0]]))[0].tolist() == [True, False]


@pytest.mark.parametrize(("count", "total"), [(0, 5), (2, 9), (7, 7), (30, 64)])
def test_the_exact_interval(count: int, total: int) -> None:
    exact = scipy.stats.binomtest(count, total).proportion_ci(0.95, method="exact")
    assert binomial_interval(count, total) == pytest.approx([exact.low, exact.high])
    assert binomial_error(count, total) > 0


def test_gaussian_points() -> None:
    """In few dimensions nearly all new points are inside, in many none."""
    torch.manual_seed(0)
    for size, low, high in ((2, 0.9, 1.0), (50, 0.0, 0.0)):
        reading = convex_hull(nn.Identity(), torch.randn(200, size), torch.randn(40, size))
        assert reading.value is not None
        assert low <= reading.value <= high
        assert reading.details["interval"][0] <= reading.value <= reading.details["interval"][1]
        assert reading.details["dimension"] == size


def test_spaces() -> None:
    made = case("mlp", double=True)
    made.model.eval()
    x, new = torch.randn(40, 6).double(), torch.randn(30, 6).double()
    with torch.no_grad():
        for space, network in (
            ("inputs", made.model[:0]), ("features", made.model[:5]), ("5", made.model),
            ("0", made.model[:1]),
        ):  # fmt: skip
            expected = in_hull(network(x).numpy(), network(new).numpy())[0].mean()
            assert convex_hull(made.model, x, new, space=space).value == expected
    with pytest.raises(UsageError, match=r"unknown space 'middle'"):
        convex_hull(made.model, x, new, space="middle")


def test_number_of_test_points() -> None:
    x, new = torch.randn(20, 2), torch.randn(50, 2)
    few = convex_hull(nn.Identity(), x, new, num_test=10)
    assert few.details["num_test"] == 10
    values = {convex_hull(nn.Identity(), x, new, num_test=10, seed=seed).value for seed in range(5)}
    assert len(values) > 1


def test_where_it_is_not_defined() -> None:
    made = case("tied-lm")
    assert "not real" in convex_hull(made.model, made.batch, made.batch).how
    assert convex_hull(made.model, made.batch, made.batch, space="features").value == 1
    assert "no test batch" in convex_hull(made.model, made.batch).how
    assert "numbers" in convex_hull(nn.Identity(), torch.randn(4, 2), torch.randn(4, 3)).how
    assert "not finite" in convex_hull(nn.Identity(), torch.full((4, 2), torch.nan), torch.randn(4, 2)).how
    assert "no features" in convex_hull(nn.ReLU(), torch.randn(4, 2), torch.randn(4, 2), space="features").how
