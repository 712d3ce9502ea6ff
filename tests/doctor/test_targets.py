"""Whether inputs and targets belong together: against scikit-learn, and on data that do and do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_selection import f_classif
from sklearn.linear_model import Ridge
from sklearn.metrics import mutual_info_score
from sklearn.model_selection import KFold, cross_val_predict
from torch import Tensor, nn

from apoint.doctor import targets
from apoint.doctor.examination import Examination
from apoint.doctor.examples import Examples
from apoint.doctor.examples import examples as examples_of
from apoint.doctor.patient import patient
from tests.doctor.cases import codes, digits, inspected, perceptron


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def whole(*shape: int, below: int, seed: int = 0) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(80, 300), st.integers(1, 30))
def test_numbers_without_relation_are_within_a_few_standard_errors(seed: int, n: int, features: int) -> None:
    z = targets.agreement_of_numbers(normal(n, features, seed=seed), normal(n, seed=seed + 1))
    assert z is not None
    assert z < 5.0


def test_numbers_that_follow_from_inputs_are_far_beyond() -> None:
    x = normal(400, 10)
    for y in (x[:, 0] + 0.5 * normal(400, seed=1), x[:, :2].square().sum(1), x[:, 0].sin()):
        assert (targets.agreement_of_numbers(x, y) or 0) > 5
    assert targets.agreement_of_numbers(x, torch.ones(400, dtype=torch.float64)) is None


def test_the_line_is_ridge_regression_over_folds() -> None:
    x, y = normal(120, 6), normal(120, seed=3) + normal(120, 6)[:, 0]
    x = (x - x.mean(0)) / x.std(0)
    mine = targets._foretold(x, y)
    folds = np.arange(120) % targets.FOLDS
    for fold in range(targets.FOLDS):
        inside = folds != fold
        model = Ridge(alpha=targets.RIDGE * inside.sum(), fit_intercept=False)
        model.fit(x[inside].numpy(), (y[inside] - y[inside].mean()).numpy())
        np.testing.assert_allclose(mine[~inside].numpy(), model.predict(x[~inside].numpy()), atol=1e-10)
    its = cross_val_predict(Ridge(alpha=10.0), x.numpy(), y.numpy(), cv=KFold(5))
    assert np.corrcoef(mine.numpy(), its)[0, 1] > 0.9


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(2, 9))
def test_shared_information_is_scikit_learns(seed: int, left: int, right: int) -> None:
    one, other = whole(40, 7, below=left, seed=seed), whole(40, 7, below=right, seed=seed + 1)
    expected = mutual_info_score(one.flatten().numpy(), other.flatten().numpy())
    assert targets._shared_information(one, other) == pytest.approx(expected, abs=1e-12)


def test_tokens_and_the_next_ones_belong_together_until_they_are_shuffled() -> None:
    walk = (whole(60, 33, below=3).cumsum(1)) % 20
    inputs, following = walk[:, :-1], walk[:, 1:]
    assert (targets.agreement_of_tokens(inputs, following) or 0) > 20
    shuffled = following[torch.randperm(60, generator=torch.Generator().manual_seed(5))]
    assert abs(targets.agreement_of_tokens(inputs, shuffled) or 0) < 6


def test_what_a_class_explains_is_the_share_of_an_analysis_of_variance() -> None:
    x, y = normal(200, 4), whole(200, below=5)
    x[:, 1] += y
    scores, _ = f_classif(x.numpy(), y.numpy())
    expected = 4 * scores / (4 * scores + 195)
    np.testing.assert_allclose(targets.explained_by_class(x, y).numpy(), expected, rtol=1e-9)


def test_what_a_number_explains_is_the_squared_correlation() -> None:
    x, y = normal(200, 3), normal(200, seed=9)
    x[:, 2] = 1.0
    x[:, 1] += y
    mine = targets.explained_by_number(x, y)
    for feature in (0, 1):
        expected = np.corrcoef(x[:, feature].numpy(), y.numpy())[0, 1] ** 2
        assert float(mine[feature]) == pytest.approx(expected, rel=1e-9)
    assert float(mine[2]) == 0


def data(inputs: Tensor, goals: Tensor) -> Examples:
    return examples_of(nn.Identity(), (inputs, goals), 8)


def test_which_targets_are_classes_numbers_or_tokens() -> None:
    x = normal(10, 3).float()
    assert targets.labels_of(data(x, whole(10, below=3))) is not None
    assert targets.labels_of(data(x, whole(10, 1, below=2).float())) is not None
    assert targets.labels_of(data(x, normal(10))) is None
    assert targets.labels_of(data(x, torch.arange(10) * 1000)) is None
    assert targets.numbers_of(data(x, normal(10, 1))) is not None
    assert targets.numbers_of(data(x, normal(10, 2))) is None
    assert targets.tokens_of(data(whole(10, 4, below=9), whole(10, 4, below=9))) is not None
    assert targets.tokens_of(data(whole(10, 4, below=9), whole(10, 3, below=9))) is None


@pytest.mark.parametrize("kind", ["classes", "numbers", "tokens"])
def test_targets_in_any_wrong_order_are_called_shuffled(kind: str) -> None:
    """Also where chance alone made them agree a little: thirty orders, and none passes for the right one."""
    x, y = digits()
    walk = (whole(100, 33, below=3).cumsum(1)) % 20
    pairs = {"classes": (x[:400], y[:400]), "numbers": (x[:400], x[:400, 20] + x[:400, 30])}
    inputs, goals = pairs.get(kind, (walk[:, :-1], walk[:, 1:]))
    assert "shuffled-labels" not in said(inputs, goals)
    for seed in range(30):
        order = torch.randperm(len(goals), generator=torch.Generator().manual_seed(seed))
        assert "shuffled-labels" in said(inputs, goals[order]), seed


def said(inputs: Tensor, goals: Tensor) -> list[str]:
    who = patient(nn.Linear(1, 1), (inputs, goals), nn.MSELoss())
    return [finding.code for finding in targets.examine(Examination(who), who.train)]


class Averaging(nn.Module):
    """A mean over examples in place of features."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1)).relu()
        return self.last(hidden - hidden.mean(0))


def test_examples_that_are_mixed_are_noticed_and_batch_norm_in_eval_mode_is_not() -> None:
    assert codes(inspected(Averaging()))[0] == "mixed-examples"
    normed = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    assert "mixed-examples" not in codes(inspected(normed))
    assert "mixed-examples" not in codes(inspected(perceptron()))
