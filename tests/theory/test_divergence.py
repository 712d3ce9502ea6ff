"""Divergences against scipy, numerical integration and drawn laws; the expansion by its order."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from apoint.errors import UsageError
from apoint.theory import divergence

LAWS = st.integers(2, 6).flatmap(
    lambda n: st.tuples(*[st.lists(st.floats(0.001, 1), min_size=n, max_size=n) for _ in range(2)])
)


@settings(deadline=None, max_examples=30)
@given(LAWS)
def test_gibbs_and_the_sum(drawn):
    p, q = (np.array(values) / np.sum(values) for values in drawn)
    found = divergence.kullback_leibler(p, q)
    assert found == pytest.approx(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)), abs=1e-12)
    assert found >= -1e-15
    assert divergence.cross_entropy(p, q) == pytest.approx(divergence.entropy(p) + found, abs=1e-12)
    assert divergence.entropy(p) == pytest.approx(stats.entropy(p), abs=1e-12)


def test_not_symmetric_and_zero_only_where_equal():
    p, q = [0.5, 0.5], [0.9, 0.1]
    assert divergence.kullback_leibler(p, q) == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(5))
    assert divergence.kullback_leibler(q, p) == pytest.approx(0.9 * math.log(1.8) + 0.1 * math.log(0.2))
    assert divergence.kullback_leibler(p, p) == 0


def test_supports():
    assert math.isinf(divergence.kullback_leibler([0.5, 0.5], [1, 0]))
    assert math.isinf(divergence.cross_entropy([0.5, 0.5], [1, 0]))
    assert divergence.kullback_leibler([1, 0], [0.5, 0.5]) == pytest.approx(math.log(2))


@pytest.mark.parametrize("epsilon", [1e-3, 1e-6])
def test_smoothing(epsilon):
    p, q = divergence.smoothed([0.5, 0.5, 0], epsilon), divergence.smoothed([1, 0, 0], epsilon)
    assert p.sum() == pytest.approx(1)
    assert p[2] == pytest.approx(epsilon / (1 + 3 * epsilon))
    # What was infinite is now about p ln(1/ε): here ½ ln(½) + ½ ln(½/ε) up to O(ε ln ε).
    expected = 0.5 * math.log(0.5) + 0.5 * math.log(0.5 / epsilon)
    assert divergence.kullback_leibler(p, q) == pytest.approx(expected, abs=30 * epsilon)


def test_gaussian_against_integration_and_draws():
    found = divergence.gaussian_kullback_leibler([0.3], [[0.7]], [-0.5], [[2.0]])
    p, q = stats.norm(0.3, math.sqrt(0.7)), stats.norm(-0.5, math.sqrt(2.0))
    by_hand = integrate.quad(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), -12, 12)[0]
    assert found == pytest.approx(by_hand, abs=1e-9)
    random = np.random.default_rng(0)
    roots = [random.normal(size=(3, 3)) for _ in range(2)]
    first, second = (root @ root.T + np.eye(3) for root in roots)
    laws = [stats.multivariate_normal([1, 0, 2], first), stats.multivariate_normal([0, 0, 0], second)]
    points = laws[0].rvs(200_000, random_state=1)
    ratios = laws[0].logpdf(points) - laws[1].logpdf(points)
    expected = divergence.gaussian_kullback_leibler([1, 0, 2], first, [0, 0, 0], second)
    assert abs(ratios.mean() - expected) < 4 * ratios.std() / math.sqrt(len(points))


def test_fisher_of_a_softmax_is_its_covariance():
    logits = torch.tensor([0.2, -1.0, 0.7], dtype=torch.float64)
    p = logits.softmax(0)
    fisher = divergence.fisher_matrix(lambda x: x.log_softmax(0), logits)
    torch.testing.assert_close(fisher, torch.diag(p) - torch.outer(p, p))


def test_expansion_is_of_the_second_order_with_its_half():
    logits = torch.tensor([0.2, -1.0, 0.7], dtype=torch.float64)
    fisher = divergence.fisher_matrix(lambda x: x.log_softmax(0), logits)
    direction = torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64)
    misses = []
    for size in (1e-1, 1e-2):
        step = size * direction
        exact = divergence.kullback_leibler(logits.softmax(0), (logits + step).softmax(0))
        misses.append(abs(exact - divergence.second_order(fisher, step)))
        assert divergence.second_order(fisher, step) == pytest.approx(exact, rel=size)
    assert misses[0] / misses[1] == pytest.approx(1000, rel=0.1)  # the rest is of the third order


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: divergence.entropy([0.5, -0.5, 1]), "probabilities from 0 on"),
        (lambda: divergence.entropy([0.5, 0.6]), "p must add up to 1, got 1.1"),
        (lambda: divergence.kullback_leibler([1], [0.5, 0.5]), "as many outcomes, got 1 and 2"),
        (lambda: divergence.smoothed([1], 0), "epsilon must be positive and finite, got 0"),
        (lambda: divergence.second_order(np.eye(2), [1, 2, 3]), r"needs a matrix \[3, 3\], got \[2, 2\]"),
        (
            lambda: divergence.gaussian_kullback_leibler([0], [[-1]], [0], [[1]]),
            "covariance must be positive definite, and has the eigenvalue -1",
        ),
        (
            lambda: divergence.gaussian_kullback_leibler([0, 0], [[1]], [0, 0], [[1]]),
            r"symmetric \[2, 2\] matrix, got \[1, 1\]",
        ),
        (
            lambda: divergence.gaussian_kullback_leibler([0], [[1]], [0, 0], [[1]]),
            "means must have as many entries, got 1 and 2",
        ),
        (lambda: divergence.fisher_matrix(lambda x: x, torch.zeros(2)), "must add up to 1, got 2"),
    ],
)
def test_bad_input_is_told(call, words):
    with pytest.raises(UsageError, match=words):
        call()
