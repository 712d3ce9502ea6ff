"""The contract of a rule, checked on every registered one: pure, elementwise, and each setting counts."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from apoint.checking import is_schedulable
from apoint.errors import UsageError
from apoint.optim import Configured, Rule, rule
from apoint.optim.base import Family, State, Updated, family_of, is_adaptive
from apoint.registry import registry
from apoint.settings import Positive
from tests.optim.cases import VARIANTS, configured, label, problem, rule_path

NAMES = list(registry("optimizer"))
each_setting = pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=label)


def steps(chosen: Configured, gradients: list[Tensor], param: Tensor) -> tuple[Tensor, State]:
    state = chosen.rule.init(param)
    for step, gradient in enumerate(gradients, 1):
        delta, state = chosen.rule.step(gradient, state, param, step, chosen.hyper)
        param = param + delta
    return param, state


def draws(*shape: int, count: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(count, *shape, generator=generator, dtype=torch.float64))


@each_setting
def test_flat_equals_parts(name: str, settings: dict[str, Any]) -> None:
    chosen = configured(name, **settings)
    param, *gradients = draws(37, count=9)
    flat, flat_state = steps(chosen, gradients, param)
    for part in (slice(0, 5), slice(5, 6), slice(6, 37)):
        alone, state = steps(chosen, [gradient[part] for gradient in gradients], param[part])
        torch.testing.assert_close(flat[part], alone, rtol=1e-14, atol=1e-15)
        for slot, values in state.items():
            torch.testing.assert_close(flat_state[slot][part], values, rtol=1e-14, atol=1e-15)


@each_setting
def test_shape_does_not_matter(name: str, settings: dict[str, Any]) -> None:
    chosen = configured(name, **settings)
    param, *gradients = draws(24, count=6)
    flat, _ = steps(chosen, gradients, param)
    cube, state = steps(chosen, [g.view(2, 3, 4) for g in gradients], param.view(2, 3, 4))
    torch.testing.assert_close(cube.flatten(), flat, rtol=1e-14, atol=1e-15)
    assert {values.shape for values in state.values()} <= {cube.shape}


def spread(name: str, setting: str, value: float, replicas: int) -> list[float]:
    """Different legal values of a setting, one for each replica, the given one first."""
    if (
        setting == "beta2" and name == "radam"
    ):  # one replica that never divides, one that starts to, one that does
        return [0.6, 0.95, 0.8][:replicas]
    return [value * 0.9**k if value else 0.02 * k for k in range(replicas)]


@each_setting
def test_stack_with_own_hyper_parameters_equals_separate_calls(name: str, settings: dict[str, Any]) -> None:
    chosen, replicas = configured(name, **settings), 3
    own = {
        key: spread(name, key, chosen.hyper[key], replicas)
        for key in chosen.rule.per_replica
        if not (key == "dampening" and chosen.hyper["form"] == "average")
    }
    param_RP, *gradients_RP = draws(replicas, 7, count=11)
    columns = {key: torch.tensor(values, dtype=torch.float64)[:, None] for key, values in own.items()}
    stacked = Configured(chosen.rule, {**chosen.hyper, **columns})
    together_RP, state_RP = steps(stacked, gradients_RP, param_RP)
    for r in range(replicas):
        single = Configured(chosen.rule, {**chosen.hyper, **{key: values[r] for key, values in own.items()}})
        alone_P, state_P = steps(single, [gradient[r] for gradient in gradients_RP], param_RP[r])
        torch.testing.assert_close(together_RP[r], alone_P, rtol=1e-12, atol=1e-12)
        for slot, values in state_P.items():
            torch.testing.assert_close(state_RP[slot][r], values, rtol=1e-12, atol=1e-12)


@each_setting
def test_inputs_are_left_alone_and_not_shared(name: str, settings: dict[str, Any]) -> None:
    """The caller overwrites gradient and parameter in place; the memory must not follow."""
    chosen = configured(name, **settings)
    param, *gradients = draws(4, count=7)
    state = chosen.rule.init(param)
    for step, gradient in enumerate(gradients, 1):
        given = {"gradient": gradient, "param": param, **state}
        before = {key: value.clone() for key, value in given.items()}
        delta, after = chosen.rule.step(gradient, state, param, step, chosen.hyper)
        for key, value in given.items():
            assert torch.equal(value, before[key]), key
        for value in (delta, *after.values()):
            assert value.data_ptr() not in (gradient.data_ptr(), param.data_ptr())
        assert delta.data_ptr() not in {value.data_ptr() for value in after.values()}
        param, state = param + delta, after


@each_setting
def test_memory_keeps_its_slots_shape_and_dtype(name: str, settings: dict[str, Any]) -> None:
    chosen = configured(name, **settings)
    param, *gradients = (draw.float() for draw in draws(2, 3, count=4))
    columns = {key: torch.full((2, 1), chosen.hyper[key]) for key in chosen.rule.per_replica}
    for hyper in (chosen.hyper, {**chosen.hyper, **columns}):
        state = chosen.rule.init(param)
        for step, gradient in enumerate(gradients, 1):
            delta, state = chosen.rule.step(gradient, state, param, step, hyper)
            assert state.keys() == chosen.rule.slots.keys()
            assert {(v.shape, v.dtype) for v in (delta, *state.values())} == {(param.shape, param.dtype)}


@each_setting
def test_a_coordinate_that_is_not_finite_stays_alone(name: str, settings: dict[str, Any]) -> None:
    chosen = configured(name, **settings)
    param, *gradients = draws(5, count=8)
    clean, _ = steps(chosen, gradients, param)
    gradients[2] = gradients[2].index_fill(0, torch.tensor([1]), float("nan"))
    spoiled, _ = steps(chosen, gradients, param)
    others = torch.tensor([0, 2, 3, 4])
    assert torch.equal(spoiled[others], clean[others])
    assert spoiled[1].isnan()


# Settings in which every hyper-parameter of the rule has something to do.
ACTIVE: dict[str, dict[str, Any]] = {
    "momentum": {"form": "sum", "dampening": 0.2},
    "nesterov": {"form": "sum"},
    "adagrad": {"eps": 1e-2, "lr_decay": 0.05, "initial_accumulator": 0.1},
    "rmsprop": {"eps": 1e-2, "momentum": 0.5, "centered": True},
    "adadelta": {"eps": 1e-2},
    "nadam": {"eps": 1e-2, "momentum_decay": 0.02},
    "radam": {"eps": 1e-2, "beta2": 0.95},
    **{key: {"eps": 1e-2} for key in ("adam", "adamw", "amsgrad", "adamax", "adabelief")},
}
OTHER: dict[str, Any] = {"form": "average", "base": "momentum", "centered": False, "every": 4}


@pytest.mark.parametrize(
    ("name", "setting"), [(n, s) for n in NAMES for s in registry("optimizer")[n].setting_parameters]
)
def test_each_setting_changes_the_path(name: str, setting: str) -> None:
    settings = {"lr": 0.03, "weight_decay": 0.1, "l2": 0.1, **ACTIVE.get(name, {})}
    if (name, setting) == ("momentum", "form"):
        settings["dampening"] = 0.0
    now = configured(name, **settings).hyper.get(setting)
    changed = {**settings, setting: OTHER[setting] if setting in OTHER else now * 0.9}
    of = problem(12, seed=4)
    paths = [torch.stack(list(rule_path(configured(name, **s), of, 30))) for s in (settings, changed)]
    assert (paths[0] - paths[1]).abs().max() > 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_real_settings_may_be_scheduled_and_are_described(name: str) -> None:
    for setting, (annotation, default, note) in registry("optimizer")[name].setting_parameters.items():
        assert note, f"{name}: {setting} has no line under Args"
        real = isinstance(default, float) or (default is None and setting != "lr")
        assert is_schedulable(annotation) == (real and setting != "lr"), f"{name}: {setting}"


@pytest.mark.parametrize("name", NAMES)
def test_documentation_is_complete(name: str) -> None:
    entry = registry("optimizer")[name]
    text = inspect.getdoc(entry.build) or ""
    assert entry.summary.endswith(".")
    assert "←" in text
    assert "Reference:" in text
    assert "PyTorch" in text or "`torch.optim." in text


@pytest.mark.parametrize("name", NAMES)
def test_builder_gives_rule_and_all_hyper_parameters(name: str) -> None:
    chosen = registry("optimizer").build(name)
    assert isinstance(chosen, Configured)
    assert isinstance(chosen.rule, Rule)
    assert chosen.rule.name == name
    assert chosen.hyper == dict(chosen.rule.defaults)
    assert {"lr", "weight_decay", "l2"} <= chosen.rule.per_replica
    assert all(isinstance(chosen.hyper[key], float) for key in chosen.rule.per_replica)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "lookahead"])
def test_decoupled_decay_stands_beside_the_rule(name: str) -> None:
    chosen = configured(name, lr=0.1, weight_decay=0.4)
    param, gradient = draws(6, count=2)
    state = chosen.rule.init(param)
    decayed, _ = chosen.rule.step(gradient, state, param, 1, chosen.hyper)
    plain, _ = chosen.rule.step(gradient, state, param, 1, {**chosen.hyper, "weight_decay": 0.0})
    torch.testing.assert_close(decayed - plain, -0.1 * 0.4 * param, rtol=1e-12, atol=1e-14)


def test_adamw_decays_by_default_and_lookahead_keeps_the_default_of_its_base() -> None:
    assert configured("adamw").hyper["weight_decay"] == 0.01
    assert configured("lookahead", base="adamw").hyper["weight_decay"] == 0.01
    assert configured("lookahead", base="adamw", weight_decay=0.0).hyper["weight_decay"] == 0.0
    assert configured("lookahead", base="lion").hyper["lr"] == configured("lion").hyper["lr"]
    inner = configured("lookahead", base={"name": "rmsprop", "centered": True, "alpha": 0.7}).hyper
    assert (inner["base.centered"], inner["base.alpha"]) == (True, 0.7)


def test_a_centered_variance_that_rounds_below_zero_is_not_nan() -> None:
    """With constant gradients the variance is 0 up to rounding, which PyTorch takes the root of."""
    chosen = configured("rmsprop", centered=True, alpha=0.5)
    param = torch.zeros(64)
    path, _ = steps(chosen, [torch.linspace(0.1, 3.0, 64)] * 60, param)
    assert path.isfinite().all()
    other = torch.zeros(64, requires_grad=True)
    theirs = torch.optim.RMSprop([other], centered=True, alpha=0.5)
    for _ in range(60):
        other.grad = torch.linspace(0.1, 3.0, 64)
        theirs.step()
    assert not other.isfinite().all()  # if this fails, PyTorch has changed, and so may our docstring


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"name": "lion", "lr": -0.1}, r"^optimizer 'lion': lr must be greater than 0(\.0)?, got -0\.1$"),
        ({"name": "adam", "beta1": 1.0}, r"^optimizer 'adam': beta1 must be less than 1(\.0)?, got 1\.0$"),
        ({"name": "adam", "eps": -1e-8}, r"^optimizer 'adam': eps must be at least 0(\.0)?, got -1e-08$"),
        ({"name": "adam", "lr": "fast"}, r"^optimizer 'adam': lr must be a number, got 'fast'$"),
        ({"name": "adam", "lr": float("inf")}, r"^optimizer 'adam': lr must be a finite number, got inf$"),
        ({"name": "adam", "betas": [0.9, 0.99]}, r"^optimizer 'adam': unknown setting 'betas'; did you mean"),
        ({"name": "sgd", "l2": -1}, r"^optimizer 'sgd': l2 must be at least 0(\.0)?, got -1$"),
        ({"name": "momentum", "form": "mean"}, r"form must be one of 'average' or 'sum', got 'mean'$"),
        (
            {"name": "momentum", "dampening": 0.5},
            r"^optimizer 'momentum': dampening must be 0 with form 'average', .*got 0\.5; write form 'sum'",
        ),
        ({"name": "lookahead", "every": 0}, r"^optimizer 'lookahead': every must be at least 1, got 0$"),
        (
            {"name": "lookahead", "alpha": 0},
            r"^optimizer 'lookahead': alpha must be greater than 0(\.0)?, got 0$",
        ),
        (
            {"name": "lookahead", "lr": -1},
            r"^optimizer 'lookahead': lr must be greater than 0(\.0)?, got -1$",
        ),
        ({"name": "lookahead", "base": "lookahead"}, r"^optimizer 'lookahead': base must be another rule"),
        (
            {"name": "lookahead", "base": "sdg"},
            r"^optimizer 'lookahead': base: unknown optimizer 'sdg'; did you",
        ),
        (
            {"name": "lookahead", "base": {"name": "sgd", "lr": 0.1}},
            r"^optimizer 'lookahead': write lr beside base, not inside it, got 0\.1$",
        ),
        (
            {"name": "lookahead", "base": {"name": "adam", "beta1": 2}},
            r"beta1 must be less than 1(\.0)?, got 2$",
        ),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        registry("optimizer").build(spec)


def test_a_schedule_cannot_bring_in_dampening_that_would_be_ignored() -> None:
    chosen = configured("momentum")
    param = torch.ones(2)
    with pytest.raises(UsageError, match="write form 'sum' to use it"):
        chosen.rule.step(param, chosen.rule.init(param), param, 1, {**chosen.hyper, "dampening": 0.3})


def test_a_users_rule_is_one_decorated_function() -> None:
    @rule("test-cubic", family="descent", slots={"last": 0.5})
    def cubic(gradient: Tensor, state: State, param: Tensor, step: int, *, lr: Positive = 0.1) -> Updated:
        """A rule of the tests.

        Args:
            lr: The rate.
        """
        return gradient**3 * -lr, {"last": gradient.clone()}

    try:
        chosen = configured("test-cubic", lr=0.2, weight_decay=0.5)
        param = torch.tensor([1.0, 2.0])
        assert torch.equal(chosen.rule.init(param)["last"], torch.tensor([0.5, 0.5]))
        delta, _ = chosen.rule.step(torch.ones(2), chosen.rule.init(param), param, 1, chosen.hyper)
        torch.testing.assert_close(delta, torch.tensor([-0.3, -0.4]))
        notes = {
            key: note for key, (_, _, note) in registry("optimizer")["test-cubic"].setting_parameters.items()
        }
        assert list(notes) == ["lr", "weight_decay", "l2"]
        assert all(notes.values())
    finally:
        registry("optimizer")._entries.pop("test-cubic")


def test_literal_settings_are_the_only_ones_that_are_not_numbers() -> None:
    """What cannot be a tensor is a choice, a switch, a count or another ingredient."""
    rules = {name: registry("optimizer").build(name).rule for name in NAMES}
    settings = {(n, s) for n in NAMES for s in registry("optimizer")[n].setting_parameters}
    assert {(name, setting) for name, setting in settings if setting not in rules[name].per_replica} == {
        ("momentum", "form"),
        ("nesterov", "form"),
        ("rmsprop", "centered"),
        ("lookahead", "base"),
        ("lookahead", "every"),
    }


@pytest.mark.parametrize("name", registry("optimizer"))
def test_the_family_of_a_rule_is_seen_in_its_steps(name: str) -> None:
    """A gradient ten times as large makes a step ten times as long only where nothing divides by its size."""
    family = family_of(name)
    assert family in get_args(Family)
    if family == "other":
        return
    configured = registry("optimizer").build({"name": name, "weight_decay": 0.0})
    param, gradient = torch.ones(3, dtype=torch.float64), torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    steps = []
    for scale in (1.0, 10.0):
        state = configured.rule.init(param)
        for step in range(1, 9):  # some adaptive rules begin as descent
            delta, state = configured.rule.step(scale * gradient, state, param, step, configured.hyper)
        steps.append(delta)
    grown = torch.allclose(steps[1], 10 * steps[0], rtol=1e-3)
    assert grown is (family == "descent")
    equal = torch.allclose(steps[0].abs(), steps[0].abs().mean().expand(3), rtol=1e-9)
    assert equal or family != "sign"
    assert is_adaptive(name) is (family in ("adaptive", "adam"))
