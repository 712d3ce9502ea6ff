"""Filter-normalised slices against their definition on models that were really moved."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.probes import Subject
from apoint.probes.slices import filter_normalised, loss_slice
from tests.probes.zoo import MAKERS, case


def direction_of(name: str, seed: int = 0) -> dict[str, Tensor]:
    made = case(name, double=True)
    return filter_normalised(Subject(made.model, made.batch, made.loss), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", MAKERS)
def test_each_filter_is_as_long_as_that_of_the_weights(name: str) -> None:
    direction = direction_of(name)
    for key, weights in case(name, double=True).model.named_parameters():
        if weights.dim() < 2:
            assert (direction[key] == 0).all()
            continue
        for along, filters in zip(direction[key], weights, strict=True):
            assert float(along.norm()) == pytest.approx(filters.norm().item())
            if float(filters.detach().norm()) and along.numel() > 1:
                cosine = float((along * filters.detach()).sum() / (along.norm() * filters.detach().norm()))
                assert abs(cosine) < 0.99999, "a direction of its own"


def moved_by_hand(name: str, length: float, training: bool = False) -> float:
    """The loss of a copy that was moved along the direction of seed 0."""
    made, direction = case(name, double=True), direction_of(name)
    twin = copy.deepcopy(made.model).train(training)
    with torch.no_grad():
        for key, parameter in twin.named_parameters():
            parameter += length * direction[key]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return float(Subject(twin, made.batch, made.loss).loss())


@pytest.mark.parametrize("name", ["mlp", "cnn-batch-norm", "tied-lm", "own-loss", "dict-input", "lstm"])
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_curve_is_the_loss_of_the_moved_model(name: str, mode: str) -> None:
    made = case(name, double=True)
    reading = loss_slice(made.model, made.batch, made.loss, num_directions=1, num_steps=2, mode=mode)  # type: ignore[arg-type]
    details = reading.details
    assert details["along"] == [-1.0, -0.5, 0.0, 0.5, 1.0]
    by_hand = [moved_by_hand(name, a, mode == "train") for a in details["along"]]
    assert details["curves"][0] == pytest.approx(by_hand, rel=1e-9)
    assert reading.value == pytest.approx((by_hand[1] + by_hand[3]) / 2 - by_hand[2], abs=1e-12)
    middle = (by_hand[1] - 2 * by_hand[2] + by_hand[3]) / 0.25
    assert details["curvature"] == pytest.approx([middle], abs=1e-9)
    assert reading.uncertainty is None
    assert mode in reading.how


def test_value_and_error_are_mean_and_spread_over_directions() -> None:
    made = case("mlp", double=True)
    reading = loss_slice(made.model, made.batch, made.loss, num_directions=6, distance=0.3, num_steps=4)
    details = reading.details
    low, high, middle = (details["along"].index(a) for a in (-0.3, 0.3, 0.0))
    assert len(details["along"]) == 11, "nine even steps and the two at the distance"
    rises = torch.tensor([(c[low] + c[high]) / 2 - c[middle] for c in details["curves"]]).double()
    assert reading.value == pytest.approx(float(rises.mean()))
    assert reading.uncertainty == pytest.approx(float(rises.std()) / math.sqrt(6))
    assert len({tuple(curve) for curve in details["curves"]}) == 6
    further = loss_slice(made.model, made.batch, made.loss, reach=2.0, num_steps=4)
    assert further.details["along"][0] == -2.0
    other = loss_slice(made.model, made.batch, made.loss, num_directions=6, distance=0.3, seed=1)
    assert other.value != reading.value


def test_a_convex_loss_curves_up_by_its_second_derivative() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2, bias=False).double()
    batch = (torch.randn(8, 3).double(), torch.randn(8, 2).double())
    details = loss_slice(model, batch, F.mse_loss, num_directions=3).details
    assert details["share_curving_down"] == [0.0, 0.0, 0.0]
    generator = torch.Generator().manual_seed(0)
    for curvature in details["curvature"]:
        direction = filter_normalised(Subject(model, batch, F.mse_loss), generator)["weight"]
        assert curvature == pytest.approx(2 * float((batch[0] @ direction.T).square().mean()), rel=1e-6)


def test_the_plane_holds_the_curves_on_its_axes() -> None:
    made = case("dict-input", double=True)
    details = loss_slice(
        made.model, made.batch, made.loss, num_directions=2, num_steps=2, distance=0.5, plane=True
    ).details
    plane = details["plane"]
    assert plane["axis"] == details["along"]
    assert [row[2] for row in plane["loss"]] == pytest.approx(details["curves"][0])
    assert plane["loss"][2] == pytest.approx(details["curves"][1])
    one = loss_slice(made.model, made.batch, made.loss, num_directions=1, num_steps=2, plane=True).details
    assert one["plane"] == plane, "a plane has two directions, however many are averaged"
    assert "plane" not in loss_slice(made.model, made.batch, made.loss, num_directions=1).details


def test_filters_of_zeros_stay_where_they_are() -> None:
    made = case("cnn-batch-norm", double=True)
    with torch.no_grad():
        made.model[0].weight[:2] = 0  # type: ignore[index, union-attr]
    direction = filter_normalised(
        Subject(made.model, made.batch, made.loss), torch.Generator().manual_seed(0)
    )
    assert (direction["0.weight"][:2] == 0).all()
    assert (direction["0.weight"][2:] != 0).all()
    reading = loss_slice(made.model, made.batch, made.loss)
    assert reading.value is not None
    assert math.isfinite(reading.value)


def test_scaling_filters_before_a_batch_norm_changes_nothing() -> None:
    made = case("cnn-batch-norm", double=True)
    norms = [module for module in made.model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.eps = 1e-30
    before = loss_slice(made.model, made.batch, made.loss, mode="train")
    with torch.no_grad():
        made.model[0].weight.mul_(7)  # type: ignore[index, union-attr, operator]
    after = loss_slice(made.model, made.batch, made.loss, mode="train")
    assert after.value == pytest.approx(before.value, rel=1e-9)
    assert after.details["curves"][0] == pytest.approx(before.details["curves"][0], rel=1e-9)


def test_a_transposed_convolution_counts_its_filters_on_the_second_axis() -> None:
    model = nn.ConvTranspose2d(3, 5, 2).double()
    batch = (torch.randn(2, 3, 4, 4).double(), torch.zeros(2, 5, 5, 5).double())
    direction = filter_normalised(Subject(model, batch), torch.Generator().manual_seed(0))["weight"]
    torch.testing.assert_close(
        *(torch.linalg.vector_norm(w, dim=(0, 2, 3)) for w in (direction, model.weight.detach()))
    )


def test_coverage_is_what_the_directions_move() -> None:
    made = case("mlp")
    total = sum(p.numel() for p in made.model.parameters())
    matrices = sum(p.numel() for p in made.model.parameters() if p.dim() > 1)
    assert loss_slice(made.model, made.batch, made.loss).coverage == pytest.approx(matrices / total)


def test_with_vectors_alone_there_is_no_slice() -> None:
    reading = loss_slice(nn.LayerNorm(4), (torch.randn(3, 4), torch.zeros(3, 4)))
    assert reading.status == "undefined"
    assert "bias or a scale" in reading.how
