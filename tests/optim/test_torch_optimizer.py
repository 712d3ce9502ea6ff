"""The optimizers behave as PyTorch's do: groups, state, closures, schedulers, refusals."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import apoint.optim
from apoint.errors import UsageError
from apoint.optim import Adam, AdamW, Lion, Lookahead, Momentum, RuleOptimizer
from apoint.registry import registry
from tests.optim.cases import VARIANTS, label, problem
from tests.optim.test_rules_against_torch import optimizer_class

each_variant = pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=label)
PUBLIC = {
    "GradientDescent": "gradient-descent",
    "SGD": "sgd",
    "Momentum": "momentum",
    "Nesterov": "nesterov",
    "AdaGrad": "adagrad",
    "RMSProp": "rmsprop",
    "AdaDelta": "adadelta",
    "Adam": "adam",
    "AdamW": "adamw",
    "AMSGrad": "amsgrad",
    "AdaMax": "adamax",
    "NAdam": "nadam",
    "RAdam": "radam",
    "AdaBelief": "adabelief",
    "Lion": "lion",
    "Signum": "signum",
    "Lookahead": "lookahead",
}


def network(seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=generator, dtype=torch.float64))
    return model


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 3, generator=generator, dtype=torch.float64)
    return x, x.sum(1, keepdim=True).sin()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, scheduler: Any = None) -> Tensor:
    x, y = batch()
    for _ in range(steps):
        optimizer.zero_grad(
            set_to_none=False
        )  # zeroes in place: a state that shares the gradient would follow
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return torch.cat([param.detach().flatten() for param in model.parameters()])


def test_each_rule_has_a_public_class() -> None:
    classes = {key: getattr(apoint.optim, key) for key in apoint.optim.__all__}
    found = {
        key: one.rule.name
        for key, one in classes.items()
        if isinstance(one, type) and issubclass(one, RuleOptimizer) and one is not RuleOptimizer
    }
    assert found == PUBLIC
    assert set(PUBLIC.values()) == set(registry("optimizer"))


@pytest.mark.parametrize("name", registry("optimizer"))
def test_class_shows_its_settings_and_documentation(name: str) -> None:
    made, entry = optimizer_class(name), registry("optimizer")[name]
    shown = inspect.signature(made).parameters
    assert list(shown)[:2] == ["params", "lr"]
    assert set(shown) == {"params", *entry.setting_parameters}
    assert all(shown[key].default == default for key, (_, default, _) in entry.setting_parameters.items())
    assert made.__doc__ == inspect.getdoc(entry.build)
    assert str(inspect.signature(Lion)) == (
        "(params, lr: float = 0.0001, *, beta1: float = 0.9, beta2: float = 0.99, weight_decay: float = 0.0, "
        "l2: float = 0.0)"
    )


def test_rate_may_be_given_by_position() -> None:
    assert Adam(network().parameters(), 0.5).param_groups[0]["lr"] == 0.5


def test_whole_network_equals_torch() -> None:
    mine, other = network(), network()
    ours = AdamW(mine.parameters(), lr=0.05, weight_decay=0.1, beta1=0.8)
    theirs = torch.optim.AdamW(other.parameters(), lr=0.05, weight_decay=0.1, betas=(0.8, 0.999))
    torch.testing.assert_close(train(mine, ours, 30), train(other, theirs, 30), rtol=1e-10, atol=1e-10)


def test_groups_have_their_own_hyper_parameters() -> None:
    def groups(model: nn.Module) -> list[dict[str, Any]]:
        return [
            {"params": model[0].parameters(), "lr": 0.1, "weight_decay": 0.3, "name": "body"},
            {"params": model[2].parameters(), "eps": 1e-2},
        ]

    mine, other = network(), network()
    ours = AdamW(groups(mine), lr=0.01)
    theirs = torch.optim.AdamW(groups(other), lr=0.01)
    torch.testing.assert_close(train(mine, ours, 20), train(other, theirs, 20), rtol=1e-10, atol=1e-10)
    assert [group["lr"] for group in ours.param_groups] == [0.1, 0.01]
    assert ours.param_groups[0]["name"] == "body"


def test_a_group_added_later_takes_the_defaults() -> None:
    model = network()
    optimizer = Lookahead(model[0].parameters(), base="momentum", lr=0.02, every=2)
    optimizer.add_param_group({"params": model[2].parameters(), "base": "sgd", "alpha": 0.7})
    first, second = optimizer.param_groups
    assert (first["lr"], first["every"], first["alpha"], first["base.momentum"]) == (0.02, 2, 0.5, 0.9)
    assert (second["lr"], second["every"], second["alpha"]) == (0.02, 2, 0.7)
    assert "base.momentum" not in second
    before = [param.detach().clone() for param in model.parameters()]
    train(model, optimizer, 3)
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    velocity = {len(state) for state in optimizer.state.values()}
    assert velocity == {2, 3}  # step and slow weights, and for the first group a velocity


@each_variant
def test_state_survives_saving_and_loading(name: str, settings: dict[str, Any]) -> None:
    make = optimizer_class(name)
    straight = network()
    expected = train(straight, make(straight.parameters(), **settings), 9)
    model = network()
    first = make(model.parameters(), **settings)
    train(model, first, 4)
    saved = copy.deepcopy(first.state_dict())
    assert all(isinstance(state["step"], int) for state in saved["state"].values())
    second = make(model.parameters())  # other hyper-parameters: those saved are taken over
    second.load_state_dict(saved)
    assert torch.equal(train(model, second, 5), expected)
    second.add_param_group({"params": [torch.zeros(2, requires_grad=True)]})


@each_variant
def test_copy_goes_on_alike(name: str, settings: dict[str, Any]) -> None:
    model = network()
    optimizer = optimizer_class(name)(model.parameters(), **settings)
    train(model, optimizer, 3)
    twin = copy.deepcopy((model, optimizer))
    assert torch.equal(train(model, optimizer, 3), train(*twin, 3))


def test_the_state_of_another_rule_is_refused() -> None:
    lion, adam = Lion(network().parameters()), Adam(network().parameters())
    model = network()
    stepped = Adam(model.parameters())
    train(model, stepped, 1)
    for optimizer, state in (
        (lion, stepped.state_dict()),
        (adam, lion.state_dict()),
    ):
        who = type(optimizer).__name__
        with pytest.raises(
            UsageError, match=f"^{who}: the loaded state is another optimizer's; load one that {who}"
        ):
            optimizer.load_state_dict(state)
    theirs = torch.optim.Adam(network().parameters())
    with pytest.raises(UsageError, match=r"^Lookahead: the loaded state is another optimizer's"):
        Lookahead(network().parameters()).load_state_dict(theirs.state_dict())


def test_closure_is_called_with_gradients_on_and_its_loss_returned() -> None:
    model, (x, y) = network(), batch()
    optimizer = Adam(model.parameters(), lr=0.01)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    first, second = optimizer.step(closure), optimizer.step(closure)
    assert second.item() < first.item()
    assert optimizer.step() is None


SCHEDULERS = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 3, gamma=0.5),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 12),
    "warm-up": lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=6),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda t: 0.0 if t < 2 else 1 / t),
    "one-cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_of_torch_work(name: str) -> None:
    """One-cycle moves the momentum too."""
    mine, other = network(), network()
    ours = Momentum(mine.parameters(), lr=0.05, momentum=0.8, form="sum")
    theirs = torch.optim.SGD(other.parameters(), lr=0.05, momentum=0.8)
    paths = [train(m, o, 12, SCHEDULERS[name](o)) for m, o in ((mine, ours), (other, theirs))]
    torch.testing.assert_close(*paths, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", registry("optimizer"))
def test_a_parameter_without_gradient_is_skipped(name: str) -> None:
    """It neither moves, nor decays, nor counts a step, and is then as fresh as at the start."""
    make = optimizer_class(name)
    of = problem(3, seed=9)
    late, busy = (of.start.clone().requires_grad_() for _ in range(2))
    optimizer = make([late, busy], weight_decay=0.1)
    for step in range(1, 4):
        busy.grad = of.gradient(busy.detach(), step)
        optimizer.step()
    assert torch.equal(late.detach(), of.start)
    assert late not in optimizer.state
    late.grad = of.gradient(late.detach(), 1)
    busy.grad = None
    optimizer.step()
    fresh = of.start.clone().requires_grad_()
    fresh.grad = late.grad.clone()
    make([fresh], weight_decay=0.1).step()
    assert torch.equal(late.detach(), fresh.detach())
    assert (optimizer.state[late]["step"], optimizer.state[busy]["step"]) == (1, 3)


def test_named_parameters_are_taken_with_their_names() -> None:
    model = network()
    optimizer = Lion(model.named_parameters(), lr=1e-4, weight_decay=1.0)
    assert optimizer.param_groups[0]["param_names"] == [name for name, _ in model.named_parameters()]


def test_strided_parameters_keep_their_memory_format() -> None:
    weight = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last).requires_grad_()
    weight.grad = torch.randn(4, 3, 2, 2)
    optimizer = Adam([weight])
    optimizer.step()
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert optimizer.state[weight]["square"].shape == weight.shape


def test_sparse_gradients_are_refused() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(
        UsageError, match=r"^Lion: sparse gradients are not supported; build the layer with sparse=Fa"
    ):
        Lion(table.parameters()).step()


def test_complex_parameters_are_refused_when_given() -> None:
    good, bad = torch.zeros(2, requires_grad=True), torch.zeros(2, dtype=torch.complex64, requires_grad=True)
    with pytest.raises(UsageError, match=r"^Adam: complex parameters are not supported; use real ones$"):
        Adam([good, bad])
    optimizer = Adam([good])
    with pytest.raises(UsageError, match=r"^Adam: complex parameters are not supported"):
        optimizer.add_param_group({"params": [bad]})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lr": -0.1}, r"^optimizer 'lion': lr must be greater than 0(\.0)?, got -0\.1$"),
        ({"lr": 0}, r"^optimizer 'lion': lr must be greater than 0(\.0)?, got 0$"),
        ({"beta2": 1}, r"^optimizer 'lion': beta2 must be less than 1(\.0)?, got 1$"),
        ({"weight_decay": -1}, r"^optimizer 'lion': weight_decay must be at least 0(\.0)?, got -1$"),
        (
            {"foreach": True},
            r"^optimizer 'lion': unknown setting 'foreach'; known: beta1, beta2, l2, lr, weight",
        ),
        ({"name": "adam"}, r"^optimizer 'lion': unknown setting 'name'"),
    ],
)
def test_wrong_settings_are_refused_as_in_a_recipe(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Lion(network().parameters(), **settings)
    if "name" not in settings:  # in a group it is a label
        with pytest.raises(UsageError, match=sentence):
            Lion([{"params": network().parameters(), **settings}])


def test_a_misspelt_setting_of_a_group_is_not_ignored() -> None:
    with pytest.raises(UsageError, match="unknown setting 'weigth_decay'; did you mean 'weight_decay'"):
        AdamW([{"params": network().parameters(), "weigth_decay": 0.1}])


def test_a_users_optimizer_is_one_line() -> None:
    class Mine(RuleOptimizer, rule=Lion.rule): ...

    class Heir(Mine): ...

    left, right = network(), network()
    paths = [train(m, make(m.parameters(), lr=0.01), 4) for m, make in ((left, Heir), (right, Lion))]
    assert torch.equal(*paths)
