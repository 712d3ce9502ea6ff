"""Laws that every registered model obeys, found by asking the registry."""

import copy
import inspect

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from apoint.models import count_parameters, create
from apoint.nn.dropout import Dropout, StochasticDepth, set_rate
from apoint.registry import registry
from tests.models.cases import all_cases

SHAPES = {
    "vector": (12,),
    "signal": (2, 12),
    "tokens": (6,),
}
FACTS = {
    "vector": {"in_features": 12, "num_classes": 5},
    "signal": {"in_channels": 2, "input_size": (12,), "num_classes": 5},
    "image": {"in_channels": 3, "input_size": 8, "num_classes": 5},
    "tokens": {"vocab_size": 7, "context": 6},
}
CASES = all_cases()
# For each setting another value than its default and than the one in SMALL.
OTHER = {
    "depth": 4,
    "width": 16,
    "activation": "softsign",
    "norm": "rms",
    "norm_placement": "after",
    "placement": {"pre": "post", "post": "pre"},
    "dropout": 0.4,
    "input_dropout": 0.4,
    "stochastic_depth": 0.4,
    "stochastic_depth_mode": "sample",
    "bias": False,
    "layer_scale": 0.1,
    "kernel_size": 5,
    "pool_every": 2,
    "pool": "average",
    "head": "flatten",
    "fixup": True,
    "shortcut": "B",
    "patch_size": 2,
    "num_heads": 4,
    "feed_forward": "swiglu",
    "expansion": 2.0,
    "pooling": "mean",
    "positional": "sinusoidal",
    "tied": {True: False, False: True},
    "embedding": 4,
    "forget_bias": 0.0,
}
# What must be set beside it for a setting to show.
BESIDE = {
    "fixup": {"norm": "none"},
    "norm_placement": {"norm": "layer"},
    "placement": {"norm": "layer"},
    "stochastic_depth_mode": {"stochastic_depth": 0.4},
}
EVERY = sorted(registry("model"))
# A member is its family with some settings fixed, and would only cost time.
MODELS = [name for name in EVERY if "member_of" not in registry("model")[name].traits]
KINDS = [(name, kind) for name in MODELS for kind in registry("model")[name].traits["inputs"]]


def build(name, kind=None, **settings):
    """A small model of this name with weights that depend on its structure alone."""
    kind = kind or registry("model")[name].traits["inputs"][0]
    torch.manual_seed(0)
    facts = {**FACTS[kind], **({"input_size": CASES[name].image[1:]} if kind == "image" else {})}
    return create(name, **facts, **{**CASES[name].settings, **settings})


def batch(name, kind=None, size=4):
    kind = kind or registry("model")[name].traits["inputs"][0]
    generator = torch.Generator().manual_seed(1)
    if kind == "tokens":
        return torch.randint(7, (size, *SHAPES[kind]), generator=generator)
    shape = CASES[name].image if kind == "image" else SHAPES[kind]
    return torch.randn(size, *shape, generator=generator)


def test_every_family_has_a_case():
    assert sorted(CASES) == MODELS


def test_members_belong_to_a_family_and_have_its_settings_but_those_that_are_fixed():
    for name in set(EVERY) - set(MODELS):
        entry = registry("model")[name]
        family = registry("model")[entry.traits["member_of"]]
        assert set(entry.setting_parameters) < set(family.setting_parameters), name
        assert entry.traits["inputs"] == family.traits["inputs"], name


@pytest.mark.parametrize("name", EVERY)
def test_documentation_is_complete(name):
    entry = registry("model")[name]
    documentation = inspect.getdoc(entry.build)
    assert entry.summary.endswith(".")
    assert "Reference:" in documentation
    assert entry.traits["inputs"]
    for setting, (_, default, note) in entry.setting_parameters.items():
        assert note, f"{name}: {setting} has no description"
        assert default is not inspect.Parameter.empty, f"{name}: {setting} has no default"


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_output_shape(name, kind):
    wanted = (4, 6, 7) if kind == "tokens" else (4, 5)
    assert build(name, kind)(batch(name, kind)).shape == wanted


@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_every_parameter(name):
    model = build(name)
    model(batch(name)).square().sum().backward()
    unreached = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert unreached == []


@pytest.mark.parametrize("name", MODELS)
def test_evaluation_is_deterministic_and_draws_nothing(name):
    entry = registry("model")[name]
    rates = {key: 0.3 for key in ("dropout", "stochastic_depth") if key in entry.setting_parameters}
    model = build(name, **rates).eval()
    state = torch.get_rng_state()
    first = model(batch(name))
    assert torch.equal(first, model(batch(name)))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", MODELS)
def test_one_sample_does_not_see_another_in_evaluation(name):
    model = build(name).eval()
    torch.testing.assert_close(model(batch(name))[:1], model(batch(name)[:1]), rtol=1e-4, atol=1e-5)


def fingerprint(model, name):
    """What a setting may change: structure, weights, or outputs in evaluation and in training."""
    torch.manual_seed(2)
    outputs = [model.eval()(batch(name)), model.train()(batch(name))]
    return repr(model), count_parameters(model), [out.detach().numpy().tobytes() for out in outputs]


@pytest.mark.parametrize(
    ("name", "setting"),
    [(name, setting) for name in MODELS for setting in registry("model")[name].setting_parameters],
)
def test_every_setting_changes_something(name, setting):
    entry = registry("model")[name]
    value = {**OTHER, **CASES[name].other}[setting]
    default = entry.setting_parameters[setting][1]
    value = value[default] if isinstance(value, dict) and default in value else value
    beside = {**BESIDE, **CASES[name].beside}.get(setting, {})
    before = fingerprint(build(name, **beside), name)
    after = fingerprint(build(name, **{**beside, setting: value}), name)
    assert before != after


@pytest.mark.parametrize("name", MODELS)
def test_knobs_are_there_at_rate_zero_and_can_be_turned(name):
    """A recipe may put a rate on a schedule, so the modules stand there even at rate 0."""
    entry = registry("model")[name]
    knobs = [
        key for key in ("dropout", "input_dropout", "stochastic_depth") if key in entry.setting_parameters
    ]
    assert "dropout" in knobs
    for knob in knobs:
        model = build(name)
        calm = [model(batch(name)) for _ in range(2)]
        assert torch.equal(calm[0], calm[1])
        assert set_rate(model, knob, 0.6) > 0
        seen = {model(batch(name)).detach().numpy().tobytes() for _ in range(12)}
        assert len(seen) > 1
        assert set_rate(model, knob, 0.0) > 0
        assert torch.equal(model(batch(name)), calm[0])


@pytest.mark.parametrize("name", MODELS)
def test_each_module_that_drops_has_an_effect_of_its_own(name):
    """A module that stands in the model but not on the way of the data would be turned in vain."""
    model = build(name)
    calm = model(batch(name))
    torch.manual_seed(0)
    for path, module in model.named_modules():
        if hasattr(module, "knob"):
            module.rate = 0.9
            assert any(not torch.equal(model(batch(name)), calm) for _ in range(50)), path
            module.rate = 0.0


@pytest.mark.parametrize("name", MODELS)
def test_rates_of_settings_are_those_of_the_modules(name):
    entry = registry("model")[name]
    for knob, kind in (
        ("dropout", Dropout),
        ("input_dropout", Dropout),
        ("stochastic_depth", StochasticDepth),
    ):
        if knob in entry.setting_parameters:
            model = build(name, **{knob: 0.25})
            rates = {m.rate for m in model.modules() if isinstance(m, kind) and m.knob == knob}
            others = {m.rate for m in model.modules() if hasattr(m, "knob") and m.knob != knob}
            assert rates == {0.25}
            assert others <= {0.0}


@pytest.mark.parametrize("name", MODELS)
def test_stochastic_depth_grows_with_depth_to_the_whole_rate(name):
    if "stochastic_depth" not in registry("model")[name].setting_parameters:
        pytest.skip("no residual branches")
    drops = [m for m in build(name, stochastic_depth=0.5).modules() if isinstance(m, StochasticDepth)]
    shares = [drop.depth_share for drop in drops]
    assert shares == sorted(shares)
    levels = sorted(set(shares))
    assert len(levels) > 1, "the case has one block only"
    assert levels == pytest.approx([(i + 1) / len(levels) for i in range(len(levels))])


@pytest.mark.parametrize("name", [name for name, kind in KINDS if kind == "image"])
def test_channels_last(name):
    model = build(name, "image").eval()
    images = batch(name, "image")
    wanted = model(images)
    got = model.to(memory_format=torch.channels_last)(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_replicas_can_be_stacked(name):
    """functional_call under vmap over two sets of weights is what each set gives alone."""
    models = [build(name).eval(), build(name).eval()]
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter.mul_(1.5).add_(0.01)
    parameters, buffers = torch.func.stack_module_state(models)
    shell = copy.deepcopy(models[0])  # not on "meta", where tied weights come apart
    inputs = batch(name)

    def call(weights, constants):
        return torch.func.functional_call(shell, (weights, constants), (inputs,))

    with sdpa_kernel(SDPBackend.MATH):  # the fused kernel has no batching rule
        stacked = torch.func.vmap(call)(parameters, buffers)
    for out, model in zip(stacked, models, strict=True):
        torch.testing.assert_close(out, model(inputs), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_plain_modules(name):
    """State dicts load elsewhere, copies work, and what is built twice with one seed is equal."""
    first, second = build(name), build(name)
    assert isinstance(first, nn.Module)
    assert isinstance(first.head, nn.Linear)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    other = copy.deepcopy(second)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    other.load_state_dict(first.state_dict())
    assert torch.equal(first.eval()(batch(name)), other.eval()(batch(name)))
