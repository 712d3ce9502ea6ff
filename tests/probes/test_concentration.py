"""Distances and angles against slow definitions and the laws of Gaussian clouds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.spatial
import scipy.stats
import sklearn.metrics
import torch
from torch import nn

from apoint.errors import UnknownNameError
from apoint.probes import Subject
from apoint.probes.concentration import (
    concentration,
    cosines,
    dimension_of_spread,
    gaussian_cosines,
    gaussian_spread,
    pairwise_distances,
    participation_ratio,
    points_in,
    relative_spread,
)
from tests.probes.zoo import MAKERS, case


def cloud(num_points: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(num_points, size))


def test_distances_and_cosines() -> None:
    points = cloud(20, 5) + 3
    assert np.allclose(pairwise_distances(points), scipy.spatial.distance_matrix(points, points))
    slow = sklearn.metrics.pairwise.cosine_similarity(points)[np.triu_indices(20, 1)]
    assert np.allclose(cosines(points), slow)


def test_the_spread_and_its_jackknife() -> None:
    points = cloud(12, 3)

    def spread(rows: np.ndarray) -> float:
        distances = scipy.spatial.distance.pdist(rows)
        return float(distances.std() / distances.mean())

    value, error = relative_spread(pairwise_distances(points))
    without = np.array([spread(np.delete(points, i, 0)) for i in range(12)])
    assert value == pytest.approx(spread(points))
    assert error == pytest.approx(math.sqrt(11 / 12 * ((without - without.mean()) ** 2).sum()))


def test_the_error_is_that_over_repetition() -> None:
    found = [relative_spread(pairwise_distances(cloud(40, 6, seed))) for seed in range(300)]
    values, errors = np.array(found).T
    assert errors.mean() == pytest.approx(values.std(), rel=0.15)


@pytest.mark.parametrize("size", [1, 2, 3, 10, 1000])
def test_gaussian_clouds(size: int) -> None:
    """A distance is √2 times a variable of the chi law."""
    law = scipy.stats.chi(size)
    assert gaussian_spread(size) == pytest.approx(law.std() / law.mean(), rel=1e-6)
    assert dimension_of_spread(gaussian_spread(size)) == pytest.approx(size, rel=1e-6)


def test_very_many_dimensions() -> None:
    assert gaussian_spread(9999) == pytest.approx(gaussian_spread(10001) * math.sqrt(10001 / 9999), rel=1e-6)
    assert dimension_of_spread(gaussian_spread(1e8)) == pytest.approx(1e8)
    assert dimension_of_spread(0) == math.inf


def test_a_cloud_shows_what_the_law_says() -> None:
    points = cloud(400, 30)
    value, error = relative_spread(pairwise_distances(points))
    assert abs(value - gaussian_spread(30)) < 4 * error
    found, law = cosines(points), gaussian_cosines(30)
    assert found.std() == pytest.approx(law["deviation"], rel=0.02)
    assert np.quantile(found, [0.05, 0.25, 0.5, 0.75, 0.95]) == pytest.approx(law["quantiles"], abs=0.01)


def test_the_law_of_angles_on_the_circle() -> None:
    """In two dimensions the angle is uniform."""
    expected = [-math.cos(math.pi * share) for share in (0.05, 0.25, 0.5, 0.75, 0.95)]
    assert gaussian_cosines(2)["quantiles"] == pytest.approx(expected, abs=1e-9)


def test_participation_ratio() -> None:
    points = cloud(50, 8) * np.arange(1, 9)
    eigenvalues = np.linalg.eigvalsh(np.cov(points.T))
    assert participation_ratio(points) == pytest.approx(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())
    wide = cloud(5, 40)
    eigenvalues = np.linalg.eigvalsh(np.cov(wide.T))
    assert participation_ratio(wide) == pytest.approx(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())
    line = np.linspace(0, 1, 9)[:, None] * np.ones((1, 6))
    assert participation_ratio(line) == pytest.approx(1)
    assert participation_ratio(np.ones((4, 2))) == 0


def test_the_probe() -> None:
    points = torch.from_numpy(cloud(100, 12)) + 5
    reading = concentration(nn.Identity(), points)
    distances = scipy.spatial.distance.pdist(points.numpy())
    assert reading.value == pytest.approx(distances.std() / distances.mean())
    assert reading.details["gaussian"] == gaussian_spread(12)
    assert reading.details["distance_dimension"] == pytest.approx(12, rel=0.2)
    assert reading.details["raw_cosines"]["mean"] > 0.9
    # Σ of all products of centred points is 0, so that those of pairs have the mean of −|x|²/(n − 1).
    assert reading.details["cosines"]["mean"] == pytest.approx(-1 / 99, abs=2e-3)
    assert reading.details["mean_distance"] == pytest.approx(distances.mean())


@pytest.mark.parametrize("name", MAKERS)
def test_features_of_any_model(name: str) -> None:
    made = case(name)
    subject = Subject(made.model, made.batch, made.loss)
    points = points_in(subject, subject.batch, "features")
    assert points.shape[0] == 8
    assert np.isfinite(points).all()


def test_spaces_are_what_modules_give() -> None:
    made = case("resnet", double=True)
    subject = Subject(made.model, made.batch, made.loss)
    made.model.eval()
    kept: dict[str, torch.Tensor] = {}
    names = ("stem", "stages.0", "stages.1.0.branch", "head", "stages.2.2.activation")
    handles = [
        made.model.get_submodule(name).register_forward_hook(
            lambda m, a, out, name=name: kept.update({name: out})
        )
        for name in names
    ]
    with torch.no_grad():
        made.model(made.batch[0])
    for handle in handles:
        handle.remove()
    for name in names:
        assert np.allclose(points_in(subject, subject.batch, name), kept[name].reshape(8, -1).numpy())
    with pytest.raises(UnknownNameError, match=r"did you mean"):
        points_in(subject, subject.batch, "stems")


def test_the_name_of_a_function() -> None:
    made = case("functional-mlp", double=True)
    subject = Subject(made.model, made.batch)
    expected = torch.tanh(made.model.second(torch.relu(made.model.first(made.batch[0])))).detach()
    assert np.allclose(points_in(subject, subject.batch, "(model) · tanh"), expected.numpy())


def test_few_points_of_many() -> None:
    points = torch.randn(60, 3)
    values = {concentration(nn.Identity(), points, max_points=20, seed=seed).value for seed in range(3)}
    assert len(values) == 3
    assert concentration(nn.Identity(), points, max_points=20).details["num_points"] == 20


def test_where_it_is_not_defined() -> None:
    made = case("tied-lm")
    assert "not real" in concentration(made.model, made.batch).how
    assert "three examples" in concentration(nn.Identity(), torch.randn(2, 3)).how
    assert "not finite" in concentration(nn.Identity(), torch.full((4, 2), torch.inf)).how
    assert "the same" in concentration(nn.Identity(), torch.ones(4, 2)).how
