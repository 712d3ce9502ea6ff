"""The generalisation gap against losses of single examples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from apoint.probes.gap import generalisation_gap, weighted_mean
from tests.probes.zoo import MAKERS, case


def test_by_single_examples() -> None:
    made, other = case("mlp", double=True), case("mlp", seed=1, double=True)
    reading = generalisation_gap(made.model, made.batch, made.loss, other.batch)
    made.model.eval()
    sides = {}
    for name, (x, y) in (("train", made.batch), ("test", other.batch)):
        with torch.no_grad():
            logits = made.model(x)
        losses = F.cross_entropy(logits, y, reduction="none").numpy()
        right = (logits.argmax(1) == y).double().numpy()
        sides[name] = losses, right
        assert reading.details[f"{name}_loss"] == pytest.approx(losses.mean())
        assert reading.details[f"{name}_loss_error"] == pytest.approx(losses.std(ddof=1) / math.sqrt(8))
        assert reading.details[f"{name}_accuracy"] == pytest.approx(right.mean())
        assert reading.details[f"{name}_accuracy_error"] == pytest.approx(right.std(ddof=1) / math.sqrt(8))
    (train, right), (test, test_right) = sides["train"], sides["test"]
    assert reading.value == pytest.approx(test.mean() - train.mean())
    assert reading.uncertainty == pytest.approx(math.sqrt(train.var(ddof=1) / 8 + test.var(ddof=1) / 8))
    assert reading.details["accuracy_gap"] == pytest.approx(right.mean() - test_right.mean())


def test_parts_estimate_the_same_error() -> None:
    """On average, whatever the number of parts: against the error from single examples."""
    torch.manual_seed(0)
    values = torch.randn(300, 100, dtype=torch.float64)
    truth = 1 / 100
    for num_parts in (7, 20, 100):
        parts = [(row.tensor_split(num_parts)) for row in values]
        squares = [
            weighted_mean(
                torch.stack([part.mean() for part in row]), torch.tensor([float(len(part)) for part in row])
            )[1] ** 2
            for row in parts
        ]  # fmt: skip
        assert np.mean(squares) == pytest.approx(truth, rel=4 * math.sqrt(2 / (num_parts - 1) / 300))


def test_the_mean_over_parts_is_the_mean() -> None:
    made = case("mlp", double=True)
    x, y = torch.randn(50, 6).double(), torch.arange(50) % 4
    reading = generalisation_gap(made.model, (x, y), made.loss, (x, y), num_parts=7)
    made.model.eval()
    assert reading.details["train_loss"] == pytest.approx(float(F.cross_entropy(made.model(x), y).detach()))
    assert reading.value == pytest.approx(0, abs=1e-12)
    other = generalisation_gap(made.model, (x, y), made.loss, (x, y), num_parts=7, seed=1)
    assert other.uncertainty != reading.uncertainty
    assert generalisation_gap(made.model, (x, y), made.loss, (x, y)).uncertainty != reading.uncertainty


def test_a_model_that_knows_its_data_by_heart() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 200), nn.ReLU(), nn.Linear(200, 4))
    x, y = torch.randn(60, 20), torch.randint(4, (60,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    reading = generalisation_gap(model, (x, y), None, (torch.randn(60, 20), torch.randint(4, (60,))))
    assert reading.value is not None
    assert reading.uncertainty is not None
    assert reading.value > 5 * reading.uncertainty
    assert reading.details["accuracy_gap"] > 0.5


@pytest.mark.parametrize("name", MAKERS)
def test_any_model_has_one(name: str) -> None:
    made = case(name)
    reading = generalisation_gap(made.model, made.batch, made.loss, case(name, seed=1).batch)
    assert reading.status == "estimated"
    assert ("accuracy_gap" in reading.details) == (name != "dict-input")


def test_what_is_not_there() -> None:
    made = case("mlp")
    assert "no test batch" in generalisation_gap(made.model, made.batch, made.loss).how
    assert "no loss" in generalisation_gap(made.model, made.batch[0], None, made.batch[0]).how
    one = tuple(part[:1] for part in made.batch)
    assert math.isnan(generalisation_gap(made.model, one, made.loss, made.batch).uncertainty or 0)
