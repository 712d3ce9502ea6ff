"""The range test: where it must end, where it must not answer, and that it leaves no trace."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import apoint.optim
from apoint.errors import UsageError
from apoint.probes import Subject
from apoint.probes.range_test import copied_optimizer, has_diverged, learning_rate_range
from tests.probes.state import same_state, state_of
from tests.probes.zoo import case

NOTHING = torch.zeros(4, 1)

OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "adamw, fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "adam, rate in a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(1e-3), foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=2),
    "our lion": lambda p: apoint.optim.Lion(p, lr=1e-3, weight_decay=0.1),
    "our momentum": lambda p: apoint.optim.Momentum(p, lr=1e-2, momentum=0.7),
    "our adamw": lambda p: apoint.optim.AdamW(p, lr=1e-3),
    "our lookahead": lambda p: apoint.optim.Lookahead(p, lr=1e-3),
}


class Quadratic(nn.Module):
    """f(w) = Σ λ_i·w_i²/2 times a factor, whatever the input."""

    def __init__(self, *eigenvalues: float, factor: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("eigenvalues", factor * torch.tensor(eigenvalues, dtype=torch.float64))
        self.w = nn.Parameter(torch.linspace(1, 2, len(eigenvalues), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * (self.get_buffer("eigenvalues") * self.w.square()).sum()


def trained(name: str, kind: str, num_steps: int = 3) -> tuple[Any, Any]:
    """A case that was trained for some steps, so that its optimizer has a memory."""
    made = case(name, double=True)
    optimizer = OPTIMIZERS[kind](made.model.parameters())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(num_steps):
            one_step(made.model, made, optimizer)
    return made, optimizer


def one_step(model: nn.Module, made: Any, optimizer: Any) -> None:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = Subject(model, made.batch, made.loss).loss()
        loss.backward()
        return loss.detach()

    optimizer.step(closure)


def frozen(optimizer: torch.optim.Optimizer) -> Any:
    """All that an optimizer knows, to compare."""
    return copy.deepcopy(optimizer.state_dict())


def same(one: Any, two: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_it_leaves_model_optimizer_and_generators_as_they_were(kind: str) -> None:
    for name in ("raw-parameters", "own-loss"):
        made, optimizer = trained(name, kind)
        model, memory, addresses = state_of(made.model), frozen(optimizer), list(optimizer.state)
        reading = learning_rate_range(
            made.model, made.batch, made.loss, optimizer, num_rates=12, num_repeats=2, lowest=1e-5
        )
        assert reading.details["optimizer"] == type(optimizer).__name__
        assert same_state(model, state_of(made.model))
        assert same(memory, frozen(optimizer))
        assert [id(p) for p in addresses] == [id(p) for p in optimizer.state]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_copied_optimizer_steps_as_the_original(kind: str) -> None:
    made, optimizer = trained("mlp", kind)
    parameters = dict(made.model.named_parameters())
    twin = copy.deepcopy(made.model)
    copies = dict(twin.named_parameters())
    copied = copied_optimizer(optimizer, parameters, copies)
    for _ in range(2):
        one_step(twin, made, copied)
        one_step(made.model, made, optimizer)
    for name, parameter in parameters.items():
        assert torch.equal(parameter, copies[name]), name


def test_groups_keep_the_ratios_of_their_rates() -> None:
    # Each group's own eigenvalue times its rate decides; the second has a hundredth of the rate.
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.ones(1).double())
            self.b = nn.Parameter(torch.ones(1).double())

        def forward(self, x: Tensor) -> Tensor:
            return 0.5 * (self.a.square() + 100 * self.b.square()).sum()

    model = Two()
    groups = [{"params": [model.a], "lr": 0.5}, {"params": [model.b], "lr": 0.005}]
    both = learning_rate_range(model, NOTHING, None, torch.optim.SGD(groups), num_repeats=1)
    alone = learning_rate_range(
        model, NOTHING, None, torch.optim.SGD([model.a, model.b], lr=1.0), num_repeats=1
    )
    assert both.value is not None
    assert alone.value is not None
    assert both.value / alone.value > 30


# -- where it ends ---------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=4))
def test_on_a_quadratic_it_is_never_below_the_true_limit(eigenvalues: list[int]) -> None:
    model = Quadratic(*map(float, eigenvalues))
    reading = learning_rate_range(model, NOTHING, lowest=1e-4, num_rates=80, num_repeats=1)
    step = reading.details["rates"][1] / reading.details["rates"][0]
    limit = 2 / max(eigenvalues)
    assert reading.value is not None
    # Just below the limit there are rates at which the weight all but reaches 0, from where growing takes
    # a while to show: 14 of the 80 steps for one eigenvalue of 89.
    assert limit / step <= reading.value <= limit * step**18, "some steps late at most"


def test_a_loss_a_hundred_times_as_large_takes_a_hundredth_of_the_rate() -> None:
    small = learning_rate_range(Quadratic(1.0, 0.3), NOTHING, lowest=1e-3, highest=1e2)
    large = learning_rate_range(Quadratic(1.0, 0.3, factor=100), NOTHING, lowest=1e-5, highest=1)
    assert small.value is not None
    assert large.value == pytest.approx(small.value / 100)
    assert large.details["interval"] == pytest.approx([end / 100 for end in small.details["interval"]])


def test_repeats_differ_and_make_the_interval_and_the_band() -> None:
    made = case("mlp")
    reading = learning_rate_range(made.model, made.batch, made.loss, num_repeats=5)
    details = reading.details
    highest, rates = details["highest_of_repeats"], details["rates"]
    assert len(set(highest)) > 1, "each repeat has mini-batches of its own"
    assert reading.value == pytest.approx(sorted(highest)[2])
    assert details["interval"][0] == min(highest)
    assert details["interval"][1] == rates[rates.index(max(highest)) + 1]
    band = details["band"]
    for low, middle, high in zip(band["low"], band["middle"], band["high"], strict=True):
        assert low <= middle <= high
    assert band["high"][0] == pytest.approx(band["low"][0], rel=1e-3), "nothing moves at the lowest rate"
    assert band["low"][-1] == math.inf
    assert reading.uncertainty is not None
    low, high = details["suggested"]
    assert rates[0] < low < high < reading.value
    again = learning_rate_range(made.model, made.batch, made.loss, num_repeats=5, seed=9)
    assert again.details["highest_of_repeats"] != highest


def test_at_the_suggested_rates_training_works_and_above_the_interval_it_does_not() -> None:
    made = case("functional-mlp")
    details = learning_rate_range(made.model, made.batch, made.loss).details
    ends = {}
    for rate in (*details["suggested"], 3 * details["interval"][1]):
        twin = copy.deepcopy(made.model)
        optimizer = torch.optim.SGD(twin.parameters(), lr=rate)
        for _ in range(30):
            one_step(twin, made, optimizer)
        ends[rate] = Subject(twin, made.batch, made.loss).loss().item()
    begun = Subject(made.model, made.batch, made.loss).loss().item()
    low, high, beyond = ends.values()
    assert low < 0.99 * begun
    assert high < 0.8 * begun
    assert beyond > 0.85 * begun


def test_the_share_of_a_mini_batch_counts() -> None:
    made = case("mlp")
    whole = learning_rate_range(made.model, made.batch, made.loss, share=1.0)
    assert len(set(whole.details["highest_of_repeats"])) == 1, "every repeat has all examples"
    half = learning_rate_range(made.model, made.batch, made.loss, share=0.25)
    assert half.details["band"] != whole.details["band"]


@pytest.mark.parametrize(
    ("losses", "margin", "expected"),
    [
        ([1.0, 0.9], 0.5, False),
        ([1.0, 1.4], 0.5, False),
        ([1.0, 1.6], 0.5, True),
        ([1.0, 0.2, 0.9], 0.5, False),  # much lost, but still below the beginning
        ([1.0, 0.2, 1.1], 0.5, True),
        ([1.0, 1.6], 0.7, False),
        ([1.0, math.nan], 0.5, True),
        ([1.0, math.inf], 0.5, True),
        ([-1.0, -1.2, -0.9], 0.5, False),  # a loss may be negative
        ([-1.0, -1.2, -0.6], 0.5, True),
    ],
)
def test_when_a_sweep_has_diverged(losses: list[float], margin: float, expected: bool) -> None:
    assert has_diverged(losses, margin) is expected


# -- where it must not answer ----------------------------------------------------------------------------


def test_without_divergence_there_is_no_number() -> None:
    reading = learning_rate_range(Quadratic(1.0), NOTHING, highest=0.1)
    assert reading.status == "undefined"
    assert reading.how == "3 of 3 sweeps did not diverge up to a rate of 0.1"
    assert len(reading.details["band"]["low"]) == 48


def test_with_divergence_at_once_there_is_no_number() -> None:
    reading = learning_rate_range(Quadratic(1.0), NOTHING, lowest=10.0)
    assert reading.how == "the loss diverges at the first rate of 10 already; begin lower"


def test_repeats_that_disagree_give_no_number() -> None:
    made = case("mlp")
    reading = learning_rate_range(made.model, made.batch, made.loss, num_repeats=5, agreement=1.01)
    assert reading.status == "undefined"
    assert reading.how.startswith("the sweeps disagree by a factor of")


def test_a_loss_that_does_not_fall_gets_no_suggestion() -> None:
    model = Quadratic(1.0)
    reading = learning_rate_range(model, NOTHING, gain=2.0)
    assert reading.value is not None
    assert reading.details["suggested"] is None
    assert "no range is suggested" in reading.notes[0]
    assert learning_rate_range(model, NOTHING).details["suggested"] is not None


def test_a_loss_that_is_not_finite_from_the_start() -> None:
    model = Quadratic(1.0)
    with torch.no_grad():
        model.w.fill_(math.nan)
    assert learning_rate_range(model, NOTHING).how == "the loss is not finite before the first step"


@pytest.mark.parametrize("wrong", [{"lowest": 1.0, "highest": 0.1}, {"num_rates": 1}])
def test_rates_that_do_not_rise_are_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="at least 2 rates, from a lower to a higher one"):
        learning_rate_range(Quadratic(1.0), NOTHING, **wrong)


def test_an_optimizer_of_another_model_is_named() -> None:
    elsewhere = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    reading = learning_rate_range(Quadratic(1.0), NOTHING, None, elsewhere)
    assert reading.how == "the optimizer holds none of the model's trainable parameters"


def test_an_optimizer_that_cannot_be_made_anew_is_named() -> None:
    class Odd(torch.optim.SGD):
        def __init__(self, params: Any, secret: int) -> None:
            assert secret == 7
            super().__init__(params, lr=0.1)

    model = Quadratic(1.0)
    reading = learning_rate_range(model, NOTHING, None, Odd(model.parameters(), 7))
    assert reading.status == "undefined"
    assert reading.how.startswith("Odd cannot be built again for a test")


def test_coverage_is_what_the_optimizer_trains() -> None:
    model = nn.Linear(3, 2)
    batch = (torch.randn(8, 3), torch.randn(8, 2))
    reading = learning_rate_range(model, batch, None, torch.optim.SGD([model.weight], lr=0.1))
    assert reading.coverage == pytest.approx(6 / 8)
