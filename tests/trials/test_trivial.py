"""What the best constant answer reaches, against scikit-learn's dummies."""

import math

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import log_loss, r2_score, root_mean_squared_error

from apoint.data import load
from apoint.errors import UsageError
from apoint.trials.constant_baseline import check_metric, default_metric, known_metrics, trivial_value


def test_classes_against_a_dummy() -> None:
    data = load("digits", seed=4)
    labels = data.test.targets.numpy()
    features = np.zeros((len(labels), 1))
    constant = DummyClassifier(strategy="prior").fit(features, labels)
    assert trivial_value(data, "test_accuracy", "cross-entropy") == pytest.approx(
        constant.score(features, labels)
    )
    assert trivial_value(data, "test_loss", "cross-entropy") == pytest.approx(
        log_loss(labels, constant.predict_proba(features))
    )
    assert trivial_value(data, "test_loss", "brier") is None
    assert default_metric(data) == "test_accuracy"


def test_regression_against_a_dummy() -> None:
    data = load("teacher")
    targets = data.test.targets.numpy()
    answer = DummyRegressor().fit(np.zeros((len(targets), 1)), targets).predict(np.zeros((len(targets), 1)))
    answer = answer.reshape(targets.shape)
    assert trivial_value(data, "test_rmse", "squared-error") == pytest.approx(
        root_mean_squared_error(targets, answer), rel=1e-5
    )
    assert trivial_value(data, "test_explained", "squared-error") == pytest.approx(
        r2_score(targets, answer), abs=1e-6
    )
    assert trivial_value(data, "test_loss", "huber") is None
    assert default_metric(data) == "test_rmse"


def test_language_is_the_entropy_of_the_characters() -> None:
    data = load("python-docs", context=16, stride=64, limit=64)
    counts = torch.bincount(data.test.targets.flatten()).double()
    shares = counts[counts > 0] / counts.sum()
    bits = float(-(shares * shares.log2()).sum())
    assert trivial_value(data, "test_bits_per_character", "cross-entropy") == pytest.approx(bits)
    assert trivial_value(data, "test_loss", "cross-entropy") == pytest.approx(bits * math.log(2))


def test_a_metric_that_is_not_logged() -> None:
    known = known_metrics(load("digits"), with_average=False)
    assert known == ["test_loss", "test_accuracy"]
    assert "test_average_loss" in known_metrics(load("digits"), with_average=True)
    with pytest.raises(UsageError, match="did you mean 'test_accuracy'"):
        check_metric("test_acuracy", known)
    with pytest.raises(UsageError, match="what was learned from"):
        check_metric("train_loss", known)
