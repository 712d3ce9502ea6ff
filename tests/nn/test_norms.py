"""Norms against `torch.nn.functional` and against means and variances written out, in every layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.nn import norm
from apoint.registry import registry

FEATURES = 6
# (layout, num_dims, shape of an input with 6 features)
LAYOUTS: dict[str, tuple[Any, int, tuple[int, ...]]] = {
    "vectors": ("features", 0, (5, 6)),
    "sequences": ("features", 0, (5, 4, 6)),
    "channels-0": ("channels", 0, (5, 6)),
    "channels-1": ("channels", 1, (5, 6, 4)),
    "channels-2": ("channels", 2, (5, 6, 4, 3)),
}


def standardised(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    centred = x - x.mean(axes, keepdim=True)
    return centred / (centred.square().mean(axes, keepdim=True) + eps).sqrt()


def feature_axis(layout: str, x: Tensor) -> int:
    return x.dim() - 1 if layout == "features" else 1


def batch_reference(x: Tensor, layout: str, eps: float = 1e-5, **_: Any) -> Tensor:
    axis = feature_axis(layout, x)
    return standardised(x, tuple(a for a in range(x.dim()) if a != axis), eps)


def own_axes(x: Tensor, layout: str, over: str) -> tuple[int, ...]:
    whole = layout == "channels" and over == "all"
    return tuple(range(1, x.dim())) if whole else (feature_axis(layout, x),)


def layer_reference(x: Tensor, layout: str, eps: float = 1e-5, over: str = "all", **_: Any) -> Tensor:
    return standardised(x, own_axes(x, layout, over), eps)


def rms_reference(x: Tensor, layout: str, eps: float = 1e-6, over: str = "all", **_: Any) -> Tensor:
    return x / (x.square().mean(own_axes(x, layout, over), keepdim=True) + eps).sqrt()


def group_reference(x: Tensor, layout: str, eps: float = 1e-5, num_groups: int = 8, **_: Any) -> Tensor:
    axis = feature_axis(layout, x)
    size = x.shape[axis] // num_groups
    parts = x.split(size, dim=axis)
    axes = tuple(range(1, x.dim())) if layout == "channels" else (axis,)
    return torch.cat([standardised(part, axes, eps) for part in parts], dim=axis)


def none_reference(x: Tensor, layout: str, **_: Any) -> Tensor:
    return x


# name -> (reference without γ and β, the settings to try, beside the first)
REFERENCES: dict[str, tuple[Callable[..., Tensor], list[dict[str, Any]]]] = {
    "none": (none_reference, [{}]),
    "batch": (batch_reference, [{}, {"eps": 0.3}, {"momentum": 0.7}, {"affine": False}]),
    "layer": (
        layer_reference,
        [{}, {"eps": 0.3}, {"affine": False}, {"bias": False}, {"over": "channels"}],
    ),
    "rms": (rms_reference, [{}, {"eps": 0.3}, {"affine": False}, {"over": "channels"}]),
    "group": (
        group_reference,
        [
            {"num_groups": 2},
            {"num_groups": 3},
            {"num_groups": 2, "eps": 0.3},
            {"num_groups": 1, "affine": False},
        ],
    ),
}
CASES = [
    pytest.param(name, given, place, id=f"{name}-{given}-{place}")
    for name, (_, tried) in REFERENCES.items()
    for given in tried
    for place in LAYOUTS
]


def drawn(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Numbers whose mean and scale differ from feature to feature and from example to example."""
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, dtype=torch.float64, generator=source)
    return x * (1 + torch.rand(shape, dtype=torch.float64, generator=source)) + 0.7


def built(name: str, given: dict[str, Any], place: str) -> nn.Module:
    """A norm with γ and β away from 1 and 0, so that they count."""
    layout, num_dims, _ = LAYOUTS[place]
    module = norm({"name": name, **given}, FEATURES, layout, num_dims).double()
    source = torch.Generator().manual_seed(7)
    for parameter in module.parameters():
        parameter.data += torch.randn(parameter.shape, dtype=torch.float64, generator=source)
    return module


def expected(name: str, given: dict[str, Any], place: str, x: Tensor, module: nn.Module) -> Tensor:
    layout = LAYOUTS[place][0]
    z = REFERENCES[name][0](x, layout, **given)
    shape = [-1 if axis == feature_axis(layout, x) else 1 for axis in range(x.dim())]
    for key, parameter in module.named_parameters():
        z = z * parameter.view(shape) if key == "weight" else z + parameter.view(shape)
    return z


def ours() -> list[str]:
    known = registry("norm")
    return [name for name in known if known[name].build.__module__.startswith("apoint.")]


def test_every_norm_has_a_reference_and_every_setting_a_case() -> None:
    assert set(ours()) == set(REFERENCES)
    for name in ours():
        defaults = {key: value[1] for key, value in registry("norm")[name].setting_parameters.items()}
        tried = {key for given in REFERENCES[name][1] for key in given if given[key] != defaults[key]}
        assert tried == set(defaults), name


@pytest.mark.parametrize(("name", "given", "place"), CASES)
def test_values_and_gradients_are_those_of_the_formula(name: str, given: dict[str, Any], place: str) -> None:
    module = built(name, given, place)
    x = drawn(LAYOUTS[place][2]).requires_grad_()
    result, wanted = module(x), expected(name, given, place, x, module)
    torch.testing.assert_close(result, wanted, rtol=1e-12, atol=1e-12)
    direction = drawn(LAYOUTS[place][2], seed=1)
    wrt = [x, *module.parameters()]
    gradients = [torch.autograd.grad((z * direction).sum(), wrt) for z in (result, wanted)]
    for ours_, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours_, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("place", LAYOUTS)
def test_parameters_are_one_pair_for_each_feature_and_start_at_one_and_zero(place: str) -> None:
    layout, num_dims, _ = LAYOUTS[place]

    def found(spec: Any) -> dict[str, list[float]]:
        return {key: p.tolist() for key, p in norm(spec, FEATURES, layout, num_dims).named_parameters()}

    ones, zeros = [1.0] * FEATURES, [0.0] * FEATURES
    for spec in ("batch", "layer", {"name": "group", "num_groups": 2}):
        assert found(spec) == {"weight": ones, "bias": zeros}
    assert found({"name": "layer", "bias": False}) == {"weight": ones}
    assert found("rms") == {"weight": ones}
    assert found("none") == {}


def test_they_are_pytorchs_own() -> None:
    x_BF, x_BTF, x_BCHW = drawn((5, 6)), drawn((5, 4, 6)), drawn((5, 6, 4, 3))
    close = torch.testing.assert_close
    close(norm("batch", 6).double()(x_BF), F.batch_norm(x_BF, None, None, training=True))
    by_channel = F.batch_norm(x_BTF.transpose(1, 2), None, None, training=True).transpose(1, 2)
    close(norm("batch", 6).double()(x_BTF), by_channel)
    close(norm("layer", 6).double()(x_BTF), F.layer_norm(x_BTF, (6,)))
    close(norm("layer", 6, "channels", 2).double()(x_BCHW), F.layer_norm(x_BCHW, (6, 4, 3)))
    close(norm("rms", 6).double()(x_BTF), F.rms_norm(x_BTF, (6,), eps=1e-6))
    two = {"name": "group", "num_groups": 2}
    close(norm(two, 6, "channels", 2).double()(x_BCHW), F.group_norm(x_BCHW, 2))
    close(norm(two, 6).double()(x_BF), F.group_norm(x_BF, 2))


def test_other_tools_recognise_them() -> None:
    assert type(norm("batch", 6, "channels", 2)) is nn.BatchNorm2d
    assert type(norm("batch", 6, "channels", 1)) is nn.BatchNorm1d
    assert isinstance(norm("batch", 6), nn.BatchNorm1d)
    assert type(norm("layer", 6)) is nn.LayerNorm
    assert isinstance(norm("layer", 6, "channels", 2), nn.LayerNorm)
    assert type(norm("rms", 6)) is nn.RMSNorm
    assert isinstance(norm("rms", 6, "channels", 2), nn.RMSNorm)
    assert type(norm({"name": "group", "num_groups": 2}, 6, "channels", 2)) is nn.GroupNorm
    assert type(norm("none", 6)) is nn.Identity


@pytest.mark.parametrize("place", LAYOUTS)
def test_batch_norm_keeps_running_averages_as_its_formula_says(place: str) -> None:
    share = 0.3
    module = built("batch", {"momentum": share}, place)
    layout, _, shape = LAYOUTS[place]
    mean, variance = torch.zeros(6, dtype=torch.float64), torch.ones(6, dtype=torch.float64)
    for seed in range(3):
        x = drawn(shape, seed)
        module(x)
        x_NF = x.movedim(feature_axis(layout, x), -1).reshape(-1, 6)
        mean = (1 - share) * mean + share * x_NF.mean(0)
        variance = (1 - share) * variance + share * x_NF.var(0, unbiased=True)
    torch.testing.assert_close(module.running_mean, mean)
    torch.testing.assert_close(module.running_var, variance)
    x = drawn(shape, seed=9)
    x_NF = x.movedim(feature_axis(layout, x), -1)
    wanted = module.weight * (x_NF - mean) / (variance + 1e-5).sqrt() + module.bias
    result = module.eval()(x).movedim(feature_axis(layout, x), -1)
    torch.testing.assert_close(result, wanted)


@pytest.mark.parametrize("name", ["layer", "rms", "group"])
@pytest.mark.parametrize("place", LAYOUTS)
def test_an_example_does_not_depend_on_the_others(name: str, place: str) -> None:
    module = built(name, {"num_groups": 2} if name == "group" else {}, place)
    x = drawn(LAYOUTS[place][2])
    torch.testing.assert_close(module(x)[1:2], module(x[1:2]), rtol=0, atol=1e-14)


@settings(deadline=None, max_examples=25)
@given(scale=st.floats(0.1, 1e3), shift=st.floats(-1e2, 1e2), seed=st.integers(0, 99))
def test_what_each_norm_does_not_see(scale: float, shift: float, seed: int) -> None:
    """All but `none` ignore the scale of what they normalise, all but `rms` its shift (up to ε)."""
    for place in ("sequences", "channels-2"):
        layout, num_dims, shape = LAYOUTS[place]
        x = drawn(shape, seed)
        for name, extra in (("batch", {}), ("layer", {}), ("group", {"num_groups": 2}), ("rms", {})):
            module = norm({"name": name, "eps": 1e-12, **extra}, FEATURES, layout, num_dims).double()
            moved = scale * x if name == "rms" else scale * x + shift
            torch.testing.assert_close(module(moved), module(x), rtol=1e-6, atol=1e-6)


def test_batch_norm_refuses_one_vector_in_training_and_takes_it_in_evaluation() -> None:
    module = norm("batch", 6)
    with pytest.raises(UsageError) as refusal:
        module(torch.ones(1, 6))
    assert str(refusal.value) == (
        "norm 'batch': a batch in training needs at least 2 examples to take a variance over, got 1; use "
        "larger batches, drop the incomplete last one, or take the norm 'layer'"
    )
    assert module.num_batches_tracked == 0
    assert module.eval()(torch.ones(1, 6)).shape == (1, 6)
    assert norm("batch", 6)(drawn((1, 4, 6)).float()).shape == (1, 4, 6), "four positions have a variance"


@pytest.mark.parametrize(
    ("num_features", "num_groups", "layout", "num_dims", "sentence"),
    [
        (20, 8, "channels", 2, "must divide the 20 features, got 8; choose one of 1, 2, 4, 5, 10, 20"),
        (
            20,
            20,
            "features",
            0,
            "must divide the 20 features and leave at least 2 of them in a group, got 20; "
            "choose one of 1, 2, 4, 5, 10",
        ),
        (
            1,
            1,
            "channels",
            0,
            "must divide the 1 features and leave at least 2 of them in a group, got 1; choose another norm",
        ),
    ],
)
def test_group_norm_names_the_numbers_that_would_do(
    num_features: int, num_groups: int, layout: Any, num_dims: int, sentence: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        norm({"name": "group", "num_groups": num_groups}, num_features, layout, num_dims)
    assert str(refusal.value) == f"norm 'group': num_groups {sentence}"


def test_group_norm_takes_single_channels_where_there_is_space() -> None:
    module = norm({"name": "group", "num_groups": 6}, 6, "channels", 2).double()
    x = drawn((5, 6, 4, 3))
    torch.testing.assert_close(module(x), F.instance_norm(x))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("layer", 6, "channel"), "norm: unknown layout 'channel'; did you mean 'channels'?"),
        (("layer", 0), "norm: num_features must be at least 1, got 0"),
        (("layer", 6, "channels", 3), "norm: num_dims must be 0, 1 or 2 axes of space, got 3"),
        (
            ("layer", 6, "features", 1),
            "norm: num_dims counts the axes of space of the layout 'channels'; leave it at 0 in the layout "
            "'features', got 1",
        ),
        (("bach", 6), "unknown norm 'bach'; did you mean 'batch'?"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        norm(*arguments)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("place", LAYOUTS)
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_replicas_stacked_in_one_computation_equal_each_alone(name: str, place: str) -> None:
    """Also their running averages, which are written in place."""
    given = {"num_groups": 2} if name == "group" else {}
    alone = [built(name, given, place) for _ in range(3)]
    inputs = torch.stack([drawn(LAYOUTS[place][2], seed) for seed in range(3)])
    parameters, buffers = torch.func.stack_module_state(alone)
    template = built(name, given, place)

    def run(own: Any, own_buffers: Any, x: Tensor) -> Tensor:
        return torch.func.functional_call(template, (own, own_buffers), (x,))

    stacked = torch.func.vmap(run)(parameters, buffers, inputs)
    each = torch.stack([module(x) for module, x in zip(alone, inputs, strict=True)])
    torch.testing.assert_close(stacked, each, rtol=0, atol=1e-12)
    for key, buffer in buffers.items():
        torch.testing.assert_close(buffer, torch.stack([dict(m.named_buffers())[key] for m in alone]))
