"""Other parameters, the same function: outputs, gradients and the null directions of the Jacobian."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parameters_to_vector

from apoint.errors import UsageError
from apoint.theory import symmetry


def network(activation=nn.ReLU, sizes=(3, 7, 5, 2), bias=True, seed=0):
    torch.manual_seed(seed)
    layers = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after, bias=bias), activation()]
    return nn.Sequential(*layers[:-1]).double()


X = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def factors_of(model, generator, spread=2.0):
    return [
        torch.exp(spread * torch.randn(n, generator=generator, dtype=torch.float64))
        for n in symmetry.hidden_sizes(model)
    ]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.booleans(), st.sampled_from([nn.ReLU, nn.LeakyReLU]))
def test_rescaling_keeps_the_function_and_moves_the_parameters(seed, bias, activation):
    model = network(activation, bias=bias, seed=seed)
    factors = factors_of(model, torch.Generator().manual_seed(seed))
    other = symmetry.rescale(model, factors)
    torch.testing.assert_close(other(X), model(X), rtol=1e-10, atol=1e-11)
    assert not torch.allclose(
        parameters_to_vector(other.parameters()), parameters_to_vector(model.parameters())
    )
    torch.testing.assert_close(other[0].weight, model[0].weight * factors[0][:, None])
    back = symmetry.rescale(other, [1 / factor for factor in factors])
    torch.testing.assert_close(back[2].weight, model[2].weight)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.GELU])
def test_permuting_keeps_the_function_of_any_activation(activation):
    model = network(activation)
    generator = torch.Generator().manual_seed(3)
    orders = [torch.randperm(n, generator=generator) for n in symmetry.hidden_sizes(model)]
    other = symmetry.permute(model, orders)
    torch.testing.assert_close(other(X), model(X))
    assert torch.equal(other[0].bias, model[0].bias[orders[0]])
    assert not torch.equal(other[4].weight, model[4].weight)


def test_flips_keep_the_function_of_odd_activations_and_of_no_others():
    signs = [torch.tensor([1.0, -1, 1, -1, -1, 1, 1]), torch.tensor([-1.0, 1, 1, -1, 1])]
    tanh = network(nn.Tanh)
    torch.testing.assert_close(symmetry.flip(tanh, signs)(X), tanh(X))
    with pytest.raises(UsageError, match="flip: activations must be odd, got ReLU"):
        symmetry.flip(network(nn.ReLU), signs)


def test_scaling_the_units_of_a_tanh_network_changes_it():
    tanh = network(nn.Tanh)
    factors = [torch.full((n,), 1.5) for n in symmetry.hidden_sizes(tanh)]
    assert (symmetry.scale_units(tanh, factors)(X) - tanh(X)).abs().max() > 0.01


def jacobian(model):
    rows = []
    for value in model(X).flatten():
        grads = torch.autograd.grad(value, list(model.parameters()), retain_graph=True)
        rows.append(torch.cat([one.flatten() for one in grads]))
    return torch.stack(rows)


def test_directions_are_the_derivative_of_rescaling_and_change_nothing():
    model = network()
    directions = symmetry.rescaling_directions(model)
    assert directions.shape == (12, sum(p.numel() for p in model.parameters()))
    assert torch.linalg.matrix_rank(directions) == 12
    assert (jacobian(model) @ directions.T).abs().max() < 1e-12
    assert (jacobian(network(nn.Tanh)) @ directions.T).abs().max() > 0.01
    step = 1e-6
    factors = [torch.ones(n, dtype=torch.float64) for n in symmetry.hidden_sizes(model)]
    factors[1][2] += step
    moved = parameters_to_vector(symmetry.rescale(model, factors).parameters())
    slope = (moved - parameters_to_vector(model.parameters())) / step
    torch.testing.assert_close(slope, directions[9], rtol=1e-5, atol=1e-5)


def test_the_original_is_left_alone_and_a_flatten_may_come_first():
    model = nn.Sequential(nn.Flatten(), *network(sizes=(4, 3, 2)))
    before = parameters_to_vector(model.parameters()).clone()
    other = symmetry.rescale(model, [torch.tensor([2.0, 3.0, 4.0])])
    images = torch.randn(5, 2, 2, dtype=torch.float64)
    torch.testing.assert_close(other(images), model(images))
    assert torch.equal(parameters_to_vector(model.parameters()), before)


ONES = [torch.ones(7), torch.ones(5)]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: symmetry.rescale(network(nn.Tanh), ONES), "must be positively homogeneous, got Tanh"),
        (lambda: symmetry.rescale(network(), ONES[:1]), "of [7, 5]; got shapes [(7,)]"),
        (lambda: symmetry.rescale(network(), [ONES[0], -ONES[1]]), "positive and finite, got [-1.0"),
        (lambda: symmetry.flip(network(nn.Tanh), [ONES[0], 2 * ONES[1]]), "signs must be 1 or −1, got [2.0"),
        (lambda: symmetry.permute(network(), [ONES[0], ONES[1]]), "must hold each of 0 to 6 once"),
        (lambda: symmetry.hidden_sizes(nn.Sequential(nn.Linear(2, 1))), "at least two Linear layers, got 1"),
        (lambda: symmetry.hidden_sizes(nn.Linear(2, 1)), "known of nn.Sequential, got Linear"),
        (
            lambda: symmetry.hidden_sizes(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))),
            "got a BatchNorm1d",
        ),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence):
    with pytest.raises(UsageError) as caught:
        call()
    assert sentence in str(caught.value)
