"""Initialisations: draws against torch.nn.init, gains against closed forms, variance through fifty layers."""

import itertools
import math

import pytest
import torch
from torch import nn

from apoint.checking import settings_model
from apoint.errors import UnknownNameError, UsageError
from apoint.models import create
from apoint.nn.attention import SelfAttention
from apoint.nn.gated import GatedUnit, feed_forward
from apoint.nn.initialisation import gain, initialise
from apoint.nn.recurrent import LSTM
from apoint.nn.residual import LayerScale, Residual, ScalarBias
from apoint.registry import registry
from tests.models.cases import all_cases

INITS = sorted(registry("init"))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def net(*layers):
    return nn.Sequential(*layers)


def small():
    """Two hidden layers, one of them a convolution, and a head."""
    return net(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 16), nn.ReLU(), nn.Linear(16, 10))


def weights(model):
    return [m.weight for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]


def deviation(parameter):
    return float(parameter.detach().std())


def ways(report):
    return {setting.name: setting.how for setting in report.settings}


# -- each scheme against torch.nn.init ---------------------------------------------------------------


def torch_scheme(name, settings):
    """What torch.nn.init would do to a hidden layer before a ReLU, from the same generator."""
    kind = settings.get("distribution", "normal")
    if name == "glorot":
        return nn.init.xavier_normal_ if kind == "normal" else nn.init.xavier_uniform_
    kaiming = nn.init.kaiming_normal_ if kind == "normal" else nn.init.kaiming_uniform_
    mode = settings.get("mode", "fan-in").replace("-", "_")
    nonlinearity = "linear" if name == "lecun" else "relu"
    return lambda weight, generator: kaiming(
        weight, mode=mode, nonlinearity=nonlinearity, generator=generator
    )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("glorot", {}),
        ("glorot", {"distribution": "uniform"}),
        ("he", {}),
        ("he", {"distribution": "uniform"}),
        ("he", {"mode": "fan-out"}),
        ("he", {"mode": "fan-out", "distribution": "uniform"}),
        ("lecun", {}),
        ("lecun", {"distribution": "uniform"}),
    ],
)
@pytest.mark.parametrize("layer", [nn.Linear(300, 200), nn.Conv2d(16, 24, (3, 5)), nn.Conv1d(7, 9, 4)])
def test_hidden_layers_equal_torchs_number_by_number(name, settings, layer):
    model = net(layer, nn.ReLU(), nn.Linear(5, 5))
    initialise(model, {"name": name, **settings}, generator=seeded())
    theirs = torch.empty_like(layer.weight)
    torch_scheme(name, settings)(theirs, generator=seeded())
    torch.testing.assert_close(layer.weight.detach(), theirs)


@pytest.mark.parametrize("distribution", ["normal", "uniform", "truncated"])
def test_standard_has_the_same_deviation_everywhere(distribution):
    model = net(nn.Linear(400, 300), nn.ReLU(), nn.Embedding(500, 200), nn.Linear(300, 300))
    initialise(model, {"name": "standard", "std": 0.05, "distribution": distribution}, generator=seeded())
    for index in (0, 2, 3):
        values = model[index].weight.detach()
        # the standard error of a deviation is at most σ/√(2n) for these three laws
        assert abs(float(values.std()) - 0.05) < 5 * 0.05 / math.sqrt(2 * values.numel())
        bound = {"normal": math.inf, "uniform": 0.05 * math.sqrt(3), "truncated": 0.1 / 0.879625661}[
            distribution
        ]
        assert values.abs().max() <= bound * (1 + 1e-6)
        if distribution != "normal":
            assert values.abs().max() > 0.999 * bound


def test_default_of_standard_is_a_hundredth():
    model = net(nn.Linear(300, 300))
    initialise(model, "standard", generator=seeded())
    assert deviation(model[0].weight) == pytest.approx(0.01, rel=0.02)


@pytest.mark.parametrize("shape", [(50, 30), (30, 50), (40, 40)])
def test_orthogonal_matrices(shape):
    rows, columns = shape
    layer = nn.Linear(columns, rows).double()
    initialise(net(layer, nn.ReLU(), nn.Linear(3, 3)), "orthogonal", generator=seeded())
    weight = layer.weight.detach() / math.sqrt(2)
    gram = weight @ weight.T if rows <= columns else weight.T @ weight
    torch.testing.assert_close(gram, torch.eye(len(gram), dtype=torch.float64), atol=1e-5, rtol=0)
    if rows >= columns:
        theirs = torch.empty(shape)
        nn.init.orthogonal_(theirs, gain=math.sqrt(2), generator=seeded())
        torch.testing.assert_close(layer.weight.detach().float(), theirs)


def test_orthogonal_linear_network_keeps_lengths_exactly():
    model = net(*[nn.Linear(64, 64, bias=False) for _ in range(100)])
    initialise(model, "orthogonal", activation="identity", generator=seeded())
    x = torch.randn(7, 64, generator=seeded(1))
    torch.testing.assert_close(model(x).norm(dim=1), x.norm(dim=1), rtol=1e-4, atol=0)


def test_as_built_touches_nothing():
    model = create("vit", input_size=8)
    before = [p.clone() for p in model.parameters()]
    report = initialise(model, "as-built", generator=seeded())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert report.left == tuple(name for name, _ in model.named_parameters())


# -- contracts on all of them ------------------------------------------------------------------------


@pytest.mark.parametrize("name", INITS)
def test_contract_same_seed_same_weights_and_no_global_draws(name):
    model = create("residual-mlp", in_features=6, width=8, depth=2, norm="none", fixup=True)
    state = torch.get_rng_state()
    runs = []
    for seed in (0, 0, 1):
        initialise(model, name, generator=seeded(seed))
        runs.append(torch.cat([p.detach().flatten().clone() for p in model.parameters()]))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2]) == (name == "as-built")
    assert all(p.grad_fn is None and p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("name", INITS)
def test_contract_draws_do_not_depend_on_the_models_type(name):
    results = []
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        model = create("residual-mlp", in_features=6, width=8, depth=2, norm="none", fixup=True).to(dtype)
        initialise(model, name, generator=seeded())
        results.append(torch.cat([p.detach().flatten().float() for p in model.parameters()]))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("name", INITS)
def test_contract_every_setting_is_described_and_changes_the_outcome(name):
    entry = registry("init")[name]
    other = {"distribution": "uniform", "gain": 1.7, "bias": "as-built", "mode": "fan-out", "std": 0.3}
    assert "Reference:" in entry.build.__doc__
    assert entry.summary.endswith(".")

    def drawn(**settings):
        torch.manual_seed(0)
        model = create("residual-mlp", in_features=6, width=8, depth=2, norm="none")
        initialise(model, {"name": name, **settings}, activation="tanh", generator=seeded())
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    for setting, (_, default, note) in entry.setting_parameters.items():
        assert note, f"{name}: {setting} has no description"
        assert other[setting] != default
        changed = {setting: other[setting]}
        if setting == "mode":  # all layers of branches are square; the backward gain still differs
            changed["gain"] = "auto"
        assert not torch.equal(drawn(), drawn(**changed)), f"{name}: {setting} changes nothing"
    assert settings_model(entry)()


def test_every_init_has_a_reference_in_these_tests():
    """Whoever adds one has to add the test that compares it with something else."""
    compared = {"glorot", "he", "lecun", "standard", "orthogonal", "fixup", "as-built"}
    assert set(INITS) == compared


# -- gains -------------------------------------------------------------------------------------------


def test_gains_in_closed_form():
    assert gain("identity") == pytest.approx(1, abs=1e-6)
    assert gain("relu") == pytest.approx(math.sqrt(2), abs=1e-6)
    for slope in (0.01, 0.3):
        spec = {"name": "leaky-relu", "slope": slope}
        assert gain(spec) == pytest.approx(math.sqrt(2 / (1 + slope**2)), abs=1e-6)
        assert gain(spec, backward=True) == pytest.approx(gain(spec), abs=1e-6)
    assert gain("selu") == pytest.approx(1, abs=1e-6)
    assert gain("tanh", backward=True) < gain("tanh")


@pytest.mark.parametrize("name", sorted(registry("activation")))
def test_every_activation_has_a_gain_both_ways(name):
    state = torch.get_rng_state()
    assert 0.1 < gain(name) < 10
    assert 0.1 < gain(name, backward=True) < 10
    assert torch.equal(torch.get_rng_state(), state)


def growth(activation, factor, build, *, draws=3, width=512, layers=50, renew=False):
    """Mean squares of the inputs of each layer, [draws, layers + 1], in a network that starts at variance 1.

    With `renew` each layer is given inputs of variance 1 instead of those that the layer before made.
    """
    stack = [part for _ in range(layers) for part in (build(), nn.Linear(width, width, bias=False))]
    model = net(*stack, nn.Linear(width, 1))
    squares = torch.empty(draws, layers + 1, dtype=torch.float64)
    for draw in range(draws):
        initialise(model, {"name": "he", "gain": factor}, activation=activation, generator=seeded(draw))
        fresh = torch.randn(16, width, generator=seeded(100 + draw))
        z, squares[draw, 0] = fresh, fresh.square().mean()
        for layer in range(layers):
            with torch.no_grad():
                z = stack[2 * layer + 1](stack[2 * layer](fresh if renew else z))
            squares[draw, layer + 1] = z.square().mean()
    return squares


def mean_ratio(squares, renew):
    """The mean factor of the variance from layer to layer, and its standard error."""
    ratios = squares[:, 1:] / (squares[:, :1] if renew else squares[:, :-1])
    return float(ratios.mean()), float(ratios.std() / math.sqrt(ratios.numel()))


CASES = {
    "relu": ("relu", nn.ReLU, False),
    "leaky": ({"name": "leaky-relu", "slope": 0.2}, lambda: nn.LeakyReLU(0.2), False),
    "gelu": ("gelu", nn.GELU, True),
}


@pytest.mark.parametrize("case", CASES)
def test_the_gain_keeps_variance_one_through_fifty_layers(case):
    """The mean factor from layer to layer is 1 within 5 standard errors; a gain off by 4 % is rejected.

    ReLU and leaky ReLU are homogeneous, so any variance is kept. Variance 1 is a fixed point for GELU too,
    but an unstable one (a deviation grows by 1.14 in each layer), so there every layer is given variance 1.
    """
    spec, build, renew = CASES[case]
    ratio, error = mean_ratio(growth(spec, "auto", build, renew=renew), renew)
    assert error < 0.01
    assert abs(ratio - 1) < 5 * error
    wrong, error = mean_ratio(growth(spec, 1.04 * gain(spec), build, renew=renew), renew)
    assert abs(wrong - 1) > 5 * error
    assert wrong == pytest.approx(1.04**2, abs=5 * error)


def test_tanh_comes_back_to_variance_one():
    """For tanh variance 1 is a stable fixed point; torch's gain of 5/3 settles elsewhere."""
    squares = growth("tanh", "auto", nn.Tanh)[:, 10:]
    error = 3 * float(squares.std()) / math.sqrt(squares.numel())  # neighbours are correlated: factor 3
    assert error < 0.03
    assert float(squares.mean()) == pytest.approx(1, abs=3 * error)
    elsewhere = growth("tanh", nn.init.calculate_gain("tanh"), nn.Tanh)[:, 10:]
    assert float(elsewhere.mean()) > 1 + 6 * error


def test_he_fan_out_keeps_the_variance_of_gradients():
    """Backward through tanh at variance 1, the mean factor is 1 within 5 standard errors."""
    factors = []
    for draw in range(40):
        linear = nn.Linear(400, 300, bias=False)
        model = net(linear, nn.Tanh(), nn.Linear(300, 1))
        initialise(model, {"name": "he", "mode": "fan-out"}, generator=seeded(draw))
        delta = torch.randn(8, 300, generator=seeded(50 + draw))
        z = torch.randn(8, 300, generator=seeded(90 + draw)).requires_grad_()
        (delta_z,) = torch.autograd.grad(torch.tanh(z), z, delta)
        factors.append(float((delta_z @ linear.weight.detach()).square().mean() / delta.square().mean()))
    factors = torch.tensor(factors)
    error = float(factors.std() / math.sqrt(len(factors)))
    assert error < 0.02
    assert abs(float(factors.mean()) - 1) < 5 * error


# -- fans --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "fan_in", "fan_out"),
    [
        (nn.Linear(300, 100), 300, 100),
        (nn.Conv2d(32, 64, 3, groups=4), 8 * 9, 16 * 9),
        (nn.Conv1d(40, 40, 5, groups=40), 5, 5),
        (nn.ConvTranspose2d(48, 16, 4, stride=2), 48 * 16, 16 * 16),
        (nn.ConvTranspose1d(48, 16, 4, groups=2), 24 * 4, 8 * 4),
        (nn.Conv3d(8, 16, 3), 8 * 27, 16 * 27),
    ],
)
def test_fans_of_layers(layer, fan_in, fan_out):
    for spec, wanted in (
        ({"name": "he", "gain": 1.0}, fan_in**-0.5),
        ({"name": "he", "gain": 1.0, "mode": "fan-out"}, fan_out**-0.5),
        ({"name": "glorot"}, (2 / (fan_in + fan_out)) ** 0.5),
    ):
        initialise(net(layer, nn.ReLU(), nn.Linear(2, 2)), spec, generator=seeded())
        values = layer.weight.detach()
        error = wanted / math.sqrt(2 * values.numel())
        assert abs(float(values.square().mean().sqrt()) - wanted) < 5 * error


def test_gates_and_projections_are_matrices_of_their_own():
    lstm, gru, ours = nn.LSTM(24, 24, 2, proj_size=0), nn.GRU(24, 24), LSTM(24, 24, 2)
    attention, torchs = SelfAttention(24, 4, causal=False), nn.MultiheadAttention(24, 4)
    model = net(lstm, gru, ours, attention, torchs)
    initialise(model, "orthogonal", generator=seeded())
    stacked = [lstm.weight_ih_l0, lstm.weight_hh_l1, gru.weight_hh_l0, ours.layers[1].weight_hh]
    for weight in (*stacked, attention.qkv.weight, torchs.in_proj_weight):
        for block in weight.detach().split(24):
            torch.testing.assert_close(block @ block.T, torch.eye(24), atol=1e-5, rtol=0)


# -- which layer gets which gain, and which parameter what -------------------------------------------


def test_rule_of_the_gain():
    torch.manual_seed(0)
    model = nn.ModuleDict(
        {
            "first": nn.Linear(8, 8),
            "patch_embedding": nn.Linear(8, 8),
            "block": Residual(
                net(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), shortcut=nn.Linear(8, 8), placement="none"
            ),
            "activated_block": Residual(net(nn.Linear(8, 8), nn.Linear(8, 8)), activation=nn.ReLU()),
            "attention": SelfAttention(8, 2, causal=False),
            "recurrent": LSTM(8, 8),
            "gated": GatedUnit(8, 8, "reglu"),
            "plain": Residual(feed_forward("plain", 8, 16)),
            "head": nn.Linear(8, 8),
        }
    )
    found = ways(initialise(model, "he", activation="relu", generator=seeded()))
    hidden = {name for name, how in found.items() if how == "he, gain 1.414"}
    others = {name for name, how in found.items() if how == "he, gain 1"}
    assert hidden == {
        "first.weight",
        "block.branch.0.weight",
        "activated_block.branch.0.weight",
        "activated_block.branch.1.weight",
        "gated.gate.weight",
        "plain.branch.expand.weight",
    }
    assert others == {
        "patch_embedding.weight",
        "block.branch.2.weight",
        "block.shortcut.weight",
        "attention.qkv.weight",
        "attention.output.weight",
        "recurrent.layers.0.weight_ih",
        "recurrent.layers.0.weight_hh",
        "gated.value.weight",
        "plain.branch.contract.weight",
        "head.weight",
    }


def test_head_is_the_named_one_or_the_last_linear_layer():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
            self.body = nn.Linear(4, 4)

    named = ways(initialise(Named(), "he", generator=seeded()))
    assert [name for name, how in named.items() if how == "he, gain 1"] == ["head.2.weight"]
    last = ways(initialise(small(), "he", generator=seeded()))
    assert [name for name, how in last.items() if how == "he, gain 1"] == ["5.weight"]


def test_activation_is_named_or_found_or_absent():
    def first_gain(*layers, activation=None):
        model = net(nn.Linear(4, 4), *layers, nn.Linear(4, 4))
        return ways(initialise(model, "he", activation=activation, generator=seeded()))["0.weight"]

    assert first_gain(nn.ReLU()) == "he, gain 1.414"
    assert first_gain(nn.Tanh()) == "he, gain 1.593"
    assert first_gain(nn.ReLU(), activation="tanh") == "he, gain 1.593"
    assert first_gain(activation={"name": "leaky-relu", "slope": 1.0}) == "he, gain 1"
    assert first_gain() == "he, gain 1"
    assert first_gain(nn.Softmax(dim=-1), nn.SELU()) == "he, gain 1"
    assert first_gain(nn.PReLU(4, init=0.5)) == f"he, gain {math.sqrt(2 / 1.25):.4g}"


def test_what_is_not_a_weight():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.class_token = nn.Parameter(torch.full((64,), 9.0))
            self.pos_embed = nn.Parameter(torch.full((64, 64), 9.0))
            self.temperature = nn.Parameter(torch.tensor(9.0))
            self.table = nn.Embedding(300, 64, padding_idx=2)
            self.norms = nn.ModuleList(
                [nn.BatchNorm2d(4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4)]
            )
            self.scalar = ScalarBias()
            self.residual = Residual(nn.Identity(), fixup=True)
            self.lstm = LSTM(4, 4, forget_bias=1.5)
            self.bilinear = nn.Bilinear(2, 2, 2)
            self.linear = nn.Linear(4, 4)

    model = Mixed()
    with torch.no_grad():
        for parameter in [
            *model.norms.parameters(),
            *model.scalar.parameters(),
            *model.residual.parameters(),
        ]:
            parameter.fill_(9.0)
    report = initialise(model, "he", generator=seeded())
    assert report.left == ("temperature", "bilinear.weight", "bilinear.bias")
    assert model.temperature == 9
    assert deviation(model.pos_embed) == pytest.approx(0.02, rel=0.06)
    assert deviation(model.class_token) == pytest.approx(0.02, rel=0.5)
    assert deviation(model.table.weight) == pytest.approx(1 / 8, rel=0.03)
    assert not model.table.weight[2].any()
    assert all(bool((norm.weight == 1).all()) for norm in model.norms)
    assert all(not norm.bias.any() for norm in model.norms if hasattr(norm, "bias"))
    assert model.scalar.scalar_bias == 0
    assert [p.item() for p in model.residual.parameters()] == [1, 0, 0]
    assert model.lstm.layers[0].bias_ih.view(4, 4).tolist() == [[0] * 4, [1.5] * 4, [0] * 4, [0] * 4]
    assert not model.lstm.layers[0].bias_hh.any()
    assert not model.linear.bias.any()
    assert "temperature " in str(report)
    assert str(report).splitlines()[0].split() == ["class_token", "normal,", "deviation", "0.02"]


def test_biases_may_be_left_as_built():
    model = net(nn.Linear(4, 4))
    before = model[0].bias.clone()
    report = initialise(model, {"name": "lecun", "bias": "as-built"}, generator=seeded())
    assert report.left == ("0.bias",)
    assert torch.equal(model[0].bias, before)


def test_tied_weights_are_set_once():
    model = create("char-transformer", vocab_size=11, context=4, width=16, depth=1)
    names = [setting.name for setting in initialise(model, "he", generator=seeded()).settings]
    assert "embedding.weight" in names
    assert "head.weight" not in names
    assert model.head.weight is model.embedding.weight


@pytest.mark.parametrize("case", all_cases().values(), ids=lambda case: case.name)
def test_all_registered_models_are_fully_understood(case):
    """No parameter of ours is left as built, but for those whose first value is a setting."""
    tokens = "tokens" in registry("model")[case.name].traits["inputs"]
    facts = {"in_channels": case.image[0], "input_size": case.image[1:]}
    model = create(case.name, **({"vocab_size": 7, "context": 4} if tokens else facts), **case.settings)
    scales = {f"{path}.factor" for path, module in model.named_modules() if isinstance(module, LayerScale)}
    assert set(initialise(model, "he", generator=seeded()).left) <= scales


# -- Fixup -------------------------------------------------------------------------------------------


def residual_net(depth, **settings):
    return create(
        "residual-mlp", in_features=32, num_classes=10, depth=depth, width=32, norm="none", **settings
    )


def body(model, x):
    return model.blocks(model.embedding(x))


def test_fixup_factors():
    """L^(-1/(2m - 2)) times He in branches, zero at their ends and at the head."""
    model = residual_net(16, fixup=True)
    found = ways(initialise(model, "fixup", generator=seeded()))
    assert found["blocks.3.branch.0.weight"] == f"fixup, gain {math.sqrt(2) * 16**-0.5:.4g}"
    assert found["embedding.weight"] == "fixup, gain 1"
    ends = [name for name, how in found.items() if how == "fixup, zero"]
    assert len(ends) == 16 + 1
    assert not model.head.weight.any()
    three = net(
        *[Residual(net(*[nn.Linear(4, 4) for _ in range(3)]), activation=nn.ReLU()) for _ in range(16)]
    )
    found = ways(initialise(three, "fixup", generator=seeded()))
    assert found["0.branch.1.weight"] == f"fixup, gain {math.sqrt(2) * 16**-0.25:.4g}"


def test_fixup_is_the_identity_plus_nothing_at_the_start():
    model = residual_net(50, fixup=True)
    initialise(model, "fixup", generator=seeded())
    x = torch.randn(64, 32, generator=seeded(1))
    assert torch.equal(body(model, x), model.embedding(x))
    assert torch.equal(model(x), torch.zeros(64, 10))


def test_fixup_bounds_what_he_lets_explode():
    """Fifty blocks without a norm: activations and gradients at the start of training."""
    x = torch.randn(64, 32, generator=seeded(1))
    sizes = {}
    for name in ("he", "fixup"):
        model = residual_net(50, fixup=name == "fixup")
        initialise(model, name, generator=seeded())
        hidden = body(model, x)
        hidden.square().sum(1).mean().mul(0.5).backward()
        sizes[name] = hidden.square().mean().item(), model.embedding.weight.grad.norm().item()
    assert sizes["fixup"][0] == pytest.approx(1, abs=0.3)
    assert sizes["fixup"][1] < 100
    assert sizes["he"][0] > 1e8
    assert sizes["he"][1] > 1e8


def test_fixup_changes_the_function_by_the_order_of_the_step_whatever_the_depth():
    """Ten times as many blocks change the outputs by about as much, and the loss falls at each step."""
    x = torch.randn(64, 32, generator=seeded(1))
    labels = torch.randint(10, (64,), generator=seeded(2))
    changes = []
    for depth in (10, 100):
        model = residual_net(depth, fixup=True)
        initialise(model, "fixup", generator=seeded())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses = []
        for _ in range(8):
            loss = nn.functional.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(math.log(10))
        assert all(after < before for before, after in itertools.pairwise(losses))
        changes.append(model(x).detach().norm().item())
    assert changes[1] == pytest.approx(changes[0], rel=0.5)


# -- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("xavier", "unknown init 'xavier'"),
        ({"name": "he", "gain": -1}, "init 'he': gain must be greater than 0(.0)?, got -1"),
        (
            {"name": "he", "mode": "fan-avg"},
            "init 'he': mode must be one of 'fan-in' or 'fan-out', got 'fan-avg'",
        ),
        ({"name": "standard", "std": 0}, "init 'standard': std must be greater than 0(.0)?, got 0"),
        ({"name": "glorot", "sigma": 1}, "init 'glorot': unknown setting 'sigma'"),
        ("fixup", "the model has no residual branch"),
    ],
)
def test_refusals(spec, sentence):
    with pytest.raises((UsageError, UnknownNameError), match=sentence):
        initialise(small(), spec, generator=seeded())


def test_a_layer_without_a_shape_is_refused():
    with pytest.raises(UsageError, match=r"0\.weight has no shape yet; run a batch"):
        initialise(net(nn.LazyLinear(4)), "he", generator=seeded())
