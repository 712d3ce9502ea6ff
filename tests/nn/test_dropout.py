"""Dropout against torch's, stochastic depth against its probabilities, and the knobs that turn rates."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from apoint.errors import UsageError
from apoint.nn.dropout import Dropout, StochasticDepth, expected_depth, set_rate

X = torch.linspace(-2, 3, 4000, dtype=torch.float64).view(40, 100)


class Branch(nn.Module):
    """3x, counting its calls."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(3.0, dtype=torch.float64))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.weight * x


# -- dropout -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_inverted_dropout_is_torchs(rate):
    torch.manual_seed(0)
    ours = Dropout(rate)(X)
    torch.manual_seed(0)
    assert torch.equal(ours, nn.Dropout(rate)(X))
    assert torch.equal(Dropout(rate).eval()(X), X)


def test_scaling_at_test_time_keeps_survivors_and_shrinks_evaluation():
    torch.manual_seed(0)
    inverted = Dropout(0.25)(X)
    torch.manual_seed(0)
    layer = Dropout(0.25, scaling="test")
    dropped = layer(X)
    assert set(torch.unique((dropped / X).round(decimals=9)).tolist()) == {0.0, 1.0}
    torch.testing.assert_close(dropped, 0.75 * inverted)
    torch.testing.assert_close(layer.eval()(X), 0.75 * X)


@pytest.mark.parametrize("scaling", ["train", "test"])
def test_mean_over_masks_is_the_evaluation(scaling):
    """Within five standard errors of the mean over 20,000 masks."""
    rate, draws = 0.3, 20_000
    layer = Dropout(rate, scaling=scaling)
    torch.manual_seed(1)
    x = torch.ones(draws, dtype=torch.float64)
    mean, wanted = float(layer(x).mean()), float(layer.eval()(x).mean())
    size = 1.0 if scaling == "test" else 1 / (1 - rate)
    assert abs(mean - wanted) < 5 * size * math.sqrt(rate * (1 - rate) / draws)
    assert wanted == pytest.approx(0.7 if scaling == "test" else 1.0)


def test_rate_zero_draws_and_costs_nothing():
    state = torch.get_rng_state()
    layer = Dropout(0.0)
    assert layer(X) is X
    assert torch.equal(torch.get_rng_state(), state)


def test_draws_come_from_the_default_generator_alone():
    layer = Dropout(0.5)
    torch.manual_seed(3)
    first = layer(X)
    second = layer(X)
    torch.manual_seed(3)
    assert torch.equal(layer(X), first)
    assert not torch.equal(first, second)


def test_rate_may_change_during_training():
    layer = Dropout(0.0)
    layer.rate = 0.5
    torch.manual_seed(0)
    assert (layer(X) == 0).double().mean() == pytest.approx(0.5, abs=0.05)
    layer.rate = 0.0
    assert layer(X) is X


# -- stochastic depth ----------------------------------------------------------------------------------


def test_a_dropped_branch_is_not_computed():
    branch, drop = Branch(), StochasticDepth(0.5, 1.0, "batch")
    torch.manual_seed(0)
    outputs = [drop(branch, X) for _ in range(400)]
    kept = [out for out in outputs if out.dim()]
    assert branch.calls == len(kept) < 400
    assert abs(len(kept) - 200) < 5 * 10  # five standard deviations of a binomial
    for out in outputs:
        torch.testing.assert_close(X + out, X + 6 * X if out.dim() else X)


def test_a_dropped_branch_gets_no_gradient():
    branch, drop = Branch(), StochasticDepth(0.999, 1.0, "batch")
    x = X.clone().requires_grad_()
    torch.manual_seed(0)
    (x + drop(branch, x)).sum().backward()
    assert branch.calls == 0
    assert branch.weight.grad is None
    assert torch.equal(x.grad, torch.ones_like(x))


def test_each_sample_has_its_own_draw():
    x = torch.ones(20_000, 2, 3, dtype=torch.float64)
    torch.manual_seed(0)
    out = StochasticDepth(0.4, 0.5, "sample")(Branch(), x)
    assert torch.equal(out, out[:, :1, :1].expand_as(out))  # all of a sample goes together
    assert set(torch.unique(out.round(decimals=9)).tolist()) == {0.0, 3.75}
    kept = float((out[:, 0, 0] > 0).double().mean())
    assert abs(kept - 0.8) < 5 * math.sqrt(0.16 / 20_000)


@pytest.mark.parametrize("mode", ["batch", "sample"])
def test_scalings_of_stochastic_depth(mode):
    """In training survivors are divided by p_l, or left alone and evaluation multiplied by p_l."""
    for scaling, train, test in (("train", 3 / 0.75, 3.0), ("test", 3.0, 3 * 0.75)):
        drop = StochasticDepth(0.5, 0.5, mode, scaling)
        torch.manual_seed(0)
        seen = torch.cat([torch.atleast_1d(drop(Branch(), X) / X).flatten() for _ in range(20)])
        seen = seen.nan_to_num(0.0).round(decimals=9)
        assert set(torch.unique(seen).tolist()) <= {0.0, train}
        assert train in seen
        torch.testing.assert_close(drop.eval()(Branch(), X), test * X)


def test_no_draw_where_a_branch_always_survives():
    state = torch.get_rng_state()
    for drop in (StochasticDepth(0.0), StochasticDepth(0.5, 0.0), StochasticDepth(0.5).eval()):
        torch.testing.assert_close(drop(Branch(), X), 3 * X)
    assert torch.equal(torch.get_rng_state(), state)


def test_sample_mode_works_under_vmap():
    drop = StochasticDepth(0.5, 1.0, "sample")
    torch.manual_seed(0)
    out = torch.func.vmap(lambda x: drop(lambda y: y, x), randomness="different")(
        torch.ones(4, 64, 2, dtype=torch.float64)
    )
    assert out.shape == (4, 64, 2)
    assert not torch.equal(out[0], out[1])


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 200), st.floats(0, 0.99))
def test_expected_depth_is_the_sum_of_survivals(num_blocks, rate):
    survivals = [StochasticDepth(rate, number / num_blocks).survival for number in range(1, num_blocks + 1)]
    assert expected_depth(num_blocks, rate) == pytest.approx(sum(survivals), rel=1e-12)


def test_expected_depth_of_the_paper():
    """54 blocks and p_L = 1/2: the paper says about 40 of 54."""
    assert expected_depth(54, 0.5) == pytest.approx((3 * 54 - 1) / 4)


# -- knobs ---------------------------------------------------------------------------------------------


def test_set_rate_turns_one_knob_and_keeps_shares():
    model = nn.Sequential(
        Dropout(0.1, knob="input_dropout"),
        nn.Sequential(Dropout(0.2), nn.Dropout(0.3)),
        Dropout(0.2),
        StochasticDepth(0.5, 0.25),
        StochasticDepth(0.5, 1.0),
    )
    assert set_rate(model, "dropout", 0.4) == 2
    assert [m.rate for m in model.modules() if isinstance(m, Dropout)] == [0.1, 0.4, 0.4]
    assert model[1][1].p == 0.3  # torch's own modules have no knob
    assert set_rate(model, "stochastic_depth", 0.8) == 2
    assert [m.survival for m in (model[3], model[4])] == pytest.approx([0.8, 0.2])
    assert set_rate(model, "input_dropout", 0) == 1
    assert set_rate(model, "dorpout", 0.1) == 0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Dropout(1.0), "Dropout: rate must be at least 0 and less than 1, got 1.0"),
        (lambda: Dropout(-0.1), "Dropout: rate must be at least 0"),
        (lambda: Dropout(math.nan), "Dropout: rate must be at least 0"),
        (lambda: Dropout(0.1, scaling="both"), "Dropout: scaling must be 'train' or 'test', got 'both'"),
        (lambda: setattr(Dropout(), "rate", 2), "Dropout: rate must be at least 0 and less than 1, got 2"),
        (lambda: StochasticDepth(0.5, 1.5), "depth_share must be between 0 and 1, got 1.5"),
        (lambda: StochasticDepth(0.5, 1.0, "row"), "mode must be 'batch' or 'sample', got 'row'"),
        (lambda: set_rate(nn.Identity(), "dropout", 1), "knob 'dropout': rate must be"),
        (lambda: expected_depth(0, 0.5), "num_blocks must be at least 1, got 0"),
        (lambda: expected_depth(5, 1.0), "expected_depth: rate must be"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()


def test_printing_shows_the_settings():
    assert repr(Dropout(0.1)) == "Dropout(rate=0.1, knob='dropout', scaling='train')"
    assert "depth_share=0.5" in repr(StochasticDepth(0.1, 0.5))


def test_functional_dropout_is_what_is_drawn_for_each_dtype():
    x = X.float()
    torch.manual_seed(5)
    ours = Dropout(0.4)(x)
    torch.manual_seed(5)
    assert torch.equal(ours, F.dropout(x, 0.4))


@pytest.mark.parametrize("mode", ["batch", "sample"])
@pytest.mark.parametrize("scaling", ["train", "test"])
@pytest.mark.parametrize("training", [True, False])
def test_adding_a_branch_is_adding_what_the_module_gives(mode, scaling, training):
    drop = StochasticDepth(0.5, 0.8, mode, scaling).double().train(training)
    x, straight = torch.randn(2, 6, 3, dtype=torch.float64)
    for seed in range(8):
        torch.manual_seed(seed)
        expected = straight + drop(torch.sin, x)
        torch.manual_seed(seed)
        torch.testing.assert_close(drop.add(straight, torch.sin, x), expected)
