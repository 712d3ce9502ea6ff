"""Dead units against their definition, and where they were planted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from apoint.probes.units import dead_units
from tests.probes.zoo import case


class Net(nn.Module):
    """A layer of eight units with any activation behind it, some with a bias that no input outweighs."""

    def __init__(self, activation: Callable[[Tensor], Tensor], biases: list[float]) -> None:
        super().__init__()
        self.first, self.last, self.activation = nn.Linear(4, 8), nn.Linear(8, 3), activation
        with torch.no_grad():
            self.first.weight.normal_()
            self.first.bias.copy_(torch.tensor(biases + [0.0] * (8 - len(biases))))

    def forward(self, x: Tensor) -> Tensor:
        last: Tensor = self.last(self.activation(self.first(x)))
        return last


@pytest.mark.parametrize(
    ("activation", "bias"),
    [
        (nn.ReLU(), -1e4), (F.relu, -1e4), (lambda x: x.clamp(min=0), -1e4), (nn.ReLU(inplace=True), -1e4),
        (torch.tanh, -1e4), (torch.tanh, 1e4), (torch.sigmoid, 1e4), (F.gelu, -1e4), (F.silu, -1e4),
        (F.elu, -1e4), (F.hardtanh, 1e4), (lambda x: torch.where(x > 0, x, 0.0), -1e4),
        (lambda x: torch.relu(x) * 2 + 1, -1e4),
    ],
)  # fmt: skip
def test_planted_dead_units_are_found(activation: Callable[[Tensor], Tensor], bias: float) -> None:
    torch.manual_seed(0)
    reading = dead_units(Net(activation, [bias] * 3), torch.randn(200, 4))
    assert reading.value == 3 / 8
    assert reading.per_layer == {"first": 3 / 8}
    assert reading.details["near_dead"] == 3 / 8


@pytest.mark.parametrize(
    ("activation", "bias"),
    [(F.leaky_relu, -1e4), (F.relu, 1e4), (F.gelu, 1e4), (lambda x: x * torch.sigmoid(x), 1e4),
     (torch.sin, 1e4)],
)  # fmt: skip
def test_units_that_only_look_dead(activation: Callable[[Tensor], Tensor], bias: float) -> None:
    """Among them a sigmoid whose slope is 0, but which lets all through as the gate that it is."""
    reading = dead_units(Net(activation, [bias] * 3), torch.randn(200, 4))
    assert reading.value == 0


def test_a_closed_gate_is_dead() -> None:
    reading = dead_units(Net(lambda x: torch.relu(x) * (x + 1), [-1e4] * 2), torch.randn(50, 4))
    assert reading.value == 2 / 8


def test_dead_means_that_the_weights_get_no_gradient() -> None:
    torch.manual_seed(1)
    model, x = Net(F.relu, [-6.0] * 5).double(), torch.randn(30, 4).double()
    model(x).square().sum().backward()
    assert model.first.weight.grad is not None
    without = (model.first.weight.grad == 0).all(1).double().mean()
    assert 0 < without < 1
    assert dead_units(model, x).value == float(without)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(-3, 1), st.sampled_from([(40, 5), (12, 5, 7), (12, 3, 4, 4)]))
def test_the_definition(seed: int, bias: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(seed)
    x = torch.randn(shape) + bias
    channels = len(shape) == 4
    found = dead_units(nn.Sequential(nn.ReLU()), x, near=0.9)
    axis = 1 if channels else len(shape) - 1
    silent = torch.stack([(unit <= 0).double().mean() for unit in x.unbind(axis)])
    table = found.details["activations"]
    assert table["num_units"] == [shape[axis]]
    assert found.value == pytest.approx(float((silent == 1).double().mean()))
    assert table["near_dead"][0] == pytest.approx(float((silent > 0.9).double().mean()))
    assert table["active"][0] == pytest.approx(float(1 - silent.mean()), abs=1e-6)


def test_near_dead() -> None:
    x = -torch.ones(1000, 3)
    x[:5, 1] = 1.0
    x[:50, 2] = 1.0
    reading = dead_units(nn.ReLU(), x)
    assert (reading.value, reading.details["near_dead"]) == (1 / 3, 2 / 3)
    assert dead_units(nn.ReLU(), x, near=0.9).details["near_dead"] == 1.0


def test_how_flat_is_flat() -> None:
    x = torch.full((10, 2), 5.0)  # tanh' = 1.8e-4
    assert dead_units(nn.Tanh(), x).value == 0
    assert dead_units(nn.Tanh(), x, flat=1e-3).value == 1


def test_resolution() -> None:
    """A unit active with the stated probability is missed by so many examples five times in a hundred."""
    reading = dead_units(nn.ReLU(), torch.randn(60, 4))
    share = reading.details["smallest_share"]
    assert (1 - share) ** 60 == pytest.approx(0.05)
    assert "60 examples" in reading.notes[0]


def test_what_cannot_be_seen_is_said() -> None:
    made = case("lstm")
    assert "inside lstm" in dead_units(made.model, made.batch).how
    assert dead_units(nn.Linear(3, 2), torch.randn(4, 3)).how == "the model has no activations"

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(5, 8, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.lstm(x)[0])

    reading = dead_units(Both(), torch.randn(4, 3, 5))
    assert reading.status == "computed"
    assert reading.notes[1] == "activations inside lstm are not seen"


def test_values_that_are_not_numbers_are_not_dead() -> None:
    assert dead_units(nn.ReLU(), torch.full((4, 2), float("nan"))).value == 0
