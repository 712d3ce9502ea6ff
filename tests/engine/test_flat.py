"""Parameters in one buffer: the model does not notice, and updates equal PyTorch's."""

import copy

import pytest
import torch
from torch import nn

from apoint.engine.flat import ALIGNMENT, CHUNK, FlatOptimizer, FlatParameters
from apoint.errors import UsageError
from apoint.registry import registry


def small_model() -> nn.Module:
    torch.manual_seed(0)  # no batch norm: it makes a bias before it idle, and Adam would magnify its rounding
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 5)
    ).double()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("spec", "reference"),
    [
        (
            {"name": "adamw", "lr": 1e-2, "weight_decay": 0.3},
            lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.3),
        ),
        ({"name": "adam", "lr": 1e-2, "l2": 0.3}, lambda p: torch.optim.Adam(p, 1e-2, weight_decay=0.3)),
        (
            {"name": "momentum", "form": "sum", "lr": 1e-2, "momentum": 0.9},
            lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
        ),
    ],
    ids=["adamw", "adam", "momentum"],
)
def test_a_flat_update_equals_pytorchs(spec, reference, channels_last: bool) -> None:
    mine = small_model()
    theirs = copy.deepcopy(mine)
    if channels_last:
        mine = mine.to(memory_format=torch.channels_last)
    configured = registry("optimizer").build(spec)
    parameters = FlatParameters(mine)
    optimizer, peer = FlatOptimizer(configured.rule, parameters), reference(theirs.parameters())
    for step in range(1, 21):
        x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
        parameters.gradients_P.zero_()
        mine(x).square().sum().backward()
        optimizer.update(parameters.gradients_P, step, configured.hyper)
        peer.zero_grad()
        theirs(x).square().sum().backward()
        peer.step()
    for (name, a), b in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10, msg=name)


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "adam", "lr": 1e-2, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3},
        {"name": "adam", "lr": 1e-2, "l2": 0.2},
        {"name": "adam", "lr": 1e-2, "weight_decay": 0.2},
        {"name": "adamw", "lr": 1e-2, "weight_decay": 0.3, "beta2": 0.9},
    ],
    ids=str,
)
def test_fused_kernels_equal_the_rules(spec) -> None:
    configured = registry("optimizer").build(spec)
    sides = []
    for use_kernel in (True, False):
        flat = FlatParameters(small_model(), exempt={"0.bias"})
        sides.append((flat, FlatOptimizer(configured.rule, flat, use_kernel)))
    assert sides[0][1].kernel is not None
    torch.manual_seed(1)
    for step in range(1, 51):
        gradient = torch.randn_like(sides[0][0].weights_P) * torch.logspace(-3, 1, len(sides[0][0].weights_P))
        for _, optimizer in sides:
            optimizer.update(gradient, step, configured.hyper)
    torch.testing.assert_close(sides[0][0].weights_P, sides[1][0].weights_P, rtol=1e-10, atol=1e-12)
    for slot, values in sides[0][1].state().items():
        torch.testing.assert_close(values, sides[1][1].state()[slot], rtol=1e-10, atol=1e-12)


def test_both_sorts_of_decay_at_once_go_through_the_rule() -> None:
    configured = registry("optimizer").build({"name": "adam", "l2": 0.2, "weight_decay": 0.1})
    sides = [FlatParameters(small_model()) for _ in range(2)]
    for flat, use_kernel in zip(sides, (True, False), strict=True):
        FlatOptimizer(configured.rule, flat, use_kernel).update(flat.weights_P.clone(), 1, configured.hyper)
    assert torch.equal(sides[0].weights_P, sides[1].weights_P)


def test_parameters_are_views_with_their_own_shape_and_strides() -> None:
    model = small_model().to(memory_format=torch.channels_last)
    before = copy.deepcopy(model.state_dict())
    flat = FlatParameters(model, exempt={"0.bias", "1.weight"})
    assert flat.slots[-1].name == "1.weight"
    assert flat.boundary == flat.slots[-2].start == len(flat.weights_P) - 2 * ALIGNMENT
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.data, before[name], rtol=0, atol=0)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    flat.weights_P.zero_()
    assert not any(parameter.any() for parameter in model.parameters())
    named = flat.named(torch.arange(len(flat.weights_P)))
    assert {name: tuple(view.shape) for name, view in named.items()} == {
        name: tuple(parameter.shape) for name, parameter in model.named_parameters()
    }


def test_gradients_land_in_the_buffer_and_add_up() -> None:
    model = small_model()
    flat = FlatParameters(model)
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    model.eval()
    model(x).sum().backward()
    once = flat.gradients_P.clone()
    model(x).sum().backward()
    torch.testing.assert_close(flat.gradients_P, 2 * once)
    assert once.abs().sum() > 0


def test_exempt_parameters_do_not_decay() -> None:
    model = nn.Linear(3, 2)
    nn.init.ones_(model.weight)
    nn.init.ones_(model.bias)
    flat = FlatParameters(model, exempt={"bias"})
    configured = registry("optimizer").build({"name": "adamw", "lr": 0.1, "weight_decay": 0.5})
    FlatOptimizer(configured.rule, flat).update(flat.gradients_P, 1, configured.hyper)
    assert torch.allclose(model.weight, torch.full((2, 3), 0.95))
    assert torch.equal(model.bias, torch.ones(2))


def test_many_chunks_equal_one() -> None:
    torch.manual_seed(0)
    model = nn.Linear(CHUNK // 64 + 3, 150)
    flat = FlatParameters(model)
    assert len(list(flat.chunks())) > 2
    configured = registry("optimizer").build("adam")
    optimizer = FlatOptimizer(configured.rule, flat, use_kernel=False)
    start, gradient = flat.weights_P.clone(), torch.randn_like(flat.weights_P)
    optimizer.update(gradient, 1, configured.hyper)
    delta, _ = configured.rule.step(gradient, configured.rule.init(start), start, 1, configured.hyper)
    torch.testing.assert_close(flat.weights_P, start + delta, rtol=0, atol=0)


def test_tied_weights_stay_tied() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    flat = FlatParameters(model)
    assert flat.num_parameters == 16 + 4 + 4
    flat.weights_P.fill_(3)
    assert model[1].weight.data_ptr() == model[0].weight.data_ptr()


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Linear(4, 4)
    model.bias.requires_grad_(False)
    assert [slot.name for slot in FlatParameters(model).slots] == ["weight"]


def test_what_cannot_be_flat_is_refused() -> None:
    with pytest.raises(UsageError, match="no parameter to train"):
        FlatParameters(nn.ReLU())
    with pytest.raises(
        UsageError, match=r"one type and one device; the model has torch\.float32 on cpu, torch\.float64"
    ):
        FlatParameters(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))


def test_the_culprit_is_named() -> None:
    model = small_model()
    flat = FlatParameters(model)
    assert flat.first_nonfinite() is None
    model[4].weight.grad[2, 3] = float("nan")
    assert flat.first_nonfinite() == "4.weight"
